//! Checks that a lake is intact before anything in it is read or deleted. Called by [`crate::compact`] before every
//! sweep and by [`crate::snapshot`] before every read.
//!
//! The catalog decides which parts count. If it is missing or older than the parts, the parts that it doesn't list look
//! like leftovers of a killed process, and deleting them would delete the lake. So before a process gives new parts
//! their names, it creates a marker, `_catalog/v00000007.pending`: only parts of a marked version may be leftovers.
//!
//! The rule: a compacted part that no version lists is deleted only if it is older than the newest version or its
//! version is marked.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::catalog::{CATALOG_FOLDER, Catalog, numbered_in, version_name, version_path};
use crate::error::LakeError;
use crate::reader::{OPEN_SUFFIX, PartReader, folders_in};
use crate::sums;
use crate::table::Table;

/// Prefix of lake part file names.
const PART_PREFIX: &str = "part-c";
/// Suffix of marker file names.
const PENDING_SUFFIX: &str = ".pending";

/// Durably marks a version that is about to be committed. Call it before the version's parts get their names.
///
/// # Errors
/// The catalog's folder cannot be written to.
pub fn mark_pending(root: &Path, version: u64) -> Result<(), LakeError> {
    let folder = root.join(CATALOG_FOLDER);
    let path = folder.join(version_name(version, PENDING_SUFFIX));
    File::create(&path)
        .and_then(|file| file.sync_all())
        .and_then(|()| File::open(&folder)?.sync_all())
        .map_err(|error| LakeError::writing(&path, 0, error))
}

/// Durably removes the markers of versions up to this one.
pub(crate) fn unmark_pending(root: &Path, up_to: u64) -> Result<(), LakeError> {
    let folder = root.join(CATALOG_FOLDER);
    let mut is_changed = false;
    for version in marked_versions(root)? {
        if version <= up_to {
            let path = folder.join(version_name(version, PENDING_SUFFIX));
            std::fs::remove_file(&path).map_err(LakeError::io(&path))?;
            is_changed = true;
        }
    }
    if is_changed {
        File::open(&folder)
            .and_then(|folder| folder.sync_all())
            .map_err(LakeError::io(&folder))?;
    }
    Ok(())
}

/// Versions that have a marker, oldest first.
pub(crate) fn marked_versions(root: &Path) -> Result<Vec<u64>, LakeError> {
    numbered_in(&root.join(CATALOG_FOLDER), PENDING_SUFFIX)
}

/// Fails if complete parts exist for a version newer than `newest` that no process is committing: the file that lists
/// them is missing. `newest` is 0 if the lake has no version.
///
/// # Errors
/// Such parts exist ([`LakeError::NoCatalog`]), or a folder cannot be read.
pub(crate) fn refuse_lost_version(root: &Path, newest: u64) -> Result<(), LakeError> {
    if !root.is_dir() {
        return Ok(());
    }
    let mut unlisted = Vec::new();
    for table in folders_in(root)? {
        let parts = lake_files(&table)?.into_iter();
        unlisted.extend(parts.filter(|part| {
            is_complete(part) && part_version(part).is_some_and(|version| version > newest)
        }));
    }
    if unlisted.is_empty() {
        return Ok(());
    }
    // Read the markers after listing the parts: since a marker is created before its version's parts get their names,
    // no listed part's marker is missed.
    let marked = marked_versions(root)?.last().copied();
    let is_lost = |part: &PathBuf| part_version(part) > marked && part.exists();
    // Report the newest version: it supersedes all earlier ones, so it is the one to restore.
    let newest_lost = unlisted
        .into_iter()
        .filter(is_lost)
        .max_by_key(|part| part_version(part));
    match newest_lost {
        Some(part) => Err(LakeError::NoCatalog {
            catalog: version_path(root, part_version(&part).unwrap_or(0)),
            part,
        }),
        None => Ok(()),
    }
}

