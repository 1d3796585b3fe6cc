//! Estimates over the runs of each point: means with their intervals, precision, and the cost of sticky faults. A
//! study makes them at its end, or before each round if it has a precision target; readers make them for an
//! unfinished result.
//!
//! The rule: estimates are computed from the runs of all points alone, so they are the same for every caller.

use crate::correlated::CorrelatedFigure;
use crate::experiment::{ArrivalKind, ExperimentSummary};
use crate::normal::sticky_cost;
use crate::statistics::{PointPrecision, PreciseFigure};
use crate::sticky::StickyCost;
use crate::summary::PointSummary;

/// Estimates each figure of every point. The correlation of successive runs is computed from all of them. `precision` is
/// the half-width that the experiment aims at, as a share of the mean.
pub fn estimate(
    points: &mut [PointSummary],
    experiment: &ExperimentSummary,
    precision: Option<f64>,
) {
    let requests = CorrelatedFigure::of(points, |run| Some(run.requests_per_second));
    let bytes = CorrelatedFigure::of(points, |run| Some(run.bytes_per_second));
    let response_mean = CorrelatedFigure::of(points, |run| Some(run.response?.mean_us));
    let p99 = CorrelatedFigure::of(points, |run| Some(run.response?.p99_us));
    for point in points.iter_mut() {
        point.requests_per_second = requests.estimate(point);
        point.bytes_per_second = bytes.estimate(point);
        point.response_mean_us = response_mean.estimate(point);
        point.response_p99_us = p99.estimate(point);
        let workload = experiment.workloads.get(&point.workload);
        let open = workload.is_some_and(|workload| workload.arrival == ArrivalKind::Open);
        // The rate of an open loop is a setting.
        let (figure, name) = match open {
            true => (&response_mean, PreciseFigure::ResponseMeanUs),
            false => (&requests, PreciseFigure::RequestsPerSecond),
        };
        point.precision = precision
            .map(|goal| PointPrecision::of(&figure.runs(point), figure.correlation(), goal, name));
    }
    let sticky: Vec<Option<StickyCost>> = points
        .iter()
        .map(|point| sticky_cost(point, points))
        .collect();
    for (point, sticky) in points.iter_mut().zip(sticky) {
        point.sticky = sticky;
    }
}
