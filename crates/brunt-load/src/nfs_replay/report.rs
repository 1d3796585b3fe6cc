//! How faithful a replay of NFS traffic was.
//!
//! The rule: each call of the trace is counted once: as sent, as not sent with the reason, or as left out with the
//! reason.

use std::collections::BTreeMap;

use brunt_result::replay::{
    ForcedWrites, LateRequests, ReplayConflicts, ReplayDigests, ReplayFidelity, ReplayVerdict,
    UnsentRequests,
};
use brunt_result::summary::Latencies;
use serde::Serialize;

/// Maximum share of differing statuses in a true replay; [`STATUS_DEGRADED_MAX`] is the maximum in a degraded replay.
pub const STATUS_TRUE_MAX: f64 = 0.001;
/// See [`STATUS_TRUE_MAX`].
pub const STATUS_DEGRADED_MAX: f64 = 0.05;
/// Maximum share of NFS calls that are left out of a degraded replay.
pub(super) const LEFT_OUT_DEGRADED_MAX: f64 = 0.5;

/// The tree that was created for a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NfsReplayTree {
    /// The tree's directory in the target's folder.
    pub name: String,
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Total length of the regular files, in bytes.
    pub bytes: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Fifos, including those that replace devices and sockets.
    pub fifos: u64,
    /// Hard links.
    pub hard_links: u64,
    /// Objects whose name was not captured; they have invented names.
    pub invented_names: u64,
    /// Objects of which only the name was captured, so type, length and mode are guesses.
    pub only_named: u64,
    /// Files whose length was not captured; they end where the captured reads ended.
    pub unknown_sizes: u64,
    /// Entries that already existed when the tree was prepared.
    pub found: u64,
}

/// Number of late calls, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LateCalls {
    /// Late because the replay's own thread was busy.
    pub worker: u64,
    /// Late because they waited for another call to complete.
    pub dependency: u64,
    /// Late because too many calls were outstanding.
    pub depth: u64,
}

impl LateCalls {
    /// Returns the number of all late calls.
    pub fn total(&self) -> u64 {
        self.worker + self.dependency + self.depth
    }
}

/// Counts of calls of one procedure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NfsProcedureCalls {
    /// Calls in the plan.
    pub planned: u64,
    /// Sent.
    pub sent: u64,
    /// Calls answered with the trace's status.
    pub same: u64,
    /// Calls answered with another status.
    pub differ: u64,
    /// Calls answered whose status in the trace is not known.
    pub unknown: u64,
    /// Calls without an answer, or rejected by RPC.
    pub failed: u64,
}

/// Why operations on locks are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoLocks {
    /// The target is used with NFSv3.
    Nfs3,
    /// Each client has several connections, which are different clients to the server.
    Connections,
}

impl NoLocks {
    pub(super) fn text(self) -> &'static str {
        match self {
            NoLocks::Nfs3 => "NFSv4 LOCK, LOCKT and LOCKU: they have no counterpart in NFSv3",
            NoLocks::Connections => {
                "NFSv4 LOCK, LOCKT and LOCKU: the target's URL sets more than one connection"
            }
        }
    }
}

/// Why a call was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnsentCause {
    NoHandle,
    /// The call was due, but not sent in time.
    Late,
    /// The run ended before the call was due, or before it was answered.
    Ended,
    Interrupted,
}

impl UnsentCause {
    pub(super) fn text(self) -> &'static str {
        match self {
            UnsentCause::NoHandle => {
                "no handle, because the call that returns it had a different result"
            }
            UnsentCause::Late => "not sent before the end of the run",
            UnsentCause::Ended => "not due, or not answered, before the end of the run",
            UnsentCause::Interrupted => "interrupted",
        }
    }
}

/// Why a status differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusCause {
    /// An earlier call on the same object or name had a different status.
    Follows,
    /// NFS3ERR_PERM or NFS3ERR_ACCES.
    Permission,
    /// NFS3ERR_JUKEBOX: the server asked to wait.
    Busy,
    /// NFS3ERR_NOTSUPP.
    Unsupported,
    /// In the trace, another call changed the same object or name at the same time.
    Race,
    /// No known cause.
    Other,
}

impl StatusCause {
    /// Returns the cause as text.
    pub fn text(self) -> &'static str {
        match self {
            StatusCause::Follows => "after an earlier difference on the same file or name",
            StatusCause::Permission => "permissions",
            StatusCause::Busy => "the server asked to wait",
            StatusCause::Unsupported => "not supported by one of the servers",
            StatusCause::Race => "another call changed the same file or name at the same time",
            StatusCause::Other => "no known cause",
        }
    }
}

