//! One thread's ring: files and sockets of that thread queue here, and one call submits and waits for all of them. What
//! carries the calls out is the ring's engine: [`uring`] (io_uring), or [`threads`] where there is none.
//!
//! Clients ([`crate::Device`]s, [`crate::Stream`]s) `attach` and get a [`Port`]; completions are
//! kept apart by port. Nobody but the thread's own loop calls [`Ring::enter`]:
//!
//! ```no_run
//! # use brunt_block::*; use brunt_core::Nanos;
//! # fn f(device: &mut dyn Device, batch: &mut std::collections::VecDeque<Request>) -> std::io::Result<()> {
//! let ring = Ring::new(RingConfig::default())?;
//! let mut done = Vec::new();
//! loop {
//!     device.submit(batch);
//!     ring.enter(device.deadline())?;
//!     device.poll(&mut done);
//!     // … look at `done`, refill `batch` …
//! }
//! # }
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, IoEngine, Nanos};

use crate::{Buf, BufPool};
use call::{Call, Manner, RingFile};
use poll_turn::PollTurn;
use threads::Threads;
use uring::Uring;
pub use waker::Waker;

pub(crate) mod call;
mod cpu;
pub mod engine;
mod helpers;
mod poll_turn;
mod threads;
mod uring;
mod waker;

/// How a ring is made.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// What does its requests; `None`: [`engine::usual_engine`].
    pub engine: Option<IoEngine>,
    /// Submission entries; a power of two. More than that at once costs a system call more.
    pub entries: u32,
    /// Bytes of registered buffer memory. Kept below the usual 8 MiB RLIMIT_MEMLOCK.
    pub arena_bytes: usize,
    /// A kernel thread takes submissions, for so many milliseconds of idleness: no system call while
    /// it is awake, and a core gone.
    pub sqpoll_idle_ms: Option<u32>,
    /// Completions are polled from the device (block devices and files with poll queues only; no
    /// sockets, no [`Waker`]).
    pub iopoll: bool,
    /// Before a ring with a socket on it sleeps, it looks for completions for so long, in
    /// nanoseconds: waking a sleeping thread costs more than the wait when the peer answers at once.
    /// Adapts as the hypervisors' halt polling does: a wait that turned out long switches it off
    /// until one is short again. Zero: never.
    pub busy_poll_nanos: u64,
}

impl Default for RingConfig {
    fn default() -> RingConfig {
        RingConfig {
            engine: None,
            entries: 1024,
            arena_bytes: 4 << 20,
            sqpoll_idle_ms: None,
            iopoll: false,
            busy_poll_nanos: 50_000,
        }
    }
}

/// What a ring did, for the self-cost beside results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// System calls: `io_uring_enter`, and `sched_yield` while it polls; of threads, every call.
    pub system_calls: u64,
    /// Requests handed to the kernel.
    pub submitted: u64,
    /// Completions seen.
    pub completed: u64,
}

/// How long a client that goes away waits for its requests. A disk that others keep busy takes seconds; one that is not
/// heard of for so long may never answer.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// A thread's ring. Clones are the same ring; it does not leave its thread.
#[derive(Clone)]
pub struct Ring {
    inner: Rc<RingInner>,
}

struct RingInner {
    // Before the pool, so that it goes first: the kernel has the pool's arena.
    engine: RefCell<EngineState>,
    ports: RefCell<Vec<PortState>>,
    pool: BufPool,
    arena_registered: bool,
    stats: Cell<RingStats>,
    config: RingConfig,
    wake: Option<Wake>,
    /// Completions that lie in ports and were not taken.
    ready: Cell<usize>,
    /// Requests that the kernel has, for all ports.
    in_flight: Cell<u32>,
    /// The kernel can be told to wait for many, but only so long (6.12).
    lingers: bool,
    /// Sockets on this ring: only with one of them does polling before sleeping pay.
    sockets: Cell<u32>,
    /// Whether the last wait was short enough to have been worth polling for.
    poll_pays: Cell<bool>,
    /// Waits not to poll in, because another thread wanted this core.
    poll_pause: Cell<u32>,
}

