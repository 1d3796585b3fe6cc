//! Where a worker's time comes from and how it waits: the monotonic clock and a ring, or a test's simulation, which
//! runs an hour in a millisecond.

use std::io;

use brunt_block::Ring;
use brunt_core::{Clock, Nanos};

/// Where a worker's time comes from and how it waits.
pub trait Timeline {
    /// The time now.
    fn now(&self) -> Nanos;
    /// Hands queued requests on and waits until something may have completed, or `until`. For up to
    /// 50 µs one completion is not enough but `count` are.
    ///
    /// # Errors
    /// The ring's.
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()>;
    /// Hands queued requests on, and waits for nothing.
    ///
    /// # Errors
    /// The ring's.
    fn push(&mut self) -> io::Result<()>;
    /// System calls made for requests so far.
    fn system_calls(&self) -> u64;
    /// Processor time of other threads that worked for its requests so far, in nanoseconds.
    fn workers_cpu_nanos(&self) -> u64 {
        0
    }
    /// Both.
    fn used(&self) -> RingUse {
        RingUse {
            system_calls: self.system_calls(),
            workers_cpu_nanos: self.workers_cpu_nanos(),
        }
    }
}

/// What requests cost beside the time of the worker's own thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingUse {
    /// System calls.
    pub system_calls: u64,
    /// Processor time of other threads: the kernel's, or helpers.
    pub workers_cpu_nanos: u64,
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
        self.0.enter_for(0, Nanos(0))
    }
    fn system_calls(&self) -> u64 {
        self.0.stats().system_calls
    }
    fn workers_cpu_nanos(&self) -> u64 {
        self.0.workers_cpu_nanos()
    }
}
