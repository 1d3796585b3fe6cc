//! `brunt lake pull`: fetches the parts of a trace from an object store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use brunt_core::quantity::Span;
use brunt_core::units::{counted, format_size};
use brunt_remote::pull::{PullCounts, Puller};
use brunt_remote::{FolderLock, RemoteAddress, StopWaiting, open_store};
use serde_json::json;

use crate::cli::{Done, Failure, Output};
use crate::commands::remote::{failure, progress};

/// Fetch the parts of a trace or of results from an object store
///
/// Parts that are already here are compared and not fetched again, so an attempt that was stopped or killed continues
/// where it stopped. The object store is not changed.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # fetch a trace, to analyze it\n  brunt lake pull s3://lake/monday DIR\n\n  # give up sooner\n  brunt lake pull s3://lake/monday DIR --wait 30s"
)]
pub struct PullArgs {
    /// Address to fetch from.
    #[arg(value_name = "s3://BUCKET/PREFIX")]
    from: String,

    /// Folder to fetch into; created if missing.
    folder: PathBuf,

    /// Give up if the store has not answered for this long.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    wait: Span,
}

/// Fetches the parts that are missing in the folder.
pub fn run(args: &PullArgs, output: &Output) -> Done {
    let address: RemoteAddress = args.from.parse().map_err(failure)?;
    let interrupted = output.interrupt_flag().clone();
    let stop: StopWaiting = Arc::new(move || interrupted.load(Ordering::Relaxed));
    let store = open_store(&address, Arc::clone(&stop)).map_err(failure)?;
    let io = |error| Failure::usage(format!("{}: {error}", args.folder.display()));
    std::fs::create_dir_all(&args.folder).map_err(io)?;
    let _lock = FolderLock::exclusive(&args.folder).map_err(failure)?;
    let bar = progress(0, output);
    let mut counts = PullCounts::default();
    let puller = Puller {
        address: &address,
        store: &*store,
        folder: &args.folder,
        silence_max: args.wait.0,
        stop: &stop,
        progress: &|counts, bytes| {
            bar.set_length(bytes);
            bar.set_position(counts.bytes_fetched + counts.bytes_found);
        },
        tell: &|what| output.note(what),
    };
    let result = puller.run(&mut counts);
    output.set_above(None);
    bar.finish_and_clear();
    let mut told = format!(
        "{} fetched, {}",
        counted(counts.parts_fetched as usize, "part"),
        format_size(counts.bytes_fetched)
    );
    if counts.parts_found > 0 {
        told += &format!("; {} here already", counts.parts_found);
    }
    if counts.objects_left_out > 0 {
        told += &format!(
            "; skipped {} that are not parts",
            counted(counts.objects_left_out as usize, "object")
        );
    }
    output.line(format_args!("{}: {told}", args.folder.display()));
    output.object(&json!({ "from": address.to_string(), "fetched": counts }));
    result.map_err(failure)?;
    if counts.parts_fetched + counts.parts_found == 0 {
        return Err(Failure::failed(format!("{address}: has no parts"))
            .advise("check the prefix: it must be the one given to --to or `brunt lake push`"));
    }
    Ok(())
}
