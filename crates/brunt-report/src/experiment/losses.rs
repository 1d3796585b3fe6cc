//! The ledger of requests that did not succeed, by kind and point. The ledger adds up: it includes every request.

use std::collections::BTreeMap;

use brunt_result::failures;
use brunt_result::summary::{PointSummary, RunSummary, Summary};
use brunt_result::wrong::ErrorCause;

use crate::format::{Unit, count};
use crate::page::{Block, Cell, PageTable, Section};

/// Number of requests that did not succeed.
pub(super) fn total(summary: &Summary) -> u64 {
    summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .flat_map(|run| run.losses.values())
        .sum()
}

/// All requests of a run, completed or lost.
pub(super) fn requests(run: &RunSummary) -> u64 {
    run.completed() + run.losses.values().sum::<u64>()
}

/// What a kind of loss means.
fn meaning(kind: &str) -> &str {
    match kind {
        "scsi" => "the target answered with a SCSI error",
        "os" => "rejected by the operating system",
        "out-of-range" => "outside the device",
        "timed-out" => "timed out",
        "gone" => "the device had disappeared",
        "unsupported" => "not supported by the device",
        "miscompare" => "data differed from what was written",
        "hanging" => "outstanding when the run ended",
        "skipped" => "due but not sent, because the open loop had fallen too far behind",
        _ => "",
    }
}

pub(super) fn section(summary: &Summary) -> Section {
    let mut section = Section::new("Losses");
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, lost) in summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .flat_map(|run| &run.losses)
    {
        *kinds.entry(kind).or_default() += lost;
    }
    let runs = || summary.points.iter().flat_map(|point| &point.runs);
    let all: u64 = runs().map(requests).sum();
    let retries: u64 = runs().map(RunSummary::retries).sum();
    let timeouts: u64 = runs().map(RunSummary::timeouts).sum();
    let share = |number: u64| Unit::Share.show(number as f64 / all.max(1) as f64);
    let row = |what: &str, number: u64, means: &str| {
        vec![
            Cell::text(what),
            Cell::number(count(number as f64)),
            Cell::number(share(number)),
            Cell::text(means),
        ]
    };
    let mut rows = vec![row(
        "done",
        all - total(summary),
        "completed, including after retries",
    )];
    rows.extend(
        kinds
            .iter()
            .map(|(kind, lost)| row(kind, *lost, meaning(kind))),
    );
    rows.push(row(
        "all",
        all,
        "all requests that were due during measurement",
    ));
    let columns = ["requests", "count", "share", "meaning"];
    section.table(PageTable::new("Ledger of all requests", &columns, rows));
    section.prose(format!(
        "In addition: {} retries and {} timed-out attempts; their time is included in the response times of their requests.",
        count(retries as f64),
        count(timeouts as f64)
    ));
    section.blocks.extend(causes(summary).map(Block::Table));
    section.blocks.extend(verified(summary).map(Block::Table));
    section.blocks.extend(extents(summary).map(Block::Table));
    if total(summary) + retries + timeouts > 0 {
        section.blocks.push(Block::Table(by_run(summary, &kinds)));
    }
    section
}

/// Failed requests by errno or SCSI sense; `None` if none failed.
fn causes(summary: &Summary) -> Option<PageTable> {
    let of = |point: &PointSummary| {
        let label = point.label.clone();
        let row = move |cause: ErrorCause| {
            vec![
                Cell::text(&label),
                Cell::text(cause.op.name()),
                Cell::number(count(cause.count as f64)),
                Cell::text(&cause.status),
                Cell::text(&cause.cause),
            ]
        };
        failures::causes(point).into_iter().map(row)
    };
    let rows: Vec<_> = summary.points.iter().flat_map(of).collect();
    let columns = ["point", "operation", "count", "kind", "cause"];
    (!rows.is_empty()).then(|| PageTable::new("Failed requests by cause", &columns, rows))
}

/// The amount of verified data, and how much of it was wrong; `None` without verification.
fn verified(summary: &Summary) -> Option<PageTable> {
    let row = |point: &PointSummary| {
        failures::verified(point).map(|verified| {
            vec![
                Cell::text(&point.label),
                Cell::number(Unit::Bytes.show(verified.checked_bytes as f64)),
                Cell::number(Unit::Bytes.show(verified.wrong_bytes as f64)),
            ]
        })
    };
    let rows: Vec<_> = summary.points.iter().filter_map(row).collect();
    let columns = ["point", "checked", "wrong"];
    (!rows.is_empty()).then(|| PageTable::new("Verified data, ramp-up included", &columns, rows))
}

/// The first ranges of wrong data in each run; `None` if there are none.
fn extents(summary: &Summary) -> Option<PageTable> {
    let mut rows = Vec::new();
    for point in &summary.points {
        for run in &point.runs {
            for extent in run.verified.iter().flat_map(|verified| &verified.extents) {
                rows.push(vec![
                    Cell::text(&point.label),
                    Cell::number(count(f64::from(run.repetition) + 1.0)),
                    Cell::number(extent.offset.to_string()),
                    Cell::number(extent.bytes.to_string()),
                    Cell::text(&extent.found),
                ]);
            }
        }
    }
    let columns = ["point", "run", "offset", "bytes", "found there"];
    (!rows.is_empty()).then(|| PageTable::new("The first ranges of wrong data", &columns, rows))
}

/// The runs that lost requests.
fn by_run(summary: &Summary, kinds: &BTreeMap<&str, u64>) -> PageTable {
    let mut columns: Vec<String> = ["point", "run", "requests"].map(String::from).to_vec();
    columns.extend(kinds.keys().map(|kind| kind.to_string()));
    columns.extend(["retries", "time-outs", "first error"].map(String::from));
    let mut rows = Vec::new();
    for point in &summary.points {
        for run in &point.runs {
            let (retries, timeouts) = (run.retries(), run.timeouts());
            if run.losses.is_empty() && retries + timeouts == 0 && run.first_error.is_none() {
                continue;
            }
            let number = |value: u64| Cell::number(count(value as f64));
            let mut row = vec![
                Cell::text(&point.label),
                number(u64::from(run.repetition) + 1),
                number(requests(run)),
            ];
            row.extend(
                kinds
                    .keys()
                    .map(|kind| number(run.losses.get(*kind).copied().unwrap_or(0))),
            );
            row.extend([number(retries), number(timeouts)]);
            row.push(run.first_error.as_ref().map_or(Cell::Empty, Cell::text));
            rows.push(row);
        }
    }
    PageTable {
        caption: format!("The {} runs that lost or repeated requests", rows.len()),
        columns,
        rows,
        folded: true,
    }
}
