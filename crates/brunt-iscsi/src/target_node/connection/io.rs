//! What the rules of a connection need around them, and the words they exchange with it. Implemented by
//! `driver` over a socket and logical units, by tests and the fuzzer over vectors. The one rule: nothing
//! behind [`ConnectionIo`] waits for the peer.

use std::time::Duration;

use brunt_block::Buf;
use brunt_wire::iscsi::pdu::Bhs;

use crate::scsi::{CommandOutcome, DataIn, TransportCommand};
use crate::target_node::session::{CommandWindow, Reach};

/// What the rules of a connection reach while they handle one PDU, outcome or message.
pub struct ConnectionContext<'a, I> {
    /// The session's command numbers, locked for the batch.
    pub window: &'a mut CommandWindow,
    /// Logical units, socket and buffers.
    pub io: &'a mut I,
}

/// What the rules need around them: logical units below, a socket and buffers beside.
pub trait ConnectionIo {
    /// Hands a command to its logical unit; there may be none of that number.
    fn begin(&mut self, lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun;
    /// Runs a begun command with its data. The outcome may come later.
    fn start(&mut self, lun: Option<u16>, tag: u64, data: DataOut) -> Option<CommandOutcome>;
    /// Gives up a begun command. If it was started, its outcome still comes.
    fn abort(&mut self, lun: Option<u16>, tag: u64);
    /// Carries out a task management function on all tasks of a logical unit (of all units when
    /// `None`), whoever sent them; these have outcomes of their own, with [`ScsiStatus::TaskAborted`](brunt_wire::scsi::sense::ScsiStatus::TaskAborted).
    /// Gives what tells when it is done; this thread is woken then.
    fn manage(&mut self, function: u8, lun: Option<u16>) -> Vec<IsDone>;
    /// Whether there is such a logical unit.
    fn has_lun(&self, lun: u16) -> bool;
    /// Whether a logical unit's sense data goes out in descriptor format.
    fn wants_descriptor_sense(&self, lun: Option<u16>) -> bool;
    /// A buffer for data-out.
    fn buffer(&mut self, len: usize) -> Buf;
    /// Sends a PDU with little or no data.
    fn send(&mut self, bhs: &Bhs, data: &[u8]);
    /// Sends the Data-In PDUs of one command: header, and which part of `data` goes with it.
    fn send_data_in(&mut self, lun: Option<u16>, data: DataIn, pdus: &[(Bhs, u32, u32)]);
    /// The connection logs out, with all of its session or alone: gives back what its nexus has reserved, if nobody is left who
    /// holds it.
    fn log_out(&mut self, whole_session: bool);
    /// Closes other connections.
    fn close_elsewhere(&mut self, reach: Reach);
    /// Closes the connection of this session with this CID; whether there is one.
    fn close_cid(&mut self, cid: u16) -> bool;
    /// What `SendTargets` answers: names, and the addresses of each. A normal session hears of its own target only.
    fn describe_targets(&self) -> Vec<(String, Vec<String>)>;
}

/// Tells whether a task management function is done.
pub type IsDone = Box<dyn Fn() -> bool>;

/// What a logical unit said to a command.
#[derive(Debug)]
pub enum CommandBegun {
    /// Answered.
    Done(CommandOutcome),
    /// Under way without data-out; the outcome comes later.
    Pending,
    /// Wants data-out of `len` bytes, zero perhaps. With `inline`, the place in the medium where
    /// it may be received to.
    Wants {
        /// In bytes.
        len: u32,
        /// In bytes from the start of the medium.
        inline: Option<u64>,
    },
}

/// The data of a command that starts.
#[derive(Debug)]
pub enum DataOut {
    /// The first so many bytes of a buffer.
    Buf(Buf, u32),
    /// So many bytes, where [`CommandBegun::Wants`] said.
    Inline(u32),
}

/// Where a PDU's data segment belongs.
#[derive(Debug)]
pub enum Destination {
    /// There is none.
    None,
    /// Nowhere.
    Discard,
    /// To [`TargetConnection::on_data`](super::TargetConnection::on_data) as a slice.
    Control,
    /// Into this buffer, from the offset on.
    Buf(Buf, usize),
    /// Into the medium of a logical unit, from the offset on, for the command of this tag.
    Inline {
        /// The unit's number when the command came.
        lun: u16,
        /// The command's.
        tag: u64,
        /// In bytes from the start of the medium.
        offset: u64,
    },
}

/// A data segment that has arrived where [`Destination`] said.
#[derive(Debug)]
pub enum Received<'a> {
    /// It was thrown away, or went to the medium.
    Elsewhere,
    /// In the buffer.
    Buf(Buf),
    /// Here.
    Control(&'a [u8]),
}

/// The connection cannot go on: close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// What one connection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// SCSI commands answered.
    pub commands: u64,
    /// Payload received.
    pub data_out_bytes: u64,
    /// Payload sent.
    pub data_in_bytes: u64,
    /// PDUs answered with a Reject.
    pub rejects: u64,
    /// Digests that were wrong.
    pub digest_errors: u64,
    /// Commands outside the window, which RFC 7143 has ignored.
    pub ignored: u64,
}

/// How a connection keeps an eye on its peer.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Silence after which the target asks.
    pub idle: Duration,
    /// And how long it waits for the answer.
    pub patience: Duration,
}
