//! Results of the queue depth search, if the experiment has one.

use brunt_result::choice::{DepthChoice, DepthTrial};
use brunt_result::summary::{PointSummary, Summary};

use super::points::Points;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Cell, PageTable, Section};

/// Maximum number of lines in the chart; the table has all points.
const LINES_MAX: usize = 8;

/// A point whose queue depth was searched.
type Searched<'a> = (&'a PointSummary, &'a DepthChoice);

/// `None` without a depth search.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let searched: Vec<Searched<'_>> = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.depth.as_ref()?)))
        .collect();
    if searched.is_empty() {
        return None;
    }
    let mut section = Section::new("Queue depth found");
    section.prose(
        "Before a point's first run, the queue depth was doubled until two doublings brought no improvement. The smallest depth that reached 97 % of the best throughput was used.",
    );
    section.chart(throughput_by_depth(&searched, points));
    let columns = [
        "point",
        "chosen",
        "at that depth",
        "at the first",
        "best",
        "trials",
    ];
    let rows = searched.iter().map(|one| row(one, points));
    section.table(PageTable::new("Depths", &columns, rows));
    Some(section)
}

/// Draws a line for each of the first points.
fn throughput_by_depth(searched: &[Searched<'_>], points: &Points<'_>) -> Chart {
    let mut depths: Vec<u32> = searched
        .iter()
        .flat_map(|(_, depth)| depth.trials.iter().map(|trial| trial.queue_depth))
        .collect();
    depths.sort_unstable();
    depths.dedup();
    let line = |(index, (point, depth)): (usize, &Searched<'_>)| {
        let at = |wanted: &u32| Some(trial_at(depth, *wanted)?.bytes_per_second);
        Series::new(
            points.full_name(point),
            SeriesRole::Nominal(index),
            depths.iter().map(at).collect(),
        )
    };
    let lines = searched.iter().take(LINES_MAX).enumerate().map(line);
    let lines = lines.collect();
    let xs: Vec<f64> = depths.iter().map(|depth| f64::from(*depth)).collect();
    let x = Axis {
        ticks: xs.clone(),
        ..Axis::new("requests outstanding", Unit::Count, Scale::Log)
    };
    let y = Axis::new("transfer", Unit::BytesPerSecond, Scale::FromZero);
    Chart::lines("Throughput by queue depth", x, y, xs, lines)
}

/// A point's depth, with the throughput at that depth, at the first depth tried and at the best one.
fn row((point, depth): &Searched<'_>, points: &Points<'_>) -> Vec<Cell> {
    let best = depth
        .trials
        .iter()
        .map(|trial| trial.bytes_per_second)
        .fold(0.0, f64::max);
    let rate = |rate: f64| Cell::number(Unit::BytesPerSecond.show(rate));
    let rate_of = |trial: Option<&DepthTrial>| {
        trial.map_or(Cell::Empty, |trial| rate(trial.bytes_per_second))
    };
    vec![
        Cell::text(points.full_name(point)),
        Cell::number(Unit::Count.show(f64::from(depth.queue_depth))),
        rate_of(trial_at(depth, depth.queue_depth)),
        rate_of(depth.trials.first()),
        rate(best),
        Cell::number(Unit::Count.show(depth.trials.len() as f64)),
    ]
}

fn trial_at(depth: &DepthChoice, queue_depth: u32) -> Option<&DepthTrial> {
    depth
        .trials
        .iter()
        .find(|trial| trial.queue_depth == queue_depth)
}
