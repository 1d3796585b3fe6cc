//! The trait for loads of any kind: requests to a device, operations on files. Each point of an experiment has a
//! [`Load`], which [`crate::decisions`] runs; every kind has a line in [`crate::LOADS`].
//!
//! The rule: a load executes a run as ordered and reports its results. Decisions that involve all workers (steady
//! state, rate, queue depth) are made in a layer above.

use std::error::Error;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_block::backends::join::JoinError;
use brunt_block::{Backend, DeviceInfo, OpenError};
use brunt_core::Nanos;
use brunt_result::OpKind;
use brunt_result::choice::{EngineChoice, EngineSetting, PageCache, RingChoice, RingMode};
use brunt_result::hosts::HostFigures;
use brunt_result::replay::ReplayFidelity;
use brunt_result::steady::SteadyRule;

use crate::block::journal_store::{JournalStore, RunMark};
use crate::collect::WorkerSender;
use crate::commands::{LoadCommand, LoadCommandError};
use crate::hosted::HostedLoad;

/// Minimum reporting interval: merging an interval's histograms takes a tenth of a millisecond.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Maximum reporting interval (SPEK, 2005, section 2.1).
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// The channel on which a load's workers report.
pub type MessageSender = WorkerSender<LoadError>;

/// A described load, for any number of runs.
pub trait Load: std::fmt::Debug + Send + Sync {
    /// Returns the load's name in [`crate::LOADS`].
    fn kind(&self) -> &'static str;

    /// Returns what is known about the load without running it.
    fn info(&self) -> LoadInfo;

    /// Describes the load in one human-readable line: `4KiB, 70 % reads, random, 8 outstanding, closed loop`.
    fn describe(&self) -> String;

    /// Returns additional keys for a plan, besides those that every load has.
    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    /// Returns the other hosts that the load runs on; empty if it runs on this machine.
    fn hosts(&self) -> &[String] {
        &[]
    }

    /// Returns the kind of input that the load reads before its first run, such as `traces`. Reading this input may
    /// take long, and [`Load::check_target`] needs it.
    fn input(&self) -> Option<&'static str> {
        None
    }

    /// Checks that the load fits the device of one of its targets. Doesn't open any device.
    ///
    /// # Errors
    /// The load doesn't fit, or its input can't be read.
    fn check_target(&self, _info: &DeviceInfo, _target: &str) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// Returns true if the load changes data on one of its targets. A replay reads its trace for this, unless that
    /// has been done already, so the answer is more precise than [`LoadInfo::writes`].
    ///
    /// # Errors
    /// The trace can't be read.
    fn changes_target(&self, _target: &str) -> Result<bool, WorkloadError> {
        Ok(self.info().writes)
    }

    /// Prepares what all of the load's runs share, and returns notes for the user. Called once, before the first run.
    /// Loads that wait for other hosts check `stop` in the meantime.
    ///
    /// # Errors
    /// The load can't be used here; [`LoadError::Interrupted`] if `stop` was set.
    fn open(&self, on: &LoadTarget, stop: &AtomicBool) -> Result<Vec<String>, LoadError>;

    /// Prepares the workers of a run; they report to `inbox` and wait for their start. Checks `stop` in the meantime.
    ///
    /// # Errors
    /// [`LoadError::Interrupted`] if `stop` was set in the meantime; otherwise, the reason why the run is impossible.
    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError>;

    /// Removes what [`Load::open`] created. Called once, after the last run.
    ///
    /// # Errors
    /// Something could not be removed.
    fn close(&self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Returns the load as one that other hosts can run; `None` if it only runs locally.
    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        None
    }
}

/// The target of a load.
#[derive(Clone, Default)]
pub struct LoadTarget {
    /// The device, for loads that drive one.
    pub device: Option<Arc<dyn Backend>>,
    /// The parts of the device that belong to the targets, one after the other; empty if there is a single target.
    pub parts: Vec<Range<u64>>,
    /// The target of each job, for a load with several jobs; jobs without an entry use the fields above.
    pub jobs: Vec<LoadTarget>,
}

impl LoadTarget {
    /// Returns a target that consists of a whole device.
    pub fn of(device: Arc<dyn Backend>) -> LoadTarget {
        LoadTarget {
            device: Some(device),
            ..LoadTarget::default()
        }
    }

    /// Returns the target of a job.
    pub fn job(&self, index: usize) -> &LoadTarget {
        self.jobs.get(index).unwrap_or(self)
    }
}

