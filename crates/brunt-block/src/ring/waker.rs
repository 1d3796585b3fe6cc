//! Ends the waits of other threads' rings through an eventfd that each ring reads.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// A connection among those that share a ring, for [`super::Ring::take_ready`]: a number that the thread's loop chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingOwner(pub u32);

/// Ends the wait of another thread's ring. Cheap to clone and safe to send to other threads.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<WakerShared>,
    owner: Option<RingOwner>,
}

#[derive(Debug)]
struct WakerShared {
    fd: OwnedFd,
    /// The owners whose wakers were used, each once.
    owners: Mutex<Vec<RingOwner>>,
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
        Ok(Waker {
            shared: Arc::new(WakerShared {
                fd,
                owners: Mutex::default(),
            }),
            owner: None,
        })
    }

    /// The same waker on behalf of an owner, whom [`super::Ring::take_ready`] names after a wake-up.
    pub(super) fn of(&self, owner: Option<RingOwner>) -> Waker {
        Waker {
            shared: Arc::clone(&self.shared),
            owner,
        }
    }

    /// The eventfd, for a read on the ring.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.shared.fd.as_raw_fd()
    }

    /// Wakes the ring; several calls before the ring checks count as one.
    pub fn wake(&self) {
        if let Some(owner) = self.owner {
            // Recorded before the wake-up, so that the ring finds the owner when it wakes up.
            let mut owners = self.owners();
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        // A full counter means that the ring has already been woken.
        let _ = self.try_wake();
    }

    /// Moves the owners whose wakers were used to `into`.
    pub(super) fn take_owners(&self, into: &mut Vec<RingOwner>) {
        into.append(&mut self.owners());
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, Vec<RingOwner>> {
        let owners = self.shared.owners.lock();
        owners.unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the counter. Call this only when the eventfd is readable; otherwise it blocks.
    pub(crate) fn reset(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of our own memory, from an eventfd that we keep open.
        let _ = unsafe { libc::read(self.raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(super) fn try_wake(&self) -> io::Result<()> {
        let one = 1u64;
        // SAFETY: eight bytes of our own memory, to an eventfd that we keep open.
        let written = unsafe { libc::write(self.raw_fd(), (&raw const one).cast(), 8) };
        if written == 8 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
