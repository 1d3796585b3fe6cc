//! Compares a device with the journals of acknowledged writes after a crash, and separates lost acknowledged writes
//! from writes that were never acknowledged. Called by `brunt verify`.
//!
//! The rule: if it is unknown whether a flush covered a write (another worker's flush may have), the write counts as
//! not covered.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use brunt_block::{Backend, Op, Request, Ring, RingConfig, turn};
use brunt_core::input::InputFile;

use crate::block::verify::{
    BlockFinding, ENTRY_BYTES, HEAD_BYTES, JournalEntry, JournalHead, JournalHeadError, StableWhen,
    inspect, parse_entry, parse_head,
};

/// Maximum number of lost extents that are listed individually.
pub const NAMED_MAX: usize = 100;
const READ_BYTES: u64 = 256 << 10;

/// What a journal promises about each grain.
pub struct Promises {
    head: JournalHead,
    /// The last acknowledged generation, or 0 for none.
    acknowledged: Vec<u64>,
    /// The last generation that must be stable, or 0 for none.
    stable: Vec<u64>,
    /// Zeros: the grain was never written, or its data was lost.
    sent: Vec<u64>,
    /// True if the file ends within an entry or with a damaged entry.
    pub cut: bool,
}

/// The content found in place of a lost write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Zeros: as if never written.
    Zeros,
    /// A block of this run from another write to the same place, usually an older one.
    Older,
    /// A block of this run with a wrong checksum.
    Damaged,
    /// A block of this run that belongs elsewhere.
    Misplaced,
    /// Data that this run did not write.
    Foreign,
}

impl Instead {
    fn of(found: BlockFinding) -> Instead {
        match found {
            BlockFinding::Zeros => Instead::Zeros,
            BlockFinding::Sealed { .. } => Instead::Older,
            BlockFinding::Corrupt => Instead::Damaged,
            BlockFinding::Misplaced { .. } => Instead::Misplaced,
            BlockFinding::Foreign => Instead::Foreign,
        }
    }

    /// Returns a single word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Instead::Zeros => "zeros",
            Instead::Older => "older",
            Instead::Damaged => "damaged",
            Instead::Misplaced => "misplaced",
            Instead::Foreign => "foreign",
        }
    }
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Instead::Zeros => "never written or lost (zeros)",
            Instead::Older => "an older write",
            Instead::Damaged => "a damaged block",
            Instead::Misplaced => "a block that belongs elsewhere",
            Instead::Foreign => "data that this run did not write",
        })
    }
}

/// Adjacent grains that were acknowledged and are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostExtent {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether a flush, FUA or write-through had made them stable, in which case this is data loss.
    pub stable: bool,
    /// The content found in place of the lost grains.
    pub found: Instead,
}

/// The result of an audit: numbers of grains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Acknowledged and present (or replaced by a later write).
    pub kept: u64,
    /// Acknowledged, stable, and lost: data loss.
    pub lost: u64,
    /// Acknowledged and lost, but never flushed: a volatile cache is allowed to lose these.
    pub lost_unflushed: u64,
    /// The lost extents, flushed and unflushed; only the first [`NAMED_MAX`].
    pub extents: Vec<LostExtent>,
    /// Total number of lost extents.
    pub extents_count: u64,
    /// Sent, never acknowledged, but present: allowed.
    pub unacknowledged_there: u64,
    /// Sent, never acknowledged, and missing or incomplete: allowed.
    pub unacknowledged_gone: u64,
    /// The extent ending at the most recent lost grain; the next lost grain may extend it.
    open: Option<LostExtent>,
}

impl Audit {
    fn lose(&mut self, grain: LostExtent) {
        if grain.stable {
            self.lost += 1;
        } else {
            self.lost_unflushed += 1;
        }
        if let Some(open) = &mut self.open
            && open.offset + open.len == grain.offset
            && (open.stable, open.found) == (grain.stable, grain.found)
        {
            open.len += grain.len;
            return;
        }
        self.close();
        self.open = Some(grain);
    }

