//! Tracks which data objects a disk has, and which of them tasks are creating or dropping. Shared by all threads and
//! connections of a process.
//!
//! Reads ask where an object's data is ([`SheepdogObjects::reader`]). Writes to an object that the disk lacks or has
//! from a snapshot need a claim ([`SheepdogObjects::writer`]): one task creates the object and records it in the inode.
//! All others wait until the claim is released, so that no task writes to an object that another has yet to create.
//!
//! The one rule: an entry here changes only after the inode object has the new entry ([`SheepdogObjects::settle`]).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use brunt_block::Waker;
use brunt_block::device::Allocation;
use brunt_wire::sheepdog::SheepdogInode;

/// Tracks the objects of one disk; see the module's docs.
#[derive(Debug)]
pub struct SheepdogObjects {
    state: Mutex<State>,
    /// Number of claims released so far.
    released: AtomicU64,
    /// Wakers to call when a claim is released.
    listeners: Mutex<Vec<(u64, Waker)>>,
    listeners_count: AtomicU64,
}

#[derive(Debug)]
struct State {
    inode: SheepdogInode,
    /// The VDI that wrote each object; 0 for an object that was never written, which reads as zeros.
    map: Vec<u32>,
    claimed: BTreeSet<u32>,
    /// Former VDIs of the disk, which are snapshots now.
    former: Vec<u32>,
}

/// How to write to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SheepdogWriter {
    /// The disk has the object.
    InPlace,
    /// The object was claimed and must be created, as a copy of VDI `from`'s object unless `from` is 0.
    Create {
        /// The VDI whose object to copy.
        from: u32,
    },
    /// Another task has claimed it.
    Wait,
}

/// How to drop an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SheepdogDrop {
    /// The object does not exist.
    Hole,
    /// The object was claimed; it belongs to this VDI, which is the disk's or a snapshot's.
    Of(u32),
    /// Another task has claimed it.
    Wait,
}

