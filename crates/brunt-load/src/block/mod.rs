//! One run of a workload: workers in threads with a common start, their intervals merged as they
//! come, and the conditions that need all of them (steady state, rate search). Experiments and
//! benchmarks call it.
//!
//! The rule: histograms of workers are merged; nothing is averaged.
//!
//! Memory does not grow with requests or time. A worker has `queue_depth` buffers of the longest
//! block and eight histograms of 270 KiB (of which only touched pages count); intervals on their
//! way to the recorder are at most `MESSAGES_MAX`. Measured: 10.4 MB for a million requests,
//! 10.6 MB for twenty million.

pub mod arrival;
pub mod audit;
pub mod calibrate;
pub mod data;
pub mod depth;
pub mod generator;
pub mod pattern;
pub mod search;
pub mod synthetic;
pub mod verify;
pub mod worker;
pub mod workload;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use brunt_block::{Backend, DeviceError, Ring, RingConfig};
use brunt_core::{Nanos, Span};
use brunt_result::{Outcome, RequestStatus};

use crate::collect::{Collector, MESSAGES_MAX, Message, Post, Rounds};
use crate::commands::Commands;
use crate::load::WorkloadError;
use crate::record::Recorder;
use search::RateSearch;
use synthetic::WorkerId;
use worker::{RingTime, Worker};
use workload::{Arrival, Workload, ring_config};

/// Registered buffers of a worker at the most; what goes beyond works unregistered.
const ARENA_BYTES_MAX: usize = 64 << 20;
/// Highest rate that a search tries.
const RATE_MAX: f64 = 1e8;

/// A workload and what it is for.
#[derive(Clone)]
pub struct Session {
    /// What to do.
    pub workload: Workload,
    /// What to do it to.
    pub backend: Arc<dyn Backend>,
    /// All requests follow from it.
    pub seed: u64,
    /// Tells the blocks of this run from those of another when they are verified.
    pub run: u64,
    /// How workers' rings are made; the buffer arena is made to fit.
    pub ring: RingConfig,
}

/// Why a run could not be.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The workload makes no sense, or not on this device.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A phase on a file system failed.
    #[error(transparent)]
    FileSystem(#[from] crate::file::FileSystemError),
    /// A worker could not open the device.
    #[error("worker {worker} cannot open {device}: {source}")]
    Open {
        /// Which.
        worker: u32,
        /// The device's name.
        device: String,
        /// Why.
        source: DeviceError,
    },
    /// A worker has no ring, or it failed, or its journal did.
    #[error("worker {worker}: {source}")]
    Io {
        /// Which.
        worker: u32,
        /// Why.
        source: std::io::Error,
    },
}

/// A trial of a rate search.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Requests a second.
    pub rate: f64,
    /// Whether it kept the promise.
    pub kept: bool,
    /// What it saw.
    pub outcome: Outcome,
}

impl Session {
    /// A run against `backend` with the usual ring.
    pub fn new(workload: Workload, backend: Arc<dyn Backend>, seed: u64) -> Session {
        Session { workload, backend, seed, run: seed, ring: RingConfig::default() }
    }

    /// Runs until the workload is done or `stop` is set; either way what was measured is the result.
    ///
    /// # Errors
    /// The workload does not fit, or a worker failed. With [`Arrival::Search`] use [`Session::search`].
    pub fn run(&self, stop: &AtomicBool, recorder: &mut dyn Recorder) -> Result<Outcome, SessionError> {
        self.workload.check_device(self.backend.info())?;
        if matches!(self.workload.arrival, Arrival::Search { .. }) {
            let what = "a rate search is many runs; it cannot be one".to_string();
            return Err(WorkloadError { key: "arrival", what }.into());
        }
        let halt = Commands::new();
        std::thread::scope(|scope| {
            let (messages, inbox) = sync_channel(MESSAGES_MAX);
            let mut starts = Vec::new();
            for worker in 0..self.workload.workers {
                let (start, started) = sync_channel::<Nanos>(1);
                starts.push(start);
                let (messages, halt) = (messages.clone(), &halt);
                let thread = std::thread::Builder::new().name(format!("worker-{worker}"));
                let work = move || {
                    let result = self.work(worker, &messages, started, halt);
                    let _ = messages.send(Message::Done(worker, Box::new(result)));
                };
                thread.spawn_scoped(scope, work).map_err(|source| SessionError::Io { worker, source })?;
            }
            drop(messages);
            Collector::new(self.workload.workers, self.rounds(), stop, &halt, recorder).collect(inbox, starts)
        })
    }