    fn close(&mut self) {
        let Some(extent) = self.open.take() else {
            return;
        };
        self.extents_count += 1;
        if self.extents.len() < NAMED_MAX {
            self.extents.push(extent);
        }
    }
}

/// Why an audit failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file could not be read.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a journal.
    #[error("{path}: {source}; give the folder named in the workload's verify.journal")]
    NotAJournal {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the journal's header.
        source: JournalHeadError,
    },
    /// The device could not be read.
    #[error("reading {device} at {offset}: {what}")]
    Device {
        /// Name of the device.
        device: String,
        /// Offset in bytes.
        offset: u64,
        /// The cause.
        what: String,
    },
}

impl Promises {
    /// Reads a journal.
    ///
    /// # Errors
    /// The file can't be read or is not a journal. A truncated end is not an error: see [`Promises::cut`].
    pub fn read(path: &Path) -> Result<Promises, AuditError> {
        let file_error = |source| AuditError::File {
            path: path.to_path_buf(),
            source,
        };
        let mut file =
            BufReader::with_capacity(1 << 20, InputFile::open(path).map_err(file_error)?);
        let mut head = [0; HEAD_BYTES];
        let read = read_full(&mut file, &mut head).map_err(file_error)?;
        let head = parse_head(&head[..read]).map_err(|source| AuditError::NotAJournal {
            path: path.to_path_buf(),
            source,
        })?;
        let grains = (head.len / head.grain) as usize;
        let none = || vec![0; grains];
        let mut promises = Promises {
            head,
            acknowledged: none(),
            stable: none(),
            sent: none(),
            cut: false,
        };
        let mut unflushed = Unflushed::default();
        loop {
            let mut entry = [0; ENTRY_BYTES];
            let read = read_full(&mut file, &mut entry).map_err(file_error)?;
            if read == 0 {
                break;
            }
            let taken =
                parse_entry(&entry[..read]).and_then(|entry| promises.take(entry, &mut unflushed));
            if taken.is_none() {
                promises.cut = true;
                break;
            }
        }
        if head.stable == StableWhen::Acknowledged {
            promises.stable.clone_from(&promises.acknowledged);
        }
        Ok(promises)
    }

    /// Applies an entry; `None` if it lies outside the worker's part.
    fn take(&mut self, entry: JournalEntry, unflushed: &mut Unflushed) -> Option<()> {
        match entry {
            JournalEntry::Write {
                acknowledged,
                generation,
                offset,
                len,
            } => {
                let grains = self.grains(offset, len)?;
                let table = if acknowledged {
                    &mut self.acknowledged
                } else {
                    &mut self.sent
                };
                table[grains.clone()].fill(generation);
                if acknowledged && self.head.stable == StableWhen::Flushed {
                    unflushed
                        .writes
                        .push((grains.start as u32, grains.len() as u32, generation));
                }
            }
            JournalEntry::Flush {
                acknowledged: false,
                number,
            } => unflushed.flush_sent(number),
            JournalEntry::Flush {
                acknowledged: true,
                number,
            } => {
                for (first, count, generation) in unflushed.flush_done(number) {
                    let grains = first as usize..first as usize + count as usize;
                    self.stable[grains].fill(generation);
                }
            }
        }
        Some(())
    }

    fn grains(&self, offset: u64, len: u32) -> Option<Range<usize>> {
        let first = offset.checked_sub(self.head.start)? / self.head.grain;
        let end = first + u64::from(len).div_ceil(self.head.grain);
        (end <= self.sent.len() as u64).then_some(first as usize..end as usize)
    }

