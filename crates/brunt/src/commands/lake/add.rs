//! `brunt lake add`: adds a trace to a lake, which may contain traces from several taps.

use std::path::PathBuf;

use brunt_capture::trace::lake;

use super::WriteArgs;
use crate::cli::{Done, Output};

/// Add a trace to a lake, which may contain traces from several taps
///
/// The trace is added completely or not at all, and is itself not changed. If its capture is still running, run this
/// again to add what was captured since; a trace that was already added completely is not added again.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # a trace from one of several taps\n  brunt lake add LAKE DIR --tap rack7"
)]
pub struct AddArgs {
    /// Folder of the lake; created if missing.
    lake: PathBuf,
    /// Folder of the trace.
    trace: PathBuf,
    /// Name of the place where the trace was captured, unique in the lake.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    tap: String,
    /// Add the trace even if the lake already contains it under another name; its rows are then in the lake twice.
    #[arg(long)]
    duplicate: bool,
    #[command(flatten)]
    write: WriteArgs,
}

pub fn run(args: &AddArgs, output: &Output) -> Done {
    let _lock = super::while_no_mover_runs(&args.trace)?;
    let gathered = lake::add(
        &args.lake,
        &args.trace,
        &args.tap,
        args.duplicate,
        &args.write.options(&args.lake),
    )
    .map_err(super::failure)?;
    super::print(&gathered, output);
    if gathered.damaged.is_empty() {
        super::changed::note_changed_parts(&args.lake, output);
    }
    Ok(())
}
