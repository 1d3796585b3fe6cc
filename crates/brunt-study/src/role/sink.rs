//! A sink: the other end of the `tcp` device, which measures the network alone, or an NFS server without data.

use std::net::SocketAddr;

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "sink",
    help: "discards writes and answers reads with zeros, to measure the network or NFS clients alone",
    example: "[targets.x]\nserve = \"tcp\"",
};

/// A sink, by what it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkRole {
    /// The other end of the `tcp` device.
    Tcp,
    /// An NFS server: the target is a folder that it exports.
    Nfs,
}

/// The sink for the words `tcp` and `nfs`.
pub(super) fn of(serve: &Serve) -> Option<Box<dyn RoleKind>> {
    let Serve::One(word) = serve else {
        return None;
    };
    let role = match word.as_str() {
        "tcp" => SinkRole::Tcp,
        "nfs" => SinkRole::Nfs,
        _ => return None,
    };
    Some(Box::new(role))
}

/// None, because only targets request sinks.
pub(super) fn unasked(_cast: &dyn Cast) -> Vec<PlannedRole> {
    Vec::new()
}

impl RoleKind for SinkRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        Launch::Process {
            arguments: match self {
                SinkRole::Tcp => vec!["sink".into()],
                SinkRole::Nfs => vec!["sink".into(), "--nfs".into()],
            },
            takes_commands: false,
        }
    }

    fn url(&self, at: SocketAddr, _lun: u16) -> Option<String> {
        Some(match self {
            SinkRole::Tcp => format!("tcp://{at}"),
            SinkRole::Nfs => format!("nfs://{at}/export/?mountport={}", at.port()),
        })
    }

    fn is_network(&self) -> bool {
        *self == SinkRole::Tcp
    }
}
