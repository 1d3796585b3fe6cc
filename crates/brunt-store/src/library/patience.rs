//! Runs a library's blocking calls with a limit. Used while a device is opened and closed.
//!
//! The rule: what blocks has a thread of its own, which is left behind when the time is over. It inherits the network
//! and mount namespaces of the thread that asked, and so do the threads that the library starts on it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::LibraryError;

/// How long a store may take to let go of what is closed; a thread is left behind after that.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// What opening came to, or that the library has not answered in `time`, with what may help.
///
/// # Errors
/// Those of `open`, and [`LibraryError::Silent`].
pub(crate) fn opened<T: Send + 'static>(
    name: String,
    time: Duration,
    advice: &'static str,
    open: impl FnOnce() -> Result<T, LibraryError> + Send + 'static,
) -> Result<T, LibraryError> {
    within(time, open).unwrap_or(Err(LibraryError::Silent { name, time, advice }))
}

/// What `work` came to; `None` when it took longer than `time`. What it makes later is dropped.
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
            Ok(()) => unreachable!("a worker that ends has sent its answer"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_takes_too_long_is_left_behind() {
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
