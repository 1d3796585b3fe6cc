//! What is under way to a home: one queue under one short lock, and the bell that wakes the home's
//! scheduler.
//!
//! One queue, not one for each sender, because a process may run on one scheduler now and on
//! another next: what it sent first was pushed first, so it is taken in first. Whether the
//! scheduler sleeps is a field under the same lock, so a wake-up cannot fall between its last
//! look and its sleep.

use std::time::Duration;

use crate::address::Address;
use crate::lane::{Envelope, Lanes};
use crate::sync::{Condvar, Mutex, lock};

/// Word to a process that is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The inbox that it waited for has room, or is gone.
    Resume,
    /// Finish: the system drains.
    Finish,
}

#[derive(Default)]
pub(crate) struct Inbound {
    pub lanes: Lanes,
    pub signals: Vec<(u32, u32, Signal)>,
    /// How often it has been emptied.
    pub takes: u64,
    pub sleeping: bool,
    /// Somebody has work to give away, or the system stops.
    pub poked: bool,
}

impl Inbound {
    /// The number of the take that will hold what is pushed now.
    pub fn next_take(&self) -> u64 {
        self.takes + 1
    }

    pub fn push_one<M: Send + 'static>(&mut self, to: &Address<M>, message: M) {
        self.lanes.push(to.kind, Envelope { slot: to.slot, generation: to.generation, message });
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.count() == 0 && self.signals.is_empty()
    }
}

/// Where a thread outside waits for an inbox to have room.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    bell: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *lock(&self.open) = true;
        self.bell.notify_all();
    }

    pub fn wait(&self) {
        let mut open = lock(&self.open);
        while !*open {
            open = self.bell.wait(open).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// Sleeps on `inbound` until rung, or for at most `longest`.
pub(crate) fn sleep(inbound: &Mutex<Inbound>, bell: &Condvar, longest: Option<Duration>) {
    let mut guard = lock(inbound);
    if !guard.is_empty() || guard.poked {
        guard.poked = false;
        return;
    }
    // A scheduler that is told to stop is poked after the flag is set: see `poked` above.
    guard.sleeping = true;
    while guard.sleeping {
        match longest {
            None => guard = bell.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner),
            Some(longest) => {
                guard =
                    bell.wait_timeout(guard, longest).unwrap_or_else(std::sync::PoisonError::into_inner).0;
                guard.sleeping = false;
            }
        }
    }
    guard.poked = false;
}
