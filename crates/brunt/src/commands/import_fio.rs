//! `brunt import-fio`: converts a fio job file to an experiment, and lists everything that has no equivalent.
//!
//! The rule: an import that would measure something different from the job is rejected, unless the user passes
//! --lossy.

use std::path::PathBuf;

use brunt_fio::import;
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Convert a fio job file to an experiment
///
/// Jobs become workloads; files and devices become targets. 'brunt run FILE --output-format fio-json' prints results
/// in fio's format. Supported engines: libaio, io_uring, posixaio, sync, psync, vsync, pvsync and pvsync2 (all run on
/// io_uring), null, libiscsi, nbd. Other engines, and options without an equivalent, are rejected; the message names
/// the option (docs/fio.md). --lossy imports what it can: each loss is listed with its line and reason, on standard
/// error and as a comment in the file, and jobs whose engine has no file or device (cpuio, net, rados and so on) are
/// skipped.
#[derive(clap::Args)]
pub struct ImportFio {
    /// fio job file
    job: PathBuf,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Import what is possible and list what is lost
    #[arg(long)]
    lossy: bool,
}

impl Subcommand for ImportFio {
    const NAME: &'static str = "import-fio";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt import-fio job.fio", "print the experiment"),
        (
            "brunt import-fio job.fio -o job.toml",
            "save the experiment; then: brunt run job.toml",
        ),
        (
            "brunt import-fio job.fio --lossy -o job.toml",
            "drop options that have no equivalent",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let import = import(&self.job, self.lossy)?;
        for remark in &import.remarks {
            let lost = if remark.loss { "lost: " } else { "" };
            output.note(format_args!(
                "{lost}{}: {}: {}",
                remark.location, remark.key, remark.why
            ));
        }
        match &self.output {
            None if output.is_json() => {}
            None => output.bytes(import.text.as_bytes()),
            Some(path) if path.exists() => {
                return Err(Failure::usage(format!("{} exists already", path.display()))
                    .advise("choose another name, or move the existing file"));
            }
            Some(path) => std::fs::write(path, &import.text)
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?,
        }
        let remarks: Vec<_> = import
            .remarks
            .iter()
            .map(|remark| {
                json!({
                    "place": remark.location.to_string(),
                    "key": remark.key,
                    "why": remark.why,
                    "loss": remark.loss,
                })
            })
            .collect();
        output.object(
            &json!({ "experiment": import.experiment, "text": import.text, "remarks": remarks }),
        );
        Ok(())
    }
}
