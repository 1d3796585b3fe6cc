//! The output of the pipeline: operations and the checksums of their data. Consumed by sinks (analyses, the
//! trace). The one rule: everything borrows; a sink copies what it keeps.

use brunt_core::TransferOutcome;
use brunt_result::OpKind;
use brunt_wire::net::NextHeader;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dissect::{self, Detail, rpc};
pub(crate) use crate::key::leads_on;
pub use crate::key::{FileKey, Message, MessagePlace, Packet, Peers, TransferDirection, Transport};
use crate::ledger::Ledger;

/// The kind of an operation, of all protocols: what it is called, and which counter is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKind(u16);

impl OperationKind {
    /// How many there are.
    pub const COUNT: usize = dissect::KIND_COUNT;

    /// One of a dissector's kinds, by its place among them.
    pub(crate) const fn of<D: dissect::Registered>(place: u16) -> OperationKind {
        assert!((place as usize) < D::KINDS.len());
        OperationKind(D::FIRST_KIND + place)
    }

    /// All of them, in the order of the table.
    pub fn all() -> impl Iterator<Item = OperationKind> {
        (0..Self::COUNT as u16).map(OperationKind)
    }

    /// Its number: below [`OperationKind::COUNT`], and only good in this process.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// By its number.
    pub(crate) fn from_index(index: usize) -> OperationKind {
        assert!(index < Self::COUNT, "no kind {index}");
        OperationKind(index as u16)
    }

    /// Its name, as the protocol's standard has it.
    pub fn name(self) -> &'static str {
        dissect::kind_at(self.index()).1.name
    }

    /// What loads and results call such an operation, if they have one.
    pub fn op(self) -> Option<OpKind> {
        dissect::kind_at(self.index()).1.op
    }

    /// The kinds that loads and results call so, of all protocols.
    pub fn of_op(op: OpKind) -> impl Iterator<Item = OperationKind> {
        OperationKind::all().filter(move |kind| kind.op() == Some(op))
    }

    /// The dissector that makes such operations.
    pub fn dissector(self) -> &'static str {
        dissect::kind_at(self.index()).0.name
    }
}

/// As it is sent and kept: the dissector's name and its own, since numbers are only good in one process.
impl Serialize for OperationKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.dissector(), self.name()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OperationKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OperationKind, D::Error> {
        let (dissector, name) = <(String, String)>::deserialize(deserializer)?;
        let found =
            OperationKind::all().find(|kind| kind.dissector() == dissector && kind.name() == name);
        found.ok_or_else(|| {
            D::Error::custom(format!("no operation {name} of {dissector} is known here"))
        })
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Protocol, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Protocol::all().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("no protocol {name} is known here")))
    }
}

/// A protocol that operations belong to, such as NFSv3: says what statuses mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(u8);

impl Protocol {
    /// How many there are.
    pub const COUNT: usize = dissect::PROTOCOL_COUNT;

    /// One of a dissector's protocols, by its place among them.
    pub(crate) const fn of<D: dissect::Registered>(place: u8) -> Protocol {
        assert!((place as usize) < D::PROTOCOLS.len());
        Protocol(D::FIRST_PROTOCOL + place)
    }

    /// All of them, in the order of the table.
    pub fn all() -> impl Iterator<Item = Protocol> {
        (0..Self::COUNT as u8).map(Protocol)
    }

    /// Its number, only good in this process.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// By its number.
    pub(crate) fn from_index(index: usize) -> Protocol {
        assert!(index < Self::COUNT, "no protocol {index}");
        Protocol(index as u8)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        dissect::protocol_at(self.index()).1.name
    }

    /// The dissector that knows it.
    pub fn dissector(self) -> &'static str {
        dissect::protocol_at(self.index()).0.name
    }

    /// What a status is called, or its number.
    pub fn status_name(self, status: u32) -> String {
        let name = (dissect::protocol_at(self.index()).1.status_name)(status);
        name.map_or_else(|| status.to_string(), str::to_string)
    }
}

