//! Arguments of NFSv3 calls.

use super::{FileType, NfsTime, Procedure};
use crate::nfs::{DATA_BYTES_MAX, FILE_HANDLE_V3_BYTES_MAX, FileHandle, name, path};
use crate::{Cursor, FileData, ParseError};

/// `diropargs3`: a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOp<'a> {
    /// The directory.
    pub dir: FileHandle<'a>,
    /// The name in that directory.
    pub name: &'a [u8],
}

/// `stable_how`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum StableHow {
    Unstable,
    DataSync,
    FileSync,
}

impl StableHow {
    #[inline]
    pub(super) fn read(cur: &mut Cursor<'_>) -> Result<StableHow, ParseError> {
        Ok(match cur.u32()? {
            0 => StableHow::Unstable,
            1 => StableHow::DataSync,
            2 => StableHow::FileSync,
            _ => return Err(cur.malformed(4, "stable_how is not 0 to 2")),
        })
    }
}

/// A new value for a time attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime<'a> {
    /// Unchanged.
    #[default]
    DontChange,
    /// The server's time.
    ServerTime,
    /// This time.
    ClientTime(&'a NfsTime),
}

/// `sattr3`: the attributes to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SetAttributes<'a> {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime<'a>,
    pub mtime: SetTime<'a>,
}

/// `createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow<'a> {
    /// An existing file is not an error.
    Unchecked(SetAttributes<'a>),
    /// An existing file is an error.
    Guarded(SetAttributes<'a>),
    /// Create exactly once; this verifier identifies the request.
    Exclusive(u64),
}

/// `mknoddata3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind<'a> {
    /// A block or character device with its major and minor numbers.
    Device(FileType, SetAttributes<'a>, [u32; 2]),
    /// A socket or fifo.
    Pipe(FileType, SetAttributes<'a>),
    /// A type that MKNOD cannot create; the server will reject it.
    Other(FileType),
}

/// The arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFC's own names
pub enum Args<'a> {
    Null,
    Getattr {
        object: FileHandle<'a>,
    },
    Setattr {
        object: FileHandle<'a>,
        attributes: SetAttributes<'a>,
        guard: Option<&'a NfsTime>,
    },
    Lookup {
        what: DirOp<'a>,
    },
    Access {
        object: FileHandle<'a>,
        access: u32,
    },
    Readlink {
        symlink: FileHandle<'a>,
    },
    Read {
        file: FileHandle<'a>,
        offset: u64,
        count: u32,
    },
    Write {
        file: FileHandle<'a>,
        offset: u64,
        count: u32,
        stable: StableHow,
        data: FileData<'a>,
    },
    Create {
        place: DirOp<'a>,
        how: CreateHow<'a>,
    },
    Mkdir {
        place: DirOp<'a>,
        attributes: SetAttributes<'a>,
    },
    Symlink {
        place: DirOp<'a>,
        attributes: SetAttributes<'a>,
        target: &'a [u8],
    },
    Mknod {
        place: DirOp<'a>,
        what: NodeKind<'a>,
    },
    Remove {
        object: DirOp<'a>,
    },
    Rmdir {
        object: DirOp<'a>,
    },
    Rename {
        from: DirOp<'a>,
        to: DirOp<'a>,
    },
    Link {
        file: FileHandle<'a>,
        link: DirOp<'a>,
    },
    Readdir {
        dir: FileHandle<'a>,
        cookie: u64,
        cookie_verifier: u64,
        count: u32,
    },
    Readdirplus {
        dir: FileHandle<'a>,
        cookie: u64,
        cookie_verifier: u64,
        dir_count: u32,
        max_count: u32,
    },
    Fsstat {
        root: FileHandle<'a>,
    },
    Fsinfo {
        root: FileHandle<'a>,
    },
    Pathconf {
        object: FileHandle<'a>,
    },
    Commit {
        file: FileHandle<'a>,
        offset: u64,
        count: u32,
    },
}

/// Parses the arguments of `procedure`.
///
/// # Errors
/// The arguments are truncated (including a WRITE whose arguments end before its data), or violate RFC 1813.
#[inline]
pub fn parse_args<'a>(procedure: Procedure, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let mut args = Args::Null;
    read_args(procedure, cur, &mut args)?;
    Ok(args)
}

