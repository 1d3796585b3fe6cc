//! NFS and MOUNT bodies. Called by the capture pipeline with the header already read. The one
//! rule: views borrow from the message; nothing is copied, and file data may be elsewhere.

pub mod mount;
pub mod v3;
pub mod v4;

use crate::{Cursor, ParseError};

/// A file handle: opaque bytes that name a file to its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileHandle<'a>(pub &'a [u8]);

/// The longest handle of NFSv3 (RFC 1813, 2.4).
pub const FILE_HANDLE_V3_BYTES_MAX: u32 = 64;
/// Names as every server of today bounds them; the standard leaves them open.
pub const NAME_BYTES_MAX: u32 = 1024;
/// Paths of symbolic links and exports (Linux `PATH_MAX`).
pub const PATH_BYTES_MAX: u32 = 4096;
/// One READ or WRITE: Linux and all servers known stop at 1 MiB, some at 8.
pub const DATA_BYTES_MAX: u32 = 16 << 20;

#[inline]
fn name<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(NAME_BYTES_MAX, "a name has at most 1024 bytes")
}

#[inline]
fn path<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(PATH_BYTES_MAX, "a path has at most 4096 bytes")
}
