//! Tests full-feature phase with a logical unit that keeps its blocks in a vector: the input is PDUs as sent by an
//! initiator, and the checks are on the PDUs that it would receive.

use std::collections::HashMap;
use std::time::Duration;

use brunt_block::Buf;
use brunt_core::random::Random;
use brunt_wire::iscsi::pdu::{
    BHS_BYTES, DataIn as DataInPdu, DataOut as DataOutPdu, LogoutRequest, LogoutResponse,
    OPCODE_IMMEDIATE, R2t, Reject, ScsiCommand, ScsiResponse, SnackRequest, TaskManagementRequest,
    TaskManagementResponse, TextRequest, U24, lun_field,
};
use brunt_wire::iscsi::text::push_pair;
use zerocopy::IntoBytes;

use super::command::{INCORRECT_AMOUNT, UNEXPECTED_UNSOLICITED};
use super::response::failure;
use super::tasks::BUFFERED_BYTES_MAX;
use super::*;
use crate::scsi::{DataIn, TransportCommand};
use crate::target_node::session::Reach;

/// CDB byte 0: 0x28 reads and 0x2a writes `cdb[1..5]` bytes at `cdb[5..9]`; 0x2b is a write that the device holds until
/// released; 0x00 does nothing; anything else is refused.
struct Fake {
    medium: Vec<u8>,
    wants: HashMap<u64, (u8, u32, u32)>,
    stuck: Vec<u64>,
    sent: Vec<(Bhs, Vec<u8>)>,
    managed: Vec<u8>,
    is_managed: std::rc::Rc<std::cell::Cell<bool>>,
    inline: bool,
    closed_elsewhere: bool,
}

impl Fake {
    fn new() -> Fake {
        Fake {
            medium: (0..1 << 17).map(|i: u32| (i % 251) as u8).collect(),
            wants: HashMap::new(),
            stuck: Vec::new(),
            sent: Vec::new(),
            managed: Vec::new(),
            is_managed: std::rc::Rc::new(std::cell::Cell::new(true)),
            inline: false,
            closed_elsewhere: false,
        }
    }

    fn done(tag: u64, data_in: DataIn, data_out_len: u32) -> CommandOutcome {
        CommandOutcome {
            tag,
            status: ScsiStatus::Good,
            sense: None,
            data_in,
            data_out_len,
        }
    }
}

