//! Results over time: a series for each figure of each point, and where it changed. `brunt history` prints it.
//!
//! Points are matched by label, and the figures are those that [`crate::compare`] compares: the mean over the complete
//! runs of each result.
//!
//! The rule: a result without a figure is left out of that figure's series. It is never replaced by a zero or by a
//! guess from its neighbours.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::compare::{MetricName, RunFigure, values};
use crate::percentile::Percentile;
use crate::statistics::{Better, ChangePoint, Estimate, Verdict, change_points};
use crate::summary::{PointSummary, Summary};

/// A figure of a point in each result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistorySeries {
    /// The point.
    pub label: String,
    /// `iops`, `mean`, `p99`, `p99.9` and other percentiles.
    pub metric: MetricName,
    /// Unit of the figure.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// Mean over runs in each result; `None` for results without the figure.
    pub values: Vec<Option<f64>>,
    /// The figure's changes, oldest first.
    pub changes: Vec<HistoryChange>,
}

/// A change in a figure between two consecutive results that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryChange {
    /// The first result at the new level, from 0 among all results.
    pub result: usize,
    /// `Better` or `Worse`.
    pub verdict: Verdict,
    /// Levels and certainty. Its `index` counts only the results that have the figure.
    #[serde(flatten)]
    pub change: ChangePoint,
}

impl HistoryChange {
    /// Certainty that something changed: 0.99 or more.
    pub fn confidence(&self) -> f64 {
        1.0 - self.change.p
    }
}

impl HistorySeries {
    /// The last change, if the figure got worse and the new level began within the last `newest` results.
    pub fn newly_worse(&self, newest: usize) -> Option<&HistoryChange> {
        let last = self.changes.last()?;
        let is_new = last.result + newest >= self.values.len();
        (last.verdict == Verdict::Worse && is_new).then_some(last)
    }

    /// Number of results that have the figure.
    pub fn known(&self) -> usize {
        self.values.iter().flatten().count()
    }
}

/// The series of these results, oldest first. Points are in the order in which they first appear; figures that no result
/// has are left out. Changes by a share smaller than `margin` are left out.
pub fn history(results: &[&Summary], margin: f64) -> Vec<HistorySeries> {
    let mut labels: Vec<&str> = Vec::new();
    for point in results.iter().flat_map(|result| &result.points) {
        if !labels.contains(&point.label.as_str()) {
            labels.push(&point.label);
        }
    }
    let chosen = results
        .iter()
        .flat_map(|result| &result.experiment.percentiles);
    let chosen: BTreeSet<Percentile> = chosen.copied().collect();
    let figures = RunFigure::all(&Vec::from_iter(chosen));
    let mut all = Vec::new();
    for label in labels {
        let of = |result: &&Summary| result.points.iter().position(|point| point.label == label);
        let points: Vec<Option<&PointSummary>> = results
            .iter()
            .map(|result| of(result).map(|place| &result.points[place]))
            .collect();
        let series = figures
            .iter()
            .map(|figure| series(label, &points, *figure, margin));
        all.extend(series.filter(|series| series.known() > 0));
    }
    all
}

