//! An initiator that sends exactly what its caller specifies, even what the RFC forbids: hand-made PDUs over one
//! blocking TCP connection with timeouts. Used by tests of misbehaving initiators. The rule: it never corrects its
//! caller; headers contain what the caller specified.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use brunt_wire::iscsi::pdu::{
    BHS_BYTES, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, NopOut, R2t,
    RESERVED_TAG, ScsiCommand, ScsiResponse, TaskManagementRequest, TextRequest, U24, code,
    lun_field, padded,
};
use brunt_wire::iscsi::{Bhs, Opcode, text};
use brunt_wire::scsi::sense::{ScsiStatus, Sense};
use zerocopy::IntoBytes;

/// A target that has been silent for this long has nothing to send, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A received PDU.
#[derive(Clone, Debug)]
pub struct Pdu {
    /// The basic header.
    pub bhs: Bhs,
    /// The data segment, without padding.
    pub data: Vec<u8>,
}

impl Pdu {
    /// Its opcode.
    pub fn kind(&self) -> Opcode {
        self.bhs.kind()
    }

    /// The key-value pairs in its data segment.
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        text::parse_pairs(&self.data).expect("pairs")
    }

    /// The value of `key`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.pairs()
            .into_iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }
}

/// The result of a SCSI command.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its status.
    pub status: ScsiStatus,
    /// Sense data, if any.
    pub sense: Option<Sense>,
    /// All Data-In data, at its offsets.
    pub data: Vec<u8>,
}

/// A single connection, and the numbers that a well-behaved initiator would use next.
pub struct Raw {
    stream: TcpStream,
    /// CmdSN of the next non-immediate command.
    pub cmd_sn: u32,
    /// ExpStatSN sent in every command.
    pub exp_stat_sn: u32,
    /// The task tag of the next command.
    pub task_tag: u32,
    /// The target's latest ExpCmdSN and MaxCmdSN.
    pub window: (u32, u32),
    /// The target's MaxRecvDataSegmentLength, as declared in login (8192 before that).
    pub max_recv_data_segment_length: usize,
}

