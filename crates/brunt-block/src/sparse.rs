//! Memory that reads as zeros and takes space only where it was written: the storage of a `memory` device. A target's
//! sockets send from it and receive into it without a copy.
//!
//! All unsafe code for the mapping is in this file. The rule: no reference to the bytes is ever created, because
//! threads share them like a disk.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The granularity of the allocation map: the smallest logical block size.
const GRAIN_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;
/// A query follows a run of blocks in the same state for at most this many bytes. This corresponds to 8 MiB of map,
/// which takes a few milliseconds to scan: a query about a huge LUN must not stall its connection.
const RUN_BYTES_MAX: u64 = 32 << 30;

/// Whether blocks are allocated (SBC-3, 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The blocks hold data.
    Mapped,
    /// The blocks read as zeros and take no space.
    Deallocated,
}

/// Sparse memory that tracks which grains were written. All access is by copying; two threads that write the same bytes
/// concurrently leave a mixture, as on a disk.
pub struct SparseMemory {
    base: NonNull<u8>,
    /// The usable size.
    len: AtomicU64,
    /// The mapped size, up to which it can grow.
    room: u64,
    /// One bit per grain, set if it holds data; itself a sparse mapping.
    map: NonNull<AtomicU64>,
    map_words: usize,
}

// SAFETY: the mappings live as long as the value and are accessed only through methods that copy bytes or use atomics.
// Concurrent copies of the same bytes race like two writers on a shared page of a mapped device; no reference to the
// bytes is ever created, and no invariant depends on them.
unsafe impl Send for SparseMemory {}
// SAFETY: as above.
unsafe impl Sync for SparseMemory {}

impl SparseMemory {
    /// Creates `len` bytes of zeros that take no memory yet.
    ///
    /// # Errors
    /// The system rejects a mapping of this size (`vm.overcommit_memory = 2`, or the address space).
    pub fn new(len: u64) -> io::Result<SparseMemory> {
        let map_words = len.div_ceil(GRAIN_BYTES).div_ceil(64) as usize;
        let base = map_anonymous(len as usize)?;
        let map =
            map_anonymous(map_words * 8).inspect_err(|_| unmap_anonymous(base, len as usize))?;
        Ok(SparseMemory {
            base,
            len: len.into(),
            room: len,
            map: map.cast(),
            map_words,
        })
    }

    /// Like [`SparseMemory::new`], with address space to grow to `room` bytes if the system allows it. Unused address
    /// space costs nothing.
    ///
    /// # Errors
    /// See [`SparseMemory::new`].
    pub fn with_room(len: u64, room: u64) -> io::Result<SparseMemory> {
        match SparseMemory::new(room.max(len)) {
            Ok(memory) => {
                memory.len.store(len, Ordering::Relaxed);
                Ok(memory)
            }
            Err(_) => SparseMemory::new(len),
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// The size up to which the memory can grow.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Whether its size is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the size: growing adds zeros, and shrinking discards the data beyond the new end.
    ///
    /// # Errors
    /// `len` exceeds the room.
    pub fn resize(&self, len: u64) -> io::Result<()> {
        if len > self.room {
            let most = brunt_core::units::format_size(self.room);
            return Err(io::Error::other(format!(
                "this memory cannot grow beyond {most}"
            )));
        }
        let before = self.len.swap(len, Ordering::Relaxed);
        if len < before {
            self.unmap(len, before - len);
        }
        Ok(())
    }

    /// Copies `out.len()` bytes starting at `offset` into `out`.
    ///
    /// # Panics
    /// Panics if the range is out of bounds: the caller must check it.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.ptr(offset, out.len() as u64);
        // SAFETY: `ptr` checked the range; `out` is exclusively ours and does not overlap the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies `data` to `offset`.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let to = self.ptr(offset, data.len() as u64);
        // SAFETY: `ptr` checked the range; `data` is a Rust slice and therefore not part of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
        self.mark(offset, data.len() as u64);
    }

    /// Writes zeros that count as written data.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    pub fn write_zeroes(&self, offset: u64, len: u64) {
        self.clear(offset, len);
        self.mark(offset, len);
    }