#[derive(Default)]
struct PortState {
    done: VecDeque<RingCompletion>,
    in_flight: u32,
    closed: bool,
}

/// What carries out the calls.
enum EngineState {
    // Boxed, being much the larger one.
    Uring(Box<Uring>),
    Threads(Threads),
}

/// One completion as the kernel told it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingCompletion {
    /// What the client gave at submission (48 bits).
    pub user: u64,
    /// Bytes, or a negative errno.
    pub result: i32,
}

/// What [`Ring::submit`] waits for.
#[derive(Clone, Copy)]
enum Wait {
    No,
    One,
    /// At most `nanos`; for `count` completions, or after [`LINGER`] for one.
    Until {
        count: u32,
        nanos: u64,
    },
}

struct Wake {
    fd: Arc<OwnedFd>,
    /// Where the kernel puts the eventfd's count; boxed so that it stays put.
    count: Box<Cell<u64>>,
    armed: Cell<bool>,
    woken: Cell<bool>,
}

const WAKE_PORT: u64 = 0xffff;
/// A polling thread asks so often whether another wants its core.
const YIELD_EVERY: Duration = Duration::from_micros(4);
/// Nobody did when asking took no longer than this.
const YIELD_ALONE_MAX: Duration = Duration::from_micros(3);
/// When somebody did, so many waits go by without polling.
const POLL_PAUSE_WAITS: u32 = 100;
const USER_BITS: u32 = 48;
/// How long [`Ring::enter_for`] waits for more than one completion before one is enough.
const LINGER: Duration = Duration::from_micros(50);
/// A wait without an end ends after this and begins again.
const WAIT_NANOS_MAX: u64 = 3600 * 1_000_000_000;
/// Timers of the kernel come this late at most on an idle machine; closer deadlines are spun for.
const SPIN_NANOS: u64 = 60_000;

impl Ring {
    /// A ring for the calling thread.
    ///
    /// # Errors
    /// The engine doesn't work here ([`engine::check`]), or has no such mode.
    pub fn new(config: RingConfig) -> io::Result<Ring> {
        let pool = BufPool::new(config.arena_bytes);
        let engine = match config.engine {
            Some(engine) => engine,
            None => engine::usual_engine()?,
        };
        let state = match engine {
            IoEngine::IoUring => {
                engine::check(engine)?;
                EngineState::Uring(Box::new(Uring::new(&config, pool.arena())?))
            }
            IoEngine::Threads if config.iopoll || config.sqpoll_idle_ms.is_some() => {
                let what = "engine threads neither polls devices nor has a thread of the kernel: these are modes of io_uring";
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            IoEngine::Threads => EngineState::Threads(Threads::new()),
        };
        let (arena_registered, lingers) = match &state {
            EngineState::Uring(uring) => (uring.arena_registered(), uring.lingers()),
            EngineState::Threads(_) => (false, false),
        };
        // Timers to the nanosecond for this thread, not the default 50 µs of slack.
        // SAFETY: prctl with two integers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let wake = if config.iopoll {
            None
        } else {
            Some(Wake::new()?)
        };
        Ok(Ring {
            inner: Rc::new(RingInner {
                engine: RefCell::new(state),
                ports: RefCell::default(),
                pool,
                arena_registered,
                stats: Cell::default(),
                config: RingConfig {
                    engine: Some(engine),
                    ..config
                },
                wake,
                ready: Cell::new(0),
                in_flight: Cell::new(0),
                lingers,
                sockets: Cell::new(0),
                poll_pays: Cell::new(true),
                poll_pause: Cell::new(0),
            }),
        })
    }