impl ConnectionIo for Fake {
    fn begin(&mut self, _lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun {
        let word = |at: usize| u32::from_be_bytes(command.cdb[at..at + 4].try_into().unwrap());
        let (len, offset) = (word(1), word(5));
        match command.cdb[0] {
            0x28 => {
                let data = self.medium[offset as usize..(offset + len) as usize].to_vec();
                CommandBegun::Done(Fake::done(command.tag, DataIn::Bytes(data), 0))
            }
            op @ (0x2a | 0x2b) => {
                self.wants.insert(command.tag, (op, offset, len));
                let inline = self.inline.then_some(u64::from(offset));
                CommandBegun::Wants { len, inline }
            }
            0x00 => CommandBegun::Done(Fake::done(command.tag, DataIn::None, 0)),
            _ => CommandBegun::Done(failure(
                command.tag,
                Sense::new(key::ILLEGAL_REQUEST, 0x20, 0),
            )),
        }
    }

    fn start(&mut self, _lun: Option<u16>, tag: u64, data: DataOut) -> Option<CommandOutcome> {
        let (op, offset, len) = self.wants.remove(&tag).expect("started once");
        if let DataOut::Buf(buf, got) = data {
            let got = got as usize;
            self.medium[offset as usize..offset as usize + got].copy_from_slice(&buf[..got]);
        }
        if op == 0x2b {
            self.stuck.push(tag);
            return None;
        }
        Some(Fake::done(tag, DataIn::None, len))
    }

    fn abort(&mut self, _lun: Option<u16>, tag: u64) {
        self.wants.remove(&tag);
    }

    fn manage(&mut self, function: u8, _lun: Option<u16>) -> Vec<IsDone> {
        self.managed.push(function);
        let is_done = std::rc::Rc::clone(&self.is_managed);
        vec![Box::new(move || is_done.get())]
    }

    fn has_lun(&self, lun: u16) -> bool {
        lun == 0
    }

    fn wants_descriptor_sense(&self, _lun: Option<u16>) -> bool {
        false
    }

    fn buffer(&mut self, len: usize) -> Buf {
        Buf::zeroed(len)
    }

    fn send(&mut self, bhs: &Bhs, data: &[u8]) {
        assert_eq!(bhs.data_len(), data.len());
        self.sent.push((*bhs, data.to_vec()));
    }

    fn send_data_in(&mut self, _lun: Option<u16>, data: DataIn, pdus: &[(Bhs, u32, u32)]) {
        let DataIn::Bytes(bytes) = data else {
            panic!("the fake answers with bytes")
        };
        for (bhs, start, len) in pdus {
            self.send(bhs, &bytes[*start as usize..(*start + *len) as usize]);
        }
    }

    fn log_out(&mut self, _whole_session: bool) {}

    fn close_elsewhere(&mut self, _reach: Reach) {
        self.closed_elsewhere = true;
    }

    fn close_cid(&mut self, cid: u16) -> bool {
        cid == 1
    }

    fn describe_targets(&self) -> Vec<(String, Vec<String>)> {
        vec![(
            "iqn.t".into(),
            vec!["127.0.0.1:3260,1".into(), "[::1]:3260,1".into()],
        )]
    }
}

struct Bench {
    connection: TargetConnection,
    window: CommandWindow,
    io: Fake,
    cmd_sn: u32,
    itt: u32,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Params)) -> Bench {
        let mut params = Params {
            initial_r2t: false,
            max_recv_data_segment_length: 8192,
            peer_max_recv_data_segment_length: 4096,
            max_burst_length: 16384,
            first_burst_length: 8192,
            max_outstanding_r2t: 2,
            ..Params::default()
        };
        change(&mut params);
        Bench {
            connection: TargetConnection::new(1, 1, 0, false, params, 10),
            window: CommandWindow::new(100),
            io: Fake::new(),
            cmd_sn: 100,
            itt: 0,
        }
    }

    /// Processes one PDU with its data; returns what was sent since the previous call.
    fn pdu(&mut self, bhs: impl Into<Bhs>, data: &[u8], digest_ok: bool) -> Vec<(Bhs, Vec<u8>)> {
        let mut bhs = bhs.into();
        bhs.data_segment_length = U24::new(data.len() as u32);
        let Bench {
            connection: c,
            window,
            io,
            ..
        } = self;
        let cx = &mut ConnectionContext { window, io };
        match c.on_header(&bhs, &[], cx).expect("the connection goes on") {
            Destination::None => assert!(data.is_empty()),
            Destination::Discard => c.on_data(Received::Elsewhere, digest_ok, cx),
            Destination::Control => c.on_data(Received::Control(data), digest_ok, cx),
            Destination::Buf(mut buf, start) => {
                buf[start..start + data.len()].copy_from_slice(data);
                c.on_data(Received::Buf(buf), digest_ok, cx);
            }
            Destination::Inline { offset, .. } => {
                cx.io.medium[offset as usize..offset as usize + data.len()].copy_from_slice(data);
                c.on_data(Received::Elsewhere, digest_ok, cx);
            }
        }
        std::mem::take(&mut self.io.sent)
    }

    fn command(&mut self, op: u8, flags: u8, expected: u32, len: u32, offset: u32) -> ScsiCommand {
        self.itt += 1;
        let mut cdb = [0; 16];
        cdb[0] = op;
        cdb[1..5].copy_from_slice(&len.to_be_bytes());
        cdb[5..9].copy_from_slice(&offset.to_be_bytes());
        let pdu = ScsiCommand {
            flags,
            lun: lun_field(0),
            initiator_task_tag: self.itt.into(),
            expected_data_transfer_length: expected.into(),
            cmd_sn: self.cmd_sn.into(),
            cdb,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        pdu
    }

    fn data_out(
        &mut self,
        itt: u32,
        ttt: u32,
        sn: u32,
        offset: u32,
        data: &[u8],
        last: bool,
    ) -> Vec<(Bhs, Vec<u8>)> {
        let pdu = DataOutPdu {
            flags: if last { FLAG_FINAL } else { 0 },
            initiator_task_tag: itt.into(),
            target_transfer_tag: ttt.into(),
            data_sn: sn.into(),
            buffer_offset: offset.into(),
            ..DataOutPdu::default()
        };
        self.pdu(pdu, data, true)
    }

    /// Sends an immediate task management request; returns what was sent since the previous call.
    fn manage(&mut self, function: u8, rtt: u32, lun: u16) -> Vec<(Bhs, Vec<u8>)> {
        let pdu = TaskManagementRequest {
            opcode: 0x02 | OPCODE_IMMEDIATE,
            function: 0x80 | function,
            lun: lun_field(lun),
            initiator_task_tag: 0x9000.into(),
            referenced_task_tag: rtt.into(),
            ref_cmd_sn: 5.into(),
            ..TaskManagementRequest::default()
        };
        self.pdu(pdu, &[], true)
    }
}

