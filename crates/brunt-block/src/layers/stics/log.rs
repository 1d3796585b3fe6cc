//! The log file: creates, opens, reads and writes it. This module tracks where records are; [`super::cache`] interprets
//! them.
//!
//! Records are written through the page cache, so they survive a crash of the process once a write returns, and a crash
//! of the machine once they are synced.
//!
//! The rule: nothing is dropped silently. A torn end is reported; a gap before valid records, another device's log and
//! another version are rejected.

use std::fs::{OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use brunt_core::FileLock;
use brunt_core::units::format_size;

use super::format::{
    BLOCK, DATA_BEGIN, HeaderFault, IDENTITY_BYTES_MAX, LogBlock, LogPlace, RecordHeader,
    Superblock, SuperblockFault,
};
use crate::DeviceInfo;
use crate::backends::holder::Attempts;

/// Bytes per read when scanning for records.
const SCAN_BYTES: u64 = 1 << 20;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// An operating system error.
    #[error("{what} the log {}: {source}", path.display())]
    Io {
        /// The failed operation, such as "cannot open".
        what: &'static str,
        /// The log's path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The log is not a regular file.
    #[error("{} is not a regular file; a log must be one", path.display())]
    NotAFile {
        /// The log's path.
        path: PathBuf,
    },
    /// Another process or device has the log open.
    #[error("the log {} is in use; only one device of one process can use it at a time", path.display())]
    InUse {
        /// The log's path.
        path: PathBuf,
    },
    /// The file is not a log, or has another version.
    #[error("{} is not a usable log: {fault}; move it away, or name another file", path.display())]
    Superblock {
        /// The log's path.
        path: PathBuf,
        /// The fault.
        fault: SuperblockFault,
    },
    /// The log contains writes for another device.
    #[error(
        "the log {} has writes for '{theirs}' ({}), not for '{ours}' ({}); name another file, \
         destage the log to its own device, or write identity={theirs} if that is the same device",
        path.display(), format_size(*their_bytes), format_size(*our_bytes)
    )]
    AnotherDevice {
        /// The log's path.
        path: PathBuf,
        /// The device that the log belongs to.
        theirs: String,
        /// The size of the device that the log belongs to.
        their_bytes: u64,
        /// The device being opened.
        ours: String,
        /// The size of the device being opened.
        our_bytes: u64,
    },
    /// The log's size differs from the requested size.
    #[error("the log {} has {}, not {}; omit size=, or destage the log and remove it", path.display(),
        format_size(*found), format_size(*wanted))]
    Size {
        /// The log's path.
        path: PathBuf,
        /// Capacity of the log in bytes.
        found: u64,
        /// Requested capacity in bytes.
        wanted: u64,
    },
    /// A record is damaged, but later records are valid: acknowledged writes are lost.
    #[error(
        "the log {}: record {sequence} is damaged, but record {later} after it is not: acknowledged writes are lost; \
         damaged=drop continues without the damaged record and all later ones",
        path.display()
    )]
    Damaged {
        /// The log's path.
        path: PathBuf,
        /// The first damaged record.
        sequence: u64,
        /// A later record that is valid.
        later: u64,
    },
}

/// The content of an existing log.
#[derive(Debug)]
pub(super) struct Replay {
    /// The records that may not have reached the device, in order.
    pub records: Vec<RecordHeader>,
    /// The number of a record that was not completely written.
    pub torn: Option<u64>,
}

/// Options for opening a log.
#[derive(Clone, Debug)]
pub(super) struct LogOptions {
    pub path: PathBuf,
    /// Space for records in bytes, if a new log is created.
    pub capacity: Option<u64>,
    pub identity: String,
    /// Continue without the first damaged record and everything after it.
    pub drop_damaged: bool,
    /// Create a new file, named `path` with a random suffix. The caller must remove it once it is open.
    pub temporary: bool,
}

impl LogOptions {
    /// The superblock of a new log for this device.
    fn new_superblock(&self, default_capacity: u64, device: &DeviceInfo) -> Superblock {
        Superblock {
            generation: 1,
            id: fresh_id(),
            capacity: self.capacity.unwrap_or(default_capacity) / BLOCK * BLOCK,
            device_bytes: device.size_bytes,
            block_bytes: device.block_bytes,
            identity: cut(&self.identity, IDENTITY_BYTES_MAX),
            epoch: 1,
            epoch_begin: 1,
            tail: LogPlace { at: 0, sequence: 1 },
        }
    }
}

