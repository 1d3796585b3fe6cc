//! The tables of a trace, as documented in `docs/trace.md` and stored in files. Each table is defined next to the
//! code that fills it; this module collects them for readers ([`super::replay`], tests, the documentation).
//!
//! The one rule: nothing is stored twice, except in `latency_histograms` and `sketches`, which can still be summed or
//! merged when `operations` has too many rows to read. `record_id` links the rows of an operation, `flow` identifies
//! source and destination, `file` identifies a file handle of a server.

use brunt_lake::Table;

pub use super::checksums::CHECKSUMS;
pub use super::files::{HANDLES, NAMES};
pub use super::flows::FLOWS;
pub use super::health::HEALTH;
pub use super::latencies::LATENCY_HISTOGRAMS;
pub use super::operations::OPERATIONS;
pub use super::packets::PACKETS;
pub use super::sketches::SKETCHES;
pub use super::statistics::{NOTES, STATISTICS, TAPS, VERSION};
pub use crate::dissect::iscsi::tables::{SCSI_COMMANDS, SCSI_EXTENTS};
pub use crate::dissect::rpc::tables::{
    ACCESSES, ATTRIBUTES, CALLER_GROUPS, CALLERS, COMPOUND_ATTRIBUTES, COMPOUNDS, ENTRIES,
    FILESYSTEMS, LISTINGS, PRE_OP_ATTRIBUTES, RPC_CALLS, SETATTRS, TRANSFERS,
};

/// All tables of a trace, and `taps`, which only a lake has.
pub fn of_lake() -> Vec<&'static Table> {
    let mut tables = all();
    tables.push(&TAPS);
    tables
}

/// All tables in registration order, then the table `trace`.
pub fn all() -> Vec<&'static Table> {
    let registry = super::recorder::registry();
    let mut tables: Vec<_> = registry.entries().map(|entry| entry.table).collect();
    tables.push(&NOTES);
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_descriptions_have_no_mistakes() {
        let tables = of_lake();
        assert!(tables.len() > 20);
        for table in tables {
            assert_eq!(table.mistakes(), Vec::<String>::new());
        }
    }
}
