//! Self-describing blocks (address and generation) and the journal of acknowledged writes. A worker seals the blocks
//! that it writes and checks those that it reads; [`crate::block::audit`] reads the journal after a crash.
//!
//! The rule: overlapping requests of a worker are never in flight together, and workers use disjoint parts, so the
//! expected content of each block is known at any time.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use brunt_result::wrong::Verified;

/// Size of the header at the start of each grain: magic, address, generation, run and checksum.
pub const HEADER_BYTES: usize = 40;
/// Maximum number of grains in a worker's part: at 8 bytes each, 256 MiB in total.
pub const GRAINS_MAX: u64 = 32 << 20;

const MAGIC: u64 = 0x4b43_4f4c_4254_4e52; // "RNTBLOCK" in memory order
const CRC_AT: usize = 32;
/// Marks a generation as uncertain: either a write failed here, so old, new and mixed data are all valid, or the blocks
/// were trimmed, after which a device may return anything.
const UNSURE: u64 = 1 << 63;
/// Marks grains where zeros were written; takes the place of a generation.
const ZEROED: u64 = 1 << 62;

/// The content found in a grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFinding {
    /// A complete write of this run, at its own address.
    Sealed {
        /// Number of the write.
        generation: u64,
    },
    /// Only zeros: never written, or lost since.
    Zeros,
    /// Not written by this run: another run's block, or no header.
    Foreign,
    /// A block of this run that belongs to another address.
    Misplaced {
        /// The address it belongs to, in bytes.
        offset: u64,
    },
    /// A header of this run with a wrong checksum.
    Corrupt,
}

impl fmt::Display for BlockFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockFinding::Sealed { generation } => write!(f, "there is write {generation}"),
            BlockFinding::Zeros => f.write_str("there are zeros"),
            BlockFinding::Foreign => f.write_str("it holds data that this run did not write"),
            BlockFinding::Misplaced { offset } => {
                write!(f, "there is a block that belongs at byte {offset}")
            }
            BlockFinding::Corrupt => f.write_str("there is a damaged block"),
        }
    }
}

impl BlockFinding {
    /// Describes the content without a write number or address, for a list of ranges.
    fn kind(self) -> &'static str {
        match self {
            BlockFinding::Sealed { .. } => "an older write",
            BlockFinding::Zeros => "zeros",
            BlockFinding::Foreign => "data that this run did not write",
            BlockFinding::Misplaced { .. } => "a block that belongs elsewhere",
            BlockFinding::Corrupt => "a damaged block",
        }
    }
}

/// The expected content of a grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The data of the last acknowledged write.
    Write(u64),
    /// Zeros, because they were written last.
    Zeros,
}

impl Expected {
    fn is(self, found: BlockFinding) -> bool {
        match self {
            Expected::Write(generation) => found == BlockFinding::Sealed { generation },
            Expected::Zeros => found == BlockFinding::Zeros,
        }
    }
}

/// A grain that doesn't hold what was last written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Offset of the grain in bytes.
    pub offset: u64,
    /// The last write to the grain.
    pub expected: Expected,
    /// The worker's most recent write anywhere, which shows how old the expected one is.
    pub newest: u64,
    /// The content found.
    pub found: BlockFinding,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            offset,
            expected,
            newest,
            found,
        } = self;
        write!(
            f,
            "the data differs from what was written: at byte {offset}, instead of "
        )?;
        match expected {
            Expected::Write(expected) => write!(f, "write {expected} of {newest}, {found}"),
            Expected::Zeros => write!(f, "zeros, {found}"),
        }
    }
}