const READ: u8 = 0xc0;
const WRITE: u8 = 0xa0;
const WRITE_MORE: u8 = 0x20;

fn response(pdus: &[(Bhs, Vec<u8>)]) -> ScsiResponse {
    assert_eq!(
        pdus.last().expect("something was sent").0.kind(),
        Opcode::ScsiResponse
    );
    *ScsiResponse::view(&pdus.last().unwrap().0)
}

fn sense_of(pdus: &[(Bhs, Vec<u8>)]) -> Option<Sense> {
    response(pdus);
    let data = &pdus.last().unwrap().1;
    data.get(2..).and_then(Sense::parse)
}

/// Read data comes in segments and bursts as negotiated, with the status in the last PDU.
#[test]
fn read_data_comes_in_the_negotiated_segments_and_bursts() {
    let mut bench = Bench::new(|p| p.max_burst_length = 8192);
    let command = bench.command(0x28, READ, 20_000, 20_000, 7);
    let sent = bench.pdu(command, &[], true);
    assert_eq!(sent.len(), 5);
    let mut data = Vec::new();
    for (index, (bhs, bytes)) in sent.iter().enumerate() {
        let pdu = DataInPdu::view(bhs);
        assert_eq!(pdu.data_sn.get(), index as u32);
        assert_eq!(pdu.buffer_offset.get() as usize, data.len());
        // 4096, 4096 | 4096, 4096 | 3616 with status: F ends each burst.
        let last = index == 4;
        assert_eq!(
            pdu.flags & FLAG_FINAL != 0,
            last || index % 2 == 1,
            "{index}"
        );
        assert_eq!(pdu.flags & code::response::STATUS != 0, last);
        data.extend_from_slice(bytes);
        if last {
            assert_eq!(pdu.stat_sn.get(), 10);
        }
    }
    assert_eq!(data, bench.io.medium[7..20_007]);
}

/// Residuals are the difference between available and expected data (RFC 7143, 11.4.5).
#[test]
fn residuals_are_the_difference_between_available_and_expected() {
    let check = |op: u8, flags: u8, expected: u32, len: u32, flag: u8, residual: u32| {
        let mut bench = Bench::new(|_| ());
        let command = bench.command(op, flags, expected, len, 0);
        let data = vec![1; if flags == WRITE { expected as usize } else { 0 }];
        let sent = bench.pdu(command, &data, true);
        let (bhs, _) = sent.last().unwrap();
        let (flags, count) = match bhs.kind() {
            Opcode::DataIn => (bhs.flags, DataInPdu::view(bhs).residual_count.get()),
            _ => (bhs.flags, ScsiResponse::view(bhs).residual_count.get()),
        };
        assert_eq!(
            (flags & 0x06, count),
            (flag, residual),
            "{op:#x} {expected} {len}"
        );
    };
    use code::response::{OVERFLOW, UNDERFLOW};
    check(0x28, READ, 512, 512, 0, 0);
    check(0x28, READ, 1024, 512, UNDERFLOW, 512);
    check(0x28, READ, 512, 1024, OVERFLOW, 512);
    check(0x28, 0x80, 0, 1024, OVERFLOW, 1024);
    check(0x00, READ, 512, 0, UNDERFLOW, 512);
    check(0x2a, WRITE, 512, 512, 0, 0);
    check(0x2a, WRITE, 1024, 512, UNDERFLOW, 512);
    check(0x2a, WRITE, 512, 1024, OVERFLOW, 512);
}

