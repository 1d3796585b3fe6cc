//! The on-disk format of a log: two superblocks, then a ring of records. Used by [`super::log`]; fuzzed.
//!
//! ```text
//! 0      superblock       4 KiB   the newer valid one of the two counts
//! 4096   superblock       4 KiB
//! 8192   records                  a 4 KiB header, then the data of its entries, padded to 4 KiB
//! ```
//!
//! All numbers are little-endian. A block ends with the CRC32C of its other bytes; a header also contains the CRC32C of
//! its data. Record numbers have no gaps, and record positions only grow: a position modulo the capacity is the
//! record's offset.
//!
//! The rule: nothing is trusted until its checksum has been verified, and no length until it has been checked against
//! the log and the device.

/// Alignment of everything in the log, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// Start of the records, in bytes.
pub(super) const DATA_BEGIN: u64 = 2 * BLOCK;
/// Maximum number of entries per record.
pub(super) const ENTRIES_MAX: usize = 160;
/// The format version that this program reads and writes.
pub(super) const VERSION: u32 = 1;
/// Maximum length of a device name in bytes.
pub(super) const IDENTITY_BYTES_MAX: usize = 1024;

const SUPER_MAGIC: [u8; 8] = *b"BRUNTSTI";
const RECORD_MAGIC: [u8; 8] = *b"BRUNTREC";
const HEADER_BYTES: usize = 72;
const ENTRY_BYTES: usize = 24;
const _: () = assert!(HEADER_BYTES + ENTRIES_MAX * ENTRY_BYTES + 4 <= BLOCK as usize);

/// One block of the log.
pub(super) type LogBlock = [u8; BLOCK as usize];

/// A record's position and number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogPlace {
    /// Position in bytes; only grows.
    pub at: u64,
    /// Number of the record that is, or will be, at this position.
    pub sequence: u64,
}

/// A log's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// The newer of the two superblocks has the higher number.
    pub generation: u64,
    /// The log's random ID, chosen at its creation.
    pub id: [u8; 16],
    /// Space for records in bytes; a multiple of [`BLOCK`].
    pub capacity: u64,
    /// Size of the log's device.
    pub device_bytes: u64,
    /// The device's logical block size.
    pub block_bytes: u32,
    /// The device's name.
    pub identity: String,
    /// Number of times the log was opened.
    pub epoch: u64,
    /// The first record of this epoch; records of earlier epochs at or after it are leftovers.
    pub epoch_begin: u64,
    /// The oldest record that may not have reached the device.
    pub tail: LogPlace,
}

/// Why a block is not a valid superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockFault {
    /// The block is not from a log.
    #[error("it is not a brunt log")]
    Foreign,
    /// The log has another format version.
    #[error("it has version {0}")]
    Version(u32),
    /// The block's checksum or content is wrong.
    #[error("its superblock is damaged")]
    Damaged,
}

/// The effect of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// Writes its data.
    Data,
    /// Writes zeros.
    Zeroes,
    /// Deallocates its blocks, which then read as zeros.
    Unmap,
}

/// One write within a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEntry {
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    pub kind: EntryKind,
}

impl LogEntry {
    /// Number of data bytes stored in the log.
    pub(super) fn data_bytes(&self) -> u64 {
        if self.kind == EntryKind::Data {
            self.len
        } else {
            0
        }
    }
}

/// A record's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub place: LogPlace,
    pub epoch: u64,
    /// CRC32C of the record's data.
    pub data_crc: u32,
    pub entries: Vec<LogEntry>,
}

impl RecordHeader {
    /// Number of data bytes after the header.
    pub(super) fn data_bytes(&self) -> u64 {
        self.entries.iter().map(LogEntry::data_bytes).sum()
    }

    /// Size of the whole record in the log, in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        BLOCK + self.data_bytes().next_multiple_of(BLOCK)
    }
}

/// Why a block is not a header of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Something else, such as old content.
    Foreign,
    /// The beginning matches a header of this log, but the rest is wrong.
    Damaged,
}

struct Writer<'a> {
    block: &'a mut LogBlock,
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.block[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct Reader<'a> {
    block: &'a LogBlock,
    at: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.block[self.at..self.at + N]
            .try_into()
            .expect("N bytes");
        self.at += N;
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn place(&mut self) -> LogPlace {
        LogPlace {
            at: self.u64(),
            sequence: self.u64(),
        }
    }
}

const CRC_AT: usize = BLOCK as usize - 4;

