//! Disk space per kind of content in a trace, divided as in the Chronicle paper (Figure 9): network headers, data
//! checksums, RPC, and the protocol above RPC. Used by benchmarks; nothing is counted during a capture.
//!
//! The rule: every table has one kind; a new table counts as protocol content unless it is named here.

use std::path::Path;

use brunt_lake::{LakeError, Table, TableSizes, table_sizes};

use super::tables;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceExtent {
    /// Packets: time, endpoints, length.
    Network,
    /// Checksums of the data read and written.
    Checksums,
    /// Requests with their times, and callers.
    Rpc,
    /// Content of the protocol above RPC: files, names, attributes, ranges.
    Protocol,
    /// Statistics about the capture itself.
    Ledger,
}

impl TraceExtent {
    /// All kinds, in the paper's order.
    pub const ALL: [TraceExtent; 5] = [
        TraceExtent::Network,
        TraceExtent::Checksums,
        TraceExtent::Rpc,
        TraceExtent::Protocol,
        TraceExtent::Ledger,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            TraceExtent::Network => "network headers",
            TraceExtent::Checksums => "checksums",
            TraceExtent::Rpc => "RPC and times",
            TraceExtent::Protocol => "the protocol above",
            TraceExtent::Ledger => "the ledger",
        }
    }

    /// The kind of a table.
    fn of(table: &Table) -> TraceExtent {
        let any = |tables: &[&Table]| tables.iter().any(|one| one.name == table.name);
        if any(&[&tables::PACKETS, &tables::FLOWS]) {
            TraceExtent::Network
        } else if any(&[&tables::CHECKSUMS]) {
            TraceExtent::Checksums
        } else if any(&[
            &tables::OPERATIONS,
            &tables::RPC_CALLS,
            &tables::CALLERS,
            &tables::CALLER_GROUPS,
        ]) {
            TraceExtent::Rpc
        } else if any(&[&tables::STATISTICS, &tables::NOTES]) {
            TraceExtent::Ledger
        } else {
            TraceExtent::Protocol
        }
    }
}

/// The disk space of one kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentSizes {
    /// The kind.
    pub extent: TraceExtent,
    /// The total of all its tables.
    pub sizes: TableSizes,
}

/// The size of each kind of content in a trace, including kinds that are empty.
///
/// # Errors
/// A part cannot be read.
pub fn sizes(trace: &Path) -> Result<Vec<ExtentSizes>, LakeError> {
    let mut all: Vec<_> = TraceExtent::ALL
        .into_iter()
        .map(|extent| ExtentSizes {
            extent,
            sizes: TableSizes::default(),
        })
        .collect();
    for table in tables::all() {
        let found = table_sizes(trace, table)?;
        let extent = TraceExtent::of(table);
        all.iter_mut()
            .filter(|one| one.extent == extent)
            .for_each(|one| one.sizes += found);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind has tables, and the largest tables are of the kinds that a reader of the paper expects.
    #[test]
    fn tables_have_their_kind() {
        let all = tables::all();
        for extent in TraceExtent::ALL {
            assert!(
                all.iter().any(|table| TraceExtent::of(table) == extent),
                "{extent:?}"
            );
        }
        let check = |table: &Table, expected| {
            assert_eq!(TraceExtent::of(table), expected, "{}", table.name)
        };
        check(&tables::PACKETS, TraceExtent::Network);
        check(&tables::RPC_CALLS, TraceExtent::Rpc);
        check(&tables::ATTRIBUTES, TraceExtent::Protocol);
        check(&tables::STATISTICS, TraceExtent::Ledger);
    }
}
