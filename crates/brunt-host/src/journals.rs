//! The journals of a run's workers, as an agent passes them to its controller after the run. Used by [`crate::agent_run`].
//!
//! The rule: they are sent in the order of workers, each from its start to its length at the time of the offer.

use std::io;

use brunt_load::block::shelf::JournalShelf;
use brunt_protocol::JOURNAL_BYTES_MAX;

/// Journals of workers that have ended.
#[derive(Debug)]
pub(crate) struct ShelvedJournals {
    shelf: JournalShelf,
    /// The workers' numbers among all.
    workers: Vec<u32>,
    lengths: Vec<u64>,
    /// The worker being read, counted from the first here, and the offset.
    at: (usize, u64),
}

impl ShelvedJournals {
    /// With the journals of this shelf.
    ///
    /// # Errors
    /// A journal cannot be accessed.
    pub fn new(shelf: JournalShelf) -> io::Result<ShelvedJournals> {
        let (workers, lengths) = shelf.lengths()?.into_iter().unzip();
        Ok(ShelvedJournals {
            shelf,
            workers,
            lengths,
            at: (0, 0),
        })
    }

    /// Their lengths, by worker.
    pub fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// The next part, with its worker, counted from the first here; `None` when all was taken.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn take(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let (index, offset) = self.at;
        let Some(length) = self.lengths.get(index) else {
            return Ok(None);
        };
        let count = (length - offset).min(JOURNAL_BYTES_MAX as u64);
        let mut bytes = vec![0; count as usize];
        self.shelf.read(self.workers[index], offset, &mut bytes)?;
        let next = offset + count;
        self.at = if next == *length {
            (index + 1, 0)
        } else {
            (index, next)
        };
        Ok(Some((index as u32, bytes)))
    }

    /// Whether all was taken.
    pub fn is_over(&self) -> bool {
        self.at.0 == self.lengths.len()
    }
}
