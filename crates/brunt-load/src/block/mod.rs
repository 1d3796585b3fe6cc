//! Loads that drive a device with a described workload. Workers run in threads, each with one ring.
//!
//! The rule: workers' histograms are merged; nothing is averaged.
//!
//! Memory doesn't grow with requests or time. A worker has `queue_depth` buffers of the largest block size, and eight
//! histograms of 8 KiB for each octave of latencies; at most 64 intervals are queued for the recorder. Measured: 10.4
//! MB for a million requests, 10.6 MB for twenty million.

pub mod arrival;
pub mod audit;
pub mod blocks;
pub mod calibrate;
pub mod data;
mod describe;
pub mod engine;
pub mod generator;
mod hosted;
pub mod journal_store;
pub mod journals;
mod memory;
mod passes;
pub mod patterns;
pub mod processes;
pub mod seeded;
mod session;
pub mod shuffle;
pub mod sizes;
pub mod stride;
pub mod synthetic;
pub mod verify;
pub mod worker;
pub(crate) mod workers;
pub mod workload;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use brunt_block::{Backend, DeviceInfo, Health, RingConfig};
use brunt_core::{Nanos, Span};
use brunt_result::Outcome;
use brunt_result::choice::{EngineChoice, EngineSetting, RingChoice, RingMode};

use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands};
use crate::decisions;
use crate::hosted::HostedLoad;
use crate::kind::{LoadForm, LoadKind};
use crate::load::{
    DepthGoal, EngineNeed, Load, LoadError, LoadInfo, LoadTarget, MessageSender, Pace,
    PreparedLoad, Promise, RateGoal, RunOrder, RunPart, RunningLoad, Trial, WorkloadError,
};
use crate::record::NoRecorder;
use engine::EnginePreview;
use journal_store::RunMark;
pub use session::Session;
use synthetic::WorkerId;
use worker::{RingTime, Worker};
use workers::{WorkerJob, Workers, open_device, ring_of};
use workload::{Arrival, RampUp, StopCondition, Workload};

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "block";

/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "requests to a block device, bypassing the page cache",
    example: "read = 0.7\nqueue_depth = 8\nstop = { time = \"30s\" }",
    permit: None,
    read: |text, _| {
        let workload: Workload = toml::from_str(text).map_err(Box::new)?;
        workload.check()?;
        if workload.trace.is_some() {
            let what = "to replay a trace, use a load of the kind `replay`".into();
            return Err(WorkloadError { key: "trace", what }.into());
        }
        if workload.nfs.is_some() {
            let what = "to make NFS calls, use a load of the kind `nfs`".into();
            return Err(WorkloadError { key: "nfs", what }.into());
        }
        Ok(vec![(String::new(), Arc::new(BlockLoad::new(workload)))])
    },
    form: LoadForm::Workload,
};

/// A described workload as a load.
#[derive(Clone, Debug, Default)]
pub struct BlockLoad {
    /// The workload.
    pub workload: Workload,
    /// Settings of the workers' rings; the buffer arena is sized to fit.
    pub ring: RingConfig,
}

impl BlockLoad {
    /// Creates a load with default ring settings.
    pub fn new(workload: Workload) -> BlockLoad {
        BlockLoad {
            workload,
            ring: RingConfig::default(),
        }
    }

    /// Returns the workload of one run, with the order's settings applied.
    pub fn ordered(&self, order: &RunOrder) -> Workload {
        let mut workload = self.workload.clone();
        // The ring's engine is the default for a workload that doesn't name one.
        let base = self.ring.engine.map(EngineSetting::from);
        workload.engine = order.engine.or(workload.engine).or(base);
        workload.ring = order.ring.unwrap_or(workload.ring);
        workload.queue_depth = order.depth.unwrap_or(workload.queue_depth);
        if let Some(rate) = order.rate {
            let process = match workload.arrival {
                Arrival::Open { process, .. } | Arrival::Search { process, .. } => process,
                Arrival::Closed {} => processes::ArrivalProcess::default(),
            };
            workload.arrival = Arrival::Open {
                rate: rate.rate,
                process,
                skip_after: Span(rate.skip_after),
            };
        }
        workload.separate_journals(order.order);
        if let Some(trial) = order.trial {
            (workload.burst, workload.verify, workload.record_requests) = (None, None, false);
            workload.stop = StopCondition {
                time: Some(Span(trial.time)),
                ..StopCondition::default()
            };
            workload.interval = Span(Duration::ZERO);
            workload.ramp_up.get_or_insert(RampUp {
                requests: 0,
                time: Span(trial.ramp_up),
            });
        }
        workload
    }
}