/// Writes a header that identifies `grain` as the one at `offset`, from write `generation` of `run`.
pub fn seal(grain: &mut [u8], offset: u64, generation: u64, run: u64) {
    grain[..8].copy_from_slice(&MAGIC.to_le_bytes());
    grain[8..16].copy_from_slice(&offset.to_le_bytes());
    grain[16..24].copy_from_slice(&generation.to_le_bytes());
    grain[24..32].copy_from_slice(&run.to_le_bytes());
    grain[CRC_AT..HEADER_BYTES].fill(0);
    let crc = crc32c::crc32c(grain);
    grain[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Inspects the grain read from `offset`.
pub fn inspect(grain: &[u8], offset: u64, run: u64) -> BlockFinding {
    let word = |at: usize| u64::from_le_bytes(grain[at..at + 8].try_into().expect("eight bytes"));
    if word(0) != MAGIC || word(24) != run {
        let is_zero = grain.iter().all(|byte| *byte == 0);
        return if is_zero {
            BlockFinding::Zeros
        } else {
            BlockFinding::Foreign
        };
    }
    let told = word(CRC_AT);
    let crc = crc32c::crc32c(&grain[..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &[0; HEADER_BYTES - CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &grain[HEADER_BYTES..]);
    if told != u64::from(crc) {
        return BlockFinding::Corrupt;
    }
    if word(8) != offset {
        return BlockFinding::Misplaced { offset: word(8) };
    }
    BlockFinding::Sealed {
        generation: word(16),
    }
}

/// The expected content of each grain of a worker's part.
pub struct Ledger {
    start: u64,
    grain: u64,
    run: u64,
    /// The last acknowledged generation; 0 if never written.
    generations: Vec<u64>,
    writes: u64,
    flushes: u64,
    journal: Option<Journal>,
    verified: Verified,
}

impl Ledger {
    /// Creates a ledger for a part of `len` bytes from `start`, in grains of `grain` bytes.
    ///
    /// # Panics
    /// Panics if there are more than [`GRAINS_MAX`] grains, or if they are smaller than a header; the worker has ruled
    /// that out.
    pub fn new(start: u64, len: u64, grain: u64, run: u64, journal: Option<Journal>) -> Ledger {
        assert!(len / grain <= GRAINS_MAX && grain as usize >= HEADER_BYTES);
        let generations = vec![0; (len / grain) as usize];
        Ledger {
            start,
            grain,
            run,
            generations,
            writes: 0,
            flushes: 0,
            journal,
            verified: Verified::default(),
        }
    }

    /// Seals a block about to be written; returns its generation.
    pub fn begin_write(&mut self, offset: u64, block: &mut [u8]) -> u64 {
        self.writes += 1;
        let generation = self.writes;
        for (index, grain) in block.chunks_mut(self.grain as usize).enumerate() {
            seal(
                grain,
                offset + index as u64 * self.grain,
                generation,
                self.run,
            );
        }
        if let Some(journal) = &mut self.journal {
            let len = block.len() as u32;
            journal.push(JournalEntry::Write {
                acknowledged: false,
                generation,
                offset,
                len,
            });
        }
        generation
    }

    /// Records the end of a write, acknowledged or not.
    pub fn end_write(&mut self, offset: u64, len: u64, generation: u64, acknowledged: bool) {
        let value = if acknowledged {
            generation
        } else {
            generation | UNSURE
        };
        self.set(offset, len, value);
        if acknowledged && let Some(journal) = &mut self.journal {
            let len = len as u32;
            journal.push(JournalEntry::Write {
                acknowledged: true,
                generation,
                offset,
                len,
            });
        }
    }

    /// Records that a flush is about to be sent, which covers everything acknowledged so far. Returns the flush's
    /// number.
    pub fn begin_flush(&mut self) -> u64 {
        self.flushes += 1;
        if let Some(journal) = &mut self.journal {
            journal.push(JournalEntry::Flush {
                acknowledged: false,
                number: self.flushes,
            });
        }
        self.flushes
    }

    /// Records the successful end of a flush.
    pub fn end_flush(&mut self, number: u64) {
        if let Some(journal) = &mut self.journal {
            journal.push(JournalEntry::Flush {
                acknowledged: true,
                number,
            });
        }
    }

    /// Records a write of zeros, acknowledged or not.
    pub fn end_zeroes(&mut self, offset: u64, len: u64, acknowledged: bool) {
        self.set(offset, len, if acknowledged { ZEROED } else { UNSURE });
    }

    /// Records a trim: the blocks' content is undefined until they are written again.
    pub fn end_trim(&mut self, offset: u64, len: u64) {
        self.set(offset, len, UNSURE);
    }

    fn set(&mut self, offset: u64, len: u64, value: u64) {
        let (first, count) = self.grains(offset, len);
        self.generations[first..first + count].fill(value);
    }

    /// Checks whether a block that was read holds what was last written there; returns the first grain that doesn't.
    pub fn check_read(&mut self, offset: u64, block: &[u8]) -> Option<Difference> {
        let (first, _) = self.grains(offset, block.len() as u64);
        let mut difference = None;
        for (index, grain) in block.chunks(self.grain as usize).enumerate() {
            let expected = match self.generations[first + index] {
                ZEROED => Expected::Zeros,
                value if value == 0 || value & UNSURE != 0 => continue,
                generation => Expected::Write(generation),
            };
            self.verified.checked(grain.len() as u64);
            let at = offset + index as u64 * self.grain;
            let found = inspect(grain, at, self.run);
            if expected.is(found) {
                continue;
            }
            self.verified
                .wrong(at, grain.len() as u64, || found.kind().to_string());
            difference = difference.or(Some(Difference {
                offset: at,
                expected,
                newest: self.writes,
                found,
            }));
        }
        difference
    }

    /// Returns the results of checking all reads.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Writes the journal's pending entries. Called before requests are sent, so that the medium never holds a write
    /// that is missing from the journal.
    ///
    /// # Errors
    /// The journal's file system is full or failed.
    pub fn flush(&mut self) -> io::Result<()> {
        self.journal.as_mut().map_or(Ok(()), Journal::flush)
    }

    fn grains(&self, offset: u64, len: u64) -> (usize, usize) {
        (
            ((offset - self.start) / self.grain) as usize,
            len.div_ceil(self.grain) as usize,
        )
    }
}

/// One entry of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// A write.
    Write {
        /// True if acknowledged, false if about to be sent.
        acknowledged: bool,
        /// Number of the write.
        generation: u64,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u32,
    },
    /// A flush, which makes all writes stable that were acknowledged before it was sent.
    Flush {
        /// True if acknowledged, false if about to be sent.
        acknowledged: bool,
        /// Number of the flush.
        number: u64,
    },
}

/// When an acknowledged write is guaranteed to survive any failure of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StableWhen {
    /// Immediately: the device has no volatile cache, or every write bypasses it (FUA).
    Acknowledged,
    /// Once a flush that was sent after the write's acknowledgement has been acknowledged.
    Flushed,
}

/// The header of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHead {
    /// The session's run id, also stored in each grain.
    pub run: u64,
    /// Start of the worker's part, in bytes from the device's start.
    pub start: u64,
    /// Length of the worker's part, in bytes.
    pub len: u64,
    /// Size of a grain in bytes.
    pub grain: u64,
    /// Number of the worker.
    pub worker: u32,
    /// What the device's acknowledgements guarantee.
    pub stable: StableWhen,
}

/// Size of the header: magic, run, start, len, grain, worker, when writes are stable (0: acknowledged, 1: flushed),
/// CRC32C. Entries: generation (top bit: acknowledged), offset, len, CRC32C; for a flush: its number, zero, zero. All
/// numbers are little-endian.
pub const HEAD_BYTES: usize = 52;
/// Size of an entry; see [`HEAD_BYTES`].
pub const ENTRY_BYTES: usize = 24;
const JOURNAL_MAGIC: &[u8; 8] = b"BRNTJRN2";

/// Returns the name of a worker's journal in the folder of its run.
pub fn journal_name(worker: u32) -> String {
    format!("worker-{worker}.journal")
}

/// Records which writes were sent and which were acknowledged. Written in batches, never synced: it survives the end
/// of this process, but not a crash of this machine. Only the target is expected to crash.
pub struct Journal {
    file: File,
    path: PathBuf,
    pending: Vec<u8>,
}

impl Journal {
    /// Creates a new file `worker-N.journal` in `folder`.
    ///
    /// # Errors
    /// The folder or file can't be created, or the file already exists: it may be the only evidence of an earlier run.
    pub fn create(folder: &Path, head: JournalHead) -> io::Result<Journal> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(journal_name(head.worker));
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| name(&path, error))?;
        Journal::begin(file, path, head)
    }

    /// Begins a journal in this empty file, which errors refer to as `path`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn begin(file: File, path: PathBuf, head: JournalHead) -> io::Result<Journal> {
        let mut pending = Vec::with_capacity(1 << 16);
        pending.extend_from_slice(JOURNAL_MAGIC);
        for word in [head.run, head.start, head.len, head.grain] {
            pending.extend_from_slice(&word.to_le_bytes());
        }
        pending.extend_from_slice(&head.worker.to_le_bytes());
        pending.extend_from_slice(&u32::from(head.stable == StableWhen::Flushed).to_le_bytes());
        let crc = crc32c::crc32c(&pending);
        pending.extend_from_slice(&crc.to_le_bytes());
        let mut journal = Journal {
            file,
            path,
            pending,
        };
        journal.flush()?;
        Ok(journal)
    }

    fn push(&mut self, entry: JournalEntry) {
        let start = self.pending.len();
        let (acknowledged, number, offset, len) = match entry {
            JournalEntry::Write {
                acknowledged,
                generation,
                offset,
                len,
            } => {
                assert!(len > 0, "an entry without length is a flush");
                (acknowledged, generation, offset, len)
            }
            JournalEntry::Flush {
                acknowledged,
                number,
            } => (acknowledged, number, 0, 0),
        };
        let flag = if acknowledged { UNSURE } else { 0 };
        self.pending
            .extend_from_slice(&(number | flag).to_le_bytes());
        self.pending.extend_from_slice(&offset.to_le_bytes());
        self.pending.extend_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c(&self.pending[start..]);
        self.pending.extend_from_slice(&crc.to_le_bytes());
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file
            .write_all(&self.pending)
            .map_err(|error| name(&self.path, error))?;
        self.pending.clear();
        Ok(())
    }
}

