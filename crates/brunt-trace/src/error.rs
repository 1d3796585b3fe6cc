//! Why a trace cannot be read or written. Shown by `brunt trace` and whoever opens traces.
//!
//! The rule: each says which file, and the kind says what can be done.

use std::fmt;
use std::io;

use brunt_lake::LakeError;

/// The format that most of the beginning of a file fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closest {
    /// Its name.
    pub format: &'static str,
    /// Rows that fit.
    pub rows: u64,
    /// The first row that does not, from 1.
    pub row: u64,
}

impl fmt::Display for Closest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Closest { format, rows, row } = self;
        write!(
            f,
            "; closest is {format}: {rows} rows of its beginning fit, and row {row} does not"
        )
    }
}

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
    #[error("{path} is not in a supported block trace format{}", closest.as_ref().map_or_else(String::new, Closest::to_string))]
    UnknownFormat {
        /// The file.
        path: String,
        /// The format that most of it fits, if any does.
        closest: Option<Closest>,
    },
    /// A format fits, but what comes out is unlikely to be what was meant.
    #[error(
        "{path} fits {format}, but {backwards_percent} % of its rows would go back in time: it is probably something else"
    )]
    Doubtful {
        /// The file.
        path: String,
        /// The format's name.
        format: &'static str,
        /// Rows with a time before that of the row before, in percent.
        backwards_percent: u32,
    },
    /// No file of an archive fits.
    #[error("no file in the {archive} archive {path} is a supported block trace: {files}")]
    NoTraceInArchive {
        /// The archive.
        path: String,
        /// Its kind.
        archive: &'static str,
        /// The files in it.
        files: String,
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
    /// A packed file is cut or damaged, and nothing was to be skipped.
    #[error("{path} cannot be unpacked to its end")]
    Cut {
        /// The file.
        path: String,
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
