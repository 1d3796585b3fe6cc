//! How a ring hands requests over and learns that they are done, and which way is the fastest for a
//! workload on a device. Experiments say `ring = "auto"` to have it measured.
//!
//! The rule: the choice is by rate, measured here and now and told with every figure it came from.
//! Another way than interrupts has to be clearly faster, since it takes a core for itself.
//!
//! Nothing is written: trials read, whatever the workload does, for there is one way of handing over
//! for both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::Span;
use brunt_result::choice::{RingChoice, RingMode, RingTrial};

use crate::block::workload::{Arrival, RampUp, Stop};
use crate::block::{Session, SessionError};
use crate::record::NoRecorder;

/// Trials of each mode; the one in the middle counts.
pub const ROUNDS: usize = 3;
/// Length of a trial, after [`TRIAL_RAMP`].
const TRIAL: Duration = Duration::from_millis(200);
const TRIAL_RAMP: Duration = Duration::from_millis(50);
/// So much faster than interrupts another mode has to be.
const MARGIN: f64 = 1.05;

/// From the rates of trials: interrupts unless another mode is clearly faster.
fn choose(trials: Vec<RingTrial>) -> RingChoice {
    let rate_of =
        |mode| trials.iter().find(|trial| trial.mode == mode).and_then(|trial| trial.requests_per_second);
    let usual = rate_of(RingMode::Interrupt);
    let better = |trial: &&RingTrial| {
        trial.requests_per_second.is_some_and(|rate| usual.is_none_or(|usual| rate > usual * MARGIN))
    };
    let rate = |trial: &&RingTrial| trial.requests_per_second.unwrap_or(0.0);
    let fastest = trials.iter().filter(better).max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let mode = fastest.map_or(RingMode::Interrupt, |trial| trial.mode);
    let told: Vec<String> = trials
        .iter()
        .map(|trial| match trial.requests_per_second {
            Some(rate) => format!("{} {rate:.0}/s", trial.mode.name()),
            None => format!("{} not here", trial.mode.name()),
        })
        .collect();
    RingChoice { mode, why: format!("measured: {}", told.join(", ")), trials }
}

impl Session {
    /// Measures every mode with reads of the workload's blocks at its depth and chooses one; `None`
    /// when `stop` was set meanwhile.
    ///
    /// # Errors
    /// Not even the usual mode works: the workload's or the device's error.
    pub fn choose_ring(&self, stop: &AtomicBool) -> Result<Option<RingChoice>, SessionError> {
        let mut rates: [Vec<f64>; RingMode::ALL.len()] = Default::default();
        let mut errors: [Option<String>; RingMode::ALL.len()] = Default::default();
        // Interleaved, so that a machine that slows down does so for all of them.
        for _ in 0..ROUNDS {
            for (place, mode) in RingMode::ALL.into_iter().enumerate() {
                if errors[place].is_some() {
                    continue;
                }
                match self.try_ring(mode, stop) {
                    Ok(rate) => rates[place].push(rate),
                    Err(Failed::Here(error)) if mode == RingMode::Interrupt => return Err(error),
                    Err(Failed::Here(error)) => errors[place] = Some(error.to_string()),
                    Err(Failed::Requests(what)) => errors[place] = Some(what),
                }
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
            }
        }
        let trials = RingMode::ALL.into_iter().zip(rates.iter_mut()).zip(errors);
        let trials = trials.map(|((mode, rates), error)| {
            rates.sort_unstable_by(f64::total_cmp);
            let median = rates.get(rates.len() / 2).copied();
            RingTrial { mode, requests_per_second: median.filter(|_| error.is_none()), error }
        });
        Ok(Some(choose(trials.collect())))
    }

    /// The same for a `time` only, nothing verified and nothing recorded on the way: to find out how a
    /// workload should be run.
    pub(crate) fn trial(&self, time: Span) -> Session {
        let mut trial = self.clone();
        let workload = &mut trial.workload;
        (workload.burst, workload.verify, workload.record_requests) = (None, None, false);
        workload.stop = Stop { time: Some(time), ..Stop::default() };
        workload.interval = Span(Duration::ZERO);
        trial
    }

    /// The rate of a short trial.
    fn try_ring(&self, mode: RingMode, stop: &AtomicBool) -> Result<f64, Failed> {
        let mut trial = self.trial(Span(TRIAL));
        let workload = &mut trial.workload;
        (workload.ring, workload.read, workload.arrival) = (mode, 1.0, Arrival::Closed {});
        workload.ramp_up = Some(RampUp { requests: 0, time: Span(TRIAL_RAMP) });
        let outcome = trial.run(stop, &mut NoRecorder).map_err(Failed::Here)?;
        match outcome.first_error {
            Some(error) if outcome.figures.counts.errors() > 0 => Err(Failed::Requests(error.to_string())),
            _ => Ok(outcome.requests_per_second),
        }
    }
}

/// How a trial can fail.
enum Failed {
    /// The ring or the device could not be opened so.
    Here(SessionError),
    /// Its requests failed.
    Requests(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use brunt_block::backends::memory::MemoryBackend;
    use std::sync::Arc;

    /// The goal: interrupts stay unless another mode is clearly faster, and what does not work is not
    /// chosen.
    #[test]
    fn the_clearly_fastest_is_chosen() {
        let check = |rates: [Option<f64>; 3], expected: RingMode, said: &str| {
            let trials = RingMode::ALL.into_iter().zip(rates).map(|(mode, requests_per_second)| {
                let error = requests_per_second.is_none().then(|| "no".to_string());
                RingTrial { mode, requests_per_second, error }
            });
            let choice = choose(trials.collect());
            assert!(choice.mode == expected && choice.why.contains(said), "{choice:?}");
        };
        check([Some(1000.0), Some(1020.0), None], RingMode::Interrupt, "poll not here");
        check([Some(1000.0), Some(1100.0), None], RingMode::Sqpoll, "sqpoll 1100/s");
        check([Some(1000.0), Some(1100.0), Some(1200.0)], RingMode::Poll, "interrupt 1000/s");
        check([Some(500_000.0), Some(200_000.0), Some(0.0)], RingMode::Interrupt, "measured");
        check([None, None, None], RingMode::Interrupt, "not here");
    }

    /// The goal: all that works is measured, a write workload's device is only read, and a user who
    /// interrupts is obeyed.
    #[test]
    fn modes_are_measured() {
        let workload = Workload {
            read: 0.0,
            queue_depth: 8,
            ring: RingMode::Auto,
            stop: Stop { requests: Some(1), ..Stop::default() },
            ..Workload::default()
        };
        let memory = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        let session = Session::new(workload, memory.clone(), 1);
        let choice = session.choose_ring(&AtomicBool::new(false)).unwrap().unwrap();
        assert_eq!(choice.trials.len(), 3);
        assert!(choice.trials[0].requests_per_second.is_some_and(|rate| rate > 0.0), "{choice:?}");
        for trial in &choice.trials {
            assert!(trial.requests_per_second.is_some() != trial.error.is_some(), "{choice:?}");
        }
        assert_ne!(choice.mode, RingMode::Auto);
        assert!(session.choose_ring(&AtomicBool::new(true)).unwrap().is_none());
    }
}
