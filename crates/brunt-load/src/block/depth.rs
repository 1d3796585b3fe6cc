//! Finds how many requests outstanding it takes to fill what lies below: the bandwidth-delay product
//! of a link, the servers of an array. A study asks once for each point whose workload says so.
//!
//! The rule: what a deeper queue does not gain is not taken, since it only waits; and what was tried
//! is told beside what was chosen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::Span;
use brunt_result::choice::{DepthChoice, DepthTrial};

use crate::NoRecorder;
use crate::block::workload::{DepthSearch, RampUp};
use crate::block::{Session, SessionError};

/// What comes before a trial when the workload has no ramp-up: a connection's window has to open.
const RAMP: Duration = Duration::from_millis(500);
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

impl Session {
    /// Finds the queue depth that the workload's `depth_search` asks for; `None` when `stop` was set
    /// meanwhile. Requests are those of the workload, written ones too.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn find_depth(
        &self,
        search: DepthSearch,
        stop: &AtomicBool,
    ) -> Result<Option<DepthChoice>, SessionError> {
        let mut trials = Vec::new();
        let mut depth = self.workload.queue_depth;
        loop {
            let mut trial = self.trial(search.time);
            trial.workload.queue_depth = depth;
            trial.workload.ramp_up.get_or_insert(RampUp { requests: 0, time: Span(RAMP) });
            let outcome = trial.run(stop, &mut NoRecorder)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            trials.push(DepthTrial { queue_depth: depth, bytes_per_second: outcome.bytes_per_second });
            if depth == search.max || is_over(&trials) {
                return Ok(Some(choose(trials)));
            }
            depth = depth.saturating_mul(2).min(search.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::workload::{Arrival, Stop, Workload};
    use brunt_block::open_url;

    fn tried(rates: &[f64]) -> Vec<DepthTrial> {
        let trial = |(at, rate): (usize, &f64)| DepthTrial { queue_depth: 1 << at, bytes_per_second: *rate };
        rates.iter().enumerate().map(trial).collect()
    }

    /// The goal: the smallest depth that is as good as any is chosen, one bad trial in between does not
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

    /// The goal: an array that serves four at a time is filled by four, and not by one.
    #[test]
    fn an_arrays_servers_are_found() {
        let mut said = String::new();
        // What a busy machine adds to a delay weighs less where that is longer.
        for slower in [1, 2, 4, 8, 16] {
            let url = format!("memory:16MiB?delay=const:{}ms,servers=4", 2 * slower);
            let stop = Stop { requests: Some(1), ..Stop::default() };
            let workload = Workload { stop, ..Workload::default() };
            let session = Session::new(workload, open_url(&url).unwrap(), 1);
            let search = DepthSearch { max: 64, time: Span(Duration::from_millis(100 * slower)) };
            assert!(session.find_depth(search, &AtomicBool::new(true)).unwrap().is_none());
            let choice = session.find_depth(search, &AtomicBool::new(false)).unwrap().unwrap();
            if (3..=8).contains(&choice.queue_depth) {
                return;
            }
            said = choice.said();
        }
        panic!("{said}");
    }

    /// The goal: a search that makes no sense is refused with its key.
    #[test]
    fn misfits_are_refused() {
        let check = |search: DepthSearch, workload: Workload, key: &str| {
            assert_eq!(search.check(&workload).unwrap_err().key, key);
        };
        let deep = Workload { queue_depth: 64, ..Workload::default() };
        check(DepthSearch { max: 32, ..DepthSearch::default() }, deep, "depth_search.max");
        check(
            DepthSearch { time: Span(Duration::ZERO), ..DepthSearch::default() },
            Workload::default(),
            "depth_search.time",
        );
        let limit = Span(Duration::from_millis(5));
        let process = crate::block::workload::Process::Constant;
        let arrival = Arrival::Search { percentile: 99.0, limit, rate: 100.0, tolerance: 0.05, process };
        let open = Workload { arrival, ..Workload::default() };
        check(DepthSearch::default(), open, "depth_search");
        assert!(DepthSearch::default().check(&Workload::default()).is_ok());
    }
}
