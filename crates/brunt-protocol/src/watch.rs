//! What samples of a host came to, as its agent says when it takes no more.

use serde::{Deserialize, Serialize};

/// The counter of samples that were taken and not sent.
pub const SAMPLES_DROPPED: &str = "samples_dropped";
/// The counter of samples that were never taken.
pub const SAMPLES_MISSED: &str = "samples_missed";

/// Of all samples since they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchReport {
    /// Samples taken, those that were dropped included.
    pub samples: u64,
    /// Samples that came late.
    pub late: u64,
    /// Samples that were never taken, because the one before took too long.
    pub missed: u64,
    /// Samples that were taken and not sent, because too many others waited to be read.
    pub dropped: u64,
    /// Counters that went backwards.
    pub resets: u64,
    /// Texts that could not be understood.
    pub unreadable: u64,
    /// CPU time that the samples took.
    pub cpu_nanos: u64,
    /// For how long they were taken.
    pub elapsed_nanos: u64,
}
