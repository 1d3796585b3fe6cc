//! Runs a described workload on a device without an experiment, for benchmarks and tests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_block::{Backend, RingConfig};
use brunt_result::Outcome;

use super::BlockLoad;
use super::workload::Workload;
use crate::decisions;
use crate::load::{LoadError, LoadTarget, RunOrder};
use crate::record::Recorder;

/// A workload and its target.
#[derive(Clone)]
pub struct Session {
    /// The workload.
    pub workload: Workload,
    /// The target.
    pub backend: Arc<dyn Backend>,
    /// Seed for all requests.
    pub seed: u64,
    /// Distinguishes the blocks of this run from those of other runs during verification.
    pub run: u64,
    /// Settings of workers' rings; the buffer arena is sized to fit.
    pub ring: RingConfig,
}

impl Session {
    /// Creates a run against `backend` with default ring settings.
    pub fn new(workload: Workload, backend: Arc<dyn Backend>, seed: u64) -> Session {
        Session {
            workload,
            backend,
            seed,
            run: seed,
            ring: RingConfig::default(),
        }
    }

    /// Runs until the workload is done or `stop` is set; returns the results so far in either case.
    ///
    /// # Errors
    /// The workload does not fit, or a worker failed.
    pub fn run(
        &self,
        stop: &AtomicBool,
        recorder: &mut dyn Recorder,
    ) -> Result<Outcome, LoadError> {
        let load = BlockLoad {
            workload: self.workload.clone(),
            ring: self.ring.clone(),
        };
        let on = LoadTarget::of(Arc::clone(&self.backend));
        let order = RunOrder {
            run: self.run,
            ..RunOrder::alone(self.seed)
        };
        decisions::run(&load, &on, &order, stop, recorder).map(|ran| ran.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use crate::NoRecorder;
    use crate::block::workload::{RampUp, Steady, StopCondition};
    use brunt_block::backends::memory::MemoryBackend;
    use brunt_block::backends::null::NullBackend;
    use brunt_core::{Size, Span};
    use brunt_result::{Interval, RequestRecord, RequestStatus, Stopped};

    fn session(workload: Workload) -> Session {
        Session::new(
            workload,
            Arc::new(MemoryBackend::new(16 << 20, 512).unwrap()),
            1,
        )
    }

    fn requests(count: u64) -> StopCondition {
        StopCondition {
            requests: Some(count),
            ..StopCondition::default()
        }
    }

    struct Keep(Vec<Interval>, Vec<RequestRecord>);
    impl Recorder for Keep {
        fn interval(&mut self, interval: &Interval) {
            self.0.push(interval.clone());
        }
        fn requests(&mut self, batch: &[RequestRecord]) {
            self.1.extend_from_slice(batch);
        }
    }

    /// Several workers issue exactly the configured number of requests, and the figures of intervals, single requests
    /// and outcome agree.
    #[test]
    fn workers_add_up_to_the_configured_requests() {
        let workload = Workload {
            workers: 3,
            queue_depth: 4,
            read: 0.5,
            interval: Span(Duration::from_millis(10)),
            ramp_up: Some(RampUp {
                requests: 100,
                time: Span::default(),
            }),
            stop: requests(6000),
            record_requests: true,
            ..Workload::default()
        };
        let mut kept = Keep(Vec::new(), Vec::new());
        let outcome = session(workload)
            .run(&AtomicBool::new(false), &mut kept)
            .unwrap();
        assert_eq!(
            (outcome.figures.completed(), outcome.stopped),
            (6000, Stopped::Done)
        );
        let sum: u64 = kept
            .0
            .iter()
            .map(|interval| interval.figures.completed())
            .sum();
        assert_eq!((sum, kept.1.len()), (6000, 6000));
        assert!(kept.0.windows(2).all(|pair| pair[0].index < pair[1].index));
        assert!(
            kept.1
                .iter()
                .all(|request| request.index >= 100 && request.sent >= Some(request.intended))
        );
        let response = outcome.figures.response();
        assert_eq!(response.count(), 6000);
        let longest = kept
            .1
            .iter()
            .map(|request| request.completed.unwrap().0 - request.intended.0)
            .max();
        assert_eq!(response.max().map(|max| max.0), longest);
    }

    /// Stops a run as soon as it has completed some requests.
    struct Impatient<'a>(&'a AtomicBool);

    impl Recorder for Impatient<'_> {
        fn interval(&mut self, interval: &Interval) {
            self.0
                .fetch_or(interval.figures.completed() > 0, Ordering::Relaxed);
        }
    }