    /// Classifies one grain.
    fn judge(&self, index: usize, grain: &[u8], audit: &mut Audit) {
        let offset = self.head.start + index as u64 * self.head.grain;
        let (acknowledged, sent) = (self.acknowledged[index], self.sent[index]);
        let found = inspect(grain, offset, self.head.run);
        // A write after the acknowledged one may have been in flight. It may have replaced the acknowledged data or
        // torn the block, but neither leaves zeros.
        let under_way = sent > acknowledged;
        match found {
            BlockFinding::Sealed { generation }
                if generation > acknowledged && generation <= sent =>
            {
                audit.unacknowledged_there += 1;
            }
            BlockFinding::Sealed { generation }
                if generation == acknowledged && acknowledged > 0 =>
            {
                audit.kept += 1
            }
            BlockFinding::Foreign | BlockFinding::Corrupt if under_way => {
                audit.unacknowledged_gone += 1
            }
            _ if acknowledged == 0 => audit.unacknowledged_gone += 1,
            _ => {
                // If the data of the last flushed write or of a later one is present, only unflushed writes were
                // lost.
                let is_there = matches!(found, BlockFinding::Sealed { generation }
                    if (self.stable[index]..=sent).contains(&generation));
                let stable = self.stable[index] > 0 && !is_there;
                let found = Instead::of(found);
                audit.lose(LostExtent {
                    offset,
                    len: self.head.grain,
                    stable,
                    found,
                });
            }
        }
    }
}

/// Acknowledged writes that no flush has covered yet, in order of acknowledgement.
#[derive(Default)]
struct Unflushed {
    /// First grain, number of grains, generation.
    writes: Vec<(u32, u32, u64)>,
    /// Number of writes removed from the front.
    before: usize,
    /// For each flush, the number of writes acknowledged when it was sent.
    sent: HashMap<u64, usize>,
}

impl Unflushed {
    fn flush_sent(&mut self, number: u64) {
        self.sent.insert(number, self.before + self.writes.len());
    }

    /// Returns the writes covered by this flush but by no earlier one.
    fn flush_done(&mut self, number: u64) -> std::vec::Drain<'_, (u32, u32, u64)> {
        let covers = self.sent.remove(&number).unwrap_or(0);
        let count = covers.saturating_sub(self.before);
        self.before += count;
        self.writes.drain(..count)
    }
}

/// Reads everything covered by `journals` from the device and compares it.
///
/// # Errors
/// A journal or the device can't be read.
pub fn audit(backend: &dyn Backend, journals: &[PathBuf]) -> Result<Audit, AuditError> {
    let info = backend.info();
    let failed = |offset, what: String| AuditError::Device {
        device: info.name.clone(),
        offset,
        what,
    };
    let ring = Ring::new(RingConfig::default()).map_err(|error| failed(0, error.to_string()))?;
    let mut device = backend
        .open(&ring, 1)
        .map_err(|error| failed(0, error.to_string()))?;
    let mut audit = Audit::default();
    for path in journals {
        let promises = Promises::read(path)?;
        let grain = promises.head.grain;
        let step = READ_BYTES
            .min(u64::from(info.transfer_bytes_max))
            .max(grain)
            / grain;
        let grains = promises.sent.len() as u64;
        for first in (0..grains).step_by(step as usize) {
            let window = first as usize..(first + step).min(grains) as usize;
            if promises.sent[window.clone()]
                .iter()
                .all(|generation| *generation == 0)
            {
                continue;
            }
            let (offset, len) = (
                promises.head.start + first * grain,
                window.len() as u64 * grain,
            );
            let buf = ring.pool().take(len as usize);
            let request = Request {
                tag: 0,
                op: Op::Read,
                offset,
                len,
                buf,
                force_unit_access: false,
            };
            let completion = turn::one(&ring, &mut *device, request)
                .map_err(|error| failed(offset, error.to_string()))?;
            completion
                .result
                .map_err(|error| failed(offset, error.to_string()))?;
            for (at, bytes) in completion.buf[..len as usize]
                .chunks(grain as usize)
                .enumerate()
            {
                let index = window.start + at;
                if promises.sent[index] > 0 {
                    promises.judge(index, bytes, &mut audit);
                }
            }
        }
        audit.close();
    }
    Ok(audit)
}

