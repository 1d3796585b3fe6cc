//! Moves parts on a separate thread while they are being produced. The producer never waits for this thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::mover::{MoveCounts, MoveTurn, Mover, PartSource};
use crate::store::StopWaiting;

/// Interval between checks for new parts.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval for repeating a message while its problem persists.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// Receives messages for the user.
pub type NotifyUser = Arc<dyn Fn(&str) + Send + Sync>;

/// When to stop waiting for a store; can be changed from another thread.
#[derive(Clone, Debug, Default)]
pub struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    /// Sets the time at which to give up; `None` means never.
    pub fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|at| Instant::now() >= at)
    }

    /// The deadline as a function to pass to a store.
    pub fn stop(&self) -> StopWaiting {
        let deadline = self.clone();
        Arc::new(move || deadline.is_over())
    }
}

/// A mover running in the background.
#[derive(Debug)]
pub struct BackgroundMover {
    thread: JoinHandle<Mover>,
    ends: Arc<AtomicBool>,
    deadline: Deadline,
    counts: Arc<Mutex<MoveCounts>>,
}

impl BackgroundMover {
    /// Starts the thread. `deadline` must be the one that the mover's store checks.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        mover: Mover,
        source: Box<dyn PartSource + Send>,
        deadline: Deadline,
        tell: NotifyUser,
    ) -> std::io::Result<BackgroundMover> {
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let work = Work {
            mover,
            source,
            ends: Arc::clone(&ends),
            counts: Arc::clone(&counts),
            tell,
        };
        let thread = std::thread::Builder::new()
            .name("mover".into())
            .spawn(move || work.run())?;
        Ok(BackgroundMover {
            thread,
            ends,
            deadline,
            counts,
        })
    }

    /// Counters so far.
    pub fn counts(&self) -> MoveCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread promptly, even while it waits for the store. Returns the mover, to continue with the remaining
    /// parts.
    pub fn finish(self) -> Mover {
        self.ends.store(true, Ordering::Release);
        self.deadline.set(Some(Instant::now()));
        self.thread.thread().unpark();
        let mover = self
            .thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.deadline.set(None);
        mover
    }
}

struct Work {
    mover: Mover,
    source: Box<dyn PartSource + Send>,
    ends: Arc<AtomicBool>,
    counts: Arc<Mutex<MoveCounts>>,
    tell: NotifyUser,
}

impl Work {
    fn run(mut self) -> Mover {
        let mut reported: Option<Instant> = None;
        while !self.ends.load(Ordering::Acquire) {
            let turn = self.mover.turn(&mut *self.source);
            *self.counts.lock().unwrap_or_else(PoisonError::into_inner) =
                self.mover.counts(&*self.source);
            for conflict in self.mover.take_conflicts() {
                (self.tell)(&conflict.to_string());
            }
            let is_due = reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL);
            // Even permanent errors go away once the user acts, for example by supplying new credentials.
            let message = match (&turn, self.mover.trouble()) {
                (Err(error), _) => Some(error.to_string()),
                (Ok(MoveTurn::Waits(_)), Some((error, _))) => Some(error.to_string()),
                _ => None,
            };
            match message {
                Some(message) if is_due && !self.ends.load(Ordering::Acquire) => {
                    (self.tell)(&format!(
                        "{message}; parts are kept here until the store responds, then moved"
                    ));
                    reported = Some(Instant::now());
                }
                None if reported.is_some() && self.mover.trouble().is_none() => {
                    (self.tell)(&format!(
                        "{} responds again; moving parts",
                        self.mover.address()
                    ));
                    reported = None;
                }
                _ => {}
            }
            match turn {
                Ok(MoveTurn::Went) => {}
                Ok(MoveTurn::Waits(wait)) => {
                    std::thread::park_timeout(wait.min(Duration::from_secs(1)))
                }
                Ok(MoveTurn::Idle) | Err(_) => std::thread::park_timeout(POLL_INTERVAL),
            }
        }
        self.mover
    }
}