    /// Where this thread's buffers come from.
    pub fn pool(&self) -> &BufPool {
        &self.inner.pool
    }

    /// Whether buffers of the pool's arena are registered with the kernel.
    pub fn buffers_registered(&self) -> bool {
        self.inner.arena_registered
    }

    /// Whether the kernel knows this buffer as part of its registered buffer 0: it comes from this
    /// ring's own arena.
    #[inline]
    pub(crate) fn is_registered(&self, buf: &Buf) -> bool {
        self.inner.arena_registered && self.inner.pool.is_in_arena(buf)
    }

    /// What the ring did so far.
    pub fn stats(&self) -> RingStats {
        let mut stats = self.inner.stats.get();
        stats.system_calls += match &*self.inner.engine.borrow() {
            EngineState::Uring(uring) => uring.system_calls,
            EngineState::Threads(threads) => threads.system_calls(),
        };
        stats
    }

    /// Processor time, in nanoseconds, of threads that work for this ring, the calling one apart: the kernel's (io-wq,
    /// SQPOLL; an io-wq thread that ended between two calls is missing what it did since the first) or helpers.
    pub fn workers_cpu_nanos(&self) -> u64 {
        match &mut *self.inner.engine.borrow_mut() {
            EngineState::Uring(uring) => uring.workers_cpu_nanos(),
            EngineState::Threads(threads) => threads.helpers_cpu_nanos(),
        }
    }

    /// What does its requests.
    pub fn engine(&self) -> IoEngine {
        match &*self.inner.engine.borrow() {
            EngineState::Uring(_) => IoEngine::IoUring,
            EngineState::Threads(_) => IoEngine::Threads,
        }
    }

    /// How it was made.
    pub fn config(&self) -> &RingConfig {
        &self.inner.config
    }

    /// A door of one's own.
    pub(crate) fn attach(&self) -> Port {
        let mut ports = self.inner.ports.borrow_mut();
        let free = ports
            .iter()
            .position(|port| port.closed && port.in_flight == 0);
        let index = free.unwrap_or(ports.len());
        if index == ports.len() {
            ports.push(PortState::default());
        }
        assert!(
            (index as u64) < WAKE_PORT,
            "a thread has fewer than 65,535 devices and connections"
        );
        ports[index] = PortState::default();
        Port {
            ring: self.clone(),
            index,
        }
    }

    /// A file or socket for calls on this ring, registered so that the kernel need not look it up for each, if there is
    /// room. Goes back with [`Ring::remove_file`].
    pub(crate) fn add_file(&self, fd: RawFd, manner: Manner) -> RingFile {
        let slot = match &mut *self.inner.engine.borrow_mut() {
            EngineState::Uring(uring) => uring.register_file(fd),
            EngineState::Threads(_) => None,
        };
        RingFile { fd, slot, manner }
    }

    /// Gives its place back. Calls under way hold the file themselves.
    pub(crate) fn remove_file(&self, file: RingFile) {
        if let (Some(slot), EngineState::Uring(uring)) =
            (file.slot, &mut *self.inner.engine.borrow_mut())
        {
            uring.unregister_file(slot);
        }
    }

    /// Hands everything queued to the kernel and waits until a completion is there, the
    /// ring was woken, or the monotonic clock reaches `until`. Does not wait when completions are
    /// there already, the ring was woken and nobody took it ([`Ring::take_woken`]), or `until` has
    /// passed.
    ///
    /// # Errors
    /// The system call's, interruptions by signals apart (they end the wait).
    pub fn enter(&self, until: Nanos) -> io::Result<()> {
        self.enter_for(1, until)
    }

