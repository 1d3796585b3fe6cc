//! A lake as a reader sees it: the newest version there is when it looks, held until it is done. Every reader of tables
//! goes through one.
//!
//! What the version has stays on disk as long as the snapshot is held: it shares the lock of the version's file, or that
//! of the folder where there is no version yet, and whoever compacts deletes nothing that a held version has.
//!
//! The rule: the version is read first, then the folder with the parts that were captured since. In the other order, a part
//! that is compacted in between would be in neither.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_core::FileLock;

use crate::catalog::{Catalog, version_path, versions};
use crate::error::LakeError;
use crate::guard;
use crate::lock::{self, WriterState};
use crate::reader::{PartFile, captured_parts, folders_in};
use crate::table::Table;

/// Whether a captured part has rows that a version has not.
fn is_besides(catalog: &Catalog, root: &Path, table: &str, part: &PartFile) -> bool {
    let below = part
        .path
        .strip_prefix(root)
        .unwrap_or(&part.path)
        .to_string_lossy();
    part.captured
        .is_none_or(|captured| catalog.is_besides(table, captured, &below))
}

/// A version of a lake, or a folder of tables that is none.
#[derive(Clone, Debug)]
pub struct LakeSnapshot {
    root: PathBuf,
    catalog: Option<Arc<Catalog>>,
    /// What holds it.
    _lock: Option<Arc<FileLock>>,
}

impl LakeSnapshot {
    /// What is there now.
    ///
    /// # Errors
    /// The folder cannot be read, or a newer program wrote its catalog.
    pub fn open(root: &Path) -> Result<LakeSnapshot, LakeError> {
        loop {
            let newest = versions(root)?.last().copied();
            let path =
                newest.map_or_else(|| root.to_path_buf(), |version| version_path(root, version));
            let lock = match lock::shared(&path) {
                Ok(lock) => Some(lock),
                Err(error) if error.kind() == ErrorKind::NotFound && newest.is_some() => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(LakeError::io(&path)(error)),
            };
            // Somebody may have gone on, and deleted this one, before the lock was there.
            let is_gone = match &lock {
                Some(lock) => lock.metadata().map_err(LakeError::io(&path))?.nlink() == 0,
                None => false,
            };
            if is_gone || newest.is_none() && !versions(root)?.is_empty() {
                continue;
            }
            let catalog = newest
                .map(|_| Catalog::read(&path))
                .transpose()?
                .map(Arc::new);
            return Ok(LakeSnapshot {
                root: root.to_path_buf(),
                catalog,
                _lock: lock.map(Arc::new),
            });
        }
    }

    /// The same, and refuses a lake that is not whole: its catalog or the newest version of it is missing, or a part that it
    /// lists is missing or cut. Rows would be read twice, or not at all.
    ///
    /// # Errors
    /// As [`LakeSnapshot::open`]; also [`LakeError::NoCatalog`] and [`LakeError::PartLost`].
    pub fn open_whole(root: &Path) -> Result<LakeSnapshot, LakeError> {
        loop {
            let snapshot = LakeSnapshot::open(root)?;
            let version = snapshot.catalog().map_or(0, |catalog| catalog.version);
            match guard::refuse_lost_version(root, version) {
                // It was committed after the snapshot was taken.
                Err(LakeError::NoCatalog { .. })
                    if versions(root)?.last().is_some_and(|last| *last > version) => {}
                whole => {
                    whole?;
                    if let Some(catalog) = snapshot.catalog() {
                        guard::check_parts(root, catalog)?;
                    }
                    return Ok(snapshot);
                }
            }
        }
    }

    /// The lake's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the version says; none if the folder is no lake.
    pub fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_deref()
    }

    /// The live parts of a table: compacted ones by place, then those of the capture by pipeline and number.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn parts(&self, table: &Table) -> Result<Vec<PartFile>, LakeError> {
        let captured = captured_parts(&self.root, table.name)?;
        let Some(catalog) = &self.catalog else {
            return Ok(captured);
        };
        let mut compacted: Vec<_> = catalog.parts(table.name).iter().collect();
        compacted.sort_by(|one, other| (one.hour, &one.path).cmp(&(other.hour, &other.path)));
        let compacted = compacted.into_iter().map(|part| PartFile {
            captured: None,
            path: self.root.join(&part.path),
        });
        let since = captured
            .into_iter()
            .filter(|part| is_besides(catalog, &self.root, table.name, part));
        Ok(compacted.chain(since).collect())
    }

    /// Captured parts of all tables that are complete, will not change any more, and have rows that the version has not.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn parts_since(&self) -> Result<Vec<PathBuf>, LakeError> {
        let is_running = WriterState::of(&self.root)?.is_running;
        let mut since = Vec::new();
        for folder in folders_in(&self.root)? {
            let Some(table) = folder.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let parts = captured_parts(&self.root, table)?;
            for (index, part) in parts.iter().enumerate() {
                let series = |part: &PartFile| part.captured.map(|(series, _)| series);
                let is_last = parts.get(index + 1).map(series) != Some(series(part));
                let is_new = |catalog: &Arc<Catalog>| is_besides(catalog, &self.root, table, part);
                if !(is_last && is_running) && self.catalog.as_ref().is_none_or(is_new) {
                    since.push(part.path.clone());
                }
            }
        }
        Ok(since)
    }
}
