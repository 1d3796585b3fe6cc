//! `brunt import-fio`: a fio job file becomes an experiment, and what of it cannot is named.
//!
//! The rule: what would measure something else than the job did is refused, unless the user said --lossy.

use std::path::PathBuf;

use brunt_fio::import;
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Turn a fio job file into an experiment
///
/// Jobs become workloads, files and devices become targets; 'brunt run FILE --output-format fio-json' prints
/// figures as fio does. Engines: libaio, io_uring, posixaio, sync, psync, vsync, pvsync and pvsync2 (all
/// through io_uring), null, libiscsi. A job for another engine, an option that an experiment cannot say, or jobs
/// that fio runs at the same time are refused, with the option that is to blame. With --lossy the rest is
/// imported: each loss is named with its line and the reason, on standard error and as a comment in the file, and
/// jobs whose engine has no file or device (cpuio, net, rados and so on) are left out.
#[derive(clap::Args)]
pub struct ImportFio {
    /// The job file
    job: PathBuf,
    /// Where to put the experiment; standard output otherwise
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Import what can be, and say what is lost
    #[arg(long)]
    lossy: bool,
}

impl Subcommand for ImportFio {
    const NAME: &'static str = "import-fio";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt import-fio job.fio", "What it comes to"),
        ("brunt import-fio job.fio -o job.toml", "Keep it; then: brunt run job.toml"),
        ("brunt import-fio job.fio --lossy -o job.toml", "Without what an experiment cannot say"),
    ];

    fn run(self, output: &Output) -> Done {
        let import = import(&self.job, self.lossy)?;
        for remark in &import.remarks {
            let lost = if remark.loss { "lost: " } else { "" };
            output.note(format_args!("{lost}{}: {}: {}", remark.location, remark.key, remark.why));
        }
        match &self.output {
            None if output.is_json() => {}
            None => output.bytes(import.text.as_bytes()),
            Some(path) if path.exists() => {
                return Err(Failure::usage(format!("{} exists already", path.display()))
                    .advise("choose another name, or move it away"));
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
        output.object(&json!({ "experiment": import.experiment, "text": import.text, "remarks": remarks }));
        Ok(())
    }
}