/// Fails if one of a version's parts is missing or has the wrong size.
///
/// # Errors
/// A part is missing or has the wrong size ([`LakeError::PartLost`]), or the folder cannot be read.
pub(crate) fn check_parts(root: &Path, version: &Catalog) -> Result<(), LakeError> {
    let mut lost = version
        .parts
        .values()
        .flatten()
        .filter_map(|part| check_part(&root.join(&part.path), part.bytes).err());
    let Some(first) = lost.next() else {
        return Ok(());
    };
    let others = lost.count();
    Err(match first {
        LakeError::PartLost { path, what, .. } => LakeError::PartLost { path, what, others },
        error => error,
    })
}

/// Like [`check_parts`], but for one part.
pub(crate) fn check_part(path: &Path, bytes: u64) -> Result<(), LakeError> {
    let what = match path.metadata() {
        Ok(about) if about.len() == bytes => return Ok(()),
        Ok(about) => format!("it has {} bytes instead of {bytes}", about.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => "it is missing".to_string(),
        Err(error) => return Err(LakeError::io(path)(error)),
    };
    Err(LakeError::PartLost {
        path: path.to_path_buf(),
        what,
        others: 0,
    })
}

/// Reads a whole part and verifies its bytes against their checksums and its number of rows against `rows`.
///
/// # Errors
/// The bytes or the number of rows differ ([`LakeError::Damaged`]), the file isn't a part of this table, or it cannot
/// be read.
pub(crate) fn verify_part(path: &Path, table: &'static Table, rows: u64) -> Result<(), LakeError> {
    let part = PartReader::open(path.to_path_buf(), table)?;
    part.verify()?;
    check_rows(path, part.rows()?, rows)
}

/// The checksum of a whole file, including indexes and filters, which the column checksums don't cover.
pub(crate) fn sum_part(path: &Path) -> Result<u64, LakeError> {
    let file = File::open(path).map_err(LakeError::io(path))?;
    sums::sum_file(&file).map_err(LakeError::io(path))
}

/// Fails if a part's bytes don't match this checksum ([`sum_part`]).
pub(crate) fn check_sum(path: &Path, expected: u64) -> Result<(), LakeError> {
    if sum_part(path)? == expected {
        return Ok(());
    }
    Err(LakeError::Damaged {
        path: path.to_path_buf(),
        what: "the file was changed or damaged after it was written (checksum)".into(),
    })
}

/// Fails if a part has an unexpected number of rows.
pub(crate) fn check_rows(path: &Path, found: u64, expected: u64) -> Result<(), LakeError> {
    if found == expected {
        return Ok(());
    }
    Err(LakeError::Damaged {
        path: path.to_path_buf(),
        what: format!("it has {found} rows instead of {expected}"),
    })
}

/// Whether a lake part has its final name, so that readers may have seen it.
pub(crate) fn is_complete(part: &Path) -> bool {
    part.extension().is_some_and(|e| e == "parquet")
}

/// The temporary name of a part while it is being written.
pub(crate) fn open_name(part: &Path) -> PathBuf {
    let mut open = part.to_path_buf().into_os_string();
    open.push(format!(".{OPEN_SUFFIX}"));
    open.into()
}

/// The version that a lake part was written for, from its file name; `None` for other names.
pub fn part_version(path: &Path) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_prefix(PART_PREFIX)?
        .split_once('-')?
        .0
        .parse()
        .ok()
}

/// Lake parts in a table's folder and its subfolders, complete or not, of any version.
pub(crate) fn lake_files(folder: &Path) -> Result<Vec<PathBuf>, LakeError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(LakeError::io(folder))? {
        let path = entry.map_err(LakeError::io(folder))?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.starts_with(PART_PREFIX) {
            files.push(path);
        } else if name.starts_with("date=") || name.starts_with("hour=") {
            files.extend(lake_files(&path)?);
        }
    }
    Ok(files)
}
