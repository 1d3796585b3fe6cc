//! `cpu`: takes CPU time from the target, or from everything, by competing for it.

use brunt_core::share::{self, Share};
use brunt_lab::faults::{CpuHog, usable_cores};
use brunt_protocol::HostFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault::driver::{DriverError, LabDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};

pub(super) const INFO: Info = Info {
    keys: &["cpu", "cores"],
    on_hosts: true,
    help: "takes away a share of CPU time with competing processes",
    proof: "the measured share of the cores that it took, and later that this share is free again",
    example: "target = \"disk\"\ncpu = 0.98\ncores = [1]\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `cpu` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Takes away this share of CPU time (0.01 to 1, or "1%" to "100%") with competing processes.
    #[serde(deserialize_with = "share::set::cpu")]
    #[schemars(with = "Share")]
    pub cpu: f64,
    /// With `cpu`: cores to occupy, counted from 0; default: all cores that the target may use. A target that the
    /// experiment serves is pinned to these cores, with and without the fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<usize>,
}

impl Kind for Cpu {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        format!("{}% of CPU time taken", self.cpu * 100.0)
    }

    fn check(&self, _common: &FaultCommon, _stage: &dyn Stage) -> Result<(), Mistake> {
        if !(0.01..=1.0).contains(&self.cpu) {
            return Err(Mistake::new(
                "cpu",
                "cpu is a share from 0.01 to 1",
                "write cpu = 0.98 or cpu = \"98%\"",
            ));
        }
        Ok(())
    }

    fn clash(&self, pair: &Pair<'_>) -> Option<Together> {
        // A target stays on one set of cores for the whole run.
        let other = pair.other_as::<Cpu>()?;
        if pair.me.common.host.is_some() || !pair.same_target() || self.cores == other.cores {
            return None;
        }
        let target = &pair.me.common.target;
        Together::refused(
            format!("the two faults would pin target {target} to different cores"),
            "write the same cores for both, or omit target from the fault that should not change the target's cores",
        )
    }

    fn core_share(&self) -> Option<(f64, &[usize])> {
        Some((self.cpu, &self.cores))
    }

    fn on_host(&self, _common: &FaultCommon) -> Option<HostFault> {
        Some(HostFault::Cpu {
            share: self.cpu,
            cores: self.cores.clone(),
        })
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let role = scene.roles.get(&common.target).cloned();
        let (share, named) = (self.cpu, self.cores.clone());
        let system = |what: String| move |source| DriverError::System { what, source };
        Ok(Prepared::new(move || {
            let cores = match &role {
                _ if !named.is_empty() => named.clone(),
                Some(role) => role.cores().map_err(system("the target's cores".into()))?,
                None => usable_cores(),
            };
            if let Some(role) = &role {
                let pinned = role.pin(&cores);
                pinned.map_err(system(format!(
                    "the target cannot be pinned to cores {cores:?}"
                )))?;
            }
            Ok(LabDriver::boxed(CpuHog::new(share, &cores)))
        }))
    }
}
