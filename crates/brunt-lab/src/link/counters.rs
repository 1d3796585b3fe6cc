//! Packet counters of one direction of a link, written by its thread and readable by any thread.
//!
//! The rule: intended drops (loss, a full queue) and unintended ones (no buffer, no room in a host's device)
//! are counted separately. Unintended drops invalidate a run.

use std::sync::atomic::{AtomicU64, Ordering};

use brunt_result::link::LinkCounts;

macro_rules! counters {
    ($($name:ident,)*) => {
        /// One counter for each field of [`LinkCounts`].
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn read(&self) -> LinkCounts {
                LinkCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    packets,
    bytes,
    delivered,
    lost,
    parted,
    ecn_marked,
    ecn_not_capable,
    tcp_resets,
    fins_held,
    fins_taken,
    fins_released,
    tcp_untracked,
    resets_full_nanos,
    fins_untracked,
    fins_full_nanos,
    queue_full,
    corrupted,
    duplicated,
    held,
    frames_in,
    frames_out,
    unmeant_no_buffer,
    unmeant_refused,
    unmeant_device,
    late_nanos,
    late_nanos_max,
    line_sent_nanos,
    line_lost_nanos,
    crowded_nanos,
    crowded_sent_nanos,
    ordered_nanos,
    queued_max,
    straight_frames,
    straight_bytes,
}

/// Only one thread writes, so a plain addition is enough; a locked instruction isn't needed.
#[inline]
pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

#[inline]
pub(super) fn put(counter: &AtomicU64, value: u64) {
    counter.store(value, Ordering::Relaxed);
}

#[inline]
pub(super) fn raise(counter: &AtomicU64, to: u64) {
    if to > counter.load(Ordering::Relaxed) {
        counter.store(to, Ordering::Relaxed);
    }
}
