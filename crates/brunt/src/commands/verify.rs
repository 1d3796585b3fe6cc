//! `brunt verify`: checks a device against the journals of acknowledged writes after its target crashed. `brunt-load`
//! performs the check.

use std::path::{Path, PathBuf};

use brunt_core::units::{counted, format_size};
use brunt_load::block::audit::{Audit, audit, journals_in};
use brunt_load::block::journals::{MissingJournal, missing_in};
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};
use crate::devices;

/// Check after a crash that no acknowledged write was lost
///
/// A workload with verify = { journal = "FOLDER" } keeps a journal of its writes, their acknowledgements and its
/// flushes. This command reads every block in the journals.
///
/// An acknowledged write must survive if the device has no volatile write cache, if the write bypassed the cache
/// (FUA), or if the same worker sent a flush afterwards and the flush was acknowledged. Exit status 1 if such a write
/// is lost. A write-back cache may lose other writes: they are reported separately and do not change the exit status.
///
/// Journals of workers on other hosts arrive after the run. If some are missing, for example because a host was lost, the
/// output names their workers, and exit status 1 says that not all writes could be checked.
#[derive(clap::Args)]
pub struct Verify {
    /// Folder with the journals of a single run (worker-0.journal, worker-1.journal, …)
    journals: PathBuf,
    /// URL of the device that was written to
    device: String,
}

impl Subcommand for Verify {
    const NAME: &'static str = "verify";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt verify journals/run-0 iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0",
        "after the target crashed",
    )];

    fn run(self, output: &Output) -> Done {
        let journals = journals_in(&self.journals).map_err(Failure::usage)?;
        let missing = missing_in(&self.journals).map_err(Failure::usage)?;
        if journals.is_empty() && missing.is_empty() {
            let advice = match a_run_in(&self.journals) {
                Some(run) => format!("give the folder of a single run, such as {}", run.display()),
                None => "give the folder of a single run, such as FOLDER/run-0".to_string(),
            };
            let what = format!("{} holds no journals", self.journals.display());
            return Err(Failure::usage(what).advise(advice));
        }
        let backend = devices::open(&self.device, true)?;
        let verdict = audit(backend.as_ref(), &journals).map_err(Failure::failed)?;
        let line = |what: &str, blocks: u64| output.line(format_args!("{what:<34}{blocks:>12}"));
        output.line(format_args!("{:<34}{:>12}", "found", "blocks"));
        line("acknowledged, there", verdict.kept);
        line("acknowledged and stable, LOST", verdict.lost);
        line("acknowledged, not flushed, gone", verdict.lost_unflushed);
        line("never acknowledged, there", verdict.unacknowledged_there);
        line("never acknowledged, gone", verdict.unacknowledged_gone);
        for lost in &verdict.extents {
            let what = if lost.stable { "LOST" } else { "not flushed" };
            output.line(format_args!(
                "  {} at {}: {what}; found {}",
                format_size(lost.len),
                lost.offset,
                lost.found
            ));
        }
        let unnamed = verdict.extents_count - verdict.extents.len() as u64;
        if unnamed > 0 {
            output.line(format_args!("  and {unnamed} more extents"));
        }
        if verdict.lost_unflushed > 0 {
            output.note(format_args!(
                "{} blocks that were not flushed are lost, which a write-back cache is allowed to do",
                verdict.lost_unflushed
            ));
        }
        for MissingJournal { worker, why } in &missing {
            output.note(format_args!(
                "the journal of worker {worker} is missing: {why}"
            ));
        }
        output.object(&json(&verdict, &missing));
        match (verdict.lost, missing.len()) {
            (0, 0) => Ok(()),
            (0, missing) => {
                let what = format!("the writes of {} were not checked", counted(missing, "worker"));
                Err(Failure::failed(what).advise("measure again with hosts that stay up until the end"))
            }
            (lost, _) => Err(Failure::failed(format!("{lost} blocks that should be on stable storage are lost"))
                .advise(
                    "check whether the storage ignores flushes or FUA, or claims that it has no write cache",
                )),
        }
    }
}

/// The newest subfolder that contains journals, because the last run overwrote what earlier runs wrote.
fn a_run_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let runs = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    let runs = runs.filter(|run| journals_in(run).is_ok_and(|journals| !journals.is_empty()));
    runs.max_by_key(|run| run.metadata().and_then(|metadata| metadata.modified()).ok())
}

fn json(verdict: &Audit, missing: &[MissingJournal]) -> serde_json::Value {
    let extents = verdict.extents.iter().map(|lost| {
        json!({
            "offset_bytes": lost.offset,
            "length_bytes": lost.len,
            "stable": lost.stable,
            "found": lost.found.word(),
        })
    });
    json!({
        "kept": verdict.kept,
        "lost": verdict.lost,
        "lost_unflushed": verdict.lost_unflushed,
        "unacknowledged_there": verdict.unacknowledged_there,
        "unacknowledged_gone": verdict.unacknowledged_gone,
        "lost_extents": extents.collect::<Vec<_>>(),
        "lost_extents_count": verdict.extents_count,
        "missing_journals": missing.iter().map(|one| json!({ "worker": one.worker, "why": one.why })).collect::<Vec<_>>(),
    })
}
