//! Why a trace cannot be read or written. Shown by `brunt trace` and whoever opens traces.
//!
//! The rule: each says which file, and the kind says what can be done.

use std::io;

use brunt_lake::LakeError;

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system, or who unpacks, said no.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What it said.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A folder of tables cannot be read or written.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// No format fits.
    #[error("{path} is not in a supported block trace format")]
    UnknownFormat {
        /// The file.
        path: String,
    },
    /// Several formats fit.
    #[error("{path} may be {}", candidates.join(" or "))]
    Ambiguous {
        /// The file.
        path: String,
        /// Their names.
        candidates: Vec<&'static str>,
    },
    /// The format does not say what its requests ask for, and nobody else did.
    #[error("{path}: {format} does not say which requests read and which write")]
    NoOperation {
        /// The file.
        path: String,
        /// Its format.
        format: &'static str,
    },
    /// The format is any table, and nobody said what its columns mean.
    #[error("{path}: {format} does not say what its columns mean")]
    NoColumns {
        /// The file.
        path: String,
        /// Its format.
        format: &'static str,
    },
    /// A row cannot be read, and none was to be skipped.
    #[error("{path}: row {row} cannot be read as {format}")]
    Damaged {
        /// The file.
        path: String,
        /// From 1.
        row: u64,
        /// As which format.
        format: &'static str,
    },
}
