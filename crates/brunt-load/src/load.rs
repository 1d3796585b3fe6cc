//! What every kind of load has in common. Experiments describe loads, a study runs them; both meet
//! them here.

use std::time::Duration;

/// Shortest report interval: merging histograms costs a tenth of a millisecond for each.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Longest report interval (papers/spek.md, 2.1).
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// What is wrong with a workload: which key, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct WorkloadError {
    /// The key as written in the file, such as `blocks` or `stop.steady.round`.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub what: String,
}

pub(crate) fn wrong(key: &'static str, what: impl Into<String>) -> Result<(), WorkloadError> {
    Err(WorkloadError { key, what: what.into() })
}
