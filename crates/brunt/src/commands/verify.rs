//! `brunt verify`: after a crash of the target, checks a device against the journals of acknowledged writes.
//! `brunt-load` does the checking.

use std::path::PathBuf;

use brunt_load::block::audit::{audit, journals_in};
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};
use crate::devices;

/// Check after a crash that no acknowledged write was lost
///
/// A workload with verify = { journal = "FOLDER" } keeps a journal of its writes and their acknowledgements. This
/// command reads every block in the journals and reports lost acknowledged writes separately from writes that were
/// never acknowledged. Exit status 1 if an acknowledged write is lost.
#[derive(clap::Args)]
pub struct Verify {
    /// Folder with the journals of one run (worker-0.journal, worker-1.journal, …)
    journals: PathBuf,
    /// URL of the device that was written
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
        if journals.is_empty() {
            return Err(Failure::usage(format!("{} holds no journals", self.journals.display()))
                .advise("give the folder of one run, such as FOLDER/run-0"));
        }
        let backend = devices::open(&self.device, true)?;
        let verdict = audit(backend.as_ref(), &journals).map_err(Failure::failed)?;
        output.line(format_args!("acknowledged and there      {:>12} blocks", verdict.kept));
        output.line(format_args!("acknowledged and LOST       {:>12}", verdict.lost));
        output.line(format_args!("never acknowledged, there   {:>12}", verdict.unacknowledged_there));
        output.line(format_args!("never acknowledged, gone    {:>12}", verdict.unacknowledged_gone));
        for lost in &verdict.named {
            output.line(format_args!(
                "  at {}: write {} is gone, found {:?}",
                lost.offset, lost.generation, lost.found
            ));
        }
        let named: Vec<_> = verdict
            .named
            .iter()
            .map(|lost| json!({ "offset_bytes": lost.offset, "generation": lost.generation, "found": format!("{:?}", lost.found) }))
            .collect();
        output.object(&json!({
            "kept": verdict.kept,
            "lost": verdict.lost,
            "unacknowledged_there": verdict.unacknowledged_there,
            "unacknowledged_gone": verdict.unacknowledged_gone,
            "first_lost": named,
        }));
        match verdict.lost {
            0 => Ok(()),
            lost => Err(Failure::failed(format!("{lost} acknowledged blocks are lost"))),
        }
    }
}
