//! Result codes (SD_RES_*): the public ones, and internal ones that clients can receive.

/// Success.
pub const SUCCESS: u32 = 0x00;
/// No such object.
pub const NO_OBJ: u32 = 0x02;
/// I/O error.
pub const EIO: u32 = 0x03;
/// The request is invalid, or not supported by this server.
pub const INVALID_PARMS: u32 = 0x05;
/// Another client has locked the VDI.
pub const VDI_LOCKED: u32 = 0x07;
/// No such VDI.
pub const NO_VDI: u32 = 0x08;
/// No such snapshot.
pub const NO_TAG: u32 = 0x0e;
/// The server is starting.
pub const STARTUP: u32 = 0x0f;
/// The server is shutting down.
pub const SHUTDOWN: u32 = 0x11;
/// The server is out of memory.
pub const NO_MEM: u32 = 0x12;
/// The store is full.
pub const NO_SPACE: u32 = 0x15;
/// The cluster is not formatted.
pub const WAIT_FOR_FORMAT: u32 = 0x16;
/// The cluster is waiting for nodes.
pub const WAIT_FOR_JOIN: u32 = 0x17;
/// There are too few nodes, so the cluster has stopped I/O.
pub const HALT: u32 = 0x19;
/// The object belongs to a snapshot.
pub const READONLY: u32 = 0x1a;
/// The network between servers failed.
pub const NETWORK_ERROR: u32 = 0x86;
/// The server is being removed with `dog node kill`.
pub const KILLED: u32 = 0x8d;
/// Try again.
pub const AGAIN: u32 = 0x8f;
/// The server does not yet know which VDIs are locked.
pub const COLLECTING_CINFO: u32 = 0x95;

/// The name in the protocol.
pub fn name(result: u32) -> Option<&'static str> {
    Some(match result {
        SUCCESS => "SD_RES_SUCCESS",
        0x01 => "SD_RES_UNKNOWN",
        NO_OBJ => "SD_RES_NO_OBJ",
        EIO => "SD_RES_EIO",
        0x04 => "SD_RES_VDI_EXIST",
        INVALID_PARMS => "SD_RES_INVALID_PARMS",
        0x06 => "SD_RES_SYSTEM_ERROR",
        VDI_LOCKED => "SD_RES_VDI_LOCKED",
        NO_VDI => "SD_RES_NO_VDI",
        0x09 => "SD_RES_NO_BASE_VDI",
        0x0a => "SD_RES_VDI_READ",
        0x0b => "SD_RES_VDI_WRITE",
        0x0c => "SD_RES_BASE_VDI_READ",
        0x0d => "SD_RES_BASE_VDI_WRITE",
        NO_TAG => "SD_RES_NO_TAG",
        STARTUP => "SD_RES_STARTUP",
        0x10 => "SD_RES_VDI_NOT_LOCKED",
        SHUTDOWN => "SD_RES_SHUTDOWN",
        NO_MEM => "SD_RES_NO_MEM",
        0x13 => "SD_RES_FULL_VDI",
        0x14 => "SD_RES_VER_MISMATCH",
        NO_SPACE => "SD_RES_NO_SPACE",
        WAIT_FOR_FORMAT => "SD_RES_WAIT_FOR_FORMAT",
        WAIT_FOR_JOIN => "SD_RES_WAIT_FOR_JOIN",
        0x18 => "SD_RES_JOIN_FAILED",
        HALT => "SD_RES_HALT",
        READONLY => "SD_RES_READONLY",
        0x1d => "SD_RES_INODE_INVALIDATED",
        NETWORK_ERROR => "SD_RES_NETWORK_ERROR",
        KILLED => "SD_RES_KILLED",
        AGAIN => "SD_RES_AGAIN",
        COLLECTING_CINFO => "SD_RES_COLLECTING_CINFO",
        _ => return None,
    })
}

/// Whether a retry on the same server may soon succeed.
pub fn is_transient(result: u32) -> bool {
    matches!(
        result,
        STARTUP | WAIT_FOR_JOIN | HALT | NETWORK_ERROR | AGAIN | COLLECTING_CINFO
    )
}

/// Whether the server reports that it is shutting down.
pub fn is_goodbye(result: u32) -> bool {
    matches!(result, SHUTDOWN | KILLED)
}
