//! Roles during a run: a role that dies unexpectedly invalidates the run, and the prober samples each role. A run
//! that lost a host with services is kept and marked, like a run that lost workers.
//!
//! The rule: roles are checked before and after every run, so that no run is measured against a dead one.

use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_host::instance_of_role;
use brunt_result::hosts::{HostFigures, HostLoss};
use brunt_result::summary::RunSummary;
use brunt_result::void::VoidReason;
use brunt_result::{Interval, Outcome, Stopped};

use super::{HookError, RunHook};
use crate::host::HostName;
use crate::observe::{Hub, RunInfo};
use crate::role::{Role, RoleError, death};
use brunt_probe::{Watch, Watching};

/// The hook: a role that died unexpectedly invalidates the run. The prober samples the processes of roles.
pub struct Roles {
    roles: Vec<Arc<dyn Role>>,
    watch: Watch,
    /// Whether runs continue after a host is lost.
    goes_on: bool,
    watching: Vec<(u32, Watching)>,
    /// Number of complete rounds of all points before the run.
    rounds: u32,
    /// When measuring began in the run.
    start: Option<Nanos>,
    /// Hosts with services that were lost in this run or earlier.
    lost: Vec<(HostName, HostLoss)>,
}

impl Roles {
    /// Supervises these roles. If `goes_on` is set, a run continues after losing the host of a service.
    pub fn new(roles: Vec<Arc<dyn Role>>, watch: &Watch, goes_on: bool) -> Roles {
        let (watching, rounds, start, lost) = Default::default();
        Roles {
            roles,
            watch: watch.clone(),
            goes_on,
            watching,
            rounds,
            start,
            lost,
        }
    }

    fn check(&mut self) -> Result<(), HookError> {
        for role in &self.roles {
            let Err(error) = role.check() else { continue };
            // Losing one of several services doesn't have to stop the others.
            if role.loss().is_some() {
                continue;
            }
            let advice = match &error {
                RoleError::Died { death, .. } => death::advice(death, self.start, self.rounds),
                _ => None,
            };
            return Err(HookError {
                advice,
                ..HookError::new(error.reason(), error.to_string())
            });
        }
        self.check_for_losses();
        Ok(())
    }

    /// Records when the loss of a host with services was first detected.
    fn check_for_losses(&mut self) {
        for role in &self.roles {
            let Some(why) = role.loss() else { continue };
            if self.lost.iter().all(|(host, _)| host != role.host()) {
                let now = Clock::Monotonic.now();
                let after_s = self
                    .start
                    .map_or(0.0, |start| now.since(start).as_secs_f64());
                self.lost
                    .push((role.host().clone(), HostLoss { after_s, why }));
            }
        }
    }
}

impl RunHook for Roles {
    fn begin(&mut self, run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        (self.rounds, self.start) = (run.repetition, None);
        self.check()?;
        if let Some((_, loss)) = self.lost.first().filter(|_| !self.goes_on) {
            return Err(HookError::new(
                VoidReason::FaultHostLost,
                format!("services: {}", loss.why),
            ));
        }
        self.lost
            .iter_mut()
            .for_each(|(_, loss)| loss.after_s = 0.0);
        // Roles on other hosts are sampled there.
        let here = self.roles.iter().filter(|role| role.is_here());
        let processes: Vec<(&Arc<dyn Role>, usize, u32)> = here
            .flat_map(|role| {
                role.processes()
                    .into_iter()
                    .enumerate()
                    .map(move |(number, pid)| (role, number, pid))
            })
            .collect();
        if !self
            .watching
            .iter()
            .map(|(pid, _)| pid)
            .eq(processes.iter().map(|(.., pid)| pid))
        {
            let watch = |(role, number, pid): (&Arc<dyn Role>, usize, u32)| {
                let name = instance_of_role(role.name(), number);
                (pid, self.watch.process(role.host().as_str(), &name, pid))
            };
            self.watching = processes.into_iter().map(watch).collect();
        }
        Ok(())
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        self.start = Some(start.after(ramp_up));
    }

    fn interval(&mut self, _interval: &Interval) {
        self.check_for_losses();
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.check()
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        for (host, loss) in &self.lost {
            match run
                .hosts
                .iter_mut()
                .find(|figures| figures.name == host.as_str())
            {
                Some(figures) if figures.lost.is_some() => continue,
                Some(figures) => figures.lost = Some(loss.clone()),
                None => {
                    let (name, lost) = (host.to_string(), Some(loss.clone()));
                    run.hosts.push(HostFigures {
                        name,
                        lost,
                        ..HostFigures::default()
                    });
                }
            }
            run.doubts
                .push(format!("a host with services was lost: {}", loss.why));
        }
        if !self.lost.is_empty() && run.is_complete() {
            run.stopped = Stopped::HostLost;
        }
    }
}
