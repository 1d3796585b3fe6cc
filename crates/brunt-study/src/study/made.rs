//! A run that was executed, and what its hooks add to it.

use brunt_result::summary::RunSummary;
use brunt_result::void::VoidWeight;
use brunt_result::{Outcome, Stopped};

use crate::hooks::HookError;

/// A run that was executed: its outcome and summary, and those of each job if there are several.
pub(super) struct Made {
    pub(super) outcome: Outcome,
    pub(super) run: RunSummary,
    pub(super) jobs: Vec<(Outcome, RunSummary)>,
    /// The loss of a host without which the experiment cannot continue.
    pub(super) trouble: Option<String>,
}

impl Made {
    /// Copies the hooks' observations of the run to its jobs; `lost` says why the run lacks a host that it needed.
    pub(super) fn settle(&mut self, label: &str, lost: Option<HookError>) {
        let Made {
            outcome, run, jobs, ..
        } = self;
        jobs.iter_mut()
            .for_each(|(_, job)| job.noise.clone_from(&run.noise));
        let lacks = lost.is_some() || (run.stopped == Stopped::HostLost && outcome.is_complete());
        if let Some(lost) = lost {
            self.trouble = Some(format!("{label}: {lost}"));
            for run in jobs.iter_mut().map(|(_, job)| job).chain([&mut *run]) {
                run.doubts.push(lost.to_string());
            }
            if run.stopped != Stopped::Interrupted {
                run.stopped = Stopped::HostLost;
            }
        }
        if lacks {
            // The load doesn't know of the loss, so make its outcome incomplete, so that none of its figures count.
            outcome.stopped = run.stopped;
            for (outcome, job) in jobs {
                (outcome.stopped, job.stopped) = (run.stopped, run.stopped);
            }
        }
    }
}

/// The more informative of two errors: the loss of a host explains other failures.
pub(super) fn heavier(first: Option<HookError>, second: HookError) -> HookError {
    let explains = |error: &HookError| error.reason.weight() == VoidWeight::Incomplete;
    match first {
        Some(first) if explains(&first) || !explains(&second) => first,
        _ => second,
    }
}
