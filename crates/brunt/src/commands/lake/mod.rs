//! `brunt lake`: maintains the tables of traces and results after they were written. `brunt_capture::trace::lake`
//! combines traces and keeps their parts large; `brunt-remote` moves them to object stores.

mod add;
mod changed;
mod check;
mod compact;
mod manifest;
mod pull;
mod push;
mod push_lake;
mod repeat;

use std::path::Path;
use std::time::Duration;

use brunt_capture::trace::ReplayError;
use brunt_capture::trace::lake::{GatherError, GatherOptions, Gathered};
use brunt_core::quantity::{Size, Span};
use brunt_lake::LakeError;
use brunt_lake::delta::has_log;
use brunt_lake::place::Grain;
use brunt_remote::folder::is_moved;
use brunt_remote::{FolderLock, RemoteError};
use serde_json::json;

use super::{Subcommand, remote};
use crate::cli::{Done, Failure, Output};

/// Combine traces, compact their parts, and move them to object stores
///
/// A lake is a folder in which the parts of traces are large and ordered by time, with indexes; a catalog lists which
/// parts are live. `brunt sql`, `brunt analyze` and the Python package read a lake like a trace. docs/lake.md
/// describes it.
#[derive(clap::Args)]
pub struct Lake {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Compact(compact::CompactArgs),
    Add(add::AddArgs),
    Check(check::CheckArgs),
    Manifest(manifest::ManifestArgs),
    Repeat(repeat::RepeatArgs),
    Push(push::PushArgs),
    Pull(pull::PullArgs),
}

/// How parts are written.
#[derive(clap::Args)]
struct WriteArgs {
    /// Size at which a part is completed.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    part_size: Size,

    /// How a new lake is partitioned by time [default: by hour if an hour would fill half of a part, otherwise by
    /// day].
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,

    /// Keep replaced parts for at least this long [default: 10m if tables have Delta Lake logs, whose readers hold no
    /// lock, otherwise 0s]. Parts are always kept while `brunt` or the Python package reads them, or while a log's
    /// newest version names them.
    #[arg(long, value_name = "TIME")]
    keep_old: Option<Span>,
}

/// After this time, queries that use the log have either finished or opened all their files.
const KEEP_OLD_WITH_LOG: Duration = Duration::from_secs(600);

/// `--by`.
#[derive(clap::ValueEnum, Clone, Copy)]
enum By {
    /// Folders `date=…/hour=…`.
    Hour,
    /// Folders `date=…`.
    Day,
}

impl WriteArgs {
    /// The options for the lake in `root`.
    fn options(&self, root: &Path) -> GatherOptions {
        let keep_old = self.keep_old.map(|span| span.0);
        GatherOptions {
            part_bytes: self.part_size.0.max(1),
            grain: self.by.map(|by| match by {
                By::Hour => Grain::Hour,
                By::Day => Grain::Day,
            }),
            keep_old: keep_old.unwrap_or(if has_log(root) {
                KEEP_OLD_WITH_LOG
            } else {
                Duration::ZERO
            }),
        }
    }
}

impl Subcommand for Lake {
    const NAME: &'static str = "lake";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt lake compact DIR",
            "merge the small parts of a trace, even while a capture writes to it",
        ),
        (
            "brunt lake add LAKE DIR --tap rack7",
            "add a trace to a lake with traces from several taps",
        ),
        (
            "brunt lake compact LAKE --part-size 512MiB",
            "merge what was added",
        ),
        (
            "brunt lake check LAKE",
            "find missing and damaged parts; --repair restores a lost catalog",
        ),
        (
            "brunt lake manifest LAKE",
            "write Delta Lake logs of compacted tables",
        ),
        (
            "brunt lake repeat DIR --rows 2000000000 --out LAKE",
            "make a large lake for measurements from copies of a trace",
        ),
        (
            "brunt lake push DIR s3://lake/monday",
            "move a trace to an object store",
        ),
        (
            "brunt lake push LAKE s3://lake/all",
            "copy a compacted lake there: after the first time, only what was added since",
        ),
        (
            "brunt lake pull s3://lake/monday DIR",
            "fetch it for analysis",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        match self.what {
            What::Compact(args) => compact::run(&args, output),
            What::Add(args) => add::run(&args, output),
            What::Check(args) => check::run(&args, output),
            What::Manifest(args) => manifest::run(&args, output),
            What::Repeat(args) => repeat::run(&args, output),
            What::Push(args) => push::run(&args, output),
            What::Pull(args) => pull::run(&args, output),
        }
    }
}

/// Prevents other processes from moving a trace's parts to an object store meanwhile, because moved parts would be
/// missing here. Rejects a folder whose parts have already been moved.
fn while_no_mover_runs(folder: &Path) -> Result<Option<FolderLock>, Failure> {
    // If the path isn't a folder, other code reports that.
    let lock = folder
        .is_dir()
        .then(|| FolderLock::shared(folder))
        .transpose()
        .map_err(remote::failure)?;
    if is_moved(folder) {
        return Err(remote::failure(RemoteError::Moved {
            path: folder.to_path_buf(),
        }));
    }
    Ok(lock)
}

/// Prints a summary of the work done.
fn print(gathered: &Gathered, output: &Output) {
    let counts = &gathered.counts;
    for damaged in &gathered.damaged {
        output.note(format_args!("left out: {damaged}"));
    }
    output.line(format_args!(
        "added       {} parts, {} rows, {} bytes",
        counts.parts_taken_in, counts.rows_taken_in, counts.bytes_taken_in
    ));
    output.line(format_args!(
        "merged      {} small parts",
        counts.parts_merged
    ));
    output.line(format_args!(
        "written     {} parts, {} bytes",
        counts.parts_written, counts.bytes_written
    ));
    output.line(format_args!(
        "deleted     {} old parts",
        counts.parts_deleted
    ));
    if counts.parts_kept > 0 {
        output.line(format_args!(
            "kept        {} old parts, for readers, --keep-old or Delta logs; a later compaction deletes them",
            counts.parts_kept
        ));
    }
    if gathered.is_running {
        output.line(
            "a capture is still writing: parts that it has not completed are left as they are",
        );
    }
    let damaged: Vec<_> = gathered.damaged.iter().map(LakeError::to_string).collect();
    let mut object = json!(counts);
    object["capture_is_running"] = json!(gathered.is_running);
    object["damaged"] = json!(damaged);
    output.object(&object);
}

/// Maps an error to an exit status and advice.
fn failure(error: GatherError) -> Failure {
    match &error {
        GatherError::Trace(ReplayError::Lake(_)) | GatherError::Lake(LakeError::Io { .. }) => {
            Failure::failed(&error)
        }
        GatherError::Lake(LakeError::Full { .. }) => Failure::failed(&error)
            .advise("run it again when there is space: it continues where it stopped"),
        GatherError::Lake(LakeError::Busy { .. }) | GatherError::Starting(_) => {
            Failure::failed(&error)
        }
        GatherError::Lake(_) | GatherError::Trace(_) => Failure::usage(&error),
        GatherError::Grain { .. } => Failure::usage(&error).advise("leave out --by"),
        GatherError::Itself(_) => Failure::usage(&error)
            .advise("compact it with `brunt lake compact`, or name another lake"),
        GatherError::Known(_) => Failure::usage(&error).advise(
            "use that --tap to add only what is new, or --duplicate to add all of it again",
        ),
        GatherError::OtherTrace(_) => Failure::usage(&error).advise("choose another --tap"),
        GatherError::Nested(_) | GatherError::Running(_) | GatherError::TooMany { .. } => {
            Failure::usage(&error)
        }
    }
}
