//! `memory`: a separate process allocates and locks memory, so that less is left for everything else. Filling one to
//! three GiB takes a second, so `for` counts from the time when all of the memory is locked.

use brunt_core::Size;
use brunt_lab::faults::MemoryHog;
use brunt_protocol::HostFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault::driver::{DriverError, LabDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};

pub(super) const INFO: Info = Info {
    keys: &["memory"],
    on_hosts: true,
    help: "allocates and locks memory",
    proof: "the kernel's count of locked memory, and later that the memory is free again",
    example: "memory = \"1GiB\"\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `memory` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Allocates and locks this much memory.
    pub memory: Size,
}

impl Kind for Memory {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        format!("{} of memory taken", self.memory)
    }

    fn check(&self, _common: &FaultCommon, _stage: &dyn Stage) -> Result<(), Mistake> {
        match self.memory.0 {
            0 => Err(Mistake::new(
                "memory",
                "it takes no memory",
                "write memory = \"1GiB\"",
            )),
            _ => Ok(()),
        }
    }

    fn lasts_once_shown(&self) -> bool {
        true
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        pair.other_as::<Memory>()?;
        Together::both("their amounts add up")
    }

    fn on_host(&self, _common: &FaultCommon) -> Option<HostFault> {
        Some(HostFault::Memory {
            bytes: self.memory.0,
        })
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        _scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let bytes = self.memory.0;
        Ok(Prepared::new(move || {
            Ok(LabDriver::boxed(MemoryHog::new(bytes)))
        }))
    }
}
