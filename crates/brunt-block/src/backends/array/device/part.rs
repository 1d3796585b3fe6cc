//! A caller's request and the parts that it is split into, each within one stripe.

use crate::{Buf, DeviceError, Op};

/// A caller's request.
#[derive(Default)]
pub(super) struct ArrayTask {
    pub tag: u64,
    pub op: Option<Op>,
    pub offset: u64,
    pub len: u64,
    pub buf: Buf,
    pub force_unit_access: bool,
    /// Bytes (from `offset`) already split into parts.
    pub cursor: u64,
    /// A flush has a single part without data; set once that part has been created.
    pub flushed: bool,
    pub active: u32,
    pub queued: bool,
    pub cancelled: bool,
    pub error: Option<DeviceError>,
}

impl ArrayTask {
    /// Whether all parts of the task have been created.
    pub(super) fn is_cut_up(&self) -> bool {
        if self.op == Some(Op::Flush) {
            self.flushed
        } else {
            self.cursor >= self.len
        }
    }
}

/// What a part does next, once everything it waits for has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartStep {
    #[default]
    Idle,
    /// Waits for its lock.
    Blocked,
    /// Returns the data read from a single slot.
    Read,
    /// Combines reads from all other slots by XOR.
    Reconstruct,
    /// Reads old data and old parity, then writes the new ones.
    Modify,
    /// Reads the other data of the stripe, then writes parity, and the data if its slot has a member.
    Replace,
    /// Waits for its writes.
    Write,
}

/// A part of a task.
#[derive(Default)]
pub(super) struct ArrayPart {
    pub task: u32,
    pub op: Option<Op>,
    pub step: PartStep,
    pub stripe: u64,
    /// The slot of the part's data; unused for full stripes.
    pub slot: usize,
    pub member_offset: u64,
    /// Length in bytes, within one chunk.
    pub len: u64,
    /// Offset in the task's buffer.
    pub at: u64,
    /// Whether the part covers all data of a stripe (RAID 5).
    pub full: bool,
    /// Whether the caller's buffer is passed to the member directly.
    pub direct: bool,
    /// Whether the held lock is exclusive; `None` if none is held.
    pub lock: Option<bool>,
    /// Slots that failed a read of this part, as a bit mask.
    pub avoid: u64,
    pub waits: u32,
    pub written: u32,
    pub bufs: Vec<(usize, Buf)>,
    /// The first error in the current step.
    pub error: Option<DeviceError>,
    /// An error from an earlier step that was worked around.
    pub overcome: Option<DeviceError>,
}
