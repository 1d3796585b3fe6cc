//! A load of any kind: requests to a device, operations on files. Each point of an experiment has a [`Load`],
//! which [`crate::decisions`] runs; every kind is a line of [`crate::LOADS`].
//!
//! The rule: a load executes one run as ordered and reports its results. Decisions that involve all workers
//! (steady state, rate, queue depth) are made above it.

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
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::shelf::{JournalShelf, RunMark};
use crate::collect::WorkerSender;
use crate::commands::{LoadCommand, LoadCommandError};
use crate::hosted::HostedLoad;

/// Shortest report interval: merging histograms costs a tenth of a millisecond for each.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Longest report interval (papers/spek.md, 2.1).
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Where a load's workers send what they see.
pub type MessageSender = WorkerSender<LoadError>;

/// A load as described, for as many runs as anybody wants.
pub trait Load: std::fmt::Debug + Send + Sync {
    /// Its line in [`crate::LOADS`].
    fn kind(&self) -> &'static str;

    /// What there is to know of it without running it.
    fn info(&self) -> LoadInfo;

    /// For people, in one line: `4KiB, 70 % reads, random, 8 outstanding, closed loop`.
    fn describe(&self) -> String;

    /// Keys of its own in a plan, beside those that every load has.
    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    /// The other hosts that it runs on; none: it runs here.
    fn hosts(&self) -> &[String] {
        &[]
    }

    /// What it reads before its first run, such as `traces`. That may take long, and is needed by
    /// [`Load::check_target`].
    fn input(&self) -> Option<&'static str> {
        None
    }

    /// Whether it fits the device of a target, one of those that it runs on. Opens no device.
    ///
    /// # Errors
    /// It does not fit, or its input cannot be read.
    fn check_target(&self, _info: &DeviceInfo, _target: &str) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// Whether it changes what is on a target, one of those that it runs on. Reads what it replays, if that was not done
    /// yet, and knows more than [`LoadInfo::writes`] then.
    ///
    /// # Errors
    /// What it replays cannot be read.
    fn changes_target(&self, _target: &str) -> Result<bool, WorkloadError> {
        Ok(self.info().writes)
    }

    /// Makes what all of its runs share, and says what the user has to know beside the figures. Called once, before the
    /// first run. `stop` is looked at by those that wait for others meanwhile.
    ///
    /// # Errors
    /// It cannot be used here; [`LoadError::Interrupted`] when `stop` was set.
    fn open(&self, on: &LoadTarget, stop: &AtomicBool) -> Result<Vec<String>, LoadError>;

    /// Makes the workers of one run ready; they report to `inbox`, and wait for their start. `stop` is looked at while
    /// that takes long.
    ///
    /// # Errors
    /// [`LoadError::Interrupted`] when `stop` was set meanwhile; otherwise the run cannot be made.
    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError>;

    /// Takes away what [`Load::open`] made. Called once, after the last run.
    ///
    /// # Errors
    /// Something is left behind.
    fn close(&self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Itself as a load that other hosts can run; `None`: it runs only where it was made.
    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        None
    }
}

/// What a load is run on.
#[derive(Clone, Default)]
pub struct LoadTarget {
    /// The device, for loads that drive one.
    pub device: Option<Arc<dyn Backend>>,
    /// The parts of it that several targets have, one behind the other; empty for one target.
    pub parts: Vec<Range<u64>>,
    /// Of a load of several jobs what each is run on; one that is not here is run on the above.
    pub jobs: Vec<LoadTarget>,
}

impl LoadTarget {
    /// All of one device.
    pub fn of(device: Arc<dyn Backend>) -> LoadTarget {
        LoadTarget {
            device: Some(device),
            ..LoadTarget::default()
        }
    }

    /// What a job is run on.
    pub fn job(&self, index: usize) -> &LoadTarget {
        self.jobs.get(index).unwrap_or(self)
    }
}

/// What there is to know of a load without running it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadInfo {
    /// The kinds of operations it makes, in the order of their figures.
    pub kinds: Vec<OpKind>,
    /// Worker threads.
    pub workers: u32,
    /// Requests that each keeps outstanding at most.
    pub queue_depth: u32,
    /// When requests are issued.
    pub pace: Pace,
    /// What comes before measuring, by time.
    pub ramp_up: Duration,
    /// Length of an interval; zero: one for all of the run.
    pub interval: Duration,
    /// It ends when the throughput is steady.
    pub steady: Option<SteadyGoal>,
    /// Its queue depth is found before the first run.
    pub depth_search: Option<DepthGoal>,
    /// How long a run takes at least.
    pub time_min: Duration,
    /// Whether it may take longer: it ends when its requests or bytes are done.
    pub open_ended: bool,
    /// Whether the device is written.
    pub writes: bool,
    /// Which engine its rings have; [`EngineSetting::Auto`] is measured before the first run
    /// ([`crate::decisions::settle`]).
    pub engine: EngineNeed,
    /// How its workers' rings work; [`RingMode::Auto`] is measured before the first run, too.
    pub ring: RingMode,
}

