//! The operating system's lock on an open file (`flock`), for as long as its holder lives and the process does.
//!
//! The rule: whoever lets go unlocks. To close the file is not enough: a child between fork and exec has every file of its
//! parent open, and would keep the lock for a moment.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;

/// A file that is locked until this is dropped.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file for this holder alone.
    ///
    /// # Errors
    /// Somebody has it ([`TryLockError::WouldBlock`]), or it cannot be locked.
    pub fn try_exclusive(file: File) -> Result<FileLock, TryLockError> {
        file.try_lock()?;
        Ok(FileLock(file))
    }

    /// Locks a file for holders like this one.
    ///
    /// # Errors
    /// Somebody has it alone ([`TryLockError::WouldBlock`]), or it cannot be locked.
    pub fn try_shared(file: File) -> Result<FileLock, TryLockError> {
        file.try_lock_shared()?;
        Ok(FileLock(file))
    }

    /// The same, after waiting for whoever has it alone.
    ///
    /// # Errors
    /// It cannot be locked.
    pub fn shared(file: File) -> io::Result<FileLock> {
        file.lock_shared()?;
        Ok(FileLock(file))
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If that fails, closing the file is what is left.
        let _ = self.0.unlock();
    }
}