/// Immediate data, unsolicited data and several R2Ts at once transfer the right bytes, both through
/// buffers and directly into the medium.
#[test]
fn all_kinds_of_write_data_transfer_the_right_bytes() {
    for inline in [false, true] {
        let mut bench = Bench::new(|_| ());
        bench.io.inline = inline;
        let data: Vec<u8> = (0..60_000u32).map(|i| (i * 7) as u8).collect();
        let command = bench.command(0x2a, WRITE_MORE, 60_000, 60_000, 100);
        let itt = command.initiator_task_tag.get();
        assert!(bench.pdu(command, &data[..4096], true).is_empty());
        let sent = bench.data_out(itt, RESERVED_TAG, 0, 4096, &data[4096..8192], true);
        let asked: Vec<R2t> = sent.iter().map(|(bhs, _)| *R2t::view(bhs)).collect();
        assert_eq!(asked.len(), 2);
        let mut queue: VecDeque<R2t> = asked.into();
        let mut last = Vec::new();
        let mut count = 0;
        while let Some(r2t) = queue.pop_front() {
            assert_eq!(r2t.r2t_sn.get(), count);
            count += 1;
            let start = r2t.buffer_offset.get();
            let end = start + r2t.desired_data_transfer_length.get();
            let mut at = start;
            let mut sn = 0;
            while at < end {
                let to = (at + 8192).min(end);
                let ttt = r2t.target_transfer_tag.get();
                last = bench.data_out(itt, ttt, sn, at, &data[at as usize..to as usize], to == end);
                queue.extend(
                    last.iter()
                        .filter(|(bhs, _)| bhs.kind() == Opcode::R2t)
                        .map(|(bhs, _)| *R2t::view(bhs)),
                );
                sn += 1;
                at = to;
            }
        }
        assert_eq!(response(&last).status, 0);
        assert_eq!(response(&last).exp_data_sn.get(), 4);
        assert!(bench.io.medium[100..60_100] == data[..], "inline: {inline}");
        assert_eq!(bench.connection.outstanding(), 0);
        assert_eq!(bench.connection.tasks.buffered_bytes(), 0);
    }
}

/// Unsolicited data that isn't allowed or exceeds the limit fails the command with the sense data of RFC 7143,
/// 11.4.7.2, but only after the initiator has finished its sequence.
#[test]
fn invalid_unsolicited_data_fails_the_command() {
    let check = |change: fn(&mut Params), flags: u8, immediate: usize, sense: Sense| {
        let mut bench = Bench::new(change);
        let command = bench.command(0x2a, flags, 16_384, 16_384, 0);
        let itt = command.initiator_task_tag.get();
        let mut sent = bench.pdu(command, &vec![1; immediate], true);
        if flags == WRITE_MORE {
            assert!(sent.is_empty(), "the sequence is not over");
            sent = bench.data_out(itt, RESERVED_TAG, 0, immediate as u32, &[1; 512], true);
        }
        assert_eq!(sense_of(&sent), Some(sense));
        assert_eq!(bench.connection.outstanding(), 0);
    };
    check(
        |p| p.immediate_data = false,
        WRITE,
        512,
        UNEXPECTED_UNSOLICITED,
    );
    check(
        |p| p.initial_r2t = true,
        WRITE_MORE,
        512,
        UNEXPECTED_UNSOLICITED,
    );
    check(
        |p| p.first_burst_length = 1024,
        WRITE,
        2048,
        INCORRECT_AMOUNT,
    );
    check(
        |p| p.first_burst_length = 1024,
        WRITE_MORE,
        1000,
        INCORRECT_AMOUNT,
    );
}

/// Gaps, repeats and missing data in a solicited sequence fail the command at the end of the sequence; data for unknown
/// tasks is rejected; none of it reaches the medium.
#[test]
fn invalid_solicited_data_fails_the_command() {
    let check = |sn: u32, offset: u32, len: usize, sense: Sense| {
        let mut bench = Bench::new(|p| p.initial_r2t = true);
        let before = bench.io.medium.clone();
        let command = bench.command(0x2a, WRITE, 8192, 8192, 0);
        let itt = command.initiator_task_tag.get();
        let sent = bench.pdu(command, &[], true);
        let ttt = R2t::view(&sent[0].0).target_transfer_tag.get();
        let sent = bench.data_out(itt, ttt, sn, offset, &vec![9; len], true);
        assert_eq!(sense_of(&sent), Some(sense), "{sn} {offset} {len}");
        assert!(bench.io.medium == before);
        assert_eq!(bench.connection.outstanding(), 0);
    };
    check(27, 0, 8192, CRC_ERROR);
    check(u32::MAX, 0, 8192, CRC_ERROR);
    check(0, 512, 4096, CRC_ERROR);
    check(0, u32::MAX, 4096, CRC_ERROR);
    check(0, 0, 4096, INCORRECT_AMOUNT);
    let mut bench = Bench::new(|_| ());
    let sent = bench.data_out(77, 5, 0, 0, &[1; 64], true);
    assert_eq!(
        Reject::view(&sent[0].0).reason,
        code::reject::INVALID_PDU_FIELD
    );
    assert_eq!(sent[0].1.len(), BHS_BYTES);
}

