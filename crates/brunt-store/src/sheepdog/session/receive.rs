//! Handles a session's responses: which task they belong to, where their data goes, and what follows.
//!
//! The rule: [`SheepdogSession::on_header`] changes nothing and can be called repeatedly;
//! [`SheepdogSession::on_response`] changes the state, once per response.

use brunt_block::DeviceError;
use brunt_core::Nanos;
use brunt_wire::sheepdog::{SheepdogResponse, result};

use super::task::{Claim, PROBE_BYTES, SheepdogTask, Step, TaskState};
use super::{INDEX_BITS, PAUSE, PROBE_PAUSE, SheepdogDataRange, SheepdogLoss, SheepdogSession};
use crate::sheepdog::device_errors;

/// The payload after a response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SheepdogPayload {
    /// Data of a read, for this part of its task's buffer.
    Task(SheepdogDataRange),
    /// This many bytes that are not needed.
    Discard(usize),
}

/// How a server violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SheepdogViolation {
    /// An unknown id.
    #[error("the server replied to an unknown request, or twice")]
    Id,
    /// A read returned less data than requested.
    #[error("the server sent less data than requested")]
    Short,
    /// More data than requested.
    #[error("the server sent more data than requested")]
    Long,
}

impl SheepdogSession {
    fn task_of(&self, id: u32) -> Result<(u16, &SheepdogTask), SheepdogViolation> {
        let index = (id & ((1 << INDEX_BITS) - 1)) as u16;
        match self.tasks.get(usize::from(index)) {
            Some(task) if task.state == TaskState::Sent && task.id == id => Ok((index, task)),
            _ => Err(SheepdogViolation::Id),
        }
    }

    /// Where the payload after this header belongs.
    ///
    /// # Errors
    /// The response doesn't match the request.
    #[inline]
    pub fn on_header(
        &self,
        response: &SheepdogResponse,
    ) -> Result<SheepdogPayload, SheepdogViolation> {
        let (index, task) = self.task_of(response.id)?;
        let asked = match task.piece.step {
            Step::Probe => PROBE_BYTES,
            Step::Record(_) => 4,
            _ => task.piece.len,
        };
        if response.data_len > asked {
            return Err(SheepdogViolation::Long);
        }
        if task.piece.step != Step::Read || response.result != result::SUCCESS {
            return Ok(SheepdogPayload::Discard(response.data_len as usize));
        }
        match response.data_len == asked {
            true => Ok(SheepdogPayload::Task(SheepdogDataRange {
                task: index,
                start: task.done_bytes as usize,
                len: asked as usize,
            })),
            false => Err(SheepdogViolation::Short),
        }
    }

    /// Processes a complete response; the data of a read is already in place.
    ///
    /// # Errors
    /// The response doesn't match the request.
    #[inline]
    pub fn on_response(
        &mut self,
        response: &SheepdogResponse,
        now: Nanos,
    ) -> Result<(), SheepdogViolation> {
        let (index, task) = self.task_of(response.id)?;
        match (task.piece.step, response.result) {
            (Step::Probe, result::SUCCESS) => self.probe_again(index, now),
            (Step::Probe, result::NO_OBJ) => self.piece_done(index, now),
            (_, result::SUCCESS) => self.step_done(index, now),
            (Step::Flush, result::INVALID_PARMS) => {
                // Like QEMU, treat this as "no object cache": object caches were removed in 1.0.
                self.counts.no_cache = true;
                self.step_done(index, now);
            }
            (_, refusal) => self.refuse(index, refusal, now),
        }
        self.replan_parked(now);
        Ok(())
    }

    fn step_done(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        let piece = task.piece;
        match piece.step {
            Step::Create { .. } => {
                task.piece.step = Step::Record(piece.vdi);
                task.tries = 0;
                self.queue(index, now);
            }
            Step::Record(entry) => {
                self.objects.settle(piece.vdi, piece.index, entry);
                if entry == 0 && piece.owner == piece.vdi {
                    task.claim = task.claim.map(|claim| Claim {
                        probing: true,
                        ..claim
                    });
                    self.plan(index, now);
                } else {
                    self.piece_done(index, now);
                }
            }
            Step::Flush => {
                task.flushed = true;
                self.plan(index, now);
            }
            Step::Read | Step::Write | Step::Probe => self.piece_done(index, now),
        }
    }

    /// Handles the completion of the part of a request in this object.
    fn piece_done(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        task.give_back(&self.objects);
        task.done_bytes += u64::from(task.piece.len);
        self.plan(index, now);
    }

    fn probe_again(&mut self, index: u16, now: Nanos) {
        match now < self.tasks[usize::from(index)].patience_end {
            true => self.pause(index, PROBE_PAUSE, now),
            false => self.answer(index, Err(DeviceError::TimedOut)),
        }
    }

    fn refuse(&mut self, index: u16, refusal: u32, now: Nanos) {
        let task = &self.tasks[usize::from(index)];
        let piece = task.piece;
        let writes = !matches!(piece.step, Step::Read | Step::Probe);
        // The disk lost the object in the meantime, through an overlapping request.
        let moved = matches!(piece.step, Step::Read | Step::Write)
            && self.objects.reader(piece.index) != (piece.owner, piece.vdi);
        if refusal == result::NO_OBJ && moved {
            self.plan(index, now);
        } else if refusal == result::READONLY && writes {
            // The message will be sent again on the next connection, like everything else in flight.
            self.loss = Some(SheepdogLoss::Snapshot);
        } else if result::is_goodbye(refusal) {
            self.loss = Some(SheepdogLoss::ShuttingDown);
        } else if result::is_transient(refusal) && now < task.patience_end {
            self.counts.replays += 1;
            self.counts.result = Some(refusal);
            self.pause(index, PAUSE, now);
        } else {
            self.answer(index, Err(device_errors::from_number(refusal)));
        }
    }
}
