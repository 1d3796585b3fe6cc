//! The timers of one actor.
//!
//! Set through the actor's context, fired by its cell before messages. The rule: the number of pending timers never
//! exceeds the capacity of the inbox; the context enforces this.

use std::collections::BTreeMap;

use brunt_core::Nanos;

/// A pending timer of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u64);

/// An actor's timers, earliest first; timers set for the same time fire in the order they were set.
pub(crate) struct TimerQueue<M> {
    queue: BTreeMap<(Nanos, u64), M>,
    next: u64,
}

impl<M> TimerQueue<M> {
    pub fn new() -> Self {
        TimerQueue {
            queue: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

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

    pub fn due(&self) -> Nanos {
        self.queue
            .first_key_value()
            .map_or(Nanos::MAX, |((due, _), _)| *due)
    }

    pub fn pop(&mut self, now: Nanos) -> Option<M> {
        let first = self
            .queue
            .first_entry()
            .filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}
