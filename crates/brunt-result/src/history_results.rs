//! The results of a history: read from their folders, sorted by time, and named. `brunt history` and the page of
//! `brunt serve` call it.
//!
//! The rule: names are unique, since they are all that a history shows of a result.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::distinct::distinct_names;
use crate::summary::{FILE_NAME, Summary, SummaryError};
use crate::tables::runs;

/// A result of a history.
#[derive(Debug)]
pub struct HistoryResult {
    /// Folder of the result.
    pub folder: PathBuf,
    /// Empty until [`name_results`] sets it.
    pub name: String,
    /// The result's figures.
    pub summary: Summary,
    /// When its first run began, if its table of runs can be read.
    pub began: Option<SystemTime>,
}

impl HistoryResult {
    /// Reads the result from a folder.
    ///
    /// # Errors
    /// The folder has no readable summary.
    pub fn read(folder: PathBuf) -> Result<HistoryResult, SummaryError> {
        Ok(HistoryResult {
            summary: Summary::read(&folder)?,
            name: String::new(),
            began: runs::first_began(&folder),
            folder,
        })
    }
}

/// Sorts results, oldest first. Returns the number of results that were sorted by a time that copying may have
/// changed.
pub fn sort_by_time(results: &mut [HistoryResult]) -> usize {
    let written = |folder: &Path| folder.join(FILE_NAME).metadata().ok()?.modified().ok();
    results.sort_by_cached_key(|result| result.began.or_else(|| written(&result.folder)));
    let unknown = results.iter().filter(|result| result.began.is_none());
    unknown.count()
}

/// Names results by their labels, or by their folders if they have none. A name that several results would share is
/// extended by the folder, or replaced with the whole path of the folder.
pub fn name_results(results: &mut [HistoryResult]) {
    let short = |folder: &Path| {
        let name = folder.canonicalize().ok()?.file_name()?.to_owned();
        Some(name.to_string_lossy().into_owned())
    };
    let names = |result: &HistoryResult| {
        let path = result.folder.display().to_string();
        let folder = short(&result.folder).unwrap_or_else(|| path.clone());
        match result.summary.label.as_deref().map(plain_label) {
            Some(label) => [
                label.clone(),
                format!("{label} ({folder})"),
                format!("{label} ({path})"),
            ],
            None => [folder.clone(), path.clone(), path],
        }
    };
    let choices = results.iter().map(names).collect();
    for (result, name) in results.iter_mut().zip(distinct_names(choices)) {
        result.name = name;
    }
}

/// Puts a label on one line.
fn plain_label(label: &str) -> String {
    label.split_whitespace().collect::<Vec<_>>().join(" ")
}
