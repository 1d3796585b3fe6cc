//! Agents on hosts of the lab, as processes that the prober watches: what the workers of one host take of the processor, which
//! the machine's own figures do not tell apart. Created by `brunt run`.
//!
//! The rule: an agent is watched under the name of its host for as long as the experiment has it.

use std::sync::Arc;

use brunt_host::{Fleet, Lane};
use brunt_probe::{Watch, Watching};

use crate::hook::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};

/// An agent: its host, its conversation, its process.
type Agent = (String, Lane, u32);

/// Has agents of this machine watched during runs.
pub struct LabAgents {
    fleet: Arc<Fleet>,
    watch: Watch,
    watching: Vec<(Agent, Watching)>,
}

impl LabAgents {
    /// Of this fleet.
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

    /// That an agent has ended is found by whoever it worked for.
    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        Ok(())
    }
}

/// What samples call it: jobs that run at once have an agent each.
fn instance(Lane(lane): Lane) -> String {
    if lane == 0 {
        "agent".to_string()
    } else {
        format!("agent-{}", lane + 1)
    }
}
