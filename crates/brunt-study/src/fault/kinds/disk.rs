//! `disk`: slows down the disk that holds a service's folder, for the service's processes only.

use std::sync::Arc;

use brunt_core::Size;
use brunt_lab::faults::{DiskLimits, SlowDisk};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kill::Kill;
use crate::fault::driver::{DriverError, LabDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};

/// Lowest rate in bytes per second: with less than a block per second, no request would ever complete.
const BYTES_MIN: u64 = 4096;

pub(super) const INFO: Info = Info {
    keys: &["disk", "service"],
    on_hosts: false,
    help: "limits the requests or bytes per second of a `service`'s processes on the disk that holds its folder, separately for reads and writes",
    proof: "a probe that the kernel treats as one of the service's processes writes at the limited \
     speed, and all of these processes are limited; later the probe is fast again",
    example: "service = \"store\"\ndisk = { requests = 20 }\nat = \"5s\"\nfor = \"5s\"",
};

/// The keys of a `disk` fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Limits per second on the disk that holds a service's folder, for that service's processes, separately for
    /// reads and writes.
    pub disk: SlowDiskKeys,
    /// With `freeze` or `kill`: all processes of this service, instead of a target's process. With `disk`: the
    /// service whose processes are limited.
    pub service: String,
}

/// The limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowDiskKeys {
    /// Maximum requests per second, for reads and for writes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Maximum bytes per second, for reads and for writes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
}

impl Disk {
    fn limits(&self) -> DiskLimits {
        DiskLimits {
            requests: self.disk.requests,
            bytes: self.disk.bytes.map(|bytes| bytes.0),
        }
    }
}

impl Kind for Disk {
    fn about(&self) -> About {
        About::Service
    }

    fn place(&self, _common: &FaultCommon) -> String {
        format!("service {}", self.service)
    }

    fn what(&self) -> String {
        format!("disk limited to {}", self.limits())
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        let wrong = |key, what: &str, help: &str| Err(Mistake::new(key, what, help));
        match (self.disk.requests, self.disk.bytes) {
            (None, None) => {
                return wrong(
                    "disk",
                    "it limits nothing",
                    "write disk = { requests = 20 }",
                );
            }
            (Some(0), _) => {
                return wrong(
                    "disk",
                    "no request would ever complete",
                    "write freeze = true instead",
                );
            }
            (_, Some(bytes)) if bytes.0 < BYTES_MIN => {
                return wrong(
                    "disk",
                    "less than one block per second would never complete a request",
                    "write bytes = \"4KiB\" or more",
                );
            }
            _ => {}
        }
        if common.host.is_some() {
            return wrong(
                "host",
                "the fault applies to the service's own host",
                "omit host",
            );
        }
        match stage.unknown_service(&self.service) {
            Some(what) => wrong("service", &what, "add [services.NAME], or name one of them"),
            None if stage.is_remote_service(&self.service) => {
                let what = format!(
                    "service {} runs on another host, where disk faults are not supported",
                    self.service
                );
                wrong(
                    "service",
                    &what,
                    "name a service of this machine or of its lab",
                )
            }
            None => Ok(()),
        }
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let again = pair
            .other_as::<Disk>()
            .is_some_and(|other| other.service == self.service);
        let killed = pair
            .other_as::<Kill>()
            .is_some_and(|other| other.service.as_ref() == Some(&self.service));
        let what = "the restarted processes would not be limited";
        match (again, killed) {
            (true, _) => Together::refused(
                "the fault that ends first would end the other",
                "make them consecutive",
            ),
            (_, true) => Together::refused(what, "end one before the other starts"),
            _ => None,
        }
    }

    /// Checks that this machine supports disk faults, before anything is started.
    fn check_machine(&self) -> Result<(), DriverError> {
        Ok(SlowDisk::check(&std::env::temp_dir())?)
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let role = scene.service(&self.service)?;
        let folder = role
            .folder()
            .expect("a service of another host was refused")
            .to_owned();
        let limits = self.limits();
        Ok(Prepared::new(move || {
            let role = Arc::clone(&role);
            let processes = Box::new(move || role.processes());
            Ok(LabDriver::boxed(SlowDisk::new(processes, &folder, limits)))
        }))
    }
}
