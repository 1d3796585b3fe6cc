//! ONC RPC version 2 (RFC 5531): record marks, call and reply headers, AUTH_SYS credentials, and the port mapper.
//! Called by the capture pipeline, NFS client and NFS server. The one rule: a header can be parsed from the beginning
//! of its message, so an incomplete message can be recognized.

mod encode;
mod header;
pub mod portmap;

pub use header::{
    AuthFlavor, CallLayout, GROUPS_MAX, MACHINE_NAME_BYTES_MAX, MARK_BYTES, OpaqueAuth, RecordMark,
    ReplyStatus, RpcCall, RpcMessage, RpcReply, SysCredentials, parse, plain_call, plain_reply,
};

/// The port mapper.
pub const PROGRAM_PORTMAP: u32 = 100_000;
/// NFS.
pub const PROGRAM_NFS: u32 = 100_003;
/// The MOUNT protocol of NFSv3.
pub const PROGRAM_MOUNT: u32 = 100_005;
/// The lock manager of NFSv3.
pub const PROGRAM_NLM: u32 = 100_021;
/// The status monitor.
pub const PROGRAM_NSM: u32 = 100_024;
/// Access control lists, an addition to NFSv3.
pub const PROGRAM_NFS_ACL: u32 = 100_227;
/// First program number of the transient range, from which clients choose numbers for
/// NFSv4 callbacks (RFC 5531, 8.3).
pub const PROGRAM_TRANSIENT_FIRST: u32 = 0x4000_0000;
/// Last program number of the transient range.
pub const PROGRAM_TRANSIENT_LAST: u32 = 0x5fff_ffff;

/// The transaction id that matches a reply with its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xid(pub u32);

#[cfg(test)]
mod tests;
