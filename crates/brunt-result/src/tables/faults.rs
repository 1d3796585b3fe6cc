//! Table `faults`.

use brunt_lake::{Batch, Coding, Column, Table};

use super::origin::RunOrigin;
use crate::event::FaultRecord;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "faults",
    doc: "One row for each fault injected into a run, with the proof that it was in effect and that it was gone afterwards.",
    columns: &[
        Column::int("run", "The run."),
        Column::int("fault", "Index in the experiment's list of faults, from 0."),
        Column::text("name", "Name of the fault."),
        Column::text("kind", "Kind of the fault, such as `storage` or `link`."),
        Column::text(
            "place",
            "Name of the target, link or host that the fault affects.",
        ),
        Column::text("what", "Effect of the fault, in words."),
        Column::int(
            "start_ns",
            "When the fault was injected, since the workers of the run started.",
        ),
        Column::int("shown_ns", "When the fault was proven to be in effect."),
        Column::text("shown_by", "Evidence that the fault was in effect.").coded(Coding::Delta),
        Column::int(
            "end_ns",
            "When the fault was removed; null if the run ended before that.",
        )
        .nullable(),
        Column::int(
            "gone_ns",
            "When the fault was proven to be gone; null if it was not.",
        )
        .nullable(),
        Column::text(
            "gone_by",
            "Evidence that the fault was gone; empty if that was not proven.",
        )
        .coded(Coding::Delta),
        Column::int(
            "gaps",
            "Number of times that the fault was lost and injected again because its target was killed.",
        ),
        Column::int(
            "gap_ns",
            "Total time for which the fault was absent in between.",
        ),
    ],
};

/// Adds one row for a fault in its current state.
pub fn append(rows: &mut Batch, moment: &RunOrigin, fault: &FaultRecord) {
    rows.row()
        .count(moment.run.into())
        .count(fault.index.into())
        .text(&fault.name)
        .text(&fault.kind)
        .text(&fault.place)
        .text(&fault.what)
        .nanos_since(fault.start, moment.origin)
        .nanos_since(fault.shown, moment.origin)
        .text(&fault.shown_by)
        .nanos_since_or_null(fault.end, moment.origin)
        .nanos_since_or_null(fault.gone, moment.origin)
        .text(&fault.gone_by)
        .count(fault.gaps.len() as u64)
        .count(
            fault
                .gaps
                .iter()
                .map(|gap| gap.until.since(gap.from).as_nanos() as u64)
                .sum(),
        )
        .end();
}
