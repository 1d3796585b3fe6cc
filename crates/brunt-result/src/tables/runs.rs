//! Table `runs`.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Figures;
use brunt_core::IoEngine;
use brunt_lake::{Batch, Column, Table, columns, read_table};

use super::figures::{COST, DONE, LOST, TIMES, all_done, cost, lost, times};
use crate::event::RunInfo;
use crate::noise::MachineNoise;
use crate::summary::RunSummary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "runs",
    doc: "One row for each run that ended, complete or not. Confidence intervals are computed over runs.",
    columns: &columns::<62>(&[
        &[
            Column::int("run", "Position among all runs of the experiment, from 0; identifies the run in all tables."),
            Column::int("point", "The point that the run belongs to."),
            Column::int("repetition", "Repetition of the point, from 0."),
            Column::int("seed", "Seed of all the run's requests."),
            Column::int("began_unix_ns", "Wall-clock time at which the run's preparation started, since 1970 (UTC)."),
            Column::text("stopped", "Why the run ended: `done`, `steady`, `not-steady`, `interrupted`, `device-gone`, \
             `host-lost`."),
            Column::bool("complete", "Whether the run went to the end as planned; runs that did not aren't evaluated."),
            Column::int("measured_ns", "Measured time, without ramp-up and draining."),
            Column::float("requests_per_second", "Throughput: sum over all workers, or the throughput \
             in the time in which all of them ran (`common` in `summary.json`)."),
            Column::float("bytes_per_second", "Throughput in bytes per second."),
            Column::float("rate_found", "Rate search: highest rate within the limit; null if there was none, and for other runs.")
                .nullable(),
            Column::int("trial", "Rate search: the trial that this row's figures are from; 0 otherwise."),
            Column::int("recording_wait_ns", "Total time that workers waited because requests were \
             recorded faster than they could be written. If that exceeds a hundredth of the run, the measured \
             rates are too low."),
        ],
        DONE,
        LOST,
        TIMES,
        COST,
        &[
            Column::int("response_min_ns", "Shortest response time, exact; null if no request completed.").nullable(),
            Column::int("service_min_ns", "Shortest service time, exact; null if no request completed.").nullable(),
            Column::float("stolen_share", "Share of all processors' time that the hypervisor gave to \
             other guests during the run; null if the kernel does not report it.").nullable(),
            Column::float("wakeup_mean_ns", "Mean delay with which a sleeping thread next to the load \
             was woken; null for a run too short to tell, as are the next columns.").nullable(),
            Column::float("wakeup_max_ns", "Longest delay of a wake-up.").nullable(),
            Column::float("work_mean_ns", "Mean time that a fixed piece of work next to the load took.").nullable(),
            Column::float("work_min_ns", "Shortest time that the piece of work took.").nullable(),
            Column::int("noise_samples", "Number of measurements of wake-ups and of the piece of work."),
            Column::int("verified_bytes", "Bytes that were read and compared with what had been written there, ramp-up included; null without `verify`.").nullable(),
            Column::int("wrong_bytes", "Bytes of blocks that differed from what had been written.").nullable(),
            Column::int("first_wrong_offset", "Offset in bytes of the first block that was found to \
             be wrong; null if there was none.").nullable(),
            Column::float("work_median_ns", "Median time of the fixed piece of work: the processors' \
             speed, which preemption hardly affects. This column and the next ones are null in results written \
             before they were added.").nullable(),
            Column::float("waited_share", "Share of their time in which the load's threads were ready \
             to run but waited for a processor; null if the kernel does not count it.").nullable(),
            Column::float("others_cpus", "CPU time that other programs used during the run, as a number of \
                           CPUs.").nullable(),
            Column::float("throttled_share", "Share of the time in which Brunt's control group was \
             stopped because its CPU quota was used up.").nullable(),
            Column::float("stalled_ns", "Total delay of wake-ups that were 250 ms or more late: at \
             these times, Brunt itself did not run.").nullable(),
            Column::text("engine", "Engine that issued the run's requests, `io_uring` or `threads`; \
             null if its load needs none, if hosts used different ones, and in results written before it was \
             recorded.").nullable(),
        ],
    ]),
};

/// When the first run of the result in `folder` began; `None` if its table can't be read or has no run.
pub fn first_began(folder: &Path) -> Option<SystemTime> {
    let mut first: Option<i64> = None;
    let read = read_table(folder, &TABLE, |batch| {
        let began = &batch.ints("began_unix_ns")[..batch.rows()];
        first = first.into_iter().chain(began.iter().copied()).min();
    });
    let first = u64::try_from(read.ok().and(first)?).ok()?;
    Some(UNIX_EPOCH + Duration::from_nanos(first))
}

/// A run.
pub fn append(rows: &mut Batch, info: &RunInfo, run: &RunSummary, figures: &Figures) {
    let began = info.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = serde_json::to_value(run.stopped).ok();
    let row = rows
        .row()
        .count(info.order.into())
        .count(info.point.into())
        .count(info.repetition.into())
        .int(info.seed as i64)
        .count(began.as_nanos() as u64)
        .text(
            name.as_ref()
                .and_then(|name| name.as_str())
                .unwrap_or_default(),
        )
        .bool(run.is_complete())
        .count((run.measured_s * 1e9).round() as u64)
        .float(run.requests_per_second)
        .float(run.bytes_per_second)
        .float_or_null(run.rate_found)
        .count(run.trial.into())
        .count((run.recording_wait_s * 1e9).round() as u64);
    let row = lost(all_done(row, figures), &figures.counts);
    let (response, service) = (figures.response(), figures.service());
    let row = cost(times(row, &response, &service), &figures.cost)
        .count_or_null(response.min().map(|nanos| nanos.0))
        .count_or_null(service.min().map(|nanos| nanos.0));
    let verified = run.verified.as_ref();
    let first_wrong = verified.and_then(|verified| verified.extents.first());
    let noise = run.noise.as_ref();
    let nanos = |get: fn(&MachineNoise) -> f64| noise.map(|noise| get(noise) * 1e3);
    row.float_or_null(noise.and_then(|noise| noise.stolen_share))
        .float_or_null(nanos(|noise| noise.wakeup_mean_us))
        .float_or_null(nanos(|noise| noise.wakeup_max_us))
        .float_or_null(nanos(|noise| noise.work_mean_us))
        .float_or_null(nanos(|noise| noise.work_min_us))
        .count(noise.map_or(0, |noise| noise.samples))
        .count_or_null(verified.map(|verified| verified.checked_bytes))
        .count_or_null(verified.map(|verified| verified.wrong_bytes))
        .count_or_null(first_wrong.map(|extent| extent.offset))
        .float_or_null(
            noise
                .and_then(|noise| noise.work_median_us)
                .map(|us| us * 1e3),
        )
        .float_or_null(noise.and_then(|noise| noise.waited_share))
        .float_or_null(noise.and_then(|noise| noise.others_cpus))
        .float_or_null(noise.and_then(|noise| noise.throttled_share))
        .float_or_null(noise.and_then(|noise| noise.stalled_s).map(|s| s * 1e9))
        .text_or_null(run.engine.map(IoEngine::name))
        .end();
}
