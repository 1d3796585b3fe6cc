//! Charts of a load's points under different conditions (normal, with transient faults, with sticky faults), and the
//! cost of sticky faults compared with the normal point.
//!
//! The rule: a curve is one measured run, the one with median throughput, never an average over runs.

use brunt_result::statistics::Estimate;
use brunt_result::sticky::StickyCost;
use brunt_result::summary::{PointSummary, Summary};

use super::details::{Details, REQUESTS, RunDetails};
use super::faults::share;
use super::points::{Points, with_uncertainty};
use super::timeline::chosen;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Block, Cell, PageTable};

/// Maximum number of charts; each point has its own chart on the page anyway.
const CHARTS_MAX: usize = 12;
/// Maximum number of curves in a chart.
const CURVES_MAX: usize = 6;

/// The table of sticky faults and a chart for each normal point; empty if there is neither.
pub(super) fn blocks(summary: &Summary, points: &Points<'_>, details: &Details) -> Vec<Block> {
    let mut blocks = Vec::new();
    let rows: Vec<Vec<Cell>> = summary
        .points
        .iter()
        .filter_map(|point| Some(row(points.full_name(point), point.sticky.as_ref()?)))
        .collect();
    if !rows.is_empty() {
        let columns = [
            "point",
            "faults",
            "against",
            "rate without",
            "drop",
            "mean",
            "p99",
            "failed",
        ];
        let caption = "Faults that last for whole runs, compared with the point without faults";
        blocks.push(Block::Table(PageTable::new(caption, &columns, rows)));
        blocks.push(Block::Prose(
            "Drop: share of the normal point's rate that is lost. Mean and p99: ratios of response times. Means over the \
             rounds in which both points have a complete run, with 95 % confidence intervals."
                .into(),
        ));
    }
    let normal = |point: &&PointSummary| {
        let mut others = summary.points.iter();
        others.any(|other| other.normal.as_ref() == Some(&point.label))
    };
    let normal = summary.points.iter().filter(normal).take(CHARTS_MAX);
    blocks.extend(normal.filter_map(|normal| chart(summary, points, details, normal)));
    blocks
}

fn row(point: String, cost: &StickyCost) -> Vec<Cell> {
    let factor = |factor: Option<Estimate>| match factor {
        Some(known) => {
            let (value, uncertainty) = with_uncertainty(&known, Unit::Count);
            Cell::Estimate(format!("× {value}"), uncertainty)
        }
        None => Cell::Empty,
    };
    vec![
        Cell::text(point),
        Cell::text(cost.name()),
        Cell::text(&cost.normal),
        cost.baseline.map_or(Cell::Empty, |rate| {
            let (value, uncertainty) = with_uncertainty(&rate, Unit::PerSecond);
            Cell::Estimate(value, uncertainty)
        }),
        share(&cost.drop),
        factor(cost.response_mean_factor),
        factor(cost.response_p99_factor),
        share(&cost.failed_share),
    ]
}

/// The throughput over time of a normal point and of the points that are compared with it.
fn chart(
    summary: &Summary,
    points: &Points<'_>,
    details: &Details,
    normal: &PointSummary,
) -> Option<Block> {
    let chosen = chosen(summary);
    let run_of = |point: &PointSummary| -> Option<(String, &RunDetails)> {
        let index = summary
            .points
            .iter()
            .position(|other| other.label == point.label)?;
        let one = chosen.iter().find(|one| one.point == index)?;
        let known = details.runs.get(&one.run.order)?;
        (known.line.pushed() > 1).then(|| (points.full_name(point), known))
    };
    let others = summary
        .points
        .iter()
        .filter(|point| point.normal.as_ref() == Some(&normal.label));
    let all = std::iter::once(normal).chain(others);
    let curves: Vec<(String, &RunDetails)> = all.take(CURVES_MAX).filter_map(run_of).collect();
    if curves.len() < 2 {
        return None;
    }
    let places = curves.iter().map(|(_, known)| known.line.places());
    let places = places.max_by_key(Vec::len)?;
    let series = curves.iter().enumerate().map(|(index, (name, known))| {
        let values = known.line.at(REQUESTS, &places);
        Series::new(name.clone(), SeriesRole::Nominal(index), values)
    });
    let series = series.collect();
    let x = Axis::new("time", Unit::Seconds, Scale::Linear);
    let y = Axis::new("requests per second", Unit::PerSecond, Scale::FromZero);
    let title = "Normal, and under faults";
    let chart = Chart::curves(title, x, y, places, series);
    Some(Block::of(chart.caption(
        "Each point's run with median throughput, for the same load on targets that are defined in the same way.",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::summary::RunSummary;
    use brunt_result::{Outcome, Stopped};

    use crate::experiment::details::StoredInterval;

    /// Each sticky fault has a row, and the points of a load share a chart with one curve per point.
    #[test]
    fn conditions_share_a_table_and_a_chart() {
        let text = r#"{ "format": 2, "brunt": "", "complete": true, "points": [],
            "experiment": { "name": "", "repetitions": 4, "seed": 1, "targets": {}, "workloads": {}, "toml": "" } }"#;
        let mut summary: Summary = serde_json::from_str(text).expect("a summary");
        let mut details = Details::default();
        assert!(blocks(&summary, &Points::of(&summary), &details).is_empty());
        let run = |order: u32| {
            let outcome = Outcome {
                stopped: Stopped::Done,
                ..Outcome::interrupted()
            };
            RunSummary::of(&outcome, 0, order, 1, None)
        };
        let point = |target: &str, order: u32| PointSummary {
            label: format!("{target} reads"),
            target: target.into(),
            workload: "reads".into(),
            runs: vec![run(order)],
            ..PointSummary::default()
        };
        let sticky = StickyCost {
            faults: vec!["far".into()],
            normal: "normal reads".into(),
            rounds: 2,
            baseline: Estimate::of(&[1000.0]),
            drop: Estimate::of(&[0.5]),
            lost_requests_per_second: None,
            response_mean_factor: None,
            response_p99_factor: None,
            failed_share_before: None,
            failed_share: None,
        };
        let of_sticky = PointSummary {
            normal: Some("normal reads".into()),
            sticky: Some(sticky),
            ..point("sticky", 1)
        };
        summary.points = vec![point("normal", 0), of_sticky];
        for order in 0..2 {
            let mut known = RunDetails::lines(40);
            for second in 0..4 {
                known.interval(&StoredInterval {
                    start_s: f64::from(second),
                    end_s: f64::from(second) + 1.0,
                    completed: 100,
                    ..StoredInterval::default()
                });
            }
            details.runs.insert(order, known);
        }
        let blocks = blocks(&summary, &Points::of(&summary), &details);
        let [Block::Table(table), Block::Prose(_), Block::Chart(chart)] = &blocks[..] else {
            panic!("{blocks:?}");
        };
        assert_eq!((table.rows.len(), chart.series.len()), (1, 2));
        assert!(format!("{:?}", table.rows).contains("normal reads"));
    }
}