fn series(
    label: &str,
    points: &[Option<&PointSummary>],
    figure: RunFigure,
    margin: f64,
) -> HistorySeries {
    let mean =
        |point: &PointSummary| Some(Estimate::of(&values(point, &|run| figure.of_run(run)))?.mean);
    let values: Vec<Option<f64>> = points.iter().map(|point| mean((*point)?)).collect();
    // The index, among all results, of the result that each value of the series comes from.
    let (places, known): (Vec<usize>, Vec<f64>) = values
        .iter()
        .enumerate()
        .filter_map(|(place, value)| Some((place, (*value)?)))
        .unzip();
    let matters = |change: &ChangePoint| {
        change
            .ratio
            .is_none_or(|ratio| (ratio - 1.0).abs() >= margin)
    };
    let changes = change_points(&known)
        .into_iter()
        .filter(matters)
        .map(|change| {
            let is_up = change.after > change.before;
            HistoryChange {
                result: places[change.index],
                verdict: match is_up == (figure.better() == Better::Higher) {
                    true => Verdict::Better,
                    false => Verdict::Worse,
                },
                change,
            }
        });
    HistorySeries {
        label: label.to_string(),
        metric: figure.name(),
        unit: figure.unit(),
        better: figure.better(),
        changes: changes.collect(),
        values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::summary::tests::{empty, op, point, run};

    /// A result whose point has two runs with this many requests, each of which took this many microseconds.
    fn result(label: &str, completed: u64, us: f64) -> Summary {
        let runs = [-1.0, 1.0].map(|way| run(vec![op(OpKind::Read, completed, us + way)]));
        Summary {
            points: vec![point(label, runs.to_vec())],
            ..empty()
        }
    }

    fn of(results: &[Summary], margin: f64) -> Vec<HistorySeries> {
        history(&results.iter().collect::<Vec<_>>(), margin)
    }

    /// Twelve results, the last four of them slower.
    fn slower() -> Vec<Summary> {
        let each = (0..12).map(|one| {
            let slow = if one < 8 { 0 } else { 1 };
            let wobble = one * 7 % 5;
            result(
                "a",
                8000 - slow * 1500 + wobble,
                100.0 + (slow * 20 + wobble) as f64,
            )
        });
        each.collect()
    }

    #[test]
    fn a_change_has_its_result_direction_and_figures() {
        let all = of(&slower(), 0.0);
        let names: Vec<&str> = all.iter().map(|series| &*series.metric).collect();
        assert_eq!(names, ["iops", "mean", "p99", "p99.9"]);
        for series in &all {
            let [change] = &series.changes[..] else {
                panic!("{series:?}");
            };
            assert_eq!((change.result, change.verdict), (8, Verdict::Worse));
            assert!(change.confidence() > 0.99);
        }
        let ratio = all[0].changes[0].change.ratio.unwrap();
        assert!((ratio - 0.8125).abs() < 0.001, "{ratio}");
        assert_eq!(all[1].values[0], Some(100.0));
    }

    /// Only the last change counts, and only while it is new.
    #[test]
    fn a_regression_is_new_for_a_few_results() {
        let mut results = slower();
        let is_new =
            |results: &[Summary], newest| of(results, 0.0)[0].newly_worse(newest).is_some();
        assert!(is_new(&results, 4) && !is_new(&results, 3));
        results.extend((0..6).map(|one| result("a", 8000 + one % 3, 100.0)));
        assert!(!is_new(&results, 100), "it recovered");
    }

    #[test]
    fn changes_below_the_margin_are_left_out() {
        let changes = |margin| of(&slower(), margin)[0].changes.len();
        assert_eq!((changes(0.18), changes(0.19)), (1, 0));
    }

    /// A result without the point, without the figure or without a complete run leaves a gap, and positions count all
    /// results.
    #[test]
    fn what_is_absent_is_a_gap() {
        let mut results = slower();
        results.insert(2, result("b", 10, 1.0));
        results.insert(3, result("a", 100, 1.0));
        for run in &mut results[3].points[0].runs {
            run.stopped = crate::Stopped::Interrupted;
        }
        results[0].points[0].runs[0].response = None;
        results[0].points[0].runs[1].response = None;
        let all = of(&results, 0.0);
        let labels: Vec<(&str, &str)> = all
            .iter()
            .map(|series| (&series.label[..], &*series.metric))
            .collect();
        assert_eq!(labels[..2], [("a", "iops"), ("a", "mean")]);
        assert_eq!(labels[4], ("b", "iops"));
        assert_eq!(all[0].known(), 12);
        assert_eq!((all[0].values[2], all[0].values[3]), (None, None));
        assert_eq!(all[1].values[0], None);
        assert_eq!(all[0].changes[0].result, 10);
        assert_eq!(all[4].known(), 1);
    }
}
