//! Errors of reading and writing traces. Shown by `brunt trace` and other callers that open traces.
//!
//! The rule: each error names the file, and its kind says what can be done.

use std::fmt;
use std::io;

use brunt_lake::LakeError;

/// The format that fits most of a file's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closest {
    /// Its name.
    pub format: &'static str,
    /// Rows that match the format.
    pub rows: u64,
    /// The first row that doesn't match, from 1.
    pub row: u64,
}

impl fmt::Display for Closest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Closest { format, rows, row } = self;
        write!(
            f,
            "; closest is {format}: its first {rows} rows match, row {row} does not"
        )
    }
}

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// An error from the operating system or from decompression.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The underlying error.
        source: io::Error,
    },
    /// A trace cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A folder of tables cannot be read or written.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A trace has more calls than are read into memory.
    #[error("{path} has more than {limit} NFS calls")]
    TooManyCalls {
        /// The folder.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// No format fits.
    #[error("{path} is not a supported block trace{}", closest.as_ref().map_or_else(String::new, Closest::to_string))]
    UnknownFormat {
        /// The file.
        path: String,
        /// The format that fits most of it, if any.
        closest: Option<Closest>,
    },
    /// The file is a capture of network traffic.
    #[error("{path} is a packet capture, not a block trace")]
    PacketCapture {
        /// The file.
        path: String,
    },
    /// A format fits, but the result is implausible.
    #[error(
        "{path} looks like {format}, but {backwards_percent} % of its rows would go back in time: \
         it probably has another format"
    )]
    Doubtful {
        /// The file.
        path: String,
        /// The format's name.
        format: &'static str,
        /// Percentage of rows with an earlier time than the row before.
        backwards_percent: u32,
    },
    /// No file of an archive is a trace.
    #[error("no file in the {archive} archive {path} is a supported block trace: {files}")]
    NoTraceInArchive {
        /// The archive.
        path: String,
        /// The archive's format.
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
    /// The format doesn't record operations, and the caller didn't specify one.
    #[error("{path}: {format} has no column for reads and writes")]
    NoOperation {
        /// The file.
        path: String,
        /// Its format.
        format: &'static str,
    },
    /// The format is a generic table, and the caller didn't specify what its columns mean.
    #[error("{path}: {format} needs a description of its columns")]
    NoColumns {
        /// The file.
        path: String,
        /// Its format.
        format: &'static str,
    },
    /// A compressed file is truncated or damaged, and damage must not be skipped.
    #[error("cannot decompress {path} to the end")]
    Cut {
        /// The file.
        path: String,
    },
    /// A row cannot be read, and damaged rows must not be skipped.
    #[error("{path}: cannot parse row {row} as {format}")]
    Damaged {
        /// The file.
        path: String,
        /// The row's number, from 1.
        row: u64,
        /// The format it was read as.
        format: &'static str,
    },
}
