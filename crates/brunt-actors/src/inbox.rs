//! The shared state of an inbox that senders read: whether there is room, and how many messages
//! they may have in transit.
//!
//! Read on each send, by any scheduler and from outside. The rule: this state is almost never written. A counter of
//! queued messages here would move a cache line between cores for each message.

use std::sync::Arc;

use crate::stats::ActorId;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub(crate) const OPEN: u8 = 0;
pub(crate) const FULL: u8 = 1;
pub(crate) const CLOSED: u8 = 2;

/// The inbox of one actor, as its senders see it.
pub(crate) struct Inbox {
    pub id: ActorId,
    /// This actor's position in the spawning order.
    pub serial: u64,
    pub name: Arc<str>,
    /// Maximum number of messages it holds.
    pub capacity: u32,
    /// Maximum number of messages that each scheduler, or all outside threads together, may have in
    /// transit to the actor: see [`window`].
    pub window: u32,
    /// `OPEN`, `FULL` or `CLOSED`. Changed only under its home's lock.
    gate: AtomicU8,
    /// Messages in transit from outside, and the number of the home's take that will include the
    /// last of them. Both change only under the inbound lock.
    pub outside_count: AtomicU32,
    pub outside_ticket: AtomicU64,
}

impl Inbox {
    /// Creates an open inbox that `schedulers` schedulers send to.
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
        // Relaxed is enough: `window` leaves room for senders that read an outdated value.
        self.gate.load(Ordering::Relaxed)
    }

    /// Closes the gate; senders see this on their next send.
    #[cold]
    pub fn shut(&self) {
        assert_ne!(self.gate(), CLOSED, "an inbox that is gone does not fill");
        self.gate.store(FULL, Ordering::Relaxed);
    }

    /// Reopens the gate, or closes it permanently.
    pub fn set_gate(&self, gate: u8) {
        assert!(
            gate == OPEN || gate == CLOSED,
            "only `shut` says that an inbox is full"
        );
        assert_ne!(self.gate(), CLOSED, "an inbox that is gone stays gone");
        self.gate.store(gate, Ordering::Relaxed);
    }
}

/// Maximum number of messages that one sender may have in transit to one actor per window.
///
/// An inbox closes its gate at half its capacity. A sender's window reopens once everything sent
/// before its last flush has been taken in, so at most two windows are in transit that the gate
/// does not count yet. With `s` schedulers and the outside, that is
/// `s * 2 * window + window <= capacity / 2` for the value below, so the capacity is never
/// exceeded.
fn window(capacity: u32, schedulers: usize) -> u32 {
    let window = capacity / (4 * (schedulers as u32 + 1));
    assert!(window > 0, "an inbox has at least capacity_min");
    window
}

/// The smallest capacity for which [`window`] is at least one.
pub(crate) fn capacity_min(schedulers: usize) -> u32 {
    4 * (schedulers as u32 + 1)
}
