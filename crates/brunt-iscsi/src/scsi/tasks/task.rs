//! The state of a command in a task set: its stage, work and lock. Used by the other files of `tasks`. The one rule:
//! a task with a request at the device is released only by the device.

use brunt_block::Buf;
use brunt_core::Nanos;
use brunt_wire::scsi::cdb::Cdb;

use crate::scsi::jobs::{ByteRange, Job};
use crate::scsi::locks::Hold;
use crate::scsi::{DataIn, TaskAttribute};

/// A task's stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskStage {
    /// The task's Data-Out is not complete yet.
    Collecting,
    /// The task waits for older tasks or for other connections' range locks.
    Parked,
    /// The task waits until a time set by its job.
    Sleeping(Nanos),
    /// The device has a request from the task.
    Running,
}

/// What a task has to do.
pub(super) enum TaskWork {
    Read,
    Write {
        force: bool,
    },
    /// Collects Data-Out; the CDB then decides what to do with it.
    Collect(Cdb),
    Job(Box<dyn Job>),
}

/// The kind of range lock that a task needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockMode {
    None,
    Share,
    Exclude,
}

/// A command between its CDB and its outcome.
pub(super) struct ScsiTask {
    pub tag: u64,
    pub sequence: u64,
    pub attribute: TaskAttribute,
    pub stage: TaskStage,
    pub aborted: bool,
    pub work: TaskWork,
    pub range: ByteRange,
    pub lock: LockMode,
    pub hold: Hold,
    pub has_lock: bool,
    /// Number of Data-Out bytes that the CDB describes.
    pub wants: u32,
    pub data: Buf,
}

/// What a command needs, based only on its CDB.
pub(super) enum CommandPlan {
    Answer(DataIn),
    Collect {
        len: u32,
        range: ByteRange,
        lock: LockMode,
    },
    Job {
        job: Box<dyn Job>,
        range: ByteRange,
        lock: LockMode,
    },
}

/// What a command needs once it has its data.
pub(super) enum CollectedPlan {
    Answer(DataIn),
    Job {
        job: Box<dyn Job>,
        range: ByteRange,
        lock: LockMode,
    },
}
