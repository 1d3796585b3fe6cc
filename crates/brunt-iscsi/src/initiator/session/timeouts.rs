//! Timeouts of a session: requests that take too long are aborted, then the LUN is reset, then the session is dropped;
//! silent connections are pinged; a requested logout is sent once the outstanding commands are done. The one rule:
//! [`InitiatorSession::deadline`] is never later than the next action.

use std::time::Duration;

use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::{
    self, Bhs, LogoutRequest, NopOut, RESERVED_TAG, TaskManagementRequest, TaskManagementResponse,
    code,
};

use super::connection::Queued;
use super::receive::Violation;
use super::send::set_exp_stat_sn;
use super::task::{
    AbortReason, INDEX_LOGOUT, INDEX_PING, INDEX_TASK_MANAGEMENT, TaskManagement, TaskOutcome,
    TaskState, itt_of,
};
use super::{InitiatorSession, SessionLoss, SessionPhase};

/// Maximum time for a task management function.
const TASK_MANAGEMENT_WAIT: Duration = Duration::from_secs(5);

impl InitiatorSession {
    /// When to call [`InitiatorSession::on_time`] next.
    pub fn deadline(&self) -> Nanos {
        if self.has_answered() {
            return Nanos(0);
        }
        if matches!(self.phase, SessionPhase::Detached | SessionPhase::Lost(_)) {
            return Nanos::MAX;
        }
        let held = self.hold_until > Nanos(0)
            && !self.waiting.is_empty()
            && self.phase == SessionPhase::Running;
        // While the window is closed, the end of a delay changes nothing: only the target can open the window.
        if held && self.window_is_open() {
            self.next_check.min(self.hold_until)
        } else {
            self.next_check
        }
    }

    /// Handles everything that is overdue: commands, task management, silent connections, logouts. Returns quickly if
    /// nothing is overdue.
    pub fn on_time(&mut self, now: Nanos) {
        if now < self.next_check
            || matches!(self.phase, SessionPhase::Detached | SessionPhase::Lost(_))
        {
            return;
        }
        let mut next = Nanos::MAX;
        let mut to_abort = None;
        for index in 0..self.tasks.len() {
            let task = &mut self.tasks[index];
            match task.state {
                TaskState::Free | TaskState::Answered(_) => continue,
                TaskState::Waiting | TaskState::Issued { .. } => {}
            }
            if now >= task.deadline && task.abort_reason.is_none() {
                task.abort_reason = Some(AbortReason::TimedOut);
                self.counts.timeouts += 1;
            }
            match (task.abort_reason, task.state) {
                (None, _) => next = next.min(task.deadline),
                (Some(abort_reason), TaskState::Waiting) => {
                    // The command was not sent, so no abort is needed.
                    self.waiting
                        .retain(|waiting| usize::from(*waiting) != index);
                    self.answer(index as u16, TaskOutcome::Failed(abort_reason.error()));
                }
                (Some(_), _) => to_abort = to_abort.or(Some(index as u16)),
            }
        }
        match (self.task_management, to_abort) {
            (Some(function), _) if now >= function.deadline => self.escalate(),
            (None, Some(index)) => {
                self.send_task_management(code::task_management::ABORT_TASK, index, now)
            }
            _ => {}
        }
        if let Some(function) = self.task_management {
            next = next.min(function.deadline);
        }
        self.keep_alive(now, &mut next);
        self.drain(now, &mut next);
        self.next_check = next;
    }

    fn keep_alive(&mut self, now: Nanos, next: &mut Nanos) {
        let keepalive = self.config.keepalive;
        for connection in &mut self.connections {
            match connection.pinged {
                Some(pinged) if now >= pinged.after(keepalive) => {
                    let why = "the target does not respond to NOP-Outs";
                    self.phase = SessionPhase::Lost(SessionLoss {
                        why,
                        wait: Duration::ZERO,
                    });
                }
                Some(pinged) => *next = (*next).min(pinged.after(keepalive)),
                None if now >= connection.last_heard.after(keepalive) => {
                    self.side_sequence = self.side_sequence.wrapping_add(1);
                    let mut ping = NopOut {
                        flags: pdu::FLAG_FINAL,
                        lun: self.config.lun,
                        initiator_task_tag: (u32::from(self.side_sequence) << 16 | INDEX_PING)
                            .into(),
                        target_transfer_tag: RESERVED_TAG.into(),
                        cmd_sn: self.cmd_sn.into(),
                        ..NopOut::default()
                    };
                    ping.opcode |= pdu::OPCODE_IMMEDIATE;
                    connection.out.push_back(Queued::Bhs(ping.into()));
                    connection.pinged = Some(now);
                    *next = (*next).min(now.after(keepalive));
                }
                None => *next = (*next).min(connection.last_heard.after(keepalive)),
            }
        }
    }