/// What a load says about the engine of its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineNeed {
    /// It has no rings.
    #[default]
    None,
    /// It takes what its process has.
    Usual,
    /// Its workload says this.
    Stated(EngineSetting),
}

impl EngineNeed {
    /// Of a load with rings whose workload says this.
    pub fn of(setting: Option<EngineSetting>) -> EngineNeed {
        setting.map_or(EngineNeed::Usual, EngineNeed::Stated)
    }
}

/// One worker that makes one request after another until all are done, and writes nothing: a load states what is different.
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
    /// At their times: so many a second, all workers together.
    Open {
        /// Requests a second.
        rate: f64,
    },
    /// At the highest rate that keeps a promise.
    Search(RateGoal),
}

/// A rate search's promise and how it is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateGoal {
    /// What has to hold.
    pub promise: Promise,
    /// Starting rate in requests per second.
    pub rate: f64,
    /// The answer is known to within this share of itself.
    pub tolerance: f64,
}

/// How a queue depth is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthGoal {
    /// Where it begins.
    pub from: u32,
    /// The deepest that is tried.
    pub max: u32,
    /// How long each is measured.
    pub time: Duration,
    /// Looked for is the deepest that keeps this promise, not the one that saturates the target.
    pub promise: Option<Promise>,
}

/// A limit of a percentile of the response time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Such as 99.
    pub percentile: f64,
    /// What it may be at most.
    pub limit: Duration,
}

/// Rounds of the steady-state test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyGoal {
    /// Length of a round.
    pub round: Duration,
    /// Rounds at most.
    pub rounds_max: u32,
    /// When the first begins.
    pub after: Duration,
    /// What has to hold.
    pub rule: SteadyRule,
}

/// What has to be steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SteadyFigure {
    /// Requests of a round.
    #[default]
    Requests,
    /// Bytes of a round.
    Bytes,
    /// Mean service time of a round's requests.
    ServiceTime,
}

/// What has to hold over the last rounds, each as a share of their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyRule {
    /// Rounds looked at.
    pub window: usize,
    /// Their figure.
    pub figure: SteadyFigure,
    /// Largest minus smallest, at most.
    pub range: Option<f64>,
    /// Rise of the fitted line over the window, at most, up or down.
    pub rise: Option<f64>,
    /// Distance of any from the mean, at most.
    pub deviation: Option<f64>,
    /// Rise of the fitted line from round to round, at most, up or down.
    pub slope: Option<f64>,
}

/// SNIA's.
impl Default for SteadyRule {
    fn default() -> SteadyRule {
        let (figure, range, rise) = (SteadyFigure::Requests, Some(0.20), Some(0.10));
        SteadyRule {
            window: 5,
            figure,
            range,
            rise,
            deviation: None,
            slope: None,
        }
    }
}

/// One run, as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOrder {
    /// All requests follow from it.
    pub seed: u64,
    /// Tells the blocks of this run from those of another when they are verified.
    pub run: u64,
    /// Its place among the runs of an experiment; verification journals are kept apart by it. `None`: it
    /// stands alone.
    pub order: Option<u32>,
    /// The engine of its rings, if that was chosen already.
    pub engine: Option<EngineSetting>,
    /// How the rings work, if that was chosen already.
    pub ring: Option<RingMode>,
    /// The queue depth, if another than the load's own.
    pub depth: Option<u32>,
    /// The rate, if another than the load's own.
    pub rate: Option<RateTrial>,
    /// It is a trial, to find out how the load should be run.
    pub trial: Option<Trial>,
    /// Its workers are some of the run's, the others being elsewhere; `None`: they are all of them.
    pub part: Option<RunPart>,
    /// Journals of a load that verifies what it writes go there; `None`: into its folder, if it names one.
    pub shelf: Option<JournalShelf>,
}

/// Some workers of a run. They make the requests that they would make if all were here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Number of the first among all.
    pub first_worker: u32,
    /// How many the run has everywhere.
    pub workers_of_all: u32,
    /// How many share the device of these: all, or where each host has its own, those of this host.
    pub workers_on_device: u32,
}

