//! Table `faults`.

use brunt_lake::{Batch, Coding, Column, Table};

use super::RunOrigin;
use crate::event::FaultRecord;

/// See its doc.
pub const TABLE: Table = Table {
    name: "faults",
    doc: "One row for each fault that was put in place in a run, with the proof that it was there and that \
          it was gone afterwards.",
    columns: &[
        Column::int("run", "The run."),
        Column::int("fault", "Its place in the experiment's list of faults, from 0."),
        Column::text("name", "What it is called."),
        Column::text("kind", "Its kind, such as `storage` or `link`."),
        Column::text("place", "Where: a target's name, a link's, a host's."),
        Column::text("what", "What it does."),
        Column::int("start_ns", "When it was put in place, since the workers of the run started."),
        Column::int("shown_ns", "When it was seen to be there."),
        Column::text("shown_by", "What was seen then.").coded(Coding::Delta),
        Column::int("end_ns", "When it was taken away; null if the run ended before.").nullable(),
        Column::int("gone_ns", "When it was seen to be gone; null if it was not.").nullable(),
        Column::text("gone_by", "What was seen then; empty if it was not.").coded(Coding::Delta),
        Column::int(
            "gaps",
            "How often it was lost in between and put in place again: its target was killed.",
        ),
        Column::int("gap_ns", "How long it was not there in between, all together."),
    ],
};

/// One fault, as far as it came.
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
        .count(fault.gaps.iter().map(|gap| gap.until.since(gap.from).as_nanos() as u64).sum())
        .end();
}
