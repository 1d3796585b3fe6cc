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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use brunt_block::{Backend, DeviceError, Ring, RingConfig};
use brunt_core::{Clock, Nanos, Span};

use crate::record::{Interval, Outcome, Recorder, RequestRecord, RequestStatus, Stopped};
use crate::search::RateSearch;
use crate::steady::SteadyState;
use crate::worker::{RingTime, Seat, Worker};
use crate::workload::{Arrival, Workload, WorkloadError};

/// Messages that wait for the recorder; then workers wait too, rather than lose any.
const MESSAGES_MAX: usize = 64;
/// From "all are ready" to the common start.
const START_IN: Duration = Duration::from_millis(2);
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
    FileSystem(#[from] crate::filesystem::FileSystemError),
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

enum Message {
    Ready,
    Interval(u32, Box<Interval>),
    Requests(Vec<RequestRecord>),
    Done(u32, Box<Result<Outcome, SessionError>>),
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
        let halt = AtomicBool::new(false);
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
            Collector::new(&self.workload, stop, &halt, recorder).collect(inbox, starts)
        })
    }

    /// One worker's thread.
    fn work(
        &self,
        worker: u32,
        messages: &SyncSender<Message>,
        started: Receiver<Nanos>,
        halt: &AtomicBool,
    ) -> Result<Outcome, SessionError> {
        let io = |source| SessionError::Io { worker, source };
        let info = self.backend.info();
        let depth = self.workload.queue_depth;
        let block = (self.workload.block_bytes_max().max(4096) as usize).next_power_of_two();
        let arena_bytes = (block * depth as usize).min(ARENA_BYTES_MAX);
        let entries = depth.next_power_of_two().max(8);
        let config = self.workload.ring.config(self.ring.clone());
        let ring = Ring::new(RingConfig { arena_bytes, entries, ..config }).map_err(io)?;
        let seat = Seat { worker, workers: self.workload.workers, seed: self.seed };
        let ready = Worker::new(&self.workload, info, seat, self.run, ring.pool())?;
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

/// Sends a worker's figures to the collector.
struct Post<'a> {
    worker: u32,
    messages: &'a SyncSender<Message>,
    /// For room in the inbox: requests are late for it, which is not the device's doing.
    waited: Duration,
}

impl Post<'_> {
    fn send(&mut self, message: Message) {
        if let Err(TrySendError::Full(message)) = self.messages.try_send(message) {
            let begin = Clock::Monotonic.now();
            let _ = self.messages.send(message);
            self.waited += Clock::Monotonic.now().since(begin);
        }
    }
}

impl Recorder for Post<'_> {
    fn interval(&mut self, interval: &Interval) {
        self.send(Message::Interval(self.worker, Box::new(interval.clone())));
    }
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.send(Message::Requests(batch.to_vec()));
    }
}

/// Merges what workers send, on the thread that called [`Session::run`].
struct Collector<'a> {
    workers: usize,
    stop: &'a AtomicBool,
    halt: &'a AtomicBool,
    recorder: &'a mut dyn Recorder,
    /// Intervals that some workers have not reported yet.
    open: BTreeMap<u64, Interval>,
    /// The next interval of each worker; `u64::MAX` when it is done.
    next: Vec<u64>,
    steady: Option<Rounds>,
    verdict: Option<Stopped>,
    outcome: Option<Outcome>,
    error: Option<SessionError>,
}

/// The rounds of the steady-state rule, made of intervals.
struct Rounds {
    state: SteadyState,
    rounds_max: u32,
    intervals: u64,
    seen: u64,
    completed: u64,
}