/// An open log.
pub(super) struct Log {
    file: FileLock,
    path: PathBuf,
    superblock: Mutex<Superblock>,
    /// Set by a command: all further writes fail.
    broken: AtomicBool,
}

impl Log {
    /// Opens or creates the log of a device, and reads its content.
    pub(super) fn open(
        options: &LogOptions,
        default_capacity: u64,
        device: &DeviceInfo,
    ) -> Result<(Log, Replay), LogError> {
        let mut path = options.path.clone();
        if options.temporary {
            let number = u64::from_le_bytes(fresh_id()[..8].try_into().expect("eight bytes"));
            path.as_mut_os_string().push(format!(".{number:016x}"));
        }
        let failed = |what| {
            let path = path.clone();
            move |source| LogError::Io { what, path, source }
        };
        let (file, is_new) = open_file(&path, options.temporary)?;
        let ours = options.new_superblock(default_capacity, device);
        let superblock = Mutex::new(ours.clone());
        let log = Log {
            file,
            path: path.clone(),
            superblock,
            broken: AtomicBool::new(false),
        };
        let fresh = Replay {
            records: Vec::new(),
            torn: None,
        };
        if is_new {
            log.begin(ours).map_err(failed("cannot write"))?;
            return Ok((log, fresh));
        }
        let theirs = log.read_superblock()?;
        *log.lock() = theirs.clone();
        if options
            .capacity
            .is_some_and(|wanted| wanted / BLOCK * BLOCK != theirs.capacity)
        {
            let wanted = options.capacity.unwrap_or_default();
            return Err(LogError::Size {
                path,
                found: theirs.capacity,
                wanted,
            });
        }
        let replay = log.replay(options.drop_damaged)?;
        let same = (theirs.device_bytes, theirs.block_bytes, &theirs.identity)
            == (ours.device_bytes, ours.block_bytes, &ours.identity);
        if !same && replay.records.is_empty() {
            // The log holds no writes that a device still needs.
            log.begin(Superblock {
                capacity: theirs.capacity,
                ..ours
            })
            .map_err(failed("cannot write"))?;
            return Ok((log, fresh));
        }
        if !same {
            return Err(LogError::AnotherDevice {
                path,
                theirs: theirs.identity,
                their_bytes: theirs.device_bytes,
                ours: ours.identity,
                our_bytes: ours.device_bytes,
            });
        }
        log.begin_epoch(theirs, &replay)
            .map_err(failed("cannot write"))?;
        Ok((log, replay))
    }

    /// Begins an epoch after the last record, so that records beyond it are not taken for new ones.
    fn begin_epoch(&self, found: Superblock, replay: &Replay) -> io::Result<()> {
        let next = replay
            .records
            .last()
            .map_or(found.tail.sequence, |last| last.place.sequence + 1);
        self.write_superblock(Superblock {
            epoch: found.epoch + 1,
            epoch_begin: next,
            ..found
        })
    }

    /// Unlinks a temporary log; the file is deleted when its last handle is closed.
    pub(super) fn remove(&self) -> Result<(), LogError> {
        let failed = |source| LogError::Io {
            what: "cannot remove",
            path: self.path.clone(),
            source,
        };
        std::fs::remove_file(&self.path).map_err(failed)
    }

