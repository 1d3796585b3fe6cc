//! Data-Out of a connection's commands: where the data goes, whether it was requested, and what to request next (R2T).
//! Called by [`TargetConnection::on_header`] and [`TargetConnection::on_data`]. The one rule: data stays within what
//! its command announced and its burst allows; excess data is dropped or fails the command.

use brunt_block::Buf;
use brunt_wire::iscsi::pdu::{Bhs, DataOut as DataOutPdu, FLAG_FINAL, R2t, RESERVED_TAG, code};

use super::command::INCORRECT_AMOUNT;
use super::io::{ConnectionContext, ConnectionIo, DataOut, Destination};
use super::response::failure;
use super::tasks::{DataOutBurst, TaskPhase};
use super::{CRC_ERROR, Current, TargetConnection};

impl TargetConnection {
    pub(super) fn on_data_out(
        &mut self,
        bhs: &Bhs,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Destination {
        let pdu = DataOutPdu::view(bhs);
        let itt = pdu.initiator_task_tag.get();
        let ttt = pdu.target_transfer_tag.get();
        let Some(slot) = self.tasks.find(itt) else {
            if self.recent.contains(&itt) {
                return Destination::Discard;
            }
            return self.reject(bhs, code::reject::INVALID_PDU_FIELD, cx);
        };
        let task = &mut self.tasks[slot];
        let burst = if ttt == RESERVED_TAG {
            task.unsolicited.as_mut()
        } else {
            task.bursts.iter_mut().find(|burst| burst.ttt == ttt)
        };
        let Some(burst) = burst else {
            return self.reject(bhs, code::reject::INVALID_PDU_FIELD, cx);
        };
        let len = pdu.data_segment_length.get();
        let offset = pdu.buffer_offset.get();
        let is_final = pdu.flags & FLAG_FINAL != 0;
        // DataPDUInOrder and DataSequenceInOrder are always Yes here, and there is no recovery within a connection, so
        // a gap fails the command (RFC 7143, 7.9).
        let in_order = pdu.data_sn.get() == burst.data_sn && offset == burst.at;
        burst.data_sn = burst.data_sn.wrapping_add(1);
        if !in_order {
            task.failed.get_or_insert(CRC_ERROR);
        } else if len > burst.end - burst.at {
            task.failed.get_or_insert(INCORRECT_AMOUNT);
        }
        let tag = self.tasks.tag(slot);
        self.current = Current::DataOut {
            tag,
            ttt,
            len,
            is_final,
        };
        self.destination(slot, offset, len, cx.io)
    }

    /// Updates a burst after one of its Data-Out PDUs was received.
    pub(super) fn burst_moved(&mut self, slot: usize, ttt: u32, len: u32, is_final: bool) {
        let task = &mut self.tasks[slot];
        let solicited = ttt != RESERVED_TAG;
        let burst = if solicited {
            task.bursts.iter_mut().find(|burst| burst.ttt == ttt)
        } else {
            task.unsolicited.as_mut()
        };
        let Some(burst) = burst else { return };
        burst.at = burst.at.saturating_add(len).min(burst.end.max(burst.at));
        let full = burst.at == burst.end;
        task.got = task.got.saturating_add(len);
        if !is_final {
            return;
        }
        if solicited {
            if !full {
                task.failed.get_or_insert(INCORRECT_AMOUNT);
            }
            task.bursts.retain(|burst| burst.ttt != ttt);
        } else {
            task.unsolicited = None;
        }
    }

    /// The destination of `len` bytes at `offset` of a task's Data-Out.
    pub(super) fn destination(
        &mut self,
        slot: usize,
        offset: u32,
        len: u32,
        io: &mut impl ConnectionIo,
    ) -> Destination {
        let end = offset.saturating_add(len);
        let task = &mut self.tasks[slot];
        let collecting = matches!(task.phase, TaskPhase::Collecting | TaskPhase::Held);
        if !collecting || task.failed.is_some() || len == 0 {
            return Destination::Discard;
        }
        let limit = if task.phase == TaskPhase::Held {
            task.write_len.min(self.params.first_burst_length)
        } else {
            task.want
        };
        // Data beyond the command's length is dropped. A PDU that extends beyond that length is buffered whole, or
        // fails a command that receives directly into the medium.
        if offset >= limit {
            return Destination::Discard;
        }
        if let (Some(at), Some(lun)) = (task.inline, task.lun)
            && end <= limit
        {
            let (tag, offset) = (self.tasks.tag(slot), at + u64::from(offset));
            return Destination::Inline { lun, tag, offset };
        }
        if task.inline.is_some() {
            task.failed = Some(INCORRECT_AMOUNT);
            return Destination::Discard;
        }
        let have = task.buf.as_ref().map_or(0, |buf| buf.len());
        if have < end as usize {
            // Until the command gets its share of the byte budget, the buffer covers only the first burst, or as far
            // as this PDU reaches.
            let need = limit.min(self.params.first_burst_length.max(end)).max(end) as usize;
            self.tasks.replace_buf(slot, io.buffer(need));
        }
        match self.tasks[slot].buf.take() {
            Some(buf) => Destination::Buf(buf, offset as usize),
            None => Destination::Discard,
        }
    }

    pub(super) fn put_buf(&mut self, slot: usize, buf: Option<Buf>) {
        if let Some(buf) = buf {
            self.tasks[slot].buf = Some(buf);
        }
    }

    /// Advances a task: requests more data, starts it, or answers it.
    pub(super) fn advance(
        &mut self,
        slot: usize,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        let tag = self.tasks.tag(slot);
        let task = &mut self.tasks[slot];
        if task.unsolicited.is_some() {
            return;
        }
        match task.phase {
            TaskPhase::Answered => {
                let outcome = task
                    .outcome
                    .take()
                    .expect("a completed task has an outcome");
                let failed = task.failed.take();
                let outcome = failed.map_or(outcome, |sense| failure(tag, sense));
                self.respond(slot, outcome, cx);
                return;
            }
            TaskPhase::Collecting => {}
            _ => return,
        }
        if let Some(sense) = task.failed {
            // Respond only after the initiator has sent all requested data.
            if task.bursts.is_empty() {
                cx.io.abort(task.lun, tag);
                self.respond(slot, failure(tag, sense), cx);
            }
            return;
        }
        if task.next_r2t < task.got {
            task.next_r2t = task.got;
        }
        if task.next_r2t < task.want {
            let need = task.want as usize;
            if task.inline.is_none() && task.buf_bytes < need {
                if !self.tasks.has_room_for(slot, need) {
                    let task = &mut self.tasks[slot];
                    if !task.is_waiting {
                        task.is_waiting = true;
                        self.waiting.push_back(tag);
                    }
                    return;
                }
                self.tasks.replace_buf(slot, cx.io.buffer(need));
            }
            self.request_data(slot, cx);
            return;
        }
        if task.bursts.is_empty() && task.got >= task.want {
            self.start(slot, cx);
        }
    }

    /// Starts a task whose data has arrived.
    fn start(&mut self, slot: usize, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        let tag = self.tasks.tag(slot);
        let task = &mut self.tasks[slot];
        let data = if task.inline.is_some() && task.want > 0 {
            DataOut::Inline(task.want)
        } else {
            DataOut::Buf(task.buf.take().unwrap_or_else(Buf::empty), task.want)
        };
        if let DataOut::Buf(buf, len) = &data {
            assert!(
                buf.len() >= *len as usize,
                "a command starts once its data has arrived"
            );
        }
        task.phase = TaskPhase::Running;
        let lun = task.lun;
        if let Some(outcome) = cx.io.start(lun, tag, data) {
            self.respond(slot, outcome, cx);
        }
    }

    /// Sends as many R2Ts as may be outstanding.
    fn request_data(&mut self, slot: usize, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        while self.tasks[slot].bursts.len() < usize::from(self.params.max_outstanding_r2t)
            && self.tasks[slot].next_r2t < self.tasks[slot].want
        {
            let ttt = self.take_ttt();
            let task = &mut self.tasks[slot];
            let len = self.params.max_burst_length.min(task.want - task.next_r2t);
            assert!(
                len > 0 && task.want <= task.write_len,
                "R2Ts request only announced data"
            );
            let r2t = R2t {
                flags: FLAG_FINAL,
                lun: task.lun_field,
                initiator_task_tag: task.itt.into(),
                target_transfer_tag: ttt.into(),
                stat_sn: self.stat_sn.into(),
                exp_cmd_sn: cx.window.exp_cmd_sn().into(),
                max_cmd_sn: cx.window.max_cmd_sn().into(),
                r2t_sn: task.r2t_sn.into(),
                buffer_offset: task.next_r2t.into(),
                desired_data_transfer_length: len.into(),
                ..R2t::default()
            };
            cx.io.send(r2t.bhs(), &[]);
            task.bursts.push_back(DataOutBurst {
                ttt,
                at: task.next_r2t,
                end: task.next_r2t + len,
                data_sn: 0,
            });
            task.r2t_sn += 1;
            task.next_r2t += len;
        }
    }

    /// Requests data for tasks that waited for buffer space.
    pub(super) fn ask_waiting(&mut self, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        while let Some(tag) = self.waiting.front().copied() {
            if let Some(slot) = self.tasks.slot(tag) {
                let need = self.tasks[slot].want as usize;
                if !self.tasks.has_room_for(slot, need) {
                    return;
                }
                self.tasks[slot].is_waiting = false;
                self.waiting.pop_front();
                self.advance(slot, cx);
            } else {
                self.waiting.pop_front();
            }
        }
    }
}
