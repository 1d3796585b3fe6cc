//! The folder of a run's journals where they come from other hosts: each arrives in parts, and stands there whole, or a note
//! says why it does not. `brunt verify` reads both.
//!
//! The rule: a journal that is not whole is none. Later writes than it knows would look like lost ones.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::verify::{HEAD_BYTES, JournalHead, journal_name, name, parse_head};

/// Extension of a note that says why a journal is missing.
const MISSING: &str = "missing";
/// Longest note that is read.
const NOTE_BYTES_MAX: usize = 4096;

/// A journal that is not in its folder: what its worker wrote cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingJournal {
    /// Whose.
    pub worker: u32,
    /// For people: why.
    pub why: String,
}

/// Makes the folder for journals of these workers.
///
/// # Errors
/// It cannot be made, or has a journal of one of them: it may be the only witness.
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
    // What an earlier run lacked says nothing of this one.
    workers.for_each(|worker| drop(std::fs::remove_file(note_path(folder, worker))));
    Ok(())
}

fn note_path(folder: &Path, worker: u32) -> PathBuf {
    folder.join(journal_name(worker)).with_extension(MISSING)
}

/// Notes why a worker's journal is missing.
///
/// # Errors
/// The note cannot be written.
pub fn note_missing(folder: &Path, missing: &MissingJournal) -> io::Result<()> {
    let path = note_path(folder, missing.worker);
    std::fs::write(&path, &missing.why).map_err(|error| name(&path, error))
}

/// The journals that are missing in a folder, as notes say.
///
/// # Errors
/// The folder or a note cannot be read.
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

/// A journal on its way into its folder. Dropped before it is whole, it leaves nothing.
#[derive(Debug)]
pub struct ArrivingJournal {
    file: File,
    /// Where it is until it is whole.
    part: PathBuf,
    path: PathBuf,
    worker: u32,
    run: u64,
    /// The first of its bytes, until they are a head.
    head: Vec<u8>,
}

impl ArrivingJournal {
    /// Of this worker of this run.
    ///
    /// # Errors
    /// No file can be made there.
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

    /// Takes what follows.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let missing = HEAD_BYTES - self.head.len();
        self.head
            .extend_from_slice(&bytes[..missing.min(bytes.len())]);
        self.file
            .write_all(bytes)
            .map_err(|error| name(&self.part, error))
    }

    /// All of it has come.
    ///
    /// # Errors
    /// It is no journal of this worker and run, or there is one already.
    pub fn finish(self) -> io::Result<()> {
        let wrong = |what: Box<dyn std::error::Error + Send + Sync>| {
            name(&self.path, io::Error::new(io::ErrorKind::InvalidData, what))
        };
        match parse_head(&self.head) {
            Ok(JournalHead { worker, run, .. }) if (worker, run) == (self.worker, self.run) => {}
            Ok(_) => {
                return Err(wrong(
                    "what came is the journal of another worker or run".into(),
                ));
            }
            Err(error) => return Err(wrong(error.into())),
        }
        // Fails where there is one already, which a rename would not.
        std::fs::hard_link(&self.part, &self.path)
            .or_else(|error| self.rename_unless_there(error))
            .map_err(|error| name(&self.path, error))
    }

    /// For file systems without hard links.
    fn rename_unless_there(&self, why: io::Error) -> io::Result<()> {
        match why.kind() == io::ErrorKind::AlreadyExists || self.path.try_exists()? {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => std::fs::rename(&self.part, &self.path),
        }
    }
}

impl Drop for ArrivingJournal {
    fn drop(&mut self) {
        // The part's name is gone already where it was renamed.
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

    /// In its folder is a whole journal of the right worker, or none.
    #[test]
    fn a_journal_arrives_whole_or_not_at_all() {
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