    /// Initializes the file as a new log.
    fn begin(&self, superblock: Superblock) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.set_len(DATA_BEGIN + superblock.capacity)?;
        self.write_superblock(superblock)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Superblock> {
        self.superblock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The superblock as last written.
    pub(super) fn superblock(&self) -> Superblock {
        self.lock().clone()
    }

    /// Space for records in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.lock().capacity
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes all further writes fail.
    pub(super) fn break_it(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Records that everything before `tail` has reached the device; stable on return.
    pub(super) fn move_tail(&self, tail: LogPlace) -> io::Result<()> {
        self.check()?;
        let superblock = Superblock {
            tail,
            ..self.superblock()
        };
        self.write_superblock(superblock)
    }

    /// Retires the log so that its content is not replayed. Works even if records cannot be written, provided that
    /// the file can be truncated.
    pub(super) fn retire(&self, tail: LogPlace) -> io::Result<()> {
        match self.move_tail(tail) {
            Ok(()) => Ok(()),
            Err(_) => self.file.set_len(0).and_then(|()| self.file.sync_all()),
        }
    }

    fn write_superblock(&self, mut superblock: Superblock) -> io::Result<()> {
        let mut current = self.lock();
        superblock.generation = current.generation + 1;
        self.file
            .write_all_at(&superblock.encode(), superblock.generation % 2 * BLOCK)?;
        self.file.sync_data()?;
        *current = superblock;
        Ok(())
    }

    fn read_superblock(&self) -> Result<Superblock, LogError> {
        let mut newest: Result<Superblock, SuperblockFault> = Err(SuperblockFault::Foreign);
        for at in [0, BLOCK] {
            let mut block: LogBlock = [0; BLOCK as usize];
            if let Err(source) = self.file.read_exact_at(&mut block, at)
                && source.kind() != io::ErrorKind::UnexpectedEof
            {
                return Err(LogError::Io {
                    what: "cannot read",
                    path: self.path.clone(),
                    source,
                });
            }
            newest = match (newest, Superblock::parse(&block)) {
                (Ok(before), Ok(found)) if before.generation > found.generation => Ok(before),
                (_, Ok(found)) => Ok(found),
                (Err(SuperblockFault::Foreign), Err(fault)) => Err(fault),
                (before, Err(_)) => before,
            };
        }
        let fault = match newest {
            Ok(found) => {
                let long = self
                    .file
                    .metadata()
                    .is_ok_and(|file| file.len() >= DATA_BEGIN + found.capacity);
                if long {
                    return Ok(found);
                }
                SuperblockFault::Damaged
            }
            Err(fault) => fault,
        };
        Err(LogError::Superblock {
            path: self.path.clone(),
            fault,
        })
    }

    /// A position's offset in the file.
    pub(super) fn file_offset(&self, at: u64, capacity: u64) -> u64 {
        DATA_BEGIN + at % capacity
    }

    /// Writes at a position, wrapping around at the end.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        let capacity = self.lock().capacity;
        let first = bytes.len().min((capacity - at % capacity) as usize);
        self.file
            .write_all_at(&bytes[..first], self.file_offset(at, capacity))?;
        match &bytes[first..] {
            [] => Ok(()),
            rest => self.file.write_all_at(rest, DATA_BEGIN),
        }
    }

    /// Makes everything written so far stable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync_data()
    }

    fn check(&self) -> io::Result<()> {
        match self.broken.load(Ordering::Relaxed) {
            true => Err(io::Error::other("broken by command")),
            false => Ok(()),
        }
    }

