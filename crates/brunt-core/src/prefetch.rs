//! Prefetches memory. A load that misses the cache stalls everything behind it once the processor's
//! out-of-order window is full; a prefetch does not.

/// Prefetches the cache line in which `place` begins, without waiting. Does nothing on
/// architectures for which std has no prefetch.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses no memory, so any address is valid; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
