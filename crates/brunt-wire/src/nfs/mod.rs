//! Bodies of NFS and MOUNT messages. Called after the RPC header was parsed, by the capture pipeline, NFS client and
//! NFS server. The one rule: views borrow from the message and nothing is copied; file data may be missing from the
//! message.

pub mod mount;
pub mod v3;
pub mod v4;

use crate::{Cursor, ParseError};

/// A file handle: opaque bytes that identify a file to its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileHandle<'a>(pub &'a [u8]);

/// Maximum length of an NFSv3 handle (RFC 1813, 2.4).
pub const FILE_HANDLE_V3_BYTES_MAX: u32 = 64;
/// Maximum length of a name on all current servers; the RFC sets no limit.
pub const NAME_BYTES_MAX: u32 = 1024;
/// Maximum length of the paths of symbolic links and exports (Linux `PATH_MAX`).
pub const PATH_BYTES_MAX: u32 = 4096;
/// Maximum data of one READ or WRITE: Linux and most servers allow at most 1 MiB, some allow 8 MiB.
pub const DATA_BYTES_MAX: u32 = 16 << 20;

#[inline]
fn name<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(NAME_BYTES_MAX, "name longer than 1024 bytes")
}

#[inline]
fn path<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(PATH_BYTES_MAX, "path longer than 4096 bytes")
}
