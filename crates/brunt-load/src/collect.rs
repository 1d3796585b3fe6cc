//! Collects the reports of a run's workers: merges their intervals as they arrive, and passes the merged ones to the
//! recorder and to decisions. Called by [`crate::decisions`], on the thread that waits for the end.
//!
//! For a load of several jobs ([`crate::together`]), reports are collected twice: for all workers together, and for
//! each job.
//!
//! The rule: an interval is passed on once every worker has reported it, and never changes afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_result::hosts::CommonTime;
use brunt_result::{Interval, Outcome, RequestRecord, Stopped};

use crate::load::{PreparedJob, PreparedLoad};
use crate::record::Recorder;

/// Maximum number of messages queued for the recorder; when it is reached, workers wait, so that no message is lost.
const MESSAGES_MAX: usize = 64;
/// Maximum delay before a stop is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An interval shorter than this share of another worker's interval with the same number was not fully measured.
const WHOLE: f64 = 0.99;

/// A message from a worker.
#[derive(Debug)]
pub enum WorkerMessage<E> {
    /// A worker is ready to start.
    Ready,
    /// An interval of this worker has ended.
    Interval(u32, Box<Interval>),
    /// Some requests of this worker ended.
    Requests(u32, Vec<RequestRecord>),
    /// This worker has ended; no more messages follow from it.
    Done(u32, Box<Result<Outcome, E>>),
}

/// The workers' side of the channel to the collector. The workers of a job number themselves and their intervals from
/// 0; the sender translates these to numbers within the whole run.
#[derive(Debug)]
pub struct WorkerSender<E> {
    messages: SyncSender<WorkerMessage<E>>,
    first_worker: u32,
    first_interval: u64,
}

impl<E> Clone for WorkerSender<E> {
    fn clone(&self) -> WorkerSender<E> {
        self.of_job(0, 0)
    }
}

impl<E> WorkerSender<E> {
    /// Creates a run's channel. The channel is bounded, and workers wait while it is full.
    pub fn new() -> (WorkerSender<E>, Receiver<WorkerMessage<E>>) {
        let (messages, inbox) = sync_channel(MESSAGES_MAX);
        (
            WorkerSender {
                messages,
                first_worker: 0,
                first_interval: 0,
            },
            inbox,
        )
    }

    /// Returns a sender for a job that is preceded by this many workers and intervals.
    pub fn of_job(&self, workers: u32, intervals: u64) -> WorkerSender<E> {
        WorkerSender {
            messages: self.messages.clone(),
            first_worker: self.first_worker + workers,
            first_interval: self.first_interval + intervals,
        }
    }

    /// Sends a message, which is discarded if the run has been abandoned.
    pub fn send(&self, message: WorkerMessage<E>) {
        let _ = self.messages.send(self.renumbered(message));
    }

    /// Renumbers a message; a single request keeps the number that its worker has within its job.
    fn renumbered(&self, message: WorkerMessage<E>) -> WorkerMessage<E> {
        match message {
            WorkerMessage::Ready => WorkerMessage::Ready,
            WorkerMessage::Interval(worker, mut interval) => {
                interval.index += self.first_interval;
                WorkerMessage::Interval(worker + self.first_worker, interval)
            }
            WorkerMessage::Requests(worker, batch) => {
                WorkerMessage::Requests(worker + self.first_worker, batch)
            }
            WorkerMessage::Done(worker, result) => {
                WorkerMessage::Done(worker + self.first_worker, result)
            }
        }
    }
}

/// Sends a worker's figures to the collector.
pub struct Post<'a, E> {
    worker: u32,
    messages: &'a WorkerSender<E>,
    /// Time spent waiting for space in the inbox. This wait makes requests late, which is not the device's fault.
    waited: Duration,
}