    /// Ctrl-C keeps the results so far and marks them as incomplete.
    #[test]
    fn a_stopped_run_keeps_its_results() {
        let hour = StopCondition {
            time: Some(Span(Duration::from_secs(3600))),
            ..StopCondition::default()
        };
        let interval = Span(Duration::from_millis(10));
        let workload = Workload {
            workers: 2,
            stop: hour,
            interval,
            ..Workload::default()
        };
        let stop = AtomicBool::new(false);
        let outcome = session(workload).run(&stop, &mut Impatient(&stop)).unwrap();
        assert_eq!(outcome.stopped, Stopped::Interrupted);
        assert!(!outcome.is_complete() && outcome.figures.completed() > 0);
    }

    /// The steady-state rule ends a run, whether or not it becomes steady.
    #[test]
    fn the_steady_state_rule_ends_a_run() {
        let steady = toml::from_str::<Steady>("round = \"10ms\"\nrounds_max = 6").unwrap();
        let workload = Workload {
            stop: StopCondition {
                steady: Some(steady),
                ..StopCondition::default()
            },
            interval: Span(Duration::from_millis(10)),
            ..Workload::default()
        };
        let outcome = session(workload)
            .run(&AtomicBool::new(false), &mut NoRecorder)
            .unwrap();
        assert!(
            matches!(outcome.stopped, Stopped::Steady | Stopped::NotSteady),
            "{:?}",
            outcome.stopped
        );
        assert!(outcome.is_complete());
    }

    /// Reads in the same run verify written blocks, with each worker in its own part.
    #[test]
    fn reads_verify_blocks_written_in_the_same_run() {
        let workload = Workload {
            workers: 2,
            queue_depth: 8,
            read: 0.5,
            verify: Some(crate::block::workload::VerifySettings::default()),
            region: crate::block::workload::Region {
                start: Size(0),
                length: Some(Size(256 << 10)),
            },
            stop: requests(6000),
            ..Workload::default()
        };
        let outcome = session(workload.clone())
            .run(&AtomicBool::new(false), &mut NoRecorder)
            .unwrap();
        assert_eq!(
            (outcome.figures.completed(), outcome.figures.counts.errors()),
            (6000, 0)
        );
        // A device that loses its data is detected.
        let forgetful = Session::new(workload, Arc::new(NullBackend::new(16 << 20, 512)), 1);
        let outcome = forgetful
            .run(&AtomicBool::new(false), &mut NoRecorder)
            .unwrap();
        assert!(outcome.figures.counts.of(RequestStatus::Miscompare) > 1000);
        assert!(
            outcome
                .first_error
                .unwrap()
                .to_string()
                .contains("differs from what was written")
        );
    }

    /// A workload that doesn't fit is rejected before anything runs, with an error that names the key.
    #[test]
    fn a_workload_that_does_not_fit_is_refused_by_key() {
        let misfit = Workload {
            stop: requests(1),
            region: crate::block::workload::Region {
                start: Size(1 << 30),
                length: None,
            },
            ..Workload::default()
        };
        let error = session(misfit)
            .run(&AtomicBool::new(false), &mut NoRecorder)
            .unwrap_err();
        assert!(error.to_string().starts_with("region: "), "{error}");
    }
}
