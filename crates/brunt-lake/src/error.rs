//! Errors from writing and reading tables.

use std::io;
use std::path::{Path, PathBuf};

/// Each error names the file or folder, and the remedy if it isn't obvious.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The file system, quota or file size limit is exhausted. Closed parts are complete; the writer still holds the
    /// rows of the open part and may retry.
    #[error(
        "{}: no space for {bytes} more bytes ({source}); everything written so far is kept: \
         free some space, or choose another folder",
        path.display()
    )]
    Full {
        /// The part that couldn't be written.
        path: PathBuf,
        /// Size of the part.
        bytes: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// A system call failed for another reason.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The folder already contains parts written earlier.
    #[error("{}: already contains a table; choose another folder, or move it away", path.display())]
    Taken {
        /// The table's folder.
        path: PathBuf,
    },
    /// A part of another table, or of an incompatible version.
    #[error("{}: cannot be read as part of table {table}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// Compacted parts exist, but the catalog version that lists them is missing.
    #[error(
        "{}: this version of the lake's catalog is missing, although {} was written with it; the \
         lake cannot be read or changed without it: run `brunt lake check --repair`, complete the \
         interrupted `brunt lake pull`, or restore _catalog from a backup",
        catalog.display(), part.display()
    )]
    NoCatalog {
        /// The file of the missing version.
        catalog: PathBuf,
        /// One of the parts.
        part: PathBuf,
    },
    /// A catalog version cannot be read.
    #[error("{}: cannot be read as the catalog of a lake: {what}; don't remove anything, and run \
        `brunt lake check --repair`, or restore the file from a backup", path.display())]
    Catalog {
        /// The version's file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A part doesn't name its origin.
    #[error("{}: this part was written by an earlier version of brunt and doesn't contain its \
        origin, so the catalog can't be rebuilt from it; restore _catalog from a backup or from a \
        copy in an object store", path.display())]
    NoOrigin {
        /// The part.
        path: PathBuf,
    },
    /// A part listed in the catalog is missing or truncated.
    #[error(
        "{}: the lake's catalog lists this part, but {what}{}; restore it from a backup or from a copy in an object store; \
         `brunt lake check` lists all such parts",
        path.display(), Others(*.others)
    )]
    PartLost {
        /// The part.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// How many other parts are missing or truncated.
        others: usize,
    },
    /// A newer program wrote this catalog version.
    #[error(
        "{}: the catalog has format {found}, and this program reads format {known}; use the \
         program that wrote it, or a newer one",
        path.display()
    )]
    CatalogFormat {
        /// The version's file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        known: u32,
    },
    /// Another process is compacting or adding to the lake.
    #[error("{}: another process is compacting this lake or adding to it; try again when it has \
        finished", path.display())]
    Busy {
        /// The lake's folder.
        path: PathBuf,
    },
    /// The file isn't an intact Parquet file: it is truncated or its bytes have changed.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Number of other parts that are missing or truncated as well.
struct Others(usize);

impl std::fmt::Display for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            others => write!(f, " ({others} more are missing or truncated)"),
        }
    }
}

impl LakeError {
    /// Distinguishes lack of space from other write errors.
    pub(crate) fn writing(path: &Path, bytes: u64, source: io::Error) -> LakeError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.to_path_buf();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => LakeError::Full {
                path,
                bytes,
                source,
            },
            _ => LakeError::Io { path, source },
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> LakeError {
        let path = path.to_path_buf();
        |source| LakeError::Io { path, source }
    }

    /// Whether the error affects only one file, so that a reader can continue with the others.
    pub fn is_of_one_part(&self) -> bool {
        matches!(self, LakeError::Damaged { .. })
    }

    /// Whether the file doesn't exist: it was deleted after being listed.
    pub fn is_gone(&self) -> bool {
        matches!(self, LakeError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the only problem is lack of space, so that the writer can continue once space is freed.
    pub fn is_full(&self) -> bool {
        matches!(self, LakeError::Full { .. })
    }
}
