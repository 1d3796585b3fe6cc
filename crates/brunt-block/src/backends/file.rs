//! A file or block device on the thread's ring: O_DIRECT where available, registered buffers and file, fully
//! asynchronous, no allocation per request. Used by targets and loads. All unsafe submissions are in this file.
//!
//! Durability of a completed write: by default the data is in the device's cache (without O_DIRECT, in the page cache),
//! as with fio. A `Flush` makes every write completed before its submission stable; `force_unit_access` does so for a
//! single write. With `write_back=no` every write is on stable storage (RWF_DSYNC), including zeroing and hole
//! punching. Completed writes survive a crash of the process.
//!
//! The rule: a slot's buffer belongs to the kernel from `push` to its completion. A dropped device waits for the
//! kernel, or leaks memory that the kernel may still write to.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brunt_core::Nanos;
use brunt_core::device_path::{self, shown};

use super::medium::{self, Medium};
use super::{TRANSFER_BYTES_MAX, in_size};
use crate::open::{BackendEntry, OpenError, UrlOptions};
use crate::ring::RingCompletion;
use crate::ring::call::{Call, Manner, RingFile};
use crate::sparse::Allocation;
use crate::{
    Backend, Buf, Completion, Device, DeviceError, DeviceInfo, MediumState, Op, Port, Request, Ring,
};

/// Size of one write of zeros where the file system has no zeroing operation.
const ZEROS_BYTES: usize = 256 << 10;
/// Maximum retries of a request that was interrupted or temporarily refused (EINTR, EAGAIN).
const RETRIES_MAX: u32 = 10_000;

/// The table entry.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "file",
    help: "a file or block device, opened with O_DIRECT",
    example: "file:/tmp/disk.img?size=64MiB&create=yes",
    options: &[
        (
            "block",
            "logical block size in bytes, 512 or 4096; default: the smallest supported",
        ),
        (
            "direct",
            "yes (default): O_DIRECT; no: through the page cache",
        ),
        (
            "write_back",
            "yes (default): writes complete in the device's cache and are stable after a flush; \
             no: each write is stable when it completes (RWF_DSYNC)",
        ),
        ("size", "size of the file, with create=yes or temporary=yes"),
        (
            "create",
            "yes: create the file as a sparse file, or extend a shorter one; only the first part of a \
             longer one is used",
        ),
        (
            "temporary",
            "yes: use an unnamed temporary file, deleted when the process ends; needs size, \
             excludes create",
        ),
        (
            "lay_out",
            "yes: fill the space that create=yes or temporary=yes adds with random data before \
             use; no (default): leave a hole, which is read without accessing the disk",
        ),
        ("read_only", "yes: refuse writes"),
        (
            "force",
            "yes: open a file or block device for writing even when it is in use",
        ),
    ],
    open: |path, options| {
        Ok(Arc::new(FileBackend::open(
            &named(path)?,
            &FileOptions::take(options)?,
        )?))
    },
    preview: |path, options| medium::preview(&named(path)?, &FileOptions::take(options)?),
};

/// Decodes the path in a URL. Rejects a path that exists only with its percent signs taken literally.
fn named(place: &str) -> Result<PathBuf, OpenError> {
    let path = device_path::decode(place);
    let literal = Path::new(place);
    if path != literal && !path.exists() && literal.exists() {
        return Err(OpenError::Refused(format!(
            "file:{place} is {}, which doesn't exist; if the file's name begins with file:, write \
             file:{}; otherwise, write its path without file:",
            shown(&path),
            device_path::encode(literal)
        )));
    }
    Ok(path)
}

/// Options for opening a file; [`ENTRY`] explains each.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Logical block size in bytes; `None`: the smallest that works.
    pub block_bytes: Option<u32>,
    /// Bypass the page cache where possible.
    pub direct: bool,
    /// Whether completed writes become stable only with a flush, rather than on completion.
    pub write_back: bool,
    /// Size of a new file.
    pub size_bytes: Option<u64>,
    /// Create the file.
    pub create: bool,
    /// Create a new file and unlink it as soon as it is open.
    pub temporary: bool,
    /// Write all of a new file once before first use.
    pub lay_out: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Open the device for writing even if it is mounted, locked or otherwise in use.
    pub force: bool,
}

impl FileOptions {
    /// Parses the options of a URL.
    fn take(options: &mut UrlOptions) -> Result<FileOptions, OpenError> {
        Ok(FileOptions {
            block_bytes: options.block()?,
            direct: options.flag("direct")?.unwrap_or(true),
            write_back: options.flag("write_back")?.unwrap_or(true),
            size_bytes: options.size("size")?,
            create: options.flag("create")?.unwrap_or(false),
            temporary: options.flag("temporary")?.unwrap_or(false),
            lay_out: options.flag("lay_out")?.unwrap_or(false),
            read_only: options.flag("read_only")?.unwrap_or(false),
            force: options.flag("force")?.unwrap_or(false),
        })
    }
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            block_bytes: None,
            direct: true,
            write_back: true,
            size_bytes: None,
            create: false,
            temporary: false,
            lay_out: false,
            read_only: false,
            force: false,
        }
    }
}