/// A wrong data digest is rejected and ends the command with CHECK CONDITION.
#[test]
fn a_wrong_data_digest_is_rejected_and_ends_the_command() {
    let mut bench = Bench::new(|_| ());
    let command = bench.command(0x2a, WRITE, 512, 512, 0);
    let sent = bench.pdu(command, &[3; 512], false);
    assert_eq!(
        Reject::view(&sent[0].0).reason,
        code::reject::DATA_DIGEST_ERROR
    );
    assert_eq!(sense_of(&sent), Some(CRC_ERROR));
    assert_eq!(bench.connection.counters().digest_errors, 1);
    assert_eq!(bench.io.medium[0..2], [0, 1]);
}

/// Commands run in CmdSN order; numbers outside the window and duplicates have no effect.
#[test]
fn commands_run_in_cmd_sn_order() {
    let mut bench = Bench::new(|_| ());
    let first = bench.command(0x00, 0x80, 0, 0, 0);
    let write = bench.command(0x2a, WRITE, 512, 512, 0);
    let read = bench.command(0x28, READ, 512, 512, 0);
    assert!(bench.pdu(read, &[], true).is_empty());
    assert!(bench.pdu(write, &[7; 512], true).is_empty());
    assert!(bench.pdu(write, &[8; 512], true).is_empty(), "a duplicate");
    let sent = bench.pdu(first, &[], true);
    let kinds: Vec<Opcode> = sent.iter().map(|(bhs, _)| bhs.kind()).collect();
    assert_eq!(
        kinds,
        [Opcode::ScsiResponse, Opcode::ScsiResponse, Opcode::DataIn]
    );
    assert_eq!(sent[2].1, [7; 512]);
    for cmd_sn in [99, 103 + super::super::session::WINDOW_COMMANDS_MAX] {
        let mut command = bench.command(0x00, 0x80, 0, 0, 0);
        command.cmd_sn = cmd_sn.into();
        assert!(bench.pdu(command, &[], true).is_empty());
    }
    assert_eq!(bench.connection.counters().ignored, 3);
}

/// Invalid PDUs get the Reject of RFC 7143, 11.17.1.
#[test]
fn invalid_pdus_are_rejected_with_the_reason_of_the_rfc() {
    let check = |bhs: Bhs, reason: u8| {
        let mut bench = Bench::new(|_| ());
        let sent = bench.pdu(bhs, &[], true);
        assert_eq!(sent[0].0.kind(), Opcode::Reject, "{bhs:?}");
        assert_eq!(Reject::view(&sent[0].0).reason, reason);
        assert_eq!(sent[0].1, bhs.as_bytes());
    };
    check(SnackRequest::default().into(), code::reject::SNACK_REJECT);
    check(
        brunt_wire::iscsi::pdu::LoginRequest::default().into(),
        code::reject::PROTOCOL_ERROR,
    );
    check(NopIn::default().into(), code::reject::COMMAND_NOT_SUPPORTED);
    let mut bench = Bench::new(|_| ());
    let command = bench.command(0x2a, WRITE, 512, 512, 0);
    bench.pdu(command, &[], true);
    let mut again = bench.command(0x00, 0x80, 0, 0, 0);
    again.initiator_task_tag = command.initiator_task_tag;
    let sent = bench.pdu(again, &[], true);
    assert_eq!(
        Reject::view(&sent[0].0).reason,
        code::reject::TASK_IN_PROGRESS
    );
}

