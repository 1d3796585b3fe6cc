//! Lets metrics and the live page watch a run outside of an experiment, such as a replay: they observe the same
//! events as in an experiment.
//!
//! The rule: observers see only runs that have started, and see each of them end.

use std::sync::Arc;
use std::time::SystemTime;

use brunt_core::{Clock, Nanos};
use brunt_load::Recorder;
use brunt_result::event::{Event, RunInfo};
use brunt_result::summary::RunSummary;
use brunt_result::{Figures, Interval};
use brunt_study::observe::Observer;

/// The observers of one run.
pub struct LoneRun {
    info: Arc<RunInfo>,
    observers: Vec<Box<dyn Observer>>,
}

impl LoneRun {
    /// Begins a run that is being prepared; `label` describes it.
    pub fn begin(label: String, seed: u64, observers: Vec<Box<dyn Observer>>) -> LoneRun {
        let (wall, ready) = (SystemTime::now(), Clock::Monotonic.now());
        let info = RunInfo {
            order: 0,
            runs: 1,
            point: 0,
            label,
            repetition: 0,
            seed,
            wall,
            ready,
        };
        let mut run = LoneRun {
            info: Arc::new(info),
            observers,
        };
        run.tell(&Event::RunBegins(Arc::clone(&run.info)));
        run
    }

    /// Whether there are any observers.
    pub fn is_watched(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Reports the end of the run.
    pub fn end(mut self, run: &RunSummary, figures: &Figures) {
        let (run, figures) = (Arc::new(run.clone()), Arc::new(figures.clone()));
        self.tell(&Event::RunEnds(Arc::clone(&self.info), run, figures));
    }

    fn tell(&mut self, event: &Event) {
        // This can't fail: metrics and pages write no files.
        self.observers
            .iter_mut()
            .for_each(|observer| drop(observer.event(event)));
    }
}

impl Recorder for LoneRun {
    fn interval(&mut self, interval: &Interval) {
        self.tell(&Event::Interval(Arc::new(interval.clone())));
    }

    fn starts(&mut self, start: Nanos) {
        self.tell(&Event::RunStarts(start));
    }
}
