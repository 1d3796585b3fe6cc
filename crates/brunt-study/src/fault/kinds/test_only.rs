//! A kind of fault for tests: it needs only this file and one line in the table.

use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault::driver::{DriverError, FaultDriver};
use crate::fault::kind::{About, FaultCommon, FaultContext, Info, Kind, Mistake, Prepared, Stage};

pub(super) const INFO: Info = Info {
    keys: &["test_only", "hidden"],
    on_hosts: false,
    help: "does nothing, and reports an effect or none, as configured",
    proof: "its own setting",
    example: "test_only = true\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a fault of this kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestOnly {
    /// Selects this kind.
    pub test_only: bool,
    /// Whether the fault shows an effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl Kind for TestOnly {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        "a test".to_string()
    }

    fn check(&self, _common: &FaultCommon, _stage: &dyn Stage) -> Result<(), Mistake> {
        Ok(())
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        _scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let hidden = self.hidden;
        Ok(Prepared::new(move || {
            Ok(Box::new(Told {
                hidden,
                there: None,
            }))
        }))
    }
}

struct Told {
    hidden: bool,
    there: Option<Nanos>,
}

impl FaultDriver for Told {
    fn describe(&self) -> String {
        "a test".to_string()
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        Ok(Some(*self.there.insert(Clock::Monotonic.now())))
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        let proof = |at| Proof {
            at,
            seen: Clock::Monotonic.now(),
            what: "it is there".into(),
            value: None,
        };
        Ok(self.there.filter(|_| !self.hidden).map(proof))
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        self.there.take().ok_or(DriverError::NotThere)?;
        let at = Clock::Monotonic.now();
        Ok(Proof {
            at,
            seen: at,
            what: "it is gone".into(),
            value: None,
        })
    }
}