impl SheepdogObjects {
    /// The objects listed in an inode.
    ///
    /// # Panics
    /// Panics if the map's length differs from the inode's.
    pub fn new(inode: SheepdogInode, map: Vec<u32>) -> SheepdogObjects {
        assert_eq!(
            map.len(),
            inode.objects_count() as usize,
            "an entry per object"
        );
        let state = State {
            inode,
            map,
            claimed: BTreeSet::new(),
            former: Vec::new(),
        };
        SheepdogObjects {
            state: Mutex::new(state),
            released: AtomicU64::new(0),
            listeners: Mutex::default(),
            listeners_count: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode's fields as last read.
    pub fn inode(&self) -> SheepdogInode {
        self.state().inode.clone()
    }

    /// The disk's current VDI. A snapshot changes it.
    pub fn vdi(&self) -> u32 {
        self.state().inode.vdi
    }

    /// The VDI whose object holds the data (0 if none), and the disk's VDI.
    pub fn reader(&self, index: u32) -> (u32, u32) {
        let state = self.state();
        (state.map[index as usize], state.inode.vdi)
    }

    /// How to write to an object, and the disk's VDI.
    pub fn writer(&self, index: u32, has_claim: bool) -> (SheepdogWriter, u32) {
        let mut state = self.state();
        let (entry, vdi) = (state.map[index as usize], state.inode.vdi);
        let way = if !has_claim && state.claimed.contains(&index) {
            SheepdogWriter::Wait
        } else if entry == vdi {
            SheepdogWriter::InPlace
        } else {
            state.claimed.insert(index);
            SheepdogWriter::Create { from: entry }
        };
        (way, vdi)
    }

    /// How to drop an object, and the disk's VDI.
    pub fn dropper(&self, index: u32, has_claim: bool) -> (SheepdogDrop, u32) {
        let mut state = self.state();
        let (entry, vdi) = (state.map[index as usize], state.inode.vdi);
        let way = if !has_claim && state.claimed.contains(&index) {
            SheepdogDrop::Wait
        } else if entry == 0 {
            SheepdogDrop::Hole
        } else {
            state.claimed.insert(index);
            SheepdogDrop::Of(entry)
        };
        (way, vdi)
    }

    /// Records that the inode of `vdi` has `entry` for this object. Ignored if `vdi` is no longer the disk's VDI,
    /// because the map of the new VDI was read from its own inode.
    pub fn settle(&self, vdi: u32, index: u32, entry: u32) {
        let mut state = self.state();
        if state.inode.vdi == vdi {
            state.map[index as usize] = entry;
        }
    }

    /// Releases a claim.
    ///
    /// # Panics
    /// Panics if the object isn't claimed.
    pub fn release(&self, index: u32) {
        assert!(
            self.state().claimed.remove(&index),
            "only claimed objects are released"
        );
        self.released.fetch_add(1, Ordering::AcqRel);
        for (_, waker) in self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            waker.wake();
        }
    }

    /// Number of claims released so far; waiting tasks check whether it has increased.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// Switches the disk to a different VDI because a snapshot was taken. Ignored if already known.
    pub fn replace(&self, inode: SheepdogInode, map: Vec<u32>) {
        assert_eq!(
            map.len(),
            inode.objects_count() as usize,
            "an entry per object"
        );
        let mut state = self.state();
        if state.inode.vdi != inode.vdi {
            let former = state.inode.vdi;
            state.former.push(former);
            (state.inode, state.map) = (inode, map);
        }
    }

    /// All VDIs of the disk, in order, up to the current one.
    pub fn all_vdis(&self) -> Vec<u32> {
        let state = self.state();
        state
            .former
            .iter()
            .copied()
            .chain([state.inode.vdi])
            .collect()
    }

    /// Number of objects that the disk has, including those of snapshots.
    pub fn allocated(&self) -> usize {
        self.state().map.iter().filter(|entry| **entry != 0).count()
    }

    /// The state of the blocks from `offset` on, and the number of bytes that have this state.
    pub fn allocation(&self, offset: u64) -> (Allocation, u64) {
        let state = self.state();
        let object_bytes = state.inode.object_bytes();
        let first = (offset / object_bytes) as usize;
        let is_hole = |index: usize| state.map.get(index).is_none_or(|entry| *entry == 0);
        let hole = is_hole(first);
        let end = (first..state.map.len())
            .find(|index| is_hole(*index) != hole)
            .unwrap_or(state.map.len());
        let end_bytes = (end as u64 * object_bytes).min(state.inode.size_bytes);
        let allocation = if hole {
            Allocation::Deallocated
        } else {
            Allocation::Mapped
        };
        (allocation, end_bytes.saturating_sub(offset))
    }

    /// Calls the waker when a claim is released, until [`SheepdogObjects::forget`] is called with the returned number.
    pub(super) fn listen(&self, waker: Waker) -> u64 {
        let number = self.listeners_count.fetch_add(1, Ordering::Relaxed);
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, waker));
        number
    }

    /// Removes a waker.
    pub(super) fn forget(&self, number: u64) {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(known, _)| *known != number);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn inode(vdi: u32, objects: u64) -> SheepdogInode {
        SheepdogInode {
            name: "disk".to_string(),
            tag: String::new(),
            is_snapshot: false,
            size_bytes: objects << 22,
            copy_policy: 0,
            store_policy: 0,
            copies: 3,
            object_shift: 22,
            snapshot: 1,
            vdi,
            parent: 0,
        }
    }

    /// One task creates an object; the others wait and find it once it is settled.
    #[test]
    fn one_task_creates_an_object_and_the_others_wait() {
        let objects = SheepdogObjects::new(inode(7, 3), vec![0, 5, 7]);
        assert_eq!(objects.writer(2, false), (SheepdogWriter::InPlace, 7));
        assert_eq!(
            objects.writer(1, false),
            (SheepdogWriter::Create { from: 5 }, 7)
        );
        assert_eq!(objects.writer(1, false), (SheepdogWriter::Wait, 7));
        assert_eq!(objects.dropper(1, false), (SheepdogDrop::Wait, 7));
        assert_eq!(objects.reader(1), (5, 7), "until it is settled");
        assert_eq!(
            objects.writer(1, true),
            (SheepdogWriter::Create { from: 5 }, 7),
            "done again"
        );
        objects.settle(7, 1, 7);
        objects.release(1);
        assert_eq!(
            (objects.released(), objects.writer(1, false)),
            (1, (SheepdogWriter::InPlace, 7))
        );
        assert_eq!(objects.dropper(0, false), (SheepdogDrop::Hole, 7));
        assert_eq!(objects.dropper(2, false), (SheepdogDrop::Of(7), 7));
        assert_eq!(objects.allocated(), 2);
    }

    /// Messages in flight while a snapshot is taken don't change the new disk's map.
    #[test]
    fn a_snapshot_makes_another_vdi_the_disk() {
        let objects = SheepdogObjects::new(inode(7, 2), vec![0, 7]);
        assert_eq!(
            objects.writer(0, false).0,
            SheepdogWriter::Create { from: 0 }
        );
        objects.replace(inode(8, 2), vec![0, 7]);
        objects.settle(7, 0, 7);
        objects.release(0);
        assert_eq!(objects.reader(0), (0, 8));
        assert_eq!(
            objects.writer(1, false),
            (SheepdogWriter::Create { from: 7 }, 8)
        );
        assert_eq!(objects.all_vdis(), [7, 8]);
    }

    #[test]
    fn missing_objects_are_reported_as_holes() {
        let objects = SheepdogObjects::new(inode(7, 4), vec![0, 0, 7, 5]);
        assert_eq!(
            objects.allocation(512),
            (Allocation::Deallocated, (8 << 20) - 512)
        );
        assert_eq!(objects.allocation(8 << 20), (Allocation::Mapped, 8 << 20));
    }
}
