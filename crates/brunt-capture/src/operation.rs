//! The output of the pipeline: operations and the checksums of their data. Consumed by sinks (analyses, the
//! trace). The one rule: everything borrows; a sink copies what it keeps.

use brunt_core::TransferOutcome;
use brunt_wire::net::NextHeader;

use crate::dissect::Detail;
use crate::dissect::rpc::Exchange;
pub(crate) use crate::key::leads_on;
pub use crate::key::{FileKey, Message, MessagePlace, Packet, Peers, TransferDirection, Transport};
use crate::ledger::Ledger;

/// The kind of an operation, across all protocols. The kind determines the operation's name and counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKind(u16);

impl OperationKind {
    /// The kind with this number.
    pub(crate) const fn numbered(number: u16) -> OperationKind {
        OperationKind(number)
    }

    /// The index of the kind: below [`OperationKind::COUNT`], valid only in this process.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A protocol that operations belong to, such as NFSv3; it defines the meaning of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(u8);

impl Protocol {
    /// The protocol with this number.
    pub(crate) const fn numbered(number: u8) -> Protocol {
        Protocol(number)
    }

    /// The index of the protocol, valid only in this process.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The protocol-independent part of an operation: what it requested, and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSummary {
    /// The kind of operation.
    pub kind: OperationKind,
    /// Its protocol.
    pub protocol: Protocol,
    /// The protocol's status, if the operation has one and its reply was captured. Zero means success.
    pub status: Option<u32>,
    /// The file that the operation works on; for operations on names, the directory.
    pub file: Option<FileKey>,
    /// Direction of the data; `None` if the operation moves none.
    pub direction: Option<TransferDirection>,
    /// Offset in the file, in bytes.
    pub offset: Option<u64>,
    /// Bytes requested.
    pub asked_bytes: Option<u32>,
    /// Bytes moved.
    pub moved_bytes: u32,
}

impl OperationSummary {
    /// An operation of which only kind and protocol are known.
    #[inline]
    pub const fn of(kind: OperationKind, protocol: Protocol) -> OperationSummary {
        OperationSummary {
            kind,
            protocol,
            status: None,
            file: None,
            direction: None,
            offset: None,
            asked_bytes: None,
            moved_bytes: 0,
        }
    }
}

/// A request with its reply, or without a reply if none was captured in time. Holds the fields that all protocols
/// have; the rest is in [`Operation::detail`].
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The operation's number, in the order in which requests were seen; links the tables of a trace.
    pub record_id: u64,
    /// The protocol-independent summary.
    pub summary: OperationSummary,
    /// Client and server.
    pub peers: Peers,
    /// Links request and reply: the RPC xid or the initiator task tag.
    pub tag: u32,
    /// The request.
    pub request: Message,
    /// The reply; `None` if none was captured.
    pub reply: Option<Message>,
    /// Operations outstanding when this one was requested, including this one.
    pub outstanding: u32,
    /// Bytes of the operation's file data that were not captured.
    pub data_missing: u32,
    /// Whether the capture's clock was set between request and reply, so that the latency is unknown.
    pub clock_was_set: bool,
    /// The protocol-specific part.
    pub detail: &'a Detail<'a>,
}

impl Operation<'_> {
    /// Nanoseconds from the request's first byte to the reply's first byte. `None` without a reply, if the capture's
    /// clock was set between the two, or if the reply's time is earlier than the request's.
    #[inline]
    pub fn latency_ns(&self) -> Option<u64> {
        let reply = self.reply.filter(|_| !self.clock_was_set)?;
        reply.first_ns.checked_sub(self.request.first_ns)
    }

    /// The outcome of the data transfer.
    #[inline]
    pub fn outcome(&self) -> TransferOutcome {
        TransferOutcome::of(self.summary.status, self.reply.is_some())
    }

    /// Passes on the names that this operation reveals: the file, its directory, and its name there. A root has no
    /// directory, and its name is a path.
    #[inline]
    pub(crate) fn each_name(&self, tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8])) {
        self.detail.each_name(self, tell);
    }

    /// The RPC-specific part, if this is an RPC operation.
    #[inline]
    pub fn rpc(&self) -> Option<&Exchange<'_>> {
        match self.detail {
            Detail::Rpc(exchange) => Some(exchange),
            _ => None,
        }
    }
}

/// Checksums of consecutive blocks of a file.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumRun<'a> {
    /// The operation that transferred the blocks.
    pub record_id: u64,
    /// The file.
    pub file: FileKey,
    /// Whether the data went to the server.
    pub write: bool,
    /// File offset of the first block, a multiple of [`crate::checksum::BLOCK_BYTES`].
    pub offset: u64,
    /// One checksum per block.
    pub sums: &'a [u64],
}

