//! Runs a library's blocking calls with a time limit. Used when opening and closing a device.
//!
//! The rule: a blocking call runs on a separate thread, which is abandoned when the time is up. It inherits the network
//! and mount namespaces of the calling thread, as do the threads that the library starts from it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::LibraryError;

/// Time limit for closing, after which the thread is abandoned.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// Runs `open`, or fails with `advice` if the library doesn't respond within `time`.
///
/// # Errors
/// The errors of `open`, and [`LibraryError::Silent`].
pub(crate) fn opened<T: Send + 'static>(
    name: String,
    time: Duration,
    advice: &'static str,
    open: impl FnOnce() -> Result<T, LibraryError> + Send + 'static,
) -> Result<T, LibraryError> {
    within(time, open).unwrap_or(Err(LibraryError::Silent { name, time, advice }))
}

/// The result of `work`; `None` if it took longer than `time`. A later result is dropped.
pub(crate) fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, answer) = channel();
    let worker = thread::spawn(move || drop(sender.send(work())));
    match answer.recv_timeout(time) {
        Ok(answer) => Some(answer),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a worker sends its answer before it ends"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_that_takes_too_long_is_abandoned() {
        assert_eq!(within(Duration::from_secs(600), || 7), Some(7));
        let (go, wait) = channel::<()>();
        let made = Arc::new(());
        let copy = Arc::clone(&made);
        let late = within(Duration::from_millis(1), move || {
            let _ = wait.recv();
            copy
        });
        assert!(late.is_none());
        go.send(()).unwrap();
        while Arc::strong_count(&made) > 1 {
            thread::yield_now();
        }
    }
}
