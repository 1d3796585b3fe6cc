//! The process's time source. Everything that waits or takes timestamps uses a [`Clock`], never the
//! operating system's clock, so a test simulates an hour of delays in a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on the monotonic time line, or a distance on it, in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Later than any real time.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// This time plus `duration`, saturating on overflow.
    pub fn after(self, duration: Duration) -> Nanos {
        Nanos(
            self.0
                .saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64),
        )
    }

    /// The time since `earlier`; zero if `earlier` is later than this time.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A source of time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`: shared by all processes on this machine, so timestamps from a worker and
    /// from a target on the same host can be subtracted.
    #[default]
    Monotonic,
    /// Advanced by a test; clones share the same time.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A manual clock that starts at zero.
    pub fn manual() -> Clock {
        Clock::Manual(Arc::new(AtomicU64::new(0)))
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Nanos {
        match self {
            Clock::Monotonic => monotonic_now(),
            Clock::Manual(dial) => Nanos(dial.load(Ordering::Relaxed)),
        }
    }

    /// Advances a manual clock.
    ///
    /// # Panics
    /// On the monotonic clock, which cannot be advanced.
    pub fn advance(&self, by: Duration) {
        match self {
            Clock::Monotonic => panic!("the monotonic clock cannot be advanced"),
            Clock::Manual(dial) => {
                dial.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
            }
        }
    }
}

fn monotonic_now() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manual clock and its clones change only through `advance`.
    #[test]
    fn a_manual_clock_changes_only_when_advanced() {
        let clock = Clock::manual();
        let other = clock.clone();
        clock.advance(Duration::from_secs(3600));
        assert_eq!(other.now(), Nanos(3_600_000_000_000));
        assert_eq!(
            other.now().since(Nanos(5)),
            Duration::from_nanos(3_599_999_999_995)
        );
    }

    #[test]
    fn the_monotonic_clock_never_goes_backwards() {
        let clock = Clock::default();
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
