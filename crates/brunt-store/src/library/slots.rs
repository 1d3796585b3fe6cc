//! Requests that a library has, with the buffers that it reads and writes meanwhile. Used by `device`.
//!
//! The rule: a slot's buffer cannot be reached from when the library got it until it said that the operation ended. A
//! device that goes away waits for that, and leaks what the library never gave back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brunt_block::{Buf, Waker};

use super::inbox::{Inbox, Landed};

/// How long a device that goes away waits for what the library still has.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What a library can do to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LibraryOp {
    Read,
    Write,
    /// What was completed before is stable afterwards.
    Flush,
    /// Reads as zeros afterwards, and takes no room.
    Discard,
    /// Reads as zeros afterwards, and keeps its room.
    Zero,
}

/// An image that a library has open. Its threads complete what threads of ours begin.
///
/// # Safety
/// When `begin` answers `Ok`, [`SlotToken::end`] is called exactly once, from any thread, and the library touches the memory
/// until then only. When it answers an error, neither happens.
pub(crate) unsafe trait Library: Send + Sync + 'static {
    /// Begins an operation; an errno if it cannot.
    ///
    /// # Safety
    /// `memory` is good for `len` bytes, if the operation reads or writes any, and `token` is good, until it ended.
    unsafe fn begin(
        &self,
        op: LibraryOp,
        offset: u64,
        memory: *mut u8,
        len: u64,
        token: *const SlotToken,
    ) -> Result<(), i32>;

    /// How many of `len` bytes an operation did that ended without an error.
    fn moved(op: LibraryOp, len: u64, result: i64) -> u64;

    /// What an errno means for this library's requests, where that is more than its own words say.
    fn trouble(_errno: i32) -> Option<&'static str> {
        None
    }
}

/// What a library gets to know of an operation: whose it is.
#[derive(Debug)]
pub(crate) struct SlotToken {
    inbox: Arc<Inbox>,
    slot: u32,
}

impl SlotToken {
    /// The operation ended, with a number of bytes or a negative errno.
    ///
    /// # Safety
    /// `token` is what [`Library::begin`] got for this operation, for which this was not called before.
    pub unsafe fn end(token: *const SlotToken, result: i64) {
        let (inbox, slot) = {
            // SAFETY: its slots keep it until they have what is posted below.
            let token = unsafe { &*token };
            (Arc::clone(&token.inbox), token.slot)
        };
        // From here on the device may be gone, and the token with it.
        inbox.post(slot, result);
    }
}

/// Slots for a device's requests.
pub(super) struct Slots<L: Library> {
    library: Arc<L>,
    slots: Vec<Slot>,
    /// One for each slot. Never grows: the library has pointers to them.
    tokens: Vec<SlotToken>,
    inbox: Arc<Inbox>,
    /// Slots that the library has.
    flying: u32,
    patience: Duration,
}

struct Slot {
    buf: Buf,
    flying: bool,
}

impl<L: Library> Slots<L> {
    /// `count` empty slots; `waker` is called when something ended.
    pub fn new(library: Arc<L>, count: u32, waker: Waker) -> Slots<L> {
        let inbox = Arc::new(Inbox::new(count as usize, waker));
        Slots {
            library,
            slots: (0..count)
                .map(|_| Slot {
                    buf: Buf::empty(),
                    flying: false,
                })
                .collect(),
            tokens: (0..count)
                .map(|slot| SlotToken {
                    inbox: Arc::clone(&inbox),
                    slot,
                })
                .collect(),
            inbox,
            flying: 0,
            patience: PATIENCE,
        }
    }

    /// Gives a slot that the library does not have a buffer, in exchange for the one that it had.
    pub fn swap_buf(&mut self, slot: u32, buf: Buf) -> Buf {
        let slot = &mut self.slots[slot as usize];
        assert!(!slot.flying, "the library has this slot");
        std::mem::replace(&mut slot.buf, buf)
    }

    /// Begins an operation at `offset`, with the `len` bytes of the slot's buffer that begin at `at` if it moves any.
    ///
    /// # Errors
    /// The library's errno; the slot is free again.
    pub fn begin(
        &mut self,
        index: u32,
        op: LibraryOp,
        offset: u64,
        at: u64,
        len: u64,
    ) -> Result<(), i32> {
        let slot = &mut self.slots[index as usize];
        assert!(!slot.flying, "the library has this slot");
        let memory = match op {
            LibraryOp::Read | LibraryOp::Write => {
                slot.buf[at as usize..][..len as usize].as_mut_ptr()
            }
            LibraryOp::Flush | LibraryOp::Discard | LibraryOp::Zero => std::ptr::null_mut(),
        };
        let token = &raw const self.tokens[index as usize];
        // SAFETY: the memory is `len` bytes of the slot's buffer, which nobody reaches while `flying`; tokens stay where
        // they are. Both go only when the inbox had the operation's end, or are leaked.
        unsafe { self.library.begin(op, offset, memory, len, token)? };
        slot.flying = true;
        self.flying += 1;
        Ok(())
    }

    /// Appends what ended; those slots are free.
    pub fn take(&mut self, landed: &mut Vec<Landed>) {
        let known = landed.len();
        self.inbox.take(landed);
        for (index, _) in &landed[known..] {
            let slot = &mut self.slots[*index as usize];
            assert!(
                std::mem::replace(&mut slot.flying, false),
                "an operation ends once"
            );
            self.flying -= 1;
        }
    }
}

impl<L: Library> Drop for Slots<L> {
    fn drop(&mut self) {
        let until = Instant::now() + self.patience;
        let mut landed = Vec::new();
        while self.flying > 0 && self.inbox.wait(until) {
            self.take(&mut landed);
        }
        if self.flying > 0 {
            // A store that does not answer: memory that the library may still write to is not freed, and the image
            // is not closed.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.tokens));
            std::mem::forget(Arc::clone(&self.library));
        }
    }
}

