//! Ends the waits of other threads' rings through an eventfd that each ring reads.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Ends the wait of another thread's ring. Cheap to clone and safe to send to other threads.
#[derive(Clone, Debug)]
pub struct Waker {
    pub(super) fd: Arc<OwnedFd>,
}

impl Waker {
    /// Creates a waker with a new eventfd.
    pub(crate) fn new() -> io::Result<Waker> {
        // SAFETY: plain system call; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker { fd: Arc::new(fd) })
    }

    /// The eventfd, for a read on the ring.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Wakes the ring; several calls before the ring checks count as one.
    pub fn wake(&self) {
        // A full counter means that the ring has already been woken.
        let _ = self.try_wake();
    }

    /// Resets the counter. Call this only when it is readable; otherwise it blocks.
    pub(crate) fn reset(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of our own memory, from an eventfd that we keep open.
        let _ = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(super) fn try_wake(&self) -> io::Result<()> {
        let one = 1u64;
        // SAFETY: eight bytes of our own memory, to an eventfd that we keep open.
        let written = unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
        if written == 8 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
