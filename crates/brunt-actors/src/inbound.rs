//! The queue of messages and signals in transit to a home, under a briefly held lock, and the bell
//! that wakes the home's scheduler.
//!
//! There is a single queue, not one per sender, because an actor may run on different schedulers in turn: messages
//! that the actor sent first were pushed first, so they are taken in first. The flag that the scheduler sleeps is
//! under the same lock, so no wake-up is lost between the scheduler's last check and its sleep.

use std::time::Duration;

use crate::lane::{Accept, Lanes};
use crate::sync::{Condvar, Mutex, lock};

/// A notification to an actor that is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The inbox that the actor waited for has room, or no longer exists.
    Resume,
    /// Finish, because the system is draining.
    Finish,
}

/// Messages and signals in transit to a home `H`.
pub(crate) struct Inbound<H> {
    pub lanes: Lanes<H>,
    pub signals: Vec<(u32, u32, Signal)>,
    /// Number of times the queue has been emptied.
    pub takes: u64,
    pub sleeping: bool,
    /// Number of times the queue has been emptied (taken).
    pub poked: bool,
}

impl<H> Default for Inbound<H> {
    fn default() -> Self {
        Inbound {
            lanes: Lanes::default(),
            signals: Vec::new(),
            takes: 0,
            sleeping: false,
            poked: false,
        }
    }
}

impl<H: Accept + 'static> Inbound<H> {
    /// Returns the number of the take that will include messages pushed now.
    pub fn next_take(&self) -> u64 {
        self.takes + 1
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.count() == 0 && self.signals.is_empty()
    }
}

/// Sleeps on `inbound` until notified, or for at most `longest`.
pub(crate) fn sleep<H: Accept + 'static>(
    inbound: &Mutex<Inbound<H>>,
    bell: &Condvar,
    longest: Option<Duration>,
) {
    let mut guard = lock(inbound);
    if !guard.is_empty() || guard.poked {
        guard.poked = false;
        return;
    }
    // A stopping scheduler is poked after the stop flag is set: see `poked` above.
    guard.sleeping = true;
    while guard.sleeping {
        match longest {
            None => {
                guard = bell
                    .wait(guard)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            }
            Some(longest) => {
                guard = bell
                    .wait_timeout(guard, longest)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .0;
                guard.sleeping = false;
            }
        }
    }
    guard.poked = false;
}