/// What an operation asked for and what came of it, in the words of all protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSummary {
    /// What was asked for.
    pub kind: OperationKind,
    /// In which protocol.
    pub protocol: Protocol,
    /// The protocol's status, when the operation has one and it was seen. Zero is success.
    pub status: Option<u32>,
    /// What it works on: a file, or the directory of a name.
    pub file: Option<FileKey>,
    /// Which way data goes; `None` if none does.
    pub direction: Option<TransferDirection>,
    /// Where in the file, in bytes.
    pub offset: Option<u64>,
    /// How many bytes were asked for.
    pub asked_bytes: Option<u32>,
    /// How many moved.
    pub moved_bytes: u32,
}

impl OperationSummary {
    /// An operation of which nothing more is known.
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

/// A request with its answer, or without one when none came in time. What all protocols have is here; the
/// rest is [`Operation::detail`].
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Counts requests in the order in which they were seen; links the tables of a trace.
    pub record_id: u64,
    /// What was asked for and what came of it.
    pub summary: OperationSummary,
    /// Who asked whom.
    pub peers: Peers,
    /// What pairs request and answer: RPC's xid, an initiator task tag.
    pub tag: u32,
    /// The request.
    pub request: Message,
    /// The answer; `None` if none was seen.
    pub reply: Option<Message>,
    /// Operations waiting for an answer when this one was asked for, itself included.
    pub outstanding: u32,
    /// Bytes of file data that lay in holes.
    pub data_missing: u32,
    /// The capture's clock was set between request and answer: how long it took is not known.
    pub clock_was_set: bool,
    /// The protocol's own part.
    pub detail: &'a Detail<'a>,
}

impl Operation<'_> {
    /// From the request's first byte to the answer's, in nanoseconds; `None` without an answer, if the capture's clock
    /// was set between the two, or if the answer's time is the earlier one.
    #[inline]
    pub fn latency_ns(&self) -> Option<u64> {
        let reply = self.reply.filter(|_| !self.clock_was_set)?;
        reply.first_ns.checked_sub(self.request.first_ns)
    }

    /// What became of it.
    #[inline]
    pub fn outcome(&self) -> TransferOutcome {
        TransferOutcome::of(self.summary.status, self.reply.is_some())
    }

    /// What it says of names: the file, the directory it is in, and its name there. Roots have no directory,
    /// and a path as their name.
    #[inline]
    pub(crate) fn each_name(&self, tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8])) {
        self.detail.each_name(self, tell);
    }

    /// RPC's part, if it is RPC's.
    #[inline]
    pub fn rpc(&self) -> Option<&rpc::Exchange<'_>> {
        match self.detail {
            Detail::Rpc(exchange) => Some(exchange),
            _ => None,
        }
    }
}

/// Sums of consecutive blocks of a file.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumRun<'a> {
    /// The operation that moved them.
    pub record_id: u64,
    /// The file.
    pub file: FileKey,
    /// Whether the data went to the server.
    pub write: bool,
    /// File offset of the first block, a multiple of [`crate::checksum::BLOCK_BYTES`].
    pub offset: u64,
    /// One sum for each block.
    pub sums: &'a [u64],
}

/// Takes what the pipeline finds.
pub trait Sink {
    /// An operation is complete, or was given up.
    fn on_operation(&mut self, operation: &Operation<'_>);
    /// Data went by.
    fn on_checksums(&mut self, run: &ChecksumRun<'_>);
    /// A packet was seen.
    #[inline]
    fn on_packet(&mut self, _time_ns: u64, _wire_len: u32) {}
    /// It carries something that is not understood.
    fn on_not_understood(&mut self, _next: NextHeader, _wire_len: u32) {}
    /// Everything that was at hand has been worked off: what was put by is due now.
    #[inline]
    fn on_batch_end(&mut self, _now_ns: u64, _ledger: &Ledger) {}
    /// Whether the sink wants [`Sink::on_packet_parsed`]: it costs something.
    const PACKETS: bool = false;
    /// What a packet was.
    #[inline]
    fn on_packet_parsed(&mut self, _packet: &Packet) {}
}

/// A sink that may not be there.
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
    const PACKETS: bool = A::PACKETS || B::PACKETS;
    #[inline]
    fn on_packet_parsed(&mut self, packet: &Packet) {
        self.0.on_packet_parsed(packet);
        self.1.on_packet_parsed(packet);
    }
}
