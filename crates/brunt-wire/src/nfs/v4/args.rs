//! The arguments of a compound's operations.

use super::Op;
use super::attributes::{Bitmap, FileAttributes};
use super::fields::SessionChannel;
use crate::FileData;
use crate::nfs::FileHandle;
use crate::nfs::v3::StableHow;

/// `stateid4`: a sequence number and twelve bytes chosen by the server.
pub type Stateid = [u8; 16];

/// What OPEN does about a file that doesn't exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCreate<'a> {
    /// Fail.
    No,
    /// Create it; if it exists, that is not an error.
    Unchecked(FileAttributes<'a>),
    /// Create it; if it exists, that is an error.
    Guarded(FileAttributes<'a>),
    /// Create it exactly once, identified by this verifier; 4.1 can set attributes at the same time.
    Exclusive(u64, Option<FileAttributes<'a>>),
}

/// What OPEN opens (`open_claim4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenClaim<'a> {
    /// A name in the current directory.
    Null(&'a [u8]),
    /// A file that was open before the server restarted, with the type of its delegation.
    Previous(u32),
    /// A name, opened under a delegation.
    DelegateCur(&'a Stateid, &'a [u8]),
    /// A name, opened under a delegation from before the client restarted.
    DelegatePrev(&'a [u8]),
    /// The current file handle.
    Fh,
    /// The current file handle, opened under a delegation.
    DelegCurFh(&'a Stateid),
    /// The current file handle, opened under a delegation from before the client restarted.
    DelegPrevFh,
}

impl<'a> OpenClaim<'a> {
    /// The name that is opened in the current directory, if there is one.
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

/// The owner of a lock.
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
        client: u64,
        owner: &'a [u8],
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
    Verify {
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
        fore: SessionChannel,
        back: SessionChannel,
        callback_program: u32,
    },
    DestroySession {
        session: &'a [u8; 16],
    },
    DestroyClientid {
        client: u64,
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
    /// An unknown operation, after which nothing can be parsed.
    Unknown(u32),
}

impl Args<'_> {
    /// The operation; `None` if it is unknown.
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
            Args::Verify { .. } => Op::Verify,
            Args::Setclientid { .. } => Op::Setclientid,
            Args::Write { .. } => Op::Write,
            Args::ExchangeId { .. } => Op::ExchangeId,
            Args::CreateSession { .. } => Op::CreateSession,
            Args::DestroySession { .. } => Op::DestroySession,
            Args::DestroyClientid { .. } => Op::DestroyClientid,
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