/// A file or block device.
pub struct FileBackend {
    shared: Arc<Shared>,
}

struct Shared {
    info: DeviceInfo,
    path: PathBuf,
    medium: Medium,
    /// Size in bytes, a whole number of blocks, when last checked.
    size_bytes: AtomicU64,
    write_through: bool,
    /// Whether the file system was found not to support the operation, so that it isn't tried again.
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
}

/// A note on where completed writes are stored; `None` if the medium is read-only.
fn written(medium: &Medium, options: &FileOptions) -> Option<String> {
    let place = match (options.write_back, medium.direct) {
        _ if medium.read_only => return None,
        (false, _) => "on stable storage (RWF_DSYNC)",
        (true, true) => "in the device's cache (O_DIRECT)",
        (true, false) => "in the page cache",
    };
    Some(format!("writes complete {place}"))
}

impl FileBackend {
    /// Opens a file or block device.
    ///
    /// # Errors
    /// The file or device doesn't exist, may not be opened, is in use, or doesn't fit the options.
    pub fn open(path: &Path, options: &FileOptions) -> Result<FileBackend, OpenError> {
        let medium = medium::open(path, options)?;
        let info = DeviceInfo {
            name: shown(path).to_string(),
            block_bytes: medium.block_bytes,
            size_bytes: medium.size_bytes,
            physical_block_bytes: medium.physical_block_bytes,
            buffer_align: medium.buffer_align,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            read_only: medium.read_only,
            volatile_cache: options.write_back,
            unmap: medium.punch,
            facts: written(&medium, options).into_iter().collect(),
            notes: medium.notes.clone(),
        };
        Ok(FileBackend {
            shared: Arc::new(Shared {
                info,
                path: path.to_path_buf(),
                size_bytes: AtomicU64::new(medium.size_bytes),
                write_through: !options.write_back,
                no_punch: AtomicBool::new(!medium.punch),
                no_zero_range: AtomicBool::new(false),
                medium,
            }),
        })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Whether the medium is a block device rather than a file.
    pub fn is_block_device(&self) -> bool {
        self.shared.medium.block_device
    }
}

impl Backend for FileBackend {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        // A polled ring polls the device's driver for completions, which works only with O_DIRECT transfers.
        if ring.config().iopoll && !self.shared.medium.direct {
            return Err(DeviceError::Unsupported.into());
        }
        let fd = self.shared.medium.file.as_raw_fd();
        let manner = match depth {
            _ if self.shared.medium.in_memory => Manner::Memory,
            1 => Manner::Alone,
            _ if !self.shared.medium.direct => Manner::Cached,
            _ => Manner::Waits,
        };
        Ok(Box::new(FileDevice {
            file: ring.add_file(fd, manner),
            port: ring.attach(),
            polled: ring.config().iopoll,
            depth: depth as usize,
            slots: Vec::new(),
            free: Vec::new(),
            arrived: VecDeque::with_capacity(depth as usize),
            ready: Vec::with_capacity(depth as usize),
            zeros: Buf::empty(),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn may_wait(&self) -> bool {
        false
    }

    /// True for files whose file system punches holes, which read as zeros; a disk may return anything for discarded
    /// blocks.
    fn unmap_reads_zeros(&self) -> bool {
        !self.shared.medium.block_device && !self.shared.no_punch.load(Ordering::Relaxed)
    }

    fn storage(&self) -> Vec<crate::StorageId> {
        self.shared.medium.storage.clone()
    }

    /// Queries the file's holes; `None` for block devices.
    fn allocation(&self, offset: u64) -> Option<(Allocation, u64)> {
        let info = &self.shared.info;
        let size_bytes = self.shared.size_bytes.load(Ordering::Relaxed);
        if self.shared.medium.block_device || offset >= size_bytes {
            return None;
        }
        let fd = self.shared.medium.file.as_raw_fd();
        let seek = |whence| {
            // SAFETY: integer arguments and an open descriptor; requests carry their own offsets and do not use the
            // file's.
            let at = unsafe { libc::lseek(fd, offset as libc::off_t, whence) };
            match at {
                0.. => Some(at as u64),
                // No data follows.
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => {
                    Some(size_bytes)
                }
                _ => None,
            }
        };
        let block = u64::from(info.block_bytes);
        let data = seek(libc::SEEK_DATA)?.min(size_bytes);
        // A block that contains any data is mapped.
        let hole_bytes = (data - offset) / block * block;
        if hole_bytes > 0 {
            return Some((Allocation::Deallocated, hole_bytes));
        }
        let hole = seek(libc::SEEK_HOLE)?.clamp(offset + 1, size_bytes);
        Some((Allocation::Mapped, (hole - offset).next_multiple_of(block)))
    }

    fn medium_state(&self) -> MediumState {
        let shared = &self.shared;
        let block = u64::from(shared.info.block_bytes);
        match shared.medium.state() {
            Ok((size_bytes, deleted)) => {
                let size_bytes = size_bytes / block * block;
                shared.size_bytes.store(size_bytes, Ordering::Relaxed);
                MediumState {
                    size_bytes,
                    deleted,
                }
            }
            // The file system no longer recognizes the file (ESTALE), or the disk was removed.
            Err(_) => MediumState {
                size_bytes: shared.size_bytes.load(Ordering::Relaxed),
                deleted: true,
            },
        }
    }

    fn resize(&self, size_bytes: u64) -> std::io::Result<()> {
        self.shared.medium.resize(size_bytes)?;
        self.medium_state();
        Ok(())
    }
}

/// The kernel operation that is outstanding for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Transfer,
    Punch,
    ZeroRange,
    WriteZeros,
    Sync,
}

struct Slot {
    request: Request,
    stage: Stage,
    /// Bytes completed so far.
    at: u64,
    retries: u32,
}

struct FileDevice {
    port: Port,
    file: RingFile,
    /// Whether the ring uses `iopoll`.
    polled: bool,
    /// Maximum number of requests.
    depth: usize,
    /// Grows to the peak number of outstanding requests.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Swapped with the port's queue to take completions in batches.
    arrived: VecDeque<RingCompletion>,
    /// Requests completed without the kernel.
    ready: Vec<Completion>,
    /// Source of zeros where no zeroing operation exists; allocated on first use.
    zeros: Buf,
    shared: Arc<Shared>,
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while (self.outstanding() as usize) < self.depth {
            let Some(request) = batch.pop_front() else {
                break;
            };
            match self.first_stage(&request) {
                Ok(Some(stage)) => {
                    let slot = Slot {
                        request,
                        stage,
                        at: 0,
                        retries: 0,
                    };
                    let index = self.fill_slot(slot);
                    self.push(index);
                }
                Ok(None) => self.ready.push(Completion {
                    tag: request.tag,
                    buf: request.buf,
                    result: Ok(()),
                }),
                Err(error) => {
                    self.ready.push(Completion {
                        tag: request.tag,
                        buf: request.buf,
                        result: Err(error),
                    });
                }
            }
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.ready);
        let mut arrived = std::mem::take(&mut self.arrived);
        self.port.take_all(&mut arrived);
        for one in arrived.drain(..) {
            let index = one.user as u32;
            if let Some(result) = self.advance(index, one.result) {
                let request = &mut self.slots[index as usize].request;
                done.push(Completion {
                    tag: request.tag,
                    buf: std::mem::take(&mut request.buf),
                    result,
                });
                self.free.push(index);
            }
        }
        self.arrived = arrived;
    }

    fn outstanding(&self) -> u32 {
        (self.slots.len() - self.free.len() + self.ready.len()) as u32
    }

    fn deadline(&self) -> Nanos {
        if self.ready.is_empty() {
            Nanos::MAX
        } else {
            Nanos(0)
        }
    }
}

impl FileDevice {
    /// Puts a request into a free slot, and returns its index.
    fn fill_slot(&mut self, slot: Slot) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return index;
        }
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    /// The first operation of a request; `None` if there is nothing to do.
    fn first_stage(&self, request: &Request) -> Result<Option<Stage>, DeviceError> {
        in_size(
            &self.shared.info,
            self.shared.size_bytes.load(Ordering::Relaxed),
            request,
        )?;
        if request.len == 0 && request.op != Op::Flush {
            return Ok(None);
        }
        // Polled rings accept only transfers.
        if self.polled && !matches!(request.op, Op::Read | Op::Write) {
            return Err(DeviceError::Unsupported);
        }
        Ok(Some(match request.op {
            Op::Read | Op::Write => Stage::Transfer,
            Op::Flush => Stage::Sync,
            Op::Unmap if !self.shared.no_punch.load(Ordering::Relaxed) => Stage::Punch,
            Op::Unmap | Op::WriteZeroes => self.zero_stage(),
        }))
    }

