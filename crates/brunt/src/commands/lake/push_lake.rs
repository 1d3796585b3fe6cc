//! `brunt lake push` of a lake: copies the version that is newest when the push begins.

use std::time::{SystemTime, UNIX_EPOCH};

use brunt_core::Span;
use brunt_core::units::counted;
use brunt_lake::LakeSnapshot;
use brunt_remote::mover::MoveCounts;
use brunt_remote::{
    FolderLock, FolderSource, LakeMark, LakePlan, MoveOptions, Mover, RemoteAddress, RemoteError,
    RemoteStore, StoreRetry, StoredLake,
};
use serde_json::json;

use super::push::PushArgs;
use crate::cli::{Done, Failure, Output};
use crate::commands::remote::{describe, failure, left_behind, move_while_answered};

/// Copies what the store lacks and, if requested, deletes what it no longer needs.
pub fn run(
    args: &PushArgs,
    store: Box<dyn RemoteStore>,
    address: RemoteAddress,
    held: &LakeSnapshot,
    retry: &mut StoreRetry,
    output: &Output,
) -> Done {
    let folder = &args.folder;
    let _locks = (
        FolderLock::shared(folder).map_err(failure)?,
        // May run alongside a capture and a compaction, but not alongside another push.
        FolderLock::pushing(folder).map_err(failure)?,
    );
    let mark = LakeMark::read_or_make(folder).map_err(failure)?;
    let mut mover = Mover::new(address, store, mark, MoveOptions { keeps_local: true });
    retry
        .until_answered(|| mover.claim_place())
        .map_err(failure)?;
    let read = |retry: &mut StoreRetry, mover: &Mover| {
        retry
            .until_answered(|| StoredLake::read(mover.store(), mover.address()))
            .map_err(failure)
    };
    let plan = read(retry, &mover)?.plan(held).map_err(failure)?;
    for table in &plan.stale_logs {
        output.note(format_args!(
            "{table}: its Delta Lake log is not copied: it names parts that were replaced (`brunt \
             lake manifest` updates it), or another program has changed it"
        ));
    }
    let counts = send(args, &plan, &mut mover, output)?;
    send_hints(&plan, &mover, retry)?;
    let deleted = match args.delete_old {
        Some(keep) => {
            let stored = read(retry, &mover)?;
            delete_old(&stored, &plan, keep, &mover, retry)?
        }
        None => 0,
    };
    let version = held.catalog().map_or(0, |catalog| catalog.version);
    let more = if deleted > 0 {
        format!("; {} there deleted", counted(deleted, "old object"))
    } else {
        String::new()
    };
    output.line(format_args!(
        "{}: version {version}: {}; {} of its parts already there{more}",
        mover.address(),
        describe(&counts).replacen("moved", "copied", 1),
        plan.known
    ));
    output.object(&json!({
        "to": mover.address().to_string(),
        "moved": counts,
        "version": version,
        "parts_known": plan.known,
        "log_files_sent": plan.logs.len() + plan.hints.len(),
        "logs_left": plan.stale_logs,
        "objects_deleted": deleted,
    }));
    Ok(())
}

/// Replaces the files that lead readers to the newest version.
fn send_hints(plan: &LakePlan, mover: &Mover, retry: &mut StoreRetry) -> Done {
    for hint in &plan.hints {
        let bytes = std::fs::read(&hint.path).map_err(|error| {
            failure(RemoteError::Io {
                path: hint.path.clone(),
                source: error,
            })
        })?;
        let key = mover.address().key(&hint.relative);
        retry
            .until_answered(|| mover.store().replace_bytes(&key, &bytes))
            .map_err(failure)?;
    }
    Ok(())
}

/// Deletes objects that have been outdated for this long; returns their number.
fn delete_old(
    stored: &StoredLake,
    plan: &LakePlan,
    keep: Span,
    mover: &Mover,
    retry: &mut StoreRetry,
) -> Result<usize, Failure> {
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    let outdated = retry.until_answered(|| stored.outdated(mover.store(), plan, keep.0, now_ms));
    let outdated = outdated.map_err(failure)?;
    for key in &outdated {
        retry
            .until_answered(|| mover.store().delete(key))
            .map_err(failure)?;
    }
    Ok(outdated.len())
}

/// Sends a plan's files in order: a file that refers to others is sent after them. Only parts are included in the
/// counts.
fn send(
    args: &PushArgs,
    plan: &LakePlan,
    mover: &mut Mover,
    output: &Output,
) -> Result<MoveCounts, Failure> {
    let mut of_parts = None;
    for files in [&plan.parts, &plan.logs, &plan.version] {
        let mut source = FolderSource::new(files.clone());
        let why = move_while_answered(mover, &mut source, args.wait.0, output)?;
        let counts = mover.counts(&source);
        if let Some(left) = left_behind(&counts, why, &args.folder, mover.address()) {
            output.object(&json!({ "to": mover.address().to_string(), "moved": counts }));
            return Err(left);
        }
        of_parts.get_or_insert(counts);
    }
    Ok(of_parts.unwrap_or_default())
}
