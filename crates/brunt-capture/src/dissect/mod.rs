//! What a protocol has to do to become operations: the seam between TCP streams (or datagrams) and
//! everything that asks what was done, how long it took and what it moved.
//!
//! ```text
//!   packets ─► connections ─► reassembly ─► dissector ─► operations ─► analyses, trace
//! ```
//!
//! A protocol is one file or folder beside this one with a type that implements [`Dissector`], and one line
//! in the table (`table.rs`). The type itself is what a pipeline keeps for the protocol: requests
//! that wait for their answers, buffers that are used again. `Dissector::Connection` is what is kept for
//! each connection, both directions together: how far each is framed, what was negotiated when it opened.
//!
//! What spans connections (an iSCSI session has several, and they may belong to different pipelines) is no
//! dissector's: it says of each operation what it belongs to, and analyses and tables join on that.
//!
//! The one rule: a dissector never makes anything up. After a gap it finds its way back by what the bytes
//! show, and counts what it passed over until then.
//!
//! The table makes an enum of the protocols, so that a chunk of a stream costs one predictable branch and
//! everything behind it is called directly.

mod counters;
pub mod iscsi;
#[cfg(test)]
#[path = "tests/lines.rs"]
mod lines;
pub mod rpc;
mod table;

use std::fmt::Debug;

use brunt_result::OpKind;
use brunt_wire::net::Endpoint;

use crate::clock::CaptureClock;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::operation::{FileKey, Operation, Peers, Sink, Transport};
use crate::trace::common::Common;
use crate::trace::files::Files;
use crate::trace::rows::Registry;

pub(crate) use table::ProtocolTables;
pub use table::{
    COUNTER_COUNT, Conversation, DISSECTORS, Detail, Dissectors, KIND_COUNT, PROTOCOL_COUNT,
};
pub(crate) use table::{OWN_COUNTERS, Registered, kind_at, protocol_at};

/// One direction of a connection, or of datagrams between two endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Who sends in this direction, as the client, and who receives, as the server: whoever asks is known
    /// only when a message is.
    pub forward: Peers,
    /// The connection's number: never that of another one of its pipeline at about the same time.
    pub connection: u32,
    /// Which of its two directions: 0 or 1.
    pub direction: u8,
}

impl Flow {
    /// From `source` to `destination`.
    #[inline(always)]
    pub fn new(
        source: Endpoint,
        destination: Endpoint,
        transport: Transport,
        connection: u32,
        direction: u8,
    ) -> Flow {
        Flow {
            forward: Peers {
                client: source,
                server: destination,
                transport,
            },
            connection,
            direction,
        }
    }

    /// Whether either side has this port.
    pub fn has_port(&self, port: u16) -> bool {
        self.forward.client.port == port || self.forward.server.port == port
    }
}

/// How much speaks for a protocol. Of several that claim a flow the strongest gets it, and of equal ones
/// the first in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// It is something else.
    No,
    /// Nothing speaks against it: it may begin in the middle of a message.
    Perhaps,
    /// One side has the protocol's port.
    Port,
    /// The bytes are this protocol's.
    Bytes,
}

/// Bytes of a stream that were not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// So many.
    Hole(u32),
    /// Nobody knows how many; what follows has nothing to do with what came before.
    Jump,
}

/// How a dissector stands to one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It knows where messages begin and end.
    Framed,
    /// It looks for the next message, or has seen too little.
    Searching,
    /// It has looked for long and found nothing: another protocol may have the connection.
    GaveUp,
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// How long it was on the wire, in bytes.
    pub wire_len: u32,
    /// When it was captured: nanoseconds since 1970.
    pub time_ns: u64,
}

/// Gives out the numbers of records: pipelines that work side by side give out different ones.
#[derive(Clone, Copy, Debug)]
pub struct RecordIds {
    next: u64,
    step: u64,
}

impl RecordIds {
    /// The first, and the distance from one to the next.
    pub fn new((first, step): (u64, u64)) -> RecordIds {
        RecordIds { next: first, step }
    }

    /// The number that the next one will have.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The next one.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let id = self.next;
        self.next += self.step;
        id
    }
}

/// Where a dissector's findings go, and what it shares with the other stages of its pipeline.
#[derive(Debug)]
pub struct Out<'a, S> {
    /// Takes operations and sums.
    pub sink: &'a mut S,
    /// Numbers for operations.
    pub ids: &'a mut RecordIds,
    /// Knows where the capture's clock was set.
    pub clock: &'a mut CaptureClock,
    /// Counts what is seen and lost.
    pub ledger: &'a mut Ledger,
    /// Grants memory for what is incomplete.
    pub memory: &'a mut Memory,
}

impl<S> Out<'_, S> {
    /// A request is over, answered or given up; whether the capture's clock was set meanwhile.
    #[inline]
    pub fn on_complete(&mut self, record_id: u64, request_ns: u64, reply_ns: Option<u64>) -> bool {
        let was_set = self.clock.was_set_since(record_id);
        match reply_ns {
            None => self.clock.on_unanswered(record_id, request_ns, self.ledger),
            Some(_) if was_set => {}
            Some(reply_ns) => self.clock.on_latency(reply_ns.saturating_sub(request_ns)),
        }
        was_set
    }
}

