//! Ends a ring's wait from another thread, for one device: what [`crate::Ring::waker`] is for the thread as a whole.
//! Devices that other threads complete (a library's) own one, and look at what was completed when it rings.
//!
//! The rule: the read that waits for it is always on the ring, so that no call is missed.

use std::cell::Cell;
use std::io;

use crate::ring::call::Call;
use crate::ring::{Port, Ring, Waker};

/// A device's own way to be woken.
pub struct Bell {
    port: Port,
    waker: Waker,
    /// Where the kernel puts how often it was rung; boxed so that it stays put.
    count: Box<Cell<u64>>,
}

impl Bell {
    /// A bell on this thread's ring.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(ring: &Ring) -> io::Result<Bell> {
        let bell = Bell {
            port: ring.attach(),
            waker: Waker::new()?,
            count: Box::default(),
        };
        bell.listen();
        Ok(bell)
    }

    /// What rings it, from any thread; also after the bell is gone.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Whether it rang since this was asked last. Calls that come close together count as one.
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
        // SAFETY: the count is boxed, and the bell keeps it and the descriptor until the port is idle; if it never is, it
        // leaks both.
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

    /// A call from another thread ends the wait, as often as there is one, and leaves the ring able to sleep.
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
        assert!(!ring.take_woken(), "the thread as a whole was not called");
        let late = bell.waker();
        drop(bell);
        late.wake();
        drop(other);
    }
}
