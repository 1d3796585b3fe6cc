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

use brunt_result::Outcome;
use brunt_result::choice::{RingChoice, RingMode, RingTrial};

use crate::load::LoadError;

/// Trials of each mode; the one in the middle counts.
pub const ROUNDS: usize = 3;
/// Length of a trial, after [`TRIAL_RAMP`].
pub(super) const TRIAL: Duration = Duration::from_millis(200);
/// What comes before it.
pub(super) const TRIAL_RAMP: Duration = Duration::from_millis(50);
/// So much faster than interrupts another mode has to be.
const MARGIN: f64 = 1.05;

/// From the rates of trials: interrupts unless another mode is clearly faster.
fn choose(trials: Vec<RingTrial>) -> RingChoice {
    let rate_of = |mode| {
        trials
            .iter()
            .find(|trial| trial.mode == mode)
            .and_then(|trial| trial.requests_per_second)
    };
    let usual = rate_of(RingMode::Interrupt);
    let better = |trial: &&RingTrial| {
        trial
            .requests_per_second
            .is_some_and(|rate| usual.is_none_or(|usual| rate > usual * MARGIN))
    };
    let rate = |trial: &&RingTrial| trial.requests_per_second.unwrap_or(0.0);
    let fastest = trials
        .iter()
        .filter(better)
        .max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let mode = fastest.map_or(RingMode::Interrupt, |trial| trial.mode);
    let told: Vec<String> = trials
        .iter()
        .map(|trial| match trial.requests_per_second {
            Some(rate) => format!("{} {rate:.0}/s", trial.mode.name()),
            None => format!("{} not here", trial.mode.name()),
        })
        .collect();
    RingChoice {
        mode,
        why: format!("measured: {}", told.join(", ")),
        trials,
    }
}

/// From what several machines measured at the same time: the rates of a mode are added, and one that does not work on all of
/// them is no choice.
pub fn choose_together(choices: &[RingChoice]) -> RingChoice {
    let trial = |mode: RingMode| {
        let of = |choice: &RingChoice| {
            choice
                .trials
                .iter()
                .find(|trial| trial.mode == mode)
                .cloned()
        };
        let trials: Vec<RingTrial> = choices.iter().filter_map(of).collect();
        let rates = trials.iter().map(|trial| trial.requests_per_second);
        let whole = trials.len() == choices.len() && !trials.is_empty();
        let requests_per_second = rates.sum::<Option<f64>>().filter(|_| whole);
        let error = trials.into_iter().find_map(|trial| trial.error);
        RingTrial {
            mode,
            requests_per_second,
            error,
        }
    };
    choose(RingMode::ALL.into_iter().map(trial).collect())
}

