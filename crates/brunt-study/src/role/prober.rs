//! The prober: a thread of the experiment's own process that samples this machine, the networks of lab hosts and the
//! processes of roles.

use brunt_probe::Probes;

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};
use crate::host::HostName;

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "prober",
    help: "records the counters of hosts and processes during runs",
    example: "[targets.x]\nurl = \"memory:1MiB\"\n[probes]\ninterval = \"100ms\"",
};

/// The prober's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ProberRole {
    /// The settings from the file.
    pub probes: Probes,
}

/// Serves nothing.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// The prober exists if anything is recorded.
pub(super) fn unasked(cast: &dyn Cast) -> Vec<PlannedRole> {
    let prober = || {
        Box::new(ProberRole {
            probes: cast.probes().clone(),
        })
    };
    let planned = || PlannedRole {
        name: INFO.name.into(),
        host: HostName::local(),
        role: prober(),
    };
    cast.probes().is_on().then(planned).into_iter().collect()
}

impl RoleKind for ProberRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        Launch::Within
    }
}
