//! Memory for data in flight: page-aligned, reused, and registered with the ring where useful. A [`Buf`] has one
//! owner at a time: the caller, then the device (or the kernel) from `submit` to the completion, then the caller
//! again. All unsafe code for this memory is in this module.
//!
//! A pool hands out power-of-two size classes. The first [`BufPool::arena_bytes`] come from a single mapping that a
//! [`crate::Ring`] registers with the kernel, which avoids pinning pages for each request. Beyond that, buffers come
//! from the heap and work the same, but are unregistered.
//!
//! The arena of a server's connection grows with use: it is divided into regions, each registered when a file call
//! first uses one of its buffers, and `BufPool::release` returns the memory of free buffers to the kernel.
//!
//! The rule: memory is returned only while no region that contains it is registered. Otherwise the kernel would keep
//! writing to the old, pinned pages, while the buffer would consist of new ones.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Alignment of every buffer: sufficient for O_DIRECT on any device.
pub const BUF_ALIGN: usize = 4096;
/// Smallest size class, in bytes.
const CLASS_BYTES_MIN: usize = 4096;
/// Number of size classes: 4 KiB << 0 to 4 KiB << 14 (64 MiB). Larger buffers are not kept for reuse.
const CLASSES: usize = 15;
/// Maximum heap memory that one pool keeps for reuse, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Size of the smallest region of an arena that grows; the next one has the same size, and each further one doubles.
const REGION_BYTES_MIN: usize = 32 << 10;
/// Buffers of at least this size are mappings: their pages take no memory until they are used, and freeing them
/// returns it at once. The C library's allocator would clear them on allocation, because of their alignment.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// An owned, page-aligned, always initialised buffer. Dropping the buffer returns it to its pool. A buffer stays on
/// one thread.
pub struct Buf {
    memory: Memory,
    len: usize,
    pool: Option<Rc<PoolInner>>,
}

/// The memory of a buffer. Copied into the pool's free list and back.
#[derive(Clone, Copy)]
struct Memory {
    ptr: NonNull<u8>,
    capacity: usize,
    /// The arena region that contains the memory: the index of a registered buffer of the pool's ring.
    region: Option<u16>,
}

impl Buf {
    /// A buffer of length 0.
    pub const fn empty() -> Buf {
        Buf {
            memory: Memory {
                ptr: NonNull::dangling(),
                capacity: 0,
                region: None,
            },
            len: 0,
            pool: None,
        }
    }

    /// A buffer of `len` zeros from the heap, outside any pool.
    pub fn zeroed(len: usize) -> Buf {
        Buf {
            memory: heap_memory(len),
            len,
            pool: None,
        }
    }

    /// The maximum length for [`Buf::set_len`], in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.capacity
    }

    /// Sets the length to `len` bytes; newly exposed bytes contain old data or zeros.
    ///
    /// # Panics
    /// Panics if `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.memory.capacity,
            "{len} bytes do not fit in {}",
            self.memory.capacity
        );
        self.len = len;
    }

    fn give_back(&mut self) {
        match self.pool.take() {
            Some(pool) => pool.take_back(self.memory),
            None => free_heap_memory(self.memory),
        }
    }

    /// Returns the pages behind the buffer to the kernel; its bytes are zeros afterwards. For buffers outside a pool.
    ///
    /// # Panics
    /// Panics if the buffer is part of a pool, whose memory may be registered.
    pub(crate) fn clear_pages(&mut self) {
        assert!(self.pool.is_none(), "pooled memory may be registered");
        return_pages(self.memory);
    }

    /// The buffer's address, for the kernel, which writes here between submission and completion.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.ptr.as_ptr()
    }
}

