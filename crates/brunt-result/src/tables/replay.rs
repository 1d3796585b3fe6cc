//! Table `replay`.

use brunt_lake::{Batch, Column, Table};

use crate::event::RunInfo;
use crate::summary::RunSummary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "replay",
    doc: "One row for each part of the time of a run that replayed a trace: how late requests were, \
     and how many were in flight. A part is 0.1 s long; its length doubles whenever there would be more than 128 \
     parts.",
    columns: &[
        Column::int("run", "The run."),
        Column::int(
            "start_ns",
            "Start of the part, since the run's workers started; requests belong to the part in which they were due.",
        ),
        Column::int("end_ns", "End of the part."),
        Column::int("requests", "Requests that were due in this part."),
        Column::float(
            "issue_error_mean_ns",
            "Mean time from when a request was due to when it was sent.",
        ),
        Column::float(
            "issue_error_max_ns",
            "Longest time from when a request was due to when it was sent.",
        ),
        Column::float(
            "depth_mean",
            "Mean number of requests in flight when a request was sent.",
        ),
        Column::float(
            "trace_depth_mean",
            "Mean number of requests in flight in the trace; null if it has no response times.",
        )
        .nullable(),
    ],
};

/// Adds the course of a run over time, if it replayed a trace.
pub fn append(rows: &mut Batch, info: &RunInfo, run: &RunSummary) {
    let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
    for moment in run.replay.iter().flat_map(|replay| &replay.over_time) {
        rows.row()
            .count(info.order.into())
            .count(nanos(moment.start_s))
            .count(nanos(moment.end_s))
            .count(moment.requests)
            .float(moment.issue_error_mean_us * 1e3)
            .float(moment.issue_error_max_us * 1e3)
            .float(moment.depth_mean)
            .float_or_null(moment.trace_depth_mean)
            .end();
    }
}