impl<'a, E> Post<'a, E> {
    /// Creates a sender for this worker's figures.
    pub fn new(worker: u32, messages: &'a WorkerSender<E>) -> Post<'a, E> {
        Post {
            worker,
            messages,
            waited: Duration::ZERO,
        }
    }

    /// Returns how long the worker had to wait for its figures to be accepted.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    fn send(&mut self, message: WorkerMessage<E>) {
        let message = self.messages.renumbered(message);
        if let Err(TrySendError::Full(message)) = self.messages.messages.try_send(message) {
            let begin = Clock::Monotonic.now();
            let _ = self.messages.messages.send(message);
            self.waited += Clock::Monotonic.now().since(begin);
        }
    }
}

impl<E> Recorder for Post<'_, E> {
    fn interval(&mut self, interval: &Interval) {
        self.send(WorkerMessage::Interval(
            self.worker,
            Box::new(interval.clone()),
        ));
    }
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.send(WorkerMessage::Requests(self.worker, batch.to_vec()));
    }
}

/// Controls the workers of a run.
pub(crate) trait WorkersHandle {
    /// Starts the workers at this time; all of them are ready.
    fn start(&mut self, at: Nanos);
    /// Stops issuing requests, even if the start comes later.
    fn halt(&mut self);
}

/// Merges the workers' reports. `E` is the error of a failed worker.
pub(crate) struct Collector<'a, E> {
    stop: &'a AtomicBool,
    recorder: &'a mut dyn Recorder,
    /// Called with every merged interval; returning `Some` ends the run.
    judge: &'a mut dyn FnMut(&Interval) -> Option<Stopped>,
    /// Delay from the time when all workers are ready until their common start.
    notice: Duration,
    all: Stream,
    jobs: Vec<JobStream>,
    verdict: Option<Stopped>,
    halts: bool,
    error: Option<E>,
}

/// The merged reports of a set of workers.
struct Stream {
    /// Intervals that some workers have not reported yet.
    open: BTreeMap<u64, OpenInterval>,
    /// The next interval of each worker; `u64::MAX` if the worker is done.
    next: Vec<u64>,
    outcome: Option<Outcome>,
    /// Totals over the intervals that all workers measured completely.
    common: CommonTime,
    /// When the first of the workers that issued requests ended.
    first_end: Nanos,
}

/// An interval, merged from the workers that have reported it.
struct OpenInterval {
    interval: Interval,
    /// Number of workers that have reported it.
    workers: usize,
    /// The shortest and the longest length that these workers reported.
    shortest: Duration,
    longest: Duration,
}

/// The reports of one job's workers.
struct JobStream {
    first_worker: u32,
    /// Whether the run ends when this job ends.
    ends_run: bool,
    stream: Stream,
}

/// The collected outcomes of a run.
pub(crate) struct Collected {
    /// All workers together.
    pub(crate) outcome: Outcome,
    /// Each job, for a load with several.
    pub(crate) jobs: Vec<Outcome>,
}

impl Stream {
    /// Creates a stream for workers whose first intervals have these numbers.
    fn new(next: Vec<u64>) -> Stream {
        let (open, common) = Default::default();
        Stream {
            open,
            next,
            outcome: None,
            common,
            first_end: Nanos::MAX,
        }
    }

    fn interval(&mut self, worker: usize, interval: Interval) {
        self.next[worker] = interval.index + 1;
        let length = interval.end.since(interval.start);
        match self.open.get_mut(&interval.index) {
            Some(OpenInterval {
                interval: open,
                workers,
                shortest,
                longest,
            }) => {
                open.figures.merge(&interval.figures);
                open.waiting.merge(&interval.waiting);
                open.start = open.start.min(interval.start);
                open.end = open.end.max(interval.end);
                *workers += 1;
                (*shortest, *longest) = (length.min(*shortest), length.max(*longest));
            }
            None => {
                let (index, workers) = (interval.index, 1);
                let open = OpenInterval {
                    interval,
                    workers,
                    shortest: length,
                    longest: length,
                };
                self.open.insert(index, open);
            }
        }
    }

