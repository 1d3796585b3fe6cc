//! A results folder to which no other run writes: created or locked before anything is opened, so that experiments
//! that start at the same moment, or are given the same folder, never access each other's files.
//!
//! The rule: a folder is ours because we created it or hold its lock, never because it looked unused.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brunt_result::summary;

/// A file that a run keeps locked while it writes to the folder, and removes at its end. Locks on the folder itself
/// are for readers.
const CLAIM_FILE: &str = ".claim";
/// Results reveal much about a site, so their owner decides who may read them.
const FOLDER_MODE: u32 = 0o700;

/// Why a folder cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The folder contains results.
    #[error("{} already contains results", .0.display())]
    HasResults(PathBuf),
    /// Another run is writing to the folder.
    #[error("another run is writing its results to {}", .0.display())]
    InUse(PathBuf),
    /// The folder cannot be created or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A folder for one run's results. If it was created for the run and is still empty, dropping this removes it.
#[derive(Debug)]
pub struct ClaimedFolder {
    path: PathBuf,
    /// [`CLAIM_FILE`], which stays locked while it is open in this process, or in one to which it was passed.
    lock: Option<File>,
    /// Set when another process has taken over the folder.
    passed_on: bool,
    made: bool,
}

impl ClaimedFolder {
    /// Claims this folder, which may exist.
    ///
    /// # Errors
    /// The folder contains results, or another run is about to write results to it.
    pub fn of(path: &Path) -> Result<ClaimedFolder, ClaimError> {
        let io = io_error(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(&io)?;
        }
        let made = match make_private(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(io(error)),
        };
        let mut folder = ClaimedFolder {
            path: path.to_path_buf(),
            lock: None,
            passed_on: false,
            made,
        };
        match lock(path) {
            Ok(lock) => folder.lock = lock,
            Err(error) => {
                // The claim file may belong to another run, so it must not be removed.
                folder.passed_on = true;
                return Err(error);
            }
        }
        if path.join(summary::FILE_NAME).exists() {
            return Err(ClaimError::HasResults(path.to_path_buf()));
        }
        Ok(folder)
    }

    /// Creates and claims the first of these folders that doesn't exist.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn first_free(paths: impl Iterator<Item = PathBuf>) -> Result<ClaimedFolder, ClaimError> {
        for path in paths {
            match make_private(&path) {
                Ok(()) => {
                    let lock = lock(&path)?;
                    return Ok(ClaimedFolder {
                        path,
                        lock,
                        passed_on: false,
                        made: true,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error(&path)(error)),
            }
        }
        unreachable!("there is always another folder name")
    }

    /// A folder that the parent process claimed; this process's standard input keeps the lock.
    pub fn inherited(path: &Path) -> ClaimedFolder {
        ClaimedFolder {
            path: path.to_path_buf(),
            lock: None,
            passed_on: false,
            made: false,
        }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lock, to become the standard input of a process that takes over this folder; `None` on file systems
    /// without locks.
    pub fn hand_over(mut self) -> Option<OwnedFd> {
        self.passed_on = true;
        self.lock.take().map(OwnedFd::from)
    }
}

impl Drop for ClaimedFolder {
    fn drop(&mut self) {
        if self.passed_on {
            return;
        }
        let _ = std::fs::remove_file(self.path.join(CLAIM_FILE));
        if self.made {
            // This fails if the folder isn't empty, which keeps its files.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Creates a folder that only its owner can read.
///
/// # Errors
/// The folder exists, or cannot be created.
pub fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> ClaimError {
    move |source| ClaimError::Io {
        path: path.to_path_buf(),
        source,
    }
}

/// Locks the claim file. The result is a plain [`File`] rather than a `FileLock`, because another process keeps the
/// lock when this one closes the file.
fn lock(folder: &Path) -> Result<Option<File>, ClaimError> {
    let path = folder.join(CLAIM_FILE);
    loop {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(&path).map_err(io_error(&path))?;
        match file.try_lock() {
            // The run that had the lock may have removed the file in the meantime.
            Ok(()) if file.metadata().map_err(io_error(&path))?.nlink() == 0 => {}
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => return Err(ClaimError::InUse(folder.to_path_buf())),
            // On a file system without locks, a new folder is ours because we created it.
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(root: &Path) -> impl Iterator<Item = PathBuf> {
        (1..).map(move |number| root.join(format!("{number}.results")))
    }

    #[test]
    fn simultaneous_runs_get_separate_folders() {
        let root = tempfile::tempdir().unwrap();
        let barrier = std::sync::Barrier::new(8);
        let claim = || {
            barrier.wait();
            let folder = ClaimedFolder::first_free(names(root.path())).unwrap();
            std::fs::write(folder.path().join("x"), "").unwrap();
            folder.path().to_path_buf()
        };
        let mut paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 8);
    }

    #[test]
    fn a_folder_is_one_runs_at_a_time_and_private() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b.results");
        let first = ClaimedFolder::of(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(matches!(
            ClaimedFolder::of(&path),
            Err(ClaimError::InUse(_))
        ));
        assert!(path.exists());
        // The new owner keeps the lock after this process has closed it.
        let passed = first.hand_over();
        assert!(matches!(
            ClaimedFolder::of(&path),
            Err(ClaimError::InUse(_))
        ));
        drop(passed);
        // Processes that other tests start have a copy of the lock until they execute their program.
        let again = (0..6000).find_map(|_| {
            let claimed = ClaimedFolder::of(&path);
            if matches!(claimed, Err(ClaimError::InUse(_))) {
                std::thread::sleep(std::time::Duration::from_millis(10));
                return None;
            }
            Some(claimed)
        });
        drop(again.expect("the lock is released").unwrap());
        assert!(path.exists(), "it was there before");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        std::fs::write(path.join(summary::FILE_NAME), "{}").unwrap();
        assert!(matches!(
            ClaimedFolder::of(&path),
            Err(ClaimError::HasResults(_))
        ));
    }

    #[test]
    fn a_run_that_did_not_begin_leaves_no_folder() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.results");
        drop(ClaimedFolder::of(&path).unwrap());
        assert!(!path.exists());
    }
}
