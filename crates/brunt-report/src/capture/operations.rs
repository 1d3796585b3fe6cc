//! Operations: calls, waiting times and latencies.

use brunt_result::capture::{LatencyRow, OperationRow, Report};

use crate::format::{Unit, count};
use crate::page::{Bar, Bars, Block, Cell, PageTable, Section};

/// Maximum number of bars per figure.
const BARS_MAX: usize = 16;

const COLUMNS: [&str; 11] = [
    "operation",
    "calls",
    "share",
    "errors",
    "data",
    "mean",
    "median",
    "p90",
    "p99",
    "p99.9",
    "slowest",
];

pub(super) fn operations(report: &Report) -> Section {
    let mut section = Section::new("Operations");
    let mut rows: Vec<&OperationRow> = report.by_operation.iter().collect();
    if rows.is_empty() {
        section
            .blocks
            .push(Block::Missing("No operations were captured.".into()));
        return section;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
    section
        .blocks
        .push(Block::Bars(calls(&rows, report.operations)));
    section.blocks.push(Block::Bars(waits(&rows)));
    let cells = rows.iter().map(|row| cells(row, report.operations));
    section.table(PageTable::new("Latency by operation", &COLUMNS, cells));
    section.prose(
        "Latency: from the call's first packet to the reply's first packet, as seen at the capture point.",
    );
    if let Some(text) = error_of(rows.iter().filter_map(|row| row.latency.as_ref())) {
        section.prose(text);
    }
    section
}

fn bar(name: &str, value: f64, shown: String, all: f64) -> Bar {
    Bar {
        name: name.into(),
        parts: vec![value],
        shown,
        uncertainty: Unit::Share.show(value / all.max(f64::MIN_POSITIVE)),
        ..Bar::default()
    }
}

/// The most frequent operations.
fn calls(rows: &[&OperationRow], all: u64) -> Bars {
    let bars = rows.iter().take(BARS_MAX).map(|row| {
        let calls = row.calls as f64;
        bar(&row.name, calls, count(calls), all as f64)
    });
    Bars {
        title: "Calls".into(),
        bars: bars.collect(),
        ..Bars::default()
    }
}

/// The operations that clients waited for the longest.
fn waits(rows: &[&OperationRow]) -> Bars {
    let waited = |row: &OperationRow| {
        let mean_ns = row.latency.map_or(0, |latency| latency.mean_ns);
        mean_ns as f64 * row.replies as f64 / 1e3
    };
    let all: f64 = rows.iter().map(|row| waited(row)).sum();
    let mut by_time = rows.to_vec();
    by_time.sort_by(|a, b| waited(b).total_cmp(&waited(a)));
    let times = by_time
        .iter()
        .take(BARS_MAX)
        .filter(|row| waited(row) > 0.0);
    let bars = times.map(|row| bar(&row.name, waited(row), Unit::Micros.show(waited(row)), all));
    Bars {
        title: "Where clients waited".into(),
        caption: "Calls times mean latency; the longest bar is the operation to optimize first."
            .into(),
        bars: bars.collect(),
        ..Bars::default()
    }
}

/// A row of the table; `all` is the total number of calls, over all operations.
fn cells(row: &OperationRow, all: u64) -> Vec<Cell> {
    let number = |is_known: bool, shown: String| match is_known {
        true => Cell::number(shown),
        false => Cell::Empty,
    };
    let mut cells = vec![
        Cell::text(&*row.name),
        Cell::number(count(row.calls as f64)),
        Cell::number(Unit::Share.show(row.calls as f64 / all.max(1) as f64)),
        number(row.replies > 0, count(row.errors as f64)),
        number(row.bytes > 0, Unit::Bytes.show(row.bytes as f64)),
    ];
    cells.extend(latencies(row.latency.as_ref()));
    cells
}

/// A sentence about the error of these percentiles; `None` if they are exact.
pub(super) fn error_of<'a>(latencies: impl Iterator<Item = &'a LatencyRow>) -> Option<String> {
    let percent = latencies
        .map(|latency| latency.error_percent)
        .fold(0.0, f64::max);
    (percent > 0.0).then(|| {
        format!("Percentiles are at most {percent} % off; means and the slowest are exact.")
    })
}

fn latencies(latency: Option<&LatencyRow>) -> [Cell; 6] {
    let figures: [fn(&LatencyRow) -> u64; 6] = [
        |row| row.mean_ns,
        |row| row.p50_ns,
        |row| row.p90_ns,
        |row| row.p99_ns,
        |row| row.p999_ns,
        |row| row.max_ns,
    ];
    figures.map(|get| match latency {
        Some(latency) => Cell::number(Unit::Micros.show(get(latency) as f64 / 1e3)),
        None => Cell::Empty,
    })
}
