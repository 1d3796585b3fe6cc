//! A sink: the other end of the `tcp` device, which measures the network alone.

use std::net::SocketAddr;

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "sink",
    help: "discards writes and answers reads with zeros, to measure the network alone",
    example: "[targets.x]\nserve = \"tcp\"",
};

/// A sink; it has no settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkRole;

/// A sink for the word `tcp`.
pub(super) fn of(serve: &Serve) -> Option<Box<dyn RoleKind>> {
    matches!(serve, Serve::One(word) if word == "tcp")
        .then(|| Box::new(SinkRole) as Box<dyn RoleKind>)
}

/// None: only a target requests a sink.
pub(super) fn unasked(_cast: &dyn Cast) -> Vec<PlannedRole> {
    Vec::new()
}

impl RoleKind for SinkRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        Launch::Process {
            arguments: vec!["sink".into()],
            takes_commands: false,
        }
    }

    fn url(&self, at: SocketAddr, _lun: u16) -> Option<String> {
        Some(format!("tcp://{at}"))
    }

    fn is_network(&self) -> bool {
        true
    }
}