/// Calls whose status differs from the trace's in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusDifference {
    /// The procedure.
    pub operation: String,
    /// The trace's status.
    pub trace: String,
    /// The target's status.
    pub target: String,
    /// Why the two statuses differ.
    pub cause: StatusCause,
    /// Number of such calls.
    pub calls: u64,
}

/// How faithful a replay of NFS traffic was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NfsReplayFidelity {
    /// The verdict.
    pub verdict: ReplayVerdict,
    /// Each criterion that was missed.
    pub reasons: Vec<String>,
    /// When calls were due: `trace`, `dependency` or `depth`.
    pub timing: String,
    /// Speed relative to the trace.
    pub speed: f64,
    /// Clients in the trace; each has a connection, up to a limit.
    pub clients: u64,
    /// Connections used.
    pub connections: u64,
    /// Whose credentials the calls carried: `trace` or `target`.
    pub callers: String,
    /// Calls in the plan.
    pub planned: u64,
    /// Calls sent.
    pub sent: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls not sent, by reason.
    pub unsent: BTreeMap<String, u64>,
    /// Calls that were sent and failed without a status, by error.
    pub failed: BTreeMap<String, u64>,
    /// Operations of the trace that are not in the plan, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Share of the trace's operations that are not in the plan.
    pub left_out_share: f64,
    /// Calls by procedure.
    pub procedures: BTreeMap<String, NfsProcedureCalls>,
    /// Combinations of statuses that differ, with the number of calls for each.
    pub statuses: Vec<StatusDifference>,
    /// Number of calls whose status differs from the trace's, where that is known.
    pub statuses_differ: u64,
    /// READs and WRITEs that succeeded in both, but transferred a different number of bytes.
    pub sizes_differ: u64,
    /// READs and WRITEs that were shortened to the target's transfer limit.
    pub shortened: u64,
    /// SETATTR calls sent without their guard, the file's ctime.
    pub guards_dropped: u64,
    /// Bytes transferred by READ and WRITE in the trace, and in the replay.
    pub moved_bytes: [u64; 2],
    /// Replies of the trace that contradict earlier ones: calls between them were not captured.
    pub contradictions: u64,
    /// Damaged parts of the trace.
    pub damaged_parts: u64,
    /// The tree.
    pub tree: NfsReplayTree,
    /// Issue error: the time from when a call was due until it was sent.
    pub issue_error: Option<Latencies>,
    /// Drift: how much the delay of calls grew from the first to the last, as a share of the time between them.
    pub drift: Option<f64>,
    /// The growth of the delay that `drift` is based on, as a time.
    pub drift_us: Option<f64>,
    /// Number of calls that were sent more than 100 µs late.
    pub late: LateCalls,
    /// Response times: with the trace's timing from when calls were due.
    pub response: Option<Latencies>,
    /// Duration of the replay.
    pub seconds: f64,
    /// Whether the replay was interrupted.
    pub interrupted: bool,
}

impl NfsReplayFidelity {
    /// Returns the figures that an experiment's results have for every replay. Its rows include the reasons why calls
    /// were left out, and the statuses that differ.
    pub(super) fn in_short(&self, unsent: BTreeMap<UnsentCause, u64>) -> ReplayFidelity {
        let count = |why: UnsentCause| unsent.get(&why).copied().unwrap_or(0);
        let different = |difference: &StatusDifference| {
            let StatusDifference {
                operation,
                trace,
                target,
                cause,
                calls,
            } = difference;
            let cause = cause.text();
            let what = format!("answered {operation} with {target} instead of {trace} ({cause})");
            (what, *calls)
        };
        let left_out = self.left_out.iter();
        let left_out = left_out.map(|(why, calls)| (format!("left out: {why}"), *calls));
        ReplayFidelity {
            verdict: self.verdict,
            reasons: self.reasons.clone(),
            timing: self.timing.clone(),
            speed: self.speed,
            planned: self.planned,
            sent: self.sent,
            unsent: UnsentRequests {
                dropped: count(UnsentCause::NoHandle),
                skipped: count(UnsentCause::Late),
                not_taken: 0,
                after_end: count(UnsentCause::Ended) + count(UnsentCause::Interrupted),
            },
            pieces: self.sent,
            completed: self.answered,
            digests: ReplayDigests::default(),
            issue_error: self.issue_error,
            drift: self.drift,
            drift_us: self.drift_us,
            late: LateRequests {
                worker: self.late.worker,
                depth: self.late.depth,
                conflict: self.late.dependency,
                ..LateRequests::default()
            },
            reordered: 0,
            reordered_overlapping: 0,
            conflicts: ReplayConflicts::default(),
            gaps: None,
            forced: ForcedWrites::default(),
            devices: Vec::new(),
            rows: left_out
                .chain(self.statuses.iter().map(different))
                .collect(),
            over_time: Vec::new(),
        }
    }
}
