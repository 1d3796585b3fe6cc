//! The journals of a run's workers, as an agent sends them to its controller after the run. Used by
//! [`crate::run_thread`].
//!
//! The rule: journals are sent in the order of workers, each from its start up to the announced length.

use std::io;

use brunt_load::block::journal_store::JournalStore;
use brunt_protocol::JOURNAL_BYTES_MAX;

/// Journals of workers that have ended.
#[derive(Debug)]
pub(crate) struct StoredJournals {
    journal_store: JournalStore,
    /// The workers' numbers, counted across all hosts.
    workers: Vec<u32>,
    lengths: Vec<u64>,
    /// The worker whose journal is being read, counted from this host's first worker, and the offset.
    at: (usize, u64),
}

impl StoredJournals {
    /// Takes the journals from this store.
    ///
    /// # Errors
    /// A journal cannot be accessed.
    pub fn new(journal_store: JournalStore) -> io::Result<StoredJournals> {
        let (workers, lengths) = journal_store.lengths()?.into_iter().unzip();
        Ok(StoredJournals {
            journal_store,
            workers,
            lengths,
            at: (0, 0),
        })
    }

    /// The journals' lengths, by worker.
    pub fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// The next part and its worker, counted from this host's first worker; `None` once everything has been read.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn take(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let (index, offset) = self.at;
        let Some(length) = self.lengths.get(index) else {
            return Ok(None);
        };
        let count = (length - offset).min(JOURNAL_BYTES_MAX as u64);
        let mut bytes = vec![0; count as usize];
        self.journal_store
            .read(self.workers[index], offset, &mut bytes)?;
        let next = offset + count;
        self.at = if next == *length {
            (index + 1, 0)
        } else {
            (index, next)
        };
        Ok(Some((index as u32, bytes)))
    }

    /// Whether everything has been read.
    pub fn is_over(&self) -> bool {
        self.at.0 == self.lengths.len()
    }
}
