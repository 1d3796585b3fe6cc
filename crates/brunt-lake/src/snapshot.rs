//! A lake as a reader sees it: the newest version there is when it looks, held until it is done. Every reader of tables
//! goes through one.
//!
//! What the version has stays on disk as long as the snapshot is held: it shares the lock of the version's file, or that
//! of the folder where there is no version yet, and whoever compacts deletes nothing that a held version has.
//!
//! The rule: the version is read first, then the folder with the parts that were captured since. In the other order, a part
//! that is compacted in between would be in neither.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::{Catalog, version_path, versions};
use crate::error::LakeError;
use crate::lock;
use crate::reader::{PartFile, captured_parts};
use crate::table::Table;

/// A version of a lake, or a folder of tables that is none.
#[derive(Clone, Debug)]
pub struct LakeSnapshot {
    root: PathBuf,
    catalog: Option<Arc<Catalog>>,
    /// What holds it.
    _lock: Option<Arc<File>>,
}

impl LakeSnapshot {
    /// What is there now.
    ///
    /// # Errors
    /// The folder cannot be read, or a newer program wrote its catalog.
    pub fn open(root: &Path) -> Result<LakeSnapshot, LakeError> {
        loop {
            let newest = versions(root)?.last().copied();
            let path = newest.map_or_else(|| root.to_path_buf(), |version| version_path(root, version));
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
            let catalog = newest.map(|_| Catalog::read(&path)).transpose()?.map(Arc::new);
            return Ok(LakeSnapshot { root: root.to_path_buf(), catalog, _lock: lock.map(Arc::new) });
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
        let Some(catalog) = &self.catalog else { return Ok(captured) };
        let mut compacted: Vec<_> = catalog.parts(table.name).iter().collect();
        compacted.sort_by(|one, other| (one.hour, &one.path).cmp(&(other.hour, &other.path)));
        let compacted =
            compacted.into_iter().map(|part| PartFile { captured: None, path: self.root.join(&part.path) });
        let left_out = catalog.own().map_or(&[][..], |tap| &tap.left_out);
        let is_left_out = |path: &Path| {
            path.strip_prefix(&self.root).is_ok_and(|path| left_out.iter().any(|out| Path::new(out) == path))
        };
        let since = captured.into_iter().filter(|part| match part.captured {
            Some((series, number)) => {
                !catalog.has_absorbed(table.name, series, number) || is_left_out(&part.path)
            }
            None => true,
        });
        Ok(compacted.chain(since).collect())
    }
}
