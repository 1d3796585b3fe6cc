//! The replay of captured NFS traffic on another server: creates the files that the trace needs,
//! sends the trace's calls at their times, and compares the replies. `brunt replay` uses it if its
//! target is a folder of an NFS server.
//!
//! Start reading at [`NfsReplay`]. `namespace` derives from the trace what existed before its first call, `layout` where
//! that is on the target, and `plan` what each call needs; these do no I/O. `prepare` makes the tree. `schedule` decides
//! which call is next, `calls` writes it, and `run` sends it. `report` is the result. `load` makes it a load
//! for experiments, with the user's [`settings`].
//!
//! The rule: everything happens in a directory that the replay created itself.

mod calls;
mod clients;
mod layout;
mod load;
mod namespace;
mod plan;
mod prepare;
mod report;
mod run;
mod schedule;
pub mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::table::OpenError;
use brunt_block::{Backend, Health};
use brunt_core::{Clock, Nanos, Span};
use brunt_nfs::NfsFolder;
use brunt_result::replay::{
    DRIFT_DEGRADED_MAX, DRIFT_TRUE_MAX, ISSUE_ERROR_DEGRADED_MAX_US, ISSUE_ERROR_TRUE_MAX_US,
    LOST_DEGRADED_MAX, ReplayVerdict,
};
use brunt_result::summary::Latencies;
use brunt_result::{OpKind, Outcome};
use brunt_trace::TraceError;
use brunt_trace::nfs::NfsTrace;
use brunt_wire::nfs::v3::Procedure;

use crate::block::workload::Workload;
use crate::commands::{Commands, LoadCommand};
use crate::nfs::tree::NfsTreeError;
use crate::record::{NoRecorder, Recorder};
use crate::replay::settings::ReplayTiming;
use layout::{Planted, TreeLayout};
pub(crate) use load::LINE;
pub use load::{KIND, NfsReplayLoad};
use namespace::Namespace;
use plan::ReplayActions;
use prepare::{PrepareOptions, PreparedTree};
use report::{LEFT_OUT_DEGRADED_MAX, UnsentCause};
pub use report::{
    LateCalls, NfsProcedureCalls, NfsReplayFidelity, NfsReplayTree, STATUS_DEGRADED_MAX,
    STATUS_TRUE_MAX, StatusCause, StatusDifference,
};
use run::{CallsSent, RunMeasures, RunParts};
pub use settings::NfsCallers;

/// A drift shorter than this doesn't affect the verdict, even if it is a large share of the replay's duration.
const DRIFT_TRUE_MAX_NANOS: f64 = 1e6;

/// How long to wait for the last replies; the time limits of the target's URL are usually shorter.
const DRAIN: Duration = Duration::from_secs(3600);
/// How often to check whether the user has interrupted a replay.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum depth of a tree that is removed after a replay.
const TREE_DEPTH_MAX: usize = 1024;

/// Why a trace can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum NfsReplayError {
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has no NFS calls.
    #[error("{0} has no NFS calls")]
    NoCalls(String),
    /// The target is not a folder of an NFS server.
    #[error(
        "{0} is not a folder of an NFS server; name one with a '/' at its end: nfs://server/export/folder/"
    )]
    NotAFolder(String),
    /// The server doesn't answer, or rejected a call while the tree was created or removed.
    #[error("{0}")]
    Server(Box<dyn std::error::Error + Send + Sync>),
    /// The user interrupted the replay while the tree was created.
    #[error(
        "interrupted while files were created on the server; run the same command again to continue"
    )]
    Stopped,
    /// The directory exists, but was not created for this trace.
    #[error("{0} exists, but was not created for a replay of this trace with these options")]
    OtherContent(String),
    /// The directory was used by a replay, so its content no longer matches the trace.
    #[error("{0} was already used by a replay, so its content has changed")]
    AlreadyReplayed(String),
    /// An entry of a prepared tree differs from what the trace needs.
    #[error("{tree}: {name} {how}")]
    Differs {
        /// The tree.
        tree: String,
        /// The entry's path.
        name: String,
        /// What is wrong.
        how: String,
    },
    /// A connection could not be opened.
    #[error("{0}")]
    Open(Box<OpenError>),
    /// The io_uring ring failed.
    #[error("I/O failed: {0}")]
    Ring(#[source] io::Error),
}