#[cfg(test)]
pub(super) mod fake {
    //! A library of memory whose operations end on another thread, when they are let go.

    use std::sync::{Condvar, Mutex};

    use super::*;

    /// What was begun: op, offset, memory, length, token.
    struct Begun(LibraryOp, u64, *mut u8, u64, *const SlotToken);

    // SAFETY: the pointers are good until the operation's end, on any thread.
    unsafe impl Send for Begun {}

    #[derive(Default)]
    pub struct Fake {
        begun: Mutex<Vec<Begun>>,
        changed: Condvar,
        pub medium: Mutex<Vec<u8>>,
        /// Each operation that ended, in order.
        pub ended: Mutex<Vec<LibraryOp>>,
        /// The errno that `begin` answers, if any.
        pub refuses: Mutex<Option<i32>>,
        /// Reads and writes move so many bytes at most, if any.
        pub at_most: Mutex<Option<u64>>,
    }

    impl Fake {
        pub fn of(bytes: usize) -> Arc<Fake> {
            Arc::new(Fake {
                medium: Mutex::new(vec![0; bytes]),
                ..Fake::default()
            })
        }

        /// Ends the next `count` operations, the last begun first, once they are there; with an errno if it is not 0.
        pub fn end(&self, count: usize, errno: i32) {
            for _ in 0..count {
                let mut begun = self.begun.lock().unwrap();
                while begun.is_empty() {
                    begun = self.changed.wait(begun).unwrap();
                }
                let Begun(op, offset, memory, len, token) = begun.pop().unwrap();
                drop(begun);
                let len = self
                    .at_most
                    .lock()
                    .unwrap()
                    .map_or(len, |most| most.min(len));
                let mut medium = self.medium.lock().unwrap();
                let place = &mut medium[offset as usize..][..len as usize];
                if errno == 0 {
                    // SAFETY: `begin`'s caller says that the memory is good until the end.
                    unsafe {
                        match op {
                            LibraryOp::Read => memory.copy_from(place.as_ptr(), len as usize),
                            LibraryOp::Write => memory.copy_to(place.as_mut_ptr(), len as usize),
                            LibraryOp::Discard | LibraryOp::Zero => place.fill(0),
                            LibraryOp::Flush => {}
                        }
                    }
                }
                drop(medium);
                self.ended.lock().unwrap().push(op);
                let result = if errno == 0 {
                    len as i64
                } else {
                    -i64::from(errno)
                };
                // SAFETY: the token came with this operation, which was taken off the list.
                unsafe { SlotToken::end(token, result) };
            }
        }
    }

    // SAFETY: what was begun is ended once, by whoever takes it off the list.
    unsafe impl Library for Fake {
        unsafe fn begin(
            &self,
            op: LibraryOp,
            offset: u64,
            memory: *mut u8,
            len: u64,
            token: *const SlotToken,
        ) -> Result<(), i32> {
            if let Some(errno) = *self.refuses.lock().unwrap() {
                return Err(errno);
            }
            self.begun
                .lock()
                .unwrap()
                .push(Begun(op, offset, memory, len, token));
            self.changed.notify_all();
            Ok(())
        }

        fn moved(_: LibraryOp, _: u64, result: i64) -> u64 {
            result as u64
        }

        fn trouble(errno: i32) -> Option<&'static str> {
            (errno == libc::ESHUTDOWN).then_some("shut out")
        }
    }
}

#[cfg(test)]
mod tests {
    use brunt_block::{Bell, Ring, RingConfig};

    use super::fake::Fake;
    use super::*;

    fn slots(fake: &Arc<Fake>) -> (Slots<Fake>, Bell) {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let bell = Bell::new(&ring).unwrap();
        (Slots::new(Arc::clone(fake), 2, bell.waker()), bell)
    }

    #[test]
    fn what_goes_away_waits_for_the_library() {
        let fake = Fake::of(1024);
        let (mut slots, _bell) = slots(&fake);
        slots.patience = Duration::from_secs(600);
        slots.swap_buf(0, Buf::zeroed(512));
        slots.begin(0, LibraryOp::Read, 0, 0, 512).unwrap();
        slots.begin(1, LibraryOp::Flush, 0, 0, 0).unwrap();
        let ender = Arc::clone(&fake);
        let thread = std::thread::spawn(move || ender.end(2, 0));
        drop(slots);
        assert_eq!(
            fake.ended.lock().unwrap().len(),
            2,
            "dropped before the library was done"
        );
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&fake), 1, "and nothing is leaked");
    }

    #[test]
    fn what_the_library_never_gives_back_is_leaked() {
        let fake = Fake::of(1024);
        let (mut slots, _bell) = slots(&fake);
        slots.patience = Duration::from_millis(1);
        slots.swap_buf(0, Buf::zeroed(512));
        slots.begin(0, LibraryOp::Read, 0, 0, 512).unwrap();
        drop(slots);
        assert_eq!(
            Arc::strong_count(&fake),
            2,
            "the image is not closed under the operation"
        );
        // Writes to a buffer and calls back a device that are gone: under a sanitizer this would show.
        fake.end(1, 0);
    }

    #[test]
    #[should_panic(expected = "the library has this slot")]
    fn a_buffer_cannot_be_reached_while_the_library_has_it() {
        let fake = Fake::of(1024);
        let (mut slots, _bell) = slots(&fake);
        slots.patience = Duration::ZERO;
        slots.swap_buf(0, Buf::zeroed(512));
        slots.begin(0, LibraryOp::Write, 0, 0, 512).unwrap();
        slots.swap_buf(0, Buf::empty());
    }
}
