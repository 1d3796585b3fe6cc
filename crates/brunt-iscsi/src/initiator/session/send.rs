//! Sends a session's PDUs: waiting tasks within the command window, and requested Data-Out. Called by the driver. The
//! one rule: data is sent only if it was negotiated as unsolicited or requested by an R2T.

use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::{
    self, Bhs, DataOut, RESERVED_TAG, ScsiCommand, U24, code, serial_before,
};

use super::connection::{DataRange, Outgoing, Queued, QueuedDataOut, SessionConnection};
use super::task::{InitiatorTask, TaskState, itt_of};
use super::{InitiatorSession, SessionConfig, SessionPhase};
use crate::initiator::command::DataDirection;

impl InitiatorSession {
    pub(super) fn window_is_open(&self) -> bool {
        !serial_before(self.max_cmd_sn, self.cmd_sn)
    }

    /// Issues waiting tasks on the connections, within the command window. Call before [`InitiatorSession::pull`].
    pub fn schedule(&mut self, now: Nanos) {
        if self.phase != SessionPhase::Running || now < self.hold_until {
            return;
        }
        while self.window_is_open() {
            let Some(index) = self.waiting.pop_front() else {
                break;
            };
            let (number, connection) = self
                .connections
                .iter_mut()
                .enumerate()
                .min_by_key(|(_, connection)| connection.outstanding)
                .expect("a running session has a connection");
            let task = &mut self.tasks[usize::from(index)];
            assert!(
                task.state == TaskState::Waiting,
                "only waiting tasks are issued"
            );
            task.state = TaskState::Issued { connection: number };
            task.generation = task.generation.wrapping_add(1);
            task.tries += 1;
            task.cmd_sn = self.cmd_sn;
            task.received = 0;
            task.exp_data_sn = 0;
            task.solicited = 0;
            task.exp_r2t_sn = 0;
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
            connection.outstanding += 1;
            connection.out.push_back(Queued::Command(index));
        }
    }

    /// The next PDU to send on a connection.
    pub fn pull(&mut self, number: usize) -> Option<Outgoing> {
        let connection = &mut self.connections[number];
        loop {
            match connection.out.pop_front()? {
                Queued::Bhs(mut bhs) => {
                    set_exp_stat_sn(&mut bhs, connection.exp_stat_sn);
                    return Some(Outgoing { bhs, data: None });
                }
                Queued::Command(index) => {
                    let task = &mut self.tasks[usize::from(index)];
                    return Some(command_pdu(&self.config, connection, index, task));
                }
                Queued::DataOut(queued) => {
                    let task = &self.tasks[usize::from(queued.task)];
                    // The target may respond before it has all data; the rest is then not sent.
                    let wanted = matches!(task.state, TaskState::Issued { .. })
                        && itt_of(queued.task, task.generation) == queued.itt;
                    if wanted {
                        return Some(data_out_pdu(&self.config, connection, queued, task));
                    }
                }
            }
        }
    }
}

/// The next Data-Out PDU of a sequence; the rest of the sequence is queued again.
fn data_out_pdu(
    config: &SessionConfig,
    connection: &mut SessionConnection,
    queued: QueuedDataOut,
    task: &InitiatorTask,
) -> Outgoing {
    let QueuedDataOut {
        task: index,
        itt,
        ttt,
        at,
        end,
        data_sn,
    } = queued;
    let len = (end - at).min(connection.params.peer_max_recv_data_segment_length);
    assert!(
        len > 0 && end <= task.command.data_len,
        "Data-Out stays within its command"
    );
    let last = at + len == end;
    let bhs = DataOut {
        flags: if last { pdu::FLAG_FINAL } else { 0 },
        data_segment_length: U24::new(len),
        lun: if ttt == RESERVED_TAG {
            [0; 8]
        } else {
            config.lun
        },
        initiator_task_tag: itt.into(),
        target_transfer_tag: ttt.into(),
        exp_stat_sn: connection.exp_stat_sn.into(),
        data_sn: data_sn.into(),
        buffer_offset: at.into(),
        ..DataOut::default()
    };
    if !last {
        connection.out.push_front(Queued::DataOut(QueuedDataOut {
            at: at + len,
            data_sn: data_sn + 1,
            ..queued
        }));
    }
    let data = DataRange {
        task: index,
        start: at as usize,
        len: len as usize,
    };
    Outgoing {
        bhs: bhs.into(),
        data: Some(data),
    }
}

pub(super) fn set_exp_stat_sn(bhs: &mut Bhs, exp_stat_sn: u32) {
    // ExpStatSN is in bytes 28 to 31 of every request (RFC 7143, 11).
    bhs.rest[8..12].copy_from_slice(&exp_stat_sn.to_be_bytes());
}

/// Builds a command's PDU, with as much immediate data as allowed. Queues the command's unsolicited Data-Out.
#[inline]
fn command_pdu(
    config: &SessionConfig,
    connection: &mut SessionConnection,
    index: u16,
    task: &mut InitiatorTask,
) -> Outgoing {
    let itt = itt_of(index, task.generation);
    let params = &connection.params;
    let mut pdu = ScsiCommand {
        flags: pdu::FLAG_FINAL | config.attribute.flags(),
        lun: config.lun,
        initiator_task_tag: itt.into(),
        expected_data_transfer_length: task.command.data_len.into(),
        cmd_sn: task.cmd_sn.into(),
        exp_stat_sn: connection.exp_stat_sn.into(),
        cdb: task.command.cdb,
        ..ScsiCommand::default()
    };
    let mut data = None;
    match task.command.direction {
        DataDirection::None => {}
        DataDirection::In => pdu.flags |= code::command::READ,
        DataDirection::Out => {
            pdu.flags |= code::command::WRITE;
            let first_burst = params.first_burst_length.min(task.command.data_len);
            let immediate = match params.immediate_data {
                true => first_burst.min(params.peer_max_recv_data_segment_length),
                false => 0,
            };
            if immediate > 0 {
                pdu.data_segment_length = U24::new(immediate);
                data = Some(DataRange {
                    task: index,
                    start: 0,
                    len: immediate as usize,
                });
            }
            task.solicited = immediate;
            if !params.initial_r2t && immediate < first_burst {
                pdu.flags &= !pdu::FLAG_FINAL;
                task.solicited = first_burst;
                connection.out.push_front(Queued::DataOut(QueuedDataOut {
                    task: index,
                    itt,
                    ttt: RESERVED_TAG,
                    at: immediate,
                    end: first_burst,
                    data_sn: 0,
                }));
            }
        }
    }
    Outgoing {
        bhs: pdu.into(),
        data,
    }
}
