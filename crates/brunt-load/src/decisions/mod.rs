//! Runs a load and makes the decisions that involve all its workers: whether a run is in steady state, the highest rate
//! within a latency limit, the queue depth that saturates the target. Called by studies and benchmarks.
//!
//! The rule: decisions are made here, in one place for all kinds of loads, and are based only on merged intervals and
//! outcomes. A load is controlled by a [`RunOrder`] and by [`LoadCommand`]s.

pub mod depth;
pub mod rate;
pub mod steady;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::Nanos;
use brunt_result::choice::{DepthChoice, EngineChoice, EngineSetting, RingChoice, RingMode};
use brunt_result::steady::SteadyRounds;
use brunt_result::{Interval, Outcome, RequestStatus};

use crate::collect::{Collected, Collector, WorkersHandle};
use crate::commands::LoadCommand;
use crate::load::{
    DepthGoal, EngineNeed, Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, Pace,
    PreparedLoad, Promise, RateGoal, RateTrial, RunOrder, RunningLoad, Trial, WorkloadError,
};
use crate::record::{NoRecorder, Recorder};
use depth::RunningDepthSearch;
use rate::RateSearch;
use steady::Rounds;

/// Highest rate that a search tries, in requests per second.
const RATE_MAX: f64 = 1e8;
/// Ramp-up before a depth trial if the load has none, because a connection's window has to open.
const DEPTH_RAMP: Duration = Duration::from_millis(500);
/// A rate trial skips requests that are late by this multiple of the search's limit, so that a hopeless trial ends
/// early.
const HOPELESS: u32 = 100;
const HOPELESS_MIN: Duration = Duration::from_millis(100);

/// Returns one worker's share of a total.
pub fn share(all: u64, worker: u32, workers: u32) -> u64 {
    all / u64::from(workers) + u64::from(u64::from(worker) < all % u64::from(workers))
}

/// The results of a run.
#[derive(Debug)]
pub struct Ran {
    /// The combined outcome of the workers.
    pub outcome: Outcome,
    /// The outcome of each job, for a load with several.
    pub jobs: Vec<Outcome>,
    /// The load's prepared resources.
    pub prepared: PreparedLoad,
    /// Further results from the load.
    pub finished: Finished,
    /// The run's rounds, if it was supposed to end in a steady state.
    pub steady: Option<SteadyRounds>,
}

/// A run of an experiment: what was decided before it, and the run that is reported.
#[derive(Debug)]
pub struct Measured {
    /// The outcome of the reported run. After a rate search, this is the trial at the highest rate within the limit,
    /// or the last trial if no rate was.
    pub outcome: Outcome,
    /// The outcome of each job, for a load with several; empty if interrupted before the run began.
    pub jobs: Vec<Outcome>,
    /// Further results from the load; empty if interrupted before the run began.
    pub finished: Finished,
    /// The highest rate within the limit, after a rate search that found one.
    pub rate_found: Option<f64>,
    /// Which of the rate search's trials is reported, from 0; 0 without a search.
    pub trial: u32,
    /// The queue depth, either found now or already known.
    pub depth: Option<DepthChoice>,
    /// The load's prepared resources; `None` if interrupted before the run began.
    pub prepared: Option<PreparedLoad>,
    /// The run's rounds, if it was supposed to end in a steady state.
    pub steady: Option<SteadyRounds>,
}

/// A trial of a rate search.
#[derive(Debug)]
pub struct RateTried {
    /// Requests per second.
    pub rate: f64,
    /// True if the trial stayed within the limit.
    pub kept: bool,
    /// The run.
    pub ran: Ran,
}

struct Driven(Box<dyn RunningLoad>);

impl WorkersHandle for Driven {
    fn start(&mut self, at: Nanos) {
        self.0.start(at);
    }
    fn halt(&mut self) {
        self.0
            .command(LoadCommand::Stop)
            .expect("every load can be stopped");
    }
}

