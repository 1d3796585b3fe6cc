//! The sequence of a run's intervals from which [`brunt_result::degradation`] computes the effects of the run's
//! faults, collected by the schedule during the run.
//!
//! The rule: an interval takes at most a few hundred bytes, because all intervals stay in memory until the faults of
//! every run of a point have been judged together.

use brunt_core::Nanos;
use brunt_result::{Interval, Outcome, RequestStatus};

use brunt_result::degradation::{IntervalFigures, IntervalTimes, WaitingFigures};

/// The intervals of one run, in order.
#[derive(Default)]
pub(super) struct Series {
    /// The start, the end and the figures of each interval; the times in the figures are filled in later.
    intervals: Vec<(Nanos, Nanos, IntervalFigures)>,
}

impl Series {
    /// Adds an interval. Called by the collecting thread, once per interval.
    pub fn push(&mut self, interval: &Interval) {
        self.intervals
            .push((interval.start, interval.end, stretch(interval)));
    }

    /// The intervals with times counted from the start of measuring, which is known only after the run.
    pub fn of(self, outcome: &Outcome) -> Vec<IntervalFigures> {
        let seconds = |at: Nanos| (at.0 as f64 - outcome.start.0 as f64) / 1e9;
        let timed = |(start, end, stretch): (Nanos, Nanos, IntervalFigures)| IntervalFigures {
            start_s: seconds(start),
            end_s: seconds(end),
            ..stretch
        };
        self.intervals.into_iter().map(timed).collect()
    }
}

