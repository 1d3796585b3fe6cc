//! A kind of role for tests: it needs only this file and one line in the table.

use std::net::SocketAddr;

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "test-only",
    help: "a shell that prints an address and waits",
    example: "[targets.x]\nserve = \"test-only\"",
};

#[derive(Debug)]
pub(super) struct TestOnlyRole;

pub(super) fn of(serve: &Serve) -> Option<Box<dyn RoleKind>> {
    matches!(serve, Serve::One(word) if word == INFO.name)
        .then(|| Box::new(TestOnlyRole) as Box<dyn RoleKind>)
}

pub(super) fn unasked(_cast: &dyn Cast) -> Vec<PlannedRole> {
    Vec::new()
}

impl RoleKind for TestOnlyRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        let script = "echo it begins >&2; echo 127.0.0.1:9; exec sleep 1000";
        Launch::Process {
            arguments: vec!["-c".into(), script.into()],
            takes_commands: false,
        }
    }

    fn url(&self, at: SocketAddr, lun: u16) -> Option<String> {
        Some(format!("test-only://{at}/{lun}"))
    }
}
