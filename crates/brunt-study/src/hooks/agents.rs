//! Watches the agents on lab hosts as processes, through the prober, to find the CPU time of one host's workers,
//! which the machine's own figures don't separate.
//!
//! The rule: an agent is watched under its host's name, as long as it belongs to the experiment.

use std::sync::Arc;

use brunt_host::{Fleet, Lane};
use brunt_probe::{Watch, Watching};

use super::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};

/// An agent: its host, its lane and its PID.
type Agent = (String, Lane, u32);

/// Watches agents of this machine during runs.
pub struct LabAgents {
    fleet: Arc<Fleet>,
    watch: Watch,
    watching: Vec<(Agent, Watching)>,
}

impl LabAgents {
    /// Watches the agents of this fleet.
    pub fn new(fleet: Arc<Fleet>, watch: &Watch) -> LabAgents {
        LabAgents {
            fleet,
            watch: watch.clone(),
            watching: Vec::new(),
        }
    }
}

impl RunHook for LabAgents {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        let agents = self.fleet.agents_here();
        if !self.watching.iter().map(|(agent, _)| agent).eq(&agents) {
            let watch = |agent: Agent| {
                let watching = self.watch.process(&agent.0, &instance(agent.1), agent.2);
                (agent, watching)
            };
            self.watching = agents.into_iter().map(watch).collect();
        }
        Ok(())
    }

    /// If the agent has ended, the code that uses it notices.
    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        Ok(())
    }
}

/// The agent's name in samples: simultaneous jobs have separate agents.
fn instance(Lane(lane): Lane) -> String {
    if lane == 0 {
        "agent".to_string()
    } else {
        format!("agent-{}", lane + 1)
    }
}
