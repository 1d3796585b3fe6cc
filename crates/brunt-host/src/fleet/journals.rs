//! Fetches the journals of acknowledged writes that a host's workers kept. The journals go into the run's folder on
//! this machine, as if all workers had run here: `brunt verify` checks the target against the journals of all hosts.
//! Driven by the host's thread ([`super::host_thread`]) after the run.
//!
//! The rule: each worker has a complete journal in the folder, or a note that explains its absence; missing journals
//! are counted.

use std::io;
use std::path::PathBuf;

use brunt_load::block::journals::{ArrivingJournal, MissingJournal, note_missing};
use brunt_protocol::JOURNAL_BYTES_MAX;
use brunt_result::hosts::JournalsLost;

/// Maximum number of outstanding requests for parts: enough to hide a round trip.
const PARTS: u64 = 4;

/// The journals to fetch from a host, and where to put them.
#[derive(Clone, Debug)]
pub(super) struct WantedJournals {
    /// The run's folder.
    pub folder: PathBuf,
    /// The run's number, as stored in the written blocks.
    pub run: u64,
    /// The number of the host's first worker, counted across all hosts.
    pub first_worker: u32,
    /// The number of workers.
    pub workers: u32,
}

/// The journals of a host's part of a run.
#[derive(Debug)]
pub(super) struct FetchedJournals {
    wanted: WantedJournals,
    /// Bytes of each journal that have not arrived yet; `None` until the host has announced their lengths.
    left: Option<Vec<u64>>,
    /// Parts that were requested but have not arrived.
    asked: u64,
    arriving: Option<ArrivingJournal>,
    /// Number of workers whose journals are complete.
    whole: u32,
    /// Why no further parts are accepted.
    broken: Option<io::Error>,
}

impl FetchedJournals {
    pub fn new(wanted: WantedJournals) -> FetchedJournals {
        FetchedJournals {
            wanted,
            left: None,
            asked: 0,
            arriving: None,
            whole: 0,
            broken: None,
        }
    }

    /// The host announced the journals' lengths.
    pub fn announce(&mut self, lengths: Vec<u64>) {
        self.left = Some(lengths);
    }

    /// The number of parts to request now.
    pub fn wants(&mut self) -> u64 {
        let parts = |left: &u64| left.div_ceil(JOURNAL_BYTES_MAX as u64);
        let parts: u64 = match &self.broken {
            None => self
                .left
                .iter()
                .flatten()
                .map(parts)
                .fold(0, u64::saturating_add),
            Some(_) => 0,
        };
        let more = parts.min(PARTS).saturating_sub(self.asked);
        self.asked += more;
        more
    }

    /// Accepts the next requested part of a worker's journal; workers are counted from the host's first.
    pub fn take(&mut self, worker: u32, bytes: &[u8]) {
        self.asked = self.asked.saturating_sub(1);
        if self.broken.is_none()
            && let Err(error) = self.put(worker, bytes)
        {
            (self.broken, self.arriving) = (Some(error), None);
        }
    }

    fn put(&mut self, worker: u32, bytes: &[u8]) -> io::Result<()> {
        let Some(left) = self
            .left
            .as_mut()
            .and_then(|left| left.get_mut(worker as usize))
        else {
            return Ok(());
        };
        *left = left.saturating_sub(bytes.len() as u64);
        let WantedJournals {
            folder,
            run,
            first_worker,
            ..
        } = &self.wanted;
        let mut arriving = match self.arriving.take() {
            Some(arriving) => arriving,
            None => ArrivingJournal::begin(folder, first_worker + worker, *run)?,
        };
        arriving.push(bytes)?;
        if *left > 0 {
            self.arriving = Some(arriving);
            return Ok(());
        }
        arriving.finish()?;
        self.whole = worker + 1;
        Ok(())
    }

    /// Whether no more parts will arrive.
    pub fn is_over(&self) -> bool {
        self.broken.is_some() || self.whole == self.wanted.workers
    }

