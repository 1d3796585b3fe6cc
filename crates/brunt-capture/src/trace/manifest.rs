//! Publishes the tables of a lake to engines that read table formats: each version of its catalog becomes a version
//! of each table's Delta Lake log ([`brunt_lake::delta`]). `docs/table-formats.md` is the user documentation.

use std::path::{Path, PathBuf};

use brunt_lake::{DeltaError, DeltaVersion, LakeError, LakeSnapshot, delta};

use super::replay::{ReplayError, notes};
use super::tables;

/// Why a lake's tables cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The folder is not a trace, or has an unsupported version.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// The lake cannot be read.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A Delta Lake log cannot be continued.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// The trace was not compacted: its parts are small, and the newest ones still change.
    #[error("{} has not been compacted", .0.display())]
    NotCompacted(PathBuf),
}

/// The result for one table.
#[derive(Clone, Copy, Debug)]
pub struct ManifestTable {
    /// Its name.
    pub name: &'static str,
    /// Parts in the newest version of the catalog.
    pub parts: usize,
    /// Rows in those parts.
    pub rows: u64,
    /// The log version written; `None` if nothing has changed.
    pub written: Option<DeltaVersion>,
}

/// Updates the log of each table to the newest version of the lake's catalog. Rows captured since then appear
/// in the logs after the next compaction.
///
/// # Errors
/// See [`ManifestError`]. Logs of other tables may already have been updated; the next call updates the rest.
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
        let written = delta::publish(root, table, catalog.version, &paths)?;
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
