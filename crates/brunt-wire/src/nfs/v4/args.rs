//! Arguments of the operations of a compound. Operations whose arguments are not needed are skipped
//! ([`Args::Other`]), but they still have to be parsed, because the next one begins where they end.

use super::attributes::{Bitmap, FileAttributes, NfsTime};
use super::{FILE_HANDLE_BYTES_MAX, OPAQUE_BYTES_MAX, Op};
use crate::nfs::v3::StableHow;
use crate::nfs::{DATA_BYTES_MAX, FileHandle, name, path};
use crate::{Cursor, FileData, ParseError};

/// Maximum length of skipped opaques: layouts, devices, keys.
const BODY_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of elements in skipped lists.
const ELEMENTS_MAX: u32 = 4096;

/// `stateid4`: a sequence number and twelve bytes chosen by the server.
pub type Stateid = [u8; 16];

/// What OPEN does if the file doesn't exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCreate<'a> {
    /// Fail.
    No,
    /// Create it; an existing file is fine.
    Unchecked(FileAttributes<'a>),
    /// Create it; an existing file is an error.
    Guarded(FileAttributes<'a>),
    /// Create it exactly once, identified by this verifier; 4.1 sets attributes at the same time.
    Exclusive(u64, Option<FileAttributes<'a>>),
}

/// What OPEN opens (`open_claim4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenClaim<'a> {
    /// A name in the current directory.
    Null(&'a [u8]),
    /// A file that was open before the server restarted.
    Previous(u32),
    /// A name, under a delegation.
    DelegateCur(&'a Stateid, &'a [u8]),
    /// A name, under a delegation from before the client restarted.
    DelegatePrev(&'a [u8]),
    /// The current file handle.
    Fh,
    /// The current file handle, under a delegation.
    DelegCurFh(&'a Stateid),
    /// The current file handle, under a delegation from before the client restarted.
    DelegPrevFh,
}

impl<'a> OpenClaim<'a> {
    /// The name to open in the current directory, if any.
    pub fn name(&self) -> Option<&'a [u8]> {
        match *self {
            OpenClaim::Null(name)
            | OpenClaim::DelegateCur(_, name)
            | OpenClaim::DelegatePrev(name) => Some(name),
            _ => None,
        }
    }
}

/// What CREATE creates; regular files are created by OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind<'a> {
    /// A symbolic link to this path.
    Link(&'a [u8]),
    /// A block device with its major and minor numbers.
    Block([u32; 2]),
    /// A character device with its major and minor numbers.
    Character([u32; 2]),
    /// A directory (2), socket (6), fifo (7), or a type that the server will reject.
    Plain(u32),
}

/// The lock owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locker<'a> {
    /// An owner without locks on the file, identified by its open state.
    New {
        /// The open stateid.
        open: &'a Stateid,
        /// The owner's client id.
        client: u64,
        /// The owner.
        owner: &'a [u8],
    },
    /// An owner that already has locks.
    Old(&'a Stateid),
}

/// The arguments of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFCs' own names
pub enum Args<'a> {
    Access {
        access: u32,
    },
    Close {
        stateid: &'a Stateid,
    },
    Commit {
        offset: u64,
        count: u32,
    },
    Create {
        kind: CreateKind<'a>,
        name: &'a [u8],
        attributes: FileAttributes<'a>,
    },
    Delegreturn {
        stateid: &'a Stateid,
    },
    Getattr {
        mask: Bitmap<'a>,
    },
    Getfh,
    Link {
        name: &'a [u8],
    },
    Lock {
        kind: u32,
        reclaim: bool,
        offset: u64,
        length: u64,
        locker: Locker<'a>,
    },
    Lockt {
        kind: u32,
        offset: u64,
        length: u64,
    },
    Locku {
        kind: u32,
        stateid: &'a Stateid,
        offset: u64,
        length: u64,
    },
    Lookup {
        name: &'a [u8],
    },
    Lookupp,
    Open {
        access: u32,
        deny: u32,
        client: u64,
        owner: &'a [u8],
        create: OpenCreate<'a>,
        claim: OpenClaim<'a>,
    },
    OpenDowngrade {
        stateid: &'a Stateid,
        access: u32,
        deny: u32,
    },
    Putfh {
        object: FileHandle<'a>,
    },
    Putpubfh,
    Putrootfh,
    Read {
        stateid: &'a Stateid,
        offset: u64,
        count: u32,
    },
    Readdir {
        cookie: u64,
        verifier: u64,
        dir_count: u32,
        max_count: u32,
        mask: Bitmap<'a>,
    },
    Readlink,
    Remove {
        name: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Renew {
        client: u64,
    },
    Restorefh,
    Savefh,
    Secinfo {
        name: &'a [u8],
    },
    Setattr {
        stateid: &'a Stateid,
        attributes: FileAttributes<'a>,
    },
    Setclientid {
        verifier: u64,
        id: &'a [u8],
        callback_program: u32,
    },
    Write {
        stateid: &'a Stateid,
        offset: u64,
        stable: StableHow,
        data: FileData<'a>,
    },
    ExchangeId {
        verifier: u64,
        owner: &'a [u8],
        flags: u32,
    },
    CreateSession {
        client: u64,
        sequence: u32,
        flags: u32,
        slots: u32,
        callback_program: u32,
    },
    DestroySession {
        session: &'a [u8; 16],
    },
    Layoutget {
        kind: u32,
        iomode: u32,
        offset: u64,
        length: u64,
    },
    Sequence {
        session: &'a [u8; 16],
        sequence: u32,
        slot: u32,
        highest_slot: u32,
        cache: bool,
    },
    ReclaimComplete {
        one_fs: bool,
    },
    Allocate {
        stateid: &'a Stateid,
        offset: u64,
        length: u64,
    },
    Deallocate {
        stateid: &'a Stateid,
        offset: u64,
        length: u64,
    },
    Copy {
        from_offset: u64,
        to_offset: u64,
        count: u64,
    },
    Clone {
        from_offset: u64,
        to_offset: u64,
        count: u64,
    },
    IoAdvise {
        offset: u64,
        count: u64,
    },
    ReadPlus {
        stateid: &'a Stateid,
        offset: u64,
        count: u32,
    },
    Seek {
        stateid: &'a Stateid,
        offset: u64,
        hole: bool,
    },
    WriteSame {
        stateid: &'a Stateid,
        offset: u64,
        block_size: u64,
        block_count: u64,
    },
    Getxattr {
        name: &'a [u8],
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
    },
    Removexattr {
        name: &'a [u8],
    },
    /// A known operation whose arguments are skipped.
    Other(Op),
    /// An unknown operation: nothing after it can be parsed.
    Unknown(u32),
}

#[inline]
pub(super) fn handle<'a>(cur: &mut Cursor<'a>) -> Result<FileHandle<'a>, ParseError> {
    cur.opaque(FILE_HANDLE_BYTES_MAX, "file handle longer than 128 bytes")
        .map(FileHandle)
}

#[inline]
pub(super) fn opaque<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(OPAQUE_BYTES_MAX, "owner or verifier longer than 1024 bytes")
}

