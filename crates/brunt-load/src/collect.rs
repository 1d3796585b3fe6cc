//! Brings together what the workers of a run send: their intervals are merged as they come, and the steady-state
//! rule is judged on what is merged. Called by whoever runs a load, on the thread that waits for its end.
//!
//! The rule: an interval is handed on when every worker has reported it, and never changes after that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_result::{Interval, Outcome, RequestRecord, Stopped};

use crate::commands::{Command, Commands};
use crate::record::Recorder;
use crate::steady::SteadyState;

/// Messages that wait for the recorder; then workers wait too, rather than lose any.
pub(crate) const MESSAGES_MAX: usize = 64;
/// From "all are ready" to the common start.
const START_IN: Duration = Duration::from_millis(2);

/// What a worker sends.
pub(crate) enum Message<E> {
    Ready,
    Interval(u32, Box<Interval>),
    Requests(Vec<RequestRecord>),
    Done(u32, Box<Result<Outcome, E>>),
}

/// Sends a worker's figures to the collector.
pub(crate) struct Post<'a, E> {
    pub(crate) worker: u32,
    pub(crate) messages: &'a SyncSender<Message<E>>,
    /// For room in the inbox: requests are late for it, which is not the device's doing.
    pub(crate) waited: Duration,
}

impl<E> Post<'_, E> {
    fn send(&mut self, message: Message<E>) {
        if let Err(TrySendError::Full(message)) = self.messages.try_send(message) {
            let begin = Clock::Monotonic.now();
            let _ = self.messages.send(message);
            self.waited += Clock::Monotonic.now().since(begin);
        }
    }
}

impl<E> Recorder for Post<'_, E> {
    fn interval(&mut self, interval: &Interval) {
        self.send(Message::Interval(self.worker, Box::new(interval.clone())));
    }
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.send(Message::Requests(batch.to_vec()));
    }
}

/// Merges what workers send, on the thread that waits for them. `E` is why a worker may fail.
pub(crate) struct Collector<'a, E> {
    workers: usize,
    stop: &'a AtomicBool,
    halt: &'a Commands,
    recorder: &'a mut dyn Recorder,
    /// Intervals that some workers have not reported yet.
    open: BTreeMap<u64, Interval>,
    /// The next interval of each worker; `u64::MAX` when it is done.
    next: Vec<u64>,
    steady: Option<Rounds>,
    verdict: Option<Stopped>,
    outcome: Option<Outcome>,
    error: Option<E>,
}

/// The rounds of the steady-state rule, made of intervals.
pub(crate) struct Rounds {
    state: SteadyState,
    rounds_max: u32,
    intervals: u64,
    seen: u64,
    completed: u64,
}

impl Rounds {
    /// Rounds of so many intervals, so many of them at the most.
    pub(crate) fn new(intervals: u64, rounds_max: u32) -> Rounds {
        Rounds { state: SteadyState::default(), rounds_max, intervals, seen: 0, completed: 0 }
    }
}

impl<'a, E> Collector<'a, E> {
    /// For so many workers, which stop when `halt` is set; somebody else asks for that with `stop`.
    pub(crate) fn new(
        workers: u32,
        steady: Option<Rounds>,
        stop: &'a AtomicBool,
        halt: &'a Commands,
        recorder: &'a mut dyn Recorder,
    ) -> Collector<'a, E> {
        Collector {
            workers: workers as usize,
            stop,
            halt,
            recorder,
            open: BTreeMap::new(),
            next: vec![0; workers as usize],
            steady,
            verdict: None,
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
        inbox: Receiver<Message<E>>,
        starts: Vec<SyncSender<Nanos>>,
    ) -> Result<Outcome, E> {
        let (mut ready, mut starts) = (0, Some(starts));
        loop {
            if self.stop.load(Ordering::Relaxed) || self.recorder.is_full() {
                self.halt.give(Command::Stop);
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

    fn done(&mut self, worker: u32, result: Result<Outcome, E>) {
        self.next[worker as usize] = u64::MAX;
        match result {
            Ok(outcome) => match &mut self.outcome {
                Some(all) => all.merge(&outcome),
                None => self.outcome = Some(outcome),
            },
            Err(error) => {
                self.error.get_or_insert(error);
                self.halt.give(Command::Stop);
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
                self.halt.give(Command::Stop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// The goal: a worker that has to wait for its figures to be taken says so, one that has not does
    /// not.
    #[test]
    fn waiting_for_the_recorder_is_told() {
        let (messages, inbox) = sync_channel::<Message<()>>(1);
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
}
