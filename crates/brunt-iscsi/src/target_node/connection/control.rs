//! PDUs of a connection without SCSI data: NOPs, text requests and logouts; also rejects PDUs. Task management is in
//! `task_management`. The one rule: like commands, these PDUs are processed in CmdSN order unless they are marked
//! immediate.

use brunt_wire::iscsi::pdu::{
    BHS_BYTES, Bhs, FLAG_FINAL, LogoutRequest, LogoutResponse, NopIn, NopOut, Opcode, RESERVED_TAG,
    Reject, TaskManagementRequest, TextRequest, U24, code,
};
use zerocopy::IntoBytes;

use super::io::{ConnectionContext, ConnectionIo, Destination};
use super::tasks::TaskPhase;
use super::{Current, TargetConnection};
use crate::target_node::session::{Reach, Turn};

impl TargetConnection {
    pub(super) fn on_control(
        &mut self,
        bhs: &Bhs,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Destination {
        // CmdSN is at the same offset in all four PDU types.
        let pdu = NopOut::view(bhs);
        let mut turn = Turn::Now;
        if bhs.is_immediate() {
        } else if bhs.kind() == Opcode::NopOut && pdu.initiator_task_tag.get() == RESERVED_TAG {
            // A response to our ping must be immediate (RFC 7143, 11.18).
            return self.reject(bhs, code::reject::INVALID_PDU_FIELD, cx);
        } else {
            turn = cx.window.arrive(pdu.cmd_sn.get(), self.id);
            if turn == Turn::Never {
                self.counters.ignored += 1;
                return Destination::Discard;
            }
        }
        self.current = Current::Control { bhs: *bhs, turn };
        Destination::Control
    }

    pub(super) fn control(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        match bhs.kind() {
            Opcode::NopOut => self.nop(NopOut::view(bhs), data, cx),
            Opcode::TaskManagementRequest => self.manage(TaskManagementRequest::view(bhs), cx),
            Opcode::TextRequest => self.text(bhs, data, cx),
            Opcode::LogoutRequest => self.logout(LogoutRequest::view(bhs), cx),
            _ => unreachable!("only these four PDUs are handled here"),
        }
    }

    fn nop(
        &mut self,
        pdu: &NopOut,
        data: &[u8],
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        if pdu.initiator_task_tag.get() == RESERVED_TAG {
            if self
                .ping
                .is_some_and(|(ttt, _)| ttt == pdu.target_transfer_tag.get())
            {
                self.ping = None;
            }
            return;
        }
        let data = &data[..data
            .len()
            .min(self.params.peer_max_recv_data_segment_length as usize)];
        let answer = NopIn {
            flags: FLAG_FINAL,
            data_segment_length: U24::new(data.len() as u32),
            lun: pdu.lun,
            initiator_task_tag: pdu.initiator_task_tag,
            target_transfer_tag: RESERVED_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: cx.window.exp_cmd_sn().into(),
            max_cmd_sn: cx.window.max_cmd_sn().into(),
            ..NopIn::default()
        };
        cx.io.send(answer.bhs(), data);
    }

    fn text(&mut self, bhs: &Bhs, data: &[u8], cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        let request = TextRequest::view(bhs);
        let ttt = self.take_ttt();
        match self
            .text
            .on_request(request, data, ttt, self.discovery, &mut self.params, cx.io)
        {
            Ok((mut response, data)) => {
                response.stat_sn = self.take_stat_sn().into();
                response.exp_cmd_sn = cx.window.exp_cmd_sn().into();
                response.max_cmd_sn = cx.window.max_cmd_sn().into();
                cx.io.send(response.bhs(), &data);
            }
            Err(reason) => drop(self.reject(bhs, reason, cx)),
        }
    }

    fn logout(&mut self, pdu: &LogoutRequest, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        let mut result = code::logout::SUCCESS;
        let mut close = false;
        match pdu.reason & code::logout::REASON_MASK {
            code::logout::CLOSE_SESSION => {
                cx.io.close_others(Reach::TargetSession(self.tsih));
                close = true;
            }
            code::logout::CLOSE_CONNECTION if pdu.cid.get() == self.cid => close = true,
            code::logout::CLOSE_CONNECTION => {
                if !cx.io.close_cid(pdu.cid.get()) {
                    result = code::logout::CID_NOT_FOUND;
                }
            }
            // Connection recovery needs error recovery level 2.
            _ => result = code::logout::RECOVERY_NOT_SUPPORTED,
        }
        if close {
            for slot in 0..self.tasks.len() {
                if self.tasks[slot].phase != TaskPhase::Free {
                    self.abort_task(slot, cx);
                }
            }
            // Release reservations before responding, so that the session is completely gone when the initiator gets
            // the response.
            let whole_session =
                pdu.reason & code::logout::REASON_MASK == code::logout::CLOSE_SESSION;
            cx.io.log_out(whole_session);
        }
        let response = LogoutResponse {
            flags: FLAG_FINAL,
            response: result,
            initiator_task_tag: pdu.initiator_task_tag,
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: cx.window.exp_cmd_sn().into(),
            max_cmd_sn: cx.window.max_cmd_sn().into(),
            time2wait: self.params.default_time2wait.into(),
            time2retain: self.params.default_time2retain.into(),
            ..LogoutResponse::default()
        };
        cx.io.send(response.bhs(), &[]);
        self.closing |= close;
    }

    /// Rejects a PDU (RFC 7143, 11.17); its data is discarded.
    pub(super) fn reject(
        &mut self,
        bhs: &Bhs,
        reason: u8,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Destination {
        self.counters.rejects += 1;
        let reject = Reject {
            flags: FLAG_FINAL,
            reason,
            data_segment_length: U24::new(BHS_BYTES as u32),
            initiator_task_tag: RESERVED_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: cx.window.exp_cmd_sn().into(),
            max_cmd_sn: cx.window.max_cmd_sn().into(),
            ..Reject::default()
        };
        cx.io.send(reject.bhs(), bhs.as_bytes());
        Destination::Discard
    }
}
