//! What passes between a transport and a logical unit.

use brunt_block::Buf;
use brunt_wire::scsi::sense::{Sense, Status};

/// Who sends a command: an I_T nexus (SAM-5, 4.7). The names are iSCSI's transport ids; the
/// number is unique for the life of the process and never reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexus {
    /// Never reused.
    pub id: u64,
    /// The initiator port's name: `iqn…,i,0x<ISID in 12 hex digits>` (RFC 7143, 4.4.2).
    pub initiator_port: String,
    /// Relative target port identifier: the portal group tag.
    pub target_port: u16,
}

/// Task attributes (SAM-5, 8.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's own names
pub enum TaskAttribute {
    #[default]
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

/// A command as a transport delivers it.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The transport's name for it, unique among the outstanding ones of this task set; comes back
    /// with the outcome.
    pub tag: u64,
    /// The CDB, 16 bytes or more (an extended one).
    pub cdb: &'a [u8],
    /// Its attribute.
    pub attribute: TaskAttribute,
    /// Bytes the initiator will send (zero when the command does not write).
    pub data_out_len: u32,
    /// Bytes the initiator has room for (zero when the command does not read).
    pub data_in_len: u32,
}

/// What [`super::TaskSet::begin`] found.
#[derive(Debug)]
pub enum Begin {
    /// Answered already.
    Done(Outcome),
    /// Wants `len` bytes of data-out (possibly fewer than the initiator wants to send: the
    /// transport collects `min(len, data_out_len)`, drops the rest and reports the residual); then
    /// call [`super::TaskSet::start`] with them. `len` may be zero.
    Wants {
        /// In bytes.
        len: u32,
    },
}

/// The answer to a command.
#[derive(Debug)]
pub struct Outcome {
    /// The command's.
    pub tag: u64,
    /// Its status.
    pub status: Status,
    /// With CHECK CONDITION.
    pub sense: Option<Sense>,
    /// With GOOD: what the command returns, already cut to the CDB's allocation length but
    /// not to the initiator's expected length (so that the transport can report the residual).
    pub data_in: DataIn,
    /// How many data-out bytes the CDB describes: the transport's residual is computed against it.
    pub data_out_len: u32,
}

/// Data for the initiator.
#[derive(Debug)]
pub enum DataIn {
    /// None.
    None,
    /// Short answers: INQUIRY, mode pages and their like.
    Bytes(Vec<u8>),
    /// Blocks that were read: the first `len` bytes.
    Buf(Buf, u32),
    /// Blocks that the transport may take from the medium itself ([`brunt_block::Inline`]).
    Inline {
        /// In bytes from the start of the medium.
        offset: u64,
        /// In bytes.
        len: u32,
    },
}