impl Default for Buf {
    fn default() -> Buf {
        Buf::empty()
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `capacity >= len` initialised bytes (zeroed at allocation, only
        // ever overwritten) that this Buf alone owns; for an empty Buf it is dangling with len 0.
        unsafe { std::slice::from_raw_parts(self.memory.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Buf {
    // Inlined because a request whose buffer is moved out keeps an empty one, which must cost nothing to drop.
    #[inline]
    fn drop(&mut self) {
        if self.memory.capacity > 0 {
            self.give_back();
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} of {} bytes)", self.len, self.memory.capacity)
    }
}

/// A thread's source of buffers. Clones share the same pool.
#[derive(Clone)]
pub struct BufPool {
    inner: Rc<PoolInner>,
}

struct PoolInner {
    arena: Option<Memory>,
    /// The parts of the arena, in order; a single one unless the arena grows with use.
    regions: Vec<Region>,
    free: RefCell<[Vec<Memory>; CLASSES]>,
    kept_bytes: Cell<usize>,
    /// Heap memory of the pool, in use or kept for reuse.
    heap_bytes: Cell<usize>,
}

/// A part of the arena, registered as a whole.
struct Region {
    /// Offset in the arena, in bytes.
    start: usize,
    len: usize,
    /// Bytes of the region that have been divided into buffers so far.
    carved: Cell<usize>,
    /// Number of buffers in use.
    buffers: Cell<u32>,
}

impl BufPool {
    /// A pool whose first `arena_bytes` (rounded up to pages) come from a single mapping, with one region.
    pub fn new(arena_bytes: usize) -> BufPool {
        let bytes = arena_bytes.next_multiple_of(BUF_ALIGN);
        BufPool::with_regions(bytes, if bytes > 0 { vec![bytes] } else { Vec::new() })
    }

    /// A pool whose arena of `arena_bytes` (rounded up to pages) has regions of increasing size, so that using few
    /// buffers uses little memory.
    pub fn growing(arena_bytes: usize) -> BufPool {
        let bytes = arena_bytes.next_multiple_of(BUF_ALIGN);
        let mut lens = Vec::new();
        let mut start = 0;
        while start < bytes {
            let len = start.max(REGION_BYTES_MIN).min(bytes - start);
            lens.push(len);
            start += len;
        }
        BufPool::with_regions(bytes, lens)
    }

    fn with_regions(arena_bytes: usize, lens: Vec<usize>) -> BufPool {
        let mut start = 0;
        let regions = lens.into_iter().map(|len| {
            start += len;
            Region {
                start: start - len,
                len,
                carved: Cell::new(0),
                buffers: Cell::new(0),
            }
        });
        BufPool {
            inner: Rc::new(PoolInner {
                regions: regions.collect(),
                arena: (arena_bytes > 0).then(|| heap_memory(arena_bytes)),
                free: RefCell::default(),
                kept_bytes: Cell::new(0),
                heap_bytes: Cell::new(0),
            }),
        }
    }

    /// Takes a buffer of `len` bytes with arbitrary old content. Allocates only if no buffer of its class is free.
    pub fn take(&self, len: usize) -> Buf {
        let Some(class) = class_of(len) else {
            return Buf::zeroed(len);
        };
        let inner = &self.inner;
        let memory = inner.free.borrow_mut()[class].pop();
        let memory = match memory {
            Some(memory) => {
                if memory.region.is_none() {
                    inner
                        .kept_bytes
                        .set(inner.kept_bytes.get() - memory.capacity);
                }
                memory
            }
            None => inner
                .carve(class_bytes(class))
                .unwrap_or_else(|| inner.allocate(class_bytes(class))),
        };
        if let Some(region) = memory.region {
            let buffers = &inner.regions[usize::from(region)].buffers;
            buffers.set(buffers.get() + 1);
        }
        Buf {
            memory,
            len,
            pool: Some(Rc::clone(inner)),
        }
    }

    /// Heap memory that [`BufPool::take`] would allocate for a buffer of `len` bytes; 0 if a free one exists.
    pub fn bytes_to_take(&self, len: usize) -> usize {
        let Some(class) = class_of(len) else {
            return len;
        };
        let inner = &self.inner;
        let bytes = class_bytes(class);
        match inner.free.borrow()[class].is_empty() && inner.room_for(bytes).is_none() {
            true => bytes,
            false => 0,
        }
    }

    /// Heap memory of this pool's buffers, in use or kept for reuse, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.inner.heap_bytes.get()
    }

    /// Frees the heap memory kept for reuse; returns the number of bytes freed.
    pub fn free_kept(&self) -> usize {
        let inner = &self.inner;
        let bytes = inner.kept_bytes.replace(0);
        if bytes > 0 {
            for free in inner.free.borrow_mut().iter_mut() {
                for memory in free.extract_if(.., |memory| memory.region.is_none()) {
                    free_heap_memory(memory);
                }
            }
            inner.heap_bytes.set(inner.heap_bytes.get() - bytes);
        }
        bytes
    }

    /// Returns the memory of free buffers to the kernel, except for regions with buffers in use. Calls `unregister`
    /// for each of the other regions first; a region for which it returns `false` keeps its memory. Returns whether
    /// memory went back to the C library's allocator.
    pub(crate) fn release(&self, mut unregister: impl FnMut(u16) -> bool) -> bool {
        let inner = &self.inner;
        for (index, region) in inner.regions.iter().enumerate() {
            // Nothing in the kernel refers to a region without buffers in use.
            let is_free = region.buffers.get() == 0 && region.carved.get() > 0;
            if is_free && unregister(index as u16) {
                // Afterwards, the region can be divided into buffers of other sizes.
                let others = |memory: &Memory| memory.region != Some(index as u16);
                let mut free = inner.free.borrow_mut();
                free.iter_mut().for_each(|class| class.retain(others));
                region.carved.set(0);
                return_pages(inner.memory_of(index as u16));
            }
        }
        self.free_kept() > 0
    }

    /// Size of the arena, in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.inner.arena.map_or(0, |arena| arena.capacity)
    }

    /// The region that a buffer is part of, if it is in this pool's arena, as opposed to another ring's.
    #[inline]
    pub(crate) fn region_of(&self, buf: &Buf) -> Option<u16> {
        let region = buf.memory.region?;
        let pool = buf.pool.as_ref()?;
        Rc::ptr_eq(pool, &self.inner).then_some(region)
    }

    /// Number of regions of the arena.
    pub(crate) fn regions(&self) -> u16 {
        self.inner.regions.len() as u16
    }

    /// Address and length of a region, for the ring to register.
    pub(crate) fn region(&self, index: u16) -> (*mut u8, usize) {
        let memory = self.inner.memory_of(index);
        (memory.ptr.as_ptr(), memory.capacity)
    }
}

impl PoolInner {
    /// Carves an unused piece from the first region with room. A piece stays in its size class until the region is
    /// released.
    fn carve(&self, bytes: usize) -> Option<Memory> {
        let index = self.room_for(bytes)?;
        let whole = self.memory_of(index);
        let carved = &self.regions[usize::from(index)].carved;
        let at = carved.replace(carved.get() + bytes);
        Some(Memory {
            // SAFETY: `at + bytes` is at most the region's length, so the pointer stays inside the arena.
            ptr: unsafe { whole.ptr.add(at) },
            capacity: bytes,
            region: Some(index),
        })
    }

    /// The first region with room for another piece.
    fn room_for(&self, bytes: usize) -> Option<u16> {
        let has_room = |region: &Region| region.len - region.carved.get() >= bytes;
        self.regions.iter().position(has_room).map(|at| at as u16)
    }

    /// The memory of a region.
    fn memory_of(&self, index: u16) -> Memory {
        let arena = self.arena.expect("only an arena has regions");
        let region = &self.regions[usize::from(index)];
        Memory {
            // SAFETY: regions divide the arena.
            ptr: unsafe { arena.ptr.add(region.start) },
            capacity: region.len,
            region: Some(index),
        }
    }

    fn allocate(&self, bytes: usize) -> Memory {
        self.heap_bytes.set(self.heap_bytes.get() + bytes);
        heap_memory(bytes)
    }

    fn take_back(&self, memory: Memory) {
        if let Some(region) = memory.region {
            let buffers = &self.regions[usize::from(region)].buffers;
            buffers.set(buffers.get() - 1);
        } else {
            if self.kept_bytes.get() + memory.capacity > KEPT_BYTES_MAX {
                self.heap_bytes.set(self.heap_bytes.get() - memory.capacity);
                free_heap_memory(memory);
                return;
            }
            self.kept_bytes.set(self.kept_bytes.get() + memory.capacity);
        }
        let class = class_of(memory.capacity).expect("pooled buffers have a class");
        // Last in, first out: the next request gets memory that is still in the cache.
        self.free.borrow_mut()[class].push(memory);
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        // Every Buf keeps its pool alive, so all of them have already been returned.
        for memory in self
            .free
            .get_mut()
            .iter()
            .flatten()
            .filter(|memory| memory.region.is_none())
        {
            free_heap_memory(*memory);
        }
        if let Some(arena) = self.arena {
            free_heap_memory(arena);
        }
    }
}

fn class_of(len: usize) -> Option<usize> {
    let class = len
        .max(CLASS_BYTES_MIN)
        .next_power_of_two()
        .trailing_zeros()
        - CLASS_BYTES_MIN.trailing_zeros();
    ((class as usize) < CLASSES).then_some(class as usize)
}

fn class_bytes(class: usize) -> usize {
    CLASS_BYTES_MIN << class
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, BUF_ALIGN).expect("buffer sizes are far below isize::MAX")
}

fn heap_memory(capacity: usize) -> Memory {
    if capacity == 0 {
        return Buf::empty().memory;
    }
    let ptr = if capacity >= MAPPED_BYTES_MIN {
        map(capacity)
    } else {
        // SAFETY: the layout has a non-zero size.
        unsafe { alloc_zeroed(layout(capacity)) }
    };
    let ptr = NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout(capacity)));
    Memory {
        ptr,
        capacity,
        region: None,
    }
}

