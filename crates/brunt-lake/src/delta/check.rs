//! Compares a log with its checksums, its own contents, and the catalog versions it was written from.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::checkpoint::CheckpointDiffers;
use super::log::{Log, names_in};
use super::sums::{self, LogSums};
use super::{CHANGED, DeltaError, LOG_FOLDER, checkpoint, encoded, io_error, version_path};
use crate::catalog::{Catalog, LakePart};
use crate::table::Table;

/// Problems with the log of a table in `root`; empty if the table has no log. `catalogs` are the readable versions of
/// the catalog, oldest first.
///
/// # Errors
/// The log cannot be read.
pub fn check_log(
    root: &Path,
    table: &Table,
    catalogs: &[Catalog],
) -> Result<Vec<DeltaError>, DeltaError> {
    Ok(inspect(root, table, catalogs)?.problems)
}

/// The result of a check.
#[derive(Default)]
pub(super) struct Inspected {
    pub problems: Vec<DeltaError>,
    /// Whether the log lists the wrong parts, or can't be shown to list the right ones.
    pub is_wrong: bool,
    /// Whether checkpoints exist or existed.
    pub has_checkpoints: bool,
    /// The state of the log, as far as it is readable.
    pub log: Log,
}

impl Inspected {
    fn damaged(&mut self, path: PathBuf, what: impl Into<String>) {
        let what = what.into();
        self.problems.push(DeltaError::Damaged { path, what });
    }
}

pub(super) fn inspect(
    root: &Path,
    table: &Table,
    catalogs: &[Catalog],
) -> Result<Inspected, DeltaError> {
    let table_folder = root.join(table.name);
    let folder = table_folder.join(LOG_FOLDER);
    let mut found = Inspected::default();
    if !folder.exists() {
        return Ok(found);
    }
    let sums = LogSums::read(&folder);
    let is_unsummed = matches!(sums, Ok(None));
    let sums = sums.ok().flatten().unwrap_or_default();
    let (mut problems, mut differences, mut of_checkpoints) = (Vec::new(), Vec::new(), Vec::new());
    let mut hints = BTreeMap::new();
    let mut is_marked = false;
    found.log = Log::read_all(&folder, &mut problems, |log, version| {
        let written_from = version.catalog;
        is_marked |= written_from.is_some();
        let catalog = catalogs.iter().find(|c| Some(c.version) == written_from);
        let path = version_path(&folder, version.number);
        differences.extend(catalog.and_then(|catalog| difference(log, table, catalog, path)));
        let path = checkpoint::path_of(&folder, version.number);
        match check_checkpoint(&path, &sums, log) {
            Ok(hint) => hints.extend(hint.map(|hint| (version.number, hint))),
            Err(error) => of_checkpoints.push(error),
        }
    })?;
    found.is_wrong = found.log.is_broken || !differences.is_empty();
    found.problems = problems;
    found.problems.append(&mut differences);
    found.problems.append(&mut of_checkpoints);
    if is_unsummed && is_marked {
        found.damaged(folder.join(sums::NAME), "is missing");
    }
    let newest = catalogs.last();
    let expected = newest.map_or(0, |newest| newest.parts(table.name).len());
    if found.log.next == 0 && found.problems.is_empty() && expected > 0 {
        found.is_wrong = true;
        found.damaged(folder.clone(), "has no versions");
    }
    if !found.is_wrong {
        found.find_lost_parts(&table_folder, &folder);
    }
    found.check_checkpoints(&folder, &sums, &hints)?;
    Ok(found)
}

impl Inspected {
    /// Adds parts that the newest version names but that are missing or truncated; compactions keep such parts, so they
    /// were lost.
    fn find_lost_parts(&mut self, table: &Path, folder: &Path) {
        let is_lost = |(path, part): &(&String, &super::log::Add)| {
            let about = table.join(path).metadata();
            !about.is_ok_and(|about| about.len() == part.size)
        };
        let mut lost = self.log.parts.iter().filter(is_lost).map(|(path, _)| path);
        let Some(first) = lost.next().cloned() else {
            return;
        };
        let others = lost.count();
        self.is_wrong = true;
        let newest = version_path(folder, self.log.next.saturating_sub(1));
        let what =
            format!("the log up to this version lists {first}, which is missing or truncated");
        self.damaged(newest, with_others(what, others));
    }

