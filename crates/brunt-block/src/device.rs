//! The trait between code that issues requests and code that serves them.

use std::sync::Arc;

use brunt_core::Nanos;

use crate::buffer::Buf;
use crate::control::Handles;
use crate::error::DeviceError;
use crate::open_error::OpenError;
use crate::ring::Ring;
pub use crate::sparse::Allocation;
use crate::sparse::SparseMemory;

/// What a request does. Offsets and lengths are whole logical blocks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill `buf[..len]` from the medium.
    Read,
    /// Put `buf[..len]` on the medium.
    Write,
    /// Make everything that was completed before stable. `offset` and `len` narrow it where the
    /// device can; `len == 0` means all.
    Flush,
    /// Forget these blocks; they read as zeros afterwards.
    Unmap,
    /// Blocks read as zeros afterwards and stay allocated.
    WriteZeroes,
}

/// One request. `tag` is the caller's and comes back with the completion; no two requests that are
/// outstanding on a device have the same.
#[derive(Debug)]
pub struct Request {
    /// The caller's own name for it.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// In bytes from the start of the device.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
    /// At least `len` bytes for `Read` and `Write`, [`Buf::empty`] otherwise. It comes back with
    /// the completion.
    pub buf: Buf,
    /// Complete only when the data is on stable storage (`Write`, `WriteZeroes`, `Unmap`).
    pub force_unit_access: bool,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub tag: u64,
    /// The request's buffer; after a failed read its content means nothing, unless the error
    /// [`DeviceError::is_recovered`].
    pub buf: Buf,
    /// Whether it was done.
    pub result: Result<(), DeviceError>,
}

/// What a device is, as it was when its backend was opened; [`Backend::look`] tells what changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// How it was named, for messages: `memory:1GiB`, a path, an iSCSI URL without its secret.
    pub name: String,
    /// Logical block size in bytes: 512 or 4096 mostly.
    pub block_bytes: u32,
    /// Size in bytes, whole blocks.
    pub size_bytes: u64,
    /// Smallest unit that avoids read-modify-write below, in bytes; a multiple of `block_bytes`.
    pub physical_block_bytes: u32,
    /// Required alignment of buffers in memory, in bytes (O_DIRECT).
    pub buffer_align: usize,
    /// Longest single request in bytes.
    pub transfer_bytes_max: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// A completed write may still be lost with the machine's power until a `Flush` (a write-back cache).
    pub volatile_cache: bool,
    /// `Unmap` frees space.
    pub unmap: bool,
    /// What it said of itself or agreed to when it was opened, such as its serial number; nothing to worry about.
    pub facts: Vec<String>,
    /// What the user has to know beside the results, such as "no O_DIRECT on tmpfs before Linux 6.6:
    /// the page cache is in the way".
    pub notes: Vec<String>,
}

impl DeviceInfo {
    /// Facts, then notes: all there is to say of the device in words.
    pub fn remarks(&self) -> impl Iterator<Item = &String> {
        self.facts.iter().chain(&self.notes)
    }
}

/// What a medium is now, where that may differ from what it was when its backend was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumLook {
    /// Size in bytes, whole blocks; requests are taken up to here from now on.
    pub size_bytes: u64,
    /// Nobody can open it again: the file has no name any more. What is written now is lost with this process.
    pub deleted: bool,
}

/// Where a backend's data is. Two backends with overlapping places write over each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StorageId {
    /// A file: the number of its file system's device, and its inode.
    File {
        /// `st_dev`.
        device: u64,
        /// `st_ino`.
        inode: u64,
    },
    /// A block device of this machine.
    Disk {
        /// `st_rdev`.
        number: u64,
        /// The number of the disk that it is a partition of.
        whole: Option<u64>,
    },
    /// Storage of another machine, by what its protocol names it with: a LUN's designator, or a server and its export.
    Remote(String),
}

impl StorageId {
    /// Whether what is written to one may be read from the other.
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
            _ => self == other,
        }
    }
}

/// Something to measure or to serve, shared by all threads of a process. Opening it costs time;
/// each thread opens its own [`Device`] on its own ring.
pub trait Backend: Send + Sync {
    /// What its devices are.
    fn info(&self) -> &DeviceInfo;

