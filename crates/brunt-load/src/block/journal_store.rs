//! Keeps journals of acknowledged writes until the run is over, on a host that works for a controller; the controller
//! then stores the journals of all hosts. Workers fill the journals; the store's creator reads them later.
//!
//! The rule: a store leaves no named files behind. Its creator supplies the files, which disappear when their last
//! handle is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::verify::{Journal, JournalHead};

/// Creates an empty file that can be read and written.
pub type MakeFile = Box<dyn Fn() -> io::Result<File> + Send + Sync>;

/// The journals of a run's workers on this host. Clones share the journals.
#[derive(Clone)]
pub struct JournalStore(Arc<JournalFiles>);

struct JournalFiles {
    make: MakeFile,
    /// Keyed by the worker's number, counted across all hosts.
    files: Mutex<BTreeMap<u32, File>>,
}

impl JournalStore {
    /// Creates an empty store.
    pub fn new(make: MakeFile) -> JournalStore {
        JournalStore(Arc::new(JournalFiles {
            make,
            files: Mutex::default(),
        }))
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<u32, File>> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a worker's journal.
    ///
    /// # Errors
    /// No file could be created for the journal.
    pub fn journal(&self, head: JournalHead) -> io::Result<Journal> {
        let file = (self.0.make)()?;
        self.files().insert(head.worker, file.try_clone()?);
        Journal::begin(
            file,
            PathBuf::from(format!("journal of worker {}", head.worker)),
            head,
        )
    }

    /// Returns the current lengths of the journals, ordered by worker.
    ///
    /// # Errors
    /// A file's metadata can't be read.
    pub fn lengths(&self) -> io::Result<BTreeMap<u32, u64>> {
        self.files()
            .iter()
            .map(|(worker, file)| Ok((*worker, file.metadata()?.len())))
            .collect()
    }

    /// Reads some bytes of a worker's journal.
    ///
    /// # Errors
    /// There is no such journal, it is too short, or it can't be read.
    pub fn read(&self, worker: u32, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let files = self.files();
        let file = files.get(&worker).ok_or(io::ErrorKind::NotFound)?;
        file.read_exact_at(bytes, offset)
    }
}

impl fmt::Debug for JournalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalStore")
            .field("journals", &self.files().len())
            .finish()
    }
}

/// Compares identity: equal only to the same store, not to another with the same journals.
impl PartialEq for JournalStore {
    fn eq(&self, other: &JournalStore) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Distinguishes the blocks of a run from those of other runs during verification, and determines where its journals
/// go.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMark {
    /// Stored in each block.
    pub run: u64,
    /// Receives the journals; with `None` they go to the workload's folder, if it has one.
    pub journal_store: Option<JournalStore>,
}

impl From<u64> for RunMark {
    fn from(run: u64) -> RunMark {
        RunMark {
            run,
            journal_store: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::verify::{HEAD_BYTES, StableWhen, parse_head};

    #[test]
    fn a_store_holds_what_workers_wrote() {
        let journal_store = JournalStore::new(Box::new(tempfile::tempfile));
        let head = |worker| JournalHead {
            run: 9,
            start: 0,
            len: 4096,
            grain: 512,
            worker,
            stable: StableWhen::Flushed,
        };
        let journals = [7, 3].map(|worker| journal_store.journal(head(worker)).unwrap());
        let head_bytes = HEAD_BYTES as u64;
        assert_eq!(
            journal_store.lengths().unwrap(),
            BTreeMap::from([(3, head_bytes), (7, head_bytes)])
        );
        drop(journals);
        let mut bytes = [0; HEAD_BYTES];
        journal_store.read(7, 0, &mut bytes).unwrap();
        assert_eq!(parse_head(&bytes), Ok(head(7)));
        assert!(
            journal_store.read(7, 1, &mut bytes).is_err()
                && journal_store.read(4, 0, &mut bytes).is_err()
        );
    }
}