/// Like [`parse_args`], but writes the arguments in place: copying that much freshly stored data would stall the CPU.
/// After an error, `args` is unchanged.
///
/// # Errors
/// As [`parse_args`].
#[inline]
pub fn read_args<'a>(
    procedure: Procedure,
    cur: &mut Cursor<'a>,
    args: &mut Args<'a>,
) -> Result<(), ParseError> {
    match procedure {
        Procedure::Null => *args = Args::Null,
        Procedure::Getattr => {
            *args = Args::Getattr {
                object: handle(cur)?,
            }
        }
        Procedure::Lookup => *args = Args::Lookup { what: dir_op(cur)? },
        Procedure::Access => {
            *args = Args::Access {
                object: handle(cur)?,
                access: cur.u32()?,
            }
        }
        Procedure::Readlink => {
            *args = Args::Readlink {
                symlink: handle(cur)?,
            }
        }
        Procedure::Read => {
            *args = Args::Read {
                file: handle(cur)?,
                offset: cur.u64()?,
                count: cur.u32()?,
            }
        }
        Procedure::Write => {
            *args = Args::Write {
                file: handle(cur)?,
                offset: cur.u64()?,
                count: cur.u32()?,
                stable: StableHow::read(cur)?,
                data: cur.data(DATA_BYTES_MAX, "WRITE of more than 16 MiB")?,
            }
        }
        Procedure::Commit => {
            *args = Args::Commit {
                file: handle(cur)?,
                offset: cur.u64()?,
                count: cur.u32()?,
            }
        }
        other => return read_infrequent_args(other, cur, args),
    }
    Ok(())
}

/// Implements [`read_args`] for the procedures that modify or list directories, or return properties of a file
/// system.
// Long because it has a case per procedure.
fn read_infrequent_args<'a>(
    procedure: Procedure,
    cur: &mut Cursor<'a>,
    args: &mut Args<'a>,
) -> Result<(), ParseError> {
    match procedure {
        Procedure::Setattr => {
            *args = Args::Setattr {
                object: handle(cur)?,
                attributes: set_attributes(cur)?,
                guard: if cur.boolean()? {
                    Some(cur.view()?)
                } else {
                    None
                },
            }
        }
        Procedure::Create => {
            *args = Args::Create {
                place: dir_op(cur)?,
                how: create_how(cur)?,
            }
        }
        Procedure::Mkdir => {
            *args = Args::Mkdir {
                place: dir_op(cur)?,
                attributes: set_attributes(cur)?,
            }
        }
        Procedure::Symlink => {
            *args = Args::Symlink {
                place: dir_op(cur)?,
                attributes: set_attributes(cur)?,
                target: path(cur)?,
            };
        }
        Procedure::Mknod => {
            *args = Args::Mknod {
                place: dir_op(cur)?,
                what: node_kind(cur)?,
            }
        }
        Procedure::Remove => {
            *args = Args::Remove {
                object: dir_op(cur)?,
            }
        }
        Procedure::Rmdir => {
            *args = Args::Rmdir {
                object: dir_op(cur)?,
            }
        }
        Procedure::Rename => {
            *args = Args::Rename {
                from: dir_op(cur)?,
                to: dir_op(cur)?,
            }
        }
        Procedure::Link => {
            *args = Args::Link {
                file: handle(cur)?,
                link: dir_op(cur)?,
            }
        }
        Procedure::Readdir => {
            *args = Args::Readdir {
                dir: handle(cur)?,
                cookie: cur.u64()?,
                cookie_verifier: cur.u64()?,
                count: cur.u32()?,
            }
        }
        Procedure::Readdirplus => {
            *args = Args::Readdirplus {
                dir: handle(cur)?,
                cookie: cur.u64()?,
                cookie_verifier: cur.u64()?,
                dir_count: cur.u32()?,
                max_count: cur.u32()?,
            }
        }
        Procedure::Fsstat => *args = Args::Fsstat { root: handle(cur)? },
        Procedure::Fsinfo => *args = Args::Fsinfo { root: handle(cur)? },
        Procedure::Pathconf => {
            *args = Args::Pathconf {
                object: handle(cur)?,
            }
        }
        other => unreachable!("read_args reads {other:?}"),
    }
    Ok(())
}

