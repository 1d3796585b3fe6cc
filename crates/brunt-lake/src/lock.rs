//! Inter-process locks using the operating system's `flock`. A process's locks end with it, however it ends.
//!
//! The rule: a lock shows only that a process is at work. Its results are recorded in files.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brunt_core::FileLock;

use crate::error::LakeError;

/// The file that a trace's writer locks; contains the trace's name.
const WRITER_FILE: &str = ".writer";

/// Tries to lock a file or folder exclusively. `None` if another process holds the lock.
pub(crate) fn try_exclusive(path: &Path) -> Result<Option<FileLock>, LakeError> {
    let file = File::open(path).map_err(LakeError::io(path))?;
    match FileLock::try_exclusive(file) {
        Ok(lock) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(LakeError::io(path)(error)),
    }
}

/// Takes a shared lock on a file or folder, held until dropped.
pub(crate) fn shared(path: &Path) -> std::io::Result<FileLock> {
    FileLock::shared(File::open(path)?)
}

/// Held by the writer of a trace while it may add parts. The lock file remains and contains the trace's name: 32
/// hexadecimal digits, unique to the trace.
#[derive(Debug)]
pub struct WriterLock {
    path: PathBuf,
    file: FileLock,
}

impl WriterLock {
    /// Takes the lock for writing a trace in `root`, an existing folder.
    ///
    /// # Errors
    /// Another process is writing there, or the folder cannot be written to.
    pub fn take(root: &Path) -> Result<WriterLock, LakeError> {
        let path = root.join(WRITER_FILE);
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = open.map_err(|error| LakeError::writing(&path, 0, error))?;
        match FileLock::try_exclusive(file) {
            Ok(file) => Ok(WriterLock { path, file }),
            Err(TryLockError::WouldBlock) => Err(LakeError::Taken {
                path: root.to_path_buf(),
            }),
            Err(TryLockError::Error(error)) => Err(LakeError::io(&path)(error)),
        }
    }

    /// Clears the name that an earlier trace left in the folder.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn forget_name(&self) -> Result<(), LakeError> {
        self.file
            .set_len(0)
            .map_err(|error| LakeError::writing(&self.path, 0, error))
    }

    /// Names the trace. Call it once the first parts of all tables and pipelines exist.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn name_trace(&self) -> Result<(), LakeError> {
        let random = || RandomState::new().build_hasher().finish();
        let name = format!("{:016x}{:016x}\n", random(), random());
        let written = self.file.write_all_at(name.as_bytes(), 0);
        written.map_err(|error| LakeError::writing(&self.path, name.len() as u64, error))
    }
}

/// The state of a trace's writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterState {
    /// Whether the writer is running.
    pub is_running: bool,
    /// The trace's name; `None` if the trace was written before traces had names or is just starting.
    pub trace_name: Option<String>,
}

impl WriterState {
    /// Whether the writer has yet to create the first parts of all tables and pipelines.
    pub fn is_starting(&self) -> bool {
        self.is_running && self.trace_name.is_none()
    }

    /// The writer state of the trace in `root`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn of(root: &Path) -> Result<WriterState, LakeError> {
        let path = root.join(WRITER_FILE);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(WriterState::default());
            }
            Err(error) => return Err(LakeError::io(&path)(error)),
        };
        let same = file.try_clone().map_err(LakeError::io(&path))?;
        let is_running = match FileLock::try_shared(same) {
            Ok(_) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(LakeError::io(&path)(error)),
        };
        let mut name = String::new();
        file.read_to_string(&mut name)
            .map_err(LakeError::io(&path))?;
        let name = name.trim();
        Ok(WriterState {
            is_running,
            trace_name: (!name.is_empty()).then(|| name.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A duplicate of the file descriptor, such as a forked child has until it calls exec, doesn't hold the lock.
    #[test]
    fn a_lock_ends_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let lock = WriterLock::take(folder.path()).unwrap();
        let _child = lock.file.try_clone().unwrap();
        drop(lock);
        WriterLock::take(folder.path()).unwrap();
    }

    /// A trace has a single writer, and a name that outlives the writer.
    #[test]
    fn a_trace_has_one_writer_and_a_name_that_outlives_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            WriterState::of(folder.path()).unwrap(),
            WriterState::default()
        );
        let lock = WriterLock::take(folder.path()).unwrap();
        assert!(matches!(
            WriterLock::take(folder.path()),
            Err(LakeError::Taken { .. })
        ));
        assert!(WriterState::of(folder.path()).unwrap().is_starting());
        lock.name_trace().unwrap();
        let during = WriterState::of(folder.path()).unwrap();
        assert!(
            during.is_running
                && during
                    .trace_name
                    .as_ref()
                    .is_some_and(|name| name.len() == 32)
        );
        drop(lock);
        let after = WriterState::of(folder.path()).unwrap();
        assert_eq!(
            after,
            WriterState {
                is_running: false,
                ..during
            }
        );
    }
}
