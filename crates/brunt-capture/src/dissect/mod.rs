//! The interface of protocols: a dissector turns TCP streams (or datagrams) into operations, so that analyses and the
//! trace can show what was requested, how long it took and how much data it moved.
//!
//! ```text
//!   packets ─► connections ─► reassembly ─► dissector ─► operations ─► analyses, trace
//! ```
//!
//! A protocol is a file or folder in this module with a type that implements [`Dissector`], one line in the table
//! (`table.rs`), and one in [`Detail`]. The type itself is a pipeline's state for the protocol: requests waiting for
//! their replies, and reusable buffers. `Dissector::Connection` is the state of one connection in both directions:
//! the framing, and the parameters negotiated when it opened.
//!
//! A dissector does not track anything across connections (an iSCSI session has several connections, which may belong
//! to different pipelines). It tags each operation with the object it belongs to, and analyses and tables join on
//! that tag.
//!
//! The one rule: a dissector never makes anything up. After a gap, it resynchronises from the bytes alone, and counts
//! the bytes skipped.
//!
//! The table generates an enum of the protocols, so that a chunk of a stream costs one predictable branch, and
//! everything after that is a direct call.

mod counters;
mod detail;
pub mod iscsi;
#[cfg(test)]
#[path = "tests/lines.rs"]
mod lines;
mod numbers;
mod registered;
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

pub use detail::Detail;
pub use table::{COUNTER_COUNT, Conversation, DISSECTORS, Dissectors, KIND_COUNT, PROTOCOL_COUNT};
pub(crate) use table::{OWN_COUNTERS, ProtocolTables};

/// One direction of a connection, or of datagrams between two endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The endpoints, with the sender in this direction as the client and the receiver as the server. Which side
    /// sends the requests is known only once a message has been recognised.
    pub forward: Peers,
    /// The connection's number, unique within a pipeline among connections that are close in time.
    pub connection: u32,
    /// The direction: 0 or 1.
    pub direction: u8,
}

impl Flow {
    /// The flow from `source` to `destination`.
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

/// The strength of the evidence for a protocol. If several protocols claim a flow, the strongest claim wins; among
/// equal claims, the first in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The flow belongs to a different protocol.
    No,
    /// No evidence against this protocol: the bytes may begin in the middle of a message.
    Perhaps,
    /// One side has the protocol's port.
    Port,
    /// The bytes match this protocol.
    Bytes,
}

/// Bytes of a stream that were not captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// A known number of bytes.
    Hole(u32),
    /// An unknown number of bytes; the data after the gap is unrelated to the data before it.
    Jump,
}

/// The state of a dissector for one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingState {
    /// The dissector knows the message boundaries.
    Framed,
    /// The dissector is searching for the next message, or has seen too little.
    Searching,
    /// A long search found nothing: another protocol may claim the connection.
    GaveUp,
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The bytes captured.
    pub bytes: &'a [u8],
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// When it was captured: nanoseconds since 1970.
    pub time_ns: u64,
}

/// Assigns record numbers; parallel pipelines assign distinct ones.
#[derive(Clone, Copy, Debug)]
pub struct RecordIds {
    next: u64,
    step: u64,
}

impl RecordIds {
    /// The first record number, and the distance between numbers.
    pub fn new((first, step): (u64, u64)) -> RecordIds {
        RecordIds { next: first, step }
    }

    /// The number that will be assigned next.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Assigns the next number.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let id = self.next;
        self.next += self.step;
        id
    }
}

/// Where a dissector's results go, and the state it shares with the other stages of its pipeline.
#[derive(Debug)]
pub struct Out<'a, S> {
    /// Receives operations and checksums.
    pub sink: &'a mut S,
    /// Assigns numbers to operations.
    pub ids: &'a mut RecordIds,
    /// Knows where the capture's clock was set.
    pub clock: &'a mut CaptureClock,
    /// Counts what is seen and lost.
    pub ledger: &'a mut Ledger,
    /// Grants memory for incomplete data.
    pub memory: &'a mut Memory,
}

impl<S> Out<'_, S> {
    /// Ends a request that was answered or abandoned; returns whether the capture's clock was set while it was
    /// outstanding.
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

/// The protocol-specific part of an operation.
pub trait OwnPart {
    /// Passes on the names that this operation reveals, with their files.
    fn each_name(
        &self,
        _operation: &Operation<'_>,
        _tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
    ) {
    }
}

/// Identifies a dissector without its state, so that code shared by its parts doesn't depend on the whole dissector.
pub trait DissectorId {
    /// The protocol-specific part of an operation.
    type Detail<'a>: OwnPart + Copy + Debug;
}

