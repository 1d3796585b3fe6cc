//! Threads that make a ring's blocking calls. They start on demand and end with the ring.
//!
//! The rule: the first helper to finish a call while the ring's thread sleeps rings that thread's bell, and only that
//! helper does.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::call::Call;
use super::waker::Waker;

/// Maximum number of helpers; further calls wait for a free one.
const THREADS_MAX: usize = 256;
/// Helpers only make system calls, so a small stack suffices.
const STACK_BYTES: usize = 64 << 10;

pub(super) struct Helpers {
    shared: Arc<Shared>,
    threads: usize,
    /// Calls passed to helpers whose results have not been taken yet.
    busy: usize,
}

struct Shared {
    work: Mutex<Work>,
    arrived: Condvar,
    finished: Mutex<Vec<(u64, i32)>>,
    is_something_finished: AtomicBool,
    owner_sleeps: AtomicBool,
    bell: Waker,
    /// Calls made for requests, and calls to wake other threads.
    system_calls: AtomicU64,
    threads: Mutex<Vec<libc::pid_t>>,
}

#[derive(Default)]
struct Work {
    calls: VecDeque<(u64, Call)>,
    idle: usize,
    is_over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    pub fn new() -> io::Result<Helpers> {
        let shared = Shared {
            work: Mutex::default(),
            arrived: Condvar::new(),
            finished: Mutex::default(),
            is_something_finished: AtomicBool::new(false),
            owner_sleeps: AtomicBool::new(false),
            bell: Waker::new()?,
            system_calls: AtomicU64::new(0),
            threads: Mutex::default(),
        };
        Ok(Helpers {
            shared: Arc::new(shared),
            threads: 0,
            busy: 0,
        })
    }

    pub fn are_idle(&self) -> bool {
        self.busy == 0
    }

    pub fn bell_fd(&self) -> RawFd {
        self.shared.bell.raw_fd()
    }

    pub fn system_calls(&self) -> u64 {
        self.shared.system_calls.load(Ordering::Relaxed)
    }

    /// CPU time of all helpers, in nanoseconds.
    pub fn cpu_nanos(&self) -> u64 {
        let of = |thread: &libc::pid_t| super::cpu::of_thread(*thread).unwrap_or(0);
        lock(&self.shared.threads).iter().map(of).sum()
    }

    /// Hands calls to the helpers, starting more threads while there are fewer threads than calls.
    ///
    /// # Errors
    /// There are no helpers, and none can be started.
    pub fn hand_over(&mut self, calls: &mut Vec<(u64, Call)>) -> io::Result<()> {
        self.busy += calls.len();
        while self.threads < self.busy.min(THREADS_MAX) {
            match self.begin_one() {
                Ok(()) => self.threads += 1,
                Err(error) if self.threads == 0 => return Err(error),
                // The existing helpers execute all calls.
                Err(_) => break,
            }
        }
        let count = calls.len();
        let mut work = lock(&self.shared.work);
        work.calls.extend(calls.drain(..));
        let asleep = work.idle.min(count);
        drop(work);
        for _ in 0..asleep {
            self.shared.arrived.notify_one();
        }
        self.shared
            .system_calls
            .fetch_add((count + asleep) as u64, Ordering::Relaxed);
        Ok(())
    }

    fn begin_one(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("helper".into())
            .stack_size(STACK_BYTES)
            .spawn(move || help(&shared))
            .map(drop)
    }

    /// Appends the results of finished calls.
    pub fn take_finished(&mut self, into: &mut Vec<(u64, i32)>) {
        if !self
            .shared
            .is_something_finished
            .swap(false, Ordering::SeqCst)
        {
            return;
        }
        let before = into.len();
        into.append(&mut lock(&self.shared.finished));
        self.busy -= into.len() - before;
    }

    /// From now on, a helper that finishes a call must ring the bell.
    pub fn owner_sleeps(&self) {
        self.shared.owner_sleeps.store(true, Ordering::SeqCst);
    }

    pub fn owner_is_awake(&self) {
        self.shared.owner_sleeps.store(false, Ordering::SeqCst);
    }

    /// Resets the bell; call this after its descriptor has become readable.
    pub fn reset_bell(&self) {
        self.shared.bell.reset();
    }
}

impl Drop for Helpers {
    // A helper blocked in a call exits after the call: clients wait for their calls, or leak the memory that the
    // calls point to.
    fn drop(&mut self) {
        lock(&self.shared.work).is_over = true;
        self.shared.arrived.notify_all();
    }
}

/// A helper's main loop.
fn help(shared: &Shared) {
    lock(&shared.threads).push(super::cpu::this_thread());
    let mut work = lock(&shared.work);
    loop {
        if let Some((user_data, call)) = work.calls.pop_front() {
            drop(work);
            let result = call.perform(0);
            lock(&shared.finished).push((user_data, result));
            shared.is_something_finished.store(true, Ordering::SeqCst);
            if shared.owner_sleeps.swap(false, Ordering::SeqCst) {
                shared.system_calls.fetch_add(1, Ordering::Relaxed);
                shared.bell.wake();
            }
            work = lock(&shared.work);
            continue;
        }
        if work.is_over {
            return;
        }
        work.idle += 1;
        work = shared
            .arrived
            .wait(work)
            .unwrap_or_else(PoisonError::into_inner);
        work.idle -= 1;
    }
}
