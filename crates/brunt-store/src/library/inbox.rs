//! Collects the operations completed by a library's threads until the device's thread takes them.
//!
//! The rule: only the first completion of a batch wakes the device, which costs one system call per batch instead of
//! one per operation.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brunt_block::Waker;

/// A completed operation: its slot, and a number of bytes or a negative errno.
pub(super) type Landed = (u32, i64);

#[derive(Debug)]
pub(super) struct Inbox {
    mail: Mutex<Mail>,
    arrived: Condvar,
    waker: Waker,
}

#[derive(Debug)]
struct Mail {
    landed: Vec<Landed>,
    /// Whether the device was woken and hasn't taken the completions yet.
    rung: bool,
}

impl Inbox {
    /// Has room for all slots, so it never grows.
    pub fn new(slots: usize, waker: Waker) -> Inbox {
        let mail = Mail {
            landed: Vec::with_capacity(slots),
            rung: false,
        };
        Inbox {
            mail: Mutex::new(mail),
            arrived: Condvar::new(),
            waker,
        }
    }

    /// Adds a completion; called on the library's threads.
    pub fn post(&self, slot: u32, result: i64) {
        let mut mail = self.lock();
        assert!(
            mail.landed.len() < mail.landed.capacity(),
            "an operation completes once"
        );
        mail.landed.push((slot, result));
        let first = !std::mem::replace(&mut mail.rung, true);
        drop(mail);
        self.arrived.notify_one();
        if first {
            self.waker.wake();
        }
    }

    /// Appends all completions to `into`; called on the device's thread.
    pub fn take(&self, into: &mut Vec<Landed>) {
        let mut mail = self.lock();
        into.append(&mut mail.landed);
        mail.rung = false;
    }

    /// Sleeps until there is a completion, or until `until`; returns whether there is a completion.
    pub fn wait(&self, until: Instant) -> bool {
        let mut mail = self.lock();
        while mail.landed.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            mail = self
                .arrived
                .wait_timeout(mail, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
