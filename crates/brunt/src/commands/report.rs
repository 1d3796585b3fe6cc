//! `brunt report`: the page of a result, made again from what is on disk. `brunt run` makes it at
//! its end by the same function.

use std::path::{Path, PathBuf};

use brunt_report::experiment::{self, Details};
use brunt_report::html;
use brunt_study::summary::Summary;
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// The page's name in a result's folder.
pub const FILE_NAME: &str = "report.html";

/// Make the page of a result: one HTML file with charts and tables, that needs nothing else
///
/// `brunt run` leaves it beside its results; this makes it anew, also for an experiment that was
/// interrupted.
#[derive(clap::Args)]
pub struct Report {
    /// Folder of the result
    folder: PathBuf,
    /// Where the page goes; default: report.html in the folder
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Subcommand for Report {
    const NAME: &'static str = "report";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt report quick.results", "Make quick.results/report.html"),
        ("brunt report quick.results -o monday.html", "Make it elsewhere"),
    ];

    fn run(self, output: &Output) -> Done {
        let summary = Summary::read(&self.folder).map_err(|error| {
            Failure::usage(error).advise("name a folder that `brunt run` has written results to")
        })?;
        let file = self.output.unwrap_or_else(|| self.folder.join(FILE_NAME));
        let bytes = write(&summary, &self.folder, &file)
            .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
        output.line(format_args!("report in {}", file.display()));
        output.object(&json!({ "report": file, "bytes": bytes, "complete": summary.complete }));
        Ok(())
    }
}

/// Writes the page of a result to `file`, whole or not at all; its length.
pub(super) fn write(summary: &Summary, folder: &Path, file: &Path) -> std::io::Result<usize> {
    let details = Details::read(folder, summary);
    let text = html::render(&experiment::page(summary, &details));
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, &text)?;
    std::fs::rename(&new, file)?;
    Ok(text.len())
}
