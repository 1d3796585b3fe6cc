//! Task management of a connection (RFC 7143, 11.5 and 11.6): functions take effect at once and are answered when the
//! affected tasks are gone. The one rule: an aborted task gets no response, and the function is answered after the
//! task's last PDU.

use brunt_wire::iscsi::pdu::{
    FLAG_FINAL, TaskManagementRequest, TaskManagementResponse, code, lun_number, serial_before,
};

use super::io::{ConnectionContext, ConnectionIo};
use super::tasks::{PendingFunction, RECENT_MAX, TaskPhase};
use super::{Held, TargetConnection};
use crate::target_node::session::{Reach, Turn};

impl TargetConnection {
    /// Processes a task management request (RFC 7143, 11.5).
    pub(super) fn manage(
        &mut self,
        pdu: &TaskManagementRequest,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        use code::task_management as tm;
        let function = pdu.function & tm::FUNCTION_MASK;
        let itt = pdu.initiator_task_tag.get();
        let lun = lun_number(pdu.lun).filter(|&lun| cx.io.has_lun(lun));
        let needs_lun = matches!(
            function,
            tm::ABORT_TASK | tm::ABORT_TASK_SET | tm::CLEAR_TASK_SET | tm::LOGICAL_UNIT_RESET
        );
        if needs_lun && lun.is_none() {
            return self.manage_response(itt, tm::LUN_DOES_NOT_EXIST, cx);
        }
        let mut tag = None;
        let mut pending = Vec::new();
        match function {
            tm::ABORT_TASK => {
                let referenced = pdu.referenced_task_tag.get();
                match self.tasks.find(referenced) {
                    Some(slot) if self.tasks[slot].lun == lun => tag = self.abort_task(slot, cx),
                    // The command hasn't arrived: count its number as received, so that the command will be ignored as
                    // a duplicate. This applies only to numbers before the function's own: later ones belong to
                    // commands that are yet to come (11.6.1).
                    None if cx.window.may_still_arrive(pdu.ref_cmd_sn.get())
                        && serial_before(pdu.ref_cmd_sn.get(), pdu.cmd_sn.get()) =>
                    {
                        if cx.window.arrive(pdu.ref_cmd_sn.get(), self.id) == Turn::Later {
                            self.held.insert(pdu.ref_cmd_sn.get(), Held::Nothing);
                        }
                    }
                    _ => return self.manage_response(itt, tm::TASK_DOES_NOT_EXIST, cx),
                }
            }
            tm::ABORT_TASK_SET | tm::CLEAR_TASK_SET | tm::LOGICAL_UNIT_RESET => {
                self.abort_undelivered(lun, cx);
                pending = cx.io.manage(function, lun);
            }
            tm::TARGET_WARM_RESET | tm::TARGET_COLD_RESET => {
                self.abort_undelivered(None, cx);
                pending = cx.io.manage(function, None);
            }
            tm::TASK_REASSIGN => {
                return self.manage_response(itt, tm::REASSIGNMENT_NOT_SUPPORTED, cx);
            }
            _ => return self.manage_response(itt, tm::NOT_SUPPORTED, cx),
        }
        self.functions.push(PendingFunction {
            function,
            itt,
            tag,
            pending,
        });
        self.finish_functions(cx);
    }

    /// Answers the functions whose tasks are all gone.
    pub(super) fn finish_functions(&mut self, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        use code::task_management as tm;
        let mut index = 0;
        while let Some(function) = self.functions.get(index) {
            if function.tag.is_some() || !function.pending.iter().all(|is_done| is_done()) {
                index += 1;
                continue;
            }
            let function = self.functions.remove(index);
            self.manage_response(function.itt, tm::FUNCTION_COMPLETE, cx);
            if function.function == tm::TARGET_COLD_RESET {
                // As after power on, all connections end (RFC 7143, 11.5.1).
                cx.io.close_others(Reach::Target);
                self.closing = true;
            }
        }
    }

    fn manage_response(
        &mut self,
        itt: u32,
        response: u8,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        let pdu = TaskManagementResponse {
            flags: FLAG_FINAL,
            response,
            initiator_task_tag: itt.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: cx.window.exp_cmd_sn().into(),
            max_cmd_sn: cx.window.max_cmd_sn().into(),
            ..TaskManagementResponse::default()
        };
        cx.io.send(pdu.bhs(), &[]);
    }

    /// Aborts the tasks that are not with a logical unit: held tasks, and answered tasks that wait for the end of
    /// their data.
    fn abort_undelivered(
        &mut self,
        lun: Option<u16>,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        for slot in 0..self.tasks.len() {
            let task = &self.tasks[slot];
            let undelivered = matches!(task.phase, TaskPhase::Held | TaskPhase::Answered);
            if undelivered && (lun.is_none() || task.lun == lun) {
                self.abort_task(slot, cx);
            }
        }
    }

    /// Aborts a task; returns its tag if its outcome is still pending.
    pub(super) fn abort_task(
        &mut self,
        slot: usize,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Option<u64> {
        let tag = self.tasks.tag(slot);
        self.remember(slot);
        let task = &mut self.tasks[slot];
        match task.phase {
            TaskPhase::Free => return None,
            TaskPhase::Held => {
                for held in self.held.values_mut() {
                    if matches!(held, Held::Task(other) if *other == tag) {
                        *held = Held::Nothing;
                    }
                }
            }
            TaskPhase::Answered => {}
            TaskPhase::Collecting => cx.io.abort(task.lun, tag),
            TaskPhase::Aborting => return Some(tag),
            TaskPhase::Running => {
                cx.io.abort(task.lun, tag);
                // The initiator may reuse its tag at once, so the old task is identified by our own tag.
                task.phase = TaskPhase::Aborting;
                self.tasks.forget_itt(slot);
                return Some(tag);
            }
        }
        self.release(slot, cx.window);
        None
    }

    /// Remembers an aborted task whose data may still arrive.
    pub(super) fn remember(&mut self, slot: usize) {
        let task = &self.tasks[slot];
        if task.unsolicited.is_some() || !task.bursts.is_empty() {
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(task.itt);
        }
    }
}
