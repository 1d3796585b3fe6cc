//! `kill`: the process of a target that the experiment serves dies, and is started again when the fault is
//! over: a controller that crashes and reboots.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freeze::Freeze;
use crate::control::Absence;
use crate::fault::driver::DriverError;
use crate::fault::kind::{About, FaultCommon, Info, Kind, Mistake, Pair, Prepared, Scene, Stage, Together};
use crate::fault::process::{self, ProcessFault};

pub(super) const INFO: Info = Info {
    keys: &["kill"],
    help: "kills the process of a served target and starts it again at the end of the fault",
    proof: "the kernel reports it dead, and later a new process serves in its place",
    example: "target = \"disk\"\nkill = true\nat = \"5s\"\nfor = \"1s\"",
};

/// A `[[fault]]` of this kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Kills the process of a served target and starts it again at the end of the fault.
    pub kill: bool,
}

impl Kind for Kill {
    fn about(&self) -> About {
        About::Process
    }

    fn what(&self) -> String {
        "kill".to_string()
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        process::served("kill", common, stage)
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let away = pair.other_as::<Kill>().is_some() || pair.other_as::<Freeze>().is_some();
        (pair.same_target() && away).then(process::away_twice).flatten()
    }

    fn prepare(&self, common: &FaultCommon, scene: &mut Scene<'_>) -> Result<Prepared, DriverError> {
        let role = scene.role(&common.target)?;
        Ok(Prepared::new(move || Ok(Box::new(ProcessFault::new(role.clone(), Absence::Dead)))))
    }
}
