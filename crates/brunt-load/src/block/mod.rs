//! Loads that drive a device: a described workload, its workers in threads with one ring each.
//!
//! The rule: histograms of workers are merged; nothing is averaged.
//!
//! Memory does not grow with requests or time. A worker has `queue_depth` buffers of the longest
//! block and eight histograms of 270 KiB (of which only touched pages count); intervals on their
//! way to the recorder are at most 64. Measured: 10.4 MB for a million requests,
//! 10.6 MB for twenty million.

pub mod arrival;
pub mod audit;
pub mod blocks;
pub mod calibrate;
pub mod data;
mod describe;
pub mod generator;
mod passes;
pub mod pattern;
pub mod seeded;
mod session;
pub mod synthetic;
pub mod verify;
pub mod worker;
pub mod workload;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::{Backend, Ring, RingConfig};
use brunt_core::{Nanos, Span};
use brunt_result::Outcome;
use brunt_result::choice::{RingChoice, RingMode};

use crate::collect::{Post, WorkerMessage};
use crate::commands::{Commands, LoadCommand, LoadCommandError};
use crate::decisions;
use crate::load::{
    DepthGoal, Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, Pace, PreparedLoad, RateGoal,
    RunOrder, RunningLoad, SteadyGoal, Trial,
};
use crate::record::NoRecorder;
pub use session::Session;
use synthetic::WorkerId;
use worker::{RingTime, Worker};
use workload::{Arrival, RampUp, StopCondition, Workload, ring_config};

/// Its name in [`crate::LOADS`].
pub const KIND: &str = "block";
/// Registered buffers of a worker at the most; what goes beyond works unregistered.
const ARENA_BYTES_MAX: usize = 64 << 20;

/// A described workload as a load.
#[derive(Clone, Debug, Default)]
pub struct BlockLoad {
    /// What to do.
    pub workload: Workload,
    /// How workers' rings are made; the buffer arena is made to fit.
    pub ring: RingConfig,
}

impl BlockLoad {
    /// With the usual ring.
    pub fn new(workload: Workload) -> BlockLoad {
        BlockLoad { workload, ring: RingConfig::default() }
    }

    /// The workload of one run.
    fn ordered(&self, order: &RunOrder) -> Workload {
        let mut workload = self.workload.clone();
        workload.ring = order.ring.unwrap_or(workload.ring);
        workload.queue_depth = order.depth.unwrap_or(workload.queue_depth);
        if let Some(rate) = order.rate {
            let process = match workload.arrival {
                Arrival::Open { process, .. } | Arrival::Search { process, .. } => process,
                Arrival::Closed {} => workload::ArrivalProcess::default(),
            };
            workload.arrival = Arrival::Open { rate: rate.rate, process, skip_after: Span(rate.skip_after) };
        }
        if let (Some(verify), Some(order)) = (&mut workload.verify, order.order)
            && let Some(folder) = &mut verify.journal
        {
            *folder = folder.join(format!("run-{order}"));
        }
        if let Some(trial) = order.trial {
            (workload.burst, workload.verify, workload.record_requests) = (None, None, false);
            workload.stop = StopCondition { time: Some(Span(trial.time)), ..StopCondition::default() };
            workload.interval = Span(Duration::ZERO);
            workload.ramp_up.get_or_insert(RampUp { requests: 0, time: Span(trial.ramp_up) });
        }
        workload
    }
}

