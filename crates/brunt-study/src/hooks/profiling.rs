//! Records where the CPU goes during each run, as a hook; the profile becomes part of the run's summary and tables.
//!
//! The rule: a run without a profile is still valid. If the kernel forbids samples, the profile says so.

use std::sync::Arc;

use brunt_profile::{PhaseSpan, ProfileSettings, ProfiledProcess, Profiler, Recording};
use brunt_result::Outcome;
use brunt_result::summary::RunSummary;

use super::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};
use crate::role::Role;

/// Name for the process that runs the experiment, whose threads are the workers.
const WORKER: &str = "worker";

/// The hook.
pub struct Profiling {
    settings: ProfileSettings,
    roles: Vec<Arc<dyn Role>>,
    profiler: Option<Profiler>,
    recording: Option<Recording>,
}

impl Profiling {
    /// Profiles the workers and these roles.
    pub fn new(settings: ProfileSettings, roles: Vec<Arc<dyn Role>>) -> Profiling {
        Profiling {
            settings,
            roles,
            profiler: None,
            recording: None,
        }
    }
}

/// The processes of the experiment on this machine.
fn subjects(roles: &[Arc<dyn Role>]) -> Vec<ProfiledProcess> {
    let subject = |role: &str, pid: u32| ProfiledProcess {
        role: role.to_string(),
        pid,
    };
    let here = roles.iter().filter(|role| role.is_here());
    let started = here.flat_map(|role| {
        let pids = role.processes().into_iter();
        pids.map(|pid| subject(role.name(), pid))
    });
    let own = subject(WORKER, std::process::id());
    std::iter::once(own).chain(started).collect()
}

impl RunHook for Profiling {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.recording = None;
        let roles = self.roles.clone();
        let started = Profiler::start(self.settings, move || subjects(&roles));
        let profiler = started.map_err(|error| HookError::not_ready("the profile", error))?;
        self.profiler = Some(profiler);
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.recording = self.profiler.take().map(Profiler::stop);
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, outcome: &Outcome) {
        let Some(recording) = self.recording.take() else {
            return;
        };
        let whole = PhaseSpan {
            kind: None,
            faults: Vec::new(),
            start_s: 0.0,
            end_s: outcome.end.since(outcome.start).as_secs_f64(),
        };
        let phases = run.phases.iter().map(|phase| PhaseSpan {
            kind: Some(phase.kind),
            faults: phase.faults.clone(),
            start_s: phase.start_s,
            end_s: phase.end_s,
        });
        let mut spans: Vec<PhaseSpan> = phases.collect();
        if spans.is_empty() {
            spans.push(whole);
        }
        let profile = recording.profile(outcome.start, &spans);
        run.profile = Some(Box::new(profile));
    }
}
