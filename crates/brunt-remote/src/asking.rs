//! Repeats requests to a store that doesn't answer, for callers that can do nothing else meanwhile.

use std::time::{Duration, Instant};

use brunt_core::Nanos;

use crate::error::RemoteError;
use crate::plan::Patience;
use crate::store::StopWaiting;

/// How often `stop` is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Requests to a store that may be silent for a while.
pub struct Asking {
    patience: Patience,
    begun: Instant,
    silence_max: Duration,
    stop: StopWaiting,
}

impl Asking {
    /// Gives up after `silence_max` without an answer, or when `stop` says so.
    pub fn new(silence_max: Duration, stop: StopWaiting) -> Asking {
        Asking {
            patience: Patience::default(),
            begun: Instant::now(),
            silence_max,
            stop,
        }
    }

    /// Requests without an answer, each of which was repeated.
    pub fn retries(&self) -> u64 {
        self.patience.retries
    }

    /// Repeats a request until there is an answer.
    ///
    /// # Errors
    /// Those of `ask`; a transient one only after too long without an answer.
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
                std::thread::sleep(LOOK);
            }
        }
    }
}
