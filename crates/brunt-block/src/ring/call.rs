//! The calls that devices and connections make to the kernel, in a form that all engines can execute.

use std::os::fd::RawFd;

/// A client's file or socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingFile {
    pub fd: RawFd,
    /// The file's index among io_uring's registered files, if registered.
    pub slot: Option<u32>,
    pub manner: Manner,
}

/// Whether calls on a file may block, as far as the client knows. Only the threads engine uses this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Calls wait for a device.
    #[default]
    Waits,
    /// Reads from the page cache don't block, and the kernel reports which ones would (RWF_NOWAIT).
    Cached,
    /// Calls never block: the file system is in memory.
    Memory,
    /// The client has no other requests outstanding, so waiting for this one delays nothing.
    Alone,
}

/// One call. The memory that the call points to stays valid until the call completes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// preadv2 into one buffer. `registered`: the index of the registered buffer that contains the memory.
    Read {
        file: RingFile,
        base: *mut u8,
        len: u32,
        offset: u64,
        registered: Option<u16>,
    },
    /// pwritev2 from one buffer, with RWF_ flags.
    Write {
        file: RingFile,
        base: *const u8,
        len: u32,
        offset: u64,
        flags: i32,
        registered: Option<u16>,
    },
    /// fallocate.
    Allocate {
        file: RingFile,
        offset: u64,
        len: u64,
        mode: i32,
    },
    /// fdatasync.
    Sync { file: RingFile },
    /// recvmsg.
    Receive {
        socket: RingFile,
        message: *mut libc::msghdr,
    },
    /// sendmsg; may send only part of the message.
    Send {
        socket: RingFile,
        message: *const libc::msghdr,
    },
    /// Waits for an eventfd and resets it.
    Count { fd: RawFd, into: *mut u64 },
}

// SAFETY: the pointers refer to memory that the client doesn't touch until the call completes; until then, the thread
// that executes the call has exclusive use of it.
unsafe impl Send for Call {}