/// Maps zeros; null if there is not enough memory.
fn map(bytes: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        std::ptr::null_mut()
    } else {
        at.cast()
    }
}

/// Returns whole pages to the kernel; they read as zeros from then on.
fn return_pages(memory: Memory) {
    let bytes = memory.capacity / BUF_ALIGN * BUF_ALIGN;
    if bytes > 0 {
        // SAFETY: private anonymous memory, aligned to pages, that the caller owns. Its content becomes zeros, which are
        // valid bytes. An error leaves the pages as they are.
        unsafe { libc::madvise(memory.ptr.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
    }
}

fn free_heap_memory(memory: Memory) {
    // `memory` came from `heap_memory` with the same capacity and has no owner any more. Pieces of the arena never
    // get here; the arena itself does so once.
    if memory.capacity >= MAPPED_BYTES_MIN {
        // SAFETY: a mapping of this length, see above.
        unsafe { libc::munmap(memory.ptr.as_ptr().cast(), memory.capacity) };
    } else if memory.capacity > 0 {
        // SAFETY: allocated with this layout, see above.
        unsafe { dealloc(memory.ptr.as_ptr(), layout(memory.capacity)) }
    }
}

/// Returns freed buffer memory to the kernel. Otherwise the C library keeps it once buffers of that size have been
/// freed before.
pub fn give_back() {
    // SAFETY: no pointers are involved; any argument is valid.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers are aligned and initialised, and the last one returned is reused first.
    #[test]
    fn reuse_is_last_in_first_out() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.take(5000);
        assert_eq!(buf.len(), 5000);
        assert_eq!(buf.capacity(), 8192);
        assert_eq!(buf.as_ptr() as usize % BUF_ALIGN, 0);
        assert!(buf.iter().all(|&byte| byte == 0));
        buf[0] = 7;
        let address = buf.as_ptr();
        drop(buf);
        assert_eq!(pool.take(8192).as_ptr(), address);
    }

    /// Buffers beyond the arena and beyond the largest class still work.
    #[test]
    fn buffers_beyond_the_arena_work() {
        let pool = BufPool::new(8192);
        let first = pool.take(8192);
        let second = pool.take(8192);
        assert_eq!(
            (pool.region_of(&first), pool.region_of(&second)),
            (Some(0), None)
        );
        assert_eq!(BufPool::new(8192).region_of(&first), None);
        let large = pool.take(100 << 20);
        assert_eq!(large.len(), 100 << 20);
        drop(pool);
        assert_eq!(second[8191], 0);
    }

    /// Heap memory is counted while it is in use or kept, and the cost of a buffer is known before it is taken.
    #[test]
    fn heap_memory_is_counted_until_it_is_freed() {
        let pool = BufPool::new(8192);
        assert_eq!(pool.bytes_to_take(8192), 0, "from the arena");
        let arena = pool.take(8192);
        assert_eq!(pool.bytes_to_take(5000), 8192);
        let buf = pool.take(5000);
        drop(arena);
        assert_eq!((pool.heap_bytes(), pool.bytes_to_take(5000)), (8192, 0));
        drop(buf);
        assert_eq!((pool.heap_bytes(), pool.bytes_to_take(9000)), (8192, 16384));
        assert_eq!((pool.free_kept(), pool.heap_bytes()), (8192, 0));
        assert_eq!((pool.free_kept(), pool.bytes_to_take(8192)), (0, 0));
    }

    /// Small buffers use only the first regions of an arena that grows, and large ones fit in the last.
    #[test]
    fn an_arena_that_grows_is_used_from_its_smallest_region() {
        let pool = BufPool::growing(4 << 20);
        let lens: Vec<usize> = (0..pool.regions()).map(|at| pool.region(at).1).collect();
        let kib = |kib: usize| kib << 10;
        let doubling = [32, 32, 64, 128, 256, 512, 1024, 2048].map(kib);
        assert_eq!(lens, doubling);
        let small: Vec<Buf> = (0..9).map(|_| pool.take(4096)).collect();
        let regions: Vec<_> = small.iter().map(|buf| pool.region_of(buf)).collect();
        assert_eq!(regions[..8], [Some(0); 8]);
        assert_eq!(regions[8], Some(1));
        let large = pool.take(1 << 20);
        assert_eq!(pool.region_of(&large), Some(6));
        assert_eq!((pool.heap_bytes(), pool.arena_bytes()), (0, 4 << 20));
    }

    /// Releasing first requests the registration of free regions, then clears them, and preserves buffers in use.
    #[test]
    fn releasing_spares_buffers_in_use_and_registered_regions() {
        let pool = BufPool::growing(4 << 20);
        let mut used = pool.take(4096);
        used.fill(1);
        for bytes in [64 << 10, 256 << 10] {
            pool.take(bytes).fill(2);
        }
        let mut asked = Vec::new();
        pool.release(|region| {
            asked.push(region);
            // The region of the larger buffer stays registered.
            region == 2
        });
        assert_eq!(asked, [2, 4]);
        assert!(used.iter().all(|&byte| byte == 1));
        // The released region can also hold buffers of other sizes, which are zeros.
        let smaller: Vec<Buf> = (0..2).map(|_| pool.take(32 << 10)).collect();
        let regions: Vec<_> = smaller.iter().map(|buf| pool.region_of(buf)).collect();
        assert_eq!(regions, [Some(1), Some(2)]);
        assert!(smaller[1].iter().all(|&byte| byte == 0));
        assert!(pool.take(256 << 10).iter().all(|&byte| byte == 2));
    }

    #[test]
    fn an_empty_buffer_is_valid() {
        assert!(Buf::empty().is_empty());
        assert!(Buf::zeroed(0).is_empty());
    }
}
