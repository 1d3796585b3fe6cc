//! Latency histograms that can be added up: the table `latency_histograms`, which is small where `operations` is
//! large. Counts are collected for one second of the capture and then written; a late reply to a request from an
//! earlier second adds another row for that second. The one rule: rows are only ever added up, so the totals of
//! several parsers, captures and traces are the sums of their rows.

use brunt_lake::{Coding, Column, Table};
use brunt_wire::net::IpAddress;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::common::Common;
use super::rows::{Handle, Registry, Tabled};
use crate::analysis::latency_bucket;
use crate::operation::{Operation, OperationKind, Protocol};

/// Number of requests per latency bucket.
pub const LATENCY_HISTOGRAMS: Table = Table {
    name: "latency_histograms",
    doc: "Number of answered requests for each latency bucket, second, server, client and operation. \
     A combination may have several rows, whose counts have to be added up, also across parsers, captures and \
     traces.",
    columns: &[
        Column::int(
            "second",
            "Second in which the requests were sent, since 1970.",
        )
        .coded(Coding::Delta),
        Column::text("server", "The server's address."),
        Column::text("client", "The client's address."),
        Column::text("protocol", "The protocol, as in `operations`."),
        Column::text("procedure", "The operation, as in `operations.operation`."),
        Column::int(
            "bucket",
            "Number of the latency bucket, of 216. In units of 1024 ns: buckets 0 to 7 are one unit \
             wide; beyond that, each power of two has 8 buckets of equal width.",
        ),
        Column::int("count", "Number of requests in the bucket."),
    ],
};

/// Maximum combinations counted in memory; when it is reached, all counts are written.
const COUNTS_MAX: usize = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;

struct LatencyHistogramsTable;

impl Tabled for LatencyHistogramsTable {
    const TABLE: &'static Table = &LATENCY_HISTOGRAMS;
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Counted {
    second: u64,
    server: IpAddress,
    client: IpAddress,
    protocol: Protocol,
    kind: OperationKind,
    bucket: usize,
}

/// Latency counts of a pipeline that have not been written yet.
pub struct LatencyHistograms {
    table: Handle<LatencyHistogramsTable>,
    counts: HashMap<Counted, u64, FixedState>,
    /// The second of the capture up to which counts were written.
    second: u64,
}

impl LatencyHistograms {
    pub fn register(registry: &mut Registry) -> LatencyHistograms {
        let counts = HashMap::with_hasher(FixedState::default());
        LatencyHistograms {
            table: registry.add(),
            counts,
            second: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, operation: &Operation<'_>, common: &mut Common) {
        let Some(latency_ns) = operation.latency_ns() else {
            return;
        };
        let counted = Counted {
            second: operation.request.first_ns / SECOND_NS,
            server: operation.peers.server.address,
            client: operation.peers.client.address,
            protocol: operation.summary.protocol,
            kind: operation.summary.kind,
            bucket: latency_bucket(latency_ns),
        };
        *self.counts.entry(counted).or_default() += 1;
        if self.counts.len() >= COUNTS_MAX {
            self.write(common);
        }
    }

    /// Advances the time: writes the counts once a second.
    #[inline]
    pub fn on_time(&mut self, now_ns: u64, common: &mut Common) {
        let second = now_ns / SECOND_NS;
        if second != self.second {
            self.second = second;
            self.write(common);
        }
    }

    /// Writes the pending counts.
    #[cold]
    pub fn write(&mut self, common: &mut Common) {
        let mut counts: Vec<_> = self.counts.drain().collect();
        counts.sort_unstable();
        let mut ends: Option<([IpAddress; 2], [String; 2])> = None;
        for (counted, count) in counts {
            let addresses = [counted.server, counted.client];
            if ends.as_ref().is_none_or(|(known, _)| *known != addresses) {
                ends = Some((
                    addresses,
                    addresses.map(|address| common.hide.address(address)),
                ));
            }
            let Some((_, [server, client])) = &ends else {
                continue;
            };
            common
                .rows
                .row(self.table)
                .int(counted.second as i64)
                .text(server)
                .text(client)
                .text(counted.protocol.name())
                .text(counted.kind.name())
                .int(counted.bucket as i64)
                .int(count as i64)
                .end();
        }
    }
}
