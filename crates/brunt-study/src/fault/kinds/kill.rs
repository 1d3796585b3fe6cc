//! `kill`: kills the process of a target that the experiment serves, and restarts it when the fault is over, like a
//! controller that crashes and reboots.

use brunt_protocol::HostFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freeze::Freeze;
use crate::control::Absence;
use crate::fault::driver::DriverError;
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};
use crate::fault::process::{self, ProcessFault, ProcessKey, Whose};

pub(super) const INFO: Info = Info {
    keys: &["kill", "service", "process"],
    on_hosts: true,
    help: "kills the process of a served target, or all processes of a `service`, and restarts them \
     at the end of the fault; or kills a `process` on another host, which something on that host must restart",
    proof: "the kernel reports the process dead, and later a new process serves in its place",
    example: "target = \"disk\"\nkill = true\nat = \"5s\"\nfor = \"1s\"",
};

/// The keys of a `kill` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Kills the process of a served target, or all processes of a `service`, and restarts them at the end of the
    /// fault.
    pub kill: bool,
    /// With `freeze` or `kill`: all processes of this service, instead of a target's process. With `disk`: the
    /// service whose processes are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// With `freeze` or `kill` on another `host`: the process, by its program's name (`/proc/PID/comm`) or its PID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessKey>,
}

impl Kill {
    pub(super) fn whose(&self) -> Whose<'_> {
        Whose {
            service: self.service.as_ref(),
            process: self.process.as_ref(),
        }
    }
}

impl Kind for Kill {
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
        "kill".to_string()
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        process::check("kill", self.whose(), common, stage)
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let killed = pair.other_as::<Kill>().map(Kill::whose);
        let other = killed.or(pair.other_as::<Freeze>().map(Freeze::whose))?;
        process::is_same(pair, self.whose(), other)
            .then(process::away_twice)
            .flatten()
    }

    fn on_host(&self, common: &FaultCommon) -> Option<HostFault> {
        Some(HostFault::Kill {
            process: self.process.as_ref()?.of_host(),
            comes_back: common.lasts.is_some(),
        })
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let role = self.whose().role(common, scene)?;
        Ok(Prepared::new(move || {
            Ok(Box::new(ProcessFault::new(role.clone(), Absence::Dead)))
        }))
    }
}
