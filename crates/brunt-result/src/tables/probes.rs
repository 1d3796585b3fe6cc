//! Table `probes`.

use brunt_lake::{Batch, Coding, Column, Table};

use super::origin::RunOrigin;
use crate::event::Sample;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "probes",
    doc: "One row for each figure in each sample of a host or of a part of a device during runs. \
     [probes.md](probes.md) lists the figures.",
    columns: &[
        Column::int("run", "The run during which the sample was taken."),
        Column::text(
            "host",
            "Host: `local`, a host of the lab, or one of `[hosts]`.",
        ),
        Column::int(
            "start_ns",
            "Start of the sample, since the workers of the run started; negative before that.",
        ),
        Column::int("end_ns", "End of the sample, when the counters were read."),
        Column::text("probe", "The probe, such as `cpu` or `network`."),
        Column::text(
            "instance",
            "Instance, such as `cpu0` or `eth0`; empty for the sum over all instances.",
        ),
        Column::text("metric", "Metric, with its unit."),
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