impl From<NfsTreeError> for NfsReplayError {
    fn from(error: NfsTreeError) -> NfsReplayError {
        match error {
            NfsTreeError::Stopped => NfsReplayError::Stopped,
            error => NfsReplayError::Server(Box::new(error)),
        }
    }
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct NfsReplayOptions {
    /// When calls are due.
    pub timing: ReplayTiming,
    /// Speed relative to the trace, greater than 0.
    pub speed: f64,
    /// How long before a call is due the thread stops sleeping and watches the clock.
    pub spin: Duration,
    /// Maximum outstanding calls of all clients; at least 1. Fewer if their data would take over 256 MiB.
    pub depth: u32,
    /// Whose credentials the calls carry.
    pub callers: NfsCallers,
    /// Whether files are created with their length, but without data.
    pub sparse: bool,
    /// Name of the directory for the tree; by default, derived from the tree's content.
    pub into: Option<String>,
    /// Seed of the data that is written.
    pub seed: u64,
}

/// A trace that can be replayed.
#[derive(Debug)]
pub struct NfsReplay {
    actions: Arc<ReplayActions>,
    layout: TreeLayout,
    objects: usize,
    /// Number of operations in the trace.
    operations: u64,
    contradictions: u64,
    damaged_parts: u64,
}

/// A tree that was prepared for a replay.
#[derive(Debug)]
pub struct NfsPreparedTree {
    tree: PreparedTree,
    /// The directories, files and links in the tree.
    pub summary: NfsReplayTree,
}

/// The results of a replay.
struct Replayed {
    fidelity: NfsReplayFidelity,
    unsent: BTreeMap<UnsentCause, u64>,
    outcome: Outcome,
    health: Health,
}

impl NfsReplay {
    /// Reads a captured trace.
    ///
    /// # Errors
    /// The trace can't be read, or has no NFS calls.
    pub fn read(trace: &Path) -> Result<NfsReplay, NfsReplayError> {
        let read = NfsTrace::read(trace)?;
        if read.calls.is_empty() {
            return Err(NfsReplayError::NoCalls(trace.display().to_string()));
        }
        Ok(NfsReplay::of(read))
    }

    fn of(trace: NfsTrace) -> NfsReplay {
        let namespace = Namespace::of(&trace);
        let layout = TreeLayout::of(&trace, &namespace);
        let left_out = trace
            .others
            .values()
            .chain(trace.without_counterpart.values());
        let operations = trace.calls.len() as u64 + left_out.sum::<u64>();
        let damaged_parts = trace.damaged_parts as u64;
        NfsReplay {
            actions: Arc::new(ReplayActions::of(trace, &namespace, &layout)),
            layout,
            objects: namespace.objects.len(),
            operations,
            contradictions: namespace.contradictions,
            damaged_parts,
        }
    }

    /// Returns the number of calls to send.
    pub fn calls(&self) -> u64 {
        self.actions.actions.len() as u64
    }

    /// Returns the directory of the replay's tree.
    pub fn tree_name(&self, options: &NfsReplayOptions) -> String {
        let name = options.into.clone();
        let as_traced = options.callers.as_traced();
        let digest = || self.layout.digest(as_traced, options.sparse);
        name.unwrap_or_else(|| format!("brunt-replay-{}", digest()))
    }

