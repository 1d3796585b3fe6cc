//! How much room each kind of a trace's content takes, as the Chronicle paper divides it (Figure 9): network headers,
//! checksums of data, RPC, the protocol above. For benches; a capture does not count while it goes on.
//!
//! The rule: every table is of one kind, and a new one of a protocol unless it is named here.

use std::path::Path;

use brunt_lake::{LakeError, Table, TableSizes, table_sizes};

use super::tables;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceExtent {
    /// Each packet: when, from whom to whom, how long.
    Network,
    /// Of the data that was read and written.
    Checksums,
    /// Requests and their times, callers.
    Rpc,
    /// What the protocol above says: files, names, attributes, ranges.
    Protocol,
    /// What the capture says of itself.
    Ledger,
}

impl TraceExtent {
    /// All of them, in the paper's order.
    pub const ALL: [TraceExtent; 5] = [
        TraceExtent::Network,
        TraceExtent::Checksums,
        TraceExtent::Rpc,
        TraceExtent::Protocol,
        TraceExtent::Ledger,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            TraceExtent::Network => "network headers",
            TraceExtent::Checksums => "checksums",
            TraceExtent::Rpc => "RPC and times",
            TraceExtent::Protocol => "the protocol above",
            TraceExtent::Ledger => "the ledger",
        }
    }

    /// That of a table.
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

/// What one kind takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentSizes {
    /// The kind.
    pub extent: TraceExtent,
    /// Of all its tables.
    pub sizes: TableSizes,
}

/// Each kind of a trace's content, also those of which it has none.
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

    /// Each kind has tables, and those that most rows go to are where a reader of the paper looks for them.
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
