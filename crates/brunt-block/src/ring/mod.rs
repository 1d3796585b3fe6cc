//! One thread's ring: the thread's files and sockets queue their calls here, and one system call submits and waits for
//! all of them. The ring's engine executes the calls: `uring` (io_uring), or `threads` where io_uring is unavailable.
//!
//! Clients ([`crate::Device`]s, [`crate::Stream`]s) `attach` and get a [`Port`]; completions are separated by port.
//! Only the thread's own loop calls [`Ring::enter`]:
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
//!     // … process `done`, refill `batch` …
//! }
//! # }
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use brunt_core::{Clock, IoEngine, Nanos};

use crate::{Buf, BufPool};
use call::{Call, Manner, RingFile};
pub use config::RingConfig;
pub use cpu::RingCpu;
pub use poll_turn::polling_threads_max;
use polling::EARLY_PAUSE_WAITS;
use threads::Threads;
use uring::Uring;
pub use waker::{RingOwner, Waker};

pub(crate) mod call;
mod config;
mod cpu;
pub mod engine;
mod helpers;
mod owner;
mod poll_turn;
mod polling;
mod threads;
mod uring;
mod waker;

/// A ring's activity counters, for the measurement overhead shown next to results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// System calls: `io_uring_enter`, and `sched_yield` while polling; with the threads engine, every call.
    pub system_calls: u64,
    /// Requests submitted.
    pub submitted: u64,
    /// Completions seen.
    pub completed: u64,
}

/// How long a dropped client waits for its requests. A disk kept busy by others may take seconds; one that has not
/// responded for this long may never respond.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// A thread's ring. Clones refer to the same ring; it stays on its thread.
#[derive(Clone)]
pub struct Ring {
    inner: Rc<RingInner>,
}

struct RingInner {
    // Declared before the pool so that it is dropped first: the kernel uses the pool's arena.
    engine: RefCell<EngineState>,
    ports: RefCell<Vec<PortState>>,
    pool: BufPool,
    stats: Cell<RingStats>,
    config: RingConfig,
    wake: Option<Wake>,
    /// Number of completions in ports that clients have not taken.
    ready: Cell<usize>,
    /// The owner that the thread currently works for.
    owner: Cell<Option<RingOwner>>,
    /// The owners of ports that got completions since [`Ring::take_ready`].
    ready_owners: RefCell<Vec<RingOwner>>,
    /// How long a dropped client waits for its requests.
    idle_wait: Cell<Duration>,
    /// Whether the next [`Ring::release`] trims the allocator's memory.
    trims: Cell<bool>,
    /// Number of requests in the kernel, over all ports.
    in_flight: Cell<u32>,
    /// Whether the kernel supports waiting for several completions with a timeout after which a single one suffices
    /// (6.12).
    lingers: bool,
    /// Number of sockets on this ring: polling before sleeping pays off only with sockets.
    sockets: Cell<u32>,
    /// Time that this thread spent polling, in nanoseconds.
    polled_nanos: Cell<u64>,
    /// Whether the last wait was short enough for polling to pay off.
    poll_pays: Cell<bool>,
    /// Number of waits that skip polling because another thread wanted this core.
    poll_pause: Cell<u32>,
    /// Number of waits until [`Ring::starts_early`] is tried again.
    early_pause: Cell<u32>,
}

#[derive(Default)]
struct PortState {
    done: VecDeque<RingCompletion>,
    in_flight: u32,
    closed: bool,
    owner: Option<RingOwner>,
}

/// The engine that executes the calls.
enum EngineState {
    // Boxed because it is much larger than the other variant.
    Uring(Box<Uring>),
    Threads(Threads),
}

/// One completion as the kernel reported it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingCompletion {
    /// The client's value from submission (48 bits).
    pub user: u64,
    /// Number of bytes, or a negative errno.
    pub result: i32,
}

/// What [`Ring::submit`] waits for.
#[derive(Clone, Copy)]
enum Wait {
    No,
    One,
    /// Waits for at most `nanos`, for `count` completions, or after [`LINGER`] for a single one.
    Until {
        count: u32,
        nanos: u64,
    },
}

struct Wake {
    waker: Waker,
    /// The kernel writes the eventfd's count here; boxed so that its address is stable.
    count: Box<Cell<u64>>,
    armed: Cell<bool>,
    woken: Cell<bool>,
}

const WAKE_PORT: u64 = 0xffff;
const USER_BITS: u32 = 48;
/// How long [`Ring::enter_for`] waits for several completions before a single one suffices.
const LINGER: Duration = Duration::from_micros(50);
/// An unlimited wait is split into waits of this length.
const WAIT_NANOS_MAX: u64 = 3600 * 1_000_000_000;
/// Maximum lateness of kernel timers on an idle machine; the thread spins for closer deadlines.
const SPIN_NANOS: u64 = 60_000;