impl<'a> Args<'a> {
    /// The handle on which the call operates: the file, or the directory that contains a name.
    #[inline]
    pub fn handle(&self) -> Option<FileHandle<'a>> {
        match *self {
            Args::Null => None,
            Args::Getattr { object }
            | Args::Setattr { object, .. }
            | Args::Access { object, .. }
            | Args::Pathconf { object } => Some(object),
            Args::Readlink { symlink } => Some(symlink),
            Args::Read { file, .. }
            | Args::Write { file, .. }
            | Args::Commit { file, .. }
            | Args::Link { file, .. } => Some(file),
            Args::Fsstat { root } | Args::Fsinfo { root } => Some(root),
            Args::Readdir { dir, .. } | Args::Readdirplus { dir, .. } => Some(dir),
            Args::Lookup { what } => Some(what.dir),
            Args::Create { place, .. }
            | Args::Mkdir { place, .. }
            | Args::Symlink { place, .. }
            | Args::Mknod { place, .. } => Some(place.dir),
            Args::Remove { object } | Args::Rmdir { object } => Some(object.dir),
            Args::Rename { from, .. } => Some(from.dir),
        }
    }
}

/// Returns [`Args::handle`] without parsing the arguments, since those of every call except NULL begin with it.
#[inline]
pub fn leading_handle(procedure: Procedure, mut args: Cursor<'_>) -> Option<FileHandle<'_>> {
    if procedure == Procedure::Null {
        None
    } else {
        handle(&mut args).ok()
    }
}

#[inline]
pub(super) fn handle<'a>(cur: &mut Cursor<'a>) -> Result<FileHandle<'a>, ParseError> {
    cur.opaque(FILE_HANDLE_V3_BYTES_MAX, "file handle longer than 64 bytes")
        .map(FileHandle)
}

#[inline]
fn dir_op<'a>(cur: &mut Cursor<'a>) -> Result<DirOp<'a>, ParseError> {
    Ok(DirOp {
        dir: handle(cur)?,
        name: name(cur)?,
    })
}

fn set_attributes<'a>(cur: &mut Cursor<'a>) -> Result<SetAttributes<'a>, ParseError> {
    let optional = |cur: &mut Cursor<'a>| -> Result<Option<u32>, ParseError> {
        Ok(if cur.boolean()? {
            Some(cur.u32()?)
        } else {
            None
        })
    };
    let (mode, uid, gid) = (optional(cur)?, optional(cur)?, optional(cur)?);
    let size = if cur.boolean()? {
        Some(cur.u64()?)
    } else {
        None
    };
    Ok(SetAttributes {
        mode,
        uid,
        gid,
        size,
        atime: set_time(cur)?,
        mtime: set_time(cur)?,
    })
}

fn set_time<'a>(cur: &mut Cursor<'a>) -> Result<SetTime<'a>, ParseError> {
    Ok(match cur.u32()? {
        0 => SetTime::DontChange,
        1 => SetTime::ServerTime,
        2 => SetTime::ClientTime(cur.view()?),
        _ => return Err(cur.malformed(4, "time_how is not 0 to 2")),
    })
}

fn create_how<'a>(cur: &mut Cursor<'a>) -> Result<CreateHow<'a>, ParseError> {
    Ok(match cur.u32()? {
        0 => CreateHow::Unchecked(set_attributes(cur)?),
        1 => CreateHow::Guarded(set_attributes(cur)?),
        2 => CreateHow::Exclusive(cur.u64()?),
        _ => return Err(cur.malformed(4, "createmode3 is not 0 to 2")),
    })
}

fn node_kind<'a>(cur: &mut Cursor<'a>) -> Result<NodeKind<'a>, ParseError> {
    Ok(match FileType::from_number(cur.u32()?) {
        kind @ (FileType::BlockDevice | FileType::CharacterDevice) => {
            NodeKind::Device(kind, set_attributes(cur)?, [cur.u32()?, cur.u32()?])
        }
        kind @ (FileType::Socket | FileType::Fifo) => NodeKind::Pipe(kind, set_attributes(cur)?),
        kind => NodeKind::Other(kind),
    })
}