/// Executes a run as ordered, until it is done, steady, or `stop` is set; returns the results so far in every case.
///
/// # Errors
/// The run could not be prepared, or a worker failed.
pub fn run(
    load: &dyn Load,
    on: &LoadTarget,
    order: &RunOrder,
    stop: &AtomicBool,
    recorder: &mut dyn Recorder,
) -> Result<Ran, LoadError> {
    let info = load.info();
    if matches!(info.pace, Pace::Search(_)) && order.rate.is_none() {
        let what =
            "a rate search consists of several runs, so it cannot be executed as one".to_string();
        return Err(WorkloadError {
            key: "arrival",
            what,
        }
        .into());
    }
    let (messages, inbox) = MessageSender::new();
    let (prepared, running) = load.prepare(on, order, messages, stop)?;
    let mut driven = Driven(running);
    let mut rounds = match order.trial {
        Some(_) => None,
        None => info.steady.map(|goal| Rounds::new(goal, info.interval)),
    };
    let mut judge = |interval: &Interval| rounds.as_mut()?.judge(interval);
    let collector = Collector::new(&prepared, stop, recorder, &mut judge);
    let Collected { outcome, jobs } = collector.collect(inbox, &mut driven)?;
    Ok(Ran {
        outcome,
        jobs,
        prepared,
        finished: driven.0.finish(),
        steady: rounds.map(Rounds::finish),
    })
}

/// Executes a run of an experiment. First finds the queue depth if the load requests that and `known` has none;
/// searches for the rate if the load requests that.
///
/// # Errors
/// Fails for the same reasons as [`run`].
pub fn measure(
    load: &dyn Load,
    on: &LoadTarget,
    order: &RunOrder,
    known: Option<DepthChoice>,
    stop: &AtomicBool,
    recorder: &mut dyn Recorder,
) -> Result<Measured, LoadError> {
    let LoadInfo {
        depth_search, pace, ..
    } = load.info();
    let mut order = order.clone();
    let mut depth = known;
    if let Some(goal) = depth_search {
        if depth.is_none() {
            depth = find_depth(load, on, &order, goal, stop)?;
        }
        match &depth {
            Some(choice) => order.depth = Some(choice.queue_depth),
            None => return Ok(Measured::interrupted(None)),
        }
    }
    let Pace::Search(goal) = pace else {
        return match run(load, on, &order, stop, recorder) {
            Ok(Ran {
                outcome,
                jobs,
                finished,
                prepared,
                steady,
            }) => Ok(Measured {
                prepared: Some(prepared),
                steady,
                outcome,
                jobs,
                finished,
                rate_found: None,
                trial: 0,
                depth,
            }),
            Err(LoadError::Interrupted) => Ok(Measured::interrupted(depth)),
            Err(error) => Err(error),
        };
    };
    let (rate_found, tried) = find_rate(load, on, &order, goal, stop, recorder)?;
    let at_answer = |tried: &RateTried| Some(tried.rate) == rate_found && tried.kept;
    let chosen = tried
        .iter()
        .position(at_answer)
        .or(tried.len().checked_sub(1))
        .unwrap_or(0);
    Ok(match tried.into_iter().nth(chosen) {
        Some(RateTried { ran, .. }) => {
            let (outcome, finished) = (ran.outcome, ran.finished);
            Measured {
                prepared: Some(ran.prepared),
                steady: ran.steady,
                outcome,
                jobs: Vec::new(),
                finished,
                rate_found,
                trial: chosen as u32,
                depth,
            }
        }
        None => Measured::interrupted(depth),
    })
}

impl Measured {
    /// Returns the result of a run that was stopped before it began.
    fn interrupted(depth: Option<DepthChoice>) -> Measured {
        let (outcome, finished) = (Outcome::interrupted(), Finished::default());
        Measured {
            outcome,
            jobs: Vec::new(),
            finished,
            rate_found: None,
            trial: 0,
            depth,
            prepared: None,
            steady: None,
        }
    }
}

/// The engine and mode of the rings that a load's runs use.
#[derive(Clone, Debug, PartialEq)]
pub struct RingChoices {
    /// The engine; `None` if the load leaves it to its hosts, or has no rings.
    pub engine: Option<EngineChoice>,
    /// The ring mode; `None` for a load without rings.
    pub ring: Option<RingChoice>,
}

