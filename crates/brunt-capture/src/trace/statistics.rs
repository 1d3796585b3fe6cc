//! Data about the capture itself: the table `statistics` with its counters, and the table `trace` with general facts.

use brunt_lake::{Batch, Column, Row, Table, columns};

use super::common::Common;
use super::rows::{Handle, Registry, Tabled};
use crate::ledger::Ledger;

/// Statistics about the capture itself.
pub const STATISTICS: Table = Table {
    name: "statistics",
    doc: "Counters of the capture itself, once per second of capture time, at its start and at its \
     end. Each row counts from the start of the capture; the last row is the loss ledger.",
    columns: &columns::<{ Ledger::COLUMNS.len() + 1 }>(&[&Ledger::COLUMNS, &[TAP]]),
};

/// The tap to which the counters belong.
const TAP: Column = Column::int(
    "tap",
    "In a lake, the capture's tap: `taps.tap`. Null in a trace as captured, which has only one tap.",
)
.nullable();

/// The captures that were added to a lake. Only lakes have this table.
pub const TAPS: Table = Table {
    name: "taps",
    doc: "One row for each capture that was added to a lake; a trace as captured does not have \
        this table.",
    columns: &[
        Column::int(
            "tap",
            "Number of the tap, which is that of its first pipeline, as in the upper bits of `record_id` and `flow`.",
        ),
        Column::text(
            "name",
            "The tap's name, chosen by the user; empty for the capture into the lake's own folder.",
        ),
        Column::int(
            "pipelines",
            "Number of pipelines, which are numbered consecutively.",
        ),
    ],
};

/// Version of the order of tables and columns, as recorded in [`NOTES`].
pub const VERSION: i64 = 4;

/// General facts about the trace.
pub const NOTES: Table = Table {
    name: "trace",
    doc: "One row with general facts about the trace.",
    columns: &[
        Column::int(
            "version",
            "Version of the tables: 4, a draft; programs that use other versions refuse to read the trace.",
        ),
        Column::text("program", "Program that wrote it."),
        Column::bool(
            "anonymous",
            "Whether names, addresses and ids are pseudonyms.",
        ),
    ],
};

struct StatisticsTable;

impl Tabled for StatisticsTable {
    const TABLE: &'static Table = &STATISTICS;
    const REFERRED_TO: bool = true;
}

/// The counters.
pub struct Statistics {
    table: Handle<StatisticsTable>,
}

impl Statistics {
    pub fn register(registry: &mut Registry) -> Statistics {
        Statistics {
            table: registry.add(),
        }
    }

    /// The lane that writes the table, and the table's index there.
    pub fn place(&self) -> (usize, usize) {
        self.table.place()
    }

    pub fn record(&mut self, now_ns: u64, ledger: &Ledger, common: &mut Common) {
        end_row(common.rows.row(self.table), now_ns, ledger);
    }
}

/// Writes the last row directly into its table.
pub fn record_last(rows: &mut Batch, now_ns: u64, ledger: &Ledger) {
    end_row(rows.row(), now_ns, ledger);
}

fn end_row(row: Row<'_>, now_ns: u64, ledger: &Ledger) {
    ledger
        .counters()
        .into_iter()
        .fold(row.int(now_ns as i64), Row::count)
        .null()
        .end();
}
