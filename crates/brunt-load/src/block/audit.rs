//! After a crash: holds a device against the journals of acknowledged writes, and tells what was
//! acknowledged and lost from what was never acknowledged. `brunt verify` calls it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use brunt_block::{Backend, Op, Request, Ring, RingConfig, turn};

use crate::block::verify::{
    BlockFinding, ENTRY_BYTES, HEAD_BYTES, JournalHead, inspect, parse_entry, parse_head,
};

/// Lost grains that are named one by one.
pub const NAMED_MAX: usize = 100;
const READ_BYTES: u64 = 256 << 10;

/// What a journal promises for each grain.
pub struct Promises {
    head: JournalHead,
    /// Last acknowledged generation, 0 for none.
    acknowledged: Vec<u64>,
    /// Last generation that was sent, 0 for none.
    sent: Vec<u64>,
    /// Whether the file ended inside an entry or with a damaged one.
    pub cut: bool,
}

/// A grain that was acknowledged and is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// In bytes.
    pub offset: u64,
    /// What had been acknowledged.
    pub generation: u64,
    /// What was found in its place.
    pub found: BlockFinding,
}

/// The verdict, in grains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Acknowledged and there (or a later write in their place).
    pub kept: u64,
    /// Acknowledged and not there: data loss.
    pub lost: u64,
    /// The first of them.
    pub named: Vec<Lost>,
    /// Sent, never acknowledged, and there nevertheless: fine.
    pub unacknowledged_there: u64,
    /// Sent, never acknowledged, and not there or only in part: fine.
    pub unacknowledged_gone: u64,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file could not be read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a journal.
    #[error("{path}: {what}; give the folder named in the workload's verify.journal")]
    NotAJournal {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The device could not be read.
    #[error("reading {device} at {offset}: {what}")]
    Device {
        /// Its name.
        device: String,
        /// In bytes.
        offset: u64,
        /// What happened.
        what: String,
    },
}

impl Promises {
    /// Reads a journal.
    ///
    /// # Errors
    /// The file cannot be read or is no journal. A cut end is none: see [`Promises::cut`].
    pub fn read(path: &Path) -> Result<Promises, AuditError> {
        let file_error = |source| AuditError::File { path: path.to_path_buf(), source };
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(file_error)?);
        let mut head = [0; HEAD_BYTES];
        let read = read_full(&mut file, &mut head).map_err(file_error)?;
        let head = parse_head(&head[..read])
            .map_err(|what| AuditError::NotAJournal { path: path.to_path_buf(), what })?;
        let grains = (head.len / head.grain) as usize;
        let mut promises =
            Promises { head, acknowledged: vec![0; grains], sent: vec![0; grains], cut: false };
        loop {
            let mut entry = [0; ENTRY_BYTES];
            let read = read_full(&mut file, &mut entry).map_err(file_error)?;
            if read == 0 {
                return Ok(promises);
            }
            let grains =
                parse_entry(&entry[..read]).and_then(|entry| Some((entry, promises.grains(&entry)?)));
            let Some((entry, grains)) = grains else {
                promises.cut = true;
                return Ok(promises);
            };
            let table = if entry.acknowledged { &mut promises.acknowledged } else { &mut promises.sent };
            table[grains].fill(entry.generation);
        }
    }

    /// The grains of an entry; `None` when it lies outside the part.
    fn grains(&self, entry: &crate::block::verify::JournalEntry) -> Option<std::ops::Range<usize>> {
        let first = entry.offset.checked_sub(self.head.start)? / self.head.grain;
        let end = first + u64::from(entry.len).div_ceil(self.head.grain);
        (end <= self.sent.len() as u64).then_some(first as usize..end as usize)
    }

    /// Judges one grain.
    fn judge(&self, index: usize, grain: &[u8], audit: &mut Audit) {
        let offset = self.head.start + index as u64 * self.head.grain;
        let (acknowledged, sent) = (self.acknowledged[index], self.sent[index]);
        let found = inspect(grain, offset, self.head.run);
        // A later write may have been under way; it replaces the acknowledged one, or tears it.
        let under_way = sent > acknowledged;
        match found {
            BlockFinding::Sealed { generation } if generation > acknowledged && generation <= sent => {
                audit.unacknowledged_there += 1;
            }
            BlockFinding::Sealed { generation } if generation == acknowledged && acknowledged > 0 => {
                audit.kept += 1
            }
            BlockFinding::Foreign | BlockFinding::Corrupt if under_way => audit.unacknowledged_gone += 1,
            _ if acknowledged == 0 => audit.unacknowledged_gone += 1,
            _ => {
                audit.lost += 1;
                if audit.named.len() < NAMED_MAX {
                    audit.named.push(Lost { offset, generation: acknowledged, found });
                }
            }
        }
    }
}

