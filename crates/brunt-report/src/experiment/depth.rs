//! Results of the queue depth search, if the experiment has one.

use brunt_result::summary::Summary;

use super::points::Points;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Cell, PageTable, Section};

/// Maximum number of lines in the chart; the table has all.
const LINES_MAX: usize = 8;

/// `None` without a depth search.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let found: Vec<_> = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.depth.as_ref()?)))
        .collect();
    if found.is_empty() {
        return None;
    }
    let rows = found.iter().map(|(point, depth)| {
        let best = depth
            .trials
            .iter()
            .map(|trial| trial.bytes_per_second)
            .fold(0.0, f64::max);
        let chosen = depth
            .trials
            .iter()
            .find(|trial| trial.queue_depth == depth.queue_depth);
        let first = depth.trials.first();
        let rate = |rate: Option<f64>| {
            rate.map_or(Cell::Empty, |rate| {
                Cell::number(Unit::BytesPerSecond.show(rate))
            })
        };
        vec![
            Cell::text(points.full_name(point)),
            Cell::number(Unit::Count.show(f64::from(depth.queue_depth))),
            rate(chosen.map(|trial| trial.bytes_per_second)),
            rate(first.map(|trial| trial.bytes_per_second)),
            rate(Some(best)),
            Cell::number(Unit::Count.show(depth.trials.len() as f64)),
        ]
    });
    let mut section = Section::new("Queue depth found");
    section.prose(
        "Before a point's first run, the queue depth was doubled until two doublings brought no improvement. The smallest depth that reached 97 % of the best throughput was used.",
    );
    let mut depths: Vec<u32> = found
        .iter()
        .flat_map(|(_, depth)| depth.trials.iter().map(|trial| trial.queue_depth))
        .collect();
    depths.sort_unstable();
    depths.dedup();
    let lines = found
        .iter()
        .take(LINES_MAX)
        .enumerate()
        .map(|(index, (point, depth))| {
            let at = |wanted: &u32| {
                let trial = depth
                    .trials
                    .iter()
                    .find(|trial| trial.queue_depth == *wanted);
                trial.map(|trial| trial.bytes_per_second)
            };
            Series::new(
                points.full_name(point),
                SeriesRole::Nominal(index),
                depths.iter().map(at).collect(),
            )
        });
    let lines = lines.collect();
    let xs: Vec<f64> = depths.iter().map(|depth| f64::from(*depth)).collect();
    let x = Axis {
        ticks: xs.clone(),
        ..Axis::new("requests outstanding", Unit::Count, Scale::Log)
    };
    let y = Axis::new("transfer", Unit::BytesPerSecond, Scale::FromZero);
    section.chart(Chart::lines("Throughput by queue depth", x, y, xs, lines));
    let columns = [
        "point",
        "chosen",
        "at that depth",
        "at the first",
        "best",
        "trials",
    ];
    section.table(PageTable::new("Depths", &columns, rows));
    Some(section)
}
