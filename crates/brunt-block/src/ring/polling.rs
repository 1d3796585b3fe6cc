//! Work that a ring does before its thread sleeps: it polls for completions that are expected soon, and starts some
//! requests before the rest of a batch is prepared.
//!
//! The rule: both adapt to past waits, so that neither costs anything where it has no benefit.

use std::io;
use std::time::Duration;

use brunt_core::{Clock, IoEngine, Nanos};

use super::poll_turn::PollTurn;
use super::{Ring, Wait};

/// How often a polling thread yields its core to others.
pub(super) const YIELD_EVERY: Duration = Duration::from_micros(4);
/// A yield that takes no longer than this shows that no other thread wanted the core.
const YIELD_ALONE_MAX: Duration = Duration::from_micros(3);
/// Number of waits that skip polling after another thread wanted the core.
const POLL_PAUSE_WAITS: u32 = 100;
/// Number of waits until the ring tries starting requests early again, after requests completed within the system
/// call that submitted them, so that starting some early had no benefit.
pub(super) const EARLY_PAUSE_WAITS: u32 = 64;

impl Ring {
    /// Submits everything queued without waiting, and notes whether a device works on it in the meantime.
    ///
    /// # Errors
    /// See [`Ring::enter`].
    pub fn start(&self) -> io::Result<()> {
        self.arm_wake();
        self.submit(Wait::No)?;
        if self.inner.in_flight.get() == 0 {
            self.inner.early_pause.set(EARLY_PAUSE_WAITS);
        }
        Ok(())
    }

    /// Whether it pays to [`Ring::start`] a few requests before the rest of a batch is prepared, so that their device
    /// isn't idle meanwhile: these are requests to files, and complete after the call that submits them.
    #[inline]
    pub fn starts_early(&self) -> bool {
        self.inner.early_pause.get() == 0
            && self.inner.sockets.get() == 0
            && self.engine() == IoEngine::IoUring
    }

    /// Submits, then polls for completions without sleeping if that is worthwhile. Returns whether the wait is over.
    pub(super) fn busy_poll(&self, until: Nanos) -> io::Result<bool> {
        let nanos = self.inner.config.busy_poll_nanos;
        // Only io_uring can be polled without system calls.
        if self.engine() == IoEngine::Threads || nanos == 0 || self.inner.sockets.get() == 0 {
            return Ok(false);
        }
        let time = Duration::from_nanos(nanos);
        if self.inner.config.never_sleeps {
            let Some(turn) = PollTurn::take_or_want() else {
                return Ok(false);
            };
            while !self.poll_for(time, until, true)? {
                if turn.is_wanted() {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        if !self.inner.poll_pays.get() {
            return Ok(false);
        }
        if let Some(left) = self.inner.poll_pause.get().checked_sub(1) {
            self.inner.poll_pause.set(left);
            return Ok(false);
        }
        let Some(_turn) = PollTurn::take() else {
            return Ok(false);
        };
        self.poll_for(time, until, true)
    }

    /// Submits, then polls for completions for `time`, making a system call only if the kernel has pending work to run
    /// in one. Returns whether the wait is over. If `polite`, it yields to other threads that wait for this core
    /// (possibly the peer whose answer is awaited), and then skips polling for some waits.
    pub(super) fn poll_for(&self, time: Duration, until: Nanos, polite: bool) -> io::Result<bool> {
        let begin = Clock::Monotonic.now();
        let is_over = self.poll_untimed(begin, time, until, polite);
        let polled = Clock::Monotonic.now().since(begin).as_nanos() as u64;
        let polled_nanos = &self.inner.polled_nanos;
        polled_nanos.set(polled_nanos.get() + polled);
        is_over
    }

    /// [`Ring::poll_for`], without counting its time.
    fn poll_untimed(
        &self,
        begin: Nanos,
        time: Duration,
        until: Nanos,
        polite: bool,
    ) -> io::Result<bool> {
        let mut now = begin;
        let end = now.after(time);
        let mut yield_at = now.after(YIELD_EVERY);
        loop {
            // Reading the clock costs as much as dozens of polls, so it is read once per 64.
            for _ in 0..64 {
                self.submit(Wait::No)?;
                if self.is_done() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            now = Clock::Monotonic.now();
            if now >= until {
                return Ok(true);
            }
            if now >= end {
                return Ok(false);
            }
            if polite && now >= yield_at {
                std::thread::yield_now();
                let mut stats = self.inner.stats.get();
                stats.system_calls += 1;
                self.inner.stats.set(stats);
                let back = Clock::Monotonic.now();
                if back.since(now) > YIELD_ALONE_MAX && !self.inner.config.never_sleeps {
                    self.inner.poll_pause.set(POLL_PAUSE_WAITS);
                    self.submit(Wait::No)?;
                    return Ok(self.is_done());
                }
                yield_at = back.after(YIELD_EVERY);
            }
        }
    }
}
