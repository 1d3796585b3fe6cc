//! `brunt report`: writes a result's report page from the files on disk. `brunt run` calls the same function at its
//! end.

use std::path::{Path, PathBuf};

use brunt_report::experiment::{self, ComparedResult, Details};
use brunt_report::html;
use brunt_result::run_log;
use brunt_result::summary::{self, Summary};
use brunt_study::results::{ClaimError, ClaimedFolder};
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Write a result's report: one self-contained HTML page with charts and tables
///
/// `brunt run` writes it into the results folder. This command writes it again, even for an experiment that is
/// running or was killed. If the experiment was killed, its finished runs are added to summary.json.
#[derive(clap::Args)]
pub struct Report {
    /// Results folder
    folder: PathBuf,
    /// Further results folders: the page compares the first result with each of them, with the verdicts of `brunt
    /// compare`
    others: Vec<PathBuf>,
    /// Output file [default: report.html in the results folder, or comparison.html in the last one]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Subcommand for Report {
    const NAME: &'static str = "report";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt report quick.results",
            "write quick.results/report.html",
        ),
        (
            "brunt report quick.results -o monday.html",
            "write it elsewhere",
        ),
        (
            "brunt report before.results after.results",
            "compare results, with charts of both",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let folders: Vec<&Path> = std::iter::once(&self.folder)
            .chain(&self.others)
            .map(PathBuf::as_path)
            .collect();
        let results = experiment::read_to_compare(&folders, &[]).map_err(|error| {
            let advice = error.advice();
            Failure::usage(error).advise(advice)
        })?;
        let summary = &results[0];
        if let Some(note) = summary.judged_note() {
            output.note(note);
        }
        let (text, file) = match self.others.last() {
            None => (
                experiment::text(summary, &self.folder),
                self.folder.join(experiment::FILE_NAME),
            ),
            Some(last) => (compared(&folders, &results), last.join("comparison.html")),
        };
        if let Err(error) = add_logged_runs(&self.folder) {
            output.note(format_args!(
                "cannot add the runs in {} to {}: {error}",
                run_log::FILE_NAME,
                summary::FILE_NAME
            ));
        }
        let file = self.output.unwrap_or(file);
        put(&text, &file)
            .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
        output.line(format_args!("report in {}", file.display()));
        output
            .object(&json!({ "report": file, "bytes": text.len(), "complete": summary.complete }));
        Ok(())
    }
}

/// The page that compares the first result with the others.
fn compared(folders: &[&Path], results: &[Summary]) -> String {
    let read = folders.iter().zip(results);
    let details: Vec<Details> = read
        .map(|(folder, summary)| Details::read(folder, summary))
        .collect();
    let names: Vec<String> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    let each = names.iter().zip(results).zip(&details);
    let each: Vec<ComparedResult<'_>> = each
        .map(|((name, summary), details)| ComparedResult {
            name,
            summary,
            details,
        })
        .collect();
    html::render(&experiment::comparison(&each))
}

/// If an experiment was killed, writes its summary with the runs from its log, for programs that read only the
/// summary.
fn add_logged_runs(folder: &Path) -> std::io::Result<()> {
    let is_stopped = || matches!(ClaimedFolder::of(folder), Err(ClaimError::HasResults(_)));
    match folder.join(run_log::FILE_NAME).exists() && is_stopped() {
        // The log is kept: readers skip runs that are already in the summary.
        true => Summary::read(folder)
            .map_err(std::io::Error::other)?
            .write(folder),
        false => Ok(()),
    }
}

/// Writes the page of a result to `file`.
pub(super) fn write(summary: &Summary, folder: &Path, file: &Path) -> std::io::Result<()> {
    put(&experiment::text(summary, folder), file)
}

/// Replaces the whole file atomically, so that a failure leaves it unchanged.
pub(super) fn put(text: &str, file: &Path) -> std::io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, file)
}