/// What is known about a load without running it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadInfo {
    /// The kinds of the load's operations, in the order of their figures.
    pub kinds: Vec<OpKind>,
    /// Number of worker threads.
    pub workers: u32,
    /// Maximum outstanding requests per worker.
    pub queue_depth: u32,
    /// When requests are issued.
    pub pace: Pace,
    /// Duration of the warm-up before measuring.
    pub ramp_up: Duration,
    /// Length of an interval; zero means a single interval for the whole run.
    pub interval: Duration,
    /// The steady-state goal, if the run ends when the throughput is steady.
    pub steady: Option<SteadyGoal>,
    /// The goal of the queue depth search before the first run, if there is one.
    pub depth_search: Option<DepthGoal>,
    /// Minimum duration of a run.
    pub time_min: Duration,
    /// Whether a run may take longer, because it ends when its requests or bytes are done.
    pub open_ended: bool,
    /// Whether the load writes to the device.
    pub writes: bool,
    /// Whether each of the load's requests is recorded (`record_requests`).
    pub records_requests: bool,
    /// The engine of the workers' rings; [`EngineSetting::Auto`] is measured before the first run
    /// ([`crate::decisions::settle`]).
    pub engine: EngineNeed,
    /// The mode of the workers' rings; [`RingMode::Auto`] is also measured before the first run.
    pub ring: RingMode,
}

/// A load's requirement for the engine of its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineNeed {
    /// The load has no rings.
    #[default]
    None,
    /// The process's default.
    Usual,
    /// As specified in its workload.
    Stated(EngineSetting),
}

impl EngineNeed {
    /// Returns the requirement of a load that has rings, given its workload's setting.
    pub fn of(setting: Option<EngineSetting>) -> EngineNeed {
        setting.map_or(EngineNeed::Usual, EngineNeed::Stated)
    }
}

/// One worker with one outstanding request at a time, until all are done, without writes; loads override what differs.
impl Default for LoadInfo {
    fn default() -> LoadInfo {
        LoadInfo {
            kinds: Vec::new(),
            workers: 1,
            queue_depth: 1,
            pace: Pace::Closed,
            ramp_up: Duration::ZERO,
            interval: Duration::ZERO,
            steady: None,
            depth_search: None,
            time_min: Duration::ZERO,
            open_ended: true,
            writes: false,
            records_requests: false,
            engine: EngineNeed::None,
            ring: RingMode::default(),
        }
    }
}

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// After completions.
    Closed,
    /// At scheduled times, at this combined rate of all workers.
    Open {
        /// Requests per second.
        rate: f64,
    },
    /// At the highest rate that meets a latency limit.
    Search(RateGoal),
}

/// The goal of a rate search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateGoal {
    /// The latency limit.
    pub promise: Promise,
    /// Starting rate in requests per second.
    pub rate: f64,
    /// The search ends when the answer is known to within this relative error.
    pub tolerance: f64,
}

/// The goal of a queue depth search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthGoal {
    /// The first depth to try.
    pub from: u32,
    /// The maximum depth to try.
    pub max: u32,
    /// The measured duration of each trial.
    pub time: Duration,
    /// If set, the search finds the greatest depth that meets this limit, rather than the depth that saturates the
    /// target.
    pub promise: Option<Promise>,
}

/// A limit for a percentile of the response time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// The percentile, such as 99.
    pub percentile: f64,
    /// Maximum response time at this percentile.
    pub limit: Duration,
}

/// The goal of a steady-state run: its rounds, and when they count as steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyGoal {
    /// Length of a round.
    pub round: Duration,
    /// Maximum number of rounds.
    pub rounds_max: u32,
    /// Time before the first round begins.
    pub after: Duration,
    /// The criteria for a steady state.
    pub rule: SteadyRule,
}

/// The order for one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOrder {
    /// Seed of all requests.
    pub seed: u64,
    /// Distinguishes the blocks of this run from those of other runs during verification.
    pub run: u64,
    /// Number of the run within its experiment, which also keeps verification journals apart. `None` for a single
    /// run.
    pub order: Option<u32>,
    /// The engine of the rings, if already chosen.
    pub engine: Option<EngineSetting>,
    /// The mode of the rings, if already chosen.
    pub ring: Option<RingMode>,
    /// The queue depth, if it differs from the load's own.
    pub depth: Option<u32>,
    /// The rate, if it differs from the load's own.
    pub rate: Option<RateTrial>,
    /// Set for a trial that determines how to run the load.
    pub trial: Option<Trial>,
    /// Set if only some of the run's workers are on this machine; with `None`, all are.
    pub part: Option<RunPart>,
    /// Receives the journals of a load that verifies its writes. With `None` they go to the load's folder, if it has
    /// one.
    pub journal_store: Option<JournalStore>,
}

/// Some of a run's workers. They issue the same requests as if all workers were on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Number of the first of these workers, counted across all hosts.
    pub first_worker: u32,
    /// Number of the run's workers on all hosts.
    pub workers_of_all: u32,
    /// Number of workers that share these workers' device: all workers, or those of this host if each host has its own
    /// device.
    pub workers_on_device: u32,
}

impl RunPart {
    /// Returns a part that comprises the whole run, with this number of workers.
    pub fn whole(workers: u32) -> RunPart {
        RunPart {
            first_worker: 0,
            workers_of_all: workers,
            workers_on_device: workers,
        }
    }
}

/// A rate to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateTrial {
    /// Requests per second of all workers combined.
    pub rate: f64,
    /// Requests that are this late are skipped, so that a hopeless trial ends early.
    pub skip_after: Duration,
}

