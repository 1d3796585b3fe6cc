//! Waits for the condition of a phase (`wait_for`): what was waited for, how long, and how that ended.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wait before a phase of one repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseWait {
    /// The phase: its name, or its workloads if it has none.
    pub phase: String,
    /// The repetition of the phase, from 0.
    pub repetition: u32,
    /// Command that was repeated until it exited with 0.
    pub command: String,
    /// Time waited, in seconds.
    pub waited_s: f64,
    /// How the wait ended.
    pub outcome: WaitOutcome,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitOutcome {
    /// The condition was met.
    Met,
    /// The condition was not met within `time_max`; the experiment ended.
    TimedOut,
    /// The experiment was interrupted.
    Interrupted,
    /// The command could not be run; the experiment ended.
    NotRun,
}

impl fmt::Display for WaitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitOutcome::Met => "met",
            WaitOutcome::TimedOut => "timed out",
            WaitOutcome::Interrupted => "interrupted",
            WaitOutcome::NotRun => "command could not be run",
        })
    }
}
