//! `brunt replay` on a folder on an NFS server: replays the NFS calls of a captured trace. `brunt-load` replays them.

use std::path::Path;
use std::sync::atomic::Ordering;

use brunt_core::units::{counted, format_grouped, format_size};
use brunt_load::nfs_replay::{
    NfsCallers, NfsReplay, NfsReplayError, NfsReplayFidelity, NfsReplayOptions, NfsReplayTree,
    folder_of,
};
use brunt_load::replay::settings::{ReplayTiming, SPIN};
use brunt_result::replay::ReplayVerdict;
use clap::ValueEnum;
use serde_json::json;

use crate::cli::{Done, Failure, Output};
use crate::devices;

/// Maximum number of status differences printed on separate lines.
const DIFFERENCES_SHOWN: usize = 10;

/// Options for replays on a folder on an NFS server.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Options for folders on an NFS server")]
pub struct NfsArgs {
    /// Whose credentials the calls carry. With 'trace', files belong to the owners recorded in the trace, which needs
    /// a user who may change owners (uid=0 in the URL)
    #[arg(long, value_enum, default_value = "target")]
    callers: Callers,
    /// Create files with their full length but without data
    #[arg(long)]
    sparse: bool,
    /// Name of the directory for the files that the trace needs. The default is derived from the trace
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    into: Option<String>,
    /// Only create these files; the next replay of the trace uses them
    #[arg(long)]
    prepare_only: bool,
    /// Keep the files after the replay
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Callers {
    /// The uid and gid in the target's URL
    Target,
    /// The credentials recorded in the trace, where it has AUTH_SYS
    Trace,
}

/// The text isn't a valid name for a directory.
#[derive(Debug, thiserror::Error)]
#[error("write a single name without '/'")]
struct NotAName;

fn file_name(text: &str) -> Result<String, NotAName> {
    match text {
        "" | "." | ".." => Err(NotAName),
        text if text.contains('/') => Err(NotAName),
        text => Ok(text.to_string()),
    }
}

/// Options shared by replays of NFS calls and of block requests.
pub(super) struct SharedArgs<'a> {
    pub(super) trace: &'a Path,
    pub(super) url: &'a str,
    pub(super) timing: ReplayTiming,
    pub(super) speed: f64,
    pub(super) depth: u32,
    pub(super) seed: u64,
}

/// Whether a URL names a folder on an NFS server.
pub(super) fn is_folder(url: &str) -> bool {
    let place = url.split_once('?').map_or(url, |(place, _)| place);
    place.starts_with("nfs://") && place.ends_with('/')
}

impl NfsArgs {
    /// The first given option that applies only to replays on folders.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let NfsArgs {
            callers,
            sparse,
            into,
            prepare_only,
            keep,
        } = self;
        let set = [
            (*callers != Callers::Target, "--callers"),
            (*sparse, "--sparse"),
            (into.is_some(), "--into"),
            (*prepare_only, "--prepare-only"),
            (*keep, "--keep"),
        ];
        set.into_iter()
            .find(|(is_set, _)| *is_set)
            .map(|(_, name)| name)
    }

    pub(super) fn run(self, shared: &SharedArgs<'_>, output: &Output) -> Done {
        let options = self.options(shared)?;
        let SharedArgs { trace, url, .. } = *shared;
        let replay = NfsReplay::read(trace).map_err(|error| failure(&error))?;
        let backend = devices::open(url, false)?;
        let target = backend.info().name.clone();
        if backend.info().read_only {
            return Err(Failure::usage(format!(
                "{target} is opened read-only, but a replay creates files there"
            )));
        }
        let folder = folder_of(backend.as_ref()).map_err(|error| failure(&error))?;
        let flag = output.interrupt_flag();
        let is_stopped = || flag.load(Ordering::Relaxed);
        let prepared = replay.prepare(folder, &options, &is_stopped);
        let prepared = prepared.map_err(|error| failure(&error))?;
        output.line(format_args!(
            "prepared     {}",
            tree_text(&prepared.summary)
        ));
        if self.prepare_only {
            output.line(format_args!(
                "             in {target}{}",
                prepared.summary.name
            ));
            output.object(&json!({ "target": target, "tree": prepared.summary }));
            return Ok(());
        }
        let name = prepared.summary.name.clone();
        replay
            .begin(folder, &prepared)
            .map_err(|error| failure(&error))?;
        let ran = replay.run(folder, prepared, &options, &is_stopped);
        if self.keep {
            output.note(format!("the files stay on the server: {target}{name}"));
        } else if let Err(error) = replay.remove(folder, &options) {
            // This is not an error: the result of the replay matters more.
            output.note(error);
        }
        let fidelity = ran.map_err(|error| failure(&error))?;
        print(&fidelity, trace, &target, output);
        output.object(&json!({
            "target": target,
            "requests": fidelity.sent,
            "verdict": fidelity.verdict,
            "fidelity": fidelity,
        }));
        match trouble(&fidelity) {
            None => Ok(()),
            Some(why) => Err(Failure::failed(why)),
        }
    }

    /// Validates the options of a replay on a folder; block replays check theirs elsewhere.
    fn options(&self, shared: &SharedArgs<'_>) -> Result<NfsReplayOptions, Failure> {
        let SharedArgs {
            trace,
            timing,
            speed,
            depth,
            seed,
            ..
        } = *shared;
        if !(speed.is_finite() && speed > 0.0) {
            return Err(Failure::usage("--speed: give a number greater than 0"));
        }
        if !(1..=brunt_nfs::calls::DEPTH_MAX).contains(&depth) {
            let limit = brunt_nfs::calls::DEPTH_MAX;
            return Err(Failure::usage(format!(
                "--depth: give a number from 1 to {limit}"
            )));
        }
        if !trace.join("operations").is_dir() {
            let what = format!("{} is not a trace saved by brunt capture", trace.display());
            return Err(Failure::usage(what).advise(
                "to replay on an NFS server, name a folder that 'brunt capture --out' wrote; block \
                 traces need a file or a device",
            ));
        }
        Ok(NfsReplayOptions {
            timing,
            speed,
            spin: SPIN,
            depth,
            callers: match self.callers {
                Callers::Target => NfsCallers::Target,
                Callers::Trace => NfsCallers::Trace,
            },
            sparse: self.sparse,
            into: self.into.clone(),
            seed,
        })
    }
}

