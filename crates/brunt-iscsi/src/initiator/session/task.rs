//! State of a request in a session: its progress, and how much of its data has been transferred. Used by the other
//! files of `session`. The one rule: [`TaskState`] goes from free to waiting, issued, answered; a task returns to
//! waiting only to be sent again.

use brunt_block::{Buf, DeviceError, Op, RefusalKind};
use brunt_core::Nanos;
use brunt_wire::scsi::sense::{ScsiStatus, Sense, key};

use crate::device_errors;
use crate::initiator::command::{CommandData, DataDirection, PlannedCommand, Progress};

/// Indexes from here on don't refer to tasks.
pub(super) const INDEX_PING: u32 = 0xf000;
pub(super) const INDEX_TASK_MANAGEMENT: u32 = 0xf100;
pub(super) const INDEX_LOGOUT: u32 = 0xf200;

#[derive(Debug)]
pub(super) enum TaskWork {
    Request {
        op: Op,
        offset: u64,
        len: u64,
        force_unit_access: bool,
        progress: Progress,
    },
    /// A command from the prober: it is returned as answered and never sent again.
    Control,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Free,
    Waiting,
    Issued { connection: usize },
    Answered(TaskOutcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskOutcome {
    Scsi {
        status: ScsiStatus,
        sense: Option<Sense>,
    },
    Failed(DeviceError),
    /// It is unknown whether the command was executed, so it is sent again.
    Again,
}

/// Why a task is being aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortReason {
    TimedOut,
    Cancelled,
}

impl AbortReason {
    pub fn error(self) -> DeviceError {
        match self {
            AbortReason::TimedOut => DeviceError::TimedOut,
            AbortReason::Cancelled => DeviceError::refused(RefusalKind::Cancelled),
        }
    }
}

/// A request, with its current command.
#[derive(Debug)]
pub(super) struct InitiatorTask {
    pub state: TaskState,
    pub generation: u16,
    pub tag: u64,
    pub work: TaskWork,
    pub command: PlannedCommand,
    /// The caller's buffer.
    pub buf: Buf,
    /// The parameter list or zero block of the current command.
    pub parameter: Buf,
    pub tries: u32,
    /// Order of submission.
    pub sequence: u64,
    pub deadline: Nanos,
    pub abort_reason: Option<AbortReason>,
    pub cmd_sn: u32,
    /// Number of Data-In bytes received, which is also the next offset.
    pub received: u32,
    pub exp_data_sn: u32,
    /// Number of Data-Out bytes sent or requested, which is also the next R2T's offset.
    pub solicited: u32,
    pub exp_r2t_sn: u32,
}

impl InitiatorTask {
    pub fn new() -> InitiatorTask {
        InitiatorTask {
            state: TaskState::Free,
            generation: 0,
            tag: 0,
            work: TaskWork::Control,
            command: PlannedCommand {
                cdb: [0; 16],
                direction: DataDirection::None,
                data_len: 0,
                data: CommandData::Caller,
                covers: 0,
            },
            buf: Buf::empty(),
            parameter: Buf::empty(),
            tries: 0,
            sequence: 0,
            deadline: Nanos::MAX,
            abort_reason: None,
            cmd_sn: 0,
            received: 0,
            exp_data_sn: 0,
            solicited: 0,
            exp_r2t_sn: 0,
        }
    }

    /// The result of a task with this outcome.
    pub fn result(&self, outcome: TaskOutcome) -> Result<(), DeviceError> {
        match outcome {
            TaskOutcome::Failed(error) => Err(error),
            TaskOutcome::Again => Err(self
                .abort_reason
                .map_or(DeviceError::Gone, AbortReason::error)),
            TaskOutcome::Scsi {
                status: ScsiStatus::Good,
                ..
            } => Ok(()),
            TaskOutcome::Scsi {
                status: ScsiStatus::CheckCondition,
                sense: Some(sense),
            } if (sense.key, sense.asc, sense.ascq) == (key::ILLEGAL_REQUEST, 0x20, 0)
                && matches!(
                    self.work,
                    TaskWork::Request {
                        op: Op::Unmap | Op::WriteZeroes,
                        ..
                    }
                ) =>
            {
                Err(DeviceError::Unsupported) // INVALID COMMAND OPERATION CODE
            }
            TaskOutcome::Scsi { status, sense } => Err(device_errors::from_status(status, sense)),
        }
    }
}

/// Builds an initiator task tag: the slot's generation above its index, so that responses to old tasks don't match new
/// ones.
pub(super) fn itt_of(index: u16, generation: u16) -> u32 {
    u32::from(generation) << 16 | u32::from(index)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TaskManagement {
    pub function: u8,
    /// The task to abort.
    pub task: u16,
    pub itt: u32,
    pub deadline: Nanos,
}
