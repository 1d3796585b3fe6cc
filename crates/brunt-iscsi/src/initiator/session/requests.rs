//! A session's requests from submission to retirement: splits requests into commands, retries them where that may
//! help, and retires each once. Called by the driver; `receive` and `timeouts` report the tasks' outcomes. The one
//! rule: every submitted request is retired exactly once.

use std::time::Duration;

use brunt_block::{Buf, DeviceError, Op, Request};
use brunt_core::Nanos;
use brunt_wire::scsi::sense::{ScsiStatus, key};

use super::InitiatorSession;
use super::task::{AbortReason, TaskOutcome, TaskState, TaskWork};
use crate::initiator::command::{self, CommandData, DataDirection, PlannedCommand, Progress};

/// Delay before a retry after BUSY or TASK SET FULL.
pub(super) const BUSY_WAIT: Duration = Duration::from_millis(10);

/// A retired request.
#[derive(Debug)]
pub struct Retired {
    /// The request's tag.
    pub tag: u64,
    /// The request's buffer.
    pub buf: Buf,
    /// Its outcome.
    pub result: Result<(), DeviceError>,
    /// Number of Data-In bytes received.
    pub received: u32,
}

impl InitiatorSession {
    /// Submits a request.
    ///
    /// # Errors
    /// No task is free; the error is the request itself.
    pub fn submit(&mut self, request: Request, now: Nanos) -> Result<(), Request> {
        let Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access,
        } = request;
        let Some(index) = self.free.pop() else {
            return Err(Request {
                tag,
                op,
                offset,
                len,
                buf,
                force_unit_access,
            });
        };
        let valid = self.check(op, offset, len, buf.len());
        let work = TaskWork::Request {
            op,
            offset,
            len,
            force_unit_access,
            progress: Progress::default(),
        };
        self.begin(index, tag, work, buf, now);
        match valid {
            Err(error) => self.answer(index, TaskOutcome::Failed(error)),
            Ok(()) => self.plan(index, now),
        }
        Ok(())
    }

    /// Submits a command from the prober. Its Data-In goes to `buf`, truncated if necessary.
    ///
    /// # Panics
    /// No task is free.
    pub fn submit_control(&mut self, cdb: [u8; 16], buf: Buf, now: Nanos) {
        let index = self
            .free
            .pop()
            .expect("the prober sends one command at a time");
        let data_len = buf.len() as u32;
        let direction = if data_len > 0 {
            DataDirection::In
        } else {
            DataDirection::None
        };
        self.begin(index, 0, TaskWork::Control, buf, now);
        self.tasks[usize::from(index)].command = PlannedCommand {
            cdb,
            direction,
            data_len,
            data: CommandData::Caller,
            covers: 0,
        };
        self.waiting.push_back(index);
    }

    fn check(&self, op: Op, offset: u64, len: u64, buf_len: usize) -> Result<(), DeviceError> {
        let facts = &self.facts;
        let block = u64::from(facts.block_bytes);
        let inside = offset
            .checked_add(len)
            .is_some_and(|end| end <= facts.size_bytes);
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let moves_data = matches!(op, Op::Read | Op::Write);
        if !inside || !whole || (len == 0 && op != Op::Flush) {
            return Err(DeviceError::OutOfRange);
        }
        if moves_data && (len > buf_len as u64 || len > u64::from(facts.transfer_bytes_max)) {
            return Err(DeviceError::OutOfRange);
        }
        if op == Op::Unmap && facts.unmap_by == command::UnmapBy::Nothing {
            return Err(DeviceError::Unsupported);
        }
        Ok(())
    }

    fn begin(&mut self, index: u16, tag: u64, work: TaskWork, buf: Buf, now: Nanos) {
        self.sequence += 1;
        let task = &mut self.tasks[usize::from(index)];
        assert!(task.state == TaskState::Free, "a request takes a free slot");
        task.state = TaskState::Waiting;
        task.tag = tag;
        task.work = work;
        task.buf = buf;
        task.tries = 0;
        task.sequence = self.sequence;
        task.abort_reason = None;
        task.deadline = now.after(self.config.timeout);
        self.next_check = self.next_check.min(task.deadline);
    }

    /// Queues the next command of a request, or completes it.
    fn plan(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        let TaskWork::Request {
            op,
            offset,
            len,
            force_unit_access,
            progress,
        } = task.work
        else {
            self.answer(
                index,
                TaskOutcome::Scsi {
                    status: ScsiStatus::Good,
                    sense: None,
                },
            );
            return;
        };
        let Some(next) = command::next(&self.facts, op, offset, len, force_unit_access, progress)
        else {
            self.answer(
                index,
                TaskOutcome::Scsi {
                    status: ScsiStatus::Good,
                    sense: None,
                },
            );
            return;
        };
        task.command = next;
        match next.data {
            CommandData::Caller => {}
            CommandData::ZeroBlock => {
                task.parameter = self.pool.0.take(next.data_len as usize);
                task.parameter.fill(0);
            }
            CommandData::UnmapList { lba, count } => {
                task.parameter = self.pool.0.take(next.data_len as usize);
                task.parameter
                    .copy_from_slice(&command::unmap_list(lba, count));
            }
        }
        task.state = TaskState::Waiting;
        task.deadline = now.after(self.config.timeout);
        self.next_check = self.next_check.min(task.deadline);
        self.waiting.push_back(index);
    }

    /// The data of a task's command, for the driver to send from or receive into.
    pub fn data(&mut self, task: u16) -> &mut Buf {
        let task = &mut self.tasks[usize::from(task)];
        if task.command.data == CommandData::Caller {
            &mut task.buf
        } else {
            &mut task.parameter
        }
    }

    /// The next answered task, to be retired once its data has been returned.
    pub fn next_answered(&mut self) -> Option<u16> {
        self.answered.pop_front()
    }

    /// Whether any task waits to be retired.
    pub fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Retires an answered task, or continues it with its next command and returns `None`.
    pub fn retire(&mut self, index: u16, now: Nanos) -> Option<Retired> {
        let TaskState::Answered(outcome) = self.tasks[usize::from(index)].state else {
            panic!("only answered tasks are retired");
        };
        if self.continues(index, outcome, now) {
            return None;
        }
        let task = &mut self.tasks[usize::from(index)];
        let result = task.result(outcome);
        task.state = TaskState::Free;
        task.parameter = Buf::empty();
        let retired = Retired {
            tag: task.tag,
            buf: std::mem::take(&mut task.buf),
            result,
            received: task.received,
        };
        self.free.push(index);
        Some(retired)
    }

    /// Continues an answered task with its next command, or retries it. Returns false if the task is finished.
    fn continues(&mut self, index: u16, outcome: TaskOutcome, now: Nanos) -> bool {
        let task = &mut self.tasks[usize::from(index)];
        let is_control = matches!(task.work, TaskWork::Control);
        let may_try_again =
            !is_control && task.abort_reason.is_none() && task.tries < self.config.tries;
        match outcome {
            TaskOutcome::Scsi {
                status: ScsiStatus::Good,
                ..
            } => self.continues_request(index, now),
            TaskOutcome::Again if may_try_again => {
                self.counts.replays += 1;
                self.try_again(index, now);
                true
            }
            TaskOutcome::Scsi {
                status: ScsiStatus::CheckCondition,
                sense: Some(sense),
            } if sense.key == key::UNIT_ATTENTION && may_try_again => {
                self.counts.unit_attentions += 1;
                self.counts.last = Some((ScsiStatus::CheckCondition, Some(sense)));
                self.try_again(index, now);
                true
            }
            // Wait and retry until the deadline; the number of attempts is unlimited.
            TaskOutcome::Scsi {
                status: status @ (ScsiStatus::Busy | ScsiStatus::TaskSetFull),
                ..
            } if !is_control && task.abort_reason.is_none() && now < task.deadline => {
                self.counts.busy += 1;
                self.counts.last = Some((status, None));
                self.hold_until = now.after(BUSY_WAIT);
                task.state = TaskState::Waiting;
                self.waiting.push_back(index);
                true
            }
            _ => false,
        }
    }

    /// After a successful command, plans the request's next one, if there is one.
    fn continues_request(&mut self, index: u16, now: Nanos) -> bool {
        let task = &mut self.tasks[usize::from(index)];
        let TaskWork::Request {
            op,
            offset,
            len,
            force_unit_access,
            progress,
        } = &mut task.work
        else {
            return false;
        };
        // If there was no attempt, the request was completed without sending a command.
        if task.tries == 0 {
            return false;
        }
        progress.done += task.command.covers;
        progress.flushed |= task.command.covers == 0;
        let next = command::next(
            &self.facts,
            *op,
            *offset,
            *len,
            *force_unit_access,
            *progress,
        );
        if next.is_none() {
            return false;
        }
        task.tries = 0;
        self.plan(index, now);
        true
    }

    fn try_again(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        task.state = TaskState::Waiting;
        task.deadline = now.after(self.config.timeout);
        self.waiting.push_back(index);
        self.next_check = self.next_check.min(self.tasks[usize::from(index)].deadline);
    }

    #[inline]
    pub(super) fn answer(&mut self, index: u16, outcome: TaskOutcome) {
        let task = &mut self.tasks[usize::from(index)];
        assert!(
            matches!(task.state, TaskState::Waiting | TaskState::Issued { .. }),
            "only outstanding tasks complete, and only once"
        );
        if let TaskState::Issued { connection } = task.state
            && let Some(connection) = self.connections.get_mut(connection)
        {
            assert!(
                connection.outstanding > 0,
                "an issued task is outstanding on its connection"
            );
            connection.outstanding -= 1;
        }
        task.state = TaskState::Answered(outcome);
        self.answered.push_back(index);
    }

    /// Cancels a task; it completes as cancelled unless it is too late.
    pub fn cancel(&mut self, tag: u64, now: Nanos) {
        let found = self.tasks.iter().position(|task| {
            task.tag == tag && !matches!(task.state, TaskState::Free | TaskState::Answered(_))
        });
        let Some(index) = found else { return };
        let abort_reason = *self.tasks[index]
            .abort_reason
            .get_or_insert(AbortReason::Cancelled);
        if self.tasks[index].state == TaskState::Waiting {
            // The command was not sent on the current connections, so no abort is needed.
            self.waiting
                .retain(|waiting| usize::from(*waiting) != index);
            self.answer(index as u16, TaskOutcome::Failed(abort_reason.error()));
        } else {
            self.next_check = now;
        }
    }
}