    fn drain(&mut self, now: Nanos, next: &mut Nanos) {
        match self.phase {
            SessionPhase::Draining { until } => {
                let idle = self
                    .connections
                    .iter()
                    .all(|connection| connection.outstanding == 0);
                if idle || now >= until {
                    let logout = self.logout_pdu();
                    self.connections[0].out.push_back(Queued::Bhs(logout));
                    let until = now.after(TASK_MANAGEMENT_WAIT);
                    self.phase = SessionPhase::LoggingOut { until };
                    *next = (*next).min(until);
                } else {
                    // Check again soon; draining is too rare for this to cost much.
                    *next = (*next).min(now.after(Duration::from_millis(10)));
                }
            }
            SessionPhase::LoggingOut { until } if now >= until => {
                let why = "the target requested a logout and did not respond to it";
                self.phase = SessionPhase::Lost(SessionLoss {
                    why,
                    wait: Duration::ZERO,
                });
            }
            SessionPhase::LoggingOut { until } => *next = (*next).min(until),
            _ => {}
        }
    }

    /// Builds a logout request that ends the session, for a driver that closes it.
    pub fn logout_pdu(&self) -> Bhs {
        let mut logout = LogoutRequest {
            reason: pdu::FLAG_FINAL | code::logout::CLOSE_SESSION,
            initiator_task_tag: INDEX_LOGOUT.into(),
            cid: self
                .connections
                .first()
                .map_or(0, |connection| connection.cid)
                .into(),
            cmd_sn: self.cmd_sn.into(),
            ..LogoutRequest::default()
        };
        logout.opcode |= pdu::OPCODE_IMMEDIATE;
        let mut bhs = logout.into();
        set_exp_stat_sn(
            &mut bhs,
            self.connections
                .first()
                .map_or(0, |connection| connection.exp_stat_sn),
        );
        bhs
    }

    fn send_task_management(&mut self, function: u8, index: u16, now: Nanos) {
        let task = &self.tasks[usize::from(index)];
        let TaskState::Issued { connection } = task.state else {
            return;
        };
        assert!(
            self.task_management.is_none(),
            "one task management function at a time"
        );
        self.side_sequence = self.side_sequence.wrapping_add(1);
        let itt = u32::from(self.side_sequence) << 16 | INDEX_TASK_MANAGEMENT;
        let aborts_one = function == code::task_management::ABORT_TASK;
        let mut request = TaskManagementRequest {
            function: pdu::FLAG_FINAL | function,
            lun: self.config.lun,
            initiator_task_tag: itt.into(),
            referenced_task_tag: if aborts_one {
                itt_of(index, task.generation)
            } else {
                RESERVED_TAG
            }
            .into(),
            cmd_sn: self.cmd_sn.into(),
            ref_cmd_sn: if aborts_one { task.cmd_sn } else { 0 }.into(),
            ..TaskManagementRequest::default()
        };
        request.opcode |= pdu::OPCODE_IMMEDIATE;
        // Both functions are sent on the task's connection: an abort must follow its task (RFC 7143, 4.2.5.2), and a
        // reset on a faster connection would not help.
        self.connections[connection]
            .out
            .push_back(Queued::Bhs(request.into()));
        let deadline = now.after(self.config.timeout.min(TASK_MANAGEMENT_WAIT));
        self.task_management = Some(TaskManagement {
            function,
            task: index,
            itt,
            deadline,
        });
    }

    /// The function failed or was not answered in time: escalate to the next one.
    pub(super) fn escalate(&mut self) {
        let Some(TaskManagement {
            function,
            task,
            deadline,
            ..
        }) = self.task_management.take()
        else {
            return;
        };
        let still_there = matches!(
            self.tasks[usize::from(task)].state,
            TaskState::Issued { .. }
        );
        if function == code::task_management::ABORT_TASK && still_there {
            self.counts.resets += 1;
            self.send_task_management(code::task_management::LOGICAL_UNIT_RESET, task, deadline);
        } else if still_there {
            let why = "the target neither aborts a command nor resets the LUN";
            self.phase = SessionPhase::Lost(SessionLoss {
                why,
                wait: Duration::ZERO,
            });
        }
        self.next_check = Nanos(0);
    }

    pub(super) fn on_task_management(
        &mut self,
        number: usize,
        pdu: &TaskManagementResponse,
        now: Nanos,
    ) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        let Some(function) = self.task_management else {
            return Err(Violation("an unexpected task management response"));
        };
        if function.itt != pdu.initiator_task_tag.get() {
            // A late response to an abort that was replaced by a reset.
            return Ok(());
        }
        let is_abort = function.function == code::task_management::ABORT_TASK;
        match pdu.response {
            code::task_management::FUNCTION_COMPLETE
            | code::task_management::TASK_DOES_NOT_EXIST
                if is_abort =>
            {
                let task = &self.tasks[usize::from(function.task)];
                if let (TaskState::Issued { .. }, Some(abort_reason)) =
                    (task.state, task.abort_reason)
                {
                    self.answer(function.task, TaskOutcome::Failed(abort_reason.error()));
                }
                self.task_management = None;
            }
            code::task_management::FUNCTION_COMPLETE => {
                for index in 0..self.tasks.len() as u16 {
                    let task = &self.tasks[usize::from(index)];
                    match (task.state, task.abort_reason) {
                        (TaskState::Issued { .. }, Some(abort_reason)) => {
                            self.answer(index, TaskOutcome::Failed(abort_reason.error()));
                        }
                        (TaskState::Issued { .. }, None) => self.answer(index, TaskOutcome::Again),
                        _ => {}
                    }
                }
                self.task_management = None;
            }
            _ => self.escalate(),
        }
        self.next_check = now;
        Ok(())
    }
}