/// Reads everything that `journals` speak of from the device.
///
/// # Errors
/// A journal cannot be read, or the device.
pub fn audit(backend: &dyn Backend, journals: &[PathBuf]) -> Result<Audit, AuditError> {
    let info = backend.info();
    let failed = |offset, what: String| AuditError::Device { device: info.name.clone(), offset, what };
    let ring = Ring::new(RingConfig::default()).map_err(|error| failed(0, error.to_string()))?;
    let mut device = backend.open(&ring, 1).map_err(|error| failed(0, error.to_string()))?;
    let mut audit = Audit::default();
    for path in journals {
        let promises = Promises::read(path)?;
        let grain = promises.head.grain;
        let step = READ_BYTES.min(u64::from(info.transfer_bytes_max)).max(grain) / grain;
        let grains = promises.sent.len() as u64;
        for first in (0..grains).step_by(step as usize) {
            let window = first as usize..(first + step).min(grains) as usize;
            if promises.sent[window.clone()].iter().all(|generation| *generation == 0) {
                continue;
            }
            let (offset, len) = (promises.head.start + first * grain, window.len() as u64 * grain);
            let buf = ring.pool().take(len as usize);
            let request = Request { tag: 0, op: Op::Read, offset, len, buf, force_unit_access: false };
            let completion =
                turn::one(&ring, &mut *device, request).map_err(|error| failed(offset, error.to_string()))?;
            completion.result.map_err(|error| failed(offset, error.to_string()))?;
            for (at, bytes) in completion.buf[..len as usize].chunks(grain as usize).enumerate() {
                let index = window.start + at;
                if promises.sent[index] > 0 {
                    promises.judge(index, bytes, &mut audit);
                }
            }
        }
    }
    Ok(audit)
}

/// The journals in a folder.
///
/// # Errors
/// The folder cannot be read.
pub fn journals_in(folder: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let file_error = |source| AuditError::File { path: folder.to_path_buf(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(file_error)? {
        let path = entry.map_err(file_error)?.path();
        if path.extension().is_some_and(|extension| extension == "journal") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_full(from: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < out.len() {
        match from.read(&mut out[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::verify::{Journal, Ledger, seal};
    use brunt_block::backends::memory::MemoryBackend;

    const LEN: u64 = 64 << 10;

    /// After a crash in the middle, kept, lost and never acknowledged are told apart.
    #[test]
    fn tells_lost_from_unacknowledged() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let head = JournalHead { run: 7, start: 0, len: LEN, grain: 4096, worker: 0 };
        let mut ledger = Ledger::new(0, LEN, 4096, 7, Some(Journal::create(folder, head).unwrap()));
        let backend = MemoryBackend::new(LEN, 512).unwrap();
        let mut write = |index: u64, acknowledge: bool, arrives: bool| {
            let mut block = [0; 4096];
            let generation = ledger.begin_write(index * 4096, &mut block);
            if arrives {
                backend.memory().write(index * 4096, &block);
            }
            if acknowledge {
                ledger.end_write(index * 4096, 4096, generation, true);
            }
            ledger.flush().unwrap();
        };
        write(0, true, true); // kept
        write(1, true, false); // acknowledged and lost
        write(2, true, true);
        write(2, true, false); // an older version in its place: lost
        write(3, false, true); // unacknowledged, there
        write(4, false, false); // unacknowledged, gone
        write(5, true, true);
        write(5, false, false); // the older one is right
        write(6, true, true);
        write(6, false, true);
        backend.memory().write(6 * 4096 + 100, &[1]); // torn by the one under way
        write(7, true, true);
        let mut misplaced = [0; 4096];
        seal(&mut misplaced, 0, 1, 7);
        backend.memory().write(7 * 4096, &misplaced); // lost: somebody else's block
        let verdict = audit(&backend, &journals_in(folder).unwrap()).unwrap();
        assert_eq!((verdict.kept, verdict.lost), (2, 3));
        assert_eq!((verdict.unacknowledged_there, verdict.unacknowledged_gone), (1, 2));
        let places: Vec<u64> = verdict.named.iter().map(|lost| lost.offset / 4096).collect();
        assert_eq!(places, [1, 2, 7]);
        // A journal cut in its last entry is believed up to there.
        let path = folder.join("worker-0.journal");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(Promises::read(&path).unwrap().cut);
        assert_eq!(audit(&backend, &[path]).unwrap().lost, 2);
    }
}