/// Determines the engine and mode of a load's rings: as stated, or measured now. `None` if `stop` was set in the
/// meantime.
///
/// # Errors
/// No engine works, or not even the default mode does.
pub fn settle(
    load: &dyn Load,
    on: &LoadTarget,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Option<RingChoices>, LoadError> {
    // The workers are stopped as soon as they are ready: only the choice matters here.
    let (messages, inbox) = MessageSender::new();
    match load.prepare(on, &RunOrder::alone(seed), messages, stop) {
        Ok((PreparedLoad { engine, ring, .. }, running)) => {
            // Dropped first: otherwise, workers waiting for space in the inbox would wait forever.
            drop(inbox);
            drop(running);
            Ok(Some(RingChoices { engine, ring }))
        }
        Err(LoadError::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if anything about a load's rings is measured before its first run.
pub fn is_measured(info: &LoadInfo) -> bool {
    info.engine == EngineNeed::Stated(EngineSetting::Auto) || info.ring == RingMode::Auto
}

/// Returns the minimum duration of a run of an experiment; a rate search consists of many trials.
pub fn run_time_min(info: &LoadInfo) -> Duration {
    match info.pace {
        Pace::Search(RateGoal {
            rate, tolerance, ..
        }) => info.time_min * RateSearch::trials_min(rate, RATE_MAX, tolerance),
        Pace::Closed | Pace::Open { .. } => info.time_min,
    }
}

/// Returns the minimum duration of the queue depth search before the first run; zero if there is none.
pub fn search_time_min(info: &LoadInfo) -> Duration {
    let Some(goal) = info.depth_search else {
        return Duration::ZERO;
    };
    let ramp_up = match info.ramp_up.is_zero() {
        true => DEPTH_RAMP,
        false => info.ramp_up,
    };
    let trials = RunningDepthSearch::trials_min(goal.from, goal.max, goal.promise.is_some());
    (ramp_up + goal.time) * trials
}

/// Finds the queue depth; `None` if `stop` was set in the meantime. The trials use the load's own requests, including
/// writes.
///
/// # Errors
/// Fails for the same reasons as [`run`].
pub fn find_depth(
    load: &dyn Load,
    on: &LoadTarget,
    order: &RunOrder,
    goal: DepthGoal,
    stop: &AtomicBool,
) -> Result<Option<DepthChoice>, LoadError> {
    let mut search = RunningDepthSearch::new(goal.from, goal.max, goal.promise.is_some());
    while let Some(depth) = search.next_depth() {
        let trial = Some(Trial {
            time: goal.time,
            ramp_up: DEPTH_RAMP,
        });
        let order = RunOrder {
            depth: Some(depth),
            trial,
            ..order.clone()
        };
        let ran = match run(load, on, &order, stop, &mut NoRecorder) {
            Err(LoadError::Interrupted) => return Ok(None),
            ran => ran?,
        };
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let kept = goal
            .promise
            .is_none_or(|promise| keeps(&ran.outcome, promise));
        search.report(ran.outcome.bytes_per_second, kept);
    }
    Ok(Some(search.answer()))
}

/// Finds the highest rate within the limit; returns that rate and every trial. Each trial is a run of the load's own
/// length. An interrupted search has no answer, and its last trial is the one that was cut short.
///
/// # Errors
/// Fails for the same reasons as [`run`].
pub fn find_rate(
    load: &dyn Load,
    on: &LoadTarget,
    order: &RunOrder,
    goal: RateGoal,
    stop: &AtomicBool,
    recorder: &mut dyn Recorder,
) -> Result<(Option<f64>, Vec<RateTried>), LoadError> {
    let mut search = RateSearch::new(goal.rate, RATE_MAX, goal.tolerance);
    let mut tried = Vec::new();
    while let Some(rate) = search.next_rate() {
        let skip_after = goal
            .promise
            .limit
            .saturating_mul(HOPELESS)
            .max(HOPELESS_MIN);
        let order = RunOrder {
            rate: Some(RateTrial { rate, skip_after }),
            ..order.clone()
        };
        let ran = match run(load, on, &order, stop, recorder) {
            Err(LoadError::Interrupted) => return Ok((None, tried)),
            ran => ran?,
        };
        let complete = ran.outcome.is_complete();
        let kept = complete && keeps(&ran.outcome, goal.promise);
        tried.push(RateTried { rate, kept, ran });
        if !complete {
            // A trial that was cut short says nothing about the rate, but its results are kept.
            return Ok((None, tried));
        }
        search.report(kept);
    }
    Ok((search.answer(), tried))
}

/// Returns true if a trial stayed within its limit, with all requests successful and none skipped or hanging.
fn keeps(outcome: &Outcome, promise: Promise) -> bool {
    let counts = outcome.figures.counts;
    let clean = counts.errors() == 0
        && counts.of(RequestStatus::Skipped) == 0
        && counts.of(RequestStatus::Hanging) == 0;
    let response = outcome.figures.response().percentile(promise.percentile);
    clean && response.is_some_and(|response| response.since(Nanos(0)) <= promise.limit)
}

#[cfg(test)]
mod tests;
