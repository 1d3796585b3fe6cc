//! One figure over all runs of an experiment, in the order in which they were made, and confidence intervals of its
//! means. A study uses it for points; rows of kinds of operations use it too.
//!
//! The rule: everything that shows a mean over runs takes its interval from here, so that one mean has one interval.
//! Concurrent jobs and kinds of operations use the correlation of the runs that they were part of.

use std::collections::BTreeMap;

use crate::statistics::{Estimate, RunCorrelation};
use crate::summary::{PointSummary, RunSummary};

/// Returns a figure of a run.
type GetFigure = dyn Fn(&RunSummary) -> Option<f64>;

/// One figure of the complete runs of all points.
pub struct CorrelatedFigure {
    get: Box<GetFigure>,
    /// Position of each run among all runs, by run number; runs of single jobs are left out.
    places: BTreeMap<u32, u32>,
    correlation: RunCorrelation,
}

impl CorrelatedFigure {
    /// Measures how correlated the figure is in consecutive runs.
    pub fn of(
        points: &[PointSummary],
        get: impl Fn(&RunSummary) -> Option<f64> + 'static,
    ) -> CorrelatedFigure {
        let heads = || points.iter().filter(|point| point.part_of.is_none());
        let mut orders: Vec<u32> = heads()
            .flat_map(|point| &point.runs)
            .map(|run| run.order)
            .collect();
        orders.sort_unstable();
        let places = orders.into_iter().zip(0..).collect();
        let mut figure = CorrelatedFigure {
            get: Box::new(get),
            places,
            correlation: RunCorrelation::NONE,
        };
        figure.correlation =
            RunCorrelation::of(&heads().map(|point| figure.runs(point)).collect::<Vec<_>>());
        figure
    }

    /// The figure in each complete run of a point, with the run's position in the order of all runs. A job's run has
    /// the position of the run that it was part of.
    pub fn runs(&self, point: &PointSummary) -> Vec<(u32, f64)> {
        self.parts(point, &self.get)
    }

    /// The correlation of consecutive runs.
    pub fn correlation(&self) -> RunCorrelation {
        self.correlation
    }

    /// Mean over the complete runs of a point.
    pub fn estimate(&self, point: &PointSummary) -> Option<Estimate> {
        self.estimate_part(point, &self.get)
    }

    /// Mean of a part of each run.
    pub fn estimate_part(
        &self,
        point: &PointSummary,
        get: impl Fn(&RunSummary) -> Option<f64>,
    ) -> Option<Estimate> {
        Estimate::of_correlated(&self.parts(point, get), self.correlation)
    }

    /// A part of each complete run of a point, with the run's position in the order of all runs.
    pub(crate) fn parts(
        &self,
        point: &PointSummary,
        get: impl Fn(&RunSummary) -> Option<f64>,
    ) -> Vec<(u32, f64)> {
        // The run of all jobs together is the last one before a job's run.
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
