//! Detects the steady state of a run from its rounds, by the criteria of [`brunt_result::steady`]. Pure except for the
//! rounds, which are built from merged intervals.

use std::collections::VecDeque;
use std::time::Duration;

use brunt_result::steady::{ROUNDS_KEPT, SteadyFigure, SteadyRounds, SteadyRule};
use brunt_result::{Figures, Interval, Stopped};

use crate::load::SteadyGoal;

/// The most recent rounds.
#[derive(Clone, Debug, Default)]
pub struct SteadyState {
    rule: SteadyRule,
    window: VecDeque<f64>,
}

impl SteadyState {
    /// Creates a test with this rule.
    pub fn new(rule: SteadyRule) -> SteadyState {
        SteadyState {
            rule,
            ..SteadyState::default()
        }
    }

    /// Adds a round's figure; returns true if the state is now steady.
    pub fn round(&mut self, value: f64) -> bool {
        if self.window.len() == self.rule.window {
            self.window.pop_front();
        }
        self.window.push_back(value);
        self.rule.is_met(self.window.make_contiguous())
    }
}

/// The rounds of a run, built from its merged intervals.
pub(super) struct Rounds {
    goal: SteadyGoal,
    /// Figures of the most recent rounds, at most [`ROUNDS_KEPT`].
    values: VecDeque<f64>,
    count: u32,
    /// Number of intervals still to skip before the first round.
    left_out: u64,
    /// Number of intervals per round.
    intervals: u64,
    seen: u64,
    round: RoundSums,
}

/// Sums over the current round.
#[derive(Default)]
struct RoundSums {
    requests: u64,
    bytes: u64,
    served: u64,
    service_nanos: u128,
}

impl RoundSums {
    fn add(&mut self, figures: &Figures) {
        self.requests += figures.headline_completed();
        self.bytes += figures.bytes();
        for (_, op) in figures.ops() {
            self.served += op.service.count();
            self.service_nanos += op.service.sum_nanos();
        }
    }

    /// Returns the figure of a round of this length in seconds, in the unit of [`SteadyRounds::values`].
    fn figure(&self, figure: SteadyFigure, round_s: f64) -> f64 {
        match figure {
            SteadyFigure::Requests => self.requests as f64 / round_s,
            SteadyFigure::Bytes => self.bytes as f64 / round_s,
            SteadyFigure::ServiceTime => {
                self.service_nanos as f64 / self.served.max(1) as f64 / 1e3
            }
        }
    }
}

impl Rounds {
    /// Creates rounds from intervals of this length.
    pub(super) fn new(goal: SteadyGoal, interval: Duration) -> Rounds {
        let interval = interval.max(Duration::from_nanos(1));
        let intervals = |time: Duration| (time.as_nanos() / interval.as_nanos()) as u64;
        Rounds {
            left_out: intervals(goal.after),
            intervals: intervals(goal.round).max(1),
            goal,
            values: VecDeque::new(),
            count: 0,
            seen: 0,
            round: RoundSums::default(),
        }
    }

    /// Adds an interval; returns the reason if it ends the run.
    pub(super) fn judge(&mut self, interval: &Interval) -> Option<Stopped> {
        if self.left_out > 0 {
            self.left_out -= 1;
            return None;
        }
        self.seen += 1;
        self.round.add(&interval.figures);
        if !self.seen.is_multiple_of(self.intervals) {
            return None;
        }
        let SteadyGoal { round, rule, .. } = self.goal;
        let sums = std::mem::take(&mut self.round);
        if self.values.len() == ROUNDS_KEPT {
            self.values.pop_front();
        }
        self.values
            .push_back(sums.figure(rule.figure, round.as_secs_f64()));
        self.count += 1;
        let values = self.values.make_contiguous();
        let window = &values[values.len().saturating_sub(rule.window)..];
        match rule.is_met(window) {
            true => Some(Stopped::Steady),
            false if self.count >= self.goal.rounds_max => Some(Stopped::NotSteady),
            false => None,
        }
    }