impl BlockLoad {
    /// Measures which engine is fastest.
    fn choose_engine(
        &self,
        on: &LoadTarget,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<EngineChoice, LoadError> {
        calibrate::choose_engine(stop, |engine| {
            // The ring mode is chosen afterwards, for the chosen engine.
            self.trial(Some(engine.into()), RingMode::Interrupt, on, seed, stop)
        })
    }

    /// Measures which way of submitting requests is fastest with this engine.
    fn choose_ring(
        &self,
        engine: &EngineChoice,
        on: &LoadTarget,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<RingChoice, LoadError> {
        calibrate::choose_ring(stop, |mode| {
            self.trial(Some(engine.engine.into()), mode, on, seed, stop)
        })
    }

    /// Runs briefly, with reads in this load's block sizes at its depth.
    fn trial(
        &self,
        engine: Option<EngineSetting>,
        ring: RingMode,
        on: &LoadTarget,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Outcome, LoadError> {
        let trial = Trial {
            time: calibrate::TRIAL,
            ramp_up: calibrate::TRIAL_RAMP,
        };
        let order = RunOrder {
            engine,
            ring: Some(ring),
            trial: Some(trial),
            ..RunOrder::alone(seed)
        };
        let mut load = self.clone();
        let workload = &mut load.workload;
        (workload.arrival, workload.ramp_up) = (Arrival::Closed {}, None);
        workload.only_reads();
        Ok(decisions::run(&load, on, &order, stop, &mut NoRecorder)?.outcome)
    }
}

fn device(on: &LoadTarget) -> Result<&Arc<dyn Backend>, LoadError> {
    on.device.as_ref().ok_or(LoadError::NoDevice { kind: KIND })
}

impl Load for BlockLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        let workload = &self.workload;
        let (time_min, bounded) = workload.time();
        LoadInfo {
            kinds: workload.kinds(),
            workers: workload.workers,
            queue_depth: workload.queue_depth,
            pace: match workload.arrival {
                Arrival::Closed {} => Pace::Closed,
                Arrival::Open { rate, .. } => Pace::Open { rate },
                Arrival::Search {
                    percentile,
                    limit,
                    rate,
                    tolerance,
                    ..
                } => {
                    let promise = Promise {
                        percentile,
                        limit: limit.0,
                    };
                    Pace::Search(RateGoal {
                        promise,
                        rate,
                        tolerance,
                    })
                }
            },
            ramp_up: workload
                .ramp_up
                .map_or(Duration::ZERO, |ramp_up| ramp_up.time.0),
            interval: workload.interval.0,
            steady: workload.stop.steady.map(|steady| steady.goal()),
            depth_search: workload.depth_search.map(|search| DepthGoal {
                from: workload.queue_depth,
                max: search.max,
                time: search.time.0,
                promise: search.promise(),
            }),
            time_min,
            open_ended: !bounded,
            writes: workload.changes_data(),
            records_requests: workload.record_requests,
            engine: EngineNeed::of(workload.engine),
            ring: workload.ring,
        }
    }

    fn describe(&self) -> String {
        self.workload.describe(&[])
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("workload", self.workload.as_json())]
    }

    fn check_target(&self, info: &DeviceInfo, _target: &str) -> Result<(), WorkloadError> {
        self.workload.check_device(info).map(drop)
    }

    fn open(&self, on: &LoadTarget, _stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        engine::preview(self.workload.engine, self.workload.ring)?;
        Ok(device(on)?.info().notes.clone())
    }

    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let backend = device(on)?;
        let mut workload = self.ordered(order);
        if !workload.hosts.is_empty() {
            let what = "this workload names other hosts, so it cannot run here alone".to_string();
            return Err(WorkloadError { key: "hosts", what }.into());
        }
        let part = order
            .part
            .unwrap_or_else(|| RunPart::whole(workload.workers));
        // Workers of other hosts may use the device, too.
        let sharing = Workload {
            workers: part.workers_on_device,
            ..workload.clone()
        };
        let (_, region_bytes) = sharing.check_device(backend.info())?;
        // Bytes and requests are totals over all workers.
        let devices = part.workers_of_all / part.workers_on_device.max(1);
        workload.settle_passes(region_bytes.saturating_mul(u64::from(devices)));
        let engine = match engine::preview(workload.engine, workload.ring)? {
            EnginePreview::Settled(choice) => choice,
            EnginePreview::Measured => self.choose_engine(on, order.seed, stop)?,
        };
        let ring = match workload.ring {
            RingMode::Auto => self.choose_ring(&engine, on, order.seed, stop)?,
            stated => RingChoice::stated(stated),
        };
        (workload.engine, workload.ring) = (Some(engine.engine.into()), ring.mode);
        let prepared = PreparedLoad {
            engine: Some(engine),
            ring: Some(ring),
            ..PreparedLoad::alone(workload.workers, workload.queue_depth)
        };
        let job = Job {
            workload,
            backend: Arc::clone(backend),
            ring: self.ring.clone(),
            seed: order.seed,
            part,
            run: order.mark(),
            commands: Commands::new(),
        };
        Ok((prepared, Box::new(Workers::spawn(job, &inbox)?)))
    }

    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        Some(self)
    }
}

/// State shared by all workers of a run.
struct Job {
    workload: Workload,
    backend: Arc<dyn Backend>,
    ring: RingConfig,
    seed: u64,
    part: RunPart,
    run: RunMark,
    commands: Commands,
}

impl WorkerJob for Job {
    fn workers(&self) -> u32 {
        self.workload.workers
    }

    fn command_limits(&self) -> CommandLimits {
        self.workload.command_limits()
    }

    fn commands(&self) -> &Commands {
        &self.commands
    }

    fn work(
        &self,
        worker: u32,
        inbox: &MessageSender,
        started: &Receiver<Nanos>,
    ) -> Result<(Outcome, Health), LoadError> {
        let io = |source| LoadError::Io { worker, source };
        let workload = &self.workload;
        let ring = ring_of(workload, &self.ring).map_err(io)?;
        let id = WorkerId::of(self.part, worker, self.seed);
        let ready = Worker::new(workload, self.backend.info(), id, &self.run, ring.pool())?;
        let mut device = open_device(self.backend.as_ref(), &ring, worker, workload.queue_depth)?;
        inbox.send(WorkerMessage::Ready);
        // There is no start time: the run was abandoned.
        let Ok(start) = started.recv() else {
            return Ok((Outcome::interrupted(), device.health()));
        };
        let mut post = Post::new(worker, inbox);
        let outcome = ready.run(
            device.as_mut(),
            &mut RingTime(&ring),
            start,
            &self.commands,
            &mut post,
        );
        let outcome = Outcome {
            recording_wait: post.waited(),
            ..outcome.map_err(io)?
        };
        Ok((outcome, device.health()))
    }
}
