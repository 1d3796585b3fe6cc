//! Limits how many threads of a process poll before they sleep.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Permission to poll. The number of threads that poll at the same time is at most half the number of cores, so that
/// polling never keeps the threads they wait for from running. One thread may poll even on a single core: another
/// thread that wants the core gets it within [`super::polling::YIELD_EVERY`], and the peer may be on another machine.
pub(super) struct PollTurn;

static POLLING: AtomicU32 = AtomicU32::new(0);
static POLLING_MAX: LazyLock<u32> = LazyLock::new(|| {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() as u32 / 2).max(1))
});

/// Whether a thread has been refused a turn since a thread that never sleeps last gave up its own turn.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Maximum number of threads that poll at the same time.
pub fn polling_threads_max() -> u32 {
    *POLLING_MAX
}

impl PollTurn {
    /// Like [`PollTurn::take`], for threads that never sleep: if all turns are taken, a thread that never sleeps soon
    /// gives up its turn.
    pub fn take_or_want() -> Option<PollTurn> {
        let turn = PollTurn::take();
        if turn.is_none() {
            WANTED.store(true, Ordering::Relaxed);
        }
        turn
    }

    /// Whether to give up this turn for another thread; true once per refusal.
    pub fn is_wanted(&self) -> bool {
        WANTED.load(Ordering::Relaxed) && WANTED.swap(false, Ordering::Relaxed)
    }

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
