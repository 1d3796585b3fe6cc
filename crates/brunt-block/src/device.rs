//! The traits between code that issues requests and code that serves them.

use std::sync::Arc;

use brunt_core::Nanos;

use crate::buffer::Buf;
use crate::control::Handles;
use crate::error::DeviceError;
use crate::open_error::OpenError;
use crate::ring::Ring;
pub use crate::sparse::Allocation;
use crate::sparse::SparseMemory;

/// The operation of a request. Offsets and lengths are whole logical blocks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill `buf[..len]` from the medium.
    Read,
    /// Write `buf[..len]` to the medium.
    Write,
    /// Make all writes completed so far stable. Where the device supports it, `offset` and `len` limit the range;
    /// `len == 0` means the whole device.
    Flush,
    /// Deallocate these blocks; they read as zeros afterwards.
    Unmap,
    /// Zero these blocks and keep them allocated.
    WriteZeroes,
}

/// One request. The caller chooses `tag`, which the completion returns; it must be unique among the device's
/// outstanding requests.
#[derive(Debug)]
pub struct Request {
    /// The caller's identifier.
    pub tag: u64,
    /// The operation.
    pub op: Op,
    /// Byte offset from the start of the device.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// At least `len` bytes for `Read` and `Write`, otherwise [`Buf::empty`]. Returned with the completion.
    pub buf: Buf,
    /// Complete only when the data is on stable storage (`Write`, `WriteZeroes`, `Unmap`).
    pub force_unit_access: bool,
}

/// The completion of one request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The request's buffer. After a failed read its content is undefined, unless the error
    /// [`DeviceError::is_recovered`].
    pub buf: Buf,
    /// Success, or why the request failed.
    pub result: Result<(), DeviceError>,
}

/// A device's properties at the time its backend was opened; [`Backend::medium_state`] reports later changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device's name for messages: `memory:1GiB`, a path, an iSCSI URL without its secret.
    pub name: String,
    /// Logical block size in bytes, usually 512 or 4096.
    pub block_bytes: u32,
    /// Size in bytes; a multiple of the block size.
    pub size_bytes: u64,
    /// Smallest unit in bytes that avoids read-modify-write in lower layers; a multiple of `block_bytes`.
    pub physical_block_bytes: u32,
    /// Required memory alignment of buffers, in bytes (O_DIRECT).
    pub buffer_align: usize,
    /// Maximum length of a request in bytes.
    pub transfer_bytes_max: u32,
    /// Whether writes are rejected.
    pub read_only: bool,
    /// Whether a completed write may be lost in a power failure until a `Flush` (a write-back cache).
    pub volatile_cache: bool,
    /// Whether `Unmap` frees space.
    pub unmap: bool,
    /// Informational properties that the device reported or that were negotiated on opening, such as its serial number.
    pub facts: Vec<String>,
    /// What the user needs to know to interpret the results, such as "direct=no: reads may be served from the page
    /// cache instead of the storage".
    pub notes: Vec<String>,
}

impl DeviceInfo {
    /// Facts, then notes: all remarks about the device.
    pub fn remarks(&self) -> impl Iterator<Item = &String> {
        self.facts.iter().chain(&self.notes)
    }
}

/// The current state of a medium, which may differ from its state when the backend was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumState {
    /// Size in bytes; a multiple of the block size. From now on, requests are accepted up to this size.
    pub size_bytes: u64,
    /// Whether the file has been unlinked and can't be opened again. Data written now is lost when this process ends.
    pub deleted: bool,
}

/// Where a backend's data is stored. Two backends with overlapping locations overwrite each other's data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StorageId {
    /// A file: its file system's device number and its inode.
    File {
        /// `st_dev`.
        device: u64,
        /// `st_ino`.
        inode: u64,
    },
    /// A block device on this machine.
    Disk {
        /// `st_rdev`.
        number: u64,
        /// The device number of the whole disk, if this is a partition.
        whole: Option<u64>,
    },
    /// Storage on another machine, by its name in the protocol: a LUN designator, or a server and its export.
    Remote(String),
    /// Storage of a server on this machine: the server's listening socket and the storage's name there.
    Served {
        /// The socket's inode; it changes when the server restarts.
        inode: u64,
        /// The name of the export.
        name: String,
    },
    /// A description of storage on another machine, where it has no unique name: two equal descriptions may mean the
    /// same storage.
    Alike(String),
}

impl StorageId {
    /// Whether data written to one location can be read from the other.
    pub fn overlaps(&self, other: &StorageId) -> bool {
        match (self, other) {
            (
                StorageId::Disk { number, whole },
                StorageId::Disk {
                    number: other_number,
                    whole: other_whole,
                },
            ) => {
                number == other_number
                    || *whole == Some(*other_number)
                    || *other_whole == Some(*number)
            }
            (StorageId::Alike(_), _) => false,
            _ => self == other,
        }
    }

    /// The common description, if the two may be the same storage and it can't be determined whether they are.
    pub fn likeness(&self, other: &StorageId) -> Option<&str> {
        match self {
            StorageId::Alike(words) if self == other => Some(words),
            _ => None,
        }
    }
}

/// Storage to measure or to serve, shared by all threads of a process. Opening it takes time; each thread then opens
/// its own [`Device`] on its own ring.
pub trait Backend: Send + Sync {
    /// The properties of the backend's devices.
    fn info(&self) -> &DeviceInfo;

