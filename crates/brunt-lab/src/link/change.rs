//! Changes what a link's thread does while packets are under way. Used by the handle of a lab's link and by a bridge.
//!
//! The rule: a change holds when the thread says so, not when it was asked for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::control::{Control, Wanted};

/// How long a link's thread gets to take over what changed; it looks at least this often.
const CHANGE_PATIENCE: Duration = Duration::from_secs(2);

/// A change that holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    /// Since when.
    pub(super) at: Nanos,
    /// Packets need not pass the thread any more.
    pub(super) is_clear: bool,
}

impl Control {
    /// Has one direction changed, and waits until that holds; `None` when its thread has ended, or is stuck.
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
