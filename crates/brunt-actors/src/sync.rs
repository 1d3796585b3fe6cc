//! Locks and threads: the standard library's, or shuttle's when the protocol is being model-checked.
//! Every other module takes them from here, so that what is checked is what runs.

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

/// Locks. No actor code runs under any of this crate's locks, so a poisoned one means that
/// another thread broke one of our own assertions; its data is still what the assertion saw.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks when nobody else holds it.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

thread_local! {
    // Not `const`, which shuttle's macro does not know.
    #[allow(clippy::missing_const_for_thread_local)]
    static ON_SCHEDULER: Cell<bool> = Cell::new(false);
}

/// True on a scheduler's thread.
pub(crate) fn on_scheduler() -> bool {
    ON_SCHEDULER.with(Cell::get)
}

/// The calling thread is a scheduler's from now on.
pub(crate) fn enter_scheduler() {
    ON_SCHEDULER.with(|inside| inside.set(true));
}

/// Destructors of actors and messages are not ours: one that panics must not take a scheduler
/// with it.
pub(crate) fn drop_all(ended: Vec<Box<dyn Send>>) {
    for one in ended {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(one)));
    }
}

/// Keeps what one thread writes off the cache lines that another reads: two lines, because the
/// prefetcher of today's processors fetches them in pairs.
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