fn seal(block: &mut LogBlock) {
    let crc = crc32c::crc32c(&block[..CRC_AT]);
    block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

fn is_whole(block: &LogBlock) -> bool {
    crc32c::crc32c(&block[..CRC_AT]).to_le_bytes() == block[CRC_AT..]
}

impl Superblock {
    pub(super) fn encode(&self) -> LogBlock {
        assert!(
            self.identity.len() <= IDENTITY_BYTES_MAX,
            "the name fits in the superblock"
        );
        let mut block = [0; BLOCK as usize];
        let mut out = Writer {
            block: &mut block,
            at: 0,
        };
        out.put(&SUPER_MAGIC);
        out.put(&VERSION.to_le_bytes());
        out.put(&self.block_bytes.to_le_bytes());
        out.put(&self.id);
        let LogPlace { at, sequence } = self.tail;
        for number in [
            self.generation,
            self.capacity,
            self.device_bytes,
            self.epoch,
            self.epoch_begin,
            at,
            sequence,
            self.identity.len() as u64,
        ] {
            out.put(&number.to_le_bytes());
        }
        out.put(self.identity.as_bytes());
        seal(&mut block);
        block
    }

    pub(super) fn parse(block: &LogBlock) -> Result<Superblock, SuperblockFault> {
        let mut from = Reader { block, at: 0 };
        if from.take() != SUPER_MAGIC {
            return Err(SuperblockFault::Foreign);
        }
        let version = from.u32();
        if version != VERSION {
            return Err(SuperblockFault::Version(version));
        }
        if !is_whole(block) {
            return Err(SuperblockFault::Damaged);
        }
        let (block_bytes, id) = (from.u32(), from.take());
        let (generation, capacity, device_bytes) = (from.u64(), from.u64(), from.u64());
        let (epoch, epoch_begin, tail) = (from.u64(), from.u64(), from.place());
        let len = from.u64();
        let aligned =
            capacity > 0 && capacity.is_multiple_of(BLOCK) && tail.at.is_multiple_of(BLOCK);
        if len > IDENTITY_BYTES_MAX as u64 || !aligned || tail.at.checked_add(capacity).is_none() {
            return Err(SuperblockFault::Damaged);
        }
        let identity = std::str::from_utf8(&block[from.at..from.at + len as usize]);
        let identity = identity.map_err(|_| SuperblockFault::Damaged)?.to_string();
        Ok(Superblock {
            generation,
            id,
            capacity,
            device_bytes,
            block_bytes,
            identity,
            epoch,
            epoch_begin,
            tail,
        })
    }
}

impl RecordHeader {
    pub(super) fn encode(&self, id: &[u8; 16]) -> LogBlock {
        assert!(
            self.entries.len() <= ENTRIES_MAX,
            "the entries fit in the header"
        );
        let mut block = [0; BLOCK as usize];
        let mut out = Writer {
            block: &mut block,
            at: 0,
        };
        out.put(&RECORD_MAGIC);
        out.put(id);
        for number in [
            self.place.at,
            self.place.sequence,
            self.epoch,
            self.data_bytes(),
        ] {
            out.put(&number.to_le_bytes());
        }
        out.put(&self.data_crc.to_le_bytes());
        out.put(&(self.entries.len() as u32).to_le_bytes());
        out.put(&[0; HEADER_BYTES - 64]);
        for entry in &self.entries {
            out.put(&entry.offset.to_le_bytes());
            out.put(&entry.len.to_le_bytes());
            let kind: u64 = match entry.kind {
                EntryKind::Data => 1,
                EntryKind::Zeroes => 2,
                EntryKind::Unmap => 3,
            };
            out.put(&kind.to_le_bytes());
        }
        seal(&mut block);
        block
    }

    /// Parses a header of the log described by `log`.
    pub(super) fn parse(block: &LogBlock, log: &Superblock) -> Result<RecordHeader, HeaderFault> {
        let mut from = Reader { block, at: 0 };
        if from.take() != RECORD_MAGIC || from.take() != log.id {
            return Err(HeaderFault::Foreign);
        }
        if !is_whole(block) {
            return Err(HeaderFault::Damaged);
        }
        let (place, epoch, data_bytes) = (from.place(), from.u64(), from.u64());
        let (data_crc, count) = (from.u32(), from.u32() as usize);
        if !(1..=ENTRIES_MAX).contains(&count) || !place.at.is_multiple_of(BLOCK) {
            return Err(HeaderFault::Damaged);
        }
        from.at = HEADER_BYTES;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let (offset, len) = (from.u64(), from.u64());
            let kind = match from.u64() {
                1 => EntryKind::Data,
                2 => EntryKind::Zeroes,
                3 => EntryKind::Unmap,
                _ => return Err(HeaderFault::Damaged),
            };
            if len == 0
                || offset
                    .checked_add(len)
                    .is_none_or(|end| end > log.device_bytes)
            {
                return Err(HeaderFault::Damaged);
            }
            entries.push(LogEntry { offset, len, kind });
        }
        let header = RecordHeader {
            place,
            epoch,
            data_crc,
            entries,
        };
        let sum = header
            .entries
            .iter()
            .try_fold(0u64, |sum, entry| sum.checked_add(entry.data_bytes()));
        // A record is shorter than its log, so its data leaves at least two blocks free.
        let fits = sum == Some(data_bytes) && data_bytes <= log.capacity.saturating_sub(2 * BLOCK);
        if fits {
            Ok(header)
        } else {
            Err(HeaderFault::Damaged)
        }
    }
}

