//! Fidelity of replayed traces: each run's verdict, its evidence, and how late requests were over time.
//!
//! The rule: a verdict is shown with every criterion that was missed.

use brunt_result::replay::{ReplayFidelity, ReplayVerdict};
use brunt_result::summary::{Latencies, Summary};

use super::points::Points;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::{Unit, count};
use crate::page::{Block, Cell, Notice, PageTable, Section, Tone};

/// Maximum number of runs with charts; the tables have all.
const CHARTS_MAX: usize = 6;

/// A run that replayed a trace, with its point's name and the run's number from 1.
struct Replayed<'a> {
    point: String,
    run: u32,
    fidelity: &'a ReplayFidelity,
}

/// `None` if no trace was replayed.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let runs: Vec<Replayed<'_>> = summary
        .points
        .iter()
        .flat_map(|point| point.runs.iter().map(move |run| (point, run)))
        .filter_map(|(point, run)| {
            let fidelity = run.replay.as_deref()?;
            Some(Replayed {
                point: points.full_name(point),
                run: run.repetition + 1,
                fidelity,
            })
        })
        .collect();
    if runs.is_empty() {
        return None;
    }
    let mut section = Section::new("Replay fidelity");
    section.prose(
        "A replay is true if the same operations, addresses and sizes were sent (proven by a digest \
         of what was passed to the device) and, if replayed with the original timing, it drifted by at most 0.1 \
         % and 99 of 100 requests were sent at most 1 ms late. It is degraded up to a drift of 5 %, 99 of 100 \
         requests at most 100 ms late, and 1 % of lost requests; beyond that it is not a replay.",
    );
    section.table(verdicts(&runs));
    let reasons: Vec<Notice> = runs
        .iter()
        .flat_map(|run| run.fidelity.reasons.iter().map(move |reason| (run, reason)))
        .map(|(run, reason)| {
            let tone = if run.fidelity.verdict == ReplayVerdict::NotAReplay {
                Tone::Bad
            } else {
                Tone::Warning
            };
            Notice::new(tone, format!("{}, run {}: {reason}", run.point, run.run))
        })
        .collect();
    if !reasons.is_empty() {
        section.blocks.push(Block::Notices(reasons));
    }
    if runs.iter().any(|run| run.fidelity.unsent.total() > 0) {
        section.table(unsent(&runs));
    }
    section.table(late(&runs));
    if runs.iter().any(|run| !run.fidelity.devices.is_empty()) {
        section.table(devices(&runs));
    }
    for run in runs
        .iter()
        .filter(|run| run.fidelity.issue_error.is_some())
        .take(CHARTS_MAX)
    {
        section.chart(errors_over_time(run));
        section.chart(depth_over_time(run));
    }
    section.table(rows(&runs).folded());
    Some(section)
}

