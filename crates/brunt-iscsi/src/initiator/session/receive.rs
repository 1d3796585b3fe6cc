//! Processes a session's received PDUs: data, status, R2Ts, messages. The driver calls it for each PDU with the header,
//! and again once the data is in place. The one rule: a PDU that doesn't match what was requested is a [`Violation`],
//! and nothing is written outside a task's buffer.

use std::time::Duration;

use brunt_block::DeviceError;
use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::{
    self, AsyncMessage, Bhs, DataIn, LogoutResponse, NopIn, NopOut, Opcode, R2t, RESERVED_TAG,
    Reject, ScsiResponse, TaskManagementResponse, code, serial_before,
};
use brunt_wire::scsi::sense::{ScsiStatus, Sense};

use super::connection::{DataRange, Queued, QueuedDataOut};
use super::task::{INDEX_PING, TaskOutcome, TaskState, TaskWork, itt_of};
use super::{DEPTH_MAX, InitiatorSession, SessionLoss, SessionPhase};
use crate::device_errors;
use crate::initiator::command::{CommandData, DataDirection};

/// Limit on the data of PDUs other than Data-In: sense data has at most 2 + 65,535 bytes; pings and messages have less.
pub const SHORT_DATA_BYTES_MAX: usize = 128 << 10;

/// The target violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target violated the protocol: {0}")]
pub struct Violation(pub &'static str);

/// Where a PDU's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDestination {
    /// Into the task's data.
    Task(DataRange),
    /// To [`InitiatorSession::on_pdu`], with the PDU; the data is at most [`SHORT_DATA_BYTES_MAX`] long.
    Short,
}

impl InitiatorSession {
    /// Returns where the data of a PDU goes. Changes nothing.
    pub fn on_header(&self, number: usize, bhs: &Bhs) -> Result<DataDestination, Violation> {
        let connection = &self.connections[number];
        let len = bhs.data_len();
        if bhs.kind() != Opcode::DataIn {
            let limit = SHORT_DATA_BYTES_MAX;
            return if len > limit {
                Err(Violation("a data segment is too long"))
            } else {
                Ok(DataDestination::Short)
            };
        }
        if len > connection.params.max_recv_data_segment_length as usize {
            return Err(Violation(
                "a Data-In longer than our MaxRecvDataSegmentLength",
            ));
        }
        let pdu = DataIn::view(bhs);
        let index = self.task_of(number, pdu.initiator_task_tag.get())?;
        let task = &self.tasks[usize::from(index)];
        let offset = pdu.buffer_offset.get();
        if task.command.direction != DataDirection::In {
            return Err(Violation("Data-In for a command that does not read"));
        }
        if len as u64 + u64::from(offset) > u64::from(task.command.data_len) {
            return Err(Violation("Data-In past the end of the command's buffer"));
        }
        if offset != task.received {
            return Err(Violation("Data-In out of order"));
        }
        if pdu.data_sn.get() != task.exp_data_sn {
            return Err(Violation("a DataSN out of sequence"));
        }
        Ok(DataDestination::Task(DataRange {
            task: index,
            start: offset as usize,
            len,
        }))
    }

    /// Processes a PDU whose digests are right and whose data is in place; `data` is the data for
    /// [`DataDestination::Short`].
    ///
    /// # Errors
    /// The connection must be dropped.
    pub fn on_pdu(
        &mut self,
        number: usize,
        bhs: &Bhs,
        data: &[u8],
        now: Nanos,
    ) -> Result<(), Violation> {
        let connection = &mut self.connections[number];
        connection.last_heard = now;
        connection.pinged = None;
        match bhs.kind() {
            Opcode::DataIn => self.on_data_in(number, DataIn::view(bhs)),
            Opcode::ScsiResponse => self.on_response(number, ScsiResponse::view(bhs), data),
            Opcode::R2t => self.on_r2t(number, R2t::view(bhs)),
            Opcode::NopIn => self.on_nop_in(number, NopIn::view(bhs)),
            Opcode::TaskManagementResponse => {
                self.on_task_management(number, TaskManagementResponse::view(bhs), now)
            }
            Opcode::AsyncMessage => self.on_async(number, AsyncMessage::view(bhs), now),
            Opcode::Reject => self.on_reject(number, Reject::view(bhs), data),
            Opcode::LogoutResponse => self.on_logout(number, LogoutResponse::view(bhs)),
            _ => Err(Violation("an unexpected type of PDU")),
        }
    }