/// Why bytes are not a valid journal header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalHeadError {
    /// Too few bytes.
    #[error("shorter than a journal header")]
    Short,
    /// The format before `BRNTJRN2`.
    #[error("written by an older version of brunt, which did not record flushes")]
    Old,
    /// The file is not a journal.
    #[error("not a journal of acknowledged writes")]
    Other,
    /// Wrong checksum.
    #[error("the header's checksum is wrong")]
    Checksum,
    /// Intact, but its sizes contradict each other or exceed the limits.
    #[error("the header's sizes are inconsistent")]
    Sizes,
}

/// Parses a header.
///
/// # Errors
/// The bytes are not a valid header.
pub fn parse_head(bytes: &[u8]) -> Result<JournalHead, JournalHeadError> {
    let Some(head) = bytes.get(..HEAD_BYTES) else {
        return Err(JournalHeadError::Short);
    };
    if &head[..8] == b"BRNTJRN1" {
        return Err(JournalHeadError::Old);
    }
    if &head[..8] != JOURNAL_MAGIC {
        return Err(JournalHeadError::Other);
    }
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    if half(48) != crc32c::crc32c(&head[..48]) {
        return Err(JournalHeadError::Checksum);
    }
    let stable = if half(44) == 0 {
        StableWhen::Acknowledged
    } else {
        StableWhen::Flushed
    };
    let (run, start, len, grain, worker) = (word(8), word(16), word(24), word(32), half(40));
    let head = JournalHead {
        run,
        start,
        len,
        grain,
        worker,
        stable,
    };
    let sane = head.grain >= 512
        && head.len / head.grain <= GRAINS_MAX
        && head.start.checked_add(head.len).is_some();
    if sane {
        Ok(head)
    } else {
        Err(JournalHeadError::Sizes)
    }
}

