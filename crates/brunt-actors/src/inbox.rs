//! What the senders of an actor know of its inbox: whether there is room, and how much they may have under way.
//!
//! Read for each send, by any scheduler and from outside. The rule: this is almost never written. A counter of queued
//! messages here would move a cache line between cores for each message.

use std::sync::Arc;

use crate::stats::ActorId;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub(crate) const OPEN: u8 = 0;
pub(crate) const FULL: u8 = 1;
pub(crate) const CLOSED: u8 = 2;

/// The inbox of one actor, as its senders see it.
pub(crate) struct Inbox {
    pub id: ActorId,
    /// Counts actors in the order of their spawning.
    pub serial: u64,
    pub name: Arc<str>,
    /// Most messages it holds.
    pub capacity: u32,
    /// Most messages that one scheduler, or everybody outside, may have under way to it: see
    /// [`window`].
    pub window: u32,
    /// `OPEN`, `FULL` or `CLOSED`. Set and cleared by whoever holds its home.
    gate: AtomicU8,
    /// Messages under way from outside, and the drain of its home's inbound that takes the last
    /// of them in. Both change under the inbound's lock only.
    pub outside_count: AtomicU32,
    pub outside_ticket: AtomicU64,
}

impl Inbox {
    /// An open one; as many schedulers send to it.
    pub fn new(
        id: ActorId,
        serial: u64,
        name: Arc<str>,
        capacity: u32,
        schedulers: usize,
    ) -> Inbox {
        Inbox {
            id,
            serial,
            name,
            capacity,
            window: window(capacity, schedulers),
            gate: AtomicU8::new(OPEN),
            outside_count: AtomicU32::new(0),
            outside_ticket: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn gate(&self) -> u8 {
        // Relaxed: a sender that reads it late is what `window` makes room for.
        self.gate.load(Ordering::Relaxed)
    }

    /// Closes the gate; senders see it at their next send.
    #[cold]
    pub fn shut(&self) {
        assert_ne!(self.gate(), CLOSED, "an inbox that is gone does not fill");
        self.gate.store(FULL, Ordering::Relaxed);
    }

    /// Opens the gate again, or closes it for good.
    pub fn set_gate(&self, gate: u8) {
        assert!(
            gate == OPEN || gate == CLOSED,
            "only `shut` says that an inbox is full"
        );
        assert_ne!(self.gate(), CLOSED, "an inbox that is gone stays gone");
        self.gate.store(gate, Ordering::Relaxed);
    }
}

/// How many messages to one actor may be under way in one window of one sender.
///
/// An inbox closes its gate at half its capacity. A sender's window opens again when what it
/// sent before its last flush has been taken in, so it has at most two windows under way that
/// the gate does not count yet. With `s` schedulers and the outside that is
/// `s * 2 * window + window <= capacity / 2` for the value below: the capacity is never passed.
fn window(capacity: u32, schedulers: usize) -> u32 {
    let window = capacity / (4 * (schedulers as u32 + 1));
    assert!(window > 0, "an inbox has at least capacity_min");
    window
}

/// The smallest capacity for which [`window`] is at least one.
pub(crate) fn capacity_min(schedulers: usize) -> u32 {
    4 * (schedulers as u32 + 1)
}