impl Raw {
    /// A connection without a login.
    pub fn connect(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).expect("the target listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a time-out");
        stream.set_nodelay(true).expect("nodelay");
        Raw {
            stream,
            cmd_sn: 1,
            exp_stat_sn: 0,
            task_tag: 1,
            window: (0, 0),
            max_recv_data_segment_length: 8192,
        }
    }

    /// A normal session as `initiator`, without authentication, with `more` keys offered.
    pub fn login(address: SocketAddr, initiator: &str, target: &str, more: &[(&str, &str)]) -> Raw {
        let mut raw = Raw::connect(address);
        let mut pairs = vec![
            ("InitiatorName", initiator),
            ("TargetName", target),
            ("SessionType", "Normal"),
            ("AuthMethod", "None"),
        ];
        pairs.extend_from_slice(more);
        raw.negotiate(login_request(isid_of(initiator)), &pairs);
        raw
    }

    /// Sends login requests until full feature phase.
    ///
    /// # Panics
    /// The target rejects the login.
    pub fn negotiate(&mut self, mut request: LoginRequest, pairs: &[(&str, &str)]) {
        self.cmd_sn = request.cmd_sn.get();
        let mut keys = pairs.to_vec();
        // Eight rounds are plenty for two stages.
        for _ in 0..8 {
            let current = (request.flags >> 2) & 3;
            // RFC 7143, 13: AuthMethod belongs to the security stage, the other keys to either stage.
            self.send(&request.into(), &encode(&keys));
            keys.clear();
            let answer = self.recv().expect("a login response");
            assert_eq!(answer.kind(), Opcode::LoginResponse, "{answer:?}");
            let response = LoginResponse::view(&answer.bhs);
            let status = u16::from(response.status_class) << 8 | u16::from(response.status_detail);
            assert_eq!(
                status,
                code::login::SUCCESS,
                "login was refused: {status:#06x}"
            );
            if let Some(value) = answer.value("MaxRecvDataSegmentLength") {
                self.max_recv_data_segment_length = value.parse().expect("a number");
            }
            if response.flags & code::login::TRANSIT != 0 {
                match response.flags & 3 {
                    code::login::STAGE_FULL_FEATURE => return,
                    next => {
                        let flags =
                            code::login::TRANSIT | next << 2 | code::login::STAGE_FULL_FEATURE;
                        request.flags = flags;
                    }
                }
            } else {
                request.flags = code::login::TRANSIT | current << 2 | (request.flags & 3);
            }
            request.exp_stat_sn = self.exp_stat_sn.into();
        }
        panic!("login did not end");
    }

    /// Sends `bytes` unchanged; false if the target has closed the connection.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends one PDU, with DataSegmentLength and padding filled in; false if the target has closed the connection.
    pub fn send(&mut self, bhs: &Bhs, data: &[u8]) -> bool {
        self.send_bytes(&assemble(bhs, data))
    }

    /// Receives the next PDU.
    ///
    /// # Errors
    /// `UnexpectedEof` and similar if the target closed, `WouldBlock` or `TimedOut` if it is silent.
    pub fn recv(&mut self) -> io::Result<Pdu> {
        let mut head = [0; BHS_BYTES];
        self.stream.read_exact(&mut head)?;
        let bhs = *Bhs::peek(&head).expect("48 bytes");
        let mut rest = vec![0; bhs.total_len(false, false) - BHS_BYTES];
        self.stream.read_exact(&mut rest)?;
        let at = bhs.ahs_len();
        let pdu = Pdu {
            bhs,
            data: rest[at..at + bhs.data_len()].to_vec(),
        };
        let sn = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        self.window = (sn(28), sn(32));
        let is_numbered = match pdu.kind() {
            Opcode::DataIn => bhs.flags & code::response::STATUS != 0,
            Opcode::R2t => false,
            Opcode::NopIn => bhs.initiator_task_tag.get() != RESERVED_TAG,
            _ => true,
        };
        if is_numbered {
            self.exp_stat_sn = sn(24).wrapping_add(1);
        }
        Ok(pdu)
    }

    /// Builds a command's header with the next numbers, without sending it.
    pub fn command(
        &mut self,
        lun: u16,
        cdb: &[u8],
        direction: u8,
        expected_bytes: u32,
    ) -> ScsiCommand {
        let mut command = ScsiCommand {
            flags: code::command::FINAL | direction | code::command::ATTR_SIMPLE,
            lun: lun_field(lun),
            initiator_task_tag: self.task_tag.into(),
            expected_data_transfer_length: expected_bytes.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            ..ScsiCommand::default()
        };
        command.cdb[..cdb.len()].copy_from_slice(cdb);
        self.task_tag += 1;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        command
    }

    /// Runs a command that reads at most `bytes`.
    pub fn read(&mut self, lun: u16, cdb: &[u8], bytes: u32) -> Ended {
        let direction = if bytes > 0 { code::command::READ } else { 0 };
        let command = self.command(lun, cdb, direction, bytes);
        self.send(&command.into(), &[]);
        self.finish(command.initiator_task_tag.get(), &[])
    }

    /// Runs a command that writes `data`, all of it solicited.
    pub fn write(&mut self, lun: u16, cdb: &[u8], data: &[u8]) -> Ended {
        let command = self.command(lun, cdb, code::command::WRITE, data.len() as u32);
        self.send(&command.into(), &[]);
        self.finish(command.initiator_task_tag.get(), data)
    }

    /// Answers R2Ts from `data` and collects Data-In until the command `task_tag` ends.
    pub fn finish(&mut self, task_tag: u32, data: &[u8]) -> Ended {
        let mut arrived = Vec::new();
        loop {
            let pdu = self
                .recv()
                .unwrap_or_else(|error| panic!("task {task_tag}: {error}"));
            match pdu.kind() {
                Opcode::R2t => {
                    let r2t = *R2t::view(&pdu.bhs);
                    self.answer_r2t(&r2t, data);
                }
                Opcode::DataIn => {
                    let data_in = DataIn::view(&pdu.bhs);
                    assert_eq!(
                        data_in.initiator_task_tag.get(),
                        task_tag,
                        "data of another task"
                    );
                    let at = data_in.buffer_offset.get() as usize;
                    arrived.resize(arrived.len().max(at + pdu.data.len()), 0);
                    arrived[at..at + pdu.data.len()].copy_from_slice(&pdu.data);
                    if data_in.flags & code::response::STATUS != 0 {
                        return Ended {
                            status: ScsiStatus::from_byte(data_in.status),
                            sense: None,
                            data: arrived,
                        };
                    }
                }
                Opcode::ScsiResponse => {
                    let response = ScsiResponse::view(&pdu.bhs);
                    assert_eq!(
                        response.initiator_task_tag.get(),
                        task_tag,
                        "a response to another task"
                    );
                    return Ended {
                        status: ScsiStatus::from_byte(response.status),
                        // RFC 7143, 11.4.7: SenseLength in two bytes, then the sense data.
                        sense: pdu.data.get(2..).and_then(Sense::parse),
                        data: arrived,
                    };
                }
                Opcode::NopIn => self.answer_nop(&pdu),
                other => panic!("task {task_tag} was answered with {other:?}: {pdu:?}"),
            }
        }
    }

    /// Sends the data that an R2T requests, in segments that the target accepts.
    pub fn answer_r2t(&mut self, r2t: &R2t, data: &[u8]) {
        let from = r2t.buffer_offset.get() as usize;
        let to = from + r2t.desired_data_transfer_length.get() as usize;
        let mut at = from;
        let mut data_sn = 0;
        while at < to {
            let end = to.min(at + self.max_recv_data_segment_length);
            let mut out = data_out(r2t, data_sn, at as u32, end == to);
            out.exp_stat_sn = self.exp_stat_sn.into();
            self.send(&out.into(), &data[at..end]);
            data_sn += 1;
            at = end;
        }
    }

    fn answer_nop(&mut self, ping: &Pdu) {
        let ping = brunt_wire::iscsi::pdu::NopIn::view(&ping.bhs);
        if ping.target_transfer_tag.get() == RESERVED_TAG {
            return;
        }
        let pong = NopOut {
            opcode: NopOut::default().opcode | brunt_wire::iscsi::pdu::OPCODE_IMMEDIATE,
            flags: 0x80,
            lun: ping.lun,
            initiator_task_tag: RESERVED_TAG.into(),
            target_transfer_tag: ping.target_transfer_tag,
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            ..NopOut::default()
        };
        self.send(&pong.into(), &[]);
    }

    /// Sends a text request in full feature phase; returns the response.
    pub fn text(&mut self, pairs: &[(&str, &str)]) -> Pdu {
        let request = TextRequest {
            flags: 0x80,
            initiator_task_tag: self.task_tag.into(),
            target_transfer_tag: RESERVED_TAG.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            ..TextRequest::default()
        };
        self.task_tag += 1;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.send(&request.into(), &encode(pairs));
        self.recv().expect("an answer to a text request")
    }

    /// Sends an immediate ping with `data`; returns the response.
    pub fn ping(&mut self, data: &[u8]) -> Pdu {
        let ping = NopOut {
            opcode: NopOut::default().opcode | brunt_wire::iscsi::pdu::OPCODE_IMMEDIATE,
            flags: 0x80,
            initiator_task_tag: self.task_tag.into(),
            target_transfer_tag: RESERVED_TAG.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            ..NopOut::default()
        };
        self.task_tag += 1;
        self.send(&ping.into(), data);
        self.recv().expect("an answer to a ping")
    }

    /// Sends an immediate task management request; returns the response.
    pub fn manage(&mut self, lun: u16, function: u8, referenced: u32, ref_cmd_sn: u32) -> Pdu {
        let request = TaskManagementRequest {
            opcode: TaskManagementRequest::default().opcode
                | brunt_wire::iscsi::pdu::OPCODE_IMMEDIATE,
            function: 0x80 | function,
            lun: lun_field(lun),
            initiator_task_tag: self.task_tag.into(),
            referenced_task_tag: referenced.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            ref_cmd_sn: ref_cmd_sn.into(),
            ..TaskManagementRequest::default()
        };
        self.task_tag += 1;
        self.send(&request.into(), &[]);
        self.recv().expect("an answer to a task management request")
    }

    /// Closes the session; returns the response.
    pub fn logout(&mut self) -> Pdu {
        let request = LogoutRequest {
            reason: 0x80 | code::logout::CLOSE_SESSION,
            initiator_task_tag: self.task_tag.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            ..LogoutRequest::default()
        };
        self.send(&request.into(), &[]);
        self.recv().expect("an answer to a logout")
    }

    /// Sends TEST UNIT READY until all unit attentions are reported.
    pub fn settle(&mut self, lun: u16) {
        for _ in 0..16 {
            if self.read(lun, &[0; 6], 0).status == ScsiStatus::Good {
                return;
            }
        }
        panic!("LUN {lun} does not become ready");
    }
}