#[inline]
pub(super) fn body<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(BODY_BYTES_MAX, "body longer than 1 MiB")
}

#[inline]
pub(super) fn elements(cur: &mut Cursor<'_>) -> Result<u32, ParseError> {
    cur.count(ELEMENTS_MAX, "list of more than 4096 elements")
}

#[inline]
pub(super) fn stateid<'a>(cur: &mut Cursor<'a>) -> Result<&'a Stateid, ParseError> {
    cur.view()
}

#[inline]
pub(super) fn stable_how(cur: &mut Cursor<'_>) -> Result<StableHow, ParseError> {
    Ok(match cur.u32()? {
        0 => StableHow::Unstable,
        1 => StableHow::DataSync,
        2 => StableHow::FileSync,
        _ => return Err(cur.malformed(4, "stable_how4 is not 0 to 2")),
    })
}

/// Parses the arguments of the next operation.
#[inline]
pub(super) fn parse<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let number = cur.u32()?;
    let Some(op) = Op::from_number(number) else {
        return Ok(Args::Unknown(number));
    };
    Ok(match op {
        Op::Putfh => Args::Putfh {
            object: handle(cur)?,
        },
        Op::Sequence => Args::Sequence {
            session: cur.view()?,
            sequence: cur.u32()?,
            slot: cur.u32()?,
            highest_slot: cur.u32()?,
            cache: cur.boolean()?,
        },
        Op::Getattr => Args::Getattr {
            mask: Bitmap::read(cur)?,
        },
        Op::Read => Args::Read {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            count: cur.u32()?,
        },
        Op::Write => Args::Write {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            stable: stable_how(cur)?,
            data: cur.data(DATA_BYTES_MAX, "WRITE of more than 16 MiB")?,
        },
        Op::Access => Args::Access { access: cur.u32()? },
        Op::Lookup => Args::Lookup { name: name(cur)? },
        Op::Getfh => Args::Getfh,
        Op::Lookupp => Args::Lookupp,
        Op::Putpubfh => Args::Putpubfh,
        Op::Putrootfh => Args::Putrootfh,
        Op::Readlink => Args::Readlink,
        Op::Restorefh => Args::Restorefh,
        Op::Savefh => Args::Savefh,
        Op::Illegal => Args::Other(op),
        Op::Close => {
            cur.skip(4)?;
            Args::Close {
                stateid: stateid(cur)?,
            }
        }
        Op::Commit => Args::Commit {
            offset: cur.u64()?,
            count: cur.u32()?,
        },
        Op::Open => open(cur)?,
        Op::Create => create(cur)?,
        Op::Delegreturn => Args::Delegreturn {
            stateid: stateid(cur)?,
        },
        Op::Link => Args::Link { name: name(cur)? },
        Op::Lock => lock(cur)?,
        Op::Lockt => lockt(cur)?,
        Op::Locku => locku(cur)?,
        Op::OpenDowngrade => open_downgrade(cur)?,
        Op::Readdir => Args::Readdir {
            cookie: cur.u64()?,
            verifier: cur.u64()?,
            dir_count: cur.u32()?,
            max_count: cur.u32()?,
            mask: Bitmap::read(cur)?,
        },
        Op::Remove => Args::Remove { name: name(cur)? },
        Op::Rename => Args::Rename {
            from: name(cur)?,
            to: name(cur)?,
        },
        Op::Renew => Args::Renew { client: cur.u64()? },
        Op::Secinfo => Args::Secinfo { name: name(cur)? },
        Op::Setattr => Args::Setattr {
            stateid: stateid(cur)?,
            attributes: FileAttributes::read(cur)?,
        },
        Op::Setclientid => setclientid(cur)?,
        other => parse_later(other, cur)?,
    })
}

