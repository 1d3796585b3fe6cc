//! Counts of the frames written to an end of a link.

use brunt_core::{Histogram, Nanos};

/// The outcome of writing frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteCounts {
    /// Frames and packets that the host accepted.
    pub(super) frames: u64,
    pub(super) packets: u64,
    /// Packets that the host refused.
    pub(super) refused: u64,
}

impl WriteCounts {
    /// Counts a frame of `packets` packets as written or refused.
    pub(super) fn note(&mut self, packets: u32, is_refused: bool) {
        if is_refused {
            self.refused += u64::from(packets);
            return;
        }
        self.frames += 1;
        self.packets += u64::from(packets);
    }

    /// Like [`WriteCounts::note`], for an interface, where the time that the bridge added to the frame is known.
    pub(super) fn note_added(
        &mut self,
        packets: u32,
        is_refused: bool,
        took: Nanos,
        added: &mut Histogram,
    ) {
        self.note(packets, is_refused);
        // A refused frame was not sent.
        if !is_refused {
            added.record(took);
        }
    }
}
