//! Measures the machine's noise during each run, as a hook; the figures become part of the run's summary and table.
//!
//! The rule: a run without these figures is still valid. Nothing here invalidates a run.

use std::path::Path;
use std::sync::Arc;

use brunt_probe::noise::NoiseMeter;
use brunt_result::Outcome;
use brunt_result::noise::MachineNoise;
use brunt_result::summary::RunSummary;

use super::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};

/// The hook.
#[derive(Default)]
pub struct NoiseWatch {
    meter: Option<NoiseMeter>,
    seen: Option<MachineNoise>,
}

impl RunHook for NoiseWatch {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.meter = NoiseMeter::start(Path::new("/proc")).ok();
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.seen = self.meter.take().and_then(NoiseMeter::stop);
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        run.noise = self.seen.take();
        let doubts = run.noise.iter().flat_map(MachineNoise::doubts);
        run.doubts.extend(doubts.map(|doubt| doubt.what));
    }
}