    fn on_data_in(&mut self, number: usize, pdu: &DataIn) -> Result<(), Violation> {
        let index = self.task_of(number, pdu.initiator_task_tag.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let task = &mut self.tasks[usize::from(index)];
        task.exp_data_sn = task.exp_data_sn.wrapping_add(1);
        task.received += pdu.data_segment_length.get();
        // The driver has called on_header, which checks offset and length against the command.
        assert!(
            task.received <= task.command.data_len,
            "only announced data arrives"
        );
        if pdu.flags & code::response::STATUS == 0 {
            return Ok(());
        }
        if pdu.flags & pdu::FLAG_FINAL == 0 {
            return Err(Violation("a Data-In with status that is not the final one"));
        }
        self.status_sn(number, pdu.stat_sn.get())?;
        self.finish(index, pdu.status, pdu.flags, pdu.residual_count.get(), &[])
    }

    fn on_response(
        &mut self,
        number: usize,
        pdu: &ScsiResponse,
        data: &[u8],
    ) -> Result<(), Violation> {
        let index = self.task_of(number, pdu.initiator_task_tag.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        if pdu.response != code::response::COMPLETED_AT_TARGET {
            // "Target failure": there is no status, and the state of the data is unknown.
            self.answer(index, TaskOutcome::Failed(DeviceError::Os(EIO)));
            return Ok(());
        }
        let sense = match *data {
            [] => &data[..0],
            [high, low, ref rest @ ..] => {
                let len = usize::from(u16::from_be_bytes([high, low]));
                rest.get(..len)
                    .ok_or(Violation("a SenseLength past the data segment"))?
            }
            _ => return Err(Violation("a data segment too short for SenseLength")),
        };
        self.finish(
            index,
            pdu.status,
            pdu.flags,
            pdu.residual_count.get(),
            sense,
        )
    }

    /// Processes a command's status.
    fn finish(
        &mut self,
        index: u16,
        status: u8,
        flags: u8,
        residual: u32,
        sense: &[u8],
    ) -> Result<(), Violation> {
        let status = ScsiStatus::from_byte(status);
        let task = &self.tasks[usize::from(index)];
        let (expected, received) = (task.command.data_len, task.received);
        let underflow = if flags & code::response::UNDERFLOW != 0 {
            residual
        } else {
            0
        };
        if underflow > expected {
            return Err(Violation("a residual larger than the transfer"));
        }
        let all_data =
            task.command.direction != DataDirection::In || received == expected - underflow;
        let sense = Sense::parse(sense);
        // A command with a recovered error succeeded, and the error is only counted; the data is complete (SPC-4,
        // 4.5.6).
        let recovered = device_errors::is_recovered(status, sense.as_ref()) && all_data;
        if recovered {
            self.counts.recovered += 1;
            self.counts.last = Some((status, sense));
        }
        let status = if recovered { ScsiStatus::Good } else { status };
        let task = &self.tasks[usize::from(index)];
        let is_good = status == ScsiStatus::Good;
        if is_good && !all_data {
            return Err(Violation("status GOOD before all data"));
        }
        let short = underflow > 0 || flags & code::response::OVERFLOW != 0;
        let is_request = matches!(task.work, TaskWork::Request { .. });
        let outcome = if is_good && short && is_request && task.command.data == CommandData::Caller
        {
            // The status is GOOD, but not all blocks were transferred, so the result is useless to the caller. (This
            // applies only to the caller's data: targets such as tgt compute other residuals for parameter lists and
            // WRITE SAME.)
            TaskOutcome::Failed(DeviceError::Os(EIO))
        } else {
            TaskOutcome::Scsi { status, sense }
        };
        self.answer(index, outcome);
        Ok(())
    }

    fn on_r2t(&mut self, number: usize, pdu: &R2t) -> Result<(), Violation> {
        let itt = pdu.initiator_task_tag.get();
        let index = self.task_of(number, itt)?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let connection = &mut self.connections[number];
        let task = &mut self.tasks[usize::from(index)];
        let offset = pdu.buffer_offset.get();
        let len = pdu.desired_data_transfer_length.get();
        if task.command.direction != DataDirection::Out {
            return Err(Violation("an R2T for a command that does not write"));
        }
        if pdu.r2t_sn.get() != task.exp_r2t_sn {
            return Err(Violation("an R2TSN out of sequence"));
        }
        if len == 0 || len > connection.params.max_burst_length {
            return Err(Violation(
                "an R2T for no data, or for more than MaxBurstLength",
            ));
        }
        if u64::from(offset) + u64::from(len) > u64::from(task.command.data_len) {
            return Err(Violation("an R2T past the end of the command's data"));
        }
        if offset != task.solicited {
            return Err(Violation("an R2T out of order"));
        }
        if pdu.target_transfer_tag.get() == RESERVED_TAG {
            return Err(Violation("an R2T without a target transfer tag"));
        }
        task.exp_r2t_sn = task.exp_r2t_sn.wrapping_add(1);
        task.solicited = offset + len;
        let ttt = pdu.target_transfer_tag.get();
        connection.out.push_back(Queued::DataOut(QueuedDataOut {
            task: index,
            itt,
            ttt,
            at: offset,
            end: offset + len,
            data_sn: 0,
        }));
        Ok(())
    }

    fn on_nop_in(&mut self, number: usize, pdu: &NopIn) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        if pdu.initiator_task_tag.get() != RESERVED_TAG {
            // The response to our ping; only its arrival matters.
            if pdu.initiator_task_tag.get() & 0xffff != INDEX_PING {
                return Err(Violation("a response to a NOP-Out that was not sent"));
            }
            return self.status_sn(number, pdu.stat_sn.get());
        }
        if pdu.target_transfer_tag.get() != RESERVED_TAG {
            let mut answer = NopOut {
                flags: pdu::FLAG_FINAL,
                lun: pdu.lun,
                initiator_task_tag: RESERVED_TAG.into(),
                target_transfer_tag: pdu.target_transfer_tag,
                cmd_sn: self.cmd_sn.into(),
                ..NopOut::default()
            };
            answer.opcode |= pdu::OPCODE_IMMEDIATE;
            let out = &mut self.connections[number].out;
            if out.len() > 4 * DEPTH_MAX as usize {
                return Err(Violation("more NOP-Ins than can be answered"));
            }
            out.push_back(Queued::Bhs(answer.into()));
        }
        Ok(())
    }

    fn on_async(&mut self, number: usize, pdu: &AsyncMessage, now: Nanos) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        let wait = Duration::from_secs(u64::from(pdu.parameter2.get()));
        match pdu.async_event {
            code::async_event::LOGOUT_REQUEST | code::async_event::NEGOTIATION_REQUEST => {
                // Outstanding commands get half of the time that the target allows; the rest is left for logging out.
                let half = Duration::from_millis(u64::from(pdu.parameter3.get()) * 500);
                let until = now.after(half);
                if self.phase == SessionPhase::Running {
                    self.phase = SessionPhase::Draining { until };
                    self.next_check = now;
                }
            }
            code::async_event::CONNECTION_DROP => {
                self.phase = SessionPhase::Lost(SessionLoss {
                    why: "the target dropped the connection",
                    wait,
                });
            }
            code::async_event::SESSION_DROP => {
                self.phase = SessionPhase::Lost(SessionLoss {
                    why: "the target dropped the session",
                    wait,
                });
            }
            // SCSI events are repeated as unit attentions; other events don't matter here.
            _ => {}
        }
        Ok(())
    }

