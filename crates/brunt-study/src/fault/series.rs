//! The series of a run's intervals from which [`brunt_result::degradation`] computes the effects of its
//! faults, collected by the schedule during the run.

use brunt_core::Nanos;
use brunt_result::{Figures, Interval, Outcome, RequestStatus};

use brunt_result::degradation::IntervalFigures;

/// The intervals of one run, in their order.
#[derive(Default)]
pub(super) struct Series {
    /// Begin and end of each, and what happened in it; its times are not filled in yet.
    intervals: Vec<(Nanos, Nanos, IntervalFigures)>,
}

impl Series {
    /// Keeps one. Called once an interval by the collecting thread.
    pub fn push(&mut self, interval: &Interval) {
        self.intervals
            .push((interval.start, interval.end, stretch(&interval.figures)));
    }

    /// With their times from the start of measuring, which is known when the run is over.
    pub fn of(&self, outcome: &Outcome) -> Vec<IntervalFigures> {
        let seconds = |at: Nanos| (at.0 as f64 - outcome.start.0 as f64) / 1e9;
        let timed = |&(start, end, stretch): &(Nanos, Nanos, IntervalFigures)| IntervalFigures {
            start_s: seconds(start),
            end_s: seconds(end),
            ..stretch
        };
        self.intervals.iter().map(timed).collect()
    }
}

/// What degradation is computed from.
fn stretch(figures: &Figures) -> IntervalFigures {
    // Two thirds of a megabyte are copied only if there are several kinds.
    let together;
    let mut done = figures
        .ops()
        .filter(|(_, op)| op.completed > 0)
        .map(|(_, op)| &op.response);
    let response = match (done.next(), done.next()) {
        (Some(only), None) => only,
        _ => {
            together = figures.response();
            &together
        }
    };
    let failed = RequestStatus::ALL
        .into_iter()
        .filter(|status| *status != RequestStatus::Good);
    IntervalFigures {
        requests: figures.headline_completed(),
        bytes: figures.bytes(),
        failed: failed.map(|status| figures.counts.of(status)).sum(),
        response_mean_us: response.mean().map(|nanos| nanos / 1e3),
        response_p99_us: response.percentile(99.0).map(|nanos| nanos.0 as f64 / 1e3),
        ..IntervalFigures::default()
    }
}
