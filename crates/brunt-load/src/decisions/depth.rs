//! Finds the queue depth that saturates the target, which depends, for example, on the bandwidth-delay product of a
//! link or the number of servers of an array; or the maximum depth at which a percentile of the response time stays
//! below a limit. Pure: it proposes depths and receives their results.
//!
//! The rule: more depth without more throughput only adds waiting, so it is not chosen; all trials are reported with
//! the choice.

use brunt_result::choice::{DepthChoice, DepthTrial};

/// Minimum gain from a deeper queue for the search to continue.
const GAIN_MIN: f64 = 1.03;
/// Share of the best throughput that the chosen depth has to reach.
const ENOUGH: f64 = 0.97;

/// Chooses the smallest depth among the trials that is good enough.
///
/// # Panics
/// Panics if there are no trials.
fn choose(trials: Vec<DepthTrial>) -> DepthChoice {
    let best = best(&trials);
    let enough = trials
        .iter()
        .find(|trial| trial.bytes_per_second >= best * ENOUGH);
    let queue_depth = enough.expect("the best one is enough").queue_depth;
    DepthChoice {
        queue_depth,
        trials,
    }
}

fn best(trials: &[DepthTrial]) -> f64 {
    trials
        .iter()
        .map(|trial| trial.bytes_per_second)
        .fold(0.0, f64::max)
}

/// Returns true if the last two doublings did not increase throughput.
fn is_over(trials: &[DepthTrial]) -> bool {
    let Some((before, last)) = trials.split_last_chunk::<2>() else {
        return false;
    };
    !before.is_empty() && best(last) < best(before) * GAIN_MIN
}

/// Chooses the greatest depth that stayed within the limit, or the smallest if none did.
///
/// # Panics
/// Panics if there are no trials.
fn deepest(trials: Vec<DepthTrial>) -> DepthChoice {
    let depths = |kept: bool| {
        trials
            .iter()
            .filter(move |trial| trial.kept == Some(kept))
            .map(|trial| trial.queue_depth)
    };
    let queue_depth = depths(true)
        .max()
        .or_else(|| depths(false).min())
        .expect("at least one depth was tried");
    DepthChoice {
        queue_depth,
        trials,
    }
}