impl<'a> Collector<'a> {
    fn new(
        workload: &Workload,
        stop: &'a AtomicBool,
        halt: &'a AtomicBool,
        recorder: &'a mut dyn Recorder,
    ) -> Collector<'a> {
        let steady = workload.stop.steady.map(|steady| {
            let interval = workload.interval.0.max(Duration::from_nanos(1));
            let intervals = (steady.round.0.as_nanos() / interval.as_nanos()).max(1) as u64;
            let state = SteadyState::default();
            Rounds { state, rounds_max: steady.rounds_max, intervals, seen: 0, completed: 0 }
        });
        Collector {
            workers: workload.workers as usize,
            stop,
            halt,
            recorder,
            open: BTreeMap::new(),
            next: vec![0; workload.workers as usize],
            steady,
            verdict: None,
            outcome: None,
            error: None,
        }
    }

    fn collect(
        mut self,
        inbox: Receiver<Message>,
        starts: Vec<SyncSender<Nanos>>,
    ) -> Result<Outcome, SessionError> {
        let (mut ready, mut starts) = (0, Some(starts));
        loop {
            if self.stop.load(Ordering::Relaxed) || self.recorder.is_full() {
                self.halt.store(true, Ordering::Relaxed);
            }
            match inbox.recv_timeout(Duration::from_millis(20)) {
                Ok(Message::Ready) => {
                    ready += 1;
                    if ready == self.workers {
                        let start = Clock::Monotonic.now().after(START_IN);
                        starts.take().into_iter().flatten().for_each(|worker| {
                            let _ = worker.send(start);
                        });
                        self.recorder.starts(start);
                    }
                }
                Ok(Message::Interval(worker, interval)) => self.interval(worker, *interval),
                Ok(Message::Requests(batch)) => self.recorder.requests(&batch),
                Ok(Message::Done(worker, result)) => {
                    self.done(worker, *result);
                    if self.error.is_some() {
                        starts = None;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut outcome = self.outcome.expect("every worker reports its end");
        if let Some(verdict) = self.verdict
            && outcome.stopped <= Stopped::Interrupted
            && !self.stop.load(Ordering::Relaxed)
            && !self.recorder.is_full()
        {
            outcome.stopped = verdict;
        }
        Ok(outcome)
    }

    fn interval(&mut self, worker: u32, interval: Interval) {
        self.next[worker as usize] = interval.index + 1;
        match self.open.get_mut(&interval.index) {
            Some(open) => {
                open.figures.merge(&interval.figures);
                open.start = open.start.min(interval.start);
                open.end = open.end.max(interval.end);
            }
            None => {
                self.open.insert(interval.index, interval);
            }
        }
        self.emit();
    }

    fn done(&mut self, worker: u32, result: Result<Outcome, SessionError>) {
        self.next[worker as usize] = u64::MAX;
        match result {
            Ok(outcome) => match &mut self.outcome {
                Some(all) => all.merge(&outcome),
                None => self.outcome = Some(outcome),
            },
            Err(error) => {
                self.error.get_or_insert(error);
                self.halt.store(true, Ordering::Relaxed);
            }
        }
        self.emit();
    }

    /// Hands on every interval that all workers have reported.
    fn emit(&mut self) {
        let complete = self.next.iter().copied().min().unwrap_or(u64::MAX);
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() >= complete {
                return;
            }
            let interval = entry.remove();
            self.recorder.interval(&interval);
            self.judge(&interval);
        }
    }

    fn judge(&mut self, interval: &Interval) {
        let Some(rounds) = &mut self.steady else { return };
        if self.verdict.is_some() {
            return;
        }
        rounds.seen += 1;
        rounds.completed += interval.figures.completed();
        if rounds.seen.is_multiple_of(rounds.intervals) {
            let steady = rounds.state.round(rounds.completed as f64);
            rounds.completed = 0;
            if steady || rounds.state.rounds() >= rounds.rounds_max {
                self.verdict = Some(if steady { Stopped::Steady } else { Stopped::NotSteady });
                self.halt.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoRecorder;
    use crate::workload::{RampUp, Steady, Stop};
    use brunt_block::backends::memory::MemoryBackend;
    use brunt_block::backends::null::NullBackend;
    use brunt_core::Size;

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

    /// The goal: a worker that has to wait for its figures to be taken says so, one that has not does
    /// not.
    #[test]
    fn waiting_for_the_recorder_is_told() {
        let (messages, inbox) = sync_channel(1);
        let mut post = Post { worker: 0, messages: &messages, waited: Duration::ZERO };
        post.requests(&[]);
        assert_eq!(post.waited, Duration::ZERO);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                inbox.iter().take(2).count()
            });
            post.requests(&[]);
        });
        assert!(post.waited > Duration::ZERO);
        let mut outcome = Outcome { recording_wait: post.waited, ..Outcome::interrupted() };
        outcome.merge(&outcome.clone());
        assert_eq!(outcome.recording_wait, post.waited * 2);
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
            verify: Some(crate::workload::Verify::default()),
            region: crate::workload::Region { start: Size(0), length: Some(Size(256 << 10)) },
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
            region: crate::workload::Region { start: Size(1 << 30), length: None },
            ..Workload::default()
        };
        let error = session(misfit).run(&AtomicBool::new(false), &mut NoRecorder).unwrap_err();
        assert!(error.to_string().starts_with("region: "), "{error}");
    }
}
