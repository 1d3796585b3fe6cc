//! Table `degradation`.

use brunt_lake::{Batch, Column, Row, Table};

use crate::degradation::{Answer, ResponseCost};
use crate::event::RunInfo;
use crate::summary::RunSummary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "degradation",
    doc: "One row for each fault of a run with a baseline before it, with the effect of the fault. \
     The computation of each figure is described at the top of `crates/brunt-result/src/degradation/mod.rs`.",
    columns: &[
        Column::int("run", "The run."),
        Column::int("fault", "Index in the experiment's list of faults, from 0."),
        Column::text("name", "Name of the fault."),
        Column::int(
            "baseline_intervals",
            "Number of intervals before any fault, from which the baselines are computed.",
        ),
        Column::float(
            "baseline_requests_per_second",
            "Baseline rate: mean of the intervals before any fault.",
        ),
        Column::float("baseline_bytes_per_second", "Baseline rate in bytes per second."),
        Column::float("drop", "Share of the baseline rate lost during the fault."),
        Column::float("drop_max", "Share of the baseline rate lost in the fault's worst interval."),
        Column::float(
            "lost_requests",
            "Area: requests lost from the fault's start until recovery; null if that time is not known.",
        )
        .nullable(),
        Column::float("lost_bytes", "Bytes lost from the fault's start until recovery.").nullable(),
        Column::text(
            "detected",
            "Whether the fault was detected in the rate: `yes`, `never`, or `inconclusive` if the noise is too large.",
        ),
        Column::int(
            "detected_ns",
            "From the fault's start until it was detected in the rate; null if it was not.",
        )
        .nullable(),
        Column::text("recovered", "Whether the rate recovered: `yes`, `never`, or `inconclusive`."),
        Column::int("recovered_ns", "From the fault's end until the rate recovered; null if it did not.")
            .nullable(),
        Column::float(
            "noticeable_drop",
            "Smallest drop during the fault that would have been detected, as a share; null if none would.",
        )
        .nullable(),
        Column::float("response_mean_baseline_ns", "Level of the mean response time before any fault.")
            .nullable(),
        Column::float("response_mean_factor", "Ratio of the mean during the fault to the baseline.")
            .nullable(),
        Column::float(
            "response_mean_factor_max",
            "Ratio of the mean in the fault's worst interval to the baseline.",
        )
        .nullable(),
        Column::text(
            "response_mean_detected",
            "Whether the fault was detected in the mean: `yes`, `never` or `inconclusive`.",
        )
        .nullable(),
        Column::int(
            "response_mean_detected_ns",
            "From the fault's start until it was detected in the mean; null if it was not.",
        )
        .nullable(),
        Column::text(
            "response_mean_recovered",
            "Whether the mean recovered: `yes`, `never` or `inconclusive`.",
        )
        .nullable(),
        Column::int("response_mean_recovered_ns", "From the fault's end until the mean recovered; null if it did not.")
            .nullable(),
        Column::float("response_p99_baseline_ns", "99th percentile of the response time before any fault.")
            .nullable(),
        Column::float(
            "response_p99_factor",
            "Ratio of the p99 during the fault to the baseline.",
        )
        .nullable(),
        Column::float(
            "response_p99_factor_max",
            "Ratio of the p99 in the fault's worst interval to the baseline.",
        )
        .nullable(),
        Column::text(
            "response_p99_detected",
            "Whether the fault was detected in the p99: `yes`, `never` or `inconclusive`.",
        )
        .nullable(),
        Column::int(
            "response_p99_detected_ns",
            "From the fault's start until it was detected in the p99; null if it was not.",
        )
        .nullable(),
        Column::text("response_p99_recovered", "Whether the p99 recovered: `yes`, `never` or `inconclusive`.")
            .nullable(),
        Column::int(
            "response_p99_recovered_ns",
            "From the fault's end until the p99 recovered; null if it did not.",
        )
        .nullable(),
        Column::float(
            "excess_wait_s",
            "Area: total seconds that requests waited beyond the mean expected without the fault until recovery.",
        )
        .nullable(),
        Column::float("failed_share_before", "Share of requests that failed before any fault."),
        Column::float("failed_share", "Share of requests that failed during the fault."),
    ],
};

/// Adds all faults of a run whose cost is known.
pub fn append(rows: &mut Batch, info: &RunInfo, run: &RunSummary) {
    for fault in &run.faults {
        let Some(cost) = &fault.cost else { continue };
        let row = rows
            .row()
            .count(info.order.into())
            .count(fault.index.into())
            .text(&fault.name)
            .count(cost.baseline.intervals as u64)
            .float(cost.baseline.requests_per_second)
            .float(cost.baseline.bytes_per_second)
            .float(cost.drop)
            .float(cost.drop_max)
            .float_or_null(cost.lost_requests)
            .float_or_null(cost.lost_bytes)
            .text(cost.detected.word())
            .count_or_null(nanos(Some(cost.detected)))
            .text(cost.recovered.word())
            .count_or_null(nanos(Some(cost.recovered)))
            .float_or_null(cost.noticeable_drop);
        let row = [&cost.response_mean, &cost.response_p99]
            .into_iter()
            .fold(row, response);
        row.float_or_null(cost.excess_wait_s)
            .float(cost.failed_share_before)
            .float(cost.failed_share)
            .end();
    }
}

fn response<'a>(row: Row<'a>, cost: &Option<ResponseCost>) -> Row<'a> {
    row.float_or_null(cost.map(|cost| cost.baseline_us * 1e3))
        .float_or_null(cost.and_then(|cost| cost.factor))
        .float_or_null(cost.and_then(|cost| cost.factor_max))
        .text_or_null(cost.map(|cost| cost.detected.word()))
        .count_or_null(nanos(cost.map(|cost| cost.detected)))
        .text_or_null(cost.map(|cost| cost.recovered.word()))
        .count_or_null(nanos(cost.map(|cost| cost.recovered)))
}

fn nanos(answer: Option<Answer>) -> Option<u64> {
    Some((answer?.seconds()? * 1e9) as u64)
}