    /// The steady-state rule in intervals.
    fn rounds(&self) -> Option<Rounds> {
        let steady = self.workload.stop.steady?;
        let interval = self.workload.interval.0.max(Duration::from_nanos(1));
        let intervals = (steady.round.0.as_nanos() / interval.as_nanos()).max(1) as u64;
        Some(Rounds::new(intervals, steady.rounds_max))
    }

    /// One worker's thread.
    fn work(
        &self,
        worker: u32,
        messages: &SyncSender<Message<SessionError>>,
        started: Receiver<Nanos>,
        halt: &Commands,
    ) -> Result<Outcome, SessionError> {
        let io = |source| SessionError::Io { worker, source };
        let info = self.backend.info();
        let depth = self.workload.queue_depth;
        let block = (self.workload.block_bytes_max().max(4096) as usize).next_power_of_two();
        let arena_bytes = (block * depth as usize).min(ARENA_BYTES_MAX);
        let entries = depth.next_power_of_two().max(8);
        let config = ring_config(self.workload.ring, self.ring.clone());
        let ring = Ring::new(RingConfig { arena_bytes, entries, ..config }).map_err(io)?;
        let id = WorkerId { worker, workers: self.workload.workers, seed: self.seed };
        let ready = Worker::new(&self.workload, info, id, self.run, ring.pool())?;
        let mut device = self.backend.open(&ring, depth).map_err(|source| SessionError::Open {
            worker,
            device: info.name.clone(),
            source,
        })?;
        let _ = messages.send(Message::Ready);
        // No start: another worker could not be made ready.
        let Ok(start) = started.recv() else { return Ok(Outcome::interrupted()) };
        let mut post = Post { worker, messages, waited: Duration::ZERO };
        let outcome = ready.run(device.as_mut(), &mut RingTime(&ring), start, halt, &mut post);
        outcome.map(|outcome| Outcome { recording_wait: post.waited, ..outcome }).map_err(io)
    }

