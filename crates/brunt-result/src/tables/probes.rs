//! Table `probes`.

use brunt_lake::{Batch, Coding, Column, Table};

use super::RunOrigin;
use crate::event::Sample;

/// See its doc.
pub const TABLE: Table = Table {
    name: "probes",
    doc: "One row for each figure of a host's state over a span of time, read from the kernel beside \
          the runs. [probes.md](probes.md) says which figures there are.",
    columns: &[
        Column::int("run", "The run during which it was read."),
        Column::text("host", "Whose state: `local`, or a host of the lab."),
        Column::int(
            "start_ns",
            "Begin of the span, since the workers of the run started; negative before that.",
        ),
        Column::int("end_ns", "Its end, when the counters were read."),
        Column::text("probe", "The probe, such as `cpu` or `network`."),
        Column::text("instance", "Which one of several, such as `cpu0` or `eth0`; empty for all together."),
        Column::text("metric", "What, with its unit."),
        Column::float("value", "How much.").coded(Coding::Dictionary),
    ],
};

/// One sample.
pub fn append(rows: &mut Batch, moment: &RunOrigin, sample: &Sample) {
    for value in &sample.values {
        rows.row()
            .count(moment.run.into())
            .text(&sample.host)
            .nanos_since(sample.start, moment.origin)
            .nanos_since(sample.end, moment.origin)
            .text(&value.probe)
            .text(&value.instance)
            .text(&value.metric)
            .float(value.value)
            .end();
    }
}