    /// As [`Ring::enter`], but one completion is enough only after 50 µs: before, the wait is for
    /// `count` of them (at most all that are in flight), so that a busy thread makes one system call
    /// for many requests. A completion may lie there for that long; for a queue that is kept full
    /// this costs no rate, for a single request `count` is 1 and nothing is waited for. Kernels
    /// before 6.12 cannot do it and wait for one.
    ///
    /// # Errors
    /// As for [`Ring::enter`].
    pub fn enter_for(&self, count: u32, until: Nanos) -> io::Result<()> {
        self.arm_wake();
        self.collect();
        if self.is_done() || until == Nanos(0) {
            return self.submit(Wait::No);
        }
        if let Some(idle) = self.inner.config.sqpoll_idle_ms {
            // With a kernel thread at work, completions show without a call for as long as it is awake.
            if self.look(Duration::from_millis(u64::from(idle)), until, false)? {
                return Ok(());
            }
        } else if self.busy_poll(until)? {
            return Ok(());
        }
        if self.inner.sockets.get() == 0 {
            return self.wait(count, until);
        }
        let begin = Clock::Monotonic.now();
        self.wait(count, until)?;
        // Counted from the end of the polling: what that would have had to add to catch this one.
        let limit = u128::from(self.inner.config.busy_poll_nanos);
        self.inner
            .poll_pays
            .set(Clock::Monotonic.now().since(begin).as_nanos() <= limit);
        Ok(())
    }

    /// Sleeps until there are `count` completions, a wake, or `until`.
    fn wait(&self, count: u32, until: Nanos) -> io::Result<()> {
        let count = if self.inner.lingers {
            count.min(self.inner.in_flight.get()).max(1)
        } else {
            1
        };
        loop {
            let left = match until {
                Nanos::MAX if count == 1 => {
                    self.submit(Wait::One)?;
                    return Ok(());
                }
                until => until.0.saturating_sub(Clock::Monotonic.now().0),
            };
            match left {
                0..=SPIN_NANOS => self.submit(Wait::No)?,
                _ => self.submit(Wait::Until {
                    count,
                    nanos: (left - SPIN_NANOS).min(WAIT_NANOS_MAX),
                })?,
            }
            if self.is_done() || left == 0 {
                return Ok(());
            }
        }
    }

    /// Submits, then looks for completions without sleeping, where that pays. Whether the wait is over.
    fn busy_poll(&self, until: Nanos) -> io::Result<bool> {
        let nanos = self.inner.config.busy_poll_nanos;
        // Looking is free with io_uring only.
        if self.engine() == IoEngine::Threads
            || nanos == 0
            || self.inner.sockets.get() == 0
            || !self.inner.poll_pays.get()
        {
            return Ok(false);
        }
        if let Some(left) = self.inner.poll_pause.get().checked_sub(1) {
            self.inner.poll_pause.set(left);
            return Ok(false);
        }
        let Some(_turn) = PollTurn::take() else {
            return Ok(false);
        };
        self.look(Duration::from_nanos(nanos), until, true)
    }

