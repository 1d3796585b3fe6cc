//! Finds the queue depth that saturates the target: the bandwidth-delay product of a link, the servers of an
//! array. Pure: it proposes depths and receives their throughput.
//!
//! The rule: extra depth without a gain only adds waiting and is not chosen; all trials are reported with the
//! choice.

use brunt_result::choice::{DepthChoice, DepthTrial};

/// A deeper queue has to bring this much more to be looked for further.
const GAIN_MIN: f64 = 1.03;
/// Of the best throughput, what the chosen depth has to reach.
const ENOUGH: f64 = 0.97;

/// From what was tried.
///
/// # Panics
/// When nothing was.
fn choose(trials: Vec<DepthTrial>) -> DepthChoice {
    let best = best(&trials);
    let enough = trials.iter().find(|trial| trial.bytes_per_second >= best * ENOUGH);
    let queue_depth = enough.expect("the best one is enough").queue_depth;
    DepthChoice { queue_depth, trials }
}

fn best(trials: &[DepthTrial]) -> f64 {
    trials.iter().map(|trial| trial.bytes_per_second).fold(0.0, f64::max)
}

/// Whether the last two doublings brought nothing.
fn is_over(trials: &[DepthTrial]) -> bool {
    let Some((before, last)) = trials.split_last_chunk::<2>() else { return false };
    !before.is_empty() && best(last) < best(before) * GAIN_MIN
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct RunningDepthSearch {
    next: Option<u32>,
    max: u32,
    trials: Vec<DepthTrial>,
}

impl RunningDepthSearch {
    /// Begins at `from` and doubles, up to `max`.
    ///
    /// # Panics
    /// When that is less than where it begins.
    pub fn new(from: u32, max: u32) -> RunningDepthSearch {
        assert!((1..=max).contains(&from), "from {from} to {max}");
        RunningDepthSearch { next: Some(from), max, trials: Vec::new() }
    }

    /// The depth to try next; `None` when the search is over.
    pub fn next_depth(&self) -> Option<u32> {
        self.next
    }

    /// What the trial at the depth of [`RunningDepthSearch::next_depth`] brought.
    ///
    /// # Panics
    /// When the search is over.
    pub fn report(&mut self, bytes_per_second: f64) {
        let queue_depth = self.next.take().expect("asked for");
        self.trials.push(DepthTrial { queue_depth, bytes_per_second });
        if queue_depth < self.max && !is_over(&self.trials) {
            self.next = Some(queue_depth.saturating_mul(2).min(self.max));
        }
    }

    /// The smallest depth that is good enough.
    ///
    /// # Panics
    /// When nothing was tried.
    pub fn answer(self) -> DepthChoice {
        choose(self.trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(rates: &[f64]) -> Vec<DepthTrial> {
        let trial = |(at, rate): (usize, &f64)| DepthTrial { queue_depth: 1 << at, bytes_per_second: *rate };
        rates.iter().enumerate().map(trial).collect()
    }

    /// The smallest depth that is as good as any is chosen, one bad trial in between does not
    /// end the search, and two do.
    #[test]
    fn the_smallest_sufficient_depth() {
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
}