/// Task management responds as in 11.6.1, ends the right tasks, and waits for those that the device still has.
#[test]
fn task_management_ends_the_right_tasks_and_waits_for_the_device() {
    use code::task_management as tm;
    let code_of = |sent: &[(Bhs, Vec<u8>)]| TaskManagementResponse::view(&sent[0].0).response;
    let mut bench = Bench::new(|_| ());
    assert_eq!(
        code_of(&bench.manage(tm::ABORT_TASK, 55, 0)),
        tm::TASK_DOES_NOT_EXIST
    );
    assert_eq!(
        code_of(&bench.manage(tm::LOGICAL_UNIT_RESET, 0, 9)),
        tm::LUN_DOES_NOT_EXIST
    );
    assert_eq!(
        code_of(&bench.manage(tm::TASK_REASSIGN, 0, 0)),
        tm::REASSIGNMENT_NOT_SUPPORTED
    );
    assert_eq!(
        code_of(&bench.manage(tm::CLEAR_ACA, 0, 0)),
        tm::NOT_SUPPORTED
    );
    assert_eq!(code_of(&bench.manage(99, 0, 0)), tm::NOT_SUPPORTED);
    // A write that waits for its data.
    let command = bench.command(0x2a, WRITE, 16_384, 16_384, 0);
    let itt = command.initiator_task_tag.get();
    let sent = bench.pdu(command, &[], true);
    let ttt = R2t::view(&sent[0].0).target_transfer_tag.get();
    assert_eq!(
        code_of(&bench.manage(tm::ABORT_TASK, itt, 0)),
        tm::FUNCTION_COMPLETE
    );
    assert!(
        bench.data_out(itt, ttt, 0, 0, &[1; 8192], false).is_empty(),
        "late data is dropped"
    );
    // A write that the device has.
    let command = bench.command(0x2b, WRITE, 512, 512, 0);
    assert!(bench.pdu(command, &[1; 512], true).is_empty());
    let itt = command.initiator_task_tag.get();
    assert!(
        bench.manage(tm::ABORT_TASK, itt, 0).is_empty(),
        "the task is not gone"
    );
    let tag = bench.io.stuck[0];
    let Bench {
        connection: c,
        window,
        io,
        ..
    } = &mut bench;
    let cx = &mut ConnectionContext { window, io };
    c.on_outcome(Fake::done(tag, DataIn::None, 512), cx);
    c.look_at_functions(cx);
    let sent = std::mem::take(&mut bench.io.sent);
    assert_eq!(sent.len(), 1, "an aborted task is not answered");
    assert_eq!(code_of(&sent), tm::FUNCTION_COMPLETE);
    assert_eq!(bench.connection.outstanding(), 0);
    // A reset: each task ends with its own outcome, and the function ends when all connections are done.
    let command = bench.command(0x2a, WRITE, 512, 512, 0);
    bench.pdu(command, &[], true);
    bench.io.is_managed.set(false);
    assert!(bench.manage(tm::LOGICAL_UNIT_RESET, 0, 0).is_empty());
    let tag = *bench.io.wants.keys().next().unwrap();
    let Bench {
        connection: c,
        window,
        io,
        ..
    } = &mut bench;
    let cx = &mut ConnectionContext { window, io };
    let aborted = CommandOutcome {
        status: ScsiStatus::TaskAborted,
        ..Fake::done(tag, DataIn::None, 0)
    };
    c.on_outcome(aborted, cx);
    c.look_at_functions(cx);
    assert!(cx.io.sent.is_empty());
    cx.io.is_managed.set(true);
    c.look_at_functions(cx);
    assert_eq!(
        code_of(&std::mem::take(&mut bench.io.sent)),
        tm::FUNCTION_COMPLETE
    );
    assert_eq!(bench.io.managed, [tm::LOGICAL_UNIT_RESET]);
    assert_eq!(bench.connection.outstanding(), 0);
    let sent = bench.manage(tm::TARGET_COLD_RESET, 0, 0);
    assert_eq!(code_of(&sent), tm::FUNCTION_COMPLETE);
    assert!(bench.connection.is_closing() && bench.io.closed_elsewhere);
}

/// A task that hasn't arrived yet can be aborted; its number counts as used.
#[test]
fn a_task_can_be_aborted_before_it_arrives() {
    let mut bench = Bench::new(|_| ());
    let pdu = TaskManagementRequest {
        opcode: 0x02 | OPCODE_IMMEDIATE,
        function: 0x81,
        initiator_task_tag: 0x9000.into(),
        referenced_task_tag: 1.into(),
        ref_cmd_sn: 100.into(),
        cmd_sn: 101.into(),
        ..TaskManagementRequest::default()
    };
    let sent = bench.pdu(pdu, &[], true);
    assert_eq!(TaskManagementResponse::view(&sent[0].0).response, 0);
    let late = bench.command(0x00, 0x80, 0, 0, 0);
    assert!(bench.pdu(late, &[], true).is_empty());
    let next = bench.command(0x00, 0x80, 0, 0, 0);
    assert_eq!(bench.pdu(next, &[], true).len(), 1);
}

