//! Groups of columns that several tables share, each with the function that fills it.

use crate::{Cost, Counts, Figures, OpFigures, RequestStatus};
use brunt_core::Histogram;
use brunt_lake::{Column, Row};

/// Documentation of columns with the kind of operation.
pub const OP: &str =
    "Kind of operation: `read`, `write`, or another kind of the load, such as `create` on files.";

/// Columns of completed work.
pub const DONE: &[Column] = &[
    Column::int("completed", "Completed requests."),
    Column::int(
        "bytes",
        "Bytes transferred; in rows for a single kind of operation, the bytes covered by its requests.",
    ),
    Column::int(
        "late",
        "Requests of `completed` that completed after the end of measuring: they count for latency, but not for \
        throughput.",
    ),
    Column::int("late_bytes", "The bytes of `late`."),
    Column::int("retries", "Retries, of all requests."),
    Column::int("timeouts", "Attempts that exceeded the workload's timeout."),
];

/// Columns of requests that did not succeed: one for each [`RequestStatus`] except success.
pub const LOST: &[Column] = &[
    Column::int("scsi_errors", "Requests that failed with a SCSI status."),
    Column::int("os_errors", "Requests that the operating system rejected."),
    Column::int("out_of_range", "Requests outside the device."),
    Column::int(
        "timed_out",
        "Requests that failed after their last attempt timed out.",
    ),
    Column::int("gone", "Requests that failed because the device is gone."),
    Column::int("unsupported", "Requests that the device does not support."),
    Column::int(
        "miscompares",
        "Reads with data that differs from what was written.",
    ),
    Column::int("hanging", "Requests outstanding when the run ended."),
    Column::int(
        "skipped",
        "Requests that were due but not sent in time, or at all.",
    ),
];

/// Columns of response and service times: exact mean and maximum, percentiles at most 0.1 % too high.
pub const TIMES: &[Column] = &[
    Column::float("response_mean_ns", "Mean response time: from when a request was due to its completion, retries included; null if none completed.").nullable(),
    Column::int("response_p50_ns", "Median of the response time.").nullable(),
    Column::int("response_p90_ns", "90th percentile of the response time.").nullable(),
    Column::int("response_p99_ns", "99th percentile of the response time.").nullable(),
    Column::int("response_p99_9_ns", "99.9th percentile of the response time.").nullable(),
    Column::int("response_max_ns", "Maximum response time.").nullable(),
    Column::float("service_mean_ns", "Mean service time: from the last submission to the completion; null if none completed.").nullable(),
    Column::int("service_p50_ns", "Median of the service time.").nullable(),
    Column::int("service_p90_ns", "90th percentile of the service time.").nullable(),
    Column::int("service_p99_ns", "99th percentile of the service time.").nullable(),
    Column::int("service_p99_9_ns", "99.9th percentile of the service time.").nullable(),
    Column::int("service_max_ns", "Maximum service time.").nullable(),
];

/// Columns of the cost of measuring, over all workers.
pub const COST: &[Column] = &[
    Column::int("cpu_user_ns", "CPU time of the workers in user mode."),
    Column::int(
        "cpu_system_ns",
        "CPU time of the workers in the kernel, and of threads that work for them (io-wq, SQPOLL).",
    ),
    Column::int(
        "voluntary_switches",
        "Voluntary context switches of the workers.",
    ),
    Column::int(
        "involuntary_switches",
        "Involuntary context switches of the workers.",
    ),
    Column::int(
        "system_calls",
        "System calls of the workers' rings; the loop makes only one other system call per interval.",
    ),
];

/// Fills [`DONE`] for one kind of operation.
pub fn done<'a>(row: Row<'a>, op: &OpFigures) -> Row<'a> {
    row.count(op.completed)
        .count(op.bytes)
        .count(op.late)
        .count(op.late_bytes)
        .count(op.retries)
        .count(op.timeouts)
}

/// Fills [`DONE`] for all kinds together.
pub fn all_done<'a>(row: Row<'a>, figures: &Figures) -> Row<'a> {
    row.count(figures.completed())
        .count(figures.bytes())
        .count(figures.late())
        .count(figures.late_bytes())
        .count(figures.retries())
        .count(figures.timeouts())
}

/// Fills [`LOST`].
pub fn lost<'a>(row: Row<'a>, counts: &Counts) -> Row<'a> {
    let not_good = RequestStatus::ALL
        .into_iter()
        .filter(|status| *status != RequestStatus::Good);
    not_good.fold(row, |row, status| row.count(counts.of(status)))
}

/// Fills [`TIMES`].
pub fn times<'a>(row: Row<'a>, response: &Histogram, service: &Histogram) -> Row<'a> {
    [response, service].into_iter().fold(row, |row, times| {
        let at = |percent| times.percentile(percent).map(|nanos| nanos.0);
        row.float_or_null(times.mean())
            .count_or_null(at(50.0))
            .count_or_null(at(90.0))
            .count_or_null(at(99.0))
            .count_or_null(at(99.9))
            .count_or_null(times.max().map(|nanos| nanos.0))
    })
}

/// Fills [`COST`].
pub fn cost<'a>(row: Row<'a>, cost: &Cost) -> Row<'a> {
    row.count(cost.cpu_user_nanos)
        .count(cost.cpu_system_nanos)
        .count(cost.voluntary_switches)
        .count(cost.involuntary_switches)
        .count(cost.system_calls)
}