    fn zero_stage(&self) -> Stage {
        if self.shared.no_zero_range.load(Ordering::Relaxed) {
            Stage::WriteZeros
        } else {
            Stage::ZeroRange
        }
    }

    /// Queues the slot's operation for the remaining bytes.
    fn push(&mut self, index: u32) {
        let write_through = self.shared.write_through;
        let slot = &mut self.slots[index as usize];
        let file = self.file;
        let request = &mut slot.request;
        let offset = request.offset + slot.at;
        let left = request.len - slot.at;
        let stable = if write_through || request.force_unit_access {
            libc::RWF_DSYNC
        } else {
            0
        };
        let call = match slot.stage {
            Stage::Transfer => {
                let registered = self.port.ring().registered_index(&request.buf);
                assert!(request.len as usize <= request.buf.len());
                // SAFETY: `at < len`, and the buffer has `len` bytes: asserted above.
                let base = unsafe { request.buf.as_mut_ptr().add(slot.at as usize) };
                let len = left.min(u64::from(TRANSFER_BYTES_MAX)) as u32;
                match request.op {
                    Op::Read => Call::Read {
                        file,
                        base,
                        len,
                        offset,
                        registered,
                    },
                    _ => Call::Write {
                        file,
                        base,
                        len,
                        offset,
                        flags: stable,
                        registered,
                    },
                }
            }
            Stage::Punch | Stage::ZeroRange => {
                let how = match slot.stage {
                    Stage::Punch => libc::FALLOC_FL_PUNCH_HOLE,
                    _ => libc::FALLOC_FL_ZERO_RANGE,
                };
                Call::Allocate {
                    file,
                    offset,
                    len: left,
                    mode: how | libc::FALLOC_FL_KEEP_SIZE,
                }
            }
            Stage::WriteZeros => {
                if self.zeros.is_empty() {
                    self.zeros = Buf::zeroed(ZEROS_BYTES);
                }
                Call::Write {
                    file,
                    base: self.zeros.as_ptr(),
                    len: left.min(ZEROS_BYTES as u64) as u32,
                    offset,
                    flags: stable,
                    registered: None,
                }
            }
            Stage::Sync => Call::Sync { file },
        };
        // SAFETY: the call points to the slot's buffer, which stays in the slot until `poll` takes the completion, or
        // to `zeros`, which lives as long as the device; `drop` waits for the kernel or leaks both. `shared` keeps the
        // file open.
        unsafe { self.port.push(call, u64::from(index)) };
    }