/// A function that references its own or a later CmdSN aborts nothing and drops no command (RFC 7143, 11.6.1).
#[test]
fn an_abort_of_a_later_command_drops_no_command() {
    let mut bench = Bench::new(|_| ());
    for ref_cmd_sn in [100, 101, 103] {
        let pdu = TaskManagementRequest {
            opcode: 0x02 | OPCODE_IMMEDIATE,
            function: 0x81,
            initiator_task_tag: 0x9000.into(),
            referenced_task_tag: 0x4444.into(),
            ref_cmd_sn: ref_cmd_sn.into(),
            cmd_sn: 100.into(),
            ..TaskManagementRequest::default()
        };
        let sent = bench.pdu(pdu, &[], true);
        let answer = TaskManagementResponse::view(&sent[0].0).response;
        assert_eq!(
            answer,
            code::task_management::TASK_DOES_NOT_EXIST,
            "{ref_cmd_sn}"
        );
    }
    for _ in 0..5 {
        let command = bench.command(0x00, 0x80, 0, 0, 0);
        assert_eq!(bench.pdu(command, &[], true).len(), 1);
    }
}

/// Both sides can ping; a peer that doesn't respond is disconnected.
#[test]
fn a_peer_that_does_not_answer_pings_is_disconnected() {
    let mut bench = Bench::new(|_| ());
    let ping = NopOut {
        opcode: OPCODE_IMMEDIATE,
        initiator_task_tag: 3.into(),
        target_transfer_tag: RESERVED_TAG.into(),
        ..NopOut::default()
    };
    let sent = bench.pdu(ping, b"hello", true);
    assert_eq!(
        (sent[0].0.kind(), &sent[0].1[..]),
        (Opcode::NopIn, &b"hello"[..])
    );
    let keep_alive = KeepAlive {
        idle: Duration::from_secs(10),
        patience: Duration::from_secs(5),
    };
    let second = 1_000_000_000;
    let Bench {
        connection,
        window,
        io,
        ..
    } = &mut bench;
    let cx = &mut ConnectionContext { window, io };
    let mut look = |at: u64, heard| connection.on_time(Nanos(at * second), heard, keep_alive, cx);
    assert_eq!(look(1, true), Ok(Nanos(11 * second)));
    assert_eq!(look(5, false), Ok(Nanos(11 * second)));
    assert_eq!(look(12, false), Ok(Nanos(17 * second)));
    assert_eq!(look(13, true), Ok(Nanos(23 * second)));
    assert_eq!(look(24, false), Ok(Nanos(29 * second)));
    assert!(look(29, false).is_err());
    assert_eq!(bench.io.sent.len(), 2);
}

/// Logout, for each reason (11.14.1, 11.15.1).
#[test]
fn each_logout_reason_gets_its_response() {
    let check = |reason: u8, cid: u16, response: u8, closes: bool| {
        let mut bench = Bench::new(|_| ());
        let pdu = LogoutRequest {
            opcode: 0x06 | OPCODE_IMMEDIATE,
            reason: 0x80 | reason,
            cid: cid.into(),
            ..LogoutRequest::default()
        };
        let sent = bench.pdu(pdu, &[], true);
        assert_eq!(
            LogoutResponse::view(&sent[0].0).response,
            response,
            "reason {reason}"
        );
        assert_eq!(bench.connection.is_closing(), closes);
    };
    check(0, 0, 0, true);
    check(1, 0, 0, true);
    check(1, 1, 0, false);
    check(1, 9, 1, false);
    check(2, 0, 2, false);
}

