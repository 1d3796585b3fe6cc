//! The prober as a hook: started and stopped with each run; its samples go to the hub, and its record to the run's
//! summary. `brunt-probe` does the sampling.

use std::sync::Arc;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_probe::{Prober, Watching};
use brunt_result::Outcome;
use brunt_result::probe::ProbeRecord;
use brunt_result::summary::RunSummary;

use super::{HookError, RunHook};
use crate::observe::{Event, Hub, RunInfo};

/// Samples during each run.
pub struct Probing {
    prober: Prober,
    /// Keeps the networks of the lab's hosts watched until this is dropped.
    _watching: Vec<Watching>,
    /// The last run's record.
    record: Option<ProbeRecord>,
}

impl Probing {
    /// Uses this prober, which also samples what is being watched.
    pub fn new(prober: Prober, watching: Vec<Watching>) -> Probing {
        Probing {
            prober,
            _watching: watching,
            record: None,
        }
    }
}

impl RunHook for Probing {
    fn begin(&mut self, _run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError> {
        let hub = Arc::clone(hub);
        self.prober
            .start(move |sample| hub.tell(&Event::Sample(Arc::new(sample.clone()))))
            .map_err(|error| HookError::not_ready_here("cannot start the prober's thread", error))
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        self.prober.measure_from(start.after(ramp_up));
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.record = self.prober.stop();
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        run.probes = self.record.take();
    }
}