/// For fuzzing: parses a block as a superblock and as a header, and checks that accepted values round-trip.
pub fn fuzz(bytes: &[u8]) {
    let mut block: LogBlock = [0; BLOCK as usize];
    let len = bytes.len().min(CRC_AT);
    block[..len].copy_from_slice(&bytes[..len]);
    let log = Superblock {
        generation: 1,
        id: *b"0123456789abcdef",
        capacity: 1 << 20,
        device_bytes: 1 << 20,
        block_bytes: 512,
        identity: String::new(),
        epoch: 1,
        epoch_begin: 0,
        tail: LogPlace::default(),
    };
    // First parses the block unchanged, then with the fields that all blocks of this log share, so that parsing
    // reaches the fields after them.
    let _ = (Superblock::parse(&block), RecordHeader::parse(&block, &log));
    block[..8].copy_from_slice(&SUPER_MAGIC);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    seal(&mut block);
    if let Ok(parsed) = Superblock::parse(&block) {
        assert_eq!(Superblock::parse(&parsed.encode()).as_ref(), Ok(&parsed));
    }
    block[..8].copy_from_slice(&RECORD_MAGIC);
    block[8..24].copy_from_slice(&log.id);
    seal(&mut block);
    if let Ok(parsed) = RecordHeader::parse(&block, &log) {
        assert!(parsed.record_bytes() <= log.capacity);
        assert_eq!(
            RecordHeader::parse(&parsed.encode(&log.id), &log).as_ref(),
            Ok(&parsed)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::random::Random;

    fn superblock() -> Superblock {
        Superblock {
            generation: 7,
            id: *b"0123456789abcdef",
            capacity: 1 << 20,
            device_bytes: 1 << 20,
            block_bytes: 512,
            identity: "memory:1MiB".into(),
            epoch: 3,
            epoch_begin: 40,
            tail: LogPlace {
                at: 8192,
                sequence: 38,
            },
        }
    }

    fn header() -> RecordHeader {
        let entry = |offset, kind| LogEntry {
            offset,
            len: 4096,
            kind,
        };
        let entries = vec![
            entry(0, EntryKind::Data),
            entry(4096, EntryKind::Zeroes),
            entry(8192, EntryKind::Unmap),
        ];
        RecordHeader {
            place: LogPlace {
                at: 12288,
                sequence: 41,
            },
            epoch: 3,
            data_crc: 5,
            entries,
        }
    }

    #[test]
    fn encoded_blocks_parse_back() {
        assert_eq!(Superblock::parse(&superblock().encode()), Ok(superblock()));
        let block = header().encode(&superblock().id);
        assert_eq!(RecordHeader::parse(&block, &superblock()), Ok(header()));
    }

    #[test]
    fn a_change_to_any_byte_is_detected() {
        let block = header().encode(&superblock().id);
        for at in 0..block.len() {
            let mut changed = block;
            changed[at] ^= 0x10;
            assert!(
                RecordHeader::parse(&changed, &superblock()).is_err(),
                "byte {at}"
            );
            let mut changed = superblock().encode();
            changed[at] ^= 0x10;
            assert!(Superblock::parse(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn foreign_blocks_are_distinguished_from_damaged_ones() {
        let mut other = superblock().encode();
        other[8] = 9;
        assert_eq!(Superblock::parse(&other), Err(SuperblockFault::Version(9)));
        assert_eq!(
            Superblock::parse(&[0; BLOCK as usize]),
            Err(SuperblockFault::Foreign)
        );
        let block = header().encode(b"another log's id");
        assert_eq!(
            RecordHeader::parse(&block, &superblock()),
            Err(HeaderFault::Foreign)
        );
        let small = Superblock {
            device_bytes: 8192,
            ..superblock()
        };
        let block = header().encode(&small.id);
        assert_eq!(
            RecordHeader::parse(&block, &small),
            Err(HeaderFault::Damaged),
            "beyond the device"
        );
    }

    #[test]
    fn arbitrary_bytes_are_parsed_or_rejected() {
        let mut random = Random::new(1);
        let mut bytes = vec![0; BLOCK as usize];
        for _ in 0..300 {
            random.fill(&mut bytes);
            fuzz(&bytes);
        }
        let mut block = header().encode(&superblock().id);
        for _ in 0..3000 {
            block[24 + random.below(120) as usize] = random.below(256) as u8;
            fuzz(&block);
        }
    }
}
