//! Roles during a run: one that dies unexpectedly invalidates it, and each is watched by the prober.
//!
//! The rule: roles are checked before and after every run, so that no run is measured against a dead one.

use std::sync::Arc;

use super::{Role, RoleError};
use crate::hook::{HookError, HookErrorKind, RunHook};
use crate::observe::{Hub, RunInfo};
use brunt_probe::{Watch, Watching};

/// Goes along with each run: a role that died unasked voids it. Has roles watched by the prober meanwhile.
pub struct Roles {
    roles: Vec<Arc<dyn Role>>,
    watch: Watch,
    watching: Vec<(u32, Watching)>,
}

impl Roles {
    /// Looks after these.
    pub fn new(roles: Vec<Arc<dyn Role>>, watch: &Watch) -> Roles {
        Roles { roles, watch: watch.clone(), watching: Vec::new() }
    }

    fn check(&self) -> Result<(), HookError> {
        let died = |error: RoleError| HookError::new(HookErrorKind::Disturbed, error.to_string());
        self.roles.iter().try_for_each(|role| role.check().map_err(died))
    }
}

impl RunHook for Roles {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
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

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.check()
    }
}