    /// Opens a device on this thread's ring that accepts up to `depth` requests at once.
    ///
    /// # Errors
    /// The device cannot be used on this ring, or its server doesn't answer. The error keeps the full cause.
    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError>;

    /// Whether opening or closing one of its devices may make the thread wait, for a server or for other threads. A
    /// target then gives each connection its own thread. A layer returns the value of its lower device.
    fn may_wait(&self) -> bool {
        true
    }

    /// Whether and how data can be accessed without a request: a target then sends from and receives into the medium
    /// directly. A layer that delays, corrupts or counts requests returns [`Inline::No`], so that nothing bypasses it.
    fn inline(&self) -> Inline {
        Inline::No
    }

    /// The allocation state of the blocks starting at `offset`, and the number of bytes in that state (GET LBA
    /// STATUS). `None` if the backend doesn't know.
    fn allocation(&self, _offset: u64) -> Option<(Allocation, u64)> {
        None
    }

    /// Checks the medium again: files and disks may grow, shrink or be deleted while they are served. May block on the
    /// file system, so a thread with connections calls it only after an error.
    fn medium_state(&self) -> MediumState {
        MediumState {
            size_bytes: self.info().size_bytes,
            deleted: false,
        }
    }

    /// Resizes the medium; from then on [`Backend::medium_state`] reports the new size.
    ///
    /// # Errors
    /// The medium can't be resized by this backend, or not to this size.
    fn resize(&self, _size_bytes: u64) -> std::io::Result<()> {
        let why = "this device cannot be resized; only files, memory and null devices can";
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why))
    }

    /// Where the data is stored; empty for storage that no other backend can reach, such as memory. A layer returns the
    /// value of its lower device.
    fn storage(&self) -> Vec<StorageId> {
        Vec::new()
    }

    /// Whether [`Op::Unmap`] zeroes blocks immediately and without writing zeros. It can then replace
    /// [`Op::WriteZeroes`] where blocks need not stay allocated. A layer returns the value of its lower device.
    fn unmap_reads_zeros(&self) -> bool {
        false
    }

    /// Downcast hook for loads whose requests are not block requests, such as NFS calls. Layers don't pass it on.
    fn concrete(&self) -> Option<&dyn std::any::Any> {
        None
    }

    /// The parts that can be controlled while requests run. A layer adds its own handle to those below it.
    fn handles(&self) -> Handles {
        Vec::new()
    }
}

/// See [`Backend::inline`].
#[derive(Clone, Debug)]
pub enum Inline {
    /// Only through requests.
    No,
    /// Reads return zeros, writes are dropped (the diskless mode of Aiken and Grunwald, 2003, section 2.2).
    Zeros,
    /// The medium is this memory.
    Memory(Arc<SparseMemory>),
}

/// A per-thread handle to a backend.
pub trait Device {
    /// The device's properties.
    fn info(&self) -> &DeviceInfo;

    /// Takes requests from the front of `batch` up to the device's depth, and leaves the rest in order. Invalid
    /// requests are taken too and complete with an error.
    fn submit(&mut self, batch: &mut std::collections::VecDeque<Request>);

    /// Appends completed requests to `done`. Never waits; call it after [`Ring::enter`].
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// Number of requests taken but not yet completed.
    fn outstanding(&self) -> u32;

    /// When `poll` has to be called again even without a ring event: `Nanos(0)` if completions are ready now,
    /// [`Nanos::MAX`] if only a ring event requires it.
    fn deadline(&self) -> Nanos;

    /// Asks to cancel an outstanding request. It still completes exactly once, with its own result if the cancellation
    /// came too late. Devices that cannot cancel do nothing.
    fn cancel(&mut self, _tag: u64) {}

    /// Errors in lower layers that completions don't report. A layer passes on the errors of its lower device.
    fn health(&self) -> Health {
        Health::default()
    }
}

/// A device's errors, whether or not it recovered from them. Printed next to the results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Requests resent for any reason.
    pub retries: u64,
    /// Requests abandoned because they timed out.
    pub timeouts: u64,
    /// Sessions lost and re-established.
    pub reconnects: u64,
    /// Retried connection attempts while opening the device.
    pub connect_retries: u64,
    /// The last error, as text.
    pub trouble: Option<String>,
}

impl Health {
    /// Adds the errors of another per-thread device of the same backend; keeps the first `trouble`.
    pub fn add(&mut self, other: Health) {
        self.retries += other.retries;
        self.timeouts += other.timeouts;
        self.reconnects += other.reconnects;
        self.connect_retries += other.connect_retries;
        self.trouble = self.trouble.take().or(other.trouble);
    }

    /// A one-line summary; `None` if nothing went wrong.
    pub fn note(&self) -> Option<String> {
        let counts = [
            (self.connect_retries, "connection retries"),
            (self.reconnects, "sessions re-established"),
            (self.retries, "requests retried by the device"),
            (self.timeouts, "requests timed out"),
        ];
        let said = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what}: {count}"));
        let mut words: Vec<String> = said.collect();
        words.extend(
            self.trouble
                .as_ref()
                .map(|trouble| format!("last error: {trouble}")),
        );
        (!words.is_empty()).then(|| words.join(", "))
    }
}
