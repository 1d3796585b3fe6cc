//! Table `degradation`.

use brunt_lake::{Batch, Column, Row, Table};

use crate::degradation::{Answer, ResponseCost};
use crate::event::RunInfo;
use crate::summary::RunSummary;

/// See its doc.
pub const TABLE: Table = Table {
    name: "degradation",
    doc: "One row for each fault of a run that had a baseline before it: what it cost. How each figure is computed \
          is written at the top of `crates/brunt-result/src/degradation/mod.rs`.",
    columns: &[
        Column::int("run", "The run."),
        Column::int("fault", "Its place in the experiment's list of faults, from 0."),
        Column::text("name", "What it is called."),
        Column::int("baseline_intervals", "Intervals before any fault, of which the baselines are made."),
        Column::float("baseline_requests_per_second", "Level of their rate: the mean, each held within the band."),
        Column::float("baseline_bytes_per_second", "The same in bytes."),
        Column::float("drop", "Share of the baseline's rate that was missing while the fault was there."),
        Column::float("drop_max", "The same of the worst interval."),
        Column::float("lost_requests", "Area: requests not done from the fault's begin until the rate was back."),
        Column::float("lost_bytes", "Their bytes."),
        Column::text("detected", "Whether the rate showed the fault: `yes`, `never`, or `inconclusive` where its noise is larger."),
        Column::int("detected_ns", "From the fault's begin until the rate showed it; null unless it did.").nullable(),
        Column::text("recovered", "Whether the rate was back after it: `yes`, `never`, or `inconclusive`."),
        Column::int("recovered_ns", "From its end until the rate was back; null unless it was.").nullable(),
        Column::float("noticeable_drop", "The smallest drop over the time of the fault that the intervals would have shown, as a share; null if none would.").nullable(),
        Column::float("response_mean_baseline_ns", "Level of the mean response time before any fault.").nullable(),
        Column::float("response_mean_factor", "How many times that the mean was while the fault was there.").nullable(),
        Column::float("response_mean_factor_max", "The same of the worst interval.").nullable(),
        Column::text("response_mean_detected", "Whether the mean showed the fault: `yes`, `never`, `inconclusive`.").nullable(),
        Column::int("response_mean_detected_ns", "From the fault's begin until the mean showed it.").nullable(),
        Column::text("response_mean_recovered", "Whether the mean was back: `yes`, `never`, `inconclusive`.").nullable(),
        Column::int("response_mean_recovered_ns", "From its end until the mean was back.").nullable(),
        Column::float("response_p99_baseline_ns", "Median of the intervals' p99 before any fault.").nullable(),
        Column::float("response_p99_factor", "How many times that the intervals' median p99 was while the fault was there.").nullable(),
        Column::float("response_p99_factor_max", "The same of the worst interval.").nullable(),
        Column::text("response_p99_detected", "Whether the p99 showed the fault: `yes`, `never`, `inconclusive`.").nullable(),
        Column::int("response_p99_detected_ns", "From the fault's begin until the p99 showed it.").nullable(),
        Column::text("response_p99_recovered", "Whether the p99 was back: `yes`, `never`, `inconclusive`.").nullable(),
        Column::int("response_p99_recovered_ns", "From its end until the p99 was back.").nullable(),
        Column::float("excess_wait_s", "Area: seconds that requests waited beyond the baseline's mean until that was back, all together.").nullable(),
        Column::float("failed_share_before", "Share of requests that ended otherwise than well before any fault."),
        Column::float("failed_share", "The same while the fault was there."),
    ],
};

/// All faults of a run that cost something that can be told.
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
            .float(cost.lost_requests)
            .float(cost.lost_bytes)
            .text(cost.detected.word())
            .count_or_null(nanos(Some(cost.detected)))
            .text(cost.recovered.word())
            .count_or_null(nanos(Some(cost.recovered)))
            .float_or_null(cost.noticeable_drop);
        let row = [&cost.response_mean, &cost.response_p99].into_iter().fold(row, response);
        row.float_or_null(cost.excess_wait_s).float(cost.failed_share_before).float(cost.failed_share).end();
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
