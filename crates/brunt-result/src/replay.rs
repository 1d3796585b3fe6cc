//! Fidelity of the replay of a block trace, as plain data: a replay fills it while it runs; it is stored with its run
//! in `summary.json` and shown on the page.
//!
//! The rule: a replay is called true only if it meets every criterion; [`ReplayVerdict`] states the criteria, and
//! `reasons` lists each one that was missed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;

/// Largest drift of a true replay, as a share of its length.
pub const DRIFT_TRUE_MAX: f64 = 0.001;
/// A replay that drifts by more than this share of its length is not a replay.
pub const DRIFT_DEGRADED_MAX: f64 = 0.05;
/// Largest 99th percentile of issue errors of a true replay, in microseconds.
pub const ISSUE_ERROR_TRUE_MAX_US: f64 = 1_000.0;
/// If the 99th percentile of issue errors exceeds this, in microseconds, the result is not a replay.
pub const ISSUE_ERROR_DEGRADED_MAX_US: f64 = 100_000.0;
/// If more than this share of the requests was dropped or failed, the result is not a replay.
pub const LOST_DEGRADED_MAX: f64 = 0.01;
/// A request sent more than this after it was due counts as late.
pub const LATE_AFTER_US: f64 = 100.0;
/// Gaps between requests that differ by at most this count as equal in `ks_beyond_slack`.
pub const GAP_SLACK_US: f64 = 50.0;

/// Whether the measured load is the one in the trace.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayVerdict {
    /// The same operations, addresses and sizes were sent at the trace's times: the drift is at most 0.1 % (or 1 ms)
    /// and the 99th percentile of issue errors at most 1 ms.
    True,
    /// A criterion for a true replay was missed, but the drift is at most 5 %, the 99th percentile of issue errors at
    /// most 100 ms, and at most 1 % of the requests were dropped or failed.
    Degraded,
    /// The limits for a degraded replay were missed, too.
    NotAReplay,
}

impl ReplayVerdict {
    /// Name for display.
    pub fn name(self) -> &'static str {
        match self {
            ReplayVerdict::True => "true",
            ReplayVerdict::Degraded => "degraded",
            ReplayVerdict::NotAReplay => "not a replay",
        }
    }
}

/// How faithful a replay was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayFidelity {
    /// The verdict.
    pub verdict: ReplayVerdict,
    /// Reasons why the replay is not a true one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// When requests were due: `trace`, `depth` or `dependency`.
    pub timing: String,
    /// Speed relative to the trace.
    pub speed: f64,
    /// Requests of the trace that should have been sent: `sent` and all of `unsent`.
    pub planned: u64,
    /// Requests of the trace that were sent. A split request counts once, when its last piece is sent.
    pub sent: u64,
    /// Requests of the trace that were not sent, by reason.
    #[serde(default)]
    pub unsent: UnsentRequests,
    /// Requests sent to the device, counting each piece of split ones. The figures below, except `rows`, are based on
    /// these requests.
    #[serde(default)]
    pub pieces: u64,
    /// Requests that succeeded, counting each piece of split ones.
    pub completed: u64,
    /// Order-independent hashes of operation, address and size of the requests.
    pub digests: ReplayDigests,
    /// Time from when a request was due to when it was sent.
    pub issue_error: Option<Latencies>,
    /// By how much later the last request was sent, relative to its due time, than the first, as a share of the time
    /// between them.
    pub drift: Option<f64>,
    /// By how much later the last request was sent, relative to its due time, than the first, in microseconds: more
    /// meaningful for a short trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_us: Option<f64>,
    /// Requests sent late, by cause.
    pub late: LateRequests,
    /// Requests that were sent after a request that follows them in the trace.
    pub reordered: u64,
    /// Requests among `reordered` that touch the same blocks as the request sent before them, if one of the two
    /// changes data.
    pub reordered_overlapping: u64,
    /// Requests that became due while another one on the same blocks was in flight, if one of the two changes data.
    pub conflicts: ReplayConflicts,
    /// Difference between the distributions of the times between requests, as sent and as due.
    pub gaps: Option<GapDistance>,
    /// Writes and unmaps with FUA in the trace (forced to stable storage).
    #[serde(default)]
    pub forced: ForcedWrites,
    /// Figures for each device in the trace, if there are several: for each of the first 15, and for all others
    /// together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceFidelity>,
    /// Rows of the trace that were left out, repaired or moved, by reason.
    pub rows: BTreeMap<String, u64>,
    /// The course of the replay over time.
    pub over_time: Vec<ReplayMoment>,
}

