//! An advisory lock (`flock`) on an open file, held until the [`FileLock`] is dropped or the process exits.
//!
//! The rule: dropping the lock unlocks explicitly. Closing the file is not enough: between fork and exec, a child holds
//! all of its parent's open files and would briefly keep the lock.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;

/// A file that stays locked until this is dropped.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes an exclusive lock.
    ///
    /// # Errors
    /// The file is already locked ([`TryLockError::WouldBlock`]), or it cannot be locked.
    pub fn try_exclusive(file: File) -> Result<FileLock, TryLockError> {
        file.try_lock()?;
        Ok(FileLock(file))
    }

    /// Takes a shared lock.
    ///
    /// # Errors
    /// The file is locked exclusively ([`TryLockError::WouldBlock`]), or it cannot be locked.
    pub fn try_shared(file: File) -> Result<FileLock, TryLockError> {
        file.try_lock_shared()?;
        Ok(FileLock(file))
    }

    /// Takes a shared lock, waiting for an exclusive lock to be released.
    ///
    /// # Errors
    /// The file cannot be locked.
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
        // If unlocking fails, closing the file still releases the lock.
        let _ = self.0.unlock();
    }
}