    /// Adds missing checkpoints and problems with the hint.
    fn check_checkpoints(
        &mut self,
        folder: &Path,
        sums: &LogSums,
        hints: &BTreeMap<u64, String>,
    ) -> Result<(), DeltaError> {
        let names = names_in(folder)?;
        let version_of = |name: &String| checkpoint::version_of(name);
        let written: Vec<u64> = sums.files.keys().filter_map(version_of).collect();
        let existing: Vec<u64> = names.iter().filter_map(version_of).collect();
        for version in &written {
            if !existing.contains(version) {
                self.damaged(checkpoint::path_of(folder, *version), "is missing");
            }
        }
        let next = self.log.next;
        for version in existing.iter().filter(|version| **version >= next) {
            let what = "is a checkpoint of a version that doesn't exist";
            self.damaged(checkpoint::path_of(folder, *version), what);
        }
        let path = folder.join(checkpoint::HINT);
        let hint = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            hint => Some(hint.map_err(io_error(&path))?),
        };
        self.has_checkpoints = hint.is_some() || !written.is_empty() || !existing.is_empty();
        let Some(hint) = hint else {
            if self.has_checkpoints {
                self.damaged(path, "is missing");
            }
            return Ok(());
        };
        let what = match checkpoint::hinted(&hint) {
            None => "cannot be parsed as a hint to the last checkpoint",
            Some(version) if !written.contains(&version) && !existing.contains(&version) => {
                "refers to a checkpoint that doesn't exist"
            }
            Some(version) if written.iter().any(|newer| *newer > version) => {
                "doesn't refer to the newest checkpoint"
            }
            Some(version) => match hints.get(&version) {
                Some(expected) if expected.as_bytes() != hint => "doesn't match its checkpoint",
                _ => return Ok(()),
            },
        };
        self.damaged(path, what);
        Ok(())
    }
}

/// The hint for the checkpoint at this path, if the checkpoint exists and agrees with the state of the log.
fn check_checkpoint(path: &Path, sums: &LogSums, log: &Log) -> Result<Option<String>, DeltaError> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(io_error(path))?,
    };
    let name = path.file_name().and_then(|name| name.to_str());
    let compared = match name.and_then(|name| sums.is_same(name, &bytes)) {
        Some(false) => Err(CheckpointDiffers(CHANGED.to_string())),
        _ => checkpoint::compare(bytes, log),
    };
    compared
        .map(Some)
        .map_err(|CheckpointDiffers(what)| DeltaError::Damaged {
            path: path.to_path_buf(),
            what,
        })
}

/// The difference between the log's state and the catalog version that its newest version was written from.
fn difference(log: &Log, table: &Table, catalog: &Catalog, path: PathBuf) -> Option<DeltaError> {
    let below = |part: &LakePart| {
        let below = part.path.strip_prefix(table.name)?.strip_prefix('/')?;
        Some(encoded(below))
    };
    let listed: BTreeMap<String, &LakePart> = catalog
        .parts(table.name)
        .iter()
        .filter_map(|part| Some((below(part)?, part)))
        .collect();
    let version = catalog.version;
    let lacking = listed.iter().filter_map(|(path, part)| {
        let Some(named) = log.parts.get(path) else {
            return Some(format!(
                "lacks {path}, which is in version {version} of the catalog"
            ));
        };
        let is_same = named.size == part.bytes && named.rows() == Some(part.rows);
        (!is_same).then(|| {
            format!(
                "has a different size or number of rows for {path} than version {version} of \
                the catalog"
            )
        })
    });
    let extra = log
        .parts
        .keys()
        .filter(|path| !listed.contains_key(*path))
        .map(|path| format!("lists {path}, which is not in version {version} of the catalog"));
    let mut differences = lacking.chain(extra);
    let first = differences.next()?;
    let what = with_others(
        format!("the log up to this version {first}"),
        differences.count(),
    );
    Some(DeltaError::Damaged { path, what })
}

fn with_others(what: String, others: usize) -> String {
    match others {
        0 => what,
        _ => format!("{what}, and there are {others} other differences"),
    }
}