/// The figures from which the degradation is computed.
fn stretch(interval: &Interval) -> IntervalFigures {
    let figures = &interval.figures;
    // Copy the histograms (two thirds of a megabyte) only if there are several kinds of operations.
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
        response_max_us: response.max().map(|nanos| nanos.0 as f64 / 1e3),
        waiting: Some(WaitingFigures::of(&interval.waiting)),
        times: Some(IntervalTimes::of(response, &interval.waiting)),
        ..IntervalFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Histogram;
    use brunt_result::Figures;
    use brunt_result::OpKind;
    use brunt_result::degradation::{FaultSpan, PhaseFigures, of_run, phases};

    const INTERVALS: u64 = 60;
    const LENGTH: u64 = 100_000_000;
    const STALL: (u64, u64) = (2_000_000_000, 3_000_000_000);
    const SERVICE: u64 = 4_000_000;

    /// The intervals of requests, given the times when each request is due and completes.
    fn series(requests: &[(u64, u64)]) -> Vec<IntervalFigures> {
        let mut series = Series::default();
        for index in 0..INTERVALS {
            let (start, end) = (index * LENGTH, (index + 1) * LENGTH);
            let mut figures = Figures::of_kinds(&[OpKind::Read]);
            let mut waiting = Histogram::new();
            for (due, done) in requests {
                if (start..end).contains(done) {
                    figures.at(0).completed += 1;
                    figures.at(0).response.record(Nanos(done - due));
                } else if *due < end && *done >= end {
                    waiting.record(Nanos(end - due));
                }
            }
            series.push(&Interval {
                index,
                start: Nanos(start),
                end: Nanos(end),
                figures,
                waiting,
            });
        }
        let outcome = Outcome {
            start: Nanos(0),
            ..Outcome::interrupted()
        };
        series.of(&outcome)
    }

    /// When a request that is due at `due` completes.
    fn done(due: u64) -> u64 {
        match due + SERVICE {
            done if (STALL.0..STALL.1).contains(&done) => STALL.1,
            done => done,
        }
    }

    /// Requests of a closed loop with `depth` slots; during the stall, requests stop completing in all slots but
    /// `alive`.
    fn closed(depth: usize, alive: usize) -> Vec<(u64, u64)> {
        let slot = |slot: usize| {
            let next = move |due: &u64| match slot < alive {
                true => Some(due + SERVICE),
                false => Some(done(*due)),
            };
            let due = std::iter::successors(Some(0), next);
            due.map(move |due| (due, next(&due).unwrap_or(due)))
                .take_while(|(due, _)| *due < INTERVALS * LENGTH)
        };
        (0..depth).flat_map(slot).collect()
    }

    fn open(per_second: u64) -> Vec<(u64, u64)> {
        let all = INTERVALS * LENGTH * per_second / 1_000_000_000;
        let due = (0..all).map(|index| index * 1_000_000_000 / per_second);
        due.map(|due| (due, done(due))).collect()
    }

    /// Mean, 99th percentile and maximum in microseconds over all requests that completed in the period or were due
    /// by its end (those still waiting count with their age at that time), and the number of requests waiting at the
    /// end.
    fn truth(requests: &[(u64, u64)], (from, to): (u64, u64)) -> (f64, f64, f64, u64) {
        let there = requests
            .iter()
            .filter(|(due, done)| *done >= from && *due < to);
        let time = |(due, done): &(u64, u64)| ((*done).min(to) - due) as f64 / 1e3;
        let mut times: Vec<f64> = there.clone().map(time).collect();
        times.sort_by(f64::total_cmp);
        let rank = (times.len() * 99).div_ceil(100);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let waiting = there.filter(|(_, done)| *done >= to).count();
        (
            mean,
            times[rank - 1],
            times[times.len() - 1],
            waiting as u64,
        )
    }

    fn near(name: &str, found: Option<f64>, truth: f64, share: f64) {
        let found = found.unwrap_or(f64::NAN);
        let off = (found / truth - 1.0).abs();
        assert!(off <= share, "{name}: {found} is not {truth}");
    }

    /// The figures of a stall match the arithmetic, in closed and open loops, with all or most slots stalled, and
    /// whether or not the fault ends with an interval.
    #[test]
    fn a_stall_shows_in_its_phase() {
        let check = |name: &str, requests: &[(u64, u64)], end: u64, share: f64| {
            let series = series(requests);
            let span = FaultSpan {
                start_s: STALL.0 as f64 / 1e9,
                end_s: Some(end as f64 / 1e9),
            };
            let phases: Vec<PhaseFigures> = phases(&series, &[("stall", span)]);
            let [before, during, _] = &phases[..] else {
                panic!("{name}: {phases:?}");
            };
            let (mean, p99, max, waiting) = truth(requests, (STALL.0, end));
            near(name, during.response_mean_us, mean, share);
            near(name, during.response_p99_us, p99, share.max(0.01));
            near(name, during.response_max_us, max, 1e-9);
            near(name, during.waiting_oldest_us, max, 1e-9);
            near(
                name,
                during.waiting_requests.map(|n| n as f64),
                waiting as f64,
                share,
            );
            // The fault's cost has the same figures as the stall.
            let cost = of_run(&series, &[span], 0).expect("a baseline");
            let (of_mean, of_p99) = (cost.response_mean.unwrap(), cost.response_p99.unwrap());
            assert_eq!(before.response_mean_us, Some(of_mean.baseline_us));
            near(name, before.response_mean_us, SERVICE as f64 / 1e3, 0.01);
            near(
                name,
                of_mean.factor,
                mean * 1e3 / SERVICE as f64,
                share.max(0.01),
            );
            near(
                name,
                of_p99.factor,
                p99 * 1e3 / SERVICE as f64,
                share.max(0.02),
            );
            for answer in [of_mean.detected, of_mean.recovered, of_p99.detected] {
                assert!(answer.seconds().is_some(), "{name}: {answer:?}");
            }
        };
        // Within an interval, the number of requests due by the fault's end is unknown.
        for (end, of_edge) in [(STALL.1, 1e-3), (STALL.1 - LENGTH / 4, 0.1)] {
            check("closed", &closed(32, 0), end, 1e-3);
            check("one of 32 goes on", &closed(32, 1), end, of_edge);
            check("open", &open(900), end, of_edge);
        }
    }
}
