//! The id of the RPC dissector, and the indexes of its protocols and counters.

use brunt_wire::nfs::{v3, v4};

use super::exchange::Exchange;
use crate::dissect::{DissectorId, ProtocolInfo};
use crate::operation::Protocol;

/// The RPC dissector's id.
#[derive(Debug)]
pub enum RpcId {}

impl DissectorId for RpcId {
    type Detail<'a> = Exchange<'a>;
}

/// Indexes of the counters.
pub const COMPOUNDS_UNPARSED: usize = 0;
pub const ATTRIBUTES_UNPARSED: usize = 1;
pub const REPLIES_ALONE: usize = 2;

/// The programs with their own statuses, and RPC for all other programs.
pub const PROTOCOLS: &[ProtocolInfo] = &[
    ProtocolInfo {
        name: "NFSv3",
        status_name: |status| v3::Status(status).name(),
    },
    ProtocolInfo {
        name: "NFSv4",
        status_name: |status| v4::Status(status).name(),
    },
    ProtocolInfo {
        name: "MOUNT",
        status_name: |status| v3::Status(status).name(),
    },
    ProtocolInfo {
        name: "RPC",
        status_name: |_| None,
    },
];
pub const NFS3: Protocol = Protocol::of::<RpcId>(0);
pub const NFS4: Protocol = Protocol::of::<RpcId>(1);
pub const MOUNT: Protocol = Protocol::of::<RpcId>(2);
/// Programs that are not dissected.
pub const OTHER: Protocol = Protocol::of::<RpcId>(3);
