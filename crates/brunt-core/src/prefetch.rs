//! Asks for memory before it is needed. A load whose line is far away holds up everything behind it once the
//! processor's window is full; a request for the line does not.

/// Asks for the cache line in which `place` begins, and waits for nothing. Does nothing on processors whose
/// request std does not offer.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing, so that any address will do; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
