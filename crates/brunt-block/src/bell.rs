//! Ends a ring's wait from another thread on behalf of one device, as [`crate::Ring::waker`] does for the thread as a
//! whole. Devices whose requests are completed by other threads (for example a client library's) own a bell and collect
//! completions when it rings.
//!
//! The rule: a read that waits for the bell is always on the ring, so no wake-up is lost.

use std::cell::Cell;
use std::io;

use crate::ring::call::Call;
use crate::ring::{Port, Ring, Waker};

/// Wakes the thread that owns a device.
pub struct Bell {
    port: Port,
    waker: Waker,
    /// The kernel writes here how many times the bell has rung; boxed so that its address is stable.
    count: Box<Cell<u64>>,
}

impl Bell {
    /// Creates a bell on this thread's ring.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn new(ring: &Ring) -> io::Result<Bell> {
        let bell = Bell {
            port: ring.attach(),
            waker: Waker::new()?,
            count: Box::default(),
        };
        bell.listen();
        Ok(bell)
    }

    /// The waker that rings this bell. It works from any thread, and may outlive the bell.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Whether the bell has rung since the last call. Several rings in quick succession count once.
    pub fn take(&mut self) -> bool {
        let rang = self.port.pop().is_some();
        if rang {
            self.listen();
        }
        rang
    }

    fn listen(&self) {
        let call = Call::Count {
            fd: self.waker.raw_fd(),
            into: self.count.as_ptr(),
        };
        // SAFETY: the count is boxed, and the bell keeps it and the descriptor until the port is idle; if the port
        // never becomes idle, the bell leaks both.
        unsafe { self.port.push(call, 0) };
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.waker.wake();
        if !self.port.wait_idle() {
            std::mem::forget(std::mem::take(&mut self.count));
            std::mem::forget(self.waker.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use brunt_core::Nanos;

    use super::*;
    use crate::RingConfig;

    /// Each wake-up from another thread ends one wait, after which the ring can sleep again.
    #[test]
    fn each_call_ends_a_wait() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let (mut bell, mut other) = (Bell::new(&ring).unwrap(), Bell::new(&ring).unwrap());
        for _ in 0..3 {
            let waker = bell.waker();
            let thread = std::thread::spawn(move || waker.wake());
            while !bell.take() {
                ring.enter(Nanos::MAX).unwrap();
            }
            thread.join().unwrap();
            assert!(!bell.take() && !other.take(), "only who was called");
        }
        assert!(
            !ring.take_woken(),
            "the waker of the whole thread was not used"
        );
        let late = bell.waker();
        drop(bell);
        late.wake();
        drop(other);
    }
}
