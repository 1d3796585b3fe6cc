//! `brunt lake push`: moves the parts of a folder to an object store.

use std::path::PathBuf;

use brunt_core::quantity::Span;
use brunt_remote::{
    FolderLock, LakeMark, MoveOptions, Mover, PartSource, RemoteAddress, RemoteError, open_store,
};
use serde_json::json;

use crate::cli::{Done, Failure, Output};
use crate::commands::remote::{failure, left_behind, move_all, source, told};

/// Move the parts of a trace or of results to an object store
///
/// Each part is sent, compared with what the store has then, and deleted here. It can be ended or killed at any time: run it
/// again to go on. docs/object-stores.md says what is compared, and which variables have the credentials.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # move a trace\n  brunt lake push DIR s3://lake/monday\n\n  # copy it\n  brunt lake push DIR s3://lake/monday --keep-local"
)]
pub struct PushArgs {
    /// Folder of a trace (`brunt capture --out`) or of results (`brunt run`).
    folder: PathBuf,

    /// Where to: the prefix is this folder's alone.
    #[arg(value_name = "s3://BUCKET/PREFIX")]
    to: String,

    /// Copy the parts: delete nothing here.
    #[arg(long)]
    keep_local: bool,

    /// Give up when the store has not answered for this long.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    wait: Span,
}

/// Moves what is there.
pub fn run(args: &PushArgs, output: &Output) -> Done {
    let address: RemoteAddress = args.to.parse().map_err(failure)?;
    let interrupted = output.interrupt_flag().clone();
    let stop = std::sync::Arc::new(move || interrupted.load(std::sync::atomic::Ordering::Relaxed));
    let store = open_store(&address, stop).map_err(failure)?;
    let folder = &args.folder;
    if !folder.is_dir() {
        return Err(Failure::usage(format!("{}: no such folder", folder.display())));
    }
    let _lock = FolderLock::exclusive(folder).map_err(failure)?;
    let mut source = source(folder, output)?;
    if source.waiting().parts == 0 && LakeMark::read(folder).map_err(failure)?.is_none() {
        return Err(Failure::usage(format!("{}: has no tables", folder.display()))
            .advise("write the folder of `brunt capture --out` or of results"));
    }
    let mark = LakeMark::read_or_make(folder).map_err(failure)?;
    let mut mover = Mover::new(address, store, mark, MoveOptions { keeps_local: args.keep_local });
    let is_over = |mover: &Mover| {
        output.is_interrupted() || mover.trouble().is_some_and(|(_, silent)| silent > args.wait.0)
    };
    let result = move_all(&mut mover, &mut source, &is_over, output);
    let counts = mover.counts(&source);
    output.line(format_args!("{}: {}", mover.address(), told(&counts)));
    output.object(&json!({ "to": mover.address().to_string(), "moved": counts }));
    match result {
        Ok(()) => left_behind(&counts, None, folder, mover.address()).map_or(Ok(()), Err),
        Err(RemoteError::Interrupted) => {
            let why = mover.trouble().map_or("interrupted".into(), |(error, _)| error.to_string());
            left_behind(&counts, Some(why), folder, mover.address()).map_or(Ok(()), Err)
        }
        Err(error) => Err(failure(error)),
    }
}
