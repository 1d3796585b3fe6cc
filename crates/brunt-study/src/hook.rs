//! Hooks that accompany every run: links, roles, the prober, the fault schedule. A [`crate::study::Study`]
//! begins its hooks before a run and ends them after it.
//!
//! The rule: `end` undoes everything that `begin` did, however the run ended, and a hook that fails
//! invalidates the run. Decisions depend on [`HookError::reason`], never on its text.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_result::void::VoidReason;
use brunt_result::{Interval, Outcome};

use crate::observe::{Hub, Observer, RunInfo};
use brunt_result::summary::RunSummary;

/// Goes along with each run, from before its first request to after its last.
pub trait RunHook {
    /// A run is about to start; what happens is reported to `hub`.
    ///
    /// # Errors
    /// The run cannot be made as the experiment says.
    fn begin(&mut self, run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError>;

    /// The run's workers start at `start`; measuring begins after `ramp_up`. Called once a run.
    fn starts(&mut self, _start: Nanos, _ramp_up: Duration) {}

    /// An interval of the run is over, all workers merged.
    fn interval(&mut self, _interval: &Interval) {}

    /// The run is over; everything that `begin` did is undone when this returns. `complete` says whether the
    /// run went to its end: of one that was cut short nobody asks what did not happen in it.
    ///
    /// # Errors
    /// What was meant to happen did not, or could not be undone: the run is invalid and the experiment
    /// ends with this error.
    fn end(&mut self, complete: bool) -> Result<(), HookError>;

    /// Adds what it saw of the run that ended to the run's summary. Called after every `end`, when the
    /// run was not void.
    fn sum_up(&mut self, _run: &mut RunSummary, _outcome: &Outcome) {}
}

/// Why a run is void. Shown as `what: source; advice`, as far as there are any; the advice of a reason without settings is
/// what to do instead.
#[derive(Debug)]
pub struct HookError {
    /// In which way.
    pub reason: VoidReason,
    /// What failed, where.
    pub what: String,
    /// What to do about it, if the source does not say.
    pub advice: Option<String>,
    /// Why, if something else failed first.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl HookError {
    /// With nothing but what failed.
    pub fn new(reason: VoidReason, what: impl Into<String>) -> HookError {
        HookError {
            reason,
            what: what.into(),
            advice: None,
            source: None,
        }
    }

    /// The run could not be made ready because of this error.
    pub fn not_ready(
        what: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> HookError {
        HookError::new(VoidReason::NotReady, what).because(source)
    }

    /// The run could not be made ready because the machine said no, with what helps against that.
    pub fn not_ready_here(what: impl Into<String>, source: io::Error) -> HookError {
        let advice = Some(brunt_lab::remedy(&source));
        HookError {
            advice,
            ..HookError::not_ready(what, source)
        }
    }

    /// The same, with its reason.
    pub fn because(self, source: impl Error + Send + Sync + 'static) -> HookError {
        HookError {
            source: Some(Box::new(source)),
            ..self
        }
    }
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        let advice = self.advice.as_deref().or(self.reason.instead());
        advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Error for HookError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}

/// Who goes along with an experiment's runs and who looks on, for [`crate::study::Study::new`].
#[derive(Default)]
pub struct Company {
    /// Told everything.
    pub observers: Vec<Box<dyn Observer>>,
    /// Begun in this order for each run, ended in the opposite one.
    pub hooks: Vec<Box<dyn RunHook>>,
}
