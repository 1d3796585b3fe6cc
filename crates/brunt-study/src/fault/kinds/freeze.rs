//! `freeze`: stops the process of a served target; its connections stay open.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control::Absence;
use crate::fault::driver::DriverError;
use crate::fault::kind::{About, FaultCommon, Info, Kind, Mistake, Pair, Prepared, Scene, Stage, Together};
use crate::fault::process::{self, ProcessFault};

pub(super) const INFO: Info = Info {
    keys: &["freeze"],
    help: "stops the process of a served target (SIGSTOP); its connections stay open",
    proof: "the kernel reports all its threads stopped, and later running again",
    example: "target = \"disk\"\nfreeze = true\nat = \"5s\"\nfor = \"5s\"",
};

/// A `[[fault]]` of this kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// Stops the process of a served target (SIGSTOP); its connections stay open.
    pub freeze: bool,
}

impl Kind for Freeze {
    fn about(&self) -> About {
        About::Process
    }

    fn what(&self) -> String {
        "freeze".to_string()
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        process::served("freeze", common, stage)
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        (pair.same_target() && pair.other_as::<Freeze>().is_some()).then(process::away_twice).flatten()
    }

    fn prepare(&self, common: &FaultCommon, scene: &mut Scene<'_>) -> Result<Prepared, DriverError> {
        let role = scene.role(&common.target)?;
        Ok(Prepared::new(move || Ok(Box::new(ProcessFault::new(role.clone(), Absence::Frozen)))))
    }
}
