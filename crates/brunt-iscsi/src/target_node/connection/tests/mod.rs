//! Tests full-feature phase with a logical unit that keeps its blocks in a vector: the input consists of PDUs as an
//! initiator would send them, and the checks are on the PDUs that it would receive.

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

mod control;
mod tasks;
mod transfers;

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

    fn close_others(&mut self, _reach: Reach) {
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