/// Lists the journals in a folder.
///
/// # Errors
/// The folder can't be read.
pub fn journals_in(folder: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let file_error = |source| AuditError::File {
        path: folder.to_path_buf(),
        source,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(file_error)? {
        let path = entry.map_err(file_error)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "journal")
        {
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

    /// After a crash in the middle of a run, kept, lost and unacknowledged writes are distinguished.
    #[test]
    fn an_audit_separates_lost_from_unacknowledged_writes() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let stable = StableWhen::Acknowledged;
        let head = JournalHead {
            run: 7,
            start: 0,
            len: LEN,
            grain: 4096,
            worker: 0,
            stable,
        };
        let mut ledger = Ledger::new(
            0,
            LEN,
            4096,
            7,
            Some(Journal::create(folder, head).unwrap()),
        );
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
        write(2, true, false); // an older version in place of an acknowledged write: lost
        write(3, false, true); // unacknowledged, present
        write(4, false, false); // unacknowledged, missing
        write(5, true, true);
        write(5, false, false); // never arrived, so the older version is correct
        write(6, true, true);
        write(6, false, true);
        backend.memory().write(6 * 4096 + 100, &[1]); // torn by the write in flight
        write(7, true, true);
        let mut misplaced = [0; 4096];
        seal(&mut misplaced, 0, 1, 7);
        backend.memory().write(7 * 4096, &misplaced); // lost: another grain's block
        let verdict = audit(&backend, &journals_in(folder).unwrap()).unwrap();
        assert_eq!((verdict.kept, verdict.lost), (2, 3));
        assert_eq!(
            (verdict.unacknowledged_there, verdict.unacknowledged_gone),
            (1, 2)
        );
        let places: Vec<_> = verdict
            .extents
            .iter()
            .map(|lost| (lost.offset / 4096, lost.len / 4096, lost.found))
            .collect();
        assert_eq!(
            places,
            [
                (1, 1, Instead::Zeros),
                (2, 1, Instead::Older),
                (7, 1, Instead::Misplaced)
            ]
        );
        // A journal truncated in its last entry is trusted up to that point.
        let path = folder.join("worker-0.journal");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(Promises::read(&path).unwrap().cut);
        assert_eq!(audit(&backend, &[path]).unwrap().lost, 2);
    }

    /// On a device with a volatile cache, only data covered by a flush has to be present.
    #[test]
    fn an_audit_separates_flushed_from_unflushed_writes() {
        let scratch = tempfile::tempdir().unwrap();
        let head = JournalHead {
            run: 7,
            start: 0,
            len: LEN,
            grain: 4096,
            worker: 0,
            stable: StableWhen::Flushed,
        };
        let mut ledger = Ledger::new(
            0,
            LEN,
            4096,
            7,
            Some(Journal::create(scratch.path(), head).unwrap()),
        );
        let backend = MemoryBackend::new(LEN, 512).unwrap();
        let write = |ledger: &mut Ledger, index: u64, arrives: bool| {
            let mut block = [0; 4096];
            let generation = ledger.begin_write(index * 4096, &mut block);
            ledger.end_write(index * 4096, 4096, generation, true);
            if arrives {
                backend.memory().write(index * 4096, &block);
            }
        };
        for index in [0, 1, 2, 3] {
            write(&mut ledger, index, index == 0 || index == 3);
        }
        let flush = ledger.begin_flush();
        let overtaken = ledger.begin_flush();
        write(&mut ledger, 4, false); // acknowledged after the flush was sent
        ledger.end_flush(flush);
        ledger.end_flush(overtaken);
        write(&mut ledger, 3, false); // the data of the flushed write is present
        write(&mut ledger, 5, false);
        let failed = ledger.begin_flush();
        assert_eq!(failed, 3);
        ledger.flush().unwrap();
        let verdict = audit(&backend, &journals_in(scratch.path()).unwrap()).unwrap();
        assert_eq!(
            (verdict.kept, verdict.lost, verdict.lost_unflushed),
            (1, 2, 3)
        );
        let extent = |first: u64, count: u64, stable, found| LostExtent {
            offset: first * 4096,
            len: count * 4096,
            stable,
            found,
        };
        let expected = [
            extent(1, 2, true, Instead::Zeros),
            extent(3, 1, false, Instead::Older),
            extent(4, 2, false, Instead::Zeros),
        ];
        assert_eq!(
            (verdict.extents.as_slice(), verdict.extents_count),
            (&expected[..], 3)
        );
    }
}
