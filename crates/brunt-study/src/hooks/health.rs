//! Waits before each run until services are healthy (`[services.NAME.healthy]`): for example, until a store has
//! repaired what the last run's fault damaged.
//!
//! The rule: no run begins while a service is not healthy, and each run records how long it waited.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brunt_core::Clock;
use brunt_result::Outcome;
use brunt_result::summary::RunSummary;

use super::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};
use crate::role::RoleError;
use crate::service::HealthGate;

/// The hook.
pub(super) struct Health {
    gates: Vec<HealthGate>,
    interrupted: Arc<AtomicBool>,
    waited_s: BTreeMap<String, f64>,
}

impl Health {
    /// Waits for these health conditions, until `interrupted` is set.
    pub fn new(gates: Vec<HealthGate>, interrupted: &Arc<AtomicBool>) -> Health {
        Health {
            gates,
            interrupted: Arc::clone(interrupted),
            waited_s: BTreeMap::new(),
        }
    }
}

impl RunHook for Health {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.waited_s.clear();
        // Runs that continue without a host don't wait for that host's services.
        let gates = self.gates.iter().filter(|gate| gate.role.loss().is_none());
        for gate in gates {
            let begun = Clock::Monotonic.now();
            match gate.wait(&self.interrupted) {
                Ok(()) => {}
                // The run ends as soon as it begins.
                Err(_) if self.interrupted.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(not_healthy(gate.service(), error)),
            }
            let waited = Clock::Monotonic.now().since(begun);
            self.waited_s
                .insert(gate.service().to_string(), waited.as_secs_f64());
        }
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        run.health_waits_s = std::mem::take(&mut self.waited_s);
    }
}

fn not_healthy(service: &str, error: RoleError) -> HookError {
    let advice = "run the command by hand, or write a longer healthy.within".to_string();
    HookError {
        advice: Some(advice),
        ..HookError::new(error.reason(), format!("service {service} is not healthy"))
    }
    .because(error)
}
