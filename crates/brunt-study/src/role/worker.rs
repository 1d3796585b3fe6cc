//! The workers: threads that send requests, in the experiment's own process, which enters their host before it starts
//! them (`[lab] worker`). The workers of workloads with hosts run in agents there (`brunt_host`).

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "worker",
    help: "makes requests",
    example: "[targets.x]\nurl = \"memory:1MiB\"",
};

/// The workers. They have no settings here: the load defines the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRole;

/// Serves nothing.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// One in every experiment.
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
