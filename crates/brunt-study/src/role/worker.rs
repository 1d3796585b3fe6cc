//! The workers: threads that make requests, in the process that runs the experiment. It enters their host before it
//! starts them (`[lab] worker`). Those of workloads that name hosts are in agents there (`brunt_host`).

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "worker",
    help: "makes requests",
    example: "[targets.x]\nurl = \"memory:1MiB\"",
};

/// Has no settings of its own: the load says how many threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRole;

/// Serves nothing.
pub(super) fn of(_serve: &Serve) -> Option<Box<dyn RoleKind>> {
    None
}

/// In every experiment.
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
