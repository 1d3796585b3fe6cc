//! Converts a host's times to our clock: both the times in current messages and those of requests that the host
//! recorded long before.
//!
//! The rule: all times of an item are converted with the same estimate, so that their order never changes.

use std::collections::VecDeque;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_result::{Interval, Outcome, RequestRecord};

use crate::clock::{ClockEstimate, ClockTrack};

/// Initial minimum interval between kept estimates. Clock rates change by 1 ppm over minutes: in ten seconds, that is
/// far less than the error of an estimate.
const EVERY: Duration = Duration::from_secs(10);
/// Maximum number of kept estimates; when full, every other one is dropped and the interval doubles.
const KEPT_MAX: usize = 4096;

/// Estimates of one host's clock, the newest last.
#[derive(Debug)]
pub(super) struct Dates {
    /// Cached since the last round: computing an estimate examines all rounds, which is too slow for each interval.
    newest: Option<ClockEstimate>,
    kept: VecDeque<ClockEstimate>,
    every: Duration,
}

impl Dates {
    pub fn new() -> Dates {
        Dates {
            newest: None,
            kept: VecDeque::new(),
            every: EVERY,
        }
    }

    /// A clock round has completed.
    pub fn round(&mut self) {
        self.newest = None;
    }

    /// The current estimate; `None` if a clock was set.
    pub fn now(&mut self, track: &ClockTrack, now: Nanos) -> Option<ClockEstimate> {
        if self.newest.is_none() {
            self.newest = track.estimate(now);
            self.keep();
        }
        self.newest
    }

    /// Keeps a current estimate if the last one is old enough, because requests made now may arrive later.
    pub fn update(&mut self, track: &ClockTrack, now: Nanos) {
        if self.is_due(now) {
            self.now(track, now);
        }
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.kept
            .back()
            .is_none_or(|last| now.since(last.at) >= self.every)
    }

    fn keep(&mut self) {
        let Some(estimate) = self.newest else { return };
        if !self.is_due(estimate.at) {
            return;
        }
        if self.kept.len() == KEPT_MAX {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
        self.kept.push_back(estimate);
    }

    /// The kept estimate closest to a time on the host's clock, or `newest` if that is closer.
    fn near(&self, theirs: Nanos, newest: ClockEstimate) -> ClockEstimate {
        let their_time = |estimate: &ClockEstimate| estimate.offset.to_theirs(estimate.at);
        let after = self
            .kept
            .partition_point(|estimate| their_time(estimate) < theirs);
        let around = [after.checked_sub(1), Some(after)].into_iter().flatten();
        let around = around
            .filter_map(|index| self.kept.get(index).copied())
            .chain([newest]);
        around
            .min_by_key(|estimate| their_time(estimate).0.abs_diff(theirs.0))
            .unwrap_or(newest)
    }

    /// Converts a single time with the estimate closest to it.
    pub fn ours(&self, theirs: Nanos, newest: ClockEstimate) -> Nanos {
        self.near(theirs, newest).to_ours(theirs)
    }

    /// Converts requests, each with the estimate closest to its time.
    pub fn requests(&self, requests: &mut [RequestRecord], newest: ClockEstimate) {
        for request in requests {
            let estimate = self.near(request.intended, newest);
            let ours = |at: Option<Nanos>| at.map(|at| estimate.to_ours(at));
            (request.sent, request.completed) = (ours(request.sent), ours(request.completed));
            request.intended = estimate.to_ours(request.intended);
        }
    }
}

pub(super) fn dated_interval(
    mut interval: Box<Interval>,
    estimate: &ClockEstimate,
) -> Box<Interval> {
    (interval.start, interval.end) = (
        estimate.to_ours(interval.start),
        estimate.to_ours(interval.end),
    );
    interval
}

pub(super) fn dated_outcome(outcome: Outcome, estimate: &ClockEstimate) -> Outcome {
    let ours = |at: Nanos| match at {
        // A worker that never started.
        Nanos(0) | Nanos::MAX => at,
        at => estimate.to_ours(at),
    };
    let [start, end, began] = [outcome.start, outcome.end, outcome.began].map(ours);
    Outcome {
        start,
        end,
        began,
        ..outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::{OpKind, RequestStatus};

    use crate::clock::{ClockOffset, RateModel};

    fn estimate(at_s: u64, ahead_ns: i64) -> ClockEstimate {
        let offset = ClockOffset {
            low: ahead_ns,
            high: ahead_ns,
        };
        ClockEstimate {
            at: Nanos(at_s * 1_000_000_000),
            offset,
            rate: [0.0; 2],
            model: RateModel::Constant,
        }
    }

    /// With a drifting clock, a request made an hour ago is converted with the estimate of that time, not the current
    /// one.
    #[test]
    fn old_requests_are_converted_with_old_estimates() {
        let mut dates = Dates::new();
        let ahead = |at_s: u64| (at_s * at_s) as i64;
        for at_s in (0..100_000).step_by(10) {
            dates.newest = Some(estimate(at_s, ahead(at_s)));
            dates.keep();
        }
        assert!(dates.kept.len() <= KEPT_MAX && dates.kept[0].at == Nanos(0));
        for at_s in [0, 3600, 50_001, 99_999] {
            let at = Nanos(at_s * 1_000_000_000);
            let theirs = Nanos(at.0 + ahead(at_s) as u64);
            let mut requests = [RequestRecord {
                worker: 0,
                index: 0,
                op: OpKind::Read,
                offset: 0,
                len: 512,
                intended: theirs,
                sent: Some(theirs.after(Duration::from_nanos(5))),
                completed: None,
                retries: 0,
                status: RequestStatus::Good,
            }];
            dates.requests(&mut requests, dates.newest.unwrap());
            let [
                RequestRecord {
                    intended,
                    sent,
                    completed,
                    ..
                },
            ] = requests;
            // Here, estimates are up to 80 s apart, and the clock drifts by 200 µs per second.
            assert!(
                intended.0.abs_diff(at.0) <= 80 * 200_000,
                "{intended:?} of {at:?}"
            );
            assert_eq!(
                (sent, completed),
                (Some(intended.after(Duration::from_nanos(5))), None)
            );
        }
    }
}
