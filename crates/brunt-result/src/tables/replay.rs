//! Table `replay`.

use brunt_lake::{Batch, Column, Table};

use crate::event::RunInfo;
use crate::summary::RunSummary;

/// See its doc.
pub const TABLE: Table = Table {
    name: "replay",
    doc: "One row for each part of the time of a run that replayed a trace (0.1 s; twice as long each time there would \
          be more than 128): how late requests were, and how many were in flight.",
    columns: &[
        Column::int("run", "The run."),
        Column::int(
            "start_ns",
            "When the part begins, from the start of the run's workers, by when requests were due.",
        ),
        Column::int("end_ns", "Where it ends."),
        Column::int("requests", "Requests that were due in it."),
        Column::float(
            "issue_error_mean_ns",
            "From when a request was due to when it was sent, on average.",
        ),
        Column::float("issue_error_max_ns", "The longest."),
        Column::float(
            "depth_mean",
            "Mean number of requests in flight when a request was sent.",
        ),
        Column::float(
            "trace_depth_mean",
            "The same in the trace; null where it has no response times.",
        )
        .nullable(),
    ],
};

/// The course of a run over time, if it replayed a trace.
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
