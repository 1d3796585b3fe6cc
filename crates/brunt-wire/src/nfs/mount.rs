//! MOUNT version 3 (RFC 1813, appendix I), by which a client gets the handle of an export's root,
//! and an observer learns the path of that handle.

use super::{FILE_HANDLE_V3_BYTES_MAX, FileHandle};
use crate::{Cursor, ParseError};

/// Maximum length of a path in MOUNT (`MNTPATHLEN`).
const MOUNT_PATH_BYTES_MAX: u32 = 1024;
/// Names of procedures, by number.
pub const PROCEDURE_NAMES: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];

/// A client's request to the mount service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL, DUMP, UMNTALL and EXPORT have no arguments.
    Empty,
    /// MNT: requests the handle of this export.
    Mount(&'a [u8]),
    /// UMNT.
    Unmount(&'a [u8]),
}

/// The mount service's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// NULL, UMNT and UMNTALL return nothing; DUMP and EXPORT return lists that are not parsed.
    Empty,
    /// MNT failed with this `mountstat3`.
    Failed(u32),
    /// MNT: the root's handle.
    Mounted(FileHandle<'a>),
}

/// Parses the arguments of procedure number `procedure`.
///
/// # Errors
/// Truncated or malformed.
pub fn parse_args<'a>(procedure: u32, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let mut path = || cur.opaque(MOUNT_PATH_BYTES_MAX, "a mount path has at most 1024 bytes");
    Ok(match procedure {
        1 => Args::Mount(path()?),
        3 => Args::Unmount(path()?),
        _ => Args::Empty,
    })
}

/// Parses the results of procedure number `procedure`.
///
/// # Errors
/// Truncated or malformed.
pub fn parse_results<'a>(procedure: u32, cur: &mut Cursor<'a>) -> Result<Results<'a>, ParseError> {
    if procedure != 1 {
        return Ok(Results::Empty);
    }
    Ok(match cur.u32()? {
        0 => Results::Mounted(FileHandle(cur.opaque(
            FILE_HANDLE_V3_BYTES_MAX,
            "a file handle has at most 64 bytes",
        )?)),
        status => Results::Failed(status),
    })
}