    fn done(&mut self, worker: usize, outcome: Option<&Outcome>) {
        self.next[worker] = u64::MAX;
        if let Some(outcome) = outcome.filter(|outcome| outcome.end > outcome.start) {
            self.first_end = self.first_end.min(outcome.end);
        }
        match (&mut self.outcome, outcome) {
            (Some(all), Some(outcome)) => all.merge(outcome),
            (all @ None, Some(outcome)) => *all = Some(outcome.clone()),
            (_, None) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.next.iter().all(|next| *next == u64::MAX)
    }

    /// Takes the next interval that all workers have reported.
    fn complete(&mut self) -> Option<Interval> {
        let complete = self.next.iter().copied().min().unwrap_or(u64::MAX);
        let entry = self.open.first_entry()?;
        let open = (*entry.key() < complete).then(|| entry.remove())?;
        let is_whole = open.shortest.as_secs_f64() >= WHOLE * open.longest.as_secs_f64();
        if is_whole && open.workers == self.next.len() {
            let CommonTime {
                seconds,
                requests,
                bytes,
                ..
            } = &mut self.common;
            *seconds += open.longest.as_secs_f64();
            *requests += open.interval.figures.completed_in_time();
            *bytes += open.interval.figures.bytes_in_time();
        }
        Some(open.interval)
    }

    /// Returns the total outcome, once every worker has ended.
    fn outcome(self) -> Outcome {
        let mut outcome = self.outcome.expect("every worker reports its end");
        let all = outcome.figures.completed_in_time();
        outcome.common = Some(CommonTime {
            requests_left_out: all.saturating_sub(self.common.requests),
            ended_apart_s: outcome.end.since(self.first_end).as_secs_f64(),
            ..self.common
        });
        outcome
    }
}

impl JobStream {
    fn of(prepared: &[PreparedJob]) -> Vec<JobStream> {
        let mut first_worker = 0;
        let stream = |job: &PreparedJob| {
            let stream = Stream::new(vec![job.first_interval; job.workers as usize]);
            let stream = JobStream {
                first_worker,
                ends_run: job.ends_run,
                stream,
            };
            first_worker += job.workers;
            stream
        };
        prepared.iter().map(stream).collect()
    }
}

impl<'a, E> Collector<'a, E> {
    /// Creates a collector for the prepared workers; setting `stop` ends the run.
    pub(crate) fn new(
        prepared: &PreparedLoad,
        stop: &'a AtomicBool,
        recorder: &'a mut dyn Recorder,
        judge: &'a mut dyn FnMut(&Interval) -> Option<Stopped>,
    ) -> Collector<'a, E> {
        let jobs = JobStream::of(&prepared.jobs);
        let next = match prepared.jobs.is_empty() {
            true => vec![0; prepared.workers as usize],
            false => jobs
                .iter()
                .flat_map(|job| &job.stream.next)
                .copied()
                .collect(),
        };
        assert_eq!(
            next.len(),
            prepared.workers as usize,
            "every worker belongs to a job"
        );
        Collector {
            stop,
            recorder,
            judge,
            notice: prepared.notice,
            all: Stream::new(next),
            jobs,
            verdict: None,
            halts: false,
            error: None,
        }
    }

