//! Measures which I/O engine, and which way of submitting requests to its ring, is fastest for a workload on a device.
//! Experiments request this with `engine = "auto"` or `ring = "auto"`.
//!
//! The rule: the choice is based on request rates measured on this device just before the run, and is reported with
//! all of these rates. An engine other than io_uring, or a mode that occupies a core (any except interrupts), has to
//! be clearly faster to be chosen.
//!
//! Nothing is written: trials only read, because reads and writes are submitted in the same way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::IoEngine;
use brunt_result::Outcome;
use brunt_result::choice::{EngineChoice, EngineTrial, RingChoice, RingMode, RingTrial};

use crate::load::LoadError;

/// Number of trials of each option, of which the median counts.
pub const ROUNDS: usize = 3;
/// Length of a trial, after [`TRIAL_RAMP`].
pub(super) const TRIAL: Duration = Duration::from_millis(200);
/// Ramp-up before a trial.
pub(super) const TRIAL_RAMP: Duration = Duration::from_millis(50);
/// Minimum speedup over the default for another option to replace it.
const MARGIN: f64 = 1.05;

/// Returns the first option (the default), unless another is clearly faster, and the rates as text.
fn fastest<T: Copy>(trials: &[(T, &'static str, Option<f64>)]) -> (Option<T>, String) {
    let usual = trials.first().and_then(|(_, _, rate)| *rate);
    let better = trials.iter().filter(|(_, _, rate)| {
        rate.is_some_and(|rate| usual.is_none_or(|usual| rate > usual * MARGIN))
    });
    let rate = |rate: Option<f64>| rate.unwrap_or(0.0);
    let best = better
        .max_by(|(_, _, a), (_, _, b)| rate(*a).total_cmp(&rate(*b)))
        .or(trials.first());
    let words: Vec<String> = trials
        .iter()
        .map(|(_, name, rate)| match rate {
            Some(rate) => format!("{name} {rate:.0}/s"),
            None => format!("{name} not here"),
        })
        .collect();
    let why = format!("measured: {}", words.join(", "));
    (best.map(|(option, ..)| *option), why)
}

/// Chooses a mode from the rates of trials: interrupts unless another is clearly faster.
fn choose(trials: Vec<RingTrial>) -> RingChoice {
    let rates: Vec<_> = trials
        .iter()
        .map(|trial| (trial.mode, trial.mode.name(), trial.requests_per_second))
        .collect();
    let (mode, why) = fastest(&rates);
    RingChoice {
        mode: mode.unwrap_or_default(),
        why,
        trials,
    }
}

/// Chooses an engine from the rates of trials: io_uring unless threads are clearly faster.
fn choose_from(trials: Vec<EngineTrial>) -> EngineChoice {
    let rates: Vec<_> = trials
        .iter()
        .map(|trial| (trial.engine, trial.engine.name(), trial.requests_per_second))
        .collect();
    let (engine, why) = fastest(&rates);
    EngineChoice {
        engine: engine.unwrap_or_default(),
        why,
        trials,
    }
}

/// Chooses an engine from simultaneous measurements on several machines, by adding up the rates of each engine. If
/// only one engine works on some machine, that engine is chosen for all.
pub fn choose_engine_together(choices: &[EngineChoice]) -> EngineChoice {
    if let Some(only) = choices.iter().find(|choice| choice.trials.is_empty()) {
        return only.clone();
    }
    let machines: Vec<Vec<Tried<IoEngine>>> = choices
        .iter()
        .map(|choice| choice.trials.iter().map(tried_engine).collect())
        .collect();
    let tried = add_up(IoEngine::ALL, &machines).into_iter();
    choose_from(tried.map(engine_trial).collect())
}

/// Chooses a mode from simultaneous measurements on several machines, by adding up the rates of each mode. A mode
/// that fails on any of them can't be chosen.
pub fn choose_together(choices: &[RingChoice]) -> RingChoice {
    let machines: Vec<Vec<Tried<RingMode>>> = choices
        .iter()
        .map(|choice| choice.trials.iter().map(tried_mode).collect())
        .collect();
    let tried = add_up(RingMode::ALL, &machines).into_iter();
    choose(tried.map(ring_trial).collect())
}

/// Measures every mode with `trial`, a short run of reads, and chooses one.
///
/// # Errors
/// [`LoadError::Interrupted`] if `stop` was set in the meantime; the workload's or the device's error if no mode works.
pub(super) fn choose_ring(
    stop: &AtomicBool,
    trial: impl FnMut(RingMode) -> Result<Outcome, LoadError>,
) -> Result<RingChoice, LoadError> {
    let tried = measure_each(RingMode::ALL, stop, trial)?;
    Ok(choose(tried.into_iter().map(ring_trial).collect()))
}

/// Measures every engine with `trial`, a short run of reads, and chooses one.
///
/// # Errors
/// [`LoadError::Interrupted`] if `stop` was set in the meantime; the workload's or the device's error if no engine
/// works.
pub(super) fn choose_engine(
    stop: &AtomicBool,
    trial: impl FnMut(IoEngine) -> Result<Outcome, LoadError>,
) -> Result<EngineChoice, LoadError> {
    let tried = measure_each(IoEngine::ALL, stop, trial)?;
    Ok(choose_from(tried.into_iter().map(engine_trial).collect()))
}

/// An option that was tried: its reads per second if it works, otherwise its error.
type Tried<T> = (T, Option<f64>, Option<String>);

fn ring_trial((mode, requests_per_second, error): Tried<RingMode>) -> RingTrial {
    RingTrial {
        mode,
        requests_per_second,
        error,
    }
}

fn tried_mode(trial: &RingTrial) -> Tried<RingMode> {
    (trial.mode, trial.requests_per_second, trial.error.clone())
}

fn engine_trial((engine, requests_per_second, error): Tried<IoEngine>) -> EngineTrial {
    EngineTrial {
        engine,
        requests_per_second,
        error,
    }
}

fn tried_engine(trial: &EngineTrial) -> Tried<IoEngine> {
    (trial.engine, trial.requests_per_second, trial.error.clone())
}

/// Adds up simultaneous measurements on several machines; an option that fails on any of them has no rate.
fn add_up<T: Copy + PartialEq, const N: usize>(
    options: [T; N],
    machines: &[Vec<Tried<T>>],
) -> [Tried<T>; N] {
    options.map(|option| {
        let tried: Vec<&Tried<T>> = machines
            .iter()
            .filter_map(|machine| machine.iter().find(|(one, ..)| *one == option))
            .collect();
        let is_whole = tried.len() == machines.len() && !tried.is_empty();
        let rates = tried.iter().map(|(_, rate, _)| *rate);
        let rate = rates.sum::<Option<f64>>().filter(|_| is_whole);
        let error = tried.iter().find_map(|(.., error)| error.clone());
        (option, rate, error)
    })
}

/// Returns each option's median rate over [`ROUNDS`] trials, or the reason why it doesn't work.
///
/// # Errors
/// [`LoadError::Interrupted`] if `stop` was set in the meantime; the first option's error if none works.
fn measure_each<T: Copy, const N: usize>(
    options: [T; N],
    stop: &AtomicBool,
    mut trial: impl FnMut(T) -> Result<Outcome, LoadError>,
) -> Result<Vec<Tried<T>>, LoadError> {
    let mut rates: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    let mut errors: [Option<String>; N] = std::array::from_fn(|_| None);
    let mut first = None;
    // Interleaved, so that a slowing machine affects all options equally.
    for _ in 0..ROUNDS {
        for (place, option) in options.into_iter().enumerate() {
            if errors[place].is_some() {
                continue;
            }
            match trial(option) {
                Ok(outcome) => match outcome.first_error {
                    Some(error) if outcome.figures.counts.errors() > 0 => {
                        errors[place] = Some(error.to_string());
                    }
                    _ => rates[place].push(outcome.requests_per_second),
                },
                Err(error) => {
                    errors[place] = Some(error.to_string());
                    first.get_or_insert(error);
                }
            }
            if stop.load(Ordering::Relaxed) {
                return Err(LoadError::Interrupted);
            }
        }
    }
    if let Some(error) = first.filter(|_| errors.iter().all(Option::is_some)) {
        return Err(error);
    }
    let tried = options.into_iter().zip(rates).zip(errors);
    let tried = tried.map(|((option, mut rates), error)| {
        rates.sort_unstable_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied();
        (option, median.filter(|_| error.is_none()), error)
    });
    Ok(tried.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use brunt_block::backends::memory::MemoryBackend;
    use brunt_result::choice::EngineSetting;

    use crate::block::BlockLoad;
    use crate::block::workload::{StopCondition, Workload};
    use crate::decisions::settle;
    use crate::load::LoadTarget;

    /// Interrupt mode is kept unless another mode is clearly faster, and a mode that doesn't work is not chosen.
    #[test]
    fn only_a_clearly_faster_mode_is_chosen() {
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

    /// All working modes are measured, the device of a write workload is only read, and the user's interrupt is obeyed.
    #[test]
    fn all_working_modes_are_measured() {
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
        let choose = |stop: bool| settle(&load, &on, 1, &AtomicBool::new(stop)).unwrap();
        let choice = choose(false).unwrap().ring.unwrap();
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

    /// All working engines are measured, and the chosen one is among them.
    #[test]
    fn all_working_engines_are_measured() {
        let workload = Workload {
            read: 0.0,
            engine: Some(EngineSetting::Auto),
            stop: StopCondition {
                requests: Some(1),
                ..StopCondition::default()
            },
            ..Workload::default()
        };
        let memory = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        let (load, on) = (BlockLoad::new(workload), LoadTarget::of(memory));
        let settled = settle(&load, &on, 1, &AtomicBool::new(false)).unwrap();
        let choice = settled.unwrap().engine.unwrap();
        if brunt_block::ring::engine::io_uring().is_err() {
            assert_eq!((choice.engine, choice.trials.len()), (IoEngine::Threads, 0));
            return;
        }
        let engines: Vec<IoEngine> = choice.trials.iter().map(|trial| trial.engine).collect();
        assert_eq!(engines, IoEngine::ALL);
        assert!(choice.why.starts_with("measured: io_uring "), "{choice:?}");
        let works = |trial: &EngineTrial| trial.requests_per_second.is_some_and(|rate| rate > 0.0);
        assert!(choice.trials.iter().all(works), "{choice:?}");
    }

    #[test]
    fn several_machines_choose_one_engine() {
        let measured = |io_uring: Option<f64>, threads: Option<f64>| {
            let trial = |(engine, requests_per_second)| EngineTrial {
                engine,
                requests_per_second,
                error: None,
            };
            let rates = IoEngine::ALL.into_iter().zip([io_uring, threads]);
            choose_from(rates.map(trial).collect())
        };
        let chosen = |machines: &[EngineChoice]| choose_engine_together(machines).engine;
        let (even, slow) = (
            measured(Some(100.0), Some(104.0)),
            measured(Some(20.0), Some(90.0)),
        );
        let only = EngineChoice::unmeasured(IoEngine::Threads, "forbidden");
        assert_eq!(even.engine, IoEngine::IoUring);
        assert_eq!(chosen(&[even.clone(), slow.clone()]), IoEngine::Threads);
        assert_eq!(chosen(&[even.clone(), even.clone()]), IoEngine::IoUring);
        let broken = measured(Some(500.0), None);
        assert_eq!(chosen(&[slow, broken]), IoEngine::IoUring);
        assert_eq!(chosen(&[even, only]), IoEngine::Threads);
    }

    /// The totals decide, and a mode that doesn't work on one machine is not chosen.
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
