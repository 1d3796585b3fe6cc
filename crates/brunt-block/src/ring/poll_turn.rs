//! Which threads of a process may poll before they sleep.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Leave to poll: at most half of the cores do at a time, so that polling threads never keep the ones they wait for from
/// running. One thread may even on a single core: whoever waits for that core gets it within [`super::YIELD_EVERY`], and
/// the peer may be on another machine.
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
