//! The request slots of a worker: each has a buffer and holds one request from its creation to its end,
//! including retries.
//!
//! The rule: a slot is in exactly one state: free, in flight, waiting for a retry, or parked because the queue depth
//! was reduced.

use brunt_core::Nanos;

use crate::block::generator::Planned;
use crate::content::Carried;

pub(super) struct Slot {
    pub(super) planned: Planned,
    pub(super) intended: Nanos,
    pub(super) sent: Nanos,
    pub(super) retry_at: Nanos,
    pub(super) attempts: u32,
    pub(super) in_flight: bool,
    pub(super) timed_out: bool,
    pub(super) recorded: bool,
    pub(super) carried: Carried,
}

/// All of a worker's slots.
pub(super) struct Slots {
    pub(super) all: Vec<Slot>,
    pub(super) free: Vec<u32>,
    pub(super) retrying: Vec<u32>,
    /// Unused because the current queue depth is smaller.
    parked: Vec<u32>,
    depth: usize,
}

impl Slots {
    /// Creates one slot per buffer.
    pub(super) fn new(buffers: impl Iterator<Item = Carried>) -> Slots {
        let slot = |carried| Slot {
            planned: Planned::NOTHING,
            intended: Nanos(0),
            sent: Nanos(0),
            retry_at: Nanos(0),
            attempts: 0,
            in_flight: false,
            timed_out: false,
            recorded: false,
            carried,
        };
        let all: Vec<Slot> = buffers.map(slot).collect();
        let depth = all.len();
        Slots {
            all,
            free: (0..depth as u32).rev().collect(),
            retrying: Vec::with_capacity(depth),
            parked: Vec::with_capacity(depth),
            depth,
        }
    }

    /// Returns the number of slots, including parked ones.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Sets the number of slots to use from now on.
    pub(super) fn set_depth(&mut self, depth: u32) {
        assert!(
            (1..=self.all.len()).contains(&(depth as usize)),
            "a depth of {depth}"
        );
        self.depth = depth as usize;
    }

    /// Parks free slots or reactivates parked ones until the requested number is in use; slots in flight are parked
    /// once they become free.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.all.len() - self.parked.len() != self.depth {
            self.park();
        }
    }

    #[cold]
    fn park(&mut self) {
        while self.all.len() - self.parked.len() < self.depth {
            self.free.push(
                self.parked
                    .pop()
                    .expect("fewer slots are in use than exist"),
            );
        }
        while self.all.len() - self.parked.len() > self.depth {
            let Some(index) = self.free.pop() else { return };
            self.parked.push(index);
        }
    }

    /// Returns true if a request overlaps an unfinished one and at least one of them changes data.
    pub(super) fn overlaps(&self, planned: &Planned) -> bool {
        self.all.iter().any(|slot| {
            let other = &slot.planned;
            let busy = slot.in_flight || slot.attempts > 0;
            let writes = planned.changes_data() || other.changes_data();
            busy && writes
                && planned.offset < other.offset + other.len
                && other.offset < planned.offset + planned.len
        })
    }

    /// Returns true if the request with this index is in a slot and has not ended.
    pub(super) fn hold(&self, index: u64) -> bool {
        self.all
            .iter()
            .any(|slot| slot.planned.index == index && (slot.in_flight || slot.attempts > 0))
    }

    /// Returns the time of the earliest pending retry, or `until` if that is earlier.
    #[inline]
    pub(super) fn next_attempt(&self, until: Nanos) -> Nanos {
        self.retrying.iter().fold(until, |until, index| {
            until.min(self.all[*index as usize].retry_at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduced_depth_parks_slots_as_they_become_free() {
        let mut slots = Slots::new((0..4).map(|_| Carried::default()));
        let used: Vec<u32> = (0..3).map(|_| slots.free.pop().unwrap()).collect();
        slots.set_depth(2);
        slots.settle();
        assert!(slots.free.is_empty());
        slots.free.push(used[0]);
        slots.settle();
        assert!(
            slots.free.is_empty(),
            "with two requests in flight, the reduced queue depth is reached"
        );
        slots.free.push(used[1]);
        slots.settle();
        assert_eq!(slots.free, [used[1]]);
        slots.set_depth(4);
        slots.settle();
        assert_eq!(slots.free.len(), 3);
    }
}
