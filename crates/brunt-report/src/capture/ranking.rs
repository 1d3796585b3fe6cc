//! The hottest files, directories, clients and pairs.

use brunt_result::capture::{HotRow, LatencyRow, Ranking};

use super::operations::error_of;
use crate::format::{Unit, count};
use crate::page::{Bar, Bars, Block, Cell, PageTable, Section};

/// Maximum number of bars per figure.
const BARS_MAX: usize = 8;

const COLUMNS: [&str; 7] = [
    "name",
    "operations",
    "data",
    "time waited",
    "median",
    "p99",
    "slowest",
];

/// The section of a ranking; `None` if it is empty.
pub(super) fn ranking(title: &str, ranking: &Ranking) -> Option<Section> {
    if ranking.top.is_empty() {
        return None;
    }
    let mut section = Section::new(title);
    section.prose(concentration(ranking));
    let by_operations = bars(
        "By operations",
        ranking,
        |row| row.operations,
        |number| count(number as f64),
    );
    let by_bytes = bars(
        "By data",
        ranking,
        |row| row.bytes,
        |bytes| Unit::Bytes.show(bytes as f64),
    );
    section.blocks.push(Block::Bars(by_operations));
    if !by_bytes.bars.is_empty() {
        section.blocks.push(Block::Bars(by_bytes));
    }
    let caption = format!("The heaviest {}", ranking.top.len());
    let rows = ranking.top.iter().map(cells);
    section.table(PageTable::new(caption, &COLUMNS, rows).folded());
    if let Some(text) = error_of(ranking.top.iter().filter_map(|row| row.latency.as_ref())) {
        section.prose(text);
    }
    Some(section)
}

/// Number of entries, and the share of the busiest ones.
fn concentration(ranking: &Ranking) -> String {
    let mut text = format!(
        "{} in total. The 25 busiest account for {} of the operations, the 25 with the most data for {} of the bytes.",
        ranking.count_kind.show(count(ranking.count as f64)),
        Unit::Share.show_known(ranking.top25_operations_share),
        Unit::Share.show_known(ranking.top25_bytes_share),
    );
    if ranking.forgotten > 0 {
        let forgotten = count(ranking.forgotten as f64);
        let undercount = count(ranking.undercount_max as f64);
        text += &format!(
            " {forgotten} inactive ones were dropped to save memory: counts may be low by up to \
             {undercount} operations, or by up to that number times 16 KiB of data."
        );
    }
    text
}

fn bars(title: &str, ranking: &Ranking, get: fn(&HotRow) -> u64, show: fn(u64) -> String) -> Bars {
    let mut rows: Vec<&HotRow> = ranking.top.iter().filter(|row| get(row) > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(get(row)));
    let bars = rows.iter().take(BARS_MAX).map(|row| Bar {
        name: row.name.clone(),
        parts: vec![get(row) as f64],
        shown: show(get(row)),
        ..Bar::default()
    });
    Bars {
        title: title.into(),
        bars: bars.collect(),
        ..Bars::default()
    }
}

fn cells(row: &HotRow) -> Vec<Cell> {
    let latency = |get: fn(&LatencyRow) -> u64| match &row.latency {
        Some(latency) => Cell::number(Unit::Micros.show(get(latency) as f64 / 1e3)),
        None => Cell::Empty,
    };
    vec![
        Cell::text(&row.name),
        Cell::number(count(row.operations as f64)),
        Cell::number(Unit::Bytes.show(row.bytes as f64)),
        Cell::number(Unit::Micros.show(row.time_ns as f64 / 1e3)),
        latency(|l| l.p50_ns),
        latency(|l| l.p99_ns),
        latency(|l| l.max_ns),
    ]
}
