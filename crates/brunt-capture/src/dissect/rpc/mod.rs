//! ONC RPC (RFC 5531) with its storage programs: NFSv3, NFSv4 with callbacks, and MOUNT, over TCP with record
//! marks and over UDP.
//!
//! ```text
//!   bytes ─► records (framing, search after a loss) ─► matcher (calls and replies) ─► programs ─► operations
//! ```
//!
//! A program is one file in `programs` and one line in the table there. The one rule: a reply belongs to a call only
//! on the same connection, in the other direction, with the same xid.

pub mod compound;
mod data;
mod exchange;
mod id;
mod kinds;
mod matcher;
mod message;
mod names;
mod programs;
mod records;
pub mod tables;

use brunt_wire::rpc;

pub use exchange::{Body, Exchange};
pub(crate) use id::OTHER as RPC;
pub(crate) use kinds::{COMMIT, GETATTR, OTHER, WRITE};

use super::{
    Claim, Counter, Datagram, Dissector, Flow, FramingState, Gap, OperationInfo, Out, ProtocolInfo,
};
use crate::limits::Limits;
use crate::operation::{MessagePlace, Sink};
use id::RpcId;
use matcher::Matcher;
use message::MessageEnd;
use records::{RecordContext, Records};

/// One connection: the framing state of each direction.
#[derive(Debug, Default)]
pub struct RpcConnection {
    records: [Records; 2],
}

impl RpcConnection {
    #[cold]
    fn is_framed_back(&self, direction: u8) -> bool {
        self.records[usize::from((direction & 1) ^ 1)].framing_state() == FramingState::Framed
    }
}

/// The RPC dissector.
#[derive(Debug)]
pub struct Rpc {
    matcher: Matcher,
}

impl Dissector for Rpc {
    type Connection = RpcConnection;
    type Id = RpcId;
    type Tables = tables::RpcTables;
    const NAME: &'static str = "rpc";
    const HELP: &'static str = "ONC RPC on any port: NFSv3, NFSv4 and MOUNT";
    const KINDS: &'static [OperationInfo] = &kinds::KINDS;
    const PROTOCOLS: &'static [ProtocolInfo] = id::PROTOCOLS;
    const COUNTERS: &'static [Counter] = &[
        Counter {
            name: "compounds_unparsed",
            label: "NFSv4 compounds with unknown operations",
            doc: "NFSv4 compounds with an unknown operation; later operations were not parsed.",
        },
        Counter {
            name: "attributes_unparsed",
            label: "NFSv4 attribute lists with unknown attributes",
            doc: "NFSv4 attribute lists with an unknown attribute; later attributes were not \
                parsed.",
        },
        Counter {
            name: "replies_alone",
            label: "apparent replies on connections without calls",
            doc: "Segments that look like an RPC reply, on connections without captured calls; \
                counted until the connection is dropped from the table.",
        },
    ];

    fn new(limits: &Limits) -> Rpc {
        Rpc {
            matcher: Matcher::new(limits.calls_waiting, limits.call_timeout_ns),
        }
    }

    /// Recognises RPC on any port; a stream that begins in the middle of a record is searched.
    fn claim(&self, flow: &Flow, bytes: &[u8]) -> Claim {
        match records::credible(bytes, &self.matcher, flow) {
            Some(true) => Claim::Bytes,
            _ => Claim::Perhaps,
        }
    }

    #[inline(always)]
    fn on_bytes<S: Sink>(
        &mut self,
        connection: &mut RpcConnection,
        flow: &Flow,
        bytes: &[u8],
        time_ns: u64,
        out: &mut Out<'_, S>,
    ) {
        let records = &mut connection.records[usize::from(flow.direction & 1)];
        records.on_data(
            bytes,
            time_ns,
            &mut RecordContext {
                matcher: &mut self.matcher,
                flow,
                out,
            },
        );
    }

    fn on_gap<S: Sink>(
        &mut self,
        connection: &mut RpcConnection,
        flow: &Flow,
        gap: Gap,
        out: &mut Out<'_, S>,
    ) {
        let records = &mut connection.records[usize::from(flow.direction & 1)];
        records.on_gap(
            gap,
            &mut RecordContext {
                matcher: &mut self.matcher,
                flow,
                out,
            },
        );
    }

    #[inline]
    fn framing_state(connection: &RpcConnection, direction: u8) -> FramingState {
        match connection.records[usize::from(direction & 1)].framing_state() {
            // The other direction may still show that this is RPC.
            FramingState::GaveUp if connection.is_framed_back(direction) => FramingState::Searching,
            framing_state => framing_state,
        }
    }

    fn on_end<S: Sink>(
        &mut self,
        connection: &mut RpcConnection,
        flow: &Flow,
        out: &mut Out<'_, S>,
    ) {
        let records = &mut connection.records[usize::from(flow.direction & 1)];
        records.finish(&mut RecordContext {
            matcher: &mut self.matcher,
            flow,
            out,
        });
    }

    fn claims_datagram(&self, _: &Flow, bytes: &[u8]) -> bool {
        match rpc::parse(bytes) {
            Ok(rpc::RpcMessage::Call(call)) => call.is_credible(bytes.len()),
            Ok(rpc::RpcMessage::Reply(_)) => true,
            Err(_) => false,
        }
    }

    fn on_datagram<S: Sink>(
        &mut self,
        flow: &Flow,
        datagram: &Datagram<'_>,
        out: &mut Out<'_, S>,
    ) -> bool {
        let message = MessageEnd {
            bytes: datagram.bytes,
            elided_at: None,
            damaged: datagram.bytes.len() < datagram.wire_len as usize,
            data_missing: 0,
            first_ns: datagram.time_ns,
            last_ns: Some(datagram.time_ns),
            place: MessagePlace {
                at: 0,
                len: datagram.wire_len,
            },
            token: None,
        };
        self.matcher.end(flow, &message, out)
    }

    fn expire<S: Sink>(&mut self, now_ns: u64, out: &mut Out<'_, S>) {
        self.matcher.expire(now_ns, out);
    }

    fn finish<S: Sink>(&mut self, out: &mut Out<'_, S>) {
        self.matcher.finish(out);
    }
}