    /// Handles the completion of a slot's operation. Returns the request's result if it is complete, or `None` if
    /// another operation was queued for it.
    fn advance(&mut self, index: u32, result: i32) -> Option<Result<(), DeviceError>> {
        let slot = &mut self.slots[index as usize];
        let request = &slot.request;
        if result < 0 {
            let error = -result;
            let next = match (error, slot.stage) {
                (libc::EINTR | libc::EAGAIN, stage) if slot.retries < RETRIES_MAX => {
                    slot.retries += 1;
                    stage
                }
                (libc::EOPNOTSUPP, Stage::Punch) => {
                    self.shared.no_punch.store(true, Ordering::Relaxed);
                    self.zero_stage()
                }
                (libc::EOPNOTSUPP, Stage::ZeroRange) => {
                    self.shared.no_zero_range.store(true, Ordering::Relaxed);
                    Stage::WriteZeros
                }
                _ => return Some(Err(DeviceError::Os(error))),
            };
            self.slots[index as usize].stage = next;
            self.push(index);
            return None;
        }
        match slot.stage {
            Stage::Transfer | Stage::WriteZeros => {
                if result == 0 {
                    // The file was truncated by another program, or the device shrank.
                    return Some(Err(DeviceError::Os(libc::EIO)));
                }
                slot.at += result as u64;
                if slot.at >= request.len {
                    return Some(Ok(()));
                }
                // O_DIRECT can continue only at a block boundary, so a partially completed block is repeated.
                let block = u64::from(self.shared.info.block_bytes);
                if !slot.at.is_multiple_of(block) {
                    slot.at -= slot.at % block;
                    slot.retries += 1;
                    if slot.retries > RETRIES_MAX {
                        return Some(Err(DeviceError::Os(libc::EIO)));
                    }
                }
            }
            Stage::Punch | Stage::ZeroRange => {
                if !self.shared.write_through && !request.force_unit_access {
                    return Some(Ok(()));
                }
                slot.stage = Stage::Sync;
            }
            Stage::Sync => return Some(Ok(())),
        }
        self.push(index);
        None
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if !self.port.wait_idle() {
            // The disk doesn't respond: memory that it may still write to must not be freed.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.zeros));
            // Keeps the descriptor open, so that a late call by a helper thread can't reach another file that reuses
            // its number.
            std::mem::forget(Arc::clone(&self.shared));
        }
        self.port.ring().remove_file(self.file);
    }
}

#[cfg(test)]
mod tests;
