//! A consistent view of a lake: the version that was newest when the reader opened it, held until the reader is done.
//! All table readers go through a snapshot.
//!
//! The version's parts stay on disk while the snapshot is held: it holds a shared lock on the version's file, or on the
//! folder if there is no version yet, and a compaction deletes nothing that a held version contains.
//!
//! The rule: read the version first, then list the parts captured since then. In the reverse order, a part that is
//! compacted in between would be missing from both.

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

/// Whether a captured part has rows that this version lacks.
fn lacks_part(catalog: &Catalog, root: &Path, table: &str, part: &PartFile) -> bool {
    let below = part
        .path
        .strip_prefix(root)
        .unwrap_or(&part.path)
        .to_string_lossy();
    part.captured
        .is_none_or(|captured| catalog.lacks_part(table, captured, &below))
}

/// A version of a lake, or a folder of tables that isn't a lake.
#[derive(Clone, Debug)]
pub struct LakeSnapshot {
    root: PathBuf,
    catalog: Option<Arc<Catalog>>,
    /// The lock that preserves the version's parts.
    _lock: Option<Arc<FileLock>>,
}

impl LakeSnapshot {
    /// Opens the newest version.
    ///
    /// # Errors
    /// The folder cannot be read, or its catalog was written by a newer program.
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
            // Another process may have replaced and deleted this version before we got the lock.
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

    /// Like [`LakeSnapshot::open`], but fails if the lake isn't intact: its catalog or newest version is missing, or
    /// a listed part is missing or truncated. Reading such a lake could return rows twice or omit them.
    ///
    /// # Errors
    /// As for [`LakeSnapshot::open`]; also [`LakeError::NoCatalog`] and [`LakeError::PartLost`].
    pub fn open_whole(root: &Path) -> Result<LakeSnapshot, LakeError> {
        loop {
            let snapshot = LakeSnapshot::open(root)?;
            let version = snapshot.catalog().map_or(0, |catalog| catalog.version);
            match guard::refuse_lost_version(root, version) {
                // Not lost: the version was committed after the snapshot was taken. Open the newer one.
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

    /// The version's catalog; `None` if the folder is not a lake.
    pub fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_deref()
    }

    /// The live parts of a table: compacted parts by place, then captured parts by pipeline and number.
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
            .filter(|part| lacks_part(catalog, &self.root, table.name, part));
        Ok(compacted.chain(since).collect())
    }

    /// The size of all live parts of these tables, in bytes.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn bytes<'a>(&self, tables: impl IntoIterator<Item = &'a Table>) -> Result<u64, LakeError> {
        let mut bytes = 0;
        for table in tables {
            let parts = self.parts(table)?.into_iter();
            let sizes = parts.filter_map(|part| part.path.metadata().ok());
            bytes += sizes.map(|about| about.len()).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Captured parts of all tables that are complete and final, and contain rows that the version lacks.
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
                let is_new = |catalog: &Arc<Catalog>| lacks_part(catalog, &self.root, table, part);
                if !(is_last && is_running) && self.catalog.as_ref().is_none_or(is_new) {
                    since.push(part.path.clone());
                }
            }
        }
        Ok(since)
    }
}