    /// Reads from a position, wrapping around at the end.
    pub(super) fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let capacity = self.lock().capacity;
        let first = out.len().min((capacity - at % capacity) as usize);
        let (head, rest) = out.split_at_mut(first);
        self.file
            .read_exact_at(head, self.file_offset(at, capacity))?;
        match rest {
            [] => Ok(()),
            rest => self.file.read_exact_at(rest, DATA_BEGIN),
        }
    }

    /// Finds the records starting at the tail.
    fn replay(&self, drop_damaged: bool) -> Result<Replay, LogError> {
        let failed = |source| LogError::Io {
            what: "cannot read",
            path: self.path.clone(),
            source,
        };
        let log = self.superblock();
        let end = log.tail.at + log.capacity;
        let (mut place, mut epoch) = (log.tail, 0);
        let (mut records, mut torn, mut data) = (Vec::new(), None, Vec::new());
        while place.at < end {
            let mut block: LogBlock = [0; BLOCK as usize];
            self.read(place.at, &mut block).map_err(failed)?;
            let header = match RecordHeader::parse(&block, &log) {
                Ok(header)
                    if header.place == place
                        && header.epoch >= epoch
                        && is_of_its_epoch(&header, &log) =>
                {
                    header
                }
                Err(HeaderFault::Damaged) => {
                    torn = Some(place.sequence);
                    break;
                }
                // Data from before the log wrapped around, or from before it was created.
                Ok(_) | Err(HeaderFault::Foreign) => break,
            };
            if place.at + header.record_bytes() > end {
                torn = Some(place.sequence);
                break;
            }
            data.resize(header.data_bytes() as usize, 0);
            self.read(place.at + BLOCK, &mut data).map_err(failed)?;
            if crc32c::crc32c(&data) != header.data_crc {
                torn = Some(place.sequence);
                break;
            }
            epoch = header.epoch;
            place = LogPlace {
                at: place.at + header.record_bytes(),
                sequence: place.sequence + 1,
            };
            records.push(header);
        }
        if !drop_damaged && let Some(later) = self.later_record(place, end, &log).map_err(failed)? {
            return Err(LogError::Damaged {
                path: self.path.clone(),
                sequence: place.sequence,
                later,
            });
        }
        Ok(Replay { records, torn })
    }

    /// The number of a valid record after the end of the chain, if any.
    fn later_record(&self, from: LogPlace, end: u64, log: &Superblock) -> io::Result<Option<u64>> {
        let mut chunk = vec![0; SCAN_BYTES as usize];
        let mut at = from.at;
        while at < end {
            let bytes = SCAN_BYTES.min(end - at) as usize;
            self.read(at, &mut chunk[..bytes])?;
            for (index, block) in chunk[..bytes].chunks_exact(BLOCK as usize).enumerate() {
                let block: &LogBlock = block.try_into().expect("a read block");
                if let Ok(header) = RecordHeader::parse(block, log)
                    && header.place.at == at + index as u64 * BLOCK
                    && header.place.sequence > from.sequence
                    && is_of_its_epoch(&header, log)
                {
                    return Ok(Some(header.place.sequence));
                }
            }
            at += bytes as u64;
        }
        Ok(None)
    }
}

/// Opens or creates the file and locks it; returns whether it is empty.
fn open_file(path: &Path, is_new: bool) -> Result<(FileLock, bool), LogError> {
    let failed = |what| {
        move |source| LogError::Io {
            what,
            path: path.to_path_buf(),
            source,
        }
    };
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .write(true)
        .create(true)
        .create_new(is_new)
        .truncate(false);
    let file = options.open(path).map_err(failed("cannot open"))?;
    let metadata = file.metadata().map_err(failed("cannot examine"))?;
    if !metadata.is_file() {
        return Err(LogError::NotAFile {
            path: path.to_path_buf(),
        });
    }
    let attempts = Attempts::begin();
    loop {
        let copy = file.try_clone().map_err(failed("cannot examine"))?;
        match FileLock::try_exclusive(copy) {
            Ok(file) => return Ok((file, metadata.len() == 0)),
            Err(TryLockError::WouldBlock) => {
                let in_use = |_| LogError::InUse {
                    path: path.to_path_buf(),
                };
                attempts.pause(&metadata).map_err(in_use)?;
            }
            Err(TryLockError::Error(source)) => return Err(failed("cannot lock")(source)),
        }
    }
}

/// Whether the record is valid in its epoch, rather than a leftover dropped by an earlier opening.
fn is_of_its_epoch(header: &RecordHeader, log: &Superblock) -> bool {
    header.place.sequence < log.epoch_begin || header.epoch == log.epoch
}

/// Sixteen random bytes, unique to this log, from the seeds of the standard library's hash tables.
fn fresh_id() -> [u8; 16] {
    let number = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number());
    id[8..].copy_from_slice(&number());
    id
}

fn cut(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use crate::backends::memory::MemoryBackend;

    /// A duplicate of the open file, such as one that a child process holds until exec, doesn't keep the lock.
    #[test]
    fn a_lock_ends_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let far = MemoryBackend::new(1 << 20, 512).unwrap();
        let options = LogOptions {
            path: folder.path().join("log"),
            capacity: None,
            identity: String::new(),
            drop_damaged: false,
            temporary: false,
        };
        let open = || Log::open(&options, 1 << 20, far.info());
        let (log, _) = open().unwrap();
        assert!(matches!(open(), Err(LogError::InUse { .. })));
        let _child = log.file.try_clone().unwrap();
        drop(log);
        open().unwrap();
    }
}