/// A run of limited duration, without verification and without recording requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The measured duration.
    pub time: Duration,
    /// Ramp-up if the load has none.
    pub ramp_up: Duration,
}

impl RunOrder {
    /// Returns the order for a single run of the load without changes.
    pub fn alone(seed: u64) -> RunOrder {
        RunOrder {
            seed,
            run: seed,
            order: None,
            engine: None,
            ring: None,
            depth: None,
            rate: None,
            trial: None,
            part: None,
            journal_store: None,
        }
    }

    /// Returns the mark that distinguishes the blocks of this run from those of others.
    pub(crate) fn mark(&self) -> RunMark {
        RunMark {
            run: self.run,
            journal_store: self.journal_store.clone(),
        }
    }
}

/// The result of preparing a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedLoad {
    /// Number of reporting workers.
    pub workers: u32,
    /// Maximum outstanding requests per worker.
    pub queue_depth: u32,
    /// The engine of the workers' rings, measured now unless already chosen. `None` for a load without rings, and if
    /// other hosts report theirs later.
    pub engine: Option<EngineChoice>,
    /// The mode of the workers' rings; `None` for a load without rings, and if other hosts report theirs later.
    pub ring: Option<RingChoice>,
    /// The jobs of a load with several, in the order of their workers; otherwise empty.
    pub jobs: Vec<PreparedJob>,
    /// How far in advance the workers must receive their start time.
    pub notice: Duration,
}

/// Sufficient lead time for worker threads of this process.
const NOTICE: Duration = Duration::from_millis(2);

impl PreparedLoad {
    /// Returns the result for a load without jobs and without rings.
    pub fn alone(workers: u32, queue_depth: u32) -> PreparedLoad {
        PreparedLoad {
            workers,
            queue_depth,
            engine: None,
            ring: None,
            jobs: Vec::new(),
            notice: NOTICE,
        }
    }
}

/// A prepared job of a load with several.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedJob {
    /// Number of workers that report for the job.
    pub workers: u32,
    /// See [`PreparedLoad::engine`].
    pub engine: Option<EngineChoice>,
    /// Index of its first interval among those of the run, as the job may start later than others.
    pub first_interval: u64,
    /// Whether the run ends when this job ends.
    pub ends_run: bool,
}

/// A prepared run. Dropping it stops its workers and waits for them.
pub trait RunningLoad: Send {
    /// Starts the workers at this time. Called once, when all of them have reported that they are ready.
    fn start(&mut self, at: Nanos);

    /// Gives the workers a command.
    ///
    /// # Errors
    /// This load does not support the command; it continues unchanged.
    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError>;

    /// Waits for the last worker to end. Called when all of them have reported their end.
    fn finish(self: Box<Self>) -> Finished;
}

/// Results of a run from the load itself, besides its workers' reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// The influence of the page cache, if one was involved.
    pub page_cache: Option<PageCache>,
    /// How faithful the replay of a trace was.
    pub replay: Option<Box<ReplayFidelity>>,
    /// The measurements of this part of a replay shared with other hosts, for [`HostedLoad::judge`].
    pub replay_part: Option<String>,
    /// Device problems that don't show in the requests, such as failed connection attempts; sorted by worker.
    pub troubles: Vec<String>,
    /// The hosts that ran the load, if not this machine.
    pub hosts: Vec<HostFigures>,
    /// The results of each job, for a load with several.
    pub jobs: Vec<Finished>,
}

/// Why a run failed or could not start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load is invalid, or doesn't fit this device.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A worker could not open the device.
    #[error("worker {worker} cannot open {device}: {source}")]
    Open {
        /// Number of the worker.
        worker: u32,
        /// Name of the device.
        device: String,
        /// The cause.
        source: Box<OpenError>,
    },
    /// A worker, its thread, its ring or its journal failed.
    #[error("worker {worker}: {source}")]
    Io {
        /// Number of the worker.
        worker: u32,
        /// The cause.
        source: io::Error,
    },
    /// An error specific to this kind of load.
    #[error("{source}")]
    Own {
        /// The load's kind.
        kind: &'static str,
        /// The cause, and what to do about it.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A load for devices has no device.
    #[error("a {kind} load sends its requests to a device, but its target has no open device")]
    NoDevice {
        /// The load's kind.
        kind: &'static str,
    },
    /// The targets of one load cannot be driven as one device.
    #[error("devices: {0}")]
    Join(#[from] JoinError),
    /// The run was stopped while it was being prepared.
    #[error("interrupted while the run was being prepared")]
    Interrupted,
}

/// An error in a workload: the key, and what would be correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct WorkloadError {
    /// The key as written in the file, such as `blocks` or `stop.steady.round`.
    pub key: &'static str,
    /// What is wrong, and what would be correct.
    pub what: String,
}

pub(crate) fn wrong(key: &'static str, what: impl Into<String>) -> Result<(), WorkloadError> {
    Err(WorkloadError {
        key,
        what: what.into(),
    })
}
