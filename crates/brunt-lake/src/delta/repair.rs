//! Repairs a log from the catalog.
//!
//! ```text
//!   the versions are in order ──► another checkpoint, hint and checksums
//!   a version is missing or wrong ──► a new log with the parts of the catalog, exchanged for the old one
//! ```
//!
//! The rule: no part is touched, what was damaged is kept as `*.damaged`, and a log that another program has continued
//! is left alone.

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

/// The folder in which a new log is written.
const NEW_FOLDER: &str = "_delta_log.new";

/// What was done with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRepair {
    /// Checkpoints, the hint or the checksums were written again; the versions were in order.
    Mended {
        /// The table.
        table: &'static str,
    },
    /// A new log begins with the parts of the newest version of the catalog.
    Rewritten {
        /// The table.
        table: &'static str,
        /// Where the old log is now.
        aside: PathBuf,
    },
}

/// Repairs the log of a table in `root` from the newest of these versions of the catalog. `None` if there is nothing to
/// repair, or another program may have written part of the log.
///
/// # Errors
/// A part cannot be read, or the disk failed; then the log is as it was.
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

/// Writes everything except the versions again.
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

/// Exchanges a log for a new one. Where the old one is afterwards.
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
    // It stays the same table.
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

/// Puts a new log in place of the old one, so that readers find one or the other.
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
        .expect("there are more numbers than files")
}