    /// Deallocates a range: it reads as zeros and takes no memory. Grains that are only partly inside stay allocated.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    pub fn unmap(&self, offset: u64, len: u64) {
        self.clear(offset, len);
        let first = offset.div_ceil(GRAIN_BYTES);
        let end = (offset + len) / GRAIN_BYTES;
        self.for_words(first, end, |word, mask| {
            if word.load(Ordering::Relaxed) & mask != 0 {
                word.fetch_and(!mask, Ordering::Relaxed);
            }
        });
    }

    /// The state at `offset`, and the minimum number of bytes from there that share it: a run is followed for at most
    /// 32 GiB.
    pub fn allocation(&self, offset: u64) -> (Allocation, u64) {
        let first = offset / GRAIN_BYTES;
        let grains = (self.len() / GRAIN_BYTES).min(first + RUN_BYTES_MAX / GRAIN_BYTES);
        let bit = |grain: u64| {
            self.word((grain / 64) as usize).load(Ordering::Relaxed) >> (grain % 64) & 1
        };
        let state = bit(first);
        let uniform = if state == 1 { u64::MAX } else { 0 };
        let mut end = first + 1;
        while end < grains {
            // Compare whole words where all bits are equal.
            if end.is_multiple_of(64)
                && end + 64 <= grains
                && self.word((end / 64) as usize).load(Ordering::Relaxed) == uniform
            {
                end += 64;
            } else if bit(end) == state {
                end += 1;
            } else {
                break;
            }
        }
        let state = if state == 1 {
            Allocation::Mapped
        } else {
            Allocation::Deallocated
        };
        (
            state,
            (end * GRAIN_BYTES).min(self.len()).saturating_sub(offset),
        )
    }

    /// Marks a range as written after the kernel has received into it from a socket.
    pub fn mark(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.for_words(
            offset / GRAIN_BYTES,
            (offset + len).div_ceil(GRAIN_BYTES),
            |word, mask| {
                if word.load(Ordering::Relaxed) & mask != mask {
                    word.fetch_or(mask, Ordering::Relaxed);
                }
            },
        );
    }

    /// The address at which the kernel may read or write `len` bytes for a socket.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    pub(crate) fn ptr(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(
            // Checked against the room, because the length may shrink while a request is outstanding.
            offset.checked_add(len).is_some_and(|end| end <= self.room),
            "{len} bytes at {offset} exceed the size of {} bytes",
            self.room
        );
        // SAFETY: the offset is inside the mapping, or one past its end for an empty range.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    fn clear(&self, offset: u64, len: u64) {
        let start = self.ptr(offset, len);
        let first_page = offset.next_multiple_of(PAGE_BYTES);
        let end_page = (offset + len) / PAGE_BYTES * PAGE_BYTES;
        // Below this size, writing zeros is cheaper than returning pages and faulting them in again.
        const RELEASE_BYTES_MIN: u64 = 64 << 10;
        if end_page <= first_page || end_page - first_page < RELEASE_BYTES_MIN {
            if self.mapped_anywhere(offset, len) {
                // SAFETY: `ptr` checked the range.
                unsafe { std::ptr::write_bytes(start, 0, len as usize) };
            }
            return;
        }
        // SAFETY: head, middle and tail are parts of the range that `ptr` checked; the middle consists of whole pages
        // of a private anonymous mapping, which read as zeros after MADV_DONTNEED.
        unsafe {
            std::ptr::write_bytes(start, 0, (first_page - offset) as usize);
            let pages = self.base.as_ptr().add(first_page as usize);
            libc::madvise(
                pages.cast(),
                (end_page - first_page) as usize,
                libc::MADV_DONTNEED,
            );
            std::ptr::write_bytes(
                self.base.as_ptr().add(end_page as usize),
                0,
                (offset + len - end_page) as usize,
            );
        }
    }

    fn mapped_anywhere(&self, offset: u64, len: u64) -> bool {
        let mut any = false;
        self.for_words(
            offset / GRAIN_BYTES,
            (offset + len).div_ceil(GRAIN_BYTES),
            |word, mask| {
                any |= word.load(Ordering::Relaxed) & mask != 0;
            },
        );
        any
    }

    /// Calls `f` with each word of the map that covers grains `first..end`, and the mask of their bits in that word.
    fn for_words(&self, first: u64, end: u64, mut f: impl FnMut(&AtomicU64, u64)) {
        let mut grain = first;
        while grain < end {
            let count = (64 - grain % 64).min(end - grain);
            let ones = if count == 64 {
                u64::MAX
            } else {
                (1 << count) - 1
            };
            f(self.word((grain / 64) as usize), ones << (grain % 64));
            grain += count;
        }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.map_words);
        // SAFETY: inside the map, which is zeroed, page-aligned, and accessed only atomically.
        unsafe { &*self.map.as_ptr().add(index) }
    }
}