/// Receives the pipeline's results.
pub trait Sink {
    /// An operation was completed or abandoned.
    fn on_operation(&mut self, operation: &Operation<'_>);
    /// Checksums of data that was read or written.
    fn on_checksums(&mut self, run: &ChecksumRun<'_>);
    /// Whether the sink uses checksums; if not, none are computed. Called for each piece of data.
    #[inline]
    fn wants_checksums(&self) -> bool {
        true
    }
    /// A packet was captured.
    #[inline]
    fn on_packet(&mut self, _time_ns: u64, _wire_len: u32) {}
    /// The packet's contents are not understood.
    fn on_not_understood(&mut self, _next: NextHeader, _wire_len: u32) {}
    /// All available packets have been processed: deferred work is due.
    #[inline]
    fn on_batch_end(&mut self, _now_ns: u64, _ledger: &Ledger) {}
    /// When the sink's window ends, in nanoseconds since 1970. [`Sink::on_window_end`] is called before the first
    /// packet at or after that time.
    #[inline]
    fn window_until_ns(&self) -> u64 {
        u64::MAX
    }
    /// The capture's time has reached [`Sink::window_until_ns`]; `ledger` counts everything up to then.
    fn on_window_end(&mut self, _now_ns: u64, _ledger: &Ledger) {}
    /// The capture has ended, with these counters.
    fn on_end(&mut self, _ledger: &Ledger) {}
    /// Whether the sink wants calls of [`Sink::on_packet_parsed`], which take time.
    const PACKETS: bool = false;
    /// Receives the parsed properties of a packet.
    #[inline]
    fn on_packet_parsed(&mut self, _packet: &Packet) {}
}

/// An optional sink, which does nothing if it is `None`.
impl<S: Sink> Sink for Option<S> {
    #[inline]
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.iter_mut()
            .for_each(|sink| sink.on_operation(operation));
    }
    #[inline]
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.iter_mut().for_each(|sink| sink.on_checksums(run));
    }
    fn wants_checksums(&self) -> bool {
        self.as_ref().is_some_and(S::wants_checksums)
    }
    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.iter_mut()
            .for_each(|sink| sink.on_packet(time_ns, wire_len));
    }
    fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
        self.iter_mut()
            .for_each(|sink| sink.on_not_understood(next, wire_len));
    }
    #[inline]
    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.iter_mut()
            .for_each(|sink| sink.on_batch_end(now_ns, ledger));
    }
    #[inline]
    fn window_until_ns(&self) -> u64 {
        self.as_ref().map_or(u64::MAX, S::window_until_ns)
    }
    fn on_window_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.iter_mut()
            .for_each(|sink| sink.on_window_end(now_ns, ledger));
    }
    fn on_end(&mut self, ledger: &Ledger) {
        self.iter_mut().for_each(|sink| sink.on_end(ledger));
    }
    const PACKETS: bool = S::PACKETS;
    #[inline]
    fn on_packet_parsed(&mut self, packet: &Packet) {
        self.iter_mut()
            .for_each(|sink| sink.on_packet_parsed(packet));
    }
}

impl<A: Sink, B: Sink> Sink for (A, B) {
    #[inline]
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.0.on_operation(operation);
        self.1.on_operation(operation);
    }
    #[inline]
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.0.on_checksums(run);
        self.1.on_checksums(run);
    }
    fn wants_checksums(&self) -> bool {
        self.0.wants_checksums() || self.1.wants_checksums()
    }
    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.0.on_packet(time_ns, wire_len);
        self.1.on_packet(time_ns, wire_len);
    }
    fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
        self.0.on_not_understood(next, wire_len);
        self.1.on_not_understood(next, wire_len);
    }
    #[inline]
    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.0.on_batch_end(now_ns, ledger);
        self.1.on_batch_end(now_ns, ledger);
    }
    #[inline]
    fn window_until_ns(&self) -> u64 {
        self.0.window_until_ns().min(self.1.window_until_ns())
    }
    fn on_window_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.0.on_window_end(now_ns, ledger);
        self.1.on_window_end(now_ns, ledger);
    }
    fn on_end(&mut self, ledger: &Ledger) {
        self.0.on_end(ledger);
        self.1.on_end(ledger);
    }
    const PACKETS: bool = A::PACKETS || B::PACKETS;
    #[inline]
    fn on_packet_parsed(&mut self, packet: &Packet) {
        self.0.on_packet_parsed(packet);
        self.1.on_packet_parsed(packet);
    }
}
