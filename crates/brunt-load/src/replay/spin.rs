//! Waits for a request's due time by polling the clock rather than with a timer, which would wake the thread tens of
//! microseconds late. Used by the workers of a replay.
//!
//! The rule: from `spin` before a due time on, the worker does not sleep; it alternates between checking for
//! completions and checking the clock.

use std::io;

use brunt_block::{Ring, RingCpu};
use brunt_core::{Clock, Nanos};

use crate::block::worker::Timeline;

/// The monotonic clock and a ring, whose waits end early.
pub(crate) struct SpinTime<'a> {
    /// The source of completions.
    pub(crate) ring: &'a Ring,
    /// How many nanoseconds before a due time the worker stops sleeping.
    pub(crate) spin: u64,
}

impl Timeline for SpinTime<'_> {
    #[inline]
    fn now(&self) -> Nanos {
        Clock::Monotonic.now()
    }

    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()> {
        let sleep_until = until.0.saturating_sub(self.spin);
        if until != Nanos::MAX && sleep_until <= self.now().0 {
            return self.ring.enter_for(count, Nanos(0));
        }
        self.ring.enter_for(
            count,
            if until == Nanos::MAX {
                until
            } else {
                Nanos(sleep_until)
            },
        )
    }

    fn push(&mut self) -> io::Result<()> {
        self.ring.enter_for(0, Nanos(0))
    }

    fn system_calls(&self) -> u64 {
        self.ring.stats().system_calls
    }

    fn ring_cpu(&self) -> RingCpu {
        self.ring.cpu()
    }
}