/// Parses an entry; `None` where the journal is truncated or damaged. Nothing after that point is trusted.
pub fn parse_entry(bytes: &[u8]) -> Option<JournalEntry> {
    let entry = bytes.get(..ENTRY_BYTES)?;
    let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
    let (generation, offset, len) = (word(0), word(8), half(16));
    let whole = half(20) == crc32c::crc32c(&entry[..20]);
    let (acknowledged, generation) = (generation & UNSURE != 0, generation & !UNSURE);
    whole.then_some(match len {
        0 => JournalEntry::Flush {
            acknowledged,
            number: generation,
        },
        len => JournalEntry::Write {
            acknowledged,
            generation,
            offset,
            len,
        },
    })
}

/// Adds the path to an error.
pub(super) fn name(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of damage is distinguished.
    #[test]
    fn every_kind_of_damage_is_distinguished() {
        let mut grain = [7; 512];
        seal(&mut grain, 4096, 3, 99);
        assert_eq!(
            inspect(&grain, 4096, 99),
            BlockFinding::Sealed { generation: 3 }
        );
        assert_eq!(
            inspect(&grain, 8192, 99),
            BlockFinding::Misplaced { offset: 4096 }
        );
        assert_eq!(inspect(&grain, 4096, 98), BlockFinding::Foreign);
        assert_eq!(inspect(&[1; 512], 4096, 99), BlockFinding::Foreign);
        assert_eq!(inspect(&[0; 512], 4096, 99), BlockFinding::Zeros);
        for at in (0..512).filter(|at| !(0..8).contains(at) && !(24..32).contains(at)) {
            let mut bad = grain;
            bad[at] ^= 1;
            assert_eq!(inspect(&bad, 4096, 99), BlockFinding::Corrupt, "byte {at}");
        }
    }

    /// An older version of a block is detected; after a failed write, any content is acceptable.
    #[test]
    fn stale_blocks_are_detected() {
        let mut ledger = Ledger::new(0, 65536, 512, 1, None);
        let (mut old, mut new) = ([1; 1024], [2; 1024]);
        assert_eq!(
            ledger.check_read(512, &old),
            None,
            "never written, nothing expected"
        );
        let first = ledger.begin_write(512, &mut old);
        ledger.end_write(512, 1024, first, true);
        let second = ledger.begin_write(512, &mut new);
        ledger.end_write(512, 1024, second, true);
        assert_eq!(ledger.check_read(512, &new), None);
        let stale = ledger.check_read(512, &old).unwrap();
        assert_eq!(stale.found, BlockFinding::Sealed { generation: first });
        assert_eq!(
            (stale.offset, stale.expected, stale.newest),
            (512, Expected::Write(second), second)
        );
        assert_eq!(
            stale.to_string(),
            "the data differs from what was written: at byte 512, instead of write 2 of 2, there is write 1"
        );
        assert_eq!(ledger.check_read(1024, &new[512..]), None);
        let third = ledger.begin_write(512, &mut [0; 512]);
        ledger.end_write(512, 512, third, false);
        assert_eq!(ledger.check_read(512, &old[..512]), None);
        assert!(ledger.check_read(1024, &old[512..]).is_some());
    }

    /// Written zeros are expected, trimmed blocks may hold anything, and bytes checked and found wrong are totalled.
    #[test]
    fn zeros_and_trims_are_verified() {
        let mut ledger = Ledger::new(0, 65536, 512, 1, None);
        let mut block = [1; 2048];
        let write = ledger.begin_write(0, &mut block);
        ledger.end_write(0, 2048, write, true);
        assert_eq!(ledger.check_read(0, &block), None);
        ledger.end_zeroes(0, 512, true);
        ledger.end_zeroes(512, 512, false);
        ledger.end_trim(1024, 512);
        let stale = ledger.check_read(0, &block).expect("not zeroed");
        assert_eq!((stale.offset, stale.expected), (0, Expected::Zeros));
        assert_eq!(
            stale.to_string(),
            "the data differs from what was written: at byte 0, instead of zeros, there is write 1"
        );
        block[..512].fill(0);
        assert_eq!(ledger.check_read(0, &block), None);
        let lost = ledger.check_read(1024, &[0; 1024]).expect("a lost write");
        assert_eq!((lost.offset, lost.found), (1536, BlockFinding::Zeros));
        let verified = ledger.verified();
        assert_eq!(
            (verified.checked_bytes, verified.wrong_bytes),
            (2048 + 3 * 1024 - 512, 1024)
        );
        assert_eq!(
            verified.places(),
            "512 bytes at 0: an older write; 512 bytes at 1536: zeros"
        );
    }

    /// Truncated or damaged journals are read up to that point, and every byte of a header is checked.
    #[test]
    fn damaged_journals_are_read_up_to_the_damage() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("journals");
        let stable = StableWhen::Flushed;
        let head = JournalHead {
            run: 5,
            start: 4096,
            len: 1 << 20,
            grain: 512,
            worker: 3,
            stable,
        };
        let mut ledger = Ledger::new(
            4096,
            1 << 20,
            512,
            5,
            Some(Journal::create(&folder, head).unwrap()),
        );
        let generation = ledger.begin_write(8192, &mut [0; 1024]);
        ledger.end_write(8192, 1024, generation, true);
        let flush = ledger.begin_flush();
        ledger.end_flush(flush);
        ledger.flush().unwrap();
        assert!(
            Journal::create(&folder, head).is_err(),
            "a journal is never overwritten"
        );
        let bytes = std::fs::read(folder.join("worker-3.journal")).unwrap();
        assert_eq!(parse_head(&bytes), Ok(head));
        let write = |acknowledged| JournalEntry::Write {
            acknowledged,
            generation: 1,
            offset: 8192,
            len: 1024,
        };
        let flush = |acknowledged| JournalEntry::Flush {
            acknowledged,
            number: 1,
        };
        let entries: Vec<_> = bytes[HEAD_BYTES..]
            .chunks(ENTRY_BYTES)
            .map(parse_entry)
            .collect();
        assert_eq!(
            entries,
            [write(false), write(true), flush(false), flush(true)].map(Some)
        );
        for at in 0..HEAD_BYTES {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(parse_head(&bad).is_err() && parse_head(&bytes[..at]).is_err());
        }
        for at in 0..ENTRY_BYTES {
            let mut bad = bytes[HEAD_BYTES..].to_vec();
            bad[at] ^= 1;
            assert!(
                parse_entry(&bad).is_none()
                    && parse_entry(&bytes[HEAD_BYTES..HEAD_BYTES + at]).is_none()
            );
        }
    }
}
