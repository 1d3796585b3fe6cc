//! The outcome of sampling a host, as reported by its agent when sampling stops, and readings of its interfaces.

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

/// The counter for samples that were taken but not sent.
pub const SAMPLES_DROPPED: &str = "samples_dropped";
/// The counter for samples that were never taken.
pub const SAMPLES_MISSED: &str = "samples_missed";

/// Totals over all samples since sampling was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchReport {
    /// Samples taken, including those that were dropped.
    pub samples: u64,
    /// Samples that were taken late.
    pub late: u64,
    /// Samples never taken, because the previous one took too long.
    pub missed: u64,
    /// Samples that were taken but not sent, because too many others were waiting to be read.
    pub dropped: u64,
    /// Counters that went backwards.
    pub resets: u64,
    /// Texts that could not be parsed.
    pub unreadable: u64,
    /// CPU time used for the samples.
    pub cpu_nanos: u64,
    /// How long sampling lasted.
    pub elapsed_nanos: u64,
}

/// Maximum number of interfaces in a reading.
pub const INTERFACES_MAX: usize = 64;

/// The byte counters of interfaces at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceReading {
    /// When they were read, on the host's own clock.
    pub at: Nanos,
    /// Bytes that each interface has sent and received, in the order of the request; `None` if the host has no such
    /// counter.
    pub bytes: Vec<Option<[u64; 2]>>,
}