impl Ring {
    /// Creates a ring for the calling thread.
    ///
    /// # Errors
    /// The engine doesn't work here ([`engine::check`]), or doesn't support the configuration.
    pub fn new(config: RingConfig) -> io::Result<Ring> {
        let pool = match config.arena_grows {
            true => BufPool::growing(config.arena_bytes),
            false => BufPool::new(config.arena_bytes),
        };
        let engine = match config.engine {
            Some(engine) => engine,
            None => engine::usual_engine()?,
        };
        let state = match engine {
            IoEngine::IoUring => {
                engine::check(engine)?;
                EngineState::Uring(Box::new(Uring::new(&config, &pool)?))
            }
            IoEngine::Threads if config.iopoll || config.sqpoll_idle_ms.is_some() => {
                let what = "engine threads supports neither iopoll nor sqpoll, which are modes of \
                    io_uring";
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            IoEngine::Threads => EngineState::Threads(Threads::new()),
        };
        let lingers = match &state {
            EngineState::Uring(uring) => uring.lingers(),
            EngineState::Threads(_) => false,
        };
        // Nanosecond timers for this thread, instead of the default 50 µs of slack.
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
                stats: Cell::default(),
                config: RingConfig {
                    engine: Some(engine),
                    ..config
                },
                wake,
                ready: Cell::new(0),
                owner: Cell::new(None),
                ready_owners: RefCell::default(),
                idle_wait: Cell::new(IDLE_WAIT),
                trims: Cell::new(false),
                in_flight: Cell::new(0),
                lingers,
                sockets: Cell::new(0),
                polled_nanos: Cell::new(0),
                poll_pays: Cell::new(true),
                poll_pause: Cell::new(0),
                early_pause: Cell::new(EARLY_PAUSE_WAITS),
            }),
        })
    }

    /// The buffer pool of this thread.
    pub fn pool(&self) -> &BufPool {
        &self.inner.pool
    }

    /// The index of the kernel's registered buffer that contains this buffer: a region of this ring's own arena, which
    /// is registered on first use.
    #[inline]
    pub(crate) fn registered_index(&self, buf: &Buf) -> Option<u16> {
        let pool = &self.inner.pool;
        let region = pool.region_of(buf)?;
        match &mut *self.inner.engine.borrow_mut() {
            EngineState::Uring(uring) => uring.register_region(region, pool).then_some(region),
            EngineState::Threads(_) => None,
        }
    }

    /// Returns the memory of buffers that are not in use to the kernel. For connections that have become idle: the next
    /// requests pay for reallocating it. Does nothing unless the ring's arena grows with use.
    pub fn release(&self) {
        if !self.inner.config.arena_grows {
            return;
        }
        let engine = &mut *self.inner.engine.borrow_mut();
        let kept = self.inner.pool.release(|region| match engine {
            EngineState::Uring(uring) => uring.unregister_region(region),
            EngineState::Threads(_) => true,
        });
        if self.inner.trims.take() || kept {
            crate::buffer::give_back();
        }
    }

    /// Makes the next [`Ring::release`] return freed memory of the C library's allocator to the kernel as well.
    pub(crate) fn trim_on_release(&self) {
        self.inner.trims.set(true);
    }

    /// Whether received data reaches its buffer only during [`Ring::enter`], so that an idle buffer stays empty in the
    /// meantime.
    pub(crate) fn receives_only_on_enter(&self) -> bool {
        match &*self.inner.engine.borrow() {
            EngineState::Uring(uring) => uring.is_deferred(),
            // The ring's own thread performs all calls on sockets.
            EngineState::Threads(_) => true,
        }
    }

    /// The ring's counters so far.
    pub fn stats(&self) -> RingStats {
        let mut stats = self.inner.stats.get();
        stats.system_calls += match &*self.inner.engine.borrow() {
            EngineState::Uring(uring) => uring.system_calls,
            EngineState::Threads(threads) => threads.system_calls(),
        };
        stats
    }

    /// CPU time spent for this ring so far by other threads, and by polling.
    pub fn cpu(&self) -> RingCpu {
        let mut cpu = match &mut *self.inner.engine.borrow_mut() {
            EngineState::Uring(uring) => uring.cpu(),
            EngineState::Threads(threads) => RingCpu {
                workers_nanos: Some(threads.helpers_cpu_nanos()),
                polling_nanos: 0,
            },
        };
        cpu.polling_nanos += self.inner.polled_nanos.get();
        cpu
    }

    /// Time that the ring's thread has spent polling so far, in nanoseconds.
    pub fn polled_nanos(&self) -> u64 {
        self.inner.polled_nanos.get()
    }

    /// The engine in use.
    pub fn engine(&self) -> IoEngine {
        match &*self.inner.engine.borrow() {
            EngineState::Uring(_) => IoEngine::IoUring,
            EngineState::Threads(_) => IoEngine::Threads,
        }
    }

    /// The ring's configuration.
    pub fn config(&self) -> &RingConfig {
        &self.inner.config
    }

    /// Creates a port for a client.
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
        ports[index] = PortState {
            owner: self.inner.owner.get(),
            ..PortState::default()
        };
        Port {
            ring: self.clone(),
            index,
        }
    }

    /// Prepares a file or socket for calls on this ring, and registers it if there is room, which saves a lookup in the
    /// kernel per call. Release it with [`Ring::remove_file`].
    pub(crate) fn add_file(&self, fd: RawFd, manner: Manner) -> RingFile {
        let slot = match &mut *self.inner.engine.borrow_mut() {
            EngineState::Uring(uring) => uring.register_file(fd),
            EngineState::Threads(_) => None,
        };
        RingFile { fd, slot, manner }
    }

    /// Releases the file's slot. Outstanding calls keep the file open themselves.
    pub(crate) fn remove_file(&self, file: RingFile) {
        if let (Some(slot), EngineState::Uring(uring)) =
            (file.slot, &mut *self.inner.engine.borrow_mut())
        {
            uring.unregister_file(slot);
        }
    }

    /// Submits everything queued and waits until a completion arrives, the ring is woken, or the monotonic clock
    /// reaches `until`. Doesn't wait if completions are already available, if a wake-up has not been taken yet
    /// ([`Ring::take_woken`]), or if `until` has passed.
    ///
    /// # Errors
    /// The system call fails, except when a signal interrupts it, which only ends the wait.
    pub fn enter(&self, until: Nanos) -> io::Result<()> {
        self.enter_for(1, until)
    }

    /// Like [`Ring::enter`], but waits up to 50 µs for `count` completions (limited to the number in flight), and
    /// after that for a single one: a busy thread then makes one system call for many requests. A completion may be
    /// delayed by that time. This costs no throughput if the queue is kept full; with a single request `count` is 1
    /// and nothing is delayed. Kernels before 6.12 don't support this and wait for a single completion.
    ///
    /// # Errors
    /// See [`Ring::enter`].
    pub fn enter_for(&self, count: u32, until: Nanos) -> io::Result<()> {
        self.arm_wake();
        self.collect();
        if self.is_done() || until == Nanos(0) {
            return self.submit(Wait::No);
        }
        if let Some(idle) = self.inner.config.sqpoll_idle_ms {
            // While the kernel's polling thread is awake, completions appear without a system call.
            if self.poll_for(Duration::from_millis(u64::from(idle)), until, false)? {
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
        // Measured from the end of polling: how much longer polling would have been needed to catch this completion.
        let limit = u128::from(self.inner.config.busy_poll_nanos);
        self.inner
            .poll_pays
            .set(Clock::Monotonic.now().since(begin).as_nanos() <= limit);
        Ok(())
    }

    /// Sleeps until `count` completions or a wake-up have arrived, or until `until`.
    fn wait(&self, count: u32, until: Nanos) -> io::Result<()> {
        let pause = &self.inner.early_pause;
        pause.set(pause.get().saturating_sub(1));
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

    /// Shortens the time that a dropped client waits for requests in the kernel, after which it leaks their memory. For
    /// threads with many connections: one connection's disk must not hold up the others.
    pub fn limit_idle_wait(&self, wait: Duration) {
        self.inner.idle_wait.set(wait);
    }

    /// Counts a new socket on this ring.
    pub(crate) fn add_socket(&self) {
        self.inner.sockets.set(self.inner.sockets.get() + 1);
    }

    /// No longer counts a socket that was on this ring.
    pub(crate) fn remove_socket(&self) {
        self.inner.sockets.set(self.inner.sockets.get() - 1);
    }

    /// Whether the thread's loop has something to process.
    fn is_done(&self) -> bool {
        self.inner.ready.get() > 0
            || self
                .inner
                .wake
                .as_ref()
                .is_some_and(|wake| wake.woken.get())
    }

    /// Whether a [`Waker`] was used since the last call.
    pub fn take_woken(&self) -> bool {
        self.inner
            .wake
            .as_ref()
            .is_some_and(|wake| wake.woken.replace(false))
    }

    /// A handle for other threads to end this ring's wait.
    ///
    /// # Panics
    /// Panics if the ring was created with `iopoll`: such a ring cannot be woken.
    pub fn waker(&self) -> Waker {
        let wake = self
            .inner
            .wake
            .as_ref()
            .expect("a ring with iopoll has no waker");
        wake.waker.of(self.inner.owner.get())
    }

    /// Submits queued calls to the engine and waits, then collects completions.
    fn submit(&self, wait: Wait) -> io::Result<()> {
        let mut engine = self.inner.engine.borrow_mut();
        match &mut *engine {
            EngineState::Uring(uring) => uring.enter(wait)?,
            EngineState::Threads(threads) => threads.enter(wait)?,
        }
        self.sort(&mut engine);
        Ok(())
    }

    /// Collects completions that are already in the queue.
    fn collect(&self) {
        self.sort(&mut self.inner.engine.borrow_mut());
    }

    /// Sorts completions by port.
    fn sort(&self, engine: &mut EngineState) {
        let mut ports = self.inner.ports.borrow_mut();
        let mut owners = self.inner.ready_owners.borrow_mut();
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
                if port.done.is_empty() {
                    owners.extend(port.owner);
                }
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
            fd: wake.waker.raw_fd(),
            into: wake.count.as_ptr(),
        };
        // SAFETY: the count is boxed and owned by the ring, which closes before it is freed.
        unsafe { self.push_raw(call, WAKE_PORT << USER_BITS) };
    }

    /// # Safety
    /// The memory that the call points to must stay valid until its completion.
    unsafe fn push_raw(&self, call: Call, user_data: u64) {
        let mut stats = self.inner.stats.get();
        stats.submitted += 1;
        self.inner.stats.set(stats);
        loop {
            // SAFETY: guaranteed by the caller.
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
            // The queue is full: submits its calls to make room. An error will recur in `enter`.
            let _ = self.submit(Wait::No);
        }
    }
}

impl Drop for RingInner {
    fn drop(&mut self) {
        // The wake read is the only request that no client waits for: end it while its memory is still allocated. The
        // threads engine reads only when data is available, and never after it is dropped.
        if let Some(wake) = &self.wake
            && wake.armed.get()
        {
            let _ = wake.waker.try_wake();
            let EngineState::Uring(uring) = self.engine.get_mut() else {
                return;
            };
            // Other completions may arrive first.
            for _ in 0..100 {
                let _ = uring.enter(Wait::One);
                let mut is_over = false;
                uring.drain(|user_data, _| is_over |= user_data >> USER_BITS == WAKE_PORT);
                if is_over {
                    return;
                }
            }
            // Never observed, but memory that the kernel may still write to must not be freed.
            std::mem::forget(self.wake.take());
        }
    }
}

/// A client's port to the ring, which delivers the client's completions.
pub struct Port {
    ring: Ring,
    index: usize,
}

impl Port {
    /// The port's ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Queues a request; its completion carries `user` (48 bits).
    ///
    /// # Safety
    /// Memory and files that the call refers to must stay valid until its completion has been drained, or until
    /// [`Port::in_flight`] is zero again.
    pub(crate) unsafe fn push(&self, call: Call, user: u64) {
        assert!(user >> USER_BITS == 0, "user data has 48 bits");
        self.ring.inner.ports.borrow_mut()[self.index].in_flight += 1;
        self.ring
            .inner
            .in_flight
            .set(self.ring.inner.in_flight.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.ring
                .push_raw(call, (self.index as u64) << USER_BITS | user)
        }
    }

    /// Takes the next completion.
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

    /// Takes all completions at once, in exchange for an empty queue.
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

    /// Whether there are completions to take.
    pub(crate) fn has_completions(&self) -> bool {
        !self.ring.inner.ports.borrow()[self.index].done.is_empty()
    }

    /// Number of requests in the kernel.
    pub(crate) fn in_flight(&self) -> u32 {
        self.ring.inner.ports.borrow()[self.index].in_flight
    }

    /// Waits until the kernel has released everything that this port submitted, for at most 5 s
    /// ([`Ring::limit_idle_wait`]). Returns whether it has; if not, the caller must leak the memory that the requests
    /// point to. For clients being dropped; shut down a socket first so that its requests end.
    pub(crate) fn wait_idle(&self) -> bool {
        let deadline = Clock::Monotonic
            .now()
            .after(self.ring.inner.idle_wait.get());
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
        Ok(Wake {
            waker: Waker::new()?,
            count: Box::default(),
            armed: Cell::new(false),
            woken: Cell::new(false),
        })
    }
}

#[cfg(test)]
mod tests;