/// Parses the arguments of an operation newer than NFSv4.0 (RFC 8881, RFC 7862, RFC 8276).
fn parse_later<'a>(op: Op, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    Ok(match op {
        Op::ExchangeId => exchange_id(cur)?,
        Op::CreateSession => create_session(cur)?,
        Op::DestroySession => Args::DestroySession {
            session: cur.view()?,
        },
        Op::Layoutget => {
            cur.skip(4)?;
            let (kind, iomode, offset, length) = (cur.u32()?, cur.u32()?, cur.u64()?, cur.u64()?);
            // minlength, stateid, maxcount
            cur.skip(8 + 16 + 4)?;
            Args::Layoutget {
                kind,
                iomode,
                offset,
                length,
            }
        }
        Op::ReclaimComplete => Args::ReclaimComplete {
            one_fs: cur.boolean()?,
        },
        Op::Allocate => Args::Allocate {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            length: cur.u64()?,
        },
        Op::Deallocate => Args::Deallocate {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            length: cur.u64()?,
        },
        Op::Copy => {
            cur.skip(32)?;
            let args = Args::Copy {
                from_offset: cur.u64()?,
                to_offset: cur.u64()?,
                count: cur.u64()?,
            };
            cur.skip(8)?;
            for _ in 0..elements(cur)? {
                network_location(cur)?;
            }
            args
        }
        Op::Clone => {
            cur.skip(32)?;
            Args::Clone {
                from_offset: cur.u64()?,
                to_offset: cur.u64()?,
                count: cur.u64()?,
            }
        }
        Op::IoAdvise => {
            cur.skip(16)?;
            let args = Args::IoAdvise {
                offset: cur.u64()?,
                count: cur.u64()?,
            };
            Bitmap::read(cur)?;
            args
        }
        Op::ReadPlus => Args::ReadPlus {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            count: cur.u32()?,
        },
        Op::Seek => Args::Seek {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            hole: cur.u32()? == 1,
        },
        Op::WriteSame => {
            let stateid = stateid(cur)?;
            stable_how(cur)?;
            let args = Args::WriteSame {
                stateid,
                offset: cur.u64()?,
                block_size: cur.u64()?,
                block_count: cur.u64()?,
            };
            cur.skip(8 + 4 + 8)?;
            body(cur)?;
            args
        }
        Op::Getxattr => Args::Getxattr { name: name(cur)? },
        Op::Setxattr => {
            cur.skip(4)?;
            Args::Setxattr {
                name: name(cur)?,
                value: body(cur)?,
            }
        }
        Op::Removexattr => Args::Removexattr { name: name(cur)? },
        other => {
            skip(other, cur)?;
            Args::Other(other)
        }
    })
}