/// A protocol's own part of an operation.
pub trait OwnPart {
    /// Tells the names that go with files.
    fn each_name(
        &self,
        _operation: &Operation<'_>,
        _tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
    ) {
    }
}

/// A protocol's own tables in a trace.
pub trait OwnTables<D: Dissector>: Sized {
    /// With their places.
    fn register(registry: &mut Registry) -> Self;

    /// An operation, after its row in the table of all protocols.
    fn record(
        &mut self,
        operation: &Operation<'_>,
        own: &D::Detail<'_>,
        files: &mut Files,
        common: &mut Common,
    );

    /// Writes rows that were put by; called before rows are sent.
    fn settle(&mut self, _: &mut Common) {}

    /// What was told may have been deleted: whatever later rows refer to has to be told again.
    fn forget(&mut self) {}
}

/// A family of messages within a dissector, such as NFSv3 within RPC.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolInfo {
    /// Its name, as users know it.
    pub name: &'static str,
    /// What its statuses are called.
    pub status_name: fn(u32) -> Option<&'static str>,
}

/// A kind of operation that a protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInfo {
    /// Its name, as the protocol's standard has it.
    pub name: &'static str,
    /// What loads and results call it, if they have such an operation.
    pub op: Option<OpKind>,
}

impl OperationInfo {
    /// One that results call so.
    pub const fn of(name: &'static str, op: OpKind) -> OperationInfo {
        OperationInfo { name, op: Some(op) }
    }
}

/// Something that a protocol loses, or does not understand, and counts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name in ledgers and tables: different from all others.
    pub name: &'static str,
    /// What it counts, after a number: "lines cut in two".
    pub told: &'static str,
    /// The same in a sentence, for the page of tables.
    pub doc: &'static str,
}

/// Turns a protocol's bytes into operations.
pub trait Dissector: Sized + Debug {
    /// What is kept of a connection; both directions have one together.
    type Connection: Default + Debug;
    /// The protocol's own part of an operation.
    type Detail<'a>: OwnPart + Copy + Debug;
    /// Its own tables in a trace.
    type Tables: OwnTables<Self>;
    /// What the protocol is called.
    const NAME: &'static str;
    /// What it is, in a line.
    const HELP: &'static str;
    /// The kinds of its operations: [`OperationKind`](crate::operation::OperationKind) numbers them.
    const KINDS: &'static [OperationInfo];
    /// The families of messages in it: [`Protocol`](crate::operation::Protocol) numbers them.
    const PROTOCOLS: &'static [ProtocolInfo];
    /// What it counts beyond the counters of all protocols: [`Ledger::own`] has them, and so have reports
    /// and traces.
    const COUNTERS: &'static [Counter] = &[];

    /// With what a pipeline may use.
    fn new(limits: &Limits) -> Self;

    /// Whether a connection is this protocol's, by its ports and by its first bytes in one direction (the
    /// first that were seen: it may have begun before the capture).
    fn claim(&self, flow: &Flow, bytes: &[u8]) -> Claim;

    /// The next bytes of a direction, captured at `time_ns`. They follow what came before, or a gap.
    fn on_bytes<S: Sink>(
        &mut self,
        connection: &mut Self::Connection,
        flow: &Flow,
        bytes: &[u8],
        time_ns: u64,
        out: &mut Out<'_, S>,
    );

    /// Bytes of a direction were not seen: the next ones come after the gap.
    fn on_gap<S: Sink>(
        &mut self,
        connection: &mut Self::Connection,
        flow: &Flow,
        gap: Gap,
        out: &mut Out<'_, S>,
    );

    /// How it stands to a direction.
    fn standing(connection: &Self::Connection, direction: u8) -> Standing;

    /// A direction is over: the connection ended, was pushed out by another, or the capture ends.
    fn on_end<S: Sink>(
        &mut self,
        connection: &mut Self::Connection,
        flow: &Flow,
        out: &mut Out<'_, S>,
    );

    /// Whether a datagram is this protocol's. Only then its endpoints get a place in the table.
    fn claims_datagram(&self, _flow: &Flow, _bytes: &[u8]) -> bool {
        false
    }

    /// A datagram that was claimed. `false`: it was no message after all.
    fn on_datagram<S: Sink>(
        &mut self,
        _flow: &Flow,
        _datagram: &Datagram<'_>,
        _out: &mut Out<'_, S>,
    ) -> bool {
        false
    }

    /// Time goes by: gives up what has waited for too long.
    fn expire<S: Sink>(&mut self, _now_ns: u64, _out: &mut Out<'_, S>) {}

    /// The capture is over: hands on what still waits.
    fn finish<S: Sink>(&mut self, _out: &mut Out<'_, S>) {}
}
