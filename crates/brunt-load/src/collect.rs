//! Collects what a run's workers send: merges their intervals as they arrive and passes the merged ones to
//! the recorder and to decisions. Called by [`crate::decisions`], on the thread that waits for the end.
//!
//! The rule: an interval is passed on when every worker has reported it, and never changes afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_result::{Interval, Outcome, RequestRecord, Stopped};

use crate::record::Recorder;

/// Messages that wait for the recorder; then workers wait too, rather than lose any.
pub(crate) const MESSAGES_MAX: usize = 64;
/// How long somebody's wish to stop may go unseen.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// From "all are ready" to the common start.
const START_IN: Duration = Duration::from_millis(2);

/// What a worker sends.
#[derive(Debug)]
pub enum WorkerMessage<E> {
    /// A worker is ready to start.
    Ready,
    /// An interval of this worker is over.
    Interval(u32, Box<Interval>),
    /// Some requests ended.
    Requests(Vec<RequestRecord>),
    /// This worker has ended: its last message.
    Done(u32, Box<Result<Outcome, E>>),
}

/// Sends a worker's figures to the collector.
pub struct Post<'a, E> {
    worker: u32,
    messages: &'a SyncSender<WorkerMessage<E>>,
    /// For room in the inbox: requests are late for it, which is not the device's doing.
    waited: Duration,
}

impl<'a, E> Post<'a, E> {
    /// For this worker's figures.
    pub fn new(worker: u32, messages: &'a SyncSender<WorkerMessage<E>>) -> Post<'a, E> {
        Post { worker, messages, waited: Duration::ZERO }
    }

    /// How long the worker had to wait until its figures were taken.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    fn send(&mut self, message: WorkerMessage<E>) {
        if let Err(TrySendError::Full(message)) = self.messages.try_send(message) {
            let begin = Clock::Monotonic.now();
            let _ = self.messages.send(message);
            self.waited += Clock::Monotonic.now().since(begin);
        }
    }
}

impl<E> Recorder for Post<'_, E> {
    fn interval(&mut self, interval: &Interval) {
        self.send(WorkerMessage::Interval(self.worker, Box::new(interval.clone())));
    }
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.send(WorkerMessage::Requests(batch.to_vec()));
    }
}

/// The side of a run that can be driven.
pub(crate) trait WorkersHandle {
    /// All workers are ready: they start at this time.
    fn start(&mut self, at: Nanos);
    /// No more requests are made, not even after a start.
    fn halt(&mut self);
}

/// Merges what workers send. `E` is why a worker may fail.
pub(crate) struct Collector<'a, E> {
    workers: usize,
    stop: &'a AtomicBool,
    recorder: &'a mut dyn Recorder,
    /// Looks at every merged interval; what it answers ends the run.
    judge: &'a mut dyn FnMut(&Interval) -> Option<Stopped>,
    /// Intervals that some workers have not reported yet.
    open: BTreeMap<u64, Interval>,
    /// The next interval of each worker; `u64::MAX` when it is done.
    next: Vec<u64>,
    verdict: Option<Stopped>,
    halts: bool,
    outcome: Option<Outcome>,
    error: Option<E>,
}

impl<'a, E> Collector<'a, E> {
    /// For so many workers; somebody else asks for the end with `stop`.
    pub(crate) fn new(
        workers: u32,
        stop: &'a AtomicBool,
        recorder: &'a mut dyn Recorder,
        judge: &'a mut dyn FnMut(&Interval) -> Option<Stopped>,
    ) -> Collector<'a, E> {
        Collector {
            workers: workers as usize,
            stop,
            recorder,
            judge,
            open: BTreeMap::new(),
            next: vec![0; workers as usize],
            verdict: None,
            halts: false,
            outcome: None,
            error: None,
        }
    }

    /// Starts the workers when all are ready, and merges until the last one is done.
    ///
    /// # Errors
    /// The first worker's that failed.
    pub(crate) fn collect(
        mut self,
        inbox: Receiver<WorkerMessage<E>>,
        handle: &mut impl WorkersHandle,
    ) -> Result<Outcome, E> {
        let (mut ready, mut started) = (0, false);
        loop {
            if self.stop.load(Ordering::Relaxed) || self.recorder.is_full() {
                self.halts = true;
            }
            if self.halts {
                handle.halt();
                if self.error.is_some() && !started {
                    // Some worker could not be made ready: the others start, and end at once.
                    started = true;
                    handle.start(Clock::Monotonic.now());
                }
            }
            match inbox.recv_timeout(LOOK_EVERY) {
                Ok(WorkerMessage::Ready) => {
                    ready += 1;
                    assert!(ready <= self.workers, "each worker is ready once");
                    if ready == self.workers && !started {
                        started = true;
                        let start = Clock::Monotonic.now().after(START_IN);
                        handle.start(start);
                        self.recorder.starts(start);
                    }
                }
                Ok(WorkerMessage::Interval(worker, interval)) => self.interval(worker, *interval),
                Ok(WorkerMessage::Requests(batch)) => self.recorder.requests(&batch),
                Ok(WorkerMessage::Done(worker, result)) => self.done(worker, *result),
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

    fn done(&mut self, worker: u32, result: Result<Outcome, E>) {
        self.next[worker as usize] = u64::MAX;
        match result {
            Ok(outcome) => match &mut self.outcome {
                Some(all) => all.merge(&outcome),
                None => self.outcome = Some(outcome),
            },
            Err(error) => {
                self.error.get_or_insert(error);
                self.halts = true;
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
            if self.verdict.is_none() {
                self.verdict = (self.judge)(&interval);
                self.halts |= self.verdict.is_some();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// A worker that has to wait for its figures to be taken says so, one that has not does
    /// not.
    #[test]
    fn waiting_for_the_recorder_is_told() {
        let (messages, inbox) = sync_channel::<WorkerMessage<()>>(1);
        let mut post = Post::new(0, &messages);
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
}
