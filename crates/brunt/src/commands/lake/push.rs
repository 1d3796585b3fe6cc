//! `brunt lake push`: moves the parts of a folder to an object store; if the folder is a lake, copies its newest
//! version.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use brunt_core::quantity::Span;
use brunt_lake::LakeSnapshot;
use brunt_lake::catalog::CATALOG_FOLDER;
use brunt_remote::folder::note_moved;
use brunt_remote::{
    FolderLock, FolderSource, LakeMark, MoveOptions, Mover, PartSource, RemoteAddress, RemoteError,
    StopWaiting, StoreRetry, StoredLake, open_store,
};
use serde_json::json;

use super::push_lake;
use crate::cli::{Done, Failure, Output};
use crate::commands::remote::{describe, failure, left_behind, move_while_answered, source};

/// Move the parts of a trace or of results to an object store, or copy a lake there
///
/// Each part is sent, compared with its copy in the store, and deleted here. The command can be stopped or killed at
/// any time; run it again to continue. docs/object-stores.md describes what is compared and which variables contain
/// the credentials.
///
/// A compacted folder is copied without deleting anything here: first the parts that the store lacks, then the
/// version of the catalog that lists them. Captures and compactions can continue in the folder at the same time.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # move a trace\n  brunt lake push DIR s3://lake/monday\n\n  # copy it\n  brunt lake \
                  push DIR s3://lake/monday --keep-local\n\n  # copy a lake, and delete from the store what was \
                  replaced there a day or more ago\n  brunt lake push LAKE s3://lake/all --delete-old 24h"
)]
pub struct PushArgs {
    /// Folder of a trace (`brunt capture --out`), of results (`brunt run`) or of a lake.
    pub folder: PathBuf,

    /// Address to which to copy; nothing else may use its prefix.
    #[arg(value_name = "s3://BUCKET/PREFIX")]
    to: String,

    /// Copy the parts without deleting anything here. Lakes are always copied.
    #[arg(long)]
    keep_local: bool,

    /// For lakes: delete what readers of the store no longer need, that is, versions that were replaced there at
    /// least this long ago, and their parts [default: nothing is deleted].
    #[arg(long, value_name = "TIME")]
    pub delete_old: Option<Span>,

    /// Give up if the store has not answered for this long.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub wait: Span,
}

/// Moves the parts that exist now.
pub fn run(args: &PushArgs, output: &Output) -> Done {
    let address: RemoteAddress = args.to.parse().map_err(failure)?;
    let interrupted = output.interrupt_flag().clone();
    let stop: StopWaiting = Arc::new(move || interrupted.load(Ordering::Relaxed));
    let store = open_store(&address, Arc::clone(&stop)).map_err(failure)?;
    let folder = &args.folder;
    if !folder.is_dir() {
        return Err(Failure::usage(format!(
            "{}: no such folder",
            folder.display()
        )));
    }
    let held = LakeSnapshot::open_whole(folder).map_err(|error| failure(error.into()))?;
    let mut retry = StoreRetry::new(args.wait.0, stop);
    if held.catalog().is_some() {
        return push_lake::run(args, store, address, &held, &mut retry, output);
    }
    drop(held);
    if args.delete_old.is_some() {
        return Err(Failure::usage(format!(
            "--delete-old is for lakes, but {} is not one",
            folder.display()
        )));
    }
    let _lock = FolderLock::exclusive(folder).map_err(failure)?;
    let mut source = source(folder, output)?;
    if source.waiting().parts == 0 && LakeMark::read(folder).map_err(failure)?.is_none() {
        return Err(
            Failure::usage(format!("{}: has no tables", folder.display()))
                .advise("write the folder of `brunt capture --out` or of results"),
        );
    }
    let mark = LakeMark::read_or_make(folder).map_err(failure)?;
    let mut mover = Mover::new(
        address,
        store,
        mark,
        MoveOptions {
            keeps_local: args.keep_local,
        },
    );
    if let Err(error) = retry.until_answered(|| check_not_hidden(&mover, &source)) {
        let (counts, why) = (mover.counts(&source), error.to_string());
        let left =
            left_behind(&counts, Some(why), folder, mover.address()).filter(|_| error.is_passing());
        return Err(left.unwrap_or_else(|| failure(error)));
    }
    if !args.keep_local {
        note_moved(folder).map_err(failure)?;
    }
    let moved = move_while_answered(&mut mover, &mut source, args.wait.0, output);
    let counts = mover.counts(&source);
    output.line(format_args!("{}: {}", mover.address(), describe(&counts)));
    output.object(&json!({ "to": mover.address().to_string(), "moved": counts }));
    left_behind(&counts, moved?, folder, mover.address()).map_or(Ok(()), Err)
}

/// Rejects parts that a lake at the destination would hide: readers would assume that the lake is complete without
/// them.
fn check_not_hidden(mover: &Mover, source: &FolderSource) -> Result<(), RemoteError> {
    let (store, address) = (mover.store(), mover.address());
    if store.list(&address.key(CATALOG_FOLDER), 1)?.is_empty() {
        return Ok(());
    }
    let stored = StoredLake::read(store, address)?;
    match stored.newest().zip(stored.hides(source.parts())) {
        Some((newest, part)) => {
            let (address, version) = (address.to_string(), newest.version);
            Err(RemoteError::Hidden {
                path: part.path.clone(),
                address,
                version,
            })
        }
        None => Ok(()),
    }
}
