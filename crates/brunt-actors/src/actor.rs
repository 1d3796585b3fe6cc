//! A process with its inbox, as the schedulers see it: something to run for a while.
//!
//! Whoever holds the box has the process, its inbox and its timers to itself; homes and
//! schedulers pass the box on and never look inside without it.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use brunt_core::Nanos;

use crate::address::{Address, FULL, Refused, Shared};
use crate::outbox::Outbox;
use crate::process::{Context, Process, TimerId};

/// What came of running a process.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub handled: u32,
    /// Messages left in the inbox.
    pub left: u32,
    /// When its next timer is due.
    pub due: Nanos,
    /// A send waits.
    pub stashed: bool,
    pub end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Alive,
    Stopped,
    /// It panicked.
    Failed,
}

impl Default for Outcome {
    /// That of a process that did not return: what it handled is not known, and it is not run again.
    fn default() -> Self {
        Outcome { handled: 0, left: 0, due: Nanos::MAX, stashed: false, end: End::Failed }
    }
}

/// A process behind its type.
pub(crate) trait Actor: Send {
    /// Handles at most `budget` messages. A panic of the process goes through.
    fn run(&mut self, outbox: &mut Outbox, budget: u32) -> Outcome;
    /// Its `VecDeque` of messages.
    fn inbox(&mut self) -> &mut dyn Any;
    /// Moves messages that came while it was away, a `VecDeque` of its type, into its inbox.
    fn absorb(&mut self, late: &mut (dyn Any + Send)) -> u32;
    /// Messages in the inbox and sends that wait.
    fn pending(&self) -> u64;
    fn set_finish(&mut self);
    /// Its first waiting send goes above the capacity.
    fn grant(&mut self);
    /// Whose inbox its first waiting send is for.
    fn waits_for(&self) -> Option<Arc<Shared>>;
}

/// A send that waits for room, whatever its type.
pub(crate) trait Stashed: Send {
    fn retry(&mut self, outbox: &mut Outbox, granted: bool) -> Attempt;
    fn target(&self) -> &Arc<Shared>;
}

#[derive(PartialEq, Eq)]
pub(crate) enum Attempt {
    Sent,
    Full,
}

pub(crate) struct Held<T> {
    pub to: Address<T>,
    pub message: Option<T>,
}

impl<T: Send + 'static> Stashed for Held<T> {
    fn retry(&mut self, outbox: &mut Outbox, granted: bool) -> Attempt {
        let Some(message) = self.message.take() else { return Attempt::Sent };
        let result =
            if granted { outbox.stage_granted(&self.to, message) } else { outbox.stage(&self.to, message) };
        match result {
            Ok(()) => Attempt::Sent,
            Err(Refused::Full(message)) => {
                self.message = Some(message);
                Attempt::Full
            }
            Err(_) => {
                outbox.undelivered += 1;
                Attempt::Sent
            }
        }
    }

    fn target(&self) -> &Arc<Shared> {
        &self.to.shared
    }
}

/// A process's timers, the next one first; equal times in the order they were set.
pub(crate) struct TimerQueue<M> {
    queue: BTreeMap<(Nanos, u64), M>,
    next: u64,
}

impl<M> TimerQueue<M> {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn push(&mut self, due: Nanos, message: M) -> TimerId {
        self.next += 1;
        self.queue.insert((due, self.next), message);
        TimerId(self.next)
    }

    pub fn remove(&mut self, timer: TimerId) -> Option<M> {
        let key = *self.queue.keys().find(|(_, number)| *number == timer.0)?;
        self.queue.remove(&key)
    }

    fn due(&self) -> Nanos {
        self.queue.first_key_value().map_or(Nanos::MAX, |((due, _), _)| *due)
    }

    fn pop(&mut self, now: Nanos) -> Option<M> {
        let first = self.queue.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    /// To finish once its inbox is empty.
    Finishing,
    /// Ends when its waiting sends are gone.
    Stopping,
}

pub(crate) struct ActorCell<P: Process> {
    inbox: VecDeque<P::Message>,
    process: P,
    phase: Phase,
    granted: bool,
    kind: u16,
    shared: Arc<Shared>,
    stash: VecDeque<Box<dyn Stashed>>,
    timers: TimerQueue<P::Message>,
}

impl<P: Process> ActorCell<P> {
    pub fn new(process: P, shared: Arc<Shared>, kind: u16) -> Self {
        ActorCell {
            inbox: VecDeque::new(),
            process,
            phase: Phase::New,
            granted: false,
            kind,
            shared,
            stash: VecDeque::new(),
            timers: TimerQueue { queue: BTreeMap::new(), next: 0 },
        }
    }