impl RunPart {
    /// All of a run that has so many.
    pub fn whole(workers: u32) -> RunPart {
        RunPart {
            first_worker: 0,
            workers_of_all: workers,
            workers_on_device: workers,
        }
    }
}

/// A rate that is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateTrial {
    /// Requests per second, all workers together.
    pub rate: f64,
    /// Hopelessly late requests are skipped after this long.
    pub skip_after: Duration,
}

/// A run of so long, in which nothing is verified and no request recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// How long it is measured.
    pub time: Duration,
    /// Ramp-up of a load that has none.
    pub ramp_up: Duration,
}

impl RunOrder {
    /// The load as it is, standing alone.
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
            shelf: None,
        }
    }

    /// What its blocks are told from others' by.
    pub(crate) fn mark(&self) -> RunMark {
        RunMark {
            run: self.run,
            shelf: self.shelf.clone(),
        }
    }
}

/// What was made ready.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedLoad {
    /// How many workers report.
    pub workers: u32,
    /// Requests that each may keep outstanding.
    pub queue_depth: u32,
    /// The engine of their rings, measured now if nobody had chosen; `None` for a load without rings, and where it is
    /// other hosts' that say later what they have.
    pub engine: Option<EngineChoice>,
    /// How their rings work, likewise.
    pub ring: Option<RingChoice>,
    /// Of a load of several jobs each, in the order of their workers; empty of all others.
    pub jobs: Vec<PreparedJob>,
    /// How long before their start the workers have to be told of it.
    pub notice: Duration,
}

/// What workers in threads of this process need.
const NOTICE: Duration = Duration::from_millis(2);

impl PreparedLoad {
    /// One load, without jobs and rings.
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

/// A job that was made ready among others.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedJob {
    /// How many workers report for it.
    pub workers: u32,
    /// As [`PreparedLoad::engine`].
    pub engine: Option<EngineChoice>,
    /// Number of its first interval among those of the run: it may start later than others.
    pub first_interval: u64,
    /// Whether its end is that of the run.
    pub ends_run: bool,
}

/// A run that was made ready. When it is dropped its workers are stopped and gone.
pub trait RunningLoad: Send {
    /// Has the workers start at this time. Called once, when all have reported that they are ready.
    fn start(&mut self, at: Nanos);

    /// Tells the workers.
    ///
    /// # Errors
    /// This load cannot do that; it goes on as before.
    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError>;

    /// Waits for the last worker to be gone. Called when each has reported its end.
    fn finish(self: Box<Self>) -> Finished;
}

/// What a load knows of a run that ended, beside what its workers reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// The page cache's part, if there was one in the way.
    pub page_cache: Option<PageCache>,
    /// How true it was, of the replay of a trace.
    pub replay: Option<Box<ReplayFidelity>>,
    /// The same of a part, the others being on other hosts: for [`HostedLoad::judge`].
    pub replay_part: Option<String>,
    /// What its devices went through that their requests do not tell, such as attempts to connect; by worker.
    pub troubles: Vec<String>,
    /// The hosts that ran it, if they are others.
    pub hosts: Vec<HostFigures>,
    /// The same of each job of a load of several.
    pub jobs: Vec<Finished>,
}

/// Why a run could not be.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load makes no sense, or not on this device.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A worker could not open the device.
    #[error("worker {worker} cannot open {device}: {source}")]
    Open {
        /// Which.
        worker: u32,
        /// The device's name.
        device: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// A worker has no thread or no ring, or it failed, or its journal did.
    #[error("worker {worker}: {source}")]
    Io {
        /// Which.
        worker: u32,
        /// Why.
        source: io::Error,
    },
    /// Trouble that only loads of this kind have.
    #[error("{source}")]
    Own {
        /// The load's kind.
        kind: &'static str,
        /// Why, and what to do.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A load for devices was given none.
    #[error("a {kind} load sends its requests to a device, and its target has none that is open")]
    NoDevice {
        /// The load's kind.
        kind: &'static str,
    },
    /// The targets of one load cannot be driven as one device.
    #[error("devices: {0}")]
    Join(#[from] JoinError),
    /// Somebody stopped it while it was made ready.
    #[error("interrupted while the run was being prepared")]
    Interrupted,
}

/// What is wrong with a workload: which key, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct WorkloadError {
    /// The key as written in the file, such as `blocks` or `stop.steady.round`.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub what: String,
}

pub(crate) fn wrong(key: &'static str, what: impl Into<String>) -> Result<(), WorkloadError> {
    Err(WorkloadError {
        key,
        what: what.into(),
    })
}
