//! The workers: threads that send requests, in the experiment's own process, which enters the workers' host before it
//! starts them (`[lab] worker`). For workloads with hosts, the workers run in agents on those hosts (`brunt_host`).

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "worker",
    help: "makes requests",
    example: "[targets.x]\nurl = \"memory:1MiB\"",
};

/// The workers. They have no settings here, because the load defines the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRole;

/// Serves nothing.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// Every experiment has one such role.
pub(super) fn unasked(cast: &dyn Cast) -> Vec<PlannedRole> {
    vec![PlannedRole {
        name: INFO.name.into(),
        host: cast.worker(),
        role: Box::new(WorkerRole),
    }]
}

impl RoleKind for WorkerRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        Launch::Within
    }
}