    /// Finds the highest rate at which the workload's promise is kept; the answer and every trial.
    /// Each trial runs for the workload's `stop.time` after its ramp-up. A search that was interrupted
    /// has no answer, and the trial that was cut short is its last.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn search(
        &self,
        stop: &AtomicBool,
        recorder: &mut dyn Recorder,
    ) -> Result<(Option<f64>, Vec<Trial>), SessionError> {
        let Arrival::Search { percentile, limit, rate, tolerance, process } = self.workload.arrival else {
            let what = "{ kind = \"search\", … } is needed to search".to_string();
            return Err(WorkloadError { key: "arrival", what }.into());
        };
        let mut search = RateSearch::new(rate, RATE_MAX, tolerance);
        let mut trials = Vec::new();
        while let Some(rate) = search.next_rate() {
            let mut session = self.clone();
            // Hopelessly late requests end a hopeless trial early.
            let skip_after = Span(limit.0.saturating_mul(100).max(Duration::from_millis(100)));
            session.workload.arrival = Arrival::Open { rate, process, skip_after };
            let outcome = session.run(stop, recorder)?;
            if !outcome.is_complete() {
                // Cut short: it says nothing about the rate, but what it saw is kept.
                trials.push(Trial { rate, kept: false, outcome });
                return Ok((None, trials));
            }
            let counts = outcome.figures.counts;
            let clean = counts.errors() == 0
                && counts.of(RequestStatus::Skipped) == 0
                && counts.of(RequestStatus::Hanging) == 0;
            let response = outcome.figures.response().percentile(percentile);
            let kept = clean && response.is_some_and(|response| response.since(Nanos(0)) <= limit.0);
            search.report(kept);
            trials.push(Trial { rate, kept, outcome });
        }
        Ok((search.answer(), trials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    use crate::NoRecorder;
    use crate::block::workload::{RampUp, Steady, Stop};
    use brunt_block::backends::memory::MemoryBackend;
    use brunt_block::backends::null::NullBackend;
    use brunt_core::Size;
    use brunt_result::{Interval, RequestRecord, Stopped};

    fn session(workload: Workload) -> Session {
        Session::new(workload, Arc::new(MemoryBackend::new(16 << 20, 512).unwrap()), 1)
    }

    fn requests(count: u64) -> Stop {
        Stop { requests: Some(count), ..Stop::default() }
    }

    struct Keep(Vec<Interval>, Vec<RequestRecord>);
    impl Recorder for Keep {
        fn interval(&mut self, interval: &Interval) {
            self.0.push(interval.clone());
        }
        fn requests(&mut self, batch: &[RequestRecord]) {
            self.1.extend_from_slice(batch);
        }
    }

    /// The goal: several workers make exactly the requests asked for, and intervals, single requests
    /// and outcome tell the same story.
    #[test]
    fn workers_add_up() {
        let workload = Workload {
            workers: 3,
            queue_depth: 4,
            read: 0.5,
            interval: Span(Duration::from_millis(10)),
            ramp_up: Some(RampUp { requests: 100, time: Span::default() }),
            stop: requests(6000),
            record_requests: true,
            ..Workload::default()
        };
        let mut kept = Keep(Vec::new(), Vec::new());
        let outcome = session(workload).run(&AtomicBool::new(false), &mut kept).unwrap();
        assert_eq!((outcome.figures.completed(), outcome.stopped), (6000, Stopped::Done));
        let sum: u64 = kept.0.iter().map(|interval| interval.figures.completed()).sum();
        assert_eq!((sum, kept.1.len()), (6000, 6000));
        assert!(kept.0.windows(2).all(|pair| pair[0].index < pair[1].index));
        assert!(kept.1.iter().all(|request| request.index >= 100 && request.sent >= Some(request.intended)));
        let response = outcome.figures.response();
        assert_eq!(response.count(), 6000);
        let longest = kept.1.iter().map(|request| request.completed.unwrap().0 - request.intended.0).max();
        assert_eq!(response.max().map(|max| max.0), longest);
    }

    /// Has a run stopped as soon as it has done something.
    struct Impatient<'a>(&'a AtomicBool);

    impl Recorder for Impatient<'_> {
        fn interval(&mut self, interval: &Interval) {
            self.0.fetch_or(interval.figures.completed() > 0, Ordering::Relaxed);
        }
    }

    /// The goal: Ctrl-C keeps what there is, and says that it is not all.
    #[test]
    fn a_stopped_run_keeps_its_results() {
        let hour = Stop { time: Some(Span(Duration::from_secs(3600))), ..Stop::default() };
        let interval = Span(Duration::from_millis(10));
        let workload = Workload { workers: 2, stop: hour, interval, ..Workload::default() };
        let stop = AtomicBool::new(false);
        let outcome = session(workload).run(&stop, &mut Impatient(&stop)).unwrap();
        assert_eq!(outcome.stopped, Stopped::Interrupted);
        assert!(!outcome.is_complete() && outcome.figures.completed() > 0);
    }

    /// The goal: a run ends by the steady-state rule, one way or the other.
    #[test]
    fn steady_state_ends_a_run() {
        let steady = Steady { round: Span(Duration::from_millis(10)), rounds_max: 6 };
        let workload = Workload {
            stop: Stop { steady: Some(steady), ..Stop::default() },
            interval: Span(Duration::from_millis(10)),
            ..Workload::default()
        };
        let outcome = session(workload).run(&AtomicBool::new(false), &mut NoRecorder).unwrap();
        assert!(matches!(outcome.stopped, Stopped::Steady | Stopped::NotSteady), "{:?}", outcome.stopped);
        assert!(outcome.is_complete());
    }

    /// The goal: written blocks are found again by reads of the same run, with every worker in its part.
    #[test]
    fn verified_run() {
        let workload = Workload {
            workers: 2,
            queue_depth: 8,
            read: 0.5,
            verify: Some(crate::block::workload::Verify::default()),
            region: crate::block::workload::Region { start: Size(0), length: Some(Size(256 << 10)) },
            stop: requests(6000),
            ..Workload::default()
        };
        let outcome = session(workload.clone()).run(&AtomicBool::new(false), &mut NoRecorder).unwrap();
        assert_eq!((outcome.figures.completed(), outcome.figures.counts.errors()), (6000, 0));
        // The canary: a device that forgets is found out.
        let forgetful = Session::new(workload, Arc::new(NullBackend::new(16 << 20, 512)), 1);
        let outcome = forgetful.run(&AtomicBool::new(false), &mut NoRecorder).unwrap();
        assert!(outcome.figures.counts.of(RequestStatus::Miscompare) > 1000);
        assert!(outcome.first_error.unwrap().to_string().contains("not what was written"));
    }

    /// The goal: a workload that does not fit is refused with its key before anything runs.
    #[test]
    fn misfits_are_refused() {
        let misfit = Workload {
            stop: requests(1),
            region: crate::block::workload::Region { start: Size(1 << 30), length: None },
            ..Workload::default()
        };
        let error = session(misfit).run(&AtomicBool::new(false), &mut NoRecorder).unwrap_err();
        assert!(error.to_string().starts_with("region: "), "{error}");
    }
}
