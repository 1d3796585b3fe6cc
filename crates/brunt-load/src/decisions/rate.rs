//! Finds the highest rate within a latency limit ("p99 under 5 ms"): doubles the rate until a trial fails, then
//! bisects. Pure: it proposes rates and receives verdicts; the caller runs the trials.

/// Maximum number of trials: 2^40 by doubling, and as many bisections as the finest tolerance needs.
pub const TRIALS_MAX: u32 = 60;

/// A search in progress.
#[derive(Clone, Debug)]
pub struct RateSearch {
    passed: Option<f64>,
    failed: Option<f64>,
    rate: f64,
    rate_max: f64,
    tolerance: f64,
    trials: u32,
}

impl RateSearch {
    /// Starts at `rate`, never exceeds `rate_max`, and ends when the relative error is at most `tolerance`.
    pub fn new(rate: f64, rate_max: f64, tolerance: f64) -> RateSearch {
        RateSearch {
            passed: None,
            failed: None,
            rate: rate.min(rate_max),
            rate_max,
            tolerance,
            trials: 0,
        }
    }

    /// Returns the minimum number of trials in a search, regardless of the target.
    pub fn trials_min(rate: f64, rate_max: f64, tolerance: f64) -> u32 {
        // All rates except the first are within the limit: no other search needs fewer bisections.
        let mut search = RateSearch::new(rate, rate_max, tolerance);
        while search.next_rate().is_some() {
            search.report(search.trials > 0);
        }
        search.trials
    }

    /// Returns the rate to try next; `None` if the search is over.
    pub fn next_rate(&self) -> Option<f64> {
        let close = match (self.passed, self.failed) {
            (Some(passed), Some(failed)) => failed - passed <= self.tolerance * failed,
            (Some(passed), None) => passed >= self.rate_max,
            // The search gives up below a thousandth of a request per second.
            (None, Some(failed)) => failed <= 1e-3,
            (None, None) => false,
        };
        (!close && self.trials < TRIALS_MAX).then_some(self.rate)
    }

    /// Reports the result of the trial at [`RateSearch::next_rate`].
    pub fn report(&mut self, kept: bool) {
        self.trials += 1;
        if kept {
            self.passed = Some(self.rate);
        } else {
            self.failed = Some(self.rate);
        }
        self.rate = match (self.passed, self.failed) {
            (Some(passed), Some(failed)) => (passed + failed) / 2.0,
            (Some(passed), None) => (passed * 2.0).min(self.rate_max),
            (None, Some(failed)) => failed / 2.0,
            (None, None) => self.rate,
        };
    }

    /// Returns the highest rate within the limit; `None` if no rate was.
    pub fn answer(&self) -> Option<f64> {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(limit: f64, from: f64, tolerance: f64) -> (Option<f64>, u32) {
        let mut search = RateSearch::new(from, 1e9, tolerance);
        while let Some(rate) = search.next_rate() {
            search.report(rate <= limit);
        }
        (search.answer(), search.trials)
    }

    /// The answer is below the limit and within the tolerance of it, from whichever side the search starts.
    #[test]
    fn the_answer_is_within_the_tolerance_of_the_limit() {
        for limit in [0.7, 950.0, 1000.0, 123_456.0, 7e8] {
            for from in [1.0, 1000.0, 1e6] {
                let (answer, trials) = search(limit, from, 0.01);
                let answer = answer.unwrap();
                assert!(
                    answer <= limit && answer >= limit * 0.989,
                    "{limit} from {from}: {answer}"
                );
                assert!(trials < TRIALS_MAX);
            }
        }
    }

    /// No search takes fewer trials than the minimum, and some take exactly that many.
    #[test]
    fn no_search_needs_fewer_trials_than_the_minimum() {
        for tolerance in [0.01, 0.05, 0.2] {
            let least = RateSearch::trials_min(1000.0, 1e9, tolerance);
            let limits = (1..200).map(|limit| f64::from(limit) * 50.0);
            let fewest = limits.map(|limit| search(limit, 1000.0, tolerance).1).min();
            assert_eq!(fewest, Some(least), "{tolerance}");
        }
    }

    /// The search ends both for a target that is never within the limit and for one that always is.
    #[test]
    fn a_search_always_ends() {
        assert_eq!(search(0.0, 1000.0, 0.02).0, None);
        assert_eq!(search(f64::MAX, 1000.0, 0.02).0, Some(1e9));
    }
}
