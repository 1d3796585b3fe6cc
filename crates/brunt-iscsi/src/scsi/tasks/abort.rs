//! Task management for a task set (SAM-5, 7): aborts one task, the tasks of a nexus, or all tasks, on every
//! connection. Called by the transport, and by [`TaskSet::poll`] for requests from other connections. The one rule: a
//! function is done once the last affected task is gone.

use super::TaskSet;
use super::task::TaskStage;
use crate::scsi::DataIn;
use crate::scsi::attention::Attention;
use crate::scsi::management::{AbortRequest, AbortScope, Reset, Ticket};

impl TaskSet {
    /// ABORT TASK: returns false if there is no such task. The task ends with an outcome from [`TaskSet::poll`], after
    /// which the function may be answered.
    pub fn abort_task(&mut self, tag: u64) -> bool {
        let Some(&slot) = self.by_tag.get(&tag) else {
            return false;
        };
        self.abort(slot);
        true
    }

    /// ABORT TASK SET: aborts this nexus's tasks, on every connection.
    pub fn abort_task_set(&mut self) -> Ticket {
        self.manage(AbortScope::Nexus(self.nexus.nexus.id), None)
    }

    /// CLEAR TASK SET: aborts all tasks; other nexuses that lose tasks are notified.
    pub fn clear_task_set(&mut self) -> Ticket {
        self.manage(AbortScope::Everybody, Some(self.nexus.nexus.id))
    }

    /// LOGICAL UNIT RESET, or this unit's part of a target reset: ends all tasks, RESERVE and
    /// PREVENT, and notifies every nexus.
    pub fn reset(&mut self, reset: Reset) -> Ticket {
        let attention = match reset {
            Reset::LogicalUnit => Attention::LogicalUnitReset,
            Reset::Target => Attention::ScsiBusReset,
        };
        let ticket = self.manage(AbortScope::Everybody, None);
        self.unit.reset(attention);
        ticket
    }

    fn manage(&mut self, scope: AbortScope, cleared_by: Option<u64>) -> Ticket {
        let ticket = Ticket::new(self.ring.waker());
        let request = AbortRequest {
            scope,
            ticket: Some(ticket.clone()),
            cleared_by,
        };
        self.unit.broadcast(&request, &self.mailbox);
        ticket.add();
        self.obey(&request);
        ticket
    }

    pub(super) fn obey(&mut self, request: &AbortRequest) {
        let own = &self.nexus.nexus;
        let meant = match &request.scope {
            AbortScope::Everybody => true,
            AbortScope::Nexus(id) => *id == own.id,
            AbortScope::Ports(pair) => {
                pair.initiator_port == own.initiator_port && pair.target_port == own.target_port
            }
        };
        let mut waits = Vec::new();
        if meant {
            for slot in 0..self.tasks.len() {
                if let Some(task) = &self.tasks[slot] {
                    waits.push(task.sequence);
                    self.abort(slot);
                }
            }
        }
        waits.retain(|sequence| {
            self.tasks
                .iter()
                .flatten()
                .any(|task| task.sequence == *sequence)
        });
        if let (Some(by), false) = (request.cleared_by, waits.is_empty()) {
            self.unit.commands_cleared(by, self.nexus.nexus.id);
        }
        if let Some(ticket) = &request.ticket {
            if waits.is_empty() {
                ticket.finish();
            } else {
                self.tickets.push((ticket.clone(), waits));
            }
        }
    }

    /// Marks a task as aborted, and finishes it as soon as the device has released it.
    fn abort(&mut self, slot: usize) {
        let task = self.tasks[slot].as_mut().expect("the task exists");
        task.aborted = true;
        match task.stage {
            // The transport may still be collecting data: the outcome stops it, and later calls start nothing.
            TaskStage::Collecting | TaskStage::Parked => {
                self.parked.retain(|parked| *parked != slot);
                self.finish(slot, Ok(DataIn::None));
            }
            TaskStage::Sleeping(_) => {
                self.sleeping -= 1;
                self.finish(slot, Ok(DataIn::None));
            }
            TaskStage::Running => self.device.cancel(slot as u64),
        }
    }
}