fn lockt<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let args = Args::Lockt {
        kind: cur.u32()?,
        offset: cur.u64()?,
        length: cur.u64()?,
    };
    cur.skip(8)?;
    opaque(cur)?;
    Ok(args)
}

fn locku<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let kind = cur.u32()?;
    cur.skip(4)?;
    Ok(Args::Locku {
        kind,
        stateid: stateid(cur)?,
        offset: cur.u64()?,
        length: cur.u64()?,
    })
}

fn open_downgrade<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let stateid = stateid(cur)?;
    cur.skip(4)?;
    Ok(Args::OpenDowngrade {
        stateid,
        access: cur.u32()?,
        deny: cur.u32()?,
    })
}

fn setclientid<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let (verifier, id, callback_program) = (cur.u64()?, opaque(cur)?, cur.u32()?);
    network_address(cur)?;
    cur.skip(4)?;
    Ok(Args::Setclientid {
        verifier,
        id,
        callback_program,
    })
}

fn open<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    cur.skip(4)?;
    let (access, deny, client, owner) = (cur.u32()?, cur.u32()?, cur.u64()?, opaque(cur)?);
    let create = match cur.u32()? {
        0 => OpenCreate::No,
        1 => match cur.u32()? {
            0 => OpenCreate::Unchecked(FileAttributes::read(cur)?),
            1 => OpenCreate::Guarded(FileAttributes::read(cur)?),
            2 => OpenCreate::Exclusive(cur.u64()?, None),
            3 => OpenCreate::Exclusive(cur.u64()?, Some(FileAttributes::read(cur)?)),
            _ => return Err(cur.malformed(4, "createmode4 is not 0 to 3")),
        },
        _ => return Err(cur.malformed(4, "opentype4 is neither 0 nor 1")),
    };
    let claim = match cur.u32()? {
        0 => OpenClaim::Null(name(cur)?),
        1 => OpenClaim::Previous(cur.u32()?),
        2 => OpenClaim::DelegateCur(stateid(cur)?, name(cur)?),
        3 => OpenClaim::DelegatePrev(name(cur)?),
        4 => OpenClaim::Fh,
        5 => OpenClaim::DelegCurFh(stateid(cur)?),
        6 => OpenClaim::DelegPrevFh,
        _ => return Err(cur.malformed(4, "open_claim_type4 is not 0 to 6")),
    };
    Ok(Args::Open {
        access,
        deny,
        client,
        owner,
        create,
        claim,
    })
}

fn create<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let kind = match cur.u32()? {
        3 => CreateKind::Block([cur.u32()?, cur.u32()?]),
        4 => CreateKind::Character([cur.u32()?, cur.u32()?]),
        5 => CreateKind::Link(path(cur)?),
        other => CreateKind::Plain(other),
    };
    Ok(Args::Create {
        kind,
        name: name(cur)?,
        attributes: FileAttributes::read(cur)?,
    })
}

fn lock<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let (kind, reclaim, offset, length) = (cur.u32()?, cur.boolean()?, cur.u64()?, cur.u64()?);
    let locker = if cur.boolean()? {
        cur.skip(4)?;
        let open = stateid(cur)?;
        cur.skip(4)?;
        Locker::New {
            open,
            client: cur.u64()?,
            owner: opaque(cur)?,
        }
    } else {
        let held = stateid(cur)?;
        cur.skip(4)?;
        Locker::Old(held)
    };
    Ok(Args::Lock {
        kind,
        reclaim,
        offset,
        length,
        locker,
    })
}

