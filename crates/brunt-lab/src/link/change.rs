//! Changes what a link's thread does while packets are in flight. Used by a lab's link handle and by a bridge.
//!
//! The rule: a change is in effect when the thread confirms it, not when it was requested.

use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::control::{Control, Wanted};

/// How long a link's thread may take to apply a change; it checks more often than this.
const CHANGE_PATIENCE: Duration = Duration::from_secs(2);

/// A change in effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    /// Time at which it took effect.
    pub(super) at: Nanos,
    /// Whether packets can bypass the thread.
    pub(super) is_clear: bool,
}

impl Control {
    /// Changes one direction, and waits until the change is in effect; `None` if the thread has ended or is stuck.
    pub(super) fn change(
        &self,
        direction: usize,
        clock: &Clock,
        change: impl FnOnce(&mut Wanted),
    ) -> Option<Changed> {
        let shared = &self.lanes[direction];
        let (is_clear, asked_for) = {
            let mut wanted = shared.wanted();
            change(&mut wanted);
            (
                wanted.is_clear(),
                shared.asked.fetch_add(1, Ordering::AcqRel) + 1,
            )
        };
        self.wake();
        let asked = clock.now();
        while shared.applied.load(Ordering::Acquire) < asked_for {
            if clock.now().since(asked) > CHANGE_PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Some(Changed {
            at: Nanos(shared.applied_at.load(Ordering::Acquire)),
            is_clear,
        })
    }
}
