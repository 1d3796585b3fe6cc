//! What a direction of a link did: counted by its thread, read by anybody.
//!
//! The rule: what was meant (loss, a full queue) and what was not (no buffer, a frame that a host's
//! device had no place for) stand apart. The second makes an experiment wrong.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts up to some moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// What came since `earlier`; the largest of a kind stay those since the start.
            pub fn since(&self, earlier: &Counts) -> Counts {
                Counts {
                    late_nanos_max: self.late_nanos_max,
                    queued_max: self.queued_max,
                    ..Counts { $($name: self.$name.saturating_sub(earlier.$name),)* }
                }
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Packets of wire size that came in.
    packets,
    /// Their bytes, Ethernet headers included.
    bytes,
    /// Packets of wire size that were handed over, copies included.
    delivered,
    /// Lost on purpose.
    lost,
    /// Dropped because the queue in front of the line was full.
    queue_full,
    /// Delivered with a flipped bit.
    corrupted,
    /// Delivered twice.
    duplicated,
    /// Held back for others to overtake.
    held,
    /// Frames that came in; fewer than packets where segments came in trains.
    frames_in,
    /// Frames that went out.
    frames_out,
    /// Not meant: the buffers of the direction were full.
    unmeant_no_buffer,
    /// Not meant: the receiving host's device refused the frame.
    unmeant_refused,
    /// Not meant: a host's device had no place for the frame, or its stack refused it.
    unmeant_device,
    /// Nanoseconds by which packets with a due time were handed over late, added up.
    late_nanos,
    /// The latest of them, in nanoseconds.
    late_nanos_max,
    /// Most frames under way at once.
    queued_max,
    /// Frames (packets, or trains of them) that went straight through the kernel, because nothing was to be
    /// done to them; none of the counts above knows of them.
    straight_frames,
    /// Their bytes.
    straight_bytes,
}

impl Counts {
    /// Packets that were lost though nobody asked for it.
    pub fn unmeant(&self) -> u64 {
        self.unmeant_no_buffer + self.unmeant_refused + self.unmeant_device
    }
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