/// The protocol-specific tables in a trace.
pub trait OwnTables<D: DissectorId>: Sized {
    /// Creates and registers the tables.
    fn register(registry: &mut Registry) -> Self;

    /// Records an operation; its row in `operations` has already been written.
    fn record(
        &mut self,
        operation: &Operation<'_>,
        own: &D::Detail<'_>,
        files: &mut Files,
        common: &mut Common,
    );

    /// Writes deferred rows; called before rows are sent.
    fn settle(&mut self, _: &mut Common) {}

    /// Called when the rows written so far may be deleted: everything that later rows refer to has to be written
    /// again.
    fn forget(&mut self) {}
}

/// A family of messages within a dissector, such as NFSv3 within RPC.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolInfo {
    /// The name that users know.
    pub name: &'static str,
    /// Looks up the name of a status.
    pub status_name: fn(u32) -> Option<&'static str>,
}

/// A kind of operation of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInfo {
    /// The kind's name in the protocol's standard.
    pub name: &'static str,
    /// The corresponding operation in workloads and results, if there is one.
    pub op: Option<OpKind>,
}

impl OperationInfo {
    /// A kind that corresponds to an operation in results.
    pub const fn of(name: &'static str, op: OpKind) -> OperationInfo {
        OperationInfo { name, op: Some(op) }
    }
}

/// A protocol-specific counter of something lost or not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The counter's name in ledgers and tables; unique.
    pub name: &'static str,
    /// What the counter counts, as a phrase after a number: "lines cut in two".
    pub label: &'static str,
    /// What the counter counts, as a sentence for the documentation of the tables.
    pub doc: &'static str,
}

/// Turns a protocol's bytes into operations.
pub trait Dissector: Sized + Debug {
    /// The state of a connection, shared by both directions.
    type Connection: Default + Debug;
    /// Its id.
    type Id: DissectorId;
    /// The tables in a trace that are specific to this protocol.
    type Tables: OwnTables<Self::Id>;
    /// The protocol's name.
    const NAME: &'static str;
    /// The line of help: what the protocol is.
    const HELP: &'static str;
    /// The kinds of operations in this protocol; [`OperationKind`](crate::operation::OperationKind) numbers them.
    const KINDS: &'static [OperationInfo];
    /// The families of messages in this protocol; [`Protocol`](crate::operation::Protocol) numbers them.
    const PROTOCOLS: &'static [ProtocolInfo];
    /// Counters in addition to those that all protocols share. They are stored in [`Ledger::own`] and appear in
    /// reports and traces.
    const COUNTERS: &'static [Counter] = &[];

    /// Creates the dissector with a pipeline's limits.
    fn new(limits: &Limits) -> Self;

    /// Whether a connection belongs to this protocol, judging by its ports and by the first captured bytes in one
    /// direction (the connection may have begun before the capture).
    fn claim(&self, flow: &Flow, bytes: &[u8]) -> Claim;

    /// Processes the next bytes of a direction, captured at `time_ns`. The bytes directly follow the previous ones,
    /// or a gap reported by `on_gap`.
    fn on_bytes<S: Sink>(
        &mut self,
        connection: &mut Self::Connection,
        flow: &Flow,
        bytes: &[u8],
        time_ns: u64,
        out: &mut Out<'_, S>,
    );

    /// Handles missing bytes in one direction: the next bytes come after the gap.
    fn on_gap<S: Sink>(
        &mut self,
        connection: &mut Self::Connection,
        flow: &Flow,
        gap: Gap,
        out: &mut Out<'_, S>,
    );

    /// The framing state of one direction.
    fn framing_state(connection: &Self::Connection, direction: u8) -> FramingState;

    /// Ends a direction: the connection ended or was evicted, or the capture ended.
    fn on_end<S: Sink>(
        &mut self,
        connection: &mut Self::Connection,
        flow: &Flow,
        out: &mut Out<'_, S>,
    );

    /// Whether a datagram belongs to this protocol. Only claimed datagrams get an entry in the connection table.
    fn claims_datagram(&self, _flow: &Flow, _bytes: &[u8]) -> bool {
        false
    }

    /// Processes a claimed datagram. Returns `false` if it was not a message after all.
    fn on_datagram<S: Sink>(
        &mut self,
        _flow: &Flow,
        _datagram: &Datagram<'_>,
        _out: &mut Out<'_, S>,
    ) -> bool {
        false
    }

    /// Advances the time: abandons requests that have waited too long.
    fn expire<S: Sink>(&mut self, _now_ns: u64, _out: &mut Out<'_, S>) {}

    /// Ends the capture: passes on the requests still waiting.
    fn finish<S: Sink>(&mut self, _out: &mut Out<'_, S>) {}
}