fn verdicts(runs: &[Replayed<'_>]) -> PageTable {
    let columns = [
        "point",
        "run",
        "verdict",
        "due by",
        "sent",
        "of",
        "drift",
        "issue error p50",
        "p99",
        "longest",
        "KS distance of gaps",
        "beyond 50 µs",
        "by chance under",
    ];
    let rows = runs.iter().map(
        |Replayed {
             point,
             run,
             fidelity,
         }| {
            let number = |value: u64| Cell::number(count(value as f64));
            let maybe = |unit: Unit, value: Option<f64>| {
                value.map_or(Cell::Empty, |value| Cell::number(unit.show(value)))
            };
            let (error, gaps) = (fidelity.issue_error.as_ref(), fidelity.gaps.as_ref());
            vec![
                Cell::text(point),
                number(u64::from(*run)),
                Cell::text(fidelity.verdict.name()),
                Cell::text(&fidelity.timing),
                number(fidelity.sent),
                number(fidelity.planned),
                fidelity.drift.map_or(Cell::Empty, |drift| {
                    Cell::number(format!("{:.4} %", drift * 100.0))
                }),
                maybe(Unit::Micros, error.map(|error| error.p50_us)),
                maybe(Unit::Micros, error.map(|error| error.p99_us)),
                maybe(Unit::Micros, error.map(|error| error.max_us)),
                maybe(Unit::Share, gaps.map(|gaps| gaps.ks)),
                maybe(Unit::Share, gaps.map(|gaps| gaps.ks_beyond_slack)),
                maybe(Unit::Share, gaps.map(|gaps| gaps.by_chance)),
            ]
        },
    );
    PageTable::new("Verdicts", &columns, rows)
}

fn unsent(runs: &[Replayed<'_>]) -> PageTable {
    let columns = [
        "point",
        "run",
        "of",
        "sent",
        "dropped because of conflicts",
        "due but not sent before the end",
        "not accepted by the device",
        "not due before the end",
    ];
    let rows = runs.iter().map(
        |Replayed {
             point,
             run,
             fidelity,
         }| {
            let number = |value: u64| Cell::number(count(value as f64));
            let unsent = &fidelity.unsent;
            vec![
                Cell::text(point),
                number(u64::from(*run)),
                number(fidelity.planned),
                number(fidelity.sent),
                number(unsent.dropped),
                number(unsent.skipped),
                number(unsent.not_taken),
                number(unsent.after_end),
            ]
        },
    );
    PageTable::new("Outcome of the trace's requests", &columns, rows)
}

fn late(runs: &[Replayed<'_>]) -> PageTable {
    let columns = [
        "point",
        "run",
        "late by over 100 µs",
        "busy worker",
        "slow reader",
        "device",
        "full queue",
        "conflict",
        "reordered",
        "on the same blocks",
        "conflicts",
        "rule",
    ];
    let rows = runs.iter().map(
        |Replayed {
             point,
             run,
             fidelity,
         }| {
            let number = |value: u64| Cell::number(count(value as f64));
            let late = &fidelity.late;
            vec![
                Cell::text(point),
                number(u64::from(*run)),
                number(late.total()),
                number(late.worker),
                number(late.reader),
                number(late.device),
                number(late.depth),
                number(late.conflict),
                number(fidelity.reordered),
                number(fidelity.reordered_overlapping),
                number(fidelity.conflicts.requests),
                Cell::text(&fidelity.conflicts.rule),
            ]
        },
    );
    PageTable::new("Late and reordered requests, by cause", &columns, rows)
}

fn devices(runs: &[Replayed<'_>]) -> PageTable {
    let columns = [
        "point",
        "run",
        "device of the trace",
        "target",
        "sent",
        "of",
        "completed",
        "late by over 100 µs",
        "issue error p50",
        "p99",
        "longest",
        "digest of what was sent",
        "as planned",
    ];
    let rows = runs.iter().flat_map(
        |Replayed {
             point,
             run,
             fidelity,
         }| {
            fidelity.devices.iter().map(move |told| {
                let number = |value: u64| Cell::number(count(value as f64));
                let us = |get: fn(&Latencies) -> f64| {
                    told.issue_error.as_ref().map_or(Cell::Empty, |error| {
                        Cell::number(Unit::Micros.show(get(error)))
                    })
                };
                vec![
                    Cell::text(point),
                    number(u64::from(*run)),
                    Cell::text(told.device.as_deref().unwrap_or("all others")),
                    told.target.as_ref().map_or(Cell::Empty, Cell::text),
                    number(told.sent),
                    number(told.planned),
                    number(told.completed),
                    number(told.late),
                    us(|error| error.p50_us),
                    us(|error| error.p99_us),
                    us(|error| error.max_us),
                    Cell::text(&told.digests.sent),
                    Cell::text(if told.digests.sent == told.digests.planned {
                        "yes"
                    } else {
                        "no"
                    }),
                ]
            })
        },
    );
    PageTable::new("By device of the trace", &columns, rows)
}

fn errors_over_time(run: &Replayed<'_>) -> Chart {
    let moments = &run.fidelity.over_time;
    let xs: Vec<f64> = moments.iter().map(|moment| moment.start_s).collect();
    let series = vec![
        Series::new(
            "mean",
            SeriesRole::Nominal(0),
            moments
                .iter()
                .map(|moment| Some(moment.issue_error_mean_us))
                .collect(),
        ),
        Series::new(
            "longest",
            SeriesRole::Nominal(1),
            moments
                .iter()
                .map(|moment| Some(moment.issue_error_max_us))
                .collect(),
        ),
    ];
    let x = Axis::new("time", Unit::Seconds, Scale::FromZero);
    let y = Axis::new("sent after due", Unit::Micros, Scale::FromZero);
    Chart::lines(
        format!("Issue errors over time: {}, run {}", run.point, run.run),
        x,
        y,
        xs,
        series,
    )
}

fn depth_over_time(run: &Replayed<'_>) -> Chart {
    let moments = &run.fidelity.over_time;
    let xs: Vec<f64> = moments.iter().map(|moment| moment.start_s).collect();
    let mut series = vec![Series::new(
        "replay",
        SeriesRole::Nominal(0),
        moments
            .iter()
            .map(|moment| Some(moment.depth_mean))
            .collect(),
    )];
    if moments
        .iter()
        .any(|moment| moment.trace_depth_mean.is_some())
    {
        series.push(Series::new(
            "trace",
            SeriesRole::Nominal(1),
            moments
                .iter()
                .map(|moment| moment.trace_depth_mean)
                .collect(),
        ));
    }
    let x = Axis::new("time", Unit::Seconds, Scale::FromZero);
    let y = Axis::new("requests in flight", Unit::Count, Scale::FromZero);
    let title = format!(
        "Requests in flight on arrival: {}, run {}",
        run.point, run.run
    );
    Chart::lines(title, x, y, xs, series)
}

fn rows(runs: &[Replayed<'_>]) -> PageTable {
    let columns = ["point", "run", "what", "value"];
    let rows = runs.iter().flat_map(
        |Replayed {
             point,
             run,
             fidelity,
         }| {
            let row = |what: &str, value: String| {
                vec![
                    Cell::text(point),
                    Cell::number(count(f64::from(*run))),
                    Cell::text(what),
                    Cell::text(value),
                ]
            };
            let digests = &fidelity.digests;
            let mut rows = Vec::new();
            // Replays of NFS calls have no digests.
            if !digests.trace.is_empty() {
                let forced = fidelity.forced;
                rows.extend([
                    row("digest of the trace", digests.trace.clone()),
                    row("digest of the planned requests", digests.planned.clone()),
                    row("digest of what was sent", digests.sent.clone()),
                    row("writes to be sent with FUA", count(forced.planned as f64)),
                    row("writes sent with FUA", count(forced.sent as f64)),
                ]);
            }
            if fidelity.pieces > fidelity.sent {
                rows.push(row(
                    "requests sent, counting the pieces of split ones",
                    count(fidelity.pieces as f64),
                ));
            }
            rows.extend(
                fidelity
                    .rows
                    .iter()
                    .map(|(why, number)| row(why, count(*number as f64))),
            );
            rows
        },
    );
    PageTable::new(
        "Digests, and rows that were left out, repaired or moved",
        &columns,
        rows,
    )
}
