//! Table `phases`.

use brunt_lake::{Batch, Column, Table};

use crate::event::RunInfo;
use crate::summary::RunSummary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "phases",
    doc: "One row for each phase of a run with faults: from one start or end of a fault to the next. \
     Response times are those of requests that completed in the phase, and the ages of those that were due by \
     its end and not answered.",
    columns: &[
        Column::int("run", "The run."),
        Column::int("phase", "Number of the phase in the run, from 0."),
        Column::text("kind", "`before`, `during`, `between` or `after` faults."),
        Column::text(
            "faults",
            "Names of the faults in effect, joined by ` and `; empty if there are none.",
        ),
        Column::int("start_ns", "Start of the phase, since measuring began."),
        Column::int("end_ns", "End of the phase."),
        Column::int(
            "intervals",
            "Whole report intervals in the phase; if 0, the phase's figures include parts of adjacent phases.",
        ),
        Column::float(
            "requests_per_second",
            "Completed requests per second; before all faults, the baseline.",
        ),
        Column::float("bytes_per_second", "Bytes per second."),
        Column::float("response_mean_ns", "Mean response time.").nullable(),
        Column::float(
            "response_p99_ns",
            "99th percentile of the response time, at most 0.8 % too high.",
        )
        .nullable(),
        Column::float("response_max_ns", "Longest response time.").nullable(),
        Column::int(
            "waiting",
            "Requests that were due by the phase's end and were still unanswered; null if that is not known.",
        )
        .nullable(),
        Column::float("waiting_max_ns", "Age of the oldest unanswered request.").nullable(),
        Column::float("failed_share", "Share of requests that failed."),
    ],
};

/// Adds all phases of a run.
pub fn append(rows: &mut Batch, info: &RunInfo, run: &RunSummary) {
    let nanos = |us: Option<f64>| us.map(|us| us * 1e3);
    let since = |seconds: f64| (seconds.max(0.0) * 1e9).round() as u64;
    for (index, phase) in run.phases.iter().enumerate() {
        rows.row()
            .count(info.order.into())
            .count(index as u64)
            .text(phase.kind.name())
            .text(&phase.faults.join(" and "))
            .count(since(phase.start_s))
            .count(since(phase.end_s))
            .count(phase.intervals as u64)
            .float(phase.requests_per_second)
            .float(phase.bytes_per_second)
            .float_or_null(nanos(phase.response_mean_us))
            .float_or_null(nanos(phase.response_p99_us))
            .float_or_null(nanos(phase.response_max_us))
            .count_or_null(phase.waiting_requests)
            .float_or_null(nanos(phase.waiting_oldest_us))
            .float(phase.failed_share)
            .end();
    }
}
