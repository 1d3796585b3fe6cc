//! The response to a command: data, status and residuals (RFC 7143, 11.4 and 11.7). Called once the outcome is
//! available. The one rule: a command is answered by exactly one PDU with a status, which carries the connection's next
//! StatSN.

use brunt_wire::iscsi::pdu::{
    DataIn as DataInPdu, FLAG_FINAL, RESERVED_TAG, ScsiResponse, U24, code,
};
use brunt_wire::scsi::sense::{ScsiStatus, Sense};

use super::TargetConnection;
use super::io::{ConnectionContext, ConnectionIo};
use super::tasks::IscsiTask;
use crate::scsi::{CommandOutcome, DataIn};

/// Differences between transferred and expected lengths.
struct Residuals {
    flags: u8,
    count: u32,
    bidirectional_read_count: u32,
}

impl Residuals {
    #[inline]
    fn of(task: &IscsiTask, data_in_len: u32, data_out_len: u32) -> Residuals {
        let (read_flag, read_count) = residual(data_in_len, task.read_len);
        let (write_flag, write_count) = residual(data_out_len, task.write_len);
        let (flags, count, bidirectional_read_count) = if task.bidirectional {
            // The bits for bidirectional reads are two positions higher.
            (write_flag | read_flag << 2, write_count, read_count)
        } else if task.write_len > 0 || (task.read_len == 0 && data_out_len > 0) {
            (write_flag, write_count, 0)
        } else {
            (read_flag, read_count, 0)
        };
        Residuals {
            flags,
            count,
            bidirectional_read_count,
        }
    }
}

impl TargetConnection {
    /// Answers a task and frees it.
    pub(super) fn respond(
        &mut self,
        slot: usize,
        outcome: CommandOutcome,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        self.answer(slot, outcome, cx);
        self.release(slot, cx.window);
    }

    /// Sends data, status and residuals.
    #[inline]
    pub(super) fn answer(
        &mut self,
        slot: usize,
        outcome: CommandOutcome,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        self.counters.commands += 1;
        let task = &self.tasks[slot];
        let available = match &outcome.data_in {
            DataIn::None => 0,
            DataIn::Bytes(bytes) => bytes.len() as u32,
            DataIn::Buf(_, len) | DataIn::Inline { len, .. } => *len,
        };
        let length = available.min(task.read_len);
        let residuals = Residuals::of(task, available, outcome.data_out_len);
        let numbers = (cx.window.exp_cmd_sn(), cx.window.max_cmd_sn());
        // The last Data-In PDU may carry the status if it is GOOD and there is only one direction (11.7.3).
        let rides = length > 0 && outcome.status == ScsiStatus::Good && !task.bidirectional;
        let mut data_in_pdus = 0;
        if length > 0 {
            self.counters.data_in_bytes += u64::from(length);
            self.cut_data_in(slot, length, numbers, rides.then_some(&residuals));
            cx.io
                .send_data_in(self.tasks[slot].lun, outcome.data_in, &self.pdus);
            if rides {
                self.take_stat_sn();
                return;
            }
            data_in_pdus = self.pdus.len() as u32;
        }
        let stat_sn = self.take_stat_sn();
        let task = &self.tasks[slot];
        let response = ScsiResponse {
            flags: FLAG_FINAL | residuals.flags,
            response: code::response::COMPLETED_AT_TARGET,
            status: outcome.status.to_byte(),
            initiator_task_tag: task.itt.into(),
            stat_sn: stat_sn.into(),
            exp_cmd_sn: numbers.0.into(),
            max_cmd_sn: numbers.1.into(),
            exp_data_sn: (data_in_pdus + task.r2t_sn).into(),
            bidirectional_read_residual_count: residuals.bidirectional_read_count.into(),
            residual_count: residuals.count.into(),
            ..ScsiResponse::default()
        };
        match outcome.sense {
            None => cx.io.send(response.bhs(), &[]),
            Some(sense) => {
                let sense = sense.to_bytes(cx.io.wants_descriptor_sense(task.lun));
                let mut data = (sense.len() as u16).to_be_bytes().to_vec();
                data.extend_from_slice(&sense);
                let response = ScsiResponse {
                    data_segment_length: U24::new(data.len() as u32),
                    ..response
                };
                cx.io.send(response.bhs(), &data);
            }
        }
    }

    /// Builds the Data-In PDUs of a command: no segment is longer than the initiator accepts, and no sequence is longer
    /// than MaxBurstLength. With `status`, the last PDU carries GOOD and the residuals.
    #[inline]
    fn cut_data_in(
        &mut self,
        slot: usize,
        length: u32,
        numbers: (u32, u32),
        status: Option<&Residuals>,
    ) {
        let segment = self.params.peer_max_recv_data_segment_length;
        let burst = self.params.max_burst_length;
        assert!(
            segment > 0 && burst > 0,
            "login accepts at least 512 bytes (RFC 7143, 13)"
        );
        let (exp_cmd_sn, max_cmd_sn) = numbers;
        let itt = self.tasks[slot].itt;
        let mut at = 0;
        let mut data_sn = 0;
        let mut burst_end = burst.min(length);
        self.pdus.clear();
        while at < length {
            let len = segment.min(burst_end - at);
            let end = at + len;
            let mut pdu = DataInPdu {
                flags: if end == burst_end { FLAG_FINAL } else { 0 },
                data_segment_length: U24::new(len),
                initiator_task_tag: itt.into(),
                target_transfer_tag: RESERVED_TAG.into(),
                exp_cmd_sn: exp_cmd_sn.into(),
                max_cmd_sn: max_cmd_sn.into(),
                data_sn: data_sn.into(),
                buffer_offset: at.into(),
                ..DataInPdu::default()
            };
            if let (true, Some(residuals)) = (end == length, status) {
                pdu.flags |= code::response::STATUS | residuals.flags;
                pdu.stat_sn = self.stat_sn.into();
                pdu.residual_count = residuals.count.into();
            }
            self.pdus.push((pdu.into(), at, len));
            data_sn += 1;
            at = end;
            if at == burst_end {
                burst_end = burst_end.saturating_add(burst).min(length);
            }
        }
    }
}

/// An outcome with CHECK CONDITION and this sense data.
pub(super) fn failure(tag: u64, sense: Sense) -> CommandOutcome {
    CommandOutcome {
        tag,
        status: ScsiStatus::CheckCondition,
        sense: Some(sense),
        data_in: DataIn::None,
        data_out_len: 0,
    }
}

/// Residual flag and count of one direction: available bytes compared with expected bytes.
fn residual(available: u32, expected: u32) -> (u8, u32) {
    match available.cmp(&expected) {
        std::cmp::Ordering::Greater => (code::response::OVERFLOW, available - expected),
        std::cmp::Ordering::Less => (code::response::UNDERFLOW, expected - available),
        std::cmp::Ordering::Equal => (0, 0),
    }
}
