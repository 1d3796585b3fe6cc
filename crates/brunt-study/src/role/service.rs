//! Services: programs that Brunt did not write, which an experiment starts, keeps and ends (`[services.NAME]`).

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "service",
    help: "runs a program that is not part of Brunt, such as a storage server",
    example: "[targets.x]\nurl = \"memory:1MiB\"\n[services.x]\ncommand = [\"sleep\", \"1000\"]",
};

/// Its settings are with its name in the experiment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRole;

/// Serves nothing that a target could name by `serve`.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// Those of the file.
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
