//! Collects journals from other hosts in the folder of a run. Each arrives in parts and is stored only when complete;
//! otherwise a note explains why it is missing. `brunt verify` reads journals and notes.
//!
//! The rule: an incomplete journal is not kept, because writes after its end would look lost.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::verify::{HEAD_BYTES, JournalHead, journal_name, name, parse_head};

/// Extension of a note that explains why a journal is missing.
const MISSING: &str = "missing";
/// Maximum length of a note that is read.
const NOTE_BYTES_MAX: usize = 4096;

/// A journal missing from its folder, so that its worker's writes can't be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingJournal {
    /// Number of the worker.
    pub worker: u32,
    /// The reason, as readable text.
    pub why: String,
}

/// Creates the folder for journals of these workers.
///
/// # Errors
/// The folder can't be created, or already has a journal of one of these workers, which may be the only evidence and
/// must not be overwritten.
pub fn reserve(folder: &Path, workers: Range<u32>) -> io::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| name(folder, error))?;
    for path in workers
        .clone()
        .map(|worker| folder.join(journal_name(worker)))
    {
        if path.try_exists()? {
            return Err(name(&path, io::ErrorKind::AlreadyExists.into()));
        }
    }
    // Notes from an earlier run don't apply to this one.
    workers.for_each(|worker| drop(std::fs::remove_file(note_path(folder, worker))));
    Ok(())
}

fn note_path(folder: &Path, worker: u32) -> PathBuf {
    folder.join(journal_name(worker)).with_extension(MISSING)
}

/// Writes a note that explains why a worker's journal is missing.
///
/// # Errors
/// The note can't be written.
pub fn note_missing(folder: &Path, missing: &MissingJournal) -> io::Result<()> {
    let path = note_path(folder, missing.worker);
    std::fs::write(&path, &missing.why).map_err(|error| name(&path, error))
}

/// Returns the missing journals of a folder, according to its notes.
///
/// # Errors
/// The folder or a note can't be read.
pub fn missing_in(folder: &Path) -> io::Result<Vec<MissingJournal>> {
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| name(folder, error))? {
        let path = entry?.path();
        let worker = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.strip_prefix("worker-"));
        let worker = worker.and_then(|worker| worker.parse().ok());
        let (Some(worker), Some(MISSING)) = (worker, path.extension().and_then(|one| one.to_str()))
        else {
            continue;
        };
        let note = std::fs::read(&path).map_err(|error| name(&path, error))?;
        let why = String::from_utf8_lossy(&note[..note.len().min(NOTE_BYTES_MAX)]);
        missing.push(MissingJournal {
            worker,
            why: why.chars().filter(|one| !one.is_control()).collect(),
        });
    }
    missing.sort_by_key(|one| one.worker);
    Ok(missing)
}

/// A journal being received. If dropped before it is complete, it leaves nothing behind.
#[derive(Debug)]
pub struct ArrivingJournal {
    file: File,
    /// Path of the file until it is complete.
    part: PathBuf,
    path: PathBuf,
    worker: u32,
    run: u64,
    /// The first bytes of the journal, until they are enough for a header.
    head: Vec<u8>,
}

impl ArrivingJournal {
    /// Starts receiving the journal of this worker and run.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn begin(folder: &Path, worker: u32, run: u64) -> io::Result<ArrivingJournal> {
        let path = folder.join(journal_name(worker));
        let part = path.with_extension("journal.part");
        let file = File::create(&part).map_err(|error| name(&part, error))?;
        Ok(ArrivingJournal {
            file,
            part,
            path,
            worker,
            run,
            head: Vec::new(),
        })
    }

    /// Appends the next bytes.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let missing = HEAD_BYTES - self.head.len();
        self.head
            .extend_from_slice(&bytes[..missing.min(bytes.len())]);
        self.file
            .write_all(bytes)
            .map_err(|error| name(&self.part, error))
    }

    /// Completes the journal after its last byte.
    ///
    /// # Errors
    /// The data is not the journal of this worker and run, or the folder already has one.
    pub fn finish(self) -> io::Result<()> {
        let wrong = |what: Box<dyn std::error::Error + Send + Sync>| {
            name(&self.path, io::Error::new(io::ErrorKind::InvalidData, what))
        };
        match parse_head(&self.head) {
            Ok(JournalHead { worker, run, .. }) if (worker, run) == (self.worker, self.run) => {}
            Ok(_) => {
                return Err(wrong(
                    "received the journal of another worker or run".into(),
                ));
            }
            Err(error) => return Err(wrong(error.into())),
        }
        // Unlike a rename, this fails if the file exists.
        std::fs::hard_link(&self.part, &self.path)
            .or_else(|error| self.rename_unless_there(error))
            .map_err(|error| name(&self.path, error))
    }

    /// Fallback for file systems without hard links.
    fn rename_unless_there(&self, why: io::Error) -> io::Result<()> {
        match why.kind() == io::ErrorKind::AlreadyExists || self.path.try_exists()? {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => std::fs::rename(&self.part, &self.path),
        }
    }
}

impl Drop for ArrivingJournal {
    fn drop(&mut self) {
        // After a rename, the partial file's name is already gone.
        let _ = std::fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::audit::journals_in;
    use crate::block::verify::{Journal, StableWhen};

    fn journal(worker: u32, run: u64) -> Vec<u8> {
        let scratch = tempfile::tempdir().unwrap();
        let stable = StableWhen::Acknowledged;
        let head = JournalHead {
            run,
            start: 0,
            len: 4096,
            grain: 512,
            worker,
            stable,
        };
        drop(Journal::create(scratch.path(), head).unwrap());
        std::fs::read(scratch.path().join(journal_name(worker))).unwrap()
    }

    /// The folder contains either a complete journal of the right worker, or none.
    #[test]
    fn a_journal_arrives_complete_or_not_at_all() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("journals/run-0");
        reserve(&folder, 2..4).unwrap();
        let bytes = journal(3, 9);
        let begin = || ArrivingJournal::begin(&folder, 3, 9).unwrap();
        let mut cut = begin();
        cut.push(&bytes[..20]).unwrap();
        drop(cut);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        for wrong in [journal(4, 9), journal(3, 8), bytes[..20].to_vec()] {
            let mut other = begin();
            other.push(&wrong).unwrap();
            other.finish().unwrap_err();
        }
        let mut right = begin();
        bytes.chunks(7).for_each(|part| right.push(part).unwrap());
        right.finish().unwrap();
        assert_eq!(
            journals_in(&folder).unwrap(),
            [folder.join("worker-3.journal")]
        );
        assert_eq!(
            std::fs::read(folder.join("worker-3.journal")).unwrap(),
            bytes
        );
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            1,
            "no part is left"
        );
        let mut second = begin();
        second.push(&bytes).unwrap();
        assert_eq!(
            second.finish().unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(
            reserve(&folder, 2..4).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        reserve(&folder, 4..8).unwrap();
    }

    #[test]
    fn missing_journals_have_their_reason() {
        let scratch = tempfile::tempdir().unwrap();
        let missing = [10, 2].map(|worker| MissingJournal {
            worker,
            why: format!("host {worker}: gone"),
        });
        missing
            .iter()
            .for_each(|one| note_missing(scratch.path(), one).unwrap());
        std::fs::write(scratch.path().join("notes.missing"), "x").unwrap();
        let [ten, two] = missing;
        assert_eq!(missing_in(scratch.path()).unwrap(), [two, ten]);
    }
}
