//! Figures by kind of operation, where a load makes several kinds or others than reads and writes.

use brunt_result::OpKind;
use brunt_result::statistics::Estimate;
use brunt_result::summary::{OpSummary, PointSummary, RunSummary, Summary};

use super::points::{Points, told};
use crate::format::Unit;
use crate::page::{Cell, Section, Table};

/// Rows of the table; more are left out, and that is said.
const ROWS_MAX: usize = 200;

/// `None` where every point has one kind, reads or writes: its own row says it all.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for point in &summary.points {
        let kinds = kinds(point);
        if !matches!(kinds[..], [] | [OpKind::Read] | [OpKind::Write]) {
            rows.extend(kinds.iter().map(|kind| row(points.full_name(point), point, *kind)));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(ROWS_MAX);
    let mut section = Section::new("Kinds of operations");
    let columns = ["point", "operation", "requests", "transfer", "mean response", "p99"];
    section.table(Table::new("Each kind of operation of each point, over its runs", &columns, rows));
    if all > ROWS_MAX {
        section.prose(format!("The first {ROWS_MAX} of {all} rows."));
    }
    Some(section)
}

fn complete(point: &PointSummary) -> impl Iterator<Item = &RunSummary> {
    point.runs.iter().filter(|run| run.is_complete())
}

/// Those that were done, in the order that the load states.
fn kinds(point: &PointSummary) -> Vec<OpKind> {
    let mut kinds = Vec::new();
    for op in complete(point).flat_map(|run| &run.ops).filter(|op| op.completed > 0) {
        if !kinds.contains(&op.op) {
            kinds.push(op.op);
        }
    }
    kinds
}

fn row(name: String, point: &PointSummary, kind: OpKind) -> Vec<Cell> {
    let over = |unit: Unit, get: fn(&OpSummary, f64) -> Option<f64>| {
        let figures = complete(point).filter_map(|run| get(run.op(kind)?, run.measured_s.max(1e-9)));
        Estimate::of(&figures.collect::<Vec<f64>>()).map_or(Cell::Empty, |estimate| {
            let (value, uncertainty) = told(&estimate, unit);
            Cell::Estimate(value, uncertainty)
        })
    };
    vec![
        Cell::text(name),
        Cell::text(kind.name()),
        over(Unit::PerSecond, |op, seconds| Some(op.completed as f64 / seconds)),
        match kind.moves_bytes() {
            true => over(Unit::BytesPerSecond, |op, seconds| Some(op.bytes as f64 / seconds)),
            false => Cell::Empty,
        },
        over(Unit::Micros, |op, _| Some(op.response?.mean_us)),
        over(Unit::Micros, |op, _| Some(op.response?.p99_us)),
    ]
}
