//! Locks and threads: the standard library's, or shuttle's under model checking. Every other module
//! imports them from here, so the code that is checked is the code that runs.

#[cfg(not(feature = "model-check"))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(feature = "model-check"))]
pub(crate) use std::{thread, thread_local};

#[cfg(feature = "model-check")]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(feature = "model-check")]
pub(crate) use shuttle::{thread, thread_local};

use std::cell::Cell;
use std::sync::{PoisonError, TryLockError};

/// Locks a mutex and ignores poisoning. No actor code runs under any of this crate's locks, so a
/// poisoned lock means that another thread hit one of our own assertions; the data is still what
/// the assertion saw.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex if it is free.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

thread_local! {
    // Not `const`: shuttle's macro does not support it.
    #[allow(clippy::missing_const_for_thread_local)]
    static ON_SCHEDULER: Cell<bool> = Cell::new(false);
}

/// Returns true on a scheduler's thread.
pub(crate) fn on_scheduler() -> bool {
    ON_SCHEDULER.with(Cell::get)
}

/// Marks the calling thread as a scheduler's.
pub(crate) fn enter_scheduler() {
    ON_SCHEDULER.with(|inside| inside.set(true));
}

/// Drops ended actors and messages. Their destructors are foreign code: a panic in one must not
/// take down the scheduler.
pub(crate) fn drop_all(ended: Vec<Box<dyn Send>>) {
    for one in ended {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(one)));
    }
}

/// Keeps data written by one thread off the cache lines that another reads. Two lines, because
/// current processors prefetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