/// Measures every mode with `trial`, a short run of reads, and chooses one.
///
/// # Errors
/// [`LoadError::Interrupted`] when `stop` was set meanwhile; the workload's or the device's error when not even the
/// usual mode works.
pub(super) fn choose_ring(
    stop: &AtomicBool,
    mut trial: impl FnMut(RingMode) -> Result<Outcome, LoadError>,
) -> Result<RingChoice, LoadError> {
    let mut rates: [Vec<f64>; RingMode::ALL.len()] = Default::default();
    let mut errors: [Option<String>; RingMode::ALL.len()] = Default::default();
    // Interleaved, so that a machine that slows down does so for all of them.
    for _ in 0..ROUNDS {
        for (place, mode) in RingMode::ALL.into_iter().enumerate() {
            if errors[place].is_some() {
                continue;
            }
            match trial(mode) {
                Ok(outcome) => match outcome.first_error {
                    Some(error) if outcome.figures.counts.errors() > 0 => {
                        errors[place] = Some(error.to_string());
                    }
                    _ => rates[place].push(outcome.requests_per_second),
                },
                Err(error) if mode == RingMode::Interrupt => return Err(error),
                Err(error) => errors[place] = Some(error.to_string()),
            }
            if stop.load(Ordering::Relaxed) {
                return Err(LoadError::Interrupted);
            }
        }
    }
    let trials = RingMode::ALL.into_iter().zip(rates.iter_mut()).zip(errors);
    let trials = trials.map(|((mode, rates), error)| {
        rates.sort_unstable_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied();
        RingTrial {
            mode,
            requests_per_second: median.filter(|_| error.is_none()),
            error,
        }
    });
    Ok(choose(trials.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use brunt_block::backends::memory::MemoryBackend;

    use crate::block::BlockLoad;
    use crate::block::workload::{StopCondition, Workload};
    use crate::decisions::choose_ring;
    use crate::load::LoadTarget;

    /// Interrupts stay unless another mode is clearly faster, and what does not work is not
    /// chosen.
    #[test]
    fn the_clearly_fastest_is_chosen() {
        let check = |rates: [Option<f64>; 3], expected: RingMode, said: &str| {
            let trials = RingMode::ALL
                .into_iter()
                .zip(rates)
                .map(|(mode, requests_per_second)| {
                    let error = requests_per_second.is_none().then(|| "no".to_string());
                    RingTrial {
                        mode,
                        requests_per_second,
                        error,
                    }
                });
            let choice = choose(trials.collect());
            assert!(
                choice.mode == expected && choice.why.contains(said),
                "{choice:?}"
            );
        };
        check(
            [Some(1000.0), Some(1020.0), None],
            RingMode::Interrupt,
            "poll not here",
        );
        check(
            [Some(1000.0), Some(1100.0), None],
            RingMode::Sqpoll,
            "sqpoll 1100/s",
        );
        check(
            [Some(1000.0), Some(1100.0), Some(1200.0)],
            RingMode::Poll,
            "interrupt 1000/s",
        );
        check(
            [Some(500_000.0), Some(200_000.0), Some(0.0)],
            RingMode::Interrupt,
            "measured",
        );
        check([None, None, None], RingMode::Interrupt, "not here");
    }

    /// All that works is measured, a write workload's device is only read, and a user who
    /// interrupts is obeyed.
    #[test]
    fn modes_are_measured() {
        let workload = Workload {
            read: 0.0,
            queue_depth: 8,
            ring: RingMode::Auto,
            stop: StopCondition {
                requests: Some(1),
                ..StopCondition::default()
            },
            ..Workload::default()
        };
        let memory = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        let (load, on) = (BlockLoad::new(workload), LoadTarget::of(memory));
        let choose = |stop: bool| choose_ring(&load, &on, 1, &AtomicBool::new(stop)).unwrap();
        let choice = choose(false).unwrap();
        assert_eq!(choice.trials.len(), 3);
        assert!(
            choice.trials[0]
                .requests_per_second
                .is_some_and(|rate| rate > 0.0),
            "{choice:?}"
        );
        for trial in &choice.trials {
            assert!(
                trial.requests_per_second.is_some() != trial.error.is_some(),
                "{choice:?}"
            );
        }
        assert_ne!(choice.mode, RingMode::Auto);
        assert!(choose(true).is_none());
    }

    /// Sums decide, and a mode that one machine lacks is not taken.
    #[test]
    fn several_machines_choose_one_mode() {
        let choice = |rates: [Option<f64>; 3]| {
            let trial = |(mode, rate)| RingTrial {
                mode,
                requests_per_second: rate,
                error: None,
            };
            let trials = RingMode::ALL.into_iter().zip(rates).map(trial).collect();
            RingChoice {
                trials,
                ..RingChoice::default()
            }
        };
        let chosen = |machines: &[[Option<f64>; 3]]| {
            choose_together(&machines.iter().copied().map(choice).collect::<Vec<_>>()).mode
        };
        let (fast, slow) = (
            [Some(10.0), Some(100.0), Some(500.0)],
            [Some(90.0), Some(80.0), None],
        );
        assert_eq!(chosen(&[fast, slow]), RingMode::Sqpoll);
        assert_eq!(chosen(&[fast, fast]), RingMode::Poll);
        assert_eq!(chosen(&[slow, slow]), RingMode::Interrupt);
        assert_eq!(chosen(&[]), RingMode::Interrupt);
    }
}
