//! Retries requests to a store that doesn't answer, for callers that have nothing else to do in the meantime.

use std::time::{Duration, Instant};

use brunt_core::Nanos;

use crate::error::RemoteError;
use crate::plan::Patience;
use crate::store::StopWaiting;

/// Interval between checks of `stop`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Sends requests to a store that may be silent for a while.
pub struct StoreRetry {
    patience: Patience,
    begun: Instant,
    silence_max: Duration,
    stop: StopWaiting,
}

impl StoreRetry {
    /// Gives up after `silence_max` without an answer, or as soon as `stop` returns true.
    pub fn new(silence_max: Duration, stop: StopWaiting) -> StoreRetry {
        StoreRetry {
            patience: Patience::default(),
            begun: Instant::now(),
            silence_max,
            stop,
        }
    }

    /// Requests that got no answer and were repeated.
    pub fn retries(&self) -> u64 {
        self.patience.retries
    }

    /// Repeats a request until it is answered.
    ///
    /// # Errors
    /// An error of `ask`; a transient one only after `silence_max`.
    pub fn until_answered<T>(
        &mut self,
        mut ask: impl FnMut() -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        loop {
            let error = match ask() {
                Err(error) if error.is_passing() => error,
                other => {
                    self.patience.on_answer();
                    return other;
                }
            };
            let now = Nanos(self.begun.elapsed().as_nanos() as u64);
            self.patience.on_no_answer(now);
            let since = self.patience.silent_since.unwrap_or(now);
            let until = self.patience.until(now).unwrap_or(now);
            if until.since(since) > self.silence_max {
                return Err(error);
            }
            let end = Instant::now() + until.since(now);
            while Instant::now() < end {
                if (self.stop)() {
                    return Err(RemoteError::Interrupted);
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}