/// SendTargets as in appendix C of RFC 7143, in pieces if the initiator accepts no more, and other keys of full-feature
/// phase.
#[test]
fn send_targets_is_answered_in_pieces_as_in_the_rfc() {
    let ask = |discovery: bool, room: u32, key: &str, value: &str| -> String {
        let params = Params {
            peer_max_recv_data_segment_length: room,
            ..Params::default()
        };
        let mut bench = Bench::new(|_| ());
        bench.connection = TargetConnection::new(1, 1, 0, discovery, params, 10);
        let mut data = Vec::new();
        push_pair(&mut data, key, value);
        let mut request = TextRequest {
            opcode: 0x04 | OPCODE_IMMEDIATE,
            flags: FLAG_FINAL,
            target_transfer_tag: RESERVED_TAG.into(),
            ..TextRequest::default()
        };
        let mut text = Vec::new();
        for _ in 0..10 {
            let sent = bench.pdu(request, &data, true);
            assert!(sent[0].1.len() <= room as usize);
            text.extend_from_slice(&sent[0].1);
            if sent[0].0.flags & FLAG_FINAL != 0 {
                return String::from_utf8(text).unwrap().replace('\0', ";");
            }
            data.clear();
            request.target_transfer_tag =
                brunt_wire::iscsi::pdu::TextResponse::view(&sent[0].0).target_transfer_tag;
        }
        panic!("no end");
    };
    let all = "TargetName=iqn.t;TargetAddress=127.0.0.1:3260,1;TargetAddress=[::1]:3260,1;";
    assert_eq!(ask(true, 8192, "SendTargets", "All"), all);
    assert_eq!(ask(true, 20, "SendTargets", "All"), all);
    assert_eq!(ask(true, 8192, "SendTargets", "iqn.t"), all);
    assert_eq!(ask(true, 8192, "SendTargets", "iqn.other"), "");
    assert_eq!(ask(false, 8192, "SendTargets", ""), all);
    assert_eq!(ask(false, 8192, "SendTargets", "All"), all);
    // With a second pair, the request gets a response.
    assert_eq!(
        ask(false, 8192, "X-key", "1\0SendTargets="),
        format!("X-key=NotUnderstood;{all}")
    );
    assert_eq!(
        ask(false, 8192, "MaxBurstLength", "512"),
        "MaxBurstLength=Reject;"
    );
}

/// Buffers are bounded: the data of a one-gigabyte write is requested piece by piece.
#[test]
fn buffers_are_bounded() {
    let mut bench = Bench::new(|p| p.initial_r2t = true);
    let mut asked = 0;
    for _ in 0..100 {
        let command = bench.command(0x2a, WRITE, 16 << 20, 16 << 20, 0);
        asked += usize::from(!bench.pdu(command, &[], true).is_empty());
    }
    assert_eq!(asked, BUFFERED_BYTES_MAX / (16 << 20));
    assert!(bench.connection.tasks.buffered_bytes() <= BUFFERED_BYTES_MAX);
    let Bench {
        connection,
        window,
        io,
        ..
    } = &mut bench;
    connection.on_end(&mut ConnectionContext { window, io });
    assert_eq!(
        (
            bench.connection.outstanding(),
            bench.connection.tasks.buffered_bytes()
        ),
        (0, 0)
    );
}

/// Whatever the header bytes, the connection responds, ignores them or ends; it never panics, and its task count stays
/// right.
#[test]
fn no_header_makes_the_connection_panic() {
    let mut random = Random::new(3);
    for round in 0..500 {
        let mut bench = Bench::new(|_| ());
        bench.io.inline = round % 2 == 0;
        for _ in 0..60 {
            let op = [0x00, 0x28, 0x2a, 0x2b][random.below(4) as usize];
            let flags = [READ, WRITE, WRITE_MORE, 0x80][random.below(4) as usize];
            let mut bhs: Bhs = match random.below(4) {
                0 => {
                    let pdu = DataOutPdu {
                        flags: random.next_u64() as u8,
                        initiator_task_tag: (random.below(8) as u32).into(),
                        target_transfer_tag: if random.chance(0.5) {
                            RESERVED_TAG.into()
                        } else {
                            (random.below(8) as u32).into()
                        },
                        data_sn: (random.below(2) as u32).into(),
                        buffer_offset: (random.below(3) as u32 * 512).into(),
                        ..DataOutPdu::default()
                    };
                    pdu.into()
                }
                _ => {
                    let expected = random.below(3) as u32 * 4096;
                    let len = random.below(3) as u32 * 4096;
                    bench.command(op, flags, expected, len, 0).into()
                }
            };
            if random.chance(0.3) {
                let at = random.below(32) as usize;
                if !(5..8).contains(&at) && at != 4 {
                    bhs.as_mut_bytes()[at] = random.next_u64() as u8;
                }
            }
            let data = vec![0; random.below(3) as usize * 512];
            bench.pdu(bhs, &data, random.chance(0.95));
        }
        let Bench {
            connection,
            window,
            io,
            ..
        } = &mut bench;
        connection.on_end(&mut ConnectionContext { window, io });
        assert_eq!(
            (
                connection.outstanding(),
                connection.tasks.buffered_bytes(),
                connection.tasks.reading_bytes()
            ),
            (0, 0, 0)
        );
    }
}
