//! Observers of an experiment's events, such as the results on disk or the terminal. A [`crate::study::Study`]
//! reports runs and their figures; [`crate::hooks::RunHook`]s (such as the prober and the fault schedule) report
//! their own observations from their own threads.
//!
//! The rule: an observer never delays a worker. Slow work goes to the observer's own thread; data that cannot
//! be kept (a full disk) ends the experiment instead of being lost silently.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

pub use brunt_result::event::{
    Event, FaultGap, FaultRecord, JobEvent, RunInfo, Sample, SampleValue,
};

/// Receives events. Called from the thread that collects a run's intervals and from hooks' threads, one call at a time.
pub trait Observer: Send {
    /// Receives an event.
    ///
    /// # Errors
    /// The event cannot be stored; the text says where and why. The experiment then ends, and this observer receives
    /// only the end of the current run, which is also part of the summary, and [`Event::Ends`].
    fn event(&mut self, event: &Event) -> io::Result<()>;
}

/// Passes events to all observers.
#[derive(Default)]
pub struct Hub {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    observers: Vec<Seat>,
    failure: Option<String>,
}

struct Seat {
    observer: Box<dyn Observer>,
    failed: bool,
    /// Whether this observer was the first to fail.
    first: bool,
}

impl Hub {
    /// Passes events to these observers, in this order.
    pub fn new(observers: Vec<Box<dyn Observer>>) -> Arc<Hub> {
        let observers = observers
            .into_iter()
            .map(|observer| Seat {
                observer,
                failed: false,
                first: false,
            })
            .collect();
        Arc::new(Hub {
            inner: Mutex::new(Inner {
                observers,
                failure: None,
            }),
        })
    }

    /// Passes an event to all observers.
    pub fn tell(&self, event: &Event) {
        // If an observer panicked, that has been reported; the others must still receive the final events.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { observers, failure } = &mut *inner;
        for seat in observers {
            let ends = matches!(
                event,
                Event::RunEnds(..) | Event::Job(_, JobEvent::RunEnds(..)) | Event::Ends(_)
            );
            if seat.failed && !ends {
                continue;
            }
            if let Err(error) = seat.observer.event(event) {
                // Prefer the last error of the observer that failed first, because it says what could still be saved.
                if seat.first || failure.is_none() {
                    *failure = Some(error.to_string());
                    seat.first = true;
                }
                seat.failed = true;
            }
        }
    }

    /// The last error of the observer that failed first. After such a failure, there is no point in measuring
    /// further.
    pub fn failure(&self) -> Option<String> {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failure
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Nanos;
    use brunt_result::experiment::ExperimentSummary;
    use brunt_result::summary::Summary;

    /// An observer that fails at its third event.
    struct Full(Arc<Mutex<Vec<&'static str>>>);
    impl Observer for Full {
        fn event(&mut self, event: &Event) -> io::Result<()> {
            let mut seen = self.0.lock().unwrap();
            let event = if matches!(event, Event::Ends(_)) {
                "end"
            } else {
                "event"
            };
            seen.push(event);
            match (seen.len(), event) {
                (3, _) => Err(io::Error::other("disk full")),
                (_, "end") if seen.len() == 4 => Err(io::Error::other("disk full; 7 rows lost")),
                _ => Ok(()),
            }
        }
    }

    /// A failed observer receives only the final events; the others receive all events, and the failure is the failed
    /// observer's last error.
    #[test]
    fn a_failed_observer_is_left_alone() {
        let (full, fine) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(Mutex::new(Vec::new())),
        );
        fine.lock().unwrap().extend(["event"; 3]);
        let hub = Hub::new(vec![
            Box::new(Full(full.clone())),
            Box::new(Full(fine.clone())),
        ]);
        for at in 0..5 {
            assert_eq!(hub.failure().is_some(), at >= 3);
            hub.tell(&Event::RunStarts(Nanos(at)));
        }
        assert_eq!(
            (full.lock().unwrap().len(), fine.lock().unwrap().len()),
            (3, 8)
        );
        assert_eq!(hub.failure().as_deref(), Some("disk full"));
        let summary = Summary {
            format: brunt_result::summary::FORMAT,
            brunt: String::new(),
            complete: false,
            trouble: None,
            experiment: ExperimentSummary::default(),
            points: Vec::new(),
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            waits: Vec::new(),
            label: None,
        };
        hub.tell(&Event::Ends(Arc::new(summary)));
        assert_eq!(hub.failure().as_deref(), Some("disk full; 7 rows lost"));
    }
}
