//! Figures by kind of operation, for loads that make several kinds, or kinds other than reads and writes.

use brunt_result::by_kind::{KindEstimates, KindOverRuns};
use brunt_result::statistics::Estimate;
use brunt_result::summary::Summary;

use super::points::{Points, with_uncertainty};
use crate::format::Unit;
use crate::page::{Cell, PageTable, Section};

/// Maximum number of rows in the table; the page says if more are left out.
const ROWS_MAX: usize = 200;

/// `None` if every point makes only reads or only writes: then the point's own row has all figures.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    let estimates = KindEstimates::of(&summary.points);
    for point in &summary.points {
        rows.extend(
            estimates
                .over_runs(point)
                .iter()
                .map(|kind| row(points.full_name(point), kind)),
        );
    }
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(ROWS_MAX);
    let mut section = Section::new("Kinds of operations");
    let columns = [
        "point",
        "operation",
        "requests",
        "transfer",
        "mean response",
        "p99",
        "p99 service",
    ];
    section.table(PageTable::new(
        "All kinds of operations of each point, over its runs",
        &columns,
        rows,
    ));
    if all > ROWS_MAX {
        section.prose(format!("The first {ROWS_MAX} of {all} rows."));
    }
    Some(section)
}

fn row(name: String, kind: &KindOverRuns) -> Vec<Cell> {
    let cell = |estimate: Option<Estimate>, unit: Unit| {
        estimate.map_or(Cell::Empty, |estimate| {
            let (value, uncertainty) = with_uncertainty(&estimate, unit);
            Cell::Estimate(value, uncertainty)
        })
    };
    vec![
        Cell::text(name),
        Cell::text(kind.op.name()),
        cell(kind.requests_per_second, Unit::PerSecond),
        cell(kind.bytes_per_second, Unit::BytesPerSecond),
        cell(kind.response_mean_us, Unit::Micros),
        cell(kind.response_p99_us, Unit::Micros),
        cell(kind.service_p99_us, Unit::Micros),
    ]
}