impl Drop for SparseMemory {
    fn drop(&mut self) {
        unmap_anonymous(self.base, self.room as usize);
        unmap_anonymous(self.map.cast(), self.map_words * 8);
    }
}

impl std::fmt::Debug for SparseMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SparseMemory({} bytes)", self.len())
    }
}

fn map_anonymous(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new private mapping at an address chosen by the kernel doesn't affect existing memory.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len.max(1),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(address.cast()).expect("mmap never returns the zero page"))
}

fn unmap_anonymous(base: NonNull<u8>, len: usize) {
    // SAFETY: exactly the mapping from `map_anonymous`, and its last owner is being dropped.
    unsafe { libc::munmap(base.as_ptr().cast(), len.max(1)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A LUN far larger than the machine's memory costs nothing until it is written.
    #[test]
    fn an_unwritten_lun_takes_no_memory() {
        let memory = SparseMemory::new(16 << 40).unwrap();
        memory.write((16 << 40) - 4096, &[7; 4096]);
        let mut out = [1; 8192];
        memory.read((16 << 40) - 8192, &mut out);
        assert!(out[..4096].iter().all(|&b| b == 0) && out[4096..].iter().all(|&b| b == 7));
        assert_eq!(
            memory.allocation(0),
            (Allocation::Deallocated, RUN_BYTES_MAX)
        );
        assert_eq!(
            memory.allocation((16 << 40) - 8192),
            (Allocation::Deallocated, 4096)
        );
    }

    /// Truncated data reads as zeros after growing again, and nothing grows beyond the reserved room.
    #[test]
    fn truncated_data_reads_as_zeros_after_growing() {
        let memory = SparseMemory::with_room(1 << 20, 4 << 20).unwrap();
        memory.write((1 << 20) - 512, &[7; 512]);
        memory.resize(64 << 10).unwrap();
        assert_eq!(memory.allocation(0), (Allocation::Deallocated, 64 << 10));
        memory.resize(4 << 20).unwrap();
        let mut out = [1; 512];
        memory.read((1 << 20) - 512, &mut out);
        assert_eq!(out, [0; 512]);
        assert_eq!(memory.allocation(0), (Allocation::Deallocated, 4 << 20));
        assert!(memory.resize((4 << 20) + 1).is_err());
        assert_eq!(memory.len(), 4 << 20);
    }

    /// Allocation follows writes and unmaps block by block.
    #[test]
    fn allocation_follows_writes_and_unmaps() {
        let memory = SparseMemory::new(1 << 20).unwrap();
        let check =
            |offset, state, run| assert_eq!(memory.allocation(offset), (state, run), "at {offset}");
        check(0, Allocation::Deallocated, 1 << 20);
        memory.write(1024, &[1; 512]);
        check(0, Allocation::Deallocated, 1024);
        check(1024, Allocation::Mapped, 512);
        memory.write(0, &[1; 256 << 10]);
        check(0, Allocation::Mapped, 256 << 10);
        memory.unmap(512, 128 << 10);
        check(512, Allocation::Deallocated, 128 << 10);
        let mut out = vec![9; 256 << 10];
        memory.read(0, &mut out);
        assert!(out[..512].iter().all(|&b| b == 1));
        assert!(out[512..512 + (128 << 10)].iter().all(|&b| b == 0));
        assert!(out[512 + (128 << 10)..].iter().all(|&b| b == 1));
        memory.write_zeroes(512, 512);
        check(512, Allocation::Mapped, 512);
    }
}
