//! The effect of a fault that occurs several times in each run, over all of its occurrences together. Each occurrence
//! is also a separate fault, with its own verdict ([`crate::degradation`]). [`crate::over_occurrences`] computes this
//! effect.
//!
//! The rule: a total is unknown if an occurrence is missing; it is never the sum of the other occurrences.
//! Occurrences in one run share their baseline, so only runs count as independent: every figure is computed per run,
//! then averaged over runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::Estimate;

/// The place of a fault among the occurrences of an intermittent fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FaultOccurrence {
    /// Name of the intermittent fault.
    pub fault: String,
    /// Number of the occurrence in its run, from 1.
    pub number: u32,
    /// Occurrences in a run.
    pub count: u32,
}

/// Effect of an intermittent fault on a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecurringOverRuns {
    /// Name of the fault.
    pub fault: String,
    /// Occurrences in a run.
    pub occurrences: u32,
    /// Runs in which every occurrence has a baseline.
    pub runs: usize,
    /// Share of the measured time in which the fault was in effect.
    pub time_share: Option<Estimate>,
    /// Share of the baseline rate lost during the occurrences, weighted by their durations.
    pub drop: Option<Estimate>,
    /// Requests lost until recovery per run, over the runs in which that is known for every occurrence.
    pub lost_requests: Option<Estimate>,
    /// Runs in which the lost requests are unknown, because the recovery from an occurrence is unknown.
    pub lost_unknown: usize,
    /// Seconds that requests waited beyond the mean expected without the fault until recovery, per run.
    pub excess_wait_s: Option<Estimate>,
    /// Occurrences with a detected effect, in all runs.
    pub detected: usize,
    /// Occurrences without a detectable effect, in all runs.
    pub not_detected: usize,
    /// Occurrences with too much noise to tell whether the fault had an effect, in all runs.
    pub detection_inconclusive: usize,
    /// Seconds from the end of an occurrence until the rate recovered, averaged over the occurrences in a run after
    /// which it did.
    pub recovered_s: Option<Estimate>,
    /// Occurrences after which the rate did not recover, in all runs.
    pub not_recovered: usize,
    /// Occurrences after which noise or the next fault hid whether the rate recovered, in all runs.
    pub recovery_inconclusive: usize,
}
