//! `freeze`: stops the process of a served target; its connections stay open.

use brunt_protocol::HostFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control::Absence;
use crate::fault::driver::DriverError;
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};
use crate::fault::process::{self, ProcessFault, ProcessKey, Whose};

pub(super) const INFO: Info = Info {
    keys: &["freeze", "service", "process"],
    on_hosts: true,
    help: "stops the process of a served target, all processes of a `service`, or a `process` on another host (SIGSTOP); its connections stay open",
    proof: "the kernel reports all threads of the process stopped, and later running again",
    example: "target = \"disk\"\nfreeze = true\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `freeze` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// Stops the process of a served target, or all processes of a `service` (SIGSTOP); its connections stay open.
    pub freeze: bool,
    /// With `freeze` or `kill`: all processes of this service, instead of a target's process. With `disk`: the
    /// service whose processes are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// With `freeze` or `kill` on another `host`: the process, by its program's name (`/proc/PID/comm`) or its PID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessKey>,
}

impl Freeze {
    pub(super) fn whose(&self) -> Whose<'_> {
        Whose {
            service: self.service.as_ref(),
            process: self.process.as_ref(),
        }
    }
}

impl Kind for Freeze {
    fn about(&self) -> About {
        self.whose().about()
    }

    fn service(&self) -> Option<&str> {
        self.service.as_deref()
    }

    fn place(&self, common: &FaultCommon) -> String {
        self.whose().place(common)
    }

    fn what(&self) -> String {
        "freeze".to_string()
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        process::check("freeze", self.whose(), common, stage)
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let other = pair.other_as::<Freeze>()?;
        process::is_same(pair, self.whose(), other.whose())
            .then(process::away_twice)
            .flatten()
    }

    fn on_host(&self, _common: &FaultCommon) -> Option<HostFault> {
        Some(HostFault::Freeze {
            process: self.process.as_ref()?.of_host(),
        })
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let role = self.whose().role(common, scene)?;
        Ok(Prepared::new(move || {
            Ok(Box::new(ProcessFault::new(role.clone(), Absence::Frozen)))
        }))
    }
}