    /// Leaves notes in place of missing journals. `lost` is the reason why the host was lost, if it was lost.
    pub fn conclude(self, host: &str, lost: Option<&str>) -> Option<JournalsLost> {
        // This removes the incomplete journal.
        drop(self.arriving);
        let WantedJournals {
            folder,
            first_worker,
            workers,
            ..
        } = self.wanted;
        let why = match (&self.broken, lost) {
            (Some(broken), _) => format!("cannot store the journals here: {broken}"),
            (None, Some(lost)) => lost.to_string(),
            (None, None) => format!("host {host}: its run was ended before its journals arrived"),
        };
        let missing = self.whole..workers;
        for worker in missing.clone() {
            let note = MissingJournal {
                worker: first_worker + worker,
                why: why.clone(),
            };
            // If there is no space for the note either, the results still report the missing journals.
            let _ = note_missing(&folder, &note);
        }
        (!missing.is_empty()).then(|| JournalsLost {
            workers: missing.len() as u32,
            why,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_load::block::journals::missing_in;
    use brunt_load::block::verify::{Journal, JournalHead, StableWhen};

    fn journal(worker: u32) -> Vec<u8> {
        let scratch = tempfile::tempdir().unwrap();
        let stable = StableWhen::Acknowledged;
        let head = JournalHead {
            run: 9,
            start: 0,
            len: 4096,
            grain: 512,
            worker,
            stable,
        };
        drop(Journal::create(scratch.path(), head).unwrap());
        let mut bytes =
            std::fs::read(scratch.path().join(format!("worker-{worker}.journal"))).unwrap();
        bytes.resize(JOURNAL_BYTES_MAX + 100, 0);
        bytes
    }

    fn fetched(folder: &std::path::Path) -> FetchedJournals {
        let wanted = WantedJournals {
            folder: folder.to_path_buf(),
            run: 9,
            first_worker: 4,
            workers: 3,
        };
        FetchedJournals::new(wanted)
    }

    /// No more parts are requested than exist. What a host sent before it was lost is kept, and a note covers the rest.
    #[test]
    fn journals_are_fetched_up_to_the_loss_of_their_host() {
        let folder = tempfile::tempdir().unwrap();
        let mut fetched = fetched(folder.path());
        assert_eq!(fetched.wants(), 0, "their lengths are unknown");
        let journals = [4, 5, 6].map(journal);
        fetched.announce(
            journals
                .iter()
                .map(|journal| journal.len() as u64)
                .collect(),
        );
        assert_eq!([fetched.wants(), fetched.wants()], [4, 0]);
        let mut parts = (0..).zip(&journals).flat_map(|(worker, journal)| {
            journal
                .chunks(JOURNAL_BYTES_MAX)
                .map(move |part| (worker, part))
        });
        for wants in [1, 1, 0] {
            let (worker, part) = parts.next().unwrap();
            fetched.take(worker, part);
            assert_eq!(fetched.wants(), wants);
        }
        assert!(!fetched.is_over());
        let lost = fetched.conclude("b", Some("host b: it died")).unwrap();
        assert_eq!((lost.workers, lost.why.as_str()), (2, "host b: it died"));
        assert_eq!(
            std::fs::read(folder.path().join("worker-4.journal")).unwrap(),
            journals[0]
        );
        let missing = missing_in(folder.path()).unwrap();
        assert_eq!(
            missing.iter().map(|one| one.worker).collect::<Vec<_>>(),
            [5, 6]
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            3,
            "no part is left"
        );
    }

    /// An unwritable folder or an invalid journal ends the transfer: no more parts are requested, and the reason is
    /// reported.
    #[test]
    fn an_unwritable_or_invalid_journal_is_reported() {
        for (folder, bytes) in [
            ("/proc/nowhere", journal(4)),
            ("", vec![0; JOURNAL_BYTES_MAX]),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let folder = if folder.is_empty() {
                scratch.path()
            } else {
                std::path::Path::new(folder)
            };
            let mut fetched = fetched(folder);
            fetched.announce(vec![bytes.len() as u64; 3]);
            fetched.wants();
            bytes
                .chunks(JOURNAL_BYTES_MAX)
                .for_each(|part| fetched.take(0, part));
            assert!(fetched.is_over() && fetched.wants() == 0);
            let lost = fetched.conclude("a", None).unwrap();
            assert!(
                lost.workers == 3 && lost.why.starts_with("cannot store the journals here: "),
                "{lost:?}"
            );
        }
    }
}
