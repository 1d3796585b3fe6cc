//! The settings of a ring, chosen by the loop that owns it: a load's settings favour accurate measurements, and a
//! server connection's settings favour low memory use.

use brunt_core::IoEngine;

/// Configuration of a ring.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// The engine; `None` selects [`super::engine::usual_engine`].
    pub engine: Option<IoEngine>,
    /// Submission queue entries; a power of two. Submitting more at once costs an extra system call.
    pub entries: u32,
    /// Number of files and sockets that can be registered, which saves a lookup in the kernel per call; further ones
    /// work unregistered.
    pub file_slots: u32,
    /// Bytes of registered buffer memory. Keep it below the usual RLIMIT_MEMLOCK of 8 MiB.
    pub arena_bytes: usize,
    /// The arena is registered and takes memory piece by piece as it is used (Linux 5.19), and
    /// [`super::Ring::release`] returns that memory. Otherwise all of it is registered from the start, so that no
    /// request pays for it.
    pub arena_grows: bool,
    /// A kernel thread polls for submissions and sleeps after this many idle milliseconds. While it is awake,
    /// submitting needs no system call, but the thread occupies a core.
    pub sqpoll_idle_ms: Option<u32>,
    /// Completions are polled from the device (block devices and files with poll queues only;
    /// no sockets, no [`super::Waker`]).
    pub iopoll: bool,
    /// How long a ring with a socket polls for completions before it sleeps, in nanoseconds: waking a sleeping thread
    /// costs more than the wait if the peer answers at once. Adapts like halt polling in hypervisors: a long wait
    /// switches polling off until a wait is short again. Zero disables polling.
    pub busy_poll_nanos: u64,
    /// A ring with a socket polls instead of sleeping, for as long as it waits, and only yields its core to other
    /// threads. At most [`super::polling_threads_max`] rings of a process do so at a time; idle ones make way for
    /// others. Requires io_uring and a `busy_poll_nanos` above zero, without SQPOLL.
    pub never_sleeps: bool,
}

impl Default for RingConfig {
    fn default() -> RingConfig {
        RingConfig {
            engine: None,
            entries: 1024,
            file_slots: 64,
            arena_bytes: 4 << 20,
            arena_grows: false,
            sqpoll_idle_ms: None,
            iopoll: false,
            busy_poll_nanos: 50_000,
            never_sleeps: false,
        }
    }
}

impl RingConfig {
    /// The configuration for one of many connections of a server: an idle one takes little memory.
    pub fn of_connection() -> RingConfig {
        RingConfig {
            // 128 submissions of 64 bytes and 512 completions of 16: four pages of kernel memory.
            entries: 128,
            arena_grows: true,
            ..RingConfig::default()
        }
    }
    /// The configuration for a thread that drives many connections: each takes memory only when used.
    pub fn of_connections() -> RingConfig {
        RingConfig {
            entries: 512,
            // Below the usual soft limit on open files (1024), which also limits this.
            file_slots: 512,
            arena_grows: true,
            ..RingConfig::default()
        }
    }
}