    /// A device on this thread's ring that takes up to `depth` requests at once.
    ///
    /// # Errors
    /// The device cannot be used on this ring, or the one behind it does not answer: with the cause in full.
    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError>;

    /// How data can be reached without a request, when it can: a target then sends from and
    /// receives into the medium itself. A layer that delays, breaks or counts answers
    /// [`Inline::No`], so that nothing passes it by.
    fn inline(&self) -> Inline {
        Inline::No
    }

    /// The state of the blocks from `offset` on, and for how many bytes it holds (GET LBA STATUS);
    /// `None` when the backend does not know.
    fn allocation(&self, _offset: u64) -> Option<(Allocation, u64)> {
        None
    }

    /// Looks at the medium again: files and disks grow, shrink and are deleted while they are served. May wait for
    /// the file system: not for the thread of a connection that has nothing wrong with it.
    fn look(&self) -> MediumLook {
        MediumLook {
            size_bytes: self.info().size_bytes,
            deleted: false,
        }
    }

    /// Makes the medium longer or shorter; [`Backend::look`] tells the size from then on.
    ///
    /// # Errors
    /// The medium does not grow or shrink at our word, or not so far.
    fn resize(&self, _size_bytes: u64) -> std::io::Result<()> {
        let why = "it cannot be resized from here; only files, memory and null devices can";
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why))
    }

    /// Where its data is; empty for what no other backend can reach, such as memory. A layer says what is below it.
    fn storage(&self) -> Vec<StorageId> {
        Vec::new()
    }

    /// Whether [`Op::Unmap`] really leaves zeros, at once and without writing them: then it can stand in for
    /// [`Op::WriteZeroes`] where blocks need not stay allocated. A layer says what is below it.
    fn unmap_reads_zeros(&self) -> bool {
        false
    }

    /// What can be driven in it while it runs. A layer adds its own to those below it.
    fn handles(&self) -> Handles {
        Vec::new()
    }
}

/// See [`Backend::inline`].
#[derive(Clone, Debug)]
pub enum Inline {
    /// Through requests only.
    No,
    /// Reads are zeros, writes are dropped (the diskless mode of the iSCSI paper, 2.2).
    Zeros,
    /// The medium is this memory.
    Memory(Arc<SparseMemory>),
}

/// One thread's hand on a backend.
pub trait Device {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Takes requests off the front of `batch`, as many as fit below its depth, and leaves the
    /// rest in order. Bad requests are taken too and complete with an error.
    fn submit(&mut self, batch: &mut std::collections::VecDeque<Request>);

    /// Appends finished requests to `done`. Never waits: call it after [`Ring::enter`].
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// Requests taken and not yet completed.
    fn outstanding(&self) -> u32;

    /// When `poll` has to be called again even if the ring reports nothing: `Nanos(0)` when
    /// completions are ready now, [`Nanos::MAX`] when only the ring will tell.
    fn deadline(&self) -> Nanos;

    /// Asks for an outstanding request to be given up. It still completes exactly once, with its
    /// own result if it was too late. Devices that cannot cancel do nothing.
    fn cancel(&mut self, _tag: u64) {}

    /// What went on below that completions do not tell. A layer passes on what is below it.
    fn health(&self) -> Health {
        Health::default()
    }
}

/// Trouble that a device overcame, or did not. Printed beside results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Requests sent again, for whatever reason.
    pub retries: u64,
    /// Requests that were given up because they took too long.
    pub timeouts: u64,
    /// Sessions that were lost and made again.
    pub reconnects: u64,
    /// Connections that were attempted again while the device was opened.
    pub connect_retries: u64,
    /// The last trouble, in words.
    pub trouble: Option<String>,
}

impl Health {
    /// One line for people; `None` when nothing went wrong.
    pub fn note(&self) -> Option<String> {
        let counts = [
            (self.connect_retries, "attempts to connect repeated"),
            (self.reconnects, "sessions made again"),
            (self.retries, "requests sent again by the device"),
            (self.timeouts, "requests not answered in time"),
        ];
        let said = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what}: {count}"));
        let mut words: Vec<String> = said.collect();
        words.extend(
            self.trouble
                .as_ref()
                .map(|trouble| format!("last: {trouble}")),
        );
        (!words.is_empty()).then(|| words.join(", "))
    }
}