/// `netaddr4`: a network id and an address in that network.
pub(super) fn network_address(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    opaque(cur)?;
    opaque(cur)?;
    Ok(())
}

/// `netloc4`.
pub(super) fn network_location(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    match cur.u32()? {
        1 | 2 => path(cur).map(|_| ()),
        3 => network_address(cur),
        _ => Err(cur.malformed(4, "netloc_type4 is not 1 to 3")),
    }
}

/// `nfs_impl_id4<1>`: the peer's implementation.
pub(super) fn implementation(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    if cur.count(1, "more than one implementation")? == 1 {
        network_address(cur)?;
        NfsTime::read(cur)?;
    }
    Ok(())
}

/// Two bitmaps of operations: those that must be protected, and those that may be.
pub(super) fn protected_operations(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    Bitmap::read(cur)?;
    Bitmap::read(cur).map(|_| ())
}

fn exchange_id<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let args = Args::ExchangeId {
        verifier: cur.u64()?,
        owner: opaque(cur)?,
        flags: cur.u32()?,
    };
    match cur.u32()? {
        0 => {}
        1 => protected_operations(cur)?,
        2 => {
            protected_operations(cur)?;
            for _ in 0..2 {
                for _ in 0..elements(cur)? {
                    opaque(cur)?;
                }
            }
            cur.skip(8)?;
        }
        _ => return Err(cur.malformed(4, "state_protect_how4 is not 0 to 2")),
    }
    implementation(cur)?;
    Ok(args)
}

/// `channel_attrs4`; returns the maximum number of concurrent requests.
pub(super) fn channel(cur: &mut Cursor<'_>) -> Result<u32, ParseError> {
    // headerpadsize, maxrequestsize, maxresponsesize, maxresponsesize_cached, maxoperations
    cur.skip(20)?;
    let requests = cur.u32()?;
    let ird = cur.count(1, "more than one RDMA depth")?;
    cur.skip(ird as usize * 4)?;
    Ok(requests)
}

fn create_session<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let (client, sequence, flags) = (cur.u64()?, cur.u32()?, cur.u32()?);
    let slots = channel(cur)?;
    channel(cur)?;
    let callback_program = cur.u32()?;
    security_parameters(cur)?;
    Ok(Args::CreateSession {
        client,
        sequence,
        flags,
        slots,
        callback_program,
    })
}

/// `callback_sec_parms4<>`.
fn security_parameters(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    for _ in 0..elements(cur)? {
        match cur.u32()? {
            0 => {}
            1 => {
                cur.skip(4)?;
                opaque(cur)?;
                cur.skip(8)?;
                let groups = elements(cur)?;
                cur.skip(groups as usize * 4)?;
            }
            6 => {
                cur.skip(4)?;
                body(cur)?;
                body(cur)?;
            }
            _ => {
                return Err(cur.malformed(
                    4,
                    "callback flavor is not AUTH_NONE, AUTH_SYS or RPCSEC_GSS",
                ));
            }
        }
    }
    Ok(())
}

/// Skips arguments that aren't needed.
fn skip(op: Op, cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    match op {
        Op::Delegpurge | Op::DestroyClientid => cur.skip(8),
        Op::Nverify | Op::Verify => FileAttributes::read(cur).map(|_| ()),
        Op::Openattr | Op::SecinfoNoName => cur.skip(4),
        Op::OpenConfirm => cur.skip(20),
        Op::SetclientidConfirm | Op::FreeStateid | Op::OffloadCancel | Op::OffloadStatus => {
            cur.skip(16)
        }
        Op::ReleaseLockowner => {
            cur.skip(8)?;
            opaque(cur).map(|_| ())
        }
        Op::BackchannelCtl => {
            cur.skip(4)?;
            security_parameters(cur)
        }
        Op::BindConnToSession => cur.skip(24),
        Op::GetDirDelegation => {
            cur.skip(4)?;
            Bitmap::read(cur)?;
            cur.skip(24)?;
            protected_operations(cur)
        }
        Op::Getdeviceinfo => {
            cur.skip(24)?;
            Bitmap::read(cur).map(|_| ())
        }
        Op::Getdevicelist => cur.skip(24),
        Op::Layoutcommit => skip_layoutcommit(cur),
        Op::Layoutreturn => {
            cur.skip(12)?;
            if cur.u32()? == 1 {
                cur.skip(8 + 8 + 16)?;
                body(cur)?;
            }
            Ok(())
        }
        Op::SetSsv => {
            body(cur)?;
            body(cur).map(|_| ())
        }
        Op::TestStateid => {
            let count = elements(cur)?;
            cur.skip(count as usize * 16)
        }
        Op::WantDelegation => {
            cur.skip(4)?;
            if cur.u32()? == 1 {
                cur.skip(4)?;
            }
            Ok(())
        }
        Op::CopyNotify => {
            cur.skip(16)?;
            network_location(cur)
        }
        Op::Layouterror => {
            cur.skip(8 + 8 + 16)?;
            let errors = elements(cur)?;
            cur.skip(errors as usize * 24)
        }
        Op::Layoutstats => {
            cur.skip(8 + 8 + 16 + 16 + 16 + 16 + 4)?;
            body(cur).map(|_| ())
        }
        Op::Listxattrs => cur.skip(12),
        _ => unreachable!("{} is read above", op.name()),
    }
}