    fn on_reject(&mut self, number: usize, pdu: &Reject, data: &[u8]) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        let Some(rejected) = Bhs::peek(data) else {
            return Err(Violation("a Reject without the header of the rejected PDU"));
        };
        let itt = rejected.initiator_task_tag.get();
        match rejected.kind() {
            Opcode::ScsiCommand => {
                let index = self.task_of(number, itt)?;
                self.answer(index, TaskOutcome::Failed(DeviceError::Os(EIO)));
                Ok(())
            }
            Opcode::TaskManagementRequest => {
                self.escalate();
                Ok(())
            }
            Opcode::NopOut => Ok(()),
            _ => Err(Violation(
                "a Reject of a PDU that will not get another response",
            )),
        }
    }

    fn on_logout(&mut self, number: usize, pdu: &LogoutResponse) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        if !matches!(self.phase, SessionPhase::LoggingOut { .. }) {
            return Err(Violation("a response to a logout that was not requested"));
        }
        let wait = Duration::from_secs(u64::from(pdu.time2wait.get()));
        self.phase = SessionPhase::Lost(SessionLoss {
            why: "the target requested a logout",
            wait,
        });
        Ok(())
    }

    /// The task with this tag, if the tag is ours and the task is unanswered and on this connection.
    fn task_of(&self, number: usize, itt: u32) -> Result<u16, Violation> {
        let index = (itt & 0xffff) as u16;
        match self.tasks.get(usize::from(index)) {
            Some(task)
                if task.state == TaskState::Issued { connection: number }
                    && itt_of(index, task.generation) == itt =>
            {
                Ok(index)
            }
            _ => Err(Violation(
                "an initiator task tag without a task on this connection",
            )),
        }
    }

    /// Updates the command window (RFC 7143, 4.2.2.1).
    pub(super) fn window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        let sane = !serial_before(max_cmd_sn, exp_cmd_sn.wrapping_sub(1));
        if sane && serial_before(self.max_cmd_sn, max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    pub(super) fn status_sn(&mut self, number: usize, stat_sn: u32) -> Result<(), Violation> {
        let connection = &mut self.connections[number];
        if stat_sn != connection.exp_stat_sn {
            return Err(Violation("a StatSN out of sequence"));
        }
        connection.exp_stat_sn = stat_sn.wrapping_add(1);
        Ok(())
    }
}

/// Input/output error, for failures without a SCSI status.
const EIO: i32 = 5;
