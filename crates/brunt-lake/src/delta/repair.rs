//! Repairs a log using the catalog.
//!
//! ```text
//!   the versions are intact ──► new checkpoint, hint and checksums
//!   a version is missing or wrong ──► a new log with the parts of the catalog replaces the old one
//! ```
//!
//! The rule: parts are never touched, damaged files are kept as `*.damaged`, and a log that another program has
//! continued is left alone.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::check::{Inspected, inspect};
use super::log::Log;
use super::{
    DeltaError, LOG_FOLDER, checkpoint, commit, io_error, next_version, now_ms, sums, wanted,
};
use crate::catalog::Catalog;
use crate::table::Table;

/// The folder where a new log is written.
const NEW_FOLDER: &str = "_delta_log.new";

/// Result of repairing a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRepair {
    /// Checkpoints, the hint or the checksums were rewritten; the versions were intact.
    Mended {
        /// The table.
        table: &'static str,
    },
    /// The log was replaced by a new one that begins with the parts of the newest catalog version.
    Rewritten {
        /// The table.
        table: &'static str,
        /// Path of the old log.
        aside: PathBuf,
    },
}

/// Repairs the log of a table in `root` from the newest of these catalog versions. `None` if there is nothing to repair
/// or another program may have written part of the log.
///
/// # Errors
/// A part cannot be read, or the disk failed; the log is then unchanged.
pub fn repair_log(
    root: &Path,
    table: &'static Table,
    catalogs: &[Catalog],
) -> Result<Option<LogRepair>, DeltaError> {
    let found = inspect(root, table, catalogs)?;
    let is_ours = |problem: &DeltaError| matches!(problem, DeltaError::Damaged { .. });
    let Some(newest) = catalogs.last() else {
        return Ok(None);
    };
    if found.problems.is_empty() || !found.problems.iter().all(is_ours) {
        return Ok(None);
    }
    let folder = root.join(table.name);
    if !found.is_wrong {
        mend(&folder.join(LOG_FOLDER), &found)?;
        return Ok(Some(LogRepair::Mended { table: table.name }));
    }
    let aside = rewrite(root, &folder, table, newest, found.log)?;
    Ok(Some(LogRepair::Rewritten {
        table: table.name,
        aside,
    }))
}

/// Rewrites everything except the versions.
fn mend(folder: &Path, found: &Inspected) -> Result<(), DeltaError> {
    let mut damaged = Vec::new();
    for problem in &found.problems {
        let DeltaError::Damaged { path, .. } = problem else {
            continue;
        };
        if path.exists() {
            let aside = free_name(path);
            std::fs::hard_link(path, &aside).map_err(io_error(&aside))?;
            damaged.push(path);
        }
    }
    let newest = checkpoint::path_of(folder, found.log.next.saturating_sub(1));
    if found.has_checkpoints {
        checkpoint::write(&found.log, folder, now_ms())?;
    }
    let replaced = [
        &newest,
        &folder.join(checkpoint::HINT),
        &folder.join(sums::NAME),
    ];
    for path in damaged.into_iter().filter(|path| !replaced.contains(path)) {
        std::fs::remove_file(path).map_err(io_error(path))?;
    }
    sums::write_all(folder)
}

/// Replaces a log with a new one. Returns the path of the old one.
fn rewrite(
    root: &Path,
    folder: &Path,
    table: &'static Table,
    catalog: &Catalog,
    old: Log,
) -> Result<PathBuf, DeltaError> {
    let (log_folder, new) = (folder.join(LOG_FOLDER), folder.join(NEW_FOLDER));
    match std::fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&new)(error)),
        _ => {}
    }
    let parts = catalog.parts(table.name).iter();
    let parts: Vec<PathBuf> = parts.map(|part| root.join(&part.path)).collect();
    // Keep the table's identity.
    let empty = Log {
        meta_data: old.meta_data,
        ..Log::default()
    };
    let wanted = wanted(folder, &parts)?;
    let first = next_version(table, folder, &empty, catalog.version, &wanted)?;
    let aside = free_name(&log_folder);
    match first {
        Some((version, actions)) => {
            commit(&new, version.version, &actions)?;
            sums::write_all(&new)?;
            exchange(&new, &log_folder, &aside).map_err(io_error(&log_folder))?;
        }
        // Tables without parts have no log.
        None => std::fs::rename(&log_folder, &aside).map_err(io_error(&log_folder))?,
    }
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(io_error(folder))?;
    Ok(aside)
}

/// Puts a new log in place of the old one, atomically if the file system can exchange names.
fn exchange(new: &Path, log: &Path, aside: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, log, RenameFlags::EXCHANGE) {
        Ok(()) => std::fs::rename(new, aside),
        // Some file systems can't exchange names.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::rename(log, aside)?;
            std::fs::rename(new, log)
        }
        Err(error) => Err(error.into()),
    }
}

/// `NAME.damaged`, or `NAME.damaged-2` if that exists.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_os_string();
        name.push(".damaged");
        if number > 1 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    (1..)
        .map(name)
        .find(is_free)
        .expect("fewer files than version numbers")
}