impl BlockLoad {
    /// Measures which way of handing requests over is the fastest, with reads of this load's blocks at its depth.
    fn choose_ring(&self, on: &LoadTarget, seed: u64, stop: &AtomicBool) -> Result<RingChoice, LoadError> {
        let trial = Trial { time: calibrate::TRIAL, ramp_up: calibrate::TRIAL_RAMP };
        let order = RunOrder { trial: Some(trial), ..RunOrder::alone(seed) };
        calibrate::choose_ring(stop, |mode| {
            let mut load = self.clone();
            let workload = &mut load.workload;
            (workload.ring, workload.arrival, workload.ramp_up) = (mode, Arrival::Closed {}, None);
            workload.only_reads();
            Ok(decisions::run(&load, on, &order, stop, &mut NoRecorder)?.outcome)
        })
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
                Arrival::Search { percentile, limit, rate, tolerance, .. } => {
                    Pace::Search(RateGoal { percentile, limit: limit.0, rate, tolerance })
                }
            },
            ramp_up: workload.ramp_up.map_or(Duration::ZERO, |ramp_up| ramp_up.time.0),
            interval: workload.interval.0,
            steady: workload
                .stop
                .steady
                .map(|steady| SteadyGoal { round: steady.round.0, rounds_max: steady.rounds_max }),
            depth_search: workload.depth_search.map(|search| DepthGoal {
                from: workload.queue_depth,
                max: search.max,
                time: search.time.0,
            }),
            time_min,
            open_ended: !bounded,
            writes: workload.changes_data(),
            ring: workload.ring,
        }
    }

    fn describe(&self) -> String {
        self.workload.describe(&[])
    }

    fn open(&self, on: &LoadTarget) -> Result<Vec<String>, LoadError> {
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
        let (_, region_bytes) = workload.check_device(backend.info())?;
        workload.settle_passes(region_bytes);
        let ring = match workload.ring {
            RingMode::Auto => self.choose_ring(on, order.seed, stop)?,
            stated => RingChoice::stated(stated),
        };
        workload.ring = ring.mode;
        let prepared =
            PreparedLoad { workers: workload.workers, queue_depth: workload.queue_depth, ring: Some(ring) };
        let job = Job {
            workload,
            backend: Arc::clone(backend),
            ring: self.ring.clone(),
            seed: order.seed,
            run: order.run,
            commands: Commands::new(),
        };
        Ok((prepared, Box::new(Workers::spawn(job, &inbox)?)))
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

/// What all workers of a run share.
struct Job {
    workload: Workload,
    backend: Arc<dyn Backend>,
    ring: RingConfig,
    seed: u64,
    run: u64,
    commands: Commands,
}

impl Job {
    /// One worker's thread.
    fn work(
        &self,
        worker: u32,
        inbox: &MessageSender,
        started: &Receiver<Nanos>,
    ) -> Result<Outcome, LoadError> {
        let io = |source| LoadError::Io { worker, source };
        let workload = &self.workload;
        let info = self.backend.info();
        let depth = workload.queue_depth;
        let block = (workload.block_bytes_max().max(4096) as usize).next_power_of_two();
        let arena_bytes = (block * depth as usize).min(ARENA_BYTES_MAX);
        let entries = depth.next_power_of_two().max(8);
        let config = ring_config(workload.ring, self.ring.clone());
        let ring = Ring::new(RingConfig { arena_bytes, entries, ..config }).map_err(io)?;
        let id = WorkerId { worker, workers: workload.workers, seed: self.seed };
        let ready = Worker::new(workload, info, id, self.run, ring.pool())?;
        let mut device = self.backend.open(&ring, depth).map_err(|source| LoadError::Open {
            worker,
            device: info.name.clone(),
            source,
        })?;
        let _ = inbox.send(WorkerMessage::Ready);
        // No start: nobody wants this run any more.
        let Ok(start) = started.recv() else { return Ok(Outcome::interrupted()) };
        let mut post = Post::new(worker, inbox);
        let outcome = ready.run(device.as_mut(), &mut RingTime(&ring), start, &self.commands, &mut post);
        outcome.map(|outcome| Outcome { recording_wait: post.waited(), ..outcome }).map_err(io)
    }
}

/// The workers of a run, each in its thread.
struct Workers {
    job: Arc<Job>,
    starts: Vec<SyncSender<Nanos>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn spawn(job: Job, inbox: &MessageSender) -> Result<Workers, LoadError> {
        let count = job.workload.workers;
        let mut workers = Workers { job: Arc::new(job), starts: Vec::new(), threads: Vec::new() };
        for worker in 0..count {
            let (start, started) = sync_channel::<Nanos>(1);
            workers.starts.push(start);
            let (job, inbox) = (Arc::clone(&workers.job), inbox.clone());
            let work = move || {
                let result = job.work(worker, &inbox, &started);
                let _ = inbox.send(WorkerMessage::Done(worker, Box::new(result)));
            };
            let thread = std::thread::Builder::new().name(format!("worker-{worker}")).spawn(work);
            workers.threads.push(thread.map_err(|source| LoadError::Io { worker, source })?);
        }
        Ok(workers)
    }

    /// Waits for all of them.
    fn join(&mut self) {
        self.starts.clear();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl RunningLoad for Workers {
    fn start(&mut self, at: Nanos) {
        for start in self.starts.drain(..) {
            // One that could not be made ready does not listen.
            let _ = start.send(at);
        }
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        let workload = &self.job.workload;
        match command {
            LoadCommand::Stop => {}
            LoadCommand::Rate(rate) if !(rate > 0.0 && rate <= 1e9) => {
                return Err(LoadCommandError::BadRate { rate });
            }
            LoadCommand::Rate(_) if !matches!(workload.arrival, Arrival::Open { .. }) => {
                return Err(LoadCommandError::NoRate);
            }
            LoadCommand::Rate(_) => {}
            LoadCommand::Depth(depth) if !(1..=workload.queue_depth).contains(&depth) => {
                return Err(LoadCommandError::BadDepth { depth, max: workload.queue_depth });
            }
            LoadCommand::Depth(_) => {}
        }
        self.job.commands.give(command);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Finished {
        self.join();
        Finished::default()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.job.commands.give(LoadCommand::Stop);
        self.join();
    }
}
