//! The cost of faults that last for whole runs, as plain data. [`crate::normal`] computes it.

use brunt_core::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::Estimate;

/// What sticky faults cost a point, compared with its normal point in the same rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StickyCost {
    /// The faults, all of which last for whole runs.
    pub faults: Vec<String>,
    /// Label of the normal point.
    pub normal: String,
    /// Rounds in which both points have a complete run.
    pub rounds: usize,
    /// Requests per second of the normal point.
    pub baseline: Option<Estimate>,
    /// Share of the normal point's rate that is lost; negative if the rate is higher under the faults.
    pub drop: Option<Estimate>,
    /// Requests per second that are lost under the faults.
    pub lost_requests_per_second: Option<Estimate>,
    /// Mean response time under the faults as a multiple of that at the normal point.
    pub response_mean_factor: Option<Estimate>,
    /// 99th percentile of the response time under the faults as a multiple of that at the normal point.
    pub response_p99_factor: Option<Estimate>,
    /// Share of requests that failed at the normal point.
    pub failed_share_before: Option<Estimate>,
    /// Share of requests that failed under the faults.
    pub failed_share: Option<Estimate>,
}

impl StickyCost {
    /// Names of the faults for display.
    pub fn name(&self) -> String {
        self.faults.join(" and ")
    }

    /// `against disk reads, 4 rounds`
    pub fn reference(&self) -> String {
        format!("against {}, {}", self.normal, counted(self.rounds, "round"))
    }
}