    /// Starts the workers when all are ready, and merges their reports until the last one is done.
    ///
    /// # Errors
    /// The error of the first worker that failed.
    pub(crate) fn collect(
        mut self,
        inbox: Receiver<WorkerMessage<E>>,
        handle: &mut impl WorkersHandle,
    ) -> Result<Collected, E> {
        let (mut ready, mut started) = (0, false);
        loop {
            if self.stop.load(Ordering::Relaxed) || self.recorder.is_full() {
                self.halts = true;
            }
            if self.halts {
                handle.halt();
                if self.error.is_some() && !started {
                    // A worker could not be prepared: the others start, and end immediately.
                    started = true;
                    handle.start(Clock::Monotonic.now());
                }
            }
            match inbox.recv_timeout(LOOK_EVERY) {
                Ok(WorkerMessage::Ready) => {
                    ready += 1;
                    assert!(ready <= self.all.next.len(), "each worker is ready once");
                    if ready == self.all.next.len() && !started {
                        started = true;
                        let start = Clock::Monotonic.now().after(self.notice);
                        handle.start(start);
                        self.recorder.starts(start);
                    }
                }
                Ok(WorkerMessage::Interval(worker, interval)) => self.interval(worker, *interval),
                Ok(WorkerMessage::Requests(worker, batch)) => match self.job_of(worker) {
                    Some((job, _)) => self.recorder.job_requests(job, &batch),
                    None => self.recorder.requests(&batch),
                },
                Ok(WorkerMessage::Done(worker, result)) => self.done(worker, *result),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let verdict = self
            .verdict
            .filter(|_| !self.stop.load(Ordering::Relaxed) && !self.recorder.is_full());
        let judged = |stream: Stream| {
            let mut outcome = stream.outcome();
            if let Some(verdict) = verdict
                && outcome.stopped <= Stopped::Interrupted
            {
                outcome.stopped = verdict;
            }
            outcome
        };
        let mut outcome = judged(self.all);
        let jobs: Vec<Outcome> = self
            .jobs
            .into_iter()
            .map(|job| judged(job.stream))
            .collect();
        if !jobs.is_empty() {
            // Jobs are measured at different times, and each has its own common time.
            outcome.rate_over_all_of_the_time();
            outcome.common = None;
        }
        Ok(Collected { outcome, jobs })
    }

    /// Returns the job of a worker and the worker's number in it; `None` if the load has no jobs.
    fn job_of(&self, worker: u32) -> Option<(usize, usize)> {
        let job = self
            .jobs
            .iter()
            .rposition(|job| job.first_worker <= worker)?;
        Some((job, (worker - self.jobs[job].first_worker) as usize))
    }

    fn interval(&mut self, worker: u32, interval: Interval) {
        if let Some((job, own)) = self.job_of(worker) {
            self.jobs[job].stream.interval(own, interval.clone());
        }
        self.all.interval(worker as usize, interval);
        self.emit();
    }

    fn done(&mut self, worker: u32, result: Result<Outcome, E>) {
        let outcome = match result {
            Ok(outcome) => {
                // Workers on the remaining hosts would wait forever for those on the lost host, so the run ends.
                self.halts |= outcome.stopped == Stopped::HostLost;
                Some(outcome)
            }
            Err(error) => {
                self.error.get_or_insert(error);
                self.halts = true;
                None
            }
        };
        if let Some((job, own)) = self.job_of(worker) {
            let JobStream {
                stream, ends_run, ..
            } = &mut self.jobs[job];
            stream.done(own, outcome.as_ref());
            if *ends_run && !self.halts && stream.is_done() {
                // The other jobs only accompany those that end the run, so they stop with them.
                (self.verdict, self.halts) = (self.verdict.or(Some(Stopped::Done)), true);
            }
        }
        self.all
            .done(worker as usize, outcome.map(unless_never_begun).as_ref());
        self.emit();
    }

    /// Passes on every interval that all workers have reported, for each job and for all together.
    fn emit(&mut self) {
        for (index, job) in self.jobs.iter_mut().enumerate() {
            while let Some(interval) = job.stream.complete() {
                self.recorder.job_interval(index, &interval);
            }
        }
        while let Some(interval) = self.all.complete() {
            self.recorder.interval(&interval);
            if self.verdict.is_none() {
                self.verdict = (self.judge)(&interval);
                self.halts |= self.verdict.is_some();
            }
        }
    }
}

/// Excludes a worker that was stopped before its job began from the run's measured time.
fn unless_never_begun(outcome: Outcome) -> Outcome {
    match outcome.stopped == Stopped::Interrupted && outcome.end <= outcome.start {
        true => Outcome {
            start: Nanos::MAX,
            end: Nanos(0),
            ..outcome
        },
        false => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::{Figures, OpKind};

    /// A worker reports if it had to wait for its figures to be accepted.
    #[test]
    fn a_worker_reports_waiting_for_the_recorder() {
        let wait = || {
            let (messages, inbox) = WorkerSender::<()>::new();
            let mut post = Post::new(0, &messages);
            (0..MESSAGES_MAX).for_each(|_| post.requests(&[]));
            assert_eq!(post.waited, Duration::ZERO);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    inbox.iter().take(MESSAGES_MAX + 1).count()
                });
                post.requests(&[]);
            });
            post.waited
        };
        // On a busy machine, the recorder may be the first to continue; in that case, try again.
        let mut waits = (0..100).map(|_| wait());
        let waited = waits.find(|waited| *waited > Duration::ZERO);
        let waited = waited.expect("a worker that waits");
        let mut outcome = Outcome {
            recording_wait: waited,
            ..Outcome::interrupted()
        };
        outcome.merge(&outcome.clone());
        assert_eq!(outcome.recording_wait, waited * 2);
    }

    /// The common time consists of the intervals that all workers measured completely, including final ones that end
    /// together; other intervals are excluded.
    #[test]
    fn the_common_time_consists_of_whole_intervals() {
        let second = |count: u64| Nanos(count * 1_000_000_000);
        let figures = |completed: u64| {
            let mut figures = Figures::of_kinds(&[OpKind::Read]);
            (figures.at(0).completed, figures.at(0).bytes) = (completed, completed * 512);
            figures
        };
        // For each worker: its intervals, with their ends and requests.
        let common = |workers: &[&[(Nanos, u64)]]| {
            let mut stream = Stream::new(vec![0; workers.len()]);
            for (worker, ends) in workers.iter().enumerate() {
                let mut start = second(0);
                let mut outcome = Outcome {
                    start,
                    stopped: Stopped::Done,
                    ..Outcome::interrupted()
                };
                for (index, (end, completed)) in (0..).zip(*ends) {
                    let figures = figures(*completed);
                    outcome.figures.merge(&figures);
                    stream.interval(
                        worker,
                        Interval {
                            index,
                            start,
                            end: *end,
                            figures,
                            waiting: brunt_core::Histogram::default(),
                        },
                    );
                    (start, outcome.end) = (*end, *end);
                }
                stream.done(worker, Some(&outcome));
            }
            while stream.complete().is_some() {}
            stream.outcome().common.unwrap()
        };
        let long: [(Nanos, u64); 3] = [(second(1), 20), (second(2), 100), (second(3), 40)];
        let found = common(&[&long, &[(second(1), 80)]]);
        let expected = CommonTime {
            seconds: 1.0,
            requests: 100,
            bytes: 51_200,
            requests_left_out: 140,
            ended_apart_s: 2.0,
        };
        assert_eq!(found, expected);
        // The other worker's second interval is half as long, and the first worker's requests in that half are unknown.
        let half = Nanos(1_500_000_000);
        let found = common(&[&long, &[(second(1), 80), (half, 40)]]);
        assert_eq!(
            (found.requests, found.requests_left_out, found.ended_apart_s),
            (100, 180, 1.5)
        );
        let found = common(&[&[(half, 30)], &[(half, 30)]]);
        assert_eq!(
            (found.seconds, found.requests, found.ended_apart_s),
            (1.5, 60, 0.0)
        );
        let found = common(&[&[(second(1), 30)], &[(second(2), 30)]]);
        assert_eq!(
            (found.seconds, found.requests, found.requests_left_out),
            (0.0, 0, 60)
        );
    }
}
