//! The environment that a connection's protocol rules need, and the types exchanged with it. `driver` implements it
//! with a socket and logical units; tests and the fuzzer implement it with vectors. The one rule: nothing behind
//! [`ConnectionIo`] waits for the peer.

use std::time::Duration;

use brunt_block::Buf;
use brunt_wire::iscsi::pdu::Bhs;

use crate::scsi::{CommandOutcome, DataIn, TransportCommand};
use crate::target_node::session::{CommandWindow, Reach};

/// What the rules can access while they handle a PDU, outcome or message.
pub struct ConnectionContext<'a, I> {
    /// The session's command window, locked for the batch.
    pub window: &'a mut CommandWindow,
    /// Logical units, socket and buffers.
    pub io: &'a mut I,
}

/// The environment of the protocol rules: logical units, a socket and buffers.
pub trait ConnectionIo {
    /// Hands a command to its logical unit, which may not exist.
    fn begin(&mut self, lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun;
    /// Runs a previously begun command with its data. The outcome may come later.
    fn start(&mut self, lun: Option<u16>, tag: u64, data: DataOut) -> Option<CommandOutcome>;
    /// Aborts a previously begun command. If the command was started, its outcome still arrives.
    fn abort(&mut self, lun: Option<u16>, tag: u64);
    /// Performs a task management function on all tasks of a logical unit (of all units if `None`), from all
    /// initiators. Each of these tasks gets an outcome with
    /// [`ScsiStatus::TaskAborted`](brunt_wire::scsi::sense::ScsiStatus::TaskAborted). Returns closures that report
    /// completion; this thread is woken when that happens.
    fn manage(&mut self, function: u8, lun: Option<u16>) -> Vec<IsDone>;
    /// Whether this logical unit exists.
    fn has_lun(&self, lun: u16) -> bool;
    /// Whether a logical unit returns sense data in descriptor format.
    fn wants_descriptor_sense(&self, lun: Option<u16>) -> bool;
    /// Allocates a Data-Out buffer.
    fn buffer(&mut self, len: usize) -> Buf;
    /// Sends a PDU with little or no data.
    fn send(&mut self, bhs: &Bhs, data: &[u8]);
    /// Sends a command's Data-In PDUs; each has a header, and a start and length in `data`.
    fn send_data_in(&mut self, lun: Option<u16>, data: DataIn, pdus: &[(Bhs, u32, u32)]);
    /// Called when the connection logs out, alone or with its whole session: releases what its nexus has reserved
    /// unless other connections of the nexus remain.
    fn log_out(&mut self, whole_session: bool);
    /// Closes other connections.
    fn close_others(&mut self, reach: Reach);
    /// Closes this session's connection with this CID; returns whether it exists.
    fn close_cid(&mut self, cid: u16) -> bool;
    /// Names and addresses for `SendTargets`. A normal session sees only its own target.
    fn describe_targets(&self) -> Vec<(String, Vec<String>)>;
}

/// Returns whether a task management function is done.
pub type IsDone = Box<dyn Fn() -> bool>;

/// A logical unit's immediate response to a command.
#[derive(Debug)]
pub enum CommandBegun {
    /// The command is finished.
    Done(CommandOutcome),
    /// The command runs without Data-Out; the outcome follows later.
    Pending,
    /// The command wants `len` bytes of Data-Out, possibly zero. With `inline`, the data may be received directly
    /// into the medium at this offset.
    Wants {
        /// In bytes.
        len: u32,
        /// In bytes from the start of the medium.
        inline: Option<u64>,
    },
}

/// The data for starting a command.
#[derive(Debug)]
pub enum DataOut {
    /// This many bytes at the start of a buffer.
    Buf(Buf, u32),
    /// This many bytes, received at the offset given by [`CommandBegun::Wants`].
    Inline(u32),
}

/// Where a PDU's data segment goes.
#[derive(Debug)]
pub enum Destination {
    /// The PDU has no data.
    None,
    /// The data is discarded.
    Discard,
    /// To [`TargetConnection::on_data`](super::TargetConnection::on_data), as a slice.
    Control,
    /// Into this buffer, at the offset.
    Buf(Buf, usize),
    /// Into a logical unit's medium, at the offset, for the command with this tag.
    Inline {
        /// The LUN at the time when the command arrived.
        lun: u16,
        /// The command's tag.
        tag: u64,
        /// In bytes from the start of the medium.
        offset: u64,
    },
}

/// A data segment that was received at its [`Destination`].
#[derive(Debug)]
pub enum Received<'a> {
    /// The data was discarded, or received into the medium.
    Elsewhere,
    /// The data is in the buffer.
    Buf(Buf),
    /// The data is in this slice.
    Control(&'a [u8]),
}

/// The connection can't continue and must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// SCSI commands answered.
    pub commands: u64,
    /// Payload bytes received.
    pub data_out_bytes: u64,
    /// Payload bytes sent.
    pub data_in_bytes: u64,
    /// PDUs answered with a Reject.
    pub rejects: u64,
    /// PDUs with a wrong digest.
    pub digest_errors: u64,
    /// Commands outside the command window, which are ignored (RFC 7143, 4.2.2.1).
    pub ignored: u64,
}

/// How a connection checks that its peer is alive.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Idle time after which the target sends a NOP-In.
    pub idle: Duration,
    /// Maximum wait for the response.
    pub patience: Duration,
}