/// Returns the next depth to try for a limit: doubles until a trial exceeds the limit, then bisects.
fn between(trials: &[DepthTrial], max: u32) -> Option<u32> {
    let broken = trials
        .iter()
        .filter(|trial| trial.kept == Some(false))
        .map(|trial| trial.queue_depth)
        .min();
    let below = |trial: &&DepthTrial| broken.is_none_or(|broken| trial.queue_depth < broken);
    let kept = trials
        .iter()
        .filter(|trial| trial.kept == Some(true))
        .filter(below);
    let kept = kept.map(|trial| trial.queue_depth).max().unwrap_or(0);
    match broken {
        None => (kept < max).then(|| kept.saturating_mul(2).min(max)),
        Some(broken) => (broken - kept > 1).then(|| kept + (broken - kept) / 2),
    }
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct RunningDepthSearch {
    next: Option<u32>,
    max: u32,
    /// Whether the search has a limit.
    promised: bool,
    trials: Vec<DepthTrial>,
}

impl RunningDepthSearch {
    /// Starts at `from` and doubles, up to `max`; with a limit (`promised`), bisects once a trial exceeds it.
    ///
    /// # Panics
    /// Panics if `from` is zero or greater than `max`.
    pub fn new(from: u32, max: u32, promised: bool) -> RunningDepthSearch {
        assert!((1..=max).contains(&from), "from {from} to {max}");
        RunningDepthSearch {
            next: Some(from),
            max,
            promised,
            trials: Vec::new(),
        }
    }

    /// Returns the minimum number of trials in a search, regardless of the target.
    pub fn trials_min(from: u32, max: u32, promised: bool) -> u32 {
        let trials = |limit: u32| {
            let mut search = RunningDepthSearch::new(from, max, promised);
            while let Some(depth) = search.next_depth() {
                search.report(1.0, depth <= limit);
            }
            search.trials.len() as u32
        };
        if !promised {
            // This assumes that no depth increases the throughput.
            return trials(max);
        }
        let doubled = std::iter::successors(Some(from), |depth| depth.checked_mul(2));
        let limits = doubled.take_while(|depth| *depth < max).chain([0, max]);
        limits.map(trials).min().unwrap_or(1)
    }

    /// Returns the depth to try next; `None` if the search is over.
    pub fn next_depth(&self) -> Option<u32> {
        self.next
    }

    /// Reports the result of the trial at [`RunningDepthSearch::next_depth`], and whether it stayed within the limit.
    ///
    /// # Panics
    /// Panics if the search is over.
    pub fn report(&mut self, bytes_per_second: f64, kept: bool) {
        let queue_depth = self.next.take().expect("asked for");
        let kept = self.promised.then_some(kept);
        self.trials.push(DepthTrial {
            queue_depth,
            bytes_per_second,
            kept,
        });
        if self.promised {
            self.next = between(&self.trials, self.max);
        } else if queue_depth < self.max && !is_over(&self.trials) {
            self.next = Some(queue_depth.saturating_mul(2).min(self.max));
        }
    }

    /// Returns the smallest depth that is good enough, or the greatest one within the limit.
    ///
    /// # Panics
    /// Panics if nothing was tried.
    pub fn answer(self) -> DepthChoice {
        if self.promised {
            deepest(self.trials)
        } else {
            choose(self.trials)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(rates: &[f64]) -> Vec<DepthTrial> {
        let trial = |(at, rate): (usize, &f64)| DepthTrial {
            queue_depth: 1 << at,
            bytes_per_second: *rate,
            kept: None,
        };
        rates.iter().enumerate().map(trial).collect()
    }

    /// The smallest depth that is as good as any is chosen; a single trial without a gain does not end the search, but
    /// two do.
    #[test]
    fn the_smallest_sufficient_depth_is_chosen() {
        let check = |rates: &[f64], over: bool, depth: u32| {
            let trials = tried(rates);
            assert_eq!(is_over(&trials), over, "{rates:?}");
            assert_eq!(choose(trials).queue_depth, depth, "{rates:?}");
        };
        check(&[100.0], false, 1);
        check(&[100.0, 200.0, 400.0], false, 4);
        check(&[100.0, 200.0, 201.0, 202.0], true, 2);
        check(&[100.0, 90.0, 150.0], false, 4);
        check(&[100.0, 90.0, 80.0], true, 1);
        check(&[100.0, 200.0, 400.0, 395.0, 300.0], true, 4);
        check(&[0.0, 0.0, 0.0], false, 1);
    }

    /// If a limit holds up to some depth, the search finds that depth, wherever it starts.
    #[test]
    fn the_greatest_depth_that_keeps_a_limit_is_found() {
        let check = |from: u32, holds_to: u32, expected: u32, tried: &[u32]| {
            let mut search = RunningDepthSearch::new(from, 64, true);
            while let Some(depth) = search.next_depth() {
                search.report(1.0, depth <= holds_to);
            }
            let choice = search.answer();
            let depths: Vec<u32> = choice
                .trials
                .iter()
                .map(|trial| trial.queue_depth)
                .collect();
            assert_eq!(
                (choice.queue_depth, &depths[..]),
                (expected, tried),
                "{from} {holds_to}"
            );
        };
        check(1, 5, 5, &[1, 2, 4, 8, 6, 5]);
        check(1, 64, 64, &[1, 2, 4, 8, 16, 32, 64]);
        check(1, 0, 1, &[1]);
        check(16, 3, 3, &[16, 8, 4, 2, 3]);
        check(64, 63, 63, &[64, 32, 48, 56, 60, 62, 63]);
    }
}
