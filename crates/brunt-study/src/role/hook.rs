//! Roles during a run: one that dies unexpectedly invalidates it, and each is watched by the prober.
//!
//! The rule: roles are checked before and after every run, so that no run is measured against a dead one.

use std::sync::Arc;
use std::time::Duration;

use brunt_core::Nanos;

use super::{Role, RoleError, death};
use crate::hook::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};
use brunt_probe::{Watch, Watching};

/// Goes along with each run: a role that died unasked voids it. Has roles watched by the prober meanwhile.
pub struct Roles {
    roles: Vec<Arc<dyn Role>>,
    watch: Watch,
    watching: Vec<(u32, Watching)>,
    /// Complete rounds of all points before the run.
    rounds: u32,
    /// When measuring began in the run.
    start: Option<Nanos>,
}

impl Roles {
    /// Looks after these.
    pub fn new(roles: Vec<Arc<dyn Role>>, watch: &Watch) -> Roles {
        let (watching, rounds, start) = Default::default();
        Roles { roles, watch: watch.clone(), watching, rounds, start }
    }

    fn check(&self) -> Result<(), HookError> {
        let died = |error: RoleError| {
            let advice = match &error {
                RoleError::Died { death, .. } => death::advice(death, self.start, self.rounds),
                _ => None,
            };
            HookError { advice, ..HookError::new(error.reason(), error.to_string()) }
        };
        self.roles.iter().try_for_each(|role| role.check().map_err(died))
    }
}

impl RunHook for Roles {
    fn begin(&mut self, run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        (self.rounds, self.start) = (run.repetition, None);
        self.check()?;
        // Those of other hosts are sampled there.
        let here = self.roles.iter().filter(|role| role.is_here());
        let processes: Vec<(&Arc<dyn Role>, usize, u32)> = here
            .flat_map(|role| {
                role.processes().into_iter().enumerate().map(move |(number, pid)| (role, number, pid))
            })
            .collect();
        if !self.watching.iter().map(|(pid, _)| pid).eq(processes.iter().map(|(.., pid)| pid)) {
            let watch = |(role, number, pid): (&Arc<dyn Role>, usize, u32)| {
                let name = match number {
                    0 => role.name().to_string(),
                    // A service may have several.
                    _ => format!("{} #{}", role.name(), number + 1),
                };
                (pid, self.watch.process(role.host().as_str(), &name, pid))
            };
            self.watching = processes.into_iter().map(watch).collect();
        }
        Ok(())
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        self.start = Some(start.after(ramp_up));
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.check()
    }
}