/// Requests of the trace that were not sent, by reason; each has exactly one. A request that was split into pieces
/// counts by its last piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsentRequests {
    /// Dropped because another request on the same blocks was in flight (`conflicts = "drop"`).
    pub dropped: u64,
    /// Due before the end of the run, but not sent, because the time that `drain` gives late requests was over or no
    /// device was left.
    pub skipped: u64,
    /// Submitted to a device that did not accept them before the end.
    pub not_taken: u64,
    /// Not due before the end of the run.
    pub after_end: u64,
}

impl UnsentRequests {
    /// Requests that should have been sent during the run.
    pub fn lost(&self) -> u64 {
        self.dropped + self.skipped + self.not_taken
    }

    /// All unsent requests.
    pub fn total(&self) -> u64 {
        self.lost() + self.after_end
    }
}

/// Requests that have to be on stable storage before they complete, counting each piece of split ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForcedWrites {
    /// Requests that should have been sent with FUA.
    pub planned: u64,
    /// Requests that were sent with FUA.
    pub sent: u64,
}

/// How faithful the replay of one device of the trace was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFidelity {
    /// The device's name in the trace; `null` in the entry that combines all devices after the first 15.
    pub device: Option<String>,
    /// The target on which this device was replayed, if several targets have their own devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Requests of the trace that should have been sent: `sent` and all of `unsent`.
    pub planned: u64,
    /// Requests of the device that were sent.
    pub sent: u64,
    /// Requests that were not sent, by reason.
    #[serde(default)]
    pub unsent: UnsentRequests,
    /// Requests that succeeded, counting each piece of split ones.
    pub completed: u64,
    /// Requests that were sent more than 100 µs late.
    pub late: u64,
    /// Time from when a request was due to when it was sent.
    pub issue_error: Option<Latencies>,
    /// Hashes of this device's requests.
    pub digests: ReplayDigests,
}

/// Sums of hashes of operation, address, size and position in the trace of each request: equal if and only if (but
/// for a chance of 2^-64) both contain the same requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDigests {
    /// Digest of the trace, as read in the pass before the start: the same for every format and mapping of one trace.
    pub trace: String,
    /// Digest of the requests that should have been sent by the end of the run, at the target's addresses and split
    /// into the sizes that it accepts.
    pub planned: String,
    /// Digest of the requests that were submitted to the device.
    pub sent: String,
}

/// Requests that were sent late, by cause; each has exactly one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateRequests {
    /// Brunt's fault: the worker was busy or not scheduled.
    pub worker: u64,
    /// Brunt's fault: the trace was not read fast enough.
    pub reader: u64,
    /// The device's fault: it did not accept the request at once.
    pub device: u64,
    /// The depth limit: the queue was full.
    pub depth: u64,
    /// Held back because another request on the same blocks was in flight.
    pub conflict: u64,
}

impl LateRequests {
    /// All late requests.
    pub fn total(&self) -> u64 {
        self.worker + self.reader + self.device + self.depth + self.conflict
    }
}

/// How the replay handled requests that conflict with one in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayConflicts {
    /// `let-through`, `hold-back` or `drop`.
    pub rule: String,
    /// Number of these requests.
    pub requests: u64,
}

/// Difference between two distributions of times between requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapDistance {
    /// The Kolmogorov-Smirnov distance: the largest difference between the two cumulative shares.
    pub ks: f64,
    /// The Kolmogorov-Smirnov distance if gaps that differ by at most 50 µs count as equal.
    pub ks_beyond_slack: f64,
    /// Distance that two samples of the same distribution stay within in 95 of 100 cases.
    pub by_chance: f64,
}

/// A part of the replay's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayMoment {
    /// Start of the part, in seconds from the start; requests belong to the part in which they were due.
    pub start_s: f64,
    /// End of the part.
    pub end_s: f64,
    /// Requests that were due in this part.
    pub requests: u64,
    /// Mean issue error in microseconds: the drift at that time.
    pub issue_error_mean_us: f64,
    /// Largest issue error in microseconds.
    pub issue_error_max_us: f64,
    /// Mean number of requests in flight when a request was sent.
    pub depth_mean: f64,
    /// Mean number of requests in flight in the trace; `null` if it has no response times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_depth_mean: Option<f64>,
}
