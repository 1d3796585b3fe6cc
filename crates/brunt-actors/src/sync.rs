//! Locks and threads: from the standard library, or from shuttle under model checking. All other
//! modules import them from here, so the code that is checked is the code that runs.

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
/// poisoned lock means that one of our own assertions failed on another thread; the data is in the
/// state that the assertion saw.
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

/// Drops ended actors and messages. Their destructors run user code: a panic in one must not take
/// down the scheduler.
pub(crate) fn drop_all(ended: Vec<Box<dyn Send>>) {
    for one in ended {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(one)));
    }
}

/// Keeps data written by one thread off cache lines that another thread reads. Aligned to two
/// lines, because current processors prefetch lines in pairs.
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