    /// Submits, then looks for completions for `time`, with a system call only when the kernel says that it has
    /// work to run in one. Whether the wait is over. With `polite`, other threads that wait for this core get it,
    /// the peer that is to answer perhaps among them, and looking pauses for some waits.
    fn look(&self, time: Duration, until: Nanos, polite: bool) -> io::Result<bool> {
        let mut now = Clock::Monotonic.now();
        let end = now.after(time);
        let mut yield_at = now.after(YIELD_EVERY);
        loop {
            // Looking at the clock costs as much as some dozen looks at the queue.
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
                if back.since(now) > YIELD_ALONE_MAX {
                    self.inner.poll_pause.set(POLL_PAUSE_WAITS);
                    self.submit(Wait::No)?;
                    return Ok(self.is_done());
                }
                yield_at = back.after(YIELD_EVERY);
            }
        }
    }

    /// A socket comes to this ring.
    pub(crate) fn add_socket(&self) {
        self.inner.sockets.set(self.inner.sockets.get() + 1);
    }

    /// And goes.
    pub(crate) fn remove_socket(&self) {
        self.inner.sockets.set(self.inner.sockets.get() - 1);
    }

    /// Whether there is something for the loop to do.
    fn is_done(&self) -> bool {
        self.inner.ready.get() > 0
            || self
                .inner
                .wake
                .as_ref()
                .is_some_and(|wake| wake.woken.get())
    }

    /// Whether a [`Waker`] called since the last time this was asked.
    pub fn take_woken(&self) -> bool {
        self.inner
            .wake
            .as_ref()
            .is_some_and(|wake| wake.woken.replace(false))
    }

    /// How other threads end this ring's wait.
    ///
    /// # Panics
    /// On a ring made with `iopoll`, which cannot be woken.
    pub fn waker(&self) -> Waker {
        let wake = self
            .inner
            .wake
            .as_ref()
            .expect("a ring with iopoll has no waker");
        Waker {
            fd: Arc::clone(&wake.fd),
        }
    }

    /// Lets the engine start what is queued and wait, and takes what it finished.
    fn submit(&self, wait: Wait) -> io::Result<()> {
        let mut engine = self.inner.engine.borrow_mut();
        match &mut *engine {
            EngineState::Uring(uring) => uring.enter(wait)?,
            EngineState::Threads(threads) => threads.enter(wait)?,
        }
        self.sort(&mut engine);
        Ok(())
    }

    /// Takes what is in the completion queue already.
    fn collect(&self) {
        self.sort(&mut self.inner.engine.borrow_mut());
    }

    /// Sorts completions by port.
    fn sort(&self, engine: &mut EngineState) {
        let mut ports = self.inner.ports.borrow_mut();
        let (mut count, mut ended, mut ready) = (0, 0, 0);
        let sink = |user_data: u64, result: i32| {
            count += 1;
            let port = user_data >> USER_BITS;
            if port == WAKE_PORT {
                if let Some(wake) = &self.inner.wake {
                    wake.armed.set(false);
                    wake.woken.set(true);
                }
                return;
            }
            let port = &mut ports[port as usize];
            port.in_flight -= 1;
            ended += 1;
            if !port.closed {
                let user = user_data & ((1 << USER_BITS) - 1);
                port.done.push_back(RingCompletion { user, result });
                ready += 1;
            }
        };
        match engine {
            EngineState::Uring(uring) => uring.drain(sink),
            EngineState::Threads(threads) => threads.drain(sink),
        }
        if count == 0 {
            return;
        }
        self.inner.in_flight.set(self.inner.in_flight.get() - ended);
        self.inner.ready.set(self.inner.ready.get() + ready);
        let mut stats = self.inner.stats.get();
        stats.completed += count;
        self.inner.stats.set(stats);
    }

    fn arm_wake(&self) {
        let Some(wake) = &self.inner.wake else { return };
        if wake.armed.replace(true) {
            return;
        }
        let call = Call::Count {
            fd: wake.fd.as_raw_fd(),
            into: wake.count.as_ptr(),
        };
        // SAFETY: the count is boxed and owned by the ring, which closes before it is freed.
        unsafe { self.push_raw(call, WAKE_PORT << USER_BITS) };
    }

    /// # Safety
    /// What the call points to stays valid until its completion.
    unsafe fn push_raw(&self, call: Call, user_data: u64) {
        let mut stats = self.inner.stats.get();
        stats.submitted += 1;
        self.inner.stats.set(stats);
        loop {
            // SAFETY: passed on to the caller.
            let is_pushed = unsafe {
                match &mut *self.inner.engine.borrow_mut() {
                    EngineState::Uring(uring) => uring.push(call, user_data),
                    EngineState::Threads(threads) => {
                        threads.push(call, user_data);
                        true
                    }
                }
            };
            if is_pushed {
                return;
            }
            // The queue is full: hand over what is there. An error shows again at `enter`.
            let _ = self.submit(Wait::No);
        }
    }
}

