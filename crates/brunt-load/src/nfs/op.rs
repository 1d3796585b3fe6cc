//! The operations of the load, with the kinds that they count as.

use brunt_block::Op;
use brunt_result::OpKind;

/// An operation of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFC's own names
#[repr(u8)]
pub enum NfsOp {
    Getattr,
    Lookup,
    Access,
    Readlink,
    Read,
    Write,
    Commit,
    Create,
    Remove,
    Rename,
    Mkdir,
    Rmdir,
    Readdirplus,
    Setattr,
    Lock,
    Locku,
}

/// All operations, in the order of [`NfsOp`].
pub const OPS: [NfsOp; 16] = [
    NfsOp::Getattr,
    NfsOp::Lookup,
    NfsOp::Access,
    NfsOp::Readlink,
    NfsOp::Read,
    NfsOp::Write,
    NfsOp::Commit,
    NfsOp::Create,
    NfsOp::Remove,
    NfsOp::Rename,
    NfsOp::Mkdir,
    NfsOp::Rmdir,
    NfsOp::Readdirplus,
    NfsOp::Setattr,
    NfsOp::Lock,
    NfsOp::Locku,
];

impl NfsOp {
    /// Returns the RFC's name.
    pub fn name(self) -> &'static str {
        match self {
            NfsOp::Getattr => "GETATTR",
            NfsOp::Lookup => "LOOKUP",
            NfsOp::Access => "ACCESS",
            NfsOp::Readlink => "READLINK",
            NfsOp::Read => "READ",
            NfsOp::Write => "WRITE",
            NfsOp::Commit => "COMMIT",
            NfsOp::Create => "CREATE",
            NfsOp::Remove => "REMOVE",
            NfsOp::Rename => "RENAME",
            NfsOp::Mkdir => "MKDIR",
            NfsOp::Rmdir => "RMDIR",
            NfsOp::Readdirplus => "READDIRPLUS",
            NfsOp::Setattr => "SETATTR",
            NfsOp::Lock => "LOCK",
            NfsOp::Locku => "LOCKU",
        }
    }

    /// Returns the kind that the operation counts as.
    pub fn kind(self) -> OpKind {
        match self {
            NfsOp::Getattr => OpKind::GetAttributes,
            NfsOp::Lookup => OpKind::Lookup,
            NfsOp::Access => OpKind::Access,
            NfsOp::Readlink => OpKind::ReadLink,
            NfsOp::Read => OpKind::Read,
            NfsOp::Write => OpKind::Write,
            NfsOp::Commit => OpKind::Flush,
            NfsOp::Create => OpKind::Create,
            NfsOp::Remove => OpKind::Remove,
            NfsOp::Rename => OpKind::Rename,
            NfsOp::Mkdir => OpKind::MakeDirectory,
            NfsOp::Rmdir => OpKind::RemoveDirectory,
            NfsOp::Readdirplus => OpKind::ReadDirectory,
            NfsOp::Setattr => OpKind::SetAttributes,
            NfsOp::Lock => OpKind::Lock,
            NfsOp::Locku => OpKind::Unlock,
        }
    }

    /// Returns the operation of the block request that represents this call.
    pub(super) fn carrier(self) -> Op {
        match self {
            NfsOp::Read => Op::Read,
            NfsOp::Write => Op::Write,
            _ => Op::Flush,
        }
    }
}
