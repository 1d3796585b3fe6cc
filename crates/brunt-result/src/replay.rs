//! Fidelity of the replay of a block trace, as plain data: a replay fills it while it runs; it is stored with its run
//! in `summary.json` and shown on the page.
//!
//! The rule: a replay is called true only if it meets every criterion; [`ReplayVerdict`] states the criteria, and
//! `reasons` lists each one that was missed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;

/// Maximum drift of a true replay, as a share of its length.
pub const DRIFT_TRUE_MAX: f64 = 0.001;
/// A replay that drifts by more than this share of its length is not a replay.
pub const DRIFT_DEGRADED_MAX: f64 = 0.05;
/// Maximum 99th percentile of issue errors of a true replay, in microseconds.
pub const ISSUE_ERROR_TRUE_MAX_US: f64 = 1_000.0;
/// If the 99th percentile of issue errors exceeds this, in microseconds, the result is not a replay.
pub const ISSUE_ERROR_DEGRADED_MAX_US: f64 = 100_000.0;
/// If more than this share of the requests was dropped or failed, the result is not a replay.
pub const LOST_DEGRADED_MAX: f64 = 0.01;
/// A request sent later than this after it was due counts as late.
pub const LATE_AFTER_US: f64 = 100.0;
/// Gaps between requests that differ by at most this count as equal in `ks_beyond_slack`.
pub const GAP_SLACK_US: f64 = 50.0;

/// Whether the measured load is that of the trace.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayVerdict {
    /// The same operations, addresses and sizes were sent. At the trace's times: the drift is at most 0.1 % (or 1 ms)
    /// and the 99th percentile of issue errors at most 1 ms.
    True,
    /// It missed a criterion of a true replay, but the drift is at most 5 %, the 99th percentile of issue errors at
    /// most 100 ms, and at most 1 % of the requests were dropped or failed.
    Degraded,
    /// It missed those limits too.
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
    /// Reasons why it is not true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// When requests were due: `trace`, `depth` or `dependency`.
    pub timing: String,
    /// Speed relative to the trace.
    pub speed: f64,
    /// Requests of the trace that were to be sent: `sent` and all of `unsent`.
    pub planned: u64,
    /// Requests of the trace that were sent. A split request counts once, with its last piece.
    pub sent: u64,
    /// Requests of the trace that were not sent, by reason.
    #[serde(default)]
    pub unsent: UnsentRequests,
    /// Requests sent to the device, counting each piece of split ones. The figures below are based on these, except
    /// `rows`.
    #[serde(default)]
    pub pieces: u64,
    /// Those that succeeded.
    pub completed: u64,
    /// Order-independent hashes of operation, address and size of the requests.
    pub digests: ReplayDigests,
    /// From when a request was due to when it was sent.
    pub issue_error: Option<Latencies>,
    /// By how much the last request was late against the first, as a share of the time between them.
    pub drift: Option<f64>,
    /// The same in microseconds, which is more meaningful for a short trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_us: Option<f64>,
    /// Requests sent late, by cause.
    pub late: LateRequests,
    /// Requests that were sent after one that comes later in the trace.
    pub reordered: u64,
    /// Of these, requests that touch the same blocks, where one of the two changes data.
    pub reordered_overlapping: u64,
    /// Requests that were due while one on the same blocks was in flight and one of the two changes data.
    pub conflicts: ReplayConflicts,
    /// The times between requests, as sent and as due.
    pub gaps: Option<GapDistance>,
    /// Writes and unmaps that the trace has with FUA (forced to stable storage).
    #[serde(default)]
    pub forced: ForcedWrites,
    /// The same by device of the trace, if there are several: the first 15 and all others together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceFidelity>,
    /// Rows that were left out, repaired or moved, by reason.
    pub rows: BTreeMap<String, u64>,
    /// How it went over time.
    pub over_time: Vec<ReplayMoment>,
}

/// Requests of the trace that were not sent, by why; each has one. One that was sent in pieces counts where its last piece
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsentRequests {
    /// Dropped because of one in flight on the same blocks (`conflicts = "drop"`).
    pub dropped: u64,
    /// Due before the end of the run, but not sent in the time that `drain` gives late requests, or because no device
    /// was left.
    pub skipped: u64,
    /// Given to a device that did not accept them before the end.
    pub not_taken: u64,
    /// The run ended before they were due.
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

/// Requests that have to be on stable storage before they complete, in the pieces that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForcedWrites {
    /// That were to be sent with FUA.
    pub planned: u64,
    /// That were.
    pub sent: u64,
}

/// How faithful the replay of one device of the trace was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFidelity {
    /// Its name in the trace; `null` for all others.
    pub device: Option<String>,
    /// The target that it was replayed on, if several targets have their own devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Requests of the trace that were to be sent: `sent` and all of `unsent`.
    pub planned: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that were not sent, by reason.
    #[serde(default)]
    pub unsent: UnsentRequests,
    /// Requests that succeeded, counting the pieces of split ones.
    pub completed: u64,
    /// Requests that were sent over 100 µs late.
    pub late: u64,
    /// From when a request was due to when it was sent.
    pub issue_error: Option<Latencies>,
    /// Hashes of its requests.
    pub digests: ReplayDigests,
}

/// Hashes of operation, address and size of each request with its place in the trace, added up: equal if and only if
/// (but for chance, 2^-64) the same requests are in both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDigests {
    /// Digest of the trace, as read in the pass before the start: the same for every format and mapping of one trace.
    pub trace: String,
    /// Digest of the requests that were to be sent until the end of the run, at the addresses of the target and split
    /// into the sizes that it accepts.
    pub planned: String,
    /// Digest of the requests that were handed to the device.
    pub sent: String,
}

/// Requests that were sent late, by cause; each has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateRequests {
    /// Ours: the worker was busy or not scheduled.
    pub worker: u64,
    /// Ours: the trace was not read fast enough.
    pub reader: u64,
    /// The device's: it did not accept the request at once.
    pub device: u64,
    /// The depth limit: every place in the queue was taken.
    pub depth: u64,
    /// Held back for a request in flight on the same blocks.
    pub conflict: u64,
}

impl LateRequests {
    /// All late requests.
    pub fn total(&self) -> u64 {
        self.worker + self.reader + self.device + self.depth + self.conflict
    }
}

/// What was done about requests that conflict with one in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayConflicts {
    /// `let-through`, `hold-back` or `drop`.
    pub rule: String,
    /// How many there were.
    pub requests: u64,
}

/// How far two distributions of gaps are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapDistance {
    /// The Kolmogorov-Smirnov distance: the largest difference between the two cumulative shares.
    pub ks: f64,
    /// The same with gaps that differ by at most 50 µs counted as equal.
    pub ks_beyond_slack: f64,
    /// Distance that two samples of the same distribution do not exceed in 95 of 100 cases.
    pub by_chance: f64,
}

/// A part of the replay's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayMoment {
    /// Where it begins, in seconds from the start, by when requests were due.
    pub start_s: f64,
    /// Where it ends.
    pub end_s: f64,
    /// Requests that were due in it.
    pub requests: u64,
    /// Mean issue error in microseconds: the drift by then.
    pub issue_error_mean_us: f64,
    /// The largest.
    pub issue_error_max_us: f64,
    /// Requests in flight that a request found on its arrival, on average.
    pub depth_mean: f64,
    /// The same in the trace; `null` where it has no response times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_depth_mean: Option<f64>,
}
