//! Memory for data in flight: page-aligned, reused, and registered with the ring where useful. A [`Buf`] has one owner
//! at a time: the caller, then the device (or the kernel) from `submit` to the completion, then the caller again. This
//! module owns the unsafe memory behind it.
//!
//! A pool hands out power-of-two size classes. The first [`BufPool::arena_bytes`] come from a single mapping that a
//! [`crate::Ring`] registers with the kernel, which avoids pinning pages for each request. Beyond that, buffers come
//! from the heap and work the same, but are unregistered.

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

/// An owned, page-aligned, always initialised buffer. Dropping it returns it to its pool. It stays on one thread.
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
    /// Part of the arena, which is registered as buffer 0 of the pool's ring.
    in_arena: bool,
}

impl Buf {
    /// A buffer of length 0.
    pub const fn empty() -> Buf {
        Buf {
            memory: Memory {
                ptr: NonNull::dangling(),
                capacity: 0,
                in_arena: false,
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
    /// If `len` exceeds the capacity.
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
    // Inlined because requests leave an empty buffer behind whenever theirs is moved: dropping that must cost nothing.
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
    arena_used: Cell<usize>,
    free: RefCell<[Vec<Memory>; CLASSES]>,
    kept_bytes: Cell<usize>,
    /// Heap memory of the pool, in use or kept for reuse.
    heap_bytes: Cell<usize>,
}

impl BufPool {
    /// A pool whose first `arena_bytes` (rounded up to pages) come from a single mapping.
    pub fn new(arena_bytes: usize) -> BufPool {
        let arena = (arena_bytes > 0).then(|| {
            let mut memory = heap_memory(arena_bytes.next_multiple_of(BUF_ALIGN));
            memory.in_arena = true;
            memory
        });
        BufPool {
            inner: Rc::new(PoolInner {
                arena,
                arena_used: Cell::new(0),
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
                if !memory.in_arena {
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
        match inner.free.borrow()[class].is_empty() && !inner.has_in_arena(bytes) {
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
                for memory in free.extract_if(.., |memory| !memory.in_arena) {
                    free_heap_memory(memory);
                }
            }
            inner.heap_bytes.set(inner.heap_bytes.get() - bytes);
        }
        bytes
    }

    /// Size of the registered part, in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.inner.arena.map_or(0, |arena| arena.capacity)
    }

    /// Whether a buffer is part of this pool's arena, as opposed to another ring's.
    #[inline]
    pub(crate) fn is_in_arena(&self, buf: &Buf) -> bool {
        buf.memory.in_arena
            && buf
                .pool
                .as_ref()
                .is_some_and(|pool| Rc::ptr_eq(pool, &self.inner))
    }

    /// The arena, for the ring to register.
    pub(crate) fn arena(&self) -> Option<(*mut u8, usize)> {
        self.inner
            .arena
            .map(|arena| (arena.ptr.as_ptr(), arena.capacity))
    }
}

impl PoolInner {
    /// Carves the next unused piece from the arena. A piece stays in its size class permanently.
    fn carve(&self, bytes: usize) -> Option<Memory> {
        let arena = self.arena?;
        let at = self.arena_used.get();
        if !self.has_in_arena(bytes) {
            return None;
        }
        self.arena_used.set(at + bytes);
        // SAFETY: `at + bytes <= capacity`, so the pointer stays inside the arena's allocation.
        let ptr = unsafe { arena.ptr.add(at) };
        Some(Memory {
            ptr,
            capacity: bytes,
            in_arena: true,
        })
    }

    fn has_in_arena(&self, bytes: usize) -> bool {
        self.arena
            .is_some_and(|arena| arena.capacity - self.arena_used.get() >= bytes)
    }

    fn allocate(&self, bytes: usize) -> Memory {
        self.heap_bytes.set(self.heap_bytes.get() + bytes);
        heap_memory(bytes)
    }

    fn take_back(&self, memory: Memory) {
        if !memory.in_arena {
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
        // Every Buf keeps its pool alive, so all have been returned by now.
        for memory in self
            .free
            .get_mut()
            .iter()
            .flatten()
            .filter(|memory| !memory.in_arena)
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
    // SAFETY: the layout has a non-zero size.
    let ptr = unsafe { alloc_zeroed(layout(capacity)) };
    let ptr = NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout(capacity)));
    Memory {
        ptr,
        capacity,
        in_arena: false,
    }
}

fn free_heap_memory(memory: Memory) {
    if memory.capacity > 0 {
        // SAFETY: came from `heap_memory` with the same capacity (arena pieces never get here, and the arena itself
        // does once), and has no owner any more.
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
        assert!(pool.is_in_arena(&first) && !pool.is_in_arena(&second));
        assert!(!BufPool::new(8192).is_in_arena(&first));
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

    #[test]
    fn an_empty_buffer_is_valid() {
        assert!(Buf::empty().is_empty());
        assert!(Buf::zeroed(0).is_empty());
    }
}
