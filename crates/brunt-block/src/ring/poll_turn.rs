//! Limits how many threads of a process poll before they sleep.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Permission to poll. The number of threads that poll at the same time is at most half the number of cores, so that
/// polling never keeps the threads they wait for from running. One thread may poll even on a single core: another
/// thread that wants the core gets it within [`super::polling::YIELD_EVERY`], and the peer may be on another machine.
pub(super) struct PollTurn;

static POLLING: AtomicU32 = AtomicU32::new(0);
static POLLING_MAX: LazyLock<u32> = LazyLock::new(|| {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() as u32 / 2).max(1))
});

impl PollTurn {
    pub fn take() -> Option<PollTurn> {
        if POLLING.fetch_add(1, Ordering::Relaxed) < *POLLING_MAX {
            return Some(PollTurn);
        }
        POLLING.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for PollTurn {
    fn drop(&mut self) {
        POLLING.fetch_sub(1, Ordering::Relaxed);
    }
}
