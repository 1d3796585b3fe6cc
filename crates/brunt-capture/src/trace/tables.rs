//! The tables of a trace: what `docs/trace.md` shows and the files hold. Each is described beside the code
//! that fills it; here they are together for readers ([`super::replay`], tests, the documentation).
//!
//! The one rule: nothing is stored twice, but for `latency_histograms` and `sketches`, which still add up where
//! `operations` has become too many rows to read. `record_id` links what belongs to an operation, `flow` says who
//! spoke to whom, `file` stands for a server's handle.

use brunt_lake::Table;

pub use super::checksums::CHECKSUMS;
pub use super::files::{HANDLES, NAMES};
pub use super::flows::FLOWS;
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

/// All tables of a trace, and the one that only a lake has.
pub fn of_lake() -> Vec<&'static Table> {
    let mut tables = all();
    tables.push(&TAPS);
    tables
}

/// All of them, as they are registered, and the note.
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
    fn every_description_is_good() {
        let tables = of_lake();
        assert!(tables.len() > 20);
        for table in tables {
            assert_eq!(table.mistakes(), Vec::<String>::new());
        }
    }
}