fn skip_layoutcommit(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    cur.skip(8 + 8 + 4 + 16)?;
    if cur.boolean()? {
        cur.skip(8)?;
    }
    if cur.boolean()? {
        cur.skip(12)?;
    }
    cur.skip(4)?;
    body(cur).map(|_| ())
}

impl Args<'_> {
    /// The operation; `None` if unknown.
    pub fn op(&self) -> Option<Op> {
        Some(match self {
            Args::Access { .. } => Op::Access,
            Args::Close { .. } => Op::Close,
            Args::Commit { .. } => Op::Commit,
            Args::Create { .. } => Op::Create,
            Args::Delegreturn { .. } => Op::Delegreturn,
            Args::Getattr { .. } => Op::Getattr,
            Args::Getfh => Op::Getfh,
            Args::Link { .. } => Op::Link,
            Args::Lock { .. } => Op::Lock,
            Args::Lockt { .. } => Op::Lockt,
            Args::Locku { .. } => Op::Locku,
            Args::Lookup { .. } => Op::Lookup,
            Args::Lookupp => Op::Lookupp,
            Args::Open { .. } => Op::Open,
            Args::OpenDowngrade { .. } => Op::OpenDowngrade,
            Args::Putfh { .. } => Op::Putfh,
            Args::Putpubfh => Op::Putpubfh,
            Args::Putrootfh => Op::Putrootfh,
            Args::Read { .. } => Op::Read,
            Args::Readdir { .. } => Op::Readdir,
            Args::Readlink => Op::Readlink,
            Args::Remove { .. } => Op::Remove,
            Args::Rename { .. } => Op::Rename,
            Args::Renew { .. } => Op::Renew,
            Args::Restorefh => Op::Restorefh,
            Args::Savefh => Op::Savefh,
            Args::Secinfo { .. } => Op::Secinfo,
            Args::Setattr { .. } => Op::Setattr,
            Args::Setclientid { .. } => Op::Setclientid,
            Args::Write { .. } => Op::Write,
            Args::ExchangeId { .. } => Op::ExchangeId,
            Args::CreateSession { .. } => Op::CreateSession,
            Args::DestroySession { .. } => Op::DestroySession,
            Args::Layoutget { .. } => Op::Layoutget,
            Args::Sequence { .. } => Op::Sequence,
            Args::ReclaimComplete { .. } => Op::ReclaimComplete,
            Args::Allocate { .. } => Op::Allocate,
            Args::Deallocate { .. } => Op::Deallocate,
            Args::Copy { .. } => Op::Copy,
            Args::Clone { .. } => Op::Clone,
            Args::IoAdvise { .. } => Op::IoAdvise,
            Args::ReadPlus { .. } => Op::ReadPlus,
            Args::Seek { .. } => Op::Seek,
            Args::WriteSame { .. } => Op::WriteSame,
            Args::Getxattr { .. } => Op::Getxattr,
            Args::Setxattr { .. } => Op::Setxattr,
            Args::Removexattr { .. } => Op::Removexattr,
            Args::Other(op) => *op,
            Args::Unknown(_) => return None,
        })
    }
}
