//! One figure of all runs of an experiment, in the order in which they were made, and the intervals of its means. A study
//! asks for those of its points, the rows of kinds of operations for theirs.
//!
//! The rule: whatever shows a mean over runs takes its interval from here, so that one mean has one interval. Jobs that
//! ran at once, and kinds of operations, have the correlation of the runs that they were parts of.

use std::collections::BTreeMap;

use crate::statistics::{Estimate, RunCorrelation};
use crate::summary::{PointSummary, RunSummary};

/// One figure of the complete runs of all points.
pub struct CorrelatedFigure {
    get: fn(&RunSummary) -> Option<f64>,
    /// By a run's number among all, jobs' runs left out: its place in their order.
    places: BTreeMap<u32, u32>,
    correlation: RunCorrelation,
}

impl CorrelatedFigure {
    /// How alike the figure is in runs that followed each other.
    pub fn of(points: &[PointSummary], get: fn(&RunSummary) -> Option<f64>) -> CorrelatedFigure {
        let heads = || points.iter().filter(|point| point.part_of.is_none());
        let mut orders: Vec<u32> = heads()
            .flat_map(|point| &point.runs)
            .map(|run| run.order)
            .collect();
        orders.sort_unstable();
        let places = orders.into_iter().zip(0..).collect();
        let mut figure = CorrelatedFigure {
            get,
            places,
            correlation: RunCorrelation::NONE,
        };
        figure.correlation =
            RunCorrelation::of(&heads().map(|point| figure.runs(point)).collect::<Vec<_>>());
        figure
    }

    /// The figure in each complete run of a point, with the run's place in the order of all; a job's with that of the run
    /// that it was a part of.
    pub fn runs(&self, point: &PointSummary) -> Vec<(u32, f64)> {
        self.parts(point, self.get)
    }

    /// The correlation of runs that were made one after the other.
    pub fn correlation(&self) -> RunCorrelation {
        self.correlation
    }

    /// Its mean over the complete runs of a point.
    pub fn estimate(&self, point: &PointSummary) -> Option<Estimate> {
        self.estimate_part(point, self.get)
    }

    /// The same of a part of each run.
    pub fn estimate_part(
        &self,
        point: &PointSummary,
        get: impl Fn(&RunSummary) -> Option<f64>,
    ) -> Option<Estimate> {
        Estimate::of_correlated(&self.parts(point, get), self.correlation)
    }

    /// A part of each complete run of a point, with the run's place in the order of all.
    pub(crate) fn parts(
        &self,
        point: &PointSummary,
        get: impl Fn(&RunSummary) -> Option<f64>,
    ) -> Vec<(u32, f64)> {
        // The run of all jobs together is the last one before a job's.
        let place = |order: u32| {
            self.places
                .range(..=order)
                .next_back()
                .map_or(0, |(_, place)| *place)
        };
        let complete = point.runs.iter().filter(|run| run.is_complete());
        complete
            .filter_map(|run| Some((place(run.order), get(run)?)))
            .collect()
    }
}
