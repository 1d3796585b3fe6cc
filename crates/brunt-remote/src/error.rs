//! Why something could not be moved to an object store or fetched from one.

use std::io;
use std::path::{Path, PathBuf};

use brunt_lake::{DeltaError, LakeError};

/// What another program's library said.
pub(crate) type StoreCause = Box<dyn std::error::Error + Send + Sync>;

/// Names bucket, key or file, and what to do about it where that is not plain.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address is none.
    #[error("'{given}': {what}")]
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// This program was built without the feature.
    #[error(
        "{address}: this build of brunt has no object stores; build it with them: cargo install --locked --path crates/brunt --features s3"
    )]
    NotBuilt {
        /// Where to.
        address: String,
    },
    /// Credentials, endpoint or region make no sense.
    #[error(
        "{address}: the store cannot be set up: {}; look at AWS_ENDPOINT_URL, AWS_REGION and the other AWS_ variables",
        with_causes(&**source)
    )]
    Setup {
        /// Where to.
        address: String,
        /// The library's word.
        source: StoreCause,
    },
    /// No answer, or one that says "later".
    #[error("s3://{bucket}/{key}: {}", with_causes(&**source))]
    Unreachable {
        /// The bucket.
        bucket: String,
        /// The object that was asked for.
        key: String,
        /// The library's word.
        source: StoreCause,
    },
    /// Neither the environment nor the machine gives credentials.
    #[error("s3://{bucket}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials {
        /// The bucket.
        bucket: String,
    },
    /// The store does not know the bucket.
    #[error(
        "s3://{bucket}: no such bucket; create it, or look at the name and at AWS_ENDPOINT_URL"
    )]
    NoBucket {
        /// The bucket.
        bucket: String,
    },
    /// The store knows us, or does not, and says no.
    #[error(
        "s3://{bucket}/{key}: access denied ({}); look at AWS_ACCESS_KEY_ID and what it may do: get, put and list objects",
        with_causes(&**source)
    )]
    Denied {
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
        /// The library's word.
        source: StoreCause,
    },
    /// An object that was there a moment ago, or should be.
    #[error("s3://{bucket}/{key}: the object is gone")]
    Gone {
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
    },
    /// Another folder's parts are at that place.
    #[error("{address}: has the parts of another trace ({theirs}); choose another prefix")]
    Taken {
        /// The place.
        address: String,
        /// Whose they are.
        theirs: String,
    },
    /// The mark at one of the two ends cannot be read.
    #[error("{place}: not readable as a mark of Brunt's; move it away if it is not needed")]
    Mark {
        /// File or object.
        place: String,
    },
    /// An object's key names no file below a folder.
    #[error("{address}: object '{key}' cannot become a file of that name; it was left out")]
    UnsafeKey {
        /// Where it was found.
        address: String,
        /// Its key.
        key: String,
    },
    /// More objects than are taken for a lake.
    #[error("{address}: {count} objects or more; choose a longer prefix")]
    TooMany {
        /// The place.
        address: String,
        /// How many are too many.
        count: usize,
    },
    /// Both ends have a file of this name, and they differ.
    #[error(
        "{}: {object} has other content; neither was changed: move one of them away", path.display()
    )]
    Conflict {
        /// The local file.
        path: PathBuf,
        /// The object.
        object: String,
    },
    /// The folder was compacted: a part there may have the rows of parts that were moved before.
    #[error("{}: was compacted (it has a folder _catalog); copy it with `brunt lake push`", path.display())]
    Compacted {
        /// The folder.
        path: PathBuf,
    },
    /// Some of a folder's parts are in a store only.
    #[error(
        "{}: parts of it were moved to a store; fetch them first with `brunt lake pull`", path.display()
    )]
    Moved {
        /// The folder.
        path: PathBuf,
    },
    /// A part of a trace is not in the store, and a lake there counts it among those that it has the rows of.
    #[error(
        "{}: {address} has version {version} of a lake, in which this part is taken for one that was compacted: choose \
         another prefix", path.display()
    )]
    Hidden {
        /// The part.
        path: PathBuf,
        /// The place.
        address: String,
        /// The version.
        version: u64,
    },
    /// Folder and store have versions of a lake of which neither has all that the other has.
    #[error(
        "{address} has version {theirs} of the lake, {} version {ours}, and the {} one lacks what the other has: fetch it \
         into another folder, or choose another prefix", folder.display(), if ours >= theirs { "local" } else { "stored" }
    )]
    Diverged {
        /// The place.
        address: String,
        /// The folder.
        folder: PathBuf,
        /// The store's version.
        theirs: u64,
        /// The folder's.
        ours: u64,
    },
    /// A version of a lake in a store names a part that is not there.
    #[error(
        "{address}: version {version} of the lake has a part that is not there: {part}; push the lake again"
    )]
    Incomplete {
        /// The place.
        address: String,
        /// The version.
        version: u64,
        /// The part.
        part: String,
    },
    /// A lake cannot be read, here or in a store.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The log of a lake's table cannot be read.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// Somebody else works in the folder.
    #[error("{}: in use by a capture or another transfer; wait until it ends", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was to end before it was done.
    #[error("interrupted")]
    Interrupted,
}

impl RemoteError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> RemoteError {
        let path = path.to_path_buf();
        |source| RemoteError::Io { path, source }
    }

    /// Whether the same may succeed later without anybody's doing.
    pub fn is_passing(&self) -> bool {
        matches!(self, RemoteError::Unreachable { .. })
    }
}

/// An error with its causes: libraries say the interesting thing last. What a cause repeats is left out.
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
    // Answers of stores are pages of XML; people need their beginning.
    match said.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", said[..end].replace('\n', " ")),
        None => said.replace('\n', " "),
    }
}
