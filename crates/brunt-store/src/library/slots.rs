//! Requests that a library is processing, with the buffers that it reads and writes in the meantime. Used by `device`.
//!
//! The rule: a slot's buffer is inaccessible from the start of its operation until the library has completed it. A
//! device that is dropped waits for that, and leaks the buffers that the library never returns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brunt_block::{Buf, Waker};

use super::inbox::{Inbox, Landed};

/// How long a dropped device waits for the library's outstanding operations.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// An operation on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LibraryOp {
    Read,
    Write,
    /// Makes all previously completed writes stable.
    Flush,
    /// The range reads as zeros afterwards, and its space is freed.
    Discard,
    /// The range reads as zeros afterwards, and its space stays allocated.
    Zero,
}

/// An image opened by a library. The library's threads complete the operations that Brunt's threads start.
///
/// # Safety
/// If `begin` returns `Ok`, [`SlotToken::end`] is called exactly once, from any thread, and the library accesses the
/// memory only until then. If it returns an error, neither happens.
pub(crate) unsafe trait Library: Send + Sync + 'static {
    /// Starts an operation; returns an errno if it cannot.
    ///
    /// # Safety
    /// `memory` is valid for `len` bytes, if the operation reads or writes any, and `token`
    /// is valid, until the operation has completed.
    unsafe fn begin(
        &self,
        op: LibraryOp,
        offset: u64,
        memory: *mut u8,
        len: u64,
        token: *const SlotToken,
    ) -> Result<(), i32>;

    /// How many of `len` bytes a successful operation processed.
    fn moved(op: LibraryOp, len: u64, result: i64) -> u64;

    /// Explains an errno of this library's requests, if there is more to say than its standard text.
    fn trouble(_errno: i32) -> Option<&'static str> {
        None
    }
}

/// Identifies an operation, by its slot, to the library.
#[derive(Debug)]
pub(crate) struct SlotToken {
    inbox: Arc<Inbox>,
    slot: u32,
}

impl SlotToken {
    /// Completes the operation, with a number of bytes or a negative errno.
    ///
    /// # Safety
    /// `token` is the one that [`Library::begin`] got for this operation, and this function was not called for it
    /// before.
    pub unsafe fn end(token: *const SlotToken, result: i64) {
        let (inbox, slot) = {
            // SAFETY: the slots keep the token until they have received the completion that is posted below.
            let token = unsafe { &*token };
            (Arc::clone(&token.inbox), token.slot)
        };
        // From here on, the device and thus the token may be gone.
        inbox.post(slot, result);
    }
}

/// Slots for a device's requests.
pub(super) struct Slots<L: Library> {
    library: Arc<L>,
    slots: Vec<Slot>,
    /// One per slot. Never grows, because the library has pointers to the tokens.
    tokens: Vec<SlotToken>,
    inbox: Arc<Inbox>,
    /// Number of slots that the library is using.
    flying: u32,
    patience: Duration,
}

struct Slot {
    buf: Buf,
    flying: bool,
}

impl<L: Library> Slots<L> {
    /// Creates `count` empty slots; `waker` is called on completions.
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

    /// Gives a buffer to a slot that the library isn't using, in exchange for its previous one.
    pub fn swap_buf(&mut self, slot: u32, buf: Buf) -> Buf {
        let slot = &mut self.slots[slot as usize];
        assert!(!slot.flying, "the library uses this slot");
        std::mem::replace(&mut slot.buf, buf)
    }

    /// Starts an operation at `offset`; if it transfers data, with `len` bytes of the slot's buffer, starting at `at`.
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
        assert!(!slot.flying, "the library uses this slot");
        let memory = match op {
            LibraryOp::Read | LibraryOp::Write => {
                slot.buf[at as usize..][..len as usize].as_mut_ptr()
            }
            LibraryOp::Flush | LibraryOp::Discard | LibraryOp::Zero => std::ptr::null_mut(),
        };
        let token = &raw const self.tokens[index as usize];
        // SAFETY: the memory is `len` bytes of the slot's buffer, which is not accessed while `flying`; tokens do not
        // move. Both are freed only after the inbox has received the operation's completion; otherwise they are leaked.
        unsafe { self.library.begin(op, offset, memory, len, token)? };
        slot.flying = true;
        self.flying += 1;
        Ok(())
    }

    /// Appends the completed operations, whose slots are free now.
    pub fn take(&mut self, landed: &mut Vec<Landed>) {
        let known = landed.len();
        self.inbox.take(landed);
        for (index, _) in &landed[known..] {
            let slot = &mut self.slots[*index as usize];
            assert!(
                std::mem::replace(&mut slot.flying, false),
                "an operation completes once"
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
            // The store doesn't respond: memory that the library may still write to is not freed, and the image is not
            // closed.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.tokens));
            std::mem::forget(Arc::clone(&self.library));
        }
    }
}

#[cfg(test)]
pub(super) mod fake {
    //! An in-memory library whose operations complete on another thread when a test lets them.

    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A started operation: op, offset, memory, length, token.
    struct Begun(LibraryOp, u64, *mut u8, u64, *const SlotToken);

    // SAFETY: the pointers are valid on any thread until the operation has completed.
    unsafe impl Send for Begun {}

    #[derive(Default)]
    pub struct Fake {
        begun: Mutex<Vec<Begun>>,
        changed: Condvar,
        pub medium: Mutex<Vec<u8>>,
        /// Each completed operation, in order.
        pub ended: Mutex<Vec<LibraryOp>>,
        /// The errno that `begin` returns, if set.
        pub refuses: Mutex<Option<i32>>,
        /// Maximum bytes transferred by reads and writes, if set.
        pub at_most: Mutex<Option<u64>>,
    }

    impl Fake {
        pub fn of(bytes: usize) -> Arc<Fake> {
            Arc::new(Fake {
                medium: Mutex::new(vec![0; bytes]),
                ..Fake::default()
            })
        }

        /// Completes the next `count` operations once they have been started, the last one first; with an errno if it
        /// is not 0.
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
                    // SAFETY: the caller of `begin` guarantees that the memory is valid until the operation has
                    // completed.
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
                // SAFETY: the token belongs to this operation, which was removed from the list.
                unsafe { SlotToken::end(token, result) };
            }
        }
    }

    // SAFETY: a started operation is completed once, by the code that removes it from the list.
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
    fn dropped_slots_wait_for_the_library() {
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
    fn buffers_that_the_library_never_returns_are_leaked() {
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
        // This writes to a buffer and calls back a device that no longer exist; a sanitizer would detect it.
        fake.end(1, 0);
    }

    #[test]
    #[should_panic(expected = "the library uses this slot")]
    fn a_buffer_cannot_be_reached_while_the_library_has_it() {
        let fake = Fake::of(1024);
        let (mut slots, _bell) = slots(&fake);
        slots.patience = Duration::ZERO;
        slots.swap_buf(0, Buf::zeroed(512));
        slots.begin(0, LibraryOp::Write, 0, 0, 512).unwrap();
        slots.swap_buf(0, Buf::empty());
    }
}
