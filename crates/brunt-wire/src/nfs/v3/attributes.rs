//! File attributes and weak cache consistency data (RFC 1813, 2.5 and 2.6) in wire format.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Cursor, ParseError};

/// `nfstime3`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct NfsTime {
    /// Seconds since 1970.
    pub seconds: U32,
    /// Nanoseconds within the second.
    pub nseconds: U32,
}

/// `fattr3`: 84 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)] // the RFC's own names
pub struct Attributes {
    pub file_type: U32,
    pub mode: U32,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub size: U64,
    pub used: U64,
    pub rdev: [U32; 2],
    pub fsid: U64,
    pub fileid: U64,
    pub atime: NfsTime,
    pub mtime: NfsTime,
    pub ctime: NfsTime,
}

/// `ftype3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileType {
    Regular,
    Directory,
    BlockDevice,
    CharacterDevice,
    Symlink,
    Socket,
    Fifo,
    Other(u32),
}

impl FileType {
    /// Converts from the number on the wire.
    pub const fn from_number(number: u32) -> FileType {
        match number {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::BlockDevice,
            4 => FileType::CharacterDevice,
            5 => FileType::Symlink,
            6 => FileType::Socket,
            7 => FileType::Fifo,
            other => FileType::Other(other),
        }
    }

    /// The number on the wire.
    pub const fn number(self) -> u32 {
        match self {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::BlockDevice => 3,
            FileType::CharacterDevice => 4,
            FileType::Symlink => 5,
            FileType::Socket => 6,
            FileType::Fifo => 7,
            FileType::Other(other) => other,
        }
    }
}

impl Attributes {
    /// The type of the file.
    pub fn kind(&self) -> FileType {
        FileType::from_number(self.file_type.get())
    }
}

/// `wcc_attr`: the file's attributes before the operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct PreOpAttributes {
    pub size: U64,
    pub mtime: NfsTime,
    pub ctime: NfsTime,
}

/// `wcc_data`: attributes before and after an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc<'a> {
    /// Before the operation.
    pub before: Option<&'a PreOpAttributes>,
    /// After it.
    pub after: Option<&'a Attributes>,
}

/// `post_op_attr`.
#[inline]
pub(super) fn post_op<'a>(cur: &mut Cursor<'a>) -> Result<Option<&'a Attributes>, ParseError> {
    if cur.boolean()? {
        cur.view().map(Some)
    } else {
        Ok(None)
    }
}

#[inline]
pub(super) fn wcc<'a>(cur: &mut Cursor<'a>) -> Result<Wcc<'a>, ParseError> {
    let before = if cur.boolean()? {
        Some(cur.view()?)
    } else {
        None
    };
    Ok(Wcc {
        before,
        after: post_op(cur)?,
    })
}
