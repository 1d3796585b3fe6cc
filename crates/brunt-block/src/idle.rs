//! Notices when a connection has become idle, so that its thread can return memory once ([`crate::Ring::release`]).
//! Used by the loops of servers.

use std::time::Duration;

use brunt_core::Nanos;

/// A connection without requests for this long is idle. Clients that pause for a shorter time keep their memory.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// When a connection becomes idle.
#[derive(Debug)]
pub struct IdleTimer {
    /// `Nanos::MAX`: it is idle, and its memory has been returned.
    due: Nanos,
}

impl IdleTimer {
    /// A timer for a connection that begins at `now`.
    pub fn new(now: Nanos) -> IdleTimer {
        IdleTimer {
            due: now.after(IDLE_AFTER),
        }
    }

    /// Updates the timer in each turn of the loop; `busy`: the connection has received data or has requests
    /// outstanding. Returns true once whenever the connection becomes idle.
    #[inline]
    pub fn becomes_idle(&mut self, busy: bool, now: Nanos) -> bool {
        if busy {
            self.due = now.after(IDLE_AFTER);
            return false;
        }
        if now < self.due || self.due == Nanos::MAX {
            return false;
        }
        self.due = Nanos::MAX;
        true
    }

    /// The latest time to call [`IdleTimer::becomes_idle`] again.
    #[inline]
    pub fn deadline(&self) -> Nanos {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_becomes_idle_once_after_each_busy_period() {
        let at = |ms: u64| Nanos(ms * 1_000_000);
        let mut timer = IdleTimer::new(at(0));
        assert!(!timer.becomes_idle(false, at(999)));
        assert!(!timer.becomes_idle(true, at(1000)));
        assert_eq!(timer.deadline(), at(2000));
        assert!(timer.becomes_idle(false, at(2000)));
        assert!(!timer.becomes_idle(false, at(9000)));
        assert_eq!(timer.deadline(), Nanos::MAX);
        assert!(!timer.becomes_idle(true, at(9500)));
        assert!(timer.becomes_idle(false, at(10_500)));
    }
}