impl Drop for RingInner {
    fn drop(&mut self) {
        // The wake read is the one request that no client waits for: end it, so that its memory
        // outlives it. Threads read only once there is something to read, and never when they are gone.
        if let Some(wake) = &self.wake
            && wake.armed.get()
        {
            let _ = Waker {
                fd: Arc::clone(&wake.fd),
            }
            .try_wake();
            let EngineState::Uring(uring) = self.engine.get_mut() else {
                return;
            };
            // Others' completions may come first.
            for _ in 0..100 {
                let _ = uring.enter(Wait::One);
                let mut is_over = false;
                uring.drain(|user_data, _| is_over |= user_data >> USER_BITS == WAKE_PORT);
                if is_over {
                    return;
                }
            }
            // Never seen; still, memory that the kernel may write to is not freed.
            std::mem::forget(self.wake.take());
        }
    }
}

/// A client's door to the ring: its completions come out here and nowhere else.
pub struct Port {
    ring: Ring,
    index: usize,
}

impl Port {
    /// The ring behind it.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Queues a request; its completion carries `user` (48 bits).
    ///
    /// # Safety
    /// Memory and files that the call points to stay valid until its completion was drained, or
    /// [`Port::in_flight`] is zero again.
    pub(crate) unsafe fn push(&self, call: Call, user: u64) {
        assert!(user >> USER_BITS == 0, "user data has 48 bits");
        self.ring.inner.ports.borrow_mut()[self.index].in_flight += 1;
        self.ring
            .inner
            .in_flight
            .set(self.ring.inner.in_flight.get() + 1);
        // SAFETY: passed on to the caller.
        unsafe {
            self.ring
                .push_raw(call, (self.index as u64) << USER_BITS | user)
        }
    }

    /// The next completion.
    #[inline]
    pub(crate) fn pop(&self) -> Option<RingCompletion> {
        let done = self.ring.inner.ports.borrow_mut()[self.index]
            .done
            .pop_front();
        if done.is_some() {
            self.ring.inner.ready.set(self.ring.inner.ready.get() - 1);
        }
        done
    }

    /// All completions at once, in exchange for an empty queue.
    #[inline]
    pub(crate) fn take_all(&self, into: &mut VecDeque<RingCompletion>) {
        debug_assert!(into.is_empty());
        std::mem::swap(
            &mut self.ring.inner.ports.borrow_mut()[self.index].done,
            into,
        );
        self.ring
            .inner
            .ready
            .set(self.ring.inner.ready.get() - into.len());
    }

    /// Requests that the kernel still has.
    pub(crate) fn in_flight(&self) -> u32 {
        self.ring.inner.ports.borrow()[self.index].in_flight
    }

    /// Waits until the kernel has let go of everything of this port, for [`IDLE_WAIT`] at most. Whether it
    /// has: if not, the caller has to leak what the requests point to. For clients that go away; a
    /// socket is shut down first, so that its requests end.
    pub(crate) fn wait_idle(&self) -> bool {
        let deadline = Clock::Monotonic.now().after(IDLE_WAIT);
        while self.in_flight() > 0 {
            if Clock::Monotonic.now() >= deadline {
                return false;
            }
            if self
                .ring
                .submit(Wait::Until {
                    count: 1,
                    nanos: 10_000_000,
                })
                .is_err()
            {
                return false;
            }
        }
        true
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut ports = self.ring.inner.ports.borrow_mut();
        ports[self.index].closed = true;
        let left = ports[self.index].done.len();
        self.ring
            .inner
            .ready
            .set(self.ring.inner.ready.get() - left);
        ports[self.index].done.clear();
    }
}

impl Wake {
    fn new() -> io::Result<Wake> {
        let Waker { fd } = Waker::new()?;
        Ok(Wake {
            fd,
            count: Box::default(),
            armed: Cell::new(false),
            woken: Cell::new(false),
        })
    }
}

#[cfg(test)]
mod tests;
