//! Flows between endpoints: the table `flows`, and the numbers that refer to its rows. The one rule: a flow's row is
//! written before the first row that refers to it.

use brunt_lake::{Column, Table};
use brunt_wire::net::Endpoint;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::common::Common;
use super::rows::{Handle, Registry, Tabled};

/// Flows: source and destination.
pub const FLOWS: Table = Table {
    name: "flows",
    doc: "One row for each pair of endpoints and direction, written when it is first seen. In long \
     captures, a flow may reappear under another number.",
    columns: &[
        Column::int("flow", "Number of the flow."),
        Column::int(
            "protocol",
            "IP protocol number: 6 TCP, 17 UDP, others as assigned by IANA.",
        ),
        Column::text("source", "The sender's address; for requests, the client."),
        Column::int(
            "source_port",
            "The sender's port; null if the protocol has no ports.",
        )
        .nullable(),
        Column::text(
            "destination",
            "The receiver's address; for requests, the server.",
        ),
        Column::int(
            "destination_port",
            "The receiver's port; null if the protocol has no ports.",
        )
        .nullable(),
    ],
};

/// Maximum flows remembered as written; when it is reached, all are forgotten and written again.
pub(super) const FLOWS_MAX: usize = 64 << 10;
/// Number of recent flows that are found without the hash map.
const LAST_FLOWS: usize = 64;

struct FlowsTable;

impl Tabled for FlowsTable {
    const TABLE: &'static Table = &FLOWS;
    const REFERRED_TO: bool = true;
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FlowEnds {
    source: Endpoint,
    destination: Endpoint,
    protocol: u8,
}

/// The flow table of a pipeline.
pub struct Flows {
    table: Handle<FlowsTable>,
    known: HashMap<FlowEnds, i64, FixedState>,
    /// Recently seen flows, indexed by a few bits of their endpoints.
    last: Box<[Option<(FlowEnds, i64)>; LAST_FLOWS]>,
    next: u64,
}

impl Flows {
    pub fn register(registry: &mut Registry) -> Flows {
        Flows {
            table: registry.add(),
            known: HashMap::with_hasher(FixedState::default()),
            last: Box::new([None; LAST_FLOWS]),
            next: 0,
        }
    }

    /// Called when the rows written so far may be deleted: forgets all flows, so that they are written again.
    pub fn forget(&mut self) {
        self.known.clear();
        *self.last = [None; LAST_FLOWS];
    }

    /// The number of a flow; writes its row if it is new.
    #[inline]
    pub fn number(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        protocol: u8,
        common: &mut Common,
    ) -> i64 {
        let ends = FlowEnds {
            source,
            destination,
            protocol,
        };
        let low = source.address.0 as usize ^ (destination.address.0 as usize) << 3;
        let place =
            (low ^ usize::from(source.port) ^ usize::from(destination.port) << 1) % LAST_FLOWS;
        if let Some((last, flow)) = self.last[place]
            && last == ends
        {
            return flow;
        }
        let flow = match self.known.get(&ends) {
            Some(flow) => *flow,
            None => self.tell(ends, common),
        };
        self.last[place] = Some((ends, flow));
        flow
    }

    #[cold]
    fn tell(&mut self, ends: FlowEnds, common: &mut Common) -> i64 {
        if self.known.len() >= FLOWS_MAX {
            self.forget();
        }
        let flow = common.number(self.next);
        self.next += 1;
        self.known.insert(ends, flow);
        let source = common.hide.address(ends.source.address);
        let destination = common.hide.address(ends.destination.address);
        let has_ports = matches!(ends.protocol, 6 | 17 | 132);
        let port = |end: Endpoint| has_ports.then_some(i64::from(end.port));
        common
            .rows
            .row(self.table)
            .int(flow)
            .int(ends.protocol.into())
            .text(&source)
            .int_or_null(port(ends.source))
            .text(&destination)
            .int_or_null(port(ends.destination))
            .end();
        flow
    }
}