    /// A process that has begun, with nothing special to look at.
    fn is_plain(&self) -> bool {
        self.phase == Phase::Running && self.stash.is_empty() && self.timers.queue.is_empty()
    }

    /// Handles messages; returns how many, and whether the process wants to stop.
    #[inline]
    fn run_messages(&mut self, outbox: &mut Outbox, budget: u32) -> (u32, bool) {
        let mut stopping = false;
        let mut context = Context {
            outbox,
            shared: &self.shared,
            kind: self.kind,
            stash: &mut self.stash,
            timers: &mut self.timers,
            stopping: &mut stopping,
        };
        let mut handled = 0;
        while handled < budget {
            let Some(message) = self.inbox.pop_front() else { break };
            handled += 1;
            self.process.handle(message, &mut context);
            if *context.stopping || !context.stash.is_empty() {
                break;
            }
        }
        (handled, stopping)
    }

    /// As `run_messages`, for a process that begins, ends, has a send that waits, or timers.
    #[cold]
    fn run_special(&mut self, outbox: &mut Outbox, budget: u32) -> (u32, bool) {
        if !self.stash.is_empty() {
            self.retry_stash(outbox);
        }
        let mut stopping = false;
        let mut handled = 0;
        let mut context = Context {
            outbox,
            shared: &self.shared,
            kind: self.kind,
            stash: &mut self.stash,
            timers: &mut self.timers,
            stopping: &mut stopping,
        };
        if self.phase == Phase::New {
            self.phase = Phase::Running;
            self.process.start(&mut context);
        }
        if self.phase == Phase::Stopping {
            return (0, false);
        }
        while handled < budget && context.stash.is_empty() && !*context.stopping {
            let due = context.timers.pop(context.outbox.now);
            let Some(message) = due.or_else(|| self.inbox.pop_front()) else { break };
            handled += 1;
            self.process.handle(message, &mut context);
        }
        if self.phase == Phase::Finishing
            && self.inbox.is_empty()
            && context.stash.is_empty()
            && !*context.stopping
        {
            self.process.finish(&mut context);
            *context.stopping = true;
        }
        (handled, stopping)
    }

    #[cold]
    fn retry_stash(&mut self, outbox: &mut Outbox) {
        while let Some(first) = self.stash.front_mut() {
            if first.retry(outbox, std::mem::take(&mut self.granted)) == Attempt::Full {
                break;
            }
            self.stash.pop_front();
        }
        self.granted = false;
    }
}

impl<P: Process> Actor for ActorCell<P> {
    #[inline]
    fn run(&mut self, outbox: &mut Outbox, budget: u32) -> Outcome {
        let (handled, stopping) = if self.is_plain() {
            self.run_messages(outbox, budget)
        } else {
            self.run_special(outbox, budget)
        };
        if stopping {
            self.phase = Phase::Stopping;
        }
        let stashed = !self.stash.is_empty();
        Outcome {
            handled,
            left: self.inbox.len() as u32,
            due: self.timers.due(),
            stashed,
            end: if self.phase == Phase::Stopping && !stashed { End::Stopped } else { End::Alive },
        }
    }

    #[inline]
    fn inbox(&mut self) -> &mut dyn Any {
        &mut self.inbox
    }

    fn absorb(&mut self, late: &mut (dyn Any + Send)) -> u32 {
        let late = late.downcast_mut::<VecDeque<P::Message>>().expect("an inbox has one type of message");
        self.inbox.append(late);
        self.inbox.len() as u32
    }

    fn pending(&self) -> u64 {
        (self.inbox.len() + self.stash.len()) as u64
    }

    fn set_finish(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Finishing;
        }
    }

    fn grant(&mut self) {
        self.granted = true;
    }

    fn waits_for(&self) -> Option<Arc<Shared>> {
        let target = self.stash.front()?.target();
        (target.gate() == FULL).then(|| target.clone())
    }
}

pub(crate) fn panic_words(panic: &(dyn Any + Send)) -> String {
    if let Some(words) = panic.downcast_ref::<&str>() {
        (*words).to_string()
    } else if let Some(words) = panic.downcast_ref::<String>() {
        words.clone()
    } else {
        "a panic without words".to_string()
    }
}