    /// Creates the tree, or checks that an existing one is unchanged.
    ///
    /// # Errors
    /// The server rejected a call, or the tree's directory has other content.
    pub fn prepare(
        &self,
        folder: &NfsFolder,
        options: &NfsReplayOptions,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<NfsPreparedTree, NfsReplayError> {
        let options = PrepareOptions {
            name: self.tree_name(options),
            sparse: options.sparse,
            as_traced: options.callers.as_traced(),
        };
        let tree = prepare::prepare(folder, &self.layout, &options, is_stopped)?;
        let summary = self.summary(options.name, tree.found);
        Ok(NfsPreparedTree { tree, summary })
    }

    fn summary(&self, name: String, found: u64) -> NfsReplayTree {
        let layout = &self.layout;
        let mut summary = NfsReplayTree {
            name,
            found,
            hard_links: layout.links.len() as u64,
            invented_names: layout.invented_names,
            only_named: layout.only_named,
            unknown_sizes: layout.unknown_sizes,
            ..NfsReplayTree::default()
        };
        for entry in &layout.entries {
            match entry.what {
                Planted::Directory => summary.directories += 1,
                Planted::File { size_bytes } => {
                    summary.files += 1;
                    summary.bytes = summary.bytes.saturating_add(size_bytes);
                }
                Planted::Symlink { .. } => summary.symlinks += 1,
                Planted::Fifo => summary.fifos += 1,
            }
        }
        summary
    }

    /// Claims the tree for a replay, which changes it. If this fails, this replay must not remove
    /// the tree.
    ///
    /// # Errors
    /// The server rejected a call, or another replay uses the tree.
    pub fn begin(
        &self,
        folder: &NfsFolder,
        prepared: &NfsPreparedTree,
    ) -> Result<(), NfsReplayError> {
        prepare::begin(folder, &prepared.tree)
    }

    /// Sends the calls, after [`NfsReplay::begin`]. The calls change the tree, so it can't be used again.
    ///
    /// # Errors
    /// The server can't be reached.
    pub fn run(
        &self,
        folder: &NfsFolder,
        prepared: NfsPreparedTree,
        options: &NfsReplayOptions,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<NfsReplayFidelity, NfsReplayError> {
        let commands = Commands::new();
        let workload = Workload {
            queue_depth: options.depth,
            timeout: Span(Duration::ZERO),
            drain: Span(DRAIN),
            interval: Span(Duration::ZERO),
            ..Workload::default()
        };
        let replay = || {
            let (run, start) = ((&workload, &commands), || Some(Clock::Monotonic.now()));
            self.replay(folder, prepared, options, run, start, &mut NoRecorder)
        };
        let replayed = std::thread::scope(|scope| {
            let replaying = scope.spawn(replay);
            while !replaying.is_finished() {
                if is_stopped() {
                    commands.give(LoadCommand::Stop);
                }
                std::thread::sleep(LOOK_EVERY);
            }
            let ended = replaying.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Ok(replayed?.fidelity)
    }

    /// Sends the calls as a worker of this workload, from the time that `start` returns once everything is ready.
    fn replay(
        &self,
        folder: &NfsFolder,
        prepared: NfsPreparedTree,
        options: &NfsReplayOptions,
        (workload, commands): (&Workload, &Commands),
        start: impl FnOnce() -> Option<Nanos>,
        recorder: &mut dyn Recorder,
    ) -> Result<Replayed, NfsReplayError> {
        let parts = RunParts {
            folder,
            plan: &self.actions,
            objects: (self.objects, prepared.tree.handles.as_slice()),
            workload,
            commands,
        };
        let CallsSent {
            measures,
            outcome,
            health,
        } = run::run(&parts, options, start, recorder)?;
        Ok(Replayed {
            fidelity: self.judge(&measures, prepared.summary, options),
            unsent: measures.unsent,
            outcome,
            health,
        })
    }

    /// Returns the kinds of the replay's calls.
    fn kinds(&self) -> Vec<OpKind> {
        self.actions.kinds()
    }

    /// Returns the time from the first call to the last.
    fn span_ns(&self) -> u64 {
        self.actions.actions.last().map_or(0, |last| last.start_ns)
    }

    /// Returns the number of calls per second.
    fn rate(&self) -> f64 {
        self.calls() as f64 / (self.span_ns().max(1) as f64 / 1e9)
    }

    /// Returns the operations of the trace that are not in the plan, by reason.
    fn left_out(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.actions.left_out.iter()
    }

    /// Removes the tree.
    ///
    /// # Errors
    /// The server rejected a call, or the tree has more entries than the replay can have created.
    pub fn remove(
        &self,
        folder: &NfsFolder,
        options: &NfsReplayOptions,
    ) -> Result<(), NfsReplayError> {
        let made = |procedure: &Procedure| {
            matches!(
                procedure,
                Procedure::Create
                    | Procedure::Mkdir
                    | Procedure::Symlink
                    | Procedure::Mknod
                    | Procedure::Link
                    | Procedure::Rename
            )
        };
        let procedures = self.actions.actions.iter().map(|action| action.procedure);
        let made = procedures.filter(made).count() as u64;
        let directories = self.actions.actions.iter();
        let directories = directories.filter(|action| action.procedure == Procedure::Mkdir);
        let planted = self.layout.entries.iter();
        let planted = planted.filter(|entry| entry.what == Planted::Directory);
        // A RENAME may move any directory into any other, so in the worst case all directories are nested. Removal is
        // recursive, and each level takes stack space, hence the limit.
        let depth = (planted.count() + directories.count()).min(TREE_DEPTH_MAX) as u32;
        // This includes the marker, and the files that NFS servers keep for files that are removed while open.
        let names_max = self.layout.names() + 2 * made + 64;
        let limits = (names_max, depth);
        prepare::remove(folder, &self.tree_name(options), limits)
    }

    fn judge(
        &self,
        measures: &RunMeasures,
        tree: NfsReplayTree,
        options: &NfsReplayOptions,
    ) -> NfsReplayFidelity {
        let mut left_out = self.actions.left_out.clone();
        for (why, calls) in &measures.left_out {
            *left_out.entry(why.text().to_string()).or_default() += calls;
        }
        let not_allowed: u64 = measures.left_out.values().sum();
        let left_out_count: u64 = left_out.values().sum();
        let statuses_differ = measures.procedures.values().map(|of| of.differ).sum();
        let drift = measures.drift();
        let procedures = measures.procedures.iter();
        let procedures = procedures.filter(|(_, of)| of.planned > 0);
        let unsent = measures.unsent.iter();
        let mut fidelity = NfsReplayFidelity {
            verdict: ReplayVerdict::True,
            reasons: Vec::new(),
            timing: options.timing.name().to_string(),
            speed: options.speed,
            clients: self
                .actions
                .ends
                .iter()
                .filter(|ends| !ends.is_empty())
                .count() as u64,
            connections: measures.connections,
            callers: options.callers.name().to_string(),
            planned: self.calls() - not_allowed,
            sent: measures.sent,
            answered: measures.answered,
            unsent: unsent
                .map(|(why, calls)| (why.text().to_string(), *calls))
                .collect(),
            failed: measures.failed.clone(),
            left_out,
            left_out_share: left_out_count as f64 / self.operations.max(1) as f64,
            procedures: procedures
                .map(|(name, of)| ((*name).to_string(), of.clone()))
                .collect(),
            statuses: measures.statuses(),
            statuses_differ,
            sizes_differ: measures.sizes_differ,
            shortened: measures.shortened,
            guards_dropped: self.actions.guards_dropped,
            moved_bytes: measures.moved_bytes,
            contradictions: self.contradictions,
            damaged_parts: self.damaged_parts,
            tree,
            issue_error: Latencies::of(&measures.issue_error),
            drift: drift.and_then(|(_, share)| share),
            drift_us: drift.map(|(nanos, _)| nanos / 1e3),
            late: measures.late,
            response: Latencies::of(&measures.response),
            seconds: measures.seconds,
            interrupted: measures.interrupted,
        };
        let not_replayable = self.actions.not_replayable + not_allowed;
        fidelity.judge(options.timing, not_replayable);
        fidelity
    }
}

impl NfsReplayFidelity {
    /// Sets the verdict, and the criteria that were missed.
    fn judge(&mut self, timing: ReplayTiming, not_replayable: u64) {
        let mut miss = |value: f64, limits: [f64; 2], what: String| {
            if value > limits[0] {
                let verdict = match value <= limits[1] {
                    true => ReplayVerdict::Degraded,
                    false => ReplayVerdict::NotAReplay,
                };
                self.verdict = self.verdict.max(verdict);
                self.reasons.push(what);
            }
        };
        let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        let calls = self.planned + not_replayable;
        miss(
            share(not_replayable, calls),
            [LOST_DEGRADED_MAX, LEFT_OUT_DEGRADED_MAX],
            format!("{not_replayable} of {calls} NFS calls of the trace were left out"),
        );
        let lost = self.planned - self.answered;
        miss(
            share(lost, self.planned),
            [0.0, LOST_DEGRADED_MAX],
            format!(
                "{lost} of {} calls were not sent or not answered",
                self.planned
            ),
        );
        let differ = self.statuses_differ;
        miss(
            share(differ, self.answered),
            [STATUS_TRUE_MAX, STATUS_DEGRADED_MAX],
            format!(
                "{differ} of {} calls had a different status than in the trace",
                self.answered
            ),
        );
        let p99 = self.issue_error.as_ref().map_or(0.0, |error| error.p99_us);
        if timing != ReplayTiming::Depth {
            miss(
                p99,
                [ISSUE_ERROR_TRUE_MAX_US, ISSUE_ERROR_DEGRADED_MAX_US],
                format!(
                    "one in 100 calls was sent more than {:.1} ms late",
                    p99 / 1e3
                ),
            );
        }
        let drift = self.drift.unwrap_or(0.0).abs();
        let is_long = self
            .drift_us
            .is_some_and(|us| us.abs() * 1e3 > DRIFT_TRUE_MAX_NANOS);
        if timing == ReplayTiming::Trace && is_long {
            miss(
                drift,
                [DRIFT_TRUE_MAX, DRIFT_DEGRADED_MAX],
                format!("the replay drifted by {:.2} %", drift * 100.0),
            );
        }
        if self.interrupted {
            self.verdict = self.verdict.max(ReplayVerdict::Degraded);
            self.reasons.push("it was interrupted".into());
        }
    }
}

/// Returns the folder of an NFS server that a target's URL names.
///
/// # Errors
/// The target is not a folder of an NFS server.
pub fn folder_of(backend: &dyn Backend) -> Result<&NfsFolder, NfsReplayError> {
    let folder = backend.concrete().and_then(|any| any.downcast_ref());
    folder.ok_or_else(|| NfsReplayError::NotAFolder(backend.info().name.clone()))
}