    /// Returns the rounds of a run that has ended.
    pub(super) fn finish(self) -> SteadyRounds {
        SteadyRounds {
            round_s: self.goal.round.as_secs_f64(),
            rule: self.goal.rule,
            count: self.count,
            values: self.values.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both halves of the rule apply, and old rounds are dropped.
    #[test]
    fn both_criteria_of_snia_apply() {
        let check = |rounds: &[f64], steady| {
            let mut state = SteadyState::default();
            let last = rounds.iter().map(|value| state.round(*value)).last();
            assert_eq!(last, Some(steady), "{rounds:?}");
        };
        check(&[100.0; 4], false);
        check(&[100.0; 5], true);
        check(&[100.0, 119.9, 100.0, 100.0, 100.0], true);
        check(&[100.0, 125.0, 100.0, 100.0, 100.0], false); // range over 20 %
        check(&[95.0, 97.5, 100.0, 102.5, 105.0], true); // rises by exactly 10 %
        check(&[94.0, 97.0, 100.0, 103.0, 106.0], false); // by 12 %
        check(
            &[500.0, 300.0, 200.0, 100.0, 100.0, 100.0, 100.0, 100.0],
            true,
        );
        check(&[0.0; 5], false);
    }

    /// fio's rules: the maximum deviation from the mean, and the slope per round.
    #[test]
    fn deviation_and_slope_rules_work_as_in_fio() {
        let check = |deviation: Option<f64>, slope: Option<f64>, rounds: &[f64], steady| {
            let rule = SteadyRule {
                window: 4,
                range: None,
                rise: None,
                deviation,
                slope,
                ..SteadyRule::default()
            };
            let mut state = SteadyState::new(rule);
            let last = rounds.iter().map(|value| state.round(*value)).last();
            assert_eq!(last, Some(steady), "{deviation:?} {slope:?} {rounds:?}");
        };
        check(Some(0.1), None, &[90.0, 110.0, 100.0, 100.0], true);
        check(Some(0.1), None, &[88.0, 110.0, 101.0, 101.0], false); // 12 % below
        check(Some(0.1), None, &[100.0; 3], false);
        check(None, Some(0.01), &[98.5, 99.5, 100.5, 101.5], true); // 1 % per round
        check(None, Some(0.01), &[97.0, 99.0, 101.0, 103.0], false);
        check(None, Some(0.01), &[50.0, 150.0, 150.0, 50.0], true); // level, despite the spread
    }

    /// Rounds begin after the skipped intervals, and use the requested figure.
    #[test]
    fn rounds_start_after_the_skipped_intervals() {
        let rule = SteadyRule {
            window: 2,
            figure: SteadyFigure::ServiceTime,
            ..SteadyRule::default()
        };
        let (round, after) = (Duration::from_secs(2), Duration::from_secs(3));
        let mut rounds = Rounds::new(
            SteadyGoal {
                round,
                rounds_max: 9,
                after,
                rule,
            },
            Duration::from_secs(1),
        );
        let interval = |index: u64, requests: u64| {
            let mut figures = Figures::of_kinds(&[brunt_result::OpKind::Read]);
            let op = figures.at(0);
            op.completed = requests;
            (0..requests).for_each(|_| op.service.record(brunt_core::Nanos(1000)));
            Interval {
                index,
                figures,
                start: brunt_core::Nanos(0),
                end: brunt_core::Nanos(0),
                waiting: brunt_core::Histogram::default(),
            }
        };
        // The rate is never steady, the service time always is: 3 intervals, then two rounds of 2.
        let ends: Vec<Option<Stopped>> = (0..7)
            .map(|index| rounds.judge(&interval(index, 1 << index)))
            .collect();
        assert_eq!(
            ends,
            [None, None, None, None, None, None, Some(Stopped::Steady)]
        );
        let finished = rounds.finish();
        assert_eq!((finished.count, finished.round_s), (2, 2.0));
        assert_eq!(finished.values, [1.0, 1.0]); // microseconds
    }
}
