//! Errors of moves to and fetches from an object store.

use std::io;
use std::path::{Path, PathBuf};

use brunt_lake::{DeltaError, LakeError};

/// An error of a store library.
pub(crate) type StoreCause = Box<dyn std::error::Error + Send + Sync>;

/// Names the bucket, key or file, and the remedy if it isn't obvious.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address is invalid.
    #[error("'{given}': {what}")]
    Address {
        /// The address as given.
        given: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// This build lacks support for object stores.
    #[error(
        "{address}: this build of brunt does not support object stores; build it with: cargo \
         install --locked --path crates/brunt --features s3"
    )]
    NotBuilt {
        /// The address.
        address: String,
    },
    /// Credentials, endpoint or region are invalid.
    #[error(
        "{address}: cannot set up the store: {}; check AWS_ENDPOINT_URL, AWS_REGION and the other \
         AWS_ variables",
        with_causes(&**source)
    )]
    Setup {
        /// The address.
        address: String,
        /// The library's error.
        source: StoreCause,
    },
    /// No answer, or an answer that may be different later. The library doesn't distinguish a store that is
    /// overloaded from one that refuses the request; callers repeat it for a limited time.
    #[error("s3://{bucket}/{key}: {}", with_causes(&**source))]
    Unreachable {
        /// The bucket.
        bucket: String,
        /// The requested object.
        key: String,
        /// The library's error.
        source: StoreCause,
    },
    /// A request that the library or the store doesn't support, or whose condition is not met: repeating it doesn't help.
    #[error(
        "s3://{bucket}/{key}: {}; check that the store is compatible with S3 and the prefix is a valid key",
        with_causes(&**source)
    )]
    Unsupported {
        /// The bucket.
        bucket: String,
        /// The requested object.
        key: String,
        /// The library's error.
        source: StoreCause,
    },
    /// Neither the environment nor the machine's metadata service provides credentials.
    #[error("s3://{bucket}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials {
        /// The bucket.
        bucket: String,
    },
    /// The bucket doesn't exist.
    #[error("s3://{bucket}: no such bucket; create it, or check the name and AWS_ENDPOINT_URL")]
    NoBucket {
        /// The bucket.
        bucket: String,
    },
    /// The store denies access, with or without valid credentials.
    #[error(
        "s3://{bucket}/{key}: access denied ({}); check AWS_ACCESS_KEY_ID and its permissions to \
         get, put and list objects",
        with_causes(&**source)
    )]
    Denied {
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
        /// The library's error.
        source: StoreCause,
    },
    /// An object that existed a moment ago, or should exist, is gone.
    #[error("s3://{bucket}/{key}: the object no longer exists")]
    Gone {
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
    },
    /// The destination contains another folder's parts.
    #[error("{address}: has the parts of another trace ({theirs}); choose another prefix")]
    Taken {
        /// The destination.
        address: String,
        /// The owner of those parts.
        theirs: String,
    },
    /// The mark of the folder or of the store cannot be read.
    #[error("{place}: not a valid mark of brunt; move it away if it is not needed")]
    Mark {
        /// The file or object.
        place: String,
    },
    /// An object's key isn't a valid path below a folder.
    #[error("{address}: the key of object '{key}' is not a valid file name; it was skipped")]
    UnsafeKey {
        /// Where it was found.
        address: String,
        /// Its key.
        key: String,
    },
    /// More objects than the maximum for a lake.
    #[error("{address}: {count} or more objects; choose a longer prefix")]
    TooMany {
        /// The lake's address.
        address: String,
        /// The limit.
        count: usize,
    },
    /// Both sides have a file of this name, with different contents.
    #[error(
        "{}: {object} has different contents; neither was changed: move one of them away", path.display()
    )]
    Conflict {
        /// The local file.
        path: PathBuf,
        /// The object.
        object: String,
    },
    /// The folder was compacted: its parts may contain rows of parts that were moved before.
    #[error("{}: it was compacted (it has a folder _catalog); copy it with `brunt lake push`", path.display())]
    Compacted {
        /// The folder.
        path: PathBuf,
    },
    /// Some of a folder's parts exist only in a store.
    #[error(
        "{}: some parts were moved to a store; fetch them first with `brunt lake pull`", path.display()
    )]
    Moved {
        /// The folder.
        path: PathBuf,
    },
    /// A part of a trace is missing in the store, and the lake there claims to contain its rows already.
    #[error(
        "{}: version {version} of the lake in {address} already contains the rows of this part: \
         choose another prefix", path.display()
    )]
    Hidden {
        /// The part.
        path: PathBuf,
        /// The lake's address.
        address: String,
        /// The version.
        version: u64,
    },
    /// Folder and store have diverging versions of a lake: neither contains all of the other.
    #[error(
        "{address} has version {theirs} of the lake, {} has version {ours}, and the {} one lacks \
         parts of the other: fetch it into another folder, or choose another prefix", folder.display(), if ours >= theirs { "local" } else { "stored" }
    )]
    Diverged {
        /// The lake's address.
        address: String,
        /// The folder.
        folder: PathBuf,
        /// The store's version.
        theirs: u64,
        /// The folder's version.
        ours: u64,
    },
    /// A version of a lake in a store refers to a missing part.
    #[error(
        "{address}: version {version} of the lake lists a missing part: {part}; push the lake again"
    )]
    Incomplete {
        /// The lake's address.
        address: String,
        /// The version.
        version: u64,
        /// The part.
        part: String,
    },
    /// A lake cannot be read, either here or in a store.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The log of a lake's table cannot be read.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// Another process is using the folder.
    #[error("{}: in use by a capture or another transfer; wait until it ends", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system reported an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Stopped before it was done.
    #[error("interrupted")]
    Interrupted,
}

impl RemoteError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> RemoteError {
        let path = path.to_path_buf();
        |source| RemoteError::Io { path, source }
    }

    /// Whether a retry may succeed without any intervention.
    pub fn is_passing(&self) -> bool {
        matches!(self, RemoteError::Unreachable { .. })
    }
}

/// An error with its causes, because libraries often report the informative one last. Causes whose text is already
/// included are omitted.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said += ": ";
            said += &text;
        }
        cause = error.source();
    }
    // Stores may answer with pages of XML; the beginning is enough.
    match said.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", said[..end].replace('\n', " ")),
        None => said.replace('\n', " "),
    }
}
