//! What devices and connections ask of the kernel, in terms that each engine can carry out.

use std::os::fd::RawFd;

/// A file or socket of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingFile {
    pub fd: RawFd,
    /// Its place among io_uring's registered files, if it has one.
    pub slot: Option<u32>,
    pub manner: Manner,
}

/// How long calls on a file take, as far as its client knows. Only the engine of threads cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// They wait for a device.
    #[default]
    Waits,
    /// Reads of what is in the page cache don't wait, and the kernel says which would (RWF_NOWAIT).
    Cached,
    /// Never: its file system is memory.
    Memory,
    /// The client has no other requests meanwhile: waiting for one disturbs nothing.
    Alone,
}

/// One call. What it points to stays valid until it completes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// preadv2 into one buffer. `registered`: the buffer is part of the ring's arena.
    Read {
        file: RingFile,
        base: *mut u8,
        len: u32,
        offset: u64,
        registered: bool,
    },
    /// pwritev2 from one buffer, with RWF_ flags.
    Write {
        file: RingFile,
        base: *const u8,
        len: u32,
        offset: u64,
        flags: i32,
        registered: bool,
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
    /// sendmsg; may send a part.
    Send {
        socket: RingFile,
        message: *const libc::msghdr,
    },
    /// Waits for an eventfd and resets it.
    Count { fd: RawFd, into: *mut u64 },
}

// SAFETY: the pointers are to memory that the client leaves alone until the call completes; whichever thread carries the
// call out has it to itself until then.
unsafe impl Send for Call {}
