//! Services: programs other than Brunt that an experiment starts, keeps and ends (`[services.NAME]`).

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "service",
    help: "runs a program that is not part of Brunt, such as a storage server",
    example: "[targets.x]\nurl = \"memory:1MiB\"\n[services.x]\ncommand = [\"sleep\", \"1000\"]",
};

/// A service. Its settings are in the experiment's file, under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRole;

/// Serves nothing: no `serve` of a target means a service.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// All services of the file.
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
