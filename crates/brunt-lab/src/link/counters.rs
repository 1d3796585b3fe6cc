//! What a direction of a link did: counted by its thread, read by anybody.
//!
//! The rule: what was meant (loss, a full queue) and what was not (no buffer, a frame that a host's
//! device had no place for) stand apart. The second makes an experiment wrong.

use std::sync::atomic::{AtomicU64, Ordering};

use brunt_result::link::LinkCounts;

macro_rules! counters {
    ($($name:ident,)*) => {
        /// One for each count of [`LinkCounts`].
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
    tcp_untracked,
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
    ordered_nanos,
    queued_max,
    straight_frames,
    straight_bytes,
}

/// One thread writes, so a plain addition is enough: no locked instruction.
#[inline]
pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

#[inline]
pub(super) fn raise(counter: &AtomicU64, to: u64) {
    if to > counter.load(Ordering::Relaxed) {
        counter.store(to, Ordering::Relaxed);
    }
}
