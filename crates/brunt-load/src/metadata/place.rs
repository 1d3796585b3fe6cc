//! The file system operations that a metadata load needs: names in directories. Implemented for mounted file systems
//! and for NFS.
//!
//! The rule: each method is one operation as an application sees it, without caching.

use std::error::Error;

use brunt_block::DeviceError;

/// Why a name could not be used. The kinds are those that preparation and removal distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameErrorKind {
    Missing,
    Exists,
    NotEmpty,
    Other,
}

/// Why an operation failed.
#[derive(Debug)]
pub(super) enum PlaceError {
    /// One operation failed; the next one may succeed.
    Failed {
        kind: NameErrorKind,
        error: DeviceError,
    },
    /// The file system is unusable: all further operations would fail.
    Lost(Box<dyn Error + Send + Sync>),
    /// The run was stopped.
    Stopped,
}

impl PlaceError {
    pub(super) fn is(&self, wanted: NameErrorKind) -> bool {
        matches!(self, PlaceError::Failed { kind, .. } if *kind == wanted)
    }
}

pub(super) type PlaceResult<T> = Result<T, PlaceError>;

/// A file system as one worker uses it.
pub(super) trait MetadataPlace {
    /// A handle to an existing directory.
    type Directory: Clone;
    /// A handle to an open file.
    type File;

    /// Returns the user's directory.
    fn top(&mut self) -> PlaceResult<Self::Directory>;

    /// Looks up a directory.
    fn open(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<Self::Directory>;

    fn make_directory(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<Self::Directory>;

    fn remove_directory(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<()>;

    /// Creates a file that does not exist.
    fn create(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<Self::File>;

    /// Opens an existing file for writing.
    fn open_file(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<Self::File>;

    /// Writes a file's data, if any, at this offset, makes it stable if requested, and closes the file.
    fn finish(
        &mut self,
        file: Self::File,
        offset: u64,
        data: &[u8],
        fsync: bool,
    ) -> PlaceResult<()>;

    /// Looks up a name and its attributes.
    fn stat(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<()>;

    /// Opens a file, reads up to this much of it, and closes it; returns the number of bytes.
    fn read(&mut self, at: &Self::Directory, name: &str, buf: &mut [u8]) -> PlaceResult<u64>;

    fn remove(&mut self, at: &Self::Directory, name: &str) -> PlaceResult<()>;

    /// Lists a directory; returns the number of its entries, without `.` and `..`.
    fn list(&mut self, at: &Self::Directory) -> PlaceResult<u64>;

    /// Returns the number of system calls since the previous call of this method.
    fn take_calls(&mut self) -> u64;
}
