//! Hooks that accompany every run: links, roles, the prober, the fault schedule. A [`crate::study::Study`] begins its
//! hooks before a run and ends them after it. Each hook has a file here; [`hooks`] lists them in order.
//!
//! The rule: `end` undoes everything that `begin` did, however the run ended, and a hook that fails
//! invalidates the run. Decisions depend on [`HookError::reason`], never on its text.

mod agents;
pub mod bridges;
mod devices;
pub(crate) mod faults;
mod health;
mod host_links;
pub(crate) mod hosts;
mod interfaces;
pub(crate) mod links;
mod noise;
mod order;
mod probing;
mod profiling;
mod readings;
mod roles;
mod traffic;

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

pub use faults::{FaultSchedule, ScheduleError};
pub use order::{HooksError, Started, hooks};

/// Accompanies each run, from before its first request until after its last.
pub trait RunHook {
    /// Called before a run starts; observations go to `hub`.
    ///
    /// # Errors
    /// The run isn't possible as the experiment describes it.
    fn begin(&mut self, run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError>;

    /// The run's workers start at `start`; measuring begins after `ramp_up`. Called once per run.
    fn starts(&mut self, _start: Nanos, _ramp_up: Duration) {}

    /// Called at the end of each interval, with the figures of all workers merged.
    fn interval(&mut self, _interval: &Interval) {}

    /// Whether the run is already invalid. If so, it ends early instead of at its planned end.
    fn has_failed(&self) -> bool {
        false
    }

    /// Called when the run is over. On return, everything that `begin` did is undone. `complete` is false if the run
    /// was cut short: then effects that did not occur are not errors.
    ///
    /// # Errors
    /// An intended effect did not occur, or could not be undone: the run is invalid, and the experiment ends with
    /// this error.
    fn end(&mut self, complete: bool) -> Result<(), HookError>;

    /// Adds what the hook observed in the last run to the run's summary. Called after every `end`, if the run is
    /// valid.
    fn sum_up(&mut self, _run: &mut RunSummary, _outcome: &Outcome) {}
}

/// Why a run is invalid. Displayed as `what: source; advice`, omitting missing parts. If no setting is to blame, the
/// advice says what else to do.
#[derive(Debug)]
pub struct HookError {
    /// The kind of failure.
    pub reason: VoidReason,
    /// What failed, and where.
    pub what: String,
    /// What to do about it, if the source doesn't say so.
    pub advice: Option<String>,
    /// The underlying error, if any.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl HookError {
    /// An error that has neither a source nor advice.
    pub fn new(reason: VoidReason, what: impl Into<String>) -> HookError {
        HookError {
            reason,
            what: what.into(),
            advice: None,
            source: None,
        }
    }

    /// The run could not be prepared because of this error.
    pub fn not_ready(
        what: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> HookError {
        HookError::new(VoidReason::NotReady, what).because(source)
    }

    /// The run could not be prepared because a system call failed; adds the remedy.
    pub fn not_ready_here(what: impl Into<String>, source: io::Error) -> HookError {
        let advice = Some(brunt_lab::remedy(&source));
        HookError {
            advice,
            ..HookError::not_ready(what, source)
        }
    }

    /// Adds the error's source.
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

/// The hooks and observers of an experiment's runs, for [`crate::study::Study::new`].
#[derive(Default)]
pub struct RunHooks {
    /// The observers, which receive all events.
    pub observers: Vec<Box<dyn Observer>>,
    /// The hooks, which begin in this order for each run and end in reverse.
    pub hooks: Vec<Box<dyn RunHook>>,
}
