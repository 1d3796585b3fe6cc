//! Steady state of throughput by SNIA's Solid State Storage Performance Test Specification: over a window of
//! five rounds the values range within 20 % of their mean, and the slope of the least-squares line accounts
//! for at most 10 % of it. Pure except for the rounds, which are built from merged intervals.

use std::collections::VecDeque;
use std::time::Duration;

use brunt_result::{Interval, Stopped};

use crate::load::SteadyGoal;

/// Rounds looked at.
pub const WINDOW_ROUNDS: usize = 5;
/// Largest minus smallest, as a share of the mean.
pub const RANGE_MAX: f64 = 0.20;
/// Rise of the fitted line over the window, as a share of the mean.
pub const SLOPE_MAX: f64 = 0.10;

/// The last rounds.
#[derive(Clone, Debug, Default)]
pub struct SteadyState {
    window: VecDeque<f64>,
    rounds: u32,
}

impl SteadyState {
    /// Takes the figure of a round; whether the state is steady now.
    pub fn round(&mut self, value: f64) -> bool {
        self.rounds += 1;
        if self.window.len() == WINDOW_ROUNDS {
            self.window.pop_front();
        }
        self.window.push_back(value);
        self.window.len() == WINDOW_ROUNDS && self.is_steady()
    }

    /// Rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    fn is_steady(&self) -> bool {
        let count = self.window.len() as f64;
        let mean = self.window.iter().sum::<f64>() / count;
        if mean <= 0.0 {
            return false;
        }
        let max = self.window.iter().copied().fold(f64::MIN, f64::max);
        let min = self.window.iter().copied().fold(f64::MAX, f64::min);
        let middle = (count - 1.0) / 2.0;
        let (mut cross, mut square) = (0.0, 0.0);
        for (index, value) in self.window.iter().enumerate() {
            let x = index as f64 - middle;
            cross += x * (value - mean);
            square += x * x;
        }
        let rise = (cross / square * (count - 1.0)).abs();
        max - min <= RANGE_MAX * mean && rise <= SLOPE_MAX * mean
    }
}

/// The rounds of a run, made of its merged intervals.
pub(super) struct Rounds {
    state: SteadyState,
    rounds_max: u32,
    /// In a round.
    intervals: u64,
    seen: u64,
    completed: u64,
}

impl Rounds {
    /// For intervals of this length.
    pub(super) fn new(goal: SteadyGoal, interval: Duration) -> Rounds {
        let interval = interval.max(Duration::from_nanos(1));
        let intervals = (goal.round.as_nanos() / interval.as_nanos()).max(1) as u64;
        Rounds {
            state: SteadyState::default(),
            rounds_max: goal.rounds_max,
            intervals,
            seen: 0,
            completed: 0,
        }
    }

    /// Takes in an interval; the end of the run, if that is it.
    pub(super) fn judge(&mut self, interval: &Interval) -> Option<Stopped> {
        self.seen += 1;
        self.completed += interval.figures.completed();
        if !self.seen.is_multiple_of(self.intervals) {
            return None;
        }
        let steady = self.state.round(std::mem::take(&mut self.completed) as f64);
        match steady {
            true => Some(Stopped::Steady),
            false if self.state.rounds() >= self.rounds_max => Some(Stopped::NotSteady),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// both halves of the rule hold, and old rounds are forgotten.
    #[test]
    fn snia_rule() {
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
        check(&[500.0, 300.0, 200.0, 100.0, 100.0, 100.0, 100.0, 100.0], true);
        check(&[0.0; 5], false);
    }
}
