//! `brunt lake compact`: merges the parts of a trace or lake into larger ones.

use std::path::PathBuf;

use brunt_capture::trace::lake;

use super::WriteArgs;
use crate::cli::{Done, Output};

/// Merge the parts of a trace or lake into larger ones
///
/// Can run at any time: while a capture writes to the folder, while others read it, and again after it was killed.
/// Damaged parts are reported and left as they are.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # merge the small parts of a trace, even while a capture writes to \
     it\n  brunt lake compact DIR\n\n  # merge what was added to a lake into larger parts\n  brunt lake compact \
     LAKE --part-size 512MiB"
)]
pub struct CompactArgs {
    /// Folder of a trace (`brunt capture --out`) or of a lake (`brunt lake add`).
    folder: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

pub fn run(args: &CompactArgs, output: &Output) -> Done {
    let _lock = super::while_no_mover_runs(&args.folder)?;
    let gathered =
        lake::compact(&args.folder, &args.write.options(&args.folder)).map_err(super::failure)?;
    super::print(&gathered, output);
    if gathered.damaged.is_empty() {
        super::changed::note_changed_parts(&args.folder, output);
    }
    Ok(())
}
