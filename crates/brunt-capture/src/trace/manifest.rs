//! The tables of a lake for engines that know table formats: each version of its catalog as a version of a Delta Lake log
//! of each table ([`brunt_lake::delta`]). docs/table-formats.md tells users.

use std::path::{Path, PathBuf};

use brunt_lake::{DeltaError, DeltaVersion, LakeError, LakeSnapshot, delta};

use super::replay::{ReplayError, notes};
use super::tables;

/// Why a lake's tables cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is none, or none of this version.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// It cannot be read.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A log cannot be continued.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// A trace as it was captured: its parts are small, and the last ones still change.
    #[error("{} has not been compacted", .0.display())]
    NotCompacted(PathBuf),
}

/// What became of a table.
#[derive(Clone, Copy, Debug)]
pub struct ManifestTable {
    /// Its name.
    pub name: &'static str,
    /// Its parts in the newest version of the catalog.
    pub parts: usize,
    /// Their rows.
    pub rows: u64,
    /// The version of its log that was written; none if nothing has changed.
    pub written: Option<DeltaVersion>,
}

/// Brings the log of each table up to the newest version of the lake's catalog. Rows that were captured since are in no
/// log: they come with the next compaction.
///
/// # Errors
/// See [`ManifestError`]. Logs of other tables may have been continued; the next call does the rest.
pub fn write_manifest(root: &Path) -> Result<Vec<ManifestTable>, ManifestError> {
    notes(root)?;
    let snapshot = LakeSnapshot::open_whole(root)?;
    let Some(catalog) = snapshot.catalog() else {
        return Err(ManifestError::NotCompacted(root.to_path_buf()));
    };
    let mut published = Vec::new();
    for table in tables::of_lake() {
        let parts = catalog.parts(table.name);
        let paths: Vec<_> = parts.iter().map(|part| root.join(&part.path)).collect();
        let written = delta::publish(root, table, &paths)?;
        let rows = parts.iter().map(|part| part.rows).sum();
        published.push(ManifestTable {
            name: table.name,
            parts: parts.len(),
            rows,
            written,
        });
    }
    Ok(published)
}
