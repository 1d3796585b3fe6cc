//! The ledger: what did not end well, by kind and point. It adds up: every request is in it.

use std::collections::BTreeMap;

use brunt_result::summary::{RunSummary, Summary};

use crate::format::{Unit, count};
use crate::page::{Block, Cell, PageTable, Section};

/// Requests that did not end well.
pub(super) fn total(summary: &Summary) -> u64 {
    summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .flat_map(|run| run.losses.values())
        .sum()
}

/// All requests of a run: those that were done, and those that were lost.
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
        "skipped" => "due but not sent, because the open loop fell too far behind",
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
    if total(summary) + retries + timeouts > 0 {
        section.blocks.push(Block::Table(by_run(summary, &kinds)));
    }
    section
}

/// The runs that lost something.
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
