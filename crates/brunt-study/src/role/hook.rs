//! Roles during a run: one that dies unexpectedly invalidates it, and each is watched by the prober.
//!
//! The rule: roles are checked before and after every run, so that no run is measured against a dead one.

use std::sync::Arc;
use std::time::Duration;

use brunt_core::Nanos;

use super::{Role, RoleError};
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
                RoleError::Died { death, .. } => death.advice(self.start, self.rounds),
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
        let pids: Vec<u32> = self.roles.iter().map(|role| role.pid()).collect();
        if !self.watching.iter().map(|(pid, _)| pid).eq(&pids) {
            let watch = |role: &Arc<dyn Role>| {
                (role.pid(), self.watch.process(role.host().as_str(), role.name(), role.pid()))
            };
            self.watching = self.roles.iter().map(watch).collect();
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
