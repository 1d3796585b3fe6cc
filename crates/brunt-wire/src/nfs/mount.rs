//! MOUNT version 3 (RFC 1813, appendix I): how a client learns the handle of an export's root,
//! and a watcher the path that goes with it.

use super::{FILE_HANDLE_V3_BYTES_MAX, FileHandle};
use crate::{Cursor, ParseError};

/// The longest path that MOUNT takes (`MNTPATHLEN`).
const MOUNT_PATH_BYTES_MAX: u32 = 1024;
/// Names of procedures, by number.
pub const PROCEDURE_NAMES: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];

/// What a client asks of the mount service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL, DUMP, UMNTALL and EXPORT have no arguments.
    Empty,
    /// MNT: the handle of this export, please.
    Mount(&'a [u8]),
    /// UMNT.
    Unmount(&'a [u8]),
}

/// What the mount service answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// NULL, UMNT and UMNTALL return nothing; DUMP and EXPORT return lists that are not read.
    Empty,
    /// MNT failed with this `mountstat3`.
    Failed(u32),
    /// MNT: the root's handle.
    Mounted(FileHandle<'a>),
}

/// Reads the arguments of procedure number `procedure`.
///
/// # Errors
/// Cut short or malformed.
pub fn parse_args<'a>(procedure: u32, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let mut path = || cur.opaque(MOUNT_PATH_BYTES_MAX, "a mount path has at most 1024 bytes");
    Ok(match procedure {
        1 => Args::Mount(path()?),
        3 => Args::Unmount(path()?),
        _ => Args::Empty,
    })
}

/// Reads the results of procedure number `procedure`.
///
/// # Errors
/// Cut short or malformed.
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
