//! A worker's source of time and how it waits: the monotonic clock and a ring, or a test's simulation, which runs an
//! hour in a millisecond.

use std::io;

use brunt_block::{Ring, RingCpu};
use brunt_core::{Clock, Nanos};

/// A worker's source of time and how it waits.
pub trait Timeline {
    /// Returns the current time.
    fn now(&self) -> Nanos;
    /// Submits queued requests and waits until something may have completed, or `until`. For up to 50 µs it waits for
    /// `count` completions; after that, a single one is enough.
    ///
    /// # Errors
    /// The ring failed.
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()>;
    /// Submits queued requests without waiting.
    ///
    /// # Errors
    /// The ring failed.
    fn push(&mut self) -> io::Result<()>;
    /// Returns true if a device should get some requests of a batch with [`Timeline::push`] before the others are
    /// prepared, because it would be idle in the meantime.
    fn starts_early(&self) -> bool {
        false
    }
    /// Returns the number of system calls made for requests so far.
    fn system_calls(&self) -> u64;
    /// Returns the CPU time used so far by other threads that work on this worker's requests, and by polling.
    fn ring_cpu(&self) -> RingCpu {
        RingCpu {
            workers_nanos: Some(0),
            polling_nanos: 0,
        }
    }
    /// Returns both.
    fn used(&self) -> RingUse {
        RingUse {
            system_calls: self.system_calls(),
            cpu: self.ring_cpu(),
        }
    }
}

/// The cost of requests in addition to that of the worker's own thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingUse {
    /// Number of system calls.
    pub system_calls: u64,
    /// CPU time of other threads, and of polling.
    pub cpu: RingCpu,
}

/// The monotonic clock and a ring.
pub struct RingTime<'a>(pub &'a Ring);

impl Timeline for RingTime<'_> {
    #[inline]
    fn now(&self) -> Nanos {
        Clock::Monotonic.now()
    }
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()> {
        self.0.enter_for(count, until)
    }
    fn push(&mut self) -> io::Result<()> {
        self.0.start()
    }
    #[inline]
    fn starts_early(&self) -> bool {
        self.0.starts_early()
    }
    fn system_calls(&self) -> u64 {
        self.0.stats().system_calls
    }
    fn ring_cpu(&self) -> RingCpu {
        self.0.cpu()
    }
}