/// Why the command fails although the calls were sent.
fn trouble(fidelity: &NfsReplayFidelity) -> Option<String> {
    let (sent, planned) = (fidelity.sent, fidelity.planned);
    if fidelity.interrupted {
        return Some(format!(
            "interrupted after {sent} of {planned} calls of the trace"
        ));
    }
    let is_none = fidelity.verdict == ReplayVerdict::NotAReplay;
    is_none.then(|| format!("not a replay: {}", fidelity.reasons.join("; ")))
}

fn failure(error: &NfsReplayError) -> Failure {
    match error {
        NfsReplayError::Trace(_) | NfsReplayError::NoCalls(_) | NfsReplayError::NotAFolder(_) => {
            Failure::usage(error)
        }
        NfsReplayError::OtherContent(_) => {
            Failure::usage(error).advise("choose another directory with --into, or remove this one")
        }
        NfsReplayError::AlreadyReplayed(_) => {
            Failure::usage(error).advise("remove it, or choose another directory with --into")
        }
        NfsReplayError::Differs { .. } => {
            Failure::failed(error).advise("remove the directory; the replay will create it again")
        }
        _ => Failure::failed(error),
    }
}

fn count(count: u64) -> String {
    format_grouped(count as f64)
}

fn tree_text(tree: &NfsReplayTree) -> String {
    let parts = [
        (tree.directories, "directory"),
        (tree.files, "file"),
        (tree.symlinks, "symbolic link"),
        (tree.fifos, "fifo"),
        (tree.hard_links, "hard link"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| match what {
            "directory" if count != 1 => format!("{} directories", format_grouped(count as f64)),
            what => counted(count as usize, what),
        })
        .collect();
    format!("{} with {}", parts.join(", "), format_size(tree.bytes))
}

fn print(fidelity: &NfsReplayFidelity, trace: &Path, target: &str, output: &Output) {
    let line = |label: &str, text: String| output.line(format_args!("{label:<12} {text}"));
    output.line(format_args!(
        "replay of {} by {}, {} clients on {}, on {target}",
        trace.display(),
        match fidelity.timing.as_str() {
            "trace" if fidelity.speed == 1.0 => "its original timing".to_string(),
            "trace" => format!("{} times its speed", fidelity.speed),
            other => other.to_string(),
        },
        count(fidelity.clients),
        counted(fidelity.connections as usize, "connection"),
    ));
    line("verdict", fidelity.verdict.name().to_string());
    for reason in &fidelity.reasons {
        line("", reason.clone());
    }
    let (sent, planned) = (count(fidelity.sent), count(fidelity.planned));
    line(
        "calls",
        format!(
            "{sent} of {planned} sent, {} answered, {}/s, as the {}'s users",
            count(fidelity.answered),
            format_grouped(fidelity.sent as f64 / fidelity.seconds),
            fidelity.callers
        ),
    );
    for (why, calls) in &fidelity.unsent {
        line("not sent", format!("{} {why}", count(*calls)));
    }
    for (why, calls) in &fidelity.failed {
        line("failed", format!("{} {why}", count(*calls)));
    }
    let of_all = 100.0 * fidelity.left_out_share;
    let together: u64 = fidelity.left_out.values().sum();
    for (why, calls) in &fidelity.left_out {
        let share = of_all * *calls as f64 / together.max(1) as f64;
        line(
            "left out",
            format!("{} ({share:.2} %) {why}", count(*calls)),
        );
    }
    if !fidelity.left_out.is_empty() {
        line(
            "",
            format!("together, {of_all:.2} % of the trace's operations"),
        );
    }
    print_statuses(fidelity, output);
    print_times(fidelity, output);
    print_guesses(fidelity, output);
}

fn print_statuses(fidelity: &NfsReplayFidelity, output: &Output) {
    let line = |label: &str, text: String| output.line(format_args!("{label:<12} {text}"));
    let unknown: u64 = fidelity.procedures.values().map(|of| of.unknown).sum();
    let unknown = match unknown {
        0 => String::new(),
        unknown => format!("; for {} more, the trace has no status", count(unknown)),
    };
    line(
        "statuses",
        format!("{} differ{unknown}", count(fidelity.statuses_differ)),
    );
    for difference in fidelity.statuses.iter().take(DIFFERENCES_SHOWN) {
        line(
            "",
            format!(
                "{} {}: {} instead of {} ({})",
                count(difference.calls),
                difference.operation,
                difference.target,
                difference.trace,
                difference.cause.text()
            ),
        );
    }
    if let Some(further) = fidelity.statuses.get(DIFFERENCES_SHOWN..)
        && !further.is_empty()
    {
        let calls = further.iter().map(|difference| difference.calls).sum();
        line(
            "",
            format!("{} differ in {} other ways", count(calls), further.len()),
        );
    }
    let [traced, moved] = fidelity.moved_bytes.map(format_size);
    line(
        "data",
        format!(
            "{moved} moved (trace {traced}), {} READ and WRITE calls moved a different number of bytes, {} shortened",
            count(fidelity.sizes_differ),
            count(fidelity.shortened)
        ),
    );
}

fn print_times(fidelity: &NfsReplayFidelity, output: &Output) {
    let line = |label: &str, text: String| output.line(format_args!("{label:<12} {text}"));
    let times = [
        ("response", &fidelity.response),
        ("issue error", &fidelity.issue_error),
    ];
    for (label, times) in times {
        if let Some(times) = times {
            line(
                label,
                format!(
                    "mean {:.1} µs, p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
                    times.mean_us, times.p50_us, times.p99_us, times.max_us
                ),
            );
        }
    }
    if let (Some(drift), Some(us)) = (fidelity.drift, fidelity.drift_us) {
        line("drift", format!("{:.4} %, {us:.1} µs", drift * 100.0));
    }
    if fidelity.issue_error.is_some() {
        let late = fidelity.late;
        line(
            "late",
            format!(
                "{} over 100 µs (worker {}, dependency {}, depth {})",
                count(late.total()),
                count(late.worker),
                count(late.dependency),
                count(late.depth)
            ),
        );
    }
}

/// Prints what the trace lacked and the replay had to assume.
fn print_guesses(fidelity: &NfsReplayFidelity, output: &Output) {
    let tree = &fidelity.tree;
    let guesses = [
        (
            tree.invented_names,
            "names were not captured and had to be invented",
        ),
        (tree.only_named, "files are identified only by their names"),
        (
            tree.unknown_sizes,
            "files of unknown length were created up to the end of their last read in the trace",
        ),
        (
            fidelity.guards_dropped,
            "SETATTR calls were sent without their guard",
        ),
        (
            fidelity.contradictions,
            "replies contradict earlier ones: calls between them were not captured",
        ),
        (
            fidelity.damaged_parts,
            "parts of the trace are damaged and were skipped",
        ),
    ];
    for (number, what) in guesses.into_iter().filter(|(number, _)| *number > 0) {
        output.line(format_args!("{:<12} {} {what}", "unknown", count(number)));
    }
}