/// The first login request of a session, which goes straight from the operational stage to full feature phase.
pub fn login_request(isid: [u8; 6]) -> LoginRequest {
    LoginRequest {
        opcode: LoginRequest::default().opcode | brunt_wire::iscsi::pdu::OPCODE_IMMEDIATE,
        flags: code::login::TRANSIT
            | code::login::STAGE_SECURITY << 2
            | code::login::STAGE_OPERATIONAL,
        isid,
        initiator_task_tag: 0x1000.into(),
        cmd_sn: 1.into(),
        ..LoginRequest::default()
    }
}

/// An ISID in the random format (RFC 7143, 11.12.5), always the same for the same name.
pub fn isid_of(initiator: &str) -> [u8; 6] {
    let hash = initiator.bytes().fold(7u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    let [a, b, c, d] = hash.to_be_bytes();
    [0x80, a, b, c, d, 0]
}

/// A Data-Out PDU in answer to an R2T.
pub fn data_out(r2t: &R2t, data_sn: u32, offset: u32, is_final: bool) -> DataOut {
    DataOut {
        flags: if is_final { 0x80 } else { 0 },
        lun: r2t.lun,
        initiator_task_tag: r2t.initiator_task_tag,
        target_transfer_tag: r2t.target_transfer_tag,
        data_sn: data_sn.into(),
        buffer_offset: offset.into(),
        ..DataOut::default()
    }
}

/// The bytes of one PDU, with DataSegmentLength from `data` and with padding.
pub fn assemble(bhs: &Bhs, data: &[u8]) -> Vec<u8> {
    let mut bhs = *bhs;
    bhs.data_segment_length = U24::new(data.len() as u32);
    let mut bytes = bhs.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(BHS_BYTES + padded(data.len()), 0);
    bytes
}

/// Encodes key-value pairs as a data segment.
pub fn encode(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in pairs {
        text::push_pair(&mut data, key, value);
    }
    data
}

/// The CDB of READ(10) or WRITE(10).
pub fn rw10(operation: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = operation;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
