//! Services: programs other than Brunt that an experiment starts, monitors and ends (`[services.NAME]`).

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "service",
    help: "runs a program that is not part of Brunt, such as a storage server",
    example: "[targets.x]\nurl = \"memory:1MiB\"\n[services.x]\ncommand = [\"sleep\", \"1000\"]",
};

/// A service. The settings are in the experiment file, under the service's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRole;

/// Serves nothing, because no target's `serve` requests a service.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// All services in the file.
pub(super) fn unasked(cast: &dyn Cast) -> Vec<PlannedRole> {
    let planned = |(name, host)| PlannedRole {
        name,
        host,
        role: Box::new(ServiceRole),
    };
    cast.services().into_iter().map(planned).collect()
}

impl RoleKind for ServiceRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        Launch::Kept
    }
}
