//! `brunt import-fio`: a fio job file becomes an experiment, and what of it cannot is named.

use std::path::PathBuf;

use brunt_fio::import;
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Turn a fio job file into an experiment
///
/// Every key that an experiment cannot say is named with its line and the reason, here and as a comment
/// in the file. Jobs become workloads, files and devices become targets; 'brunt run FILE
/// --output-format fio-json' prints figures as fio does.
#[derive(clap::Args)]
pub struct ImportFio {
    /// The job file
    job: PathBuf,
    /// Where to put the experiment; standard output otherwise
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Subcommand for ImportFio {
    const NAME: &'static str = "import-fio";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt import-fio job.fio", "What it comes to"),
        ("brunt import-fio job.fio -o job.toml", "Keep it; then: brunt run job.toml"),
    ];

    fn run(self, output: &Output) -> Done {
        let import = import(&self.job)?;
        for remark in &import.remarks {
            output.note(format_args!("{}: {}: {}", remark.location, remark.key, remark.why));
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
            .map(|remark| json!({ "place": remark.location.to_string(), "key": remark.key, "why": remark.why }))
            .collect();
        output.object(&json!({ "experiment": import.experiment, "text": import.text, "remarks": remarks }));
        Ok(())
    }
}
