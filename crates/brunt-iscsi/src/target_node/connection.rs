//! Full-feature phase of one connection, from the target's side (RFC 7143, sections 4, 7, 10, 11):
//! PDUs in, PDUs and SCSI commands out. Called by `driver` for each PDU, twice: with its header, to
//! learn where the data belongs, and when the data is there. The one rule: nothing here waits or
//! reads a clock, and a peer's length or tag is looked up or bounded before it is used.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::time::Duration;

use brunt_block::Buf;
use brunt_core::Nanos;
use brunt_wire::iscsi::ahs::Ahs;
use brunt_wire::iscsi::pdu::{
    AsyncMessage, BHS_BYTES, Bhs, DataIn as DataInPdu, DataOut as DataOutPdu, FLAG_FINAL, LogoutRequest,
    LogoutResponse, NopIn, NopOut, Opcode, R2t, RESERVED_TAG, Reject, ScsiCommand, ScsiResponse,
    TaskManagementRequest, TaskManagementResponse, TextRequest, U24, code, lun_number,
};
use brunt_wire::scsi::sense::{Sense, Status, key};
use zerocopy::IntoBytes;

use super::session::{CommandWindow, Message, Reach, Turn};
use super::text::TextExchange;
use crate::params::Params;
use crate::scsi::{Command, DataIn, Outcome, TaskAttribute};
use crate::tag::TagHasher;

/// Commands of one connection at once: a session's, and some immediate ones.
const TASKS_MAX: usize = super::session::SESSION_TASKS_MAX as usize + 64;
/// Bytes of data-out that one connection holds in buffers before it stops asking for more.
const BUFFERED_BYTES_MAX: usize = 64 << 20;
/// Data-out of one command at most; the block limits page promises less.
const DATA_OUT_BYTES_MAX: u32 = 256 << 20;
/// Aborted tasks whose data may still be on its way and is dropped without a word.
const RECENT_MAX: usize = 64;

const UNEXPECTED_UNSOLICITED: Sense = Sense::new(key::ABORTED_COMMAND, 0x0c, 0x0c);
const INCORRECT_AMOUNT: Sense = Sense::new(key::ABORTED_COMMAND, 0x0c, 0x0d);
const CRC_ERROR: Sense = Sense::new(key::ABORTED_COMMAND, 0x47, 0x05);

/// What the rules need around them: logical units below, a socket and buffers beside.
pub trait Io {
    /// Hands a command to its logical unit; there may be none of that number.
    fn begin(&mut self, lun: Option<u16>, command: Command<'_>) -> Begun;
    /// Runs a begun command with its data. The outcome may come later.
    fn start(&mut self, lun: Option<u16>, tag: u64, data: DataOut) -> Option<Outcome>;
    /// Gives up a begun command. If it was started, its outcome still comes.
    fn abort(&mut self, lun: Option<u16>, tag: u64);
    /// Carries out a task management function on all tasks of a logical unit (of all units when
    /// `None`), whoever sent them; these have outcomes of their own, with [`Status::TaskAborted`].
    /// Gives what tells when it is done; this thread is woken then.
    fn manage(&mut self, function: u8, lun: Option<u16>) -> Vec<IsDone>;
    /// Whether there is such a logical unit.
    fn has_lun(&self, lun: u16) -> bool;
    /// Whether a logical unit's sense data goes out in descriptor format.
    fn wants_descriptor_sense(&self, lun: Option<u16>) -> bool;
    /// A buffer for data-out.
    fn buffer(&mut self, len: usize) -> Buf;
    /// Sends a PDU with little or no data.
    fn send(&mut self, bhs: &Bhs, data: &[u8]);
    /// Sends the Data-In PDUs of one command: header, and which part of `data` goes with it.
    fn send_data_in(&mut self, lun: Option<u16>, data: DataIn, pdus: &[(Bhs, u32, u32)]);
    /// Closes other connections.
    fn close_elsewhere(&mut self, reach: Reach);
    /// Closes the connection of this session with this CID; whether there is one.
    fn close_cid(&mut self, cid: u16) -> bool;
    /// What `SendTargets` answers: name and addresses.
    fn describe_target(&self) -> (String, Vec<String>);
}

/// Tells whether a task management function is done.
pub type IsDone = Box<dyn Fn() -> bool>;

/// What a logical unit said to a command.
#[derive(Debug)]
pub enum Begun {
    /// Answered.
    Done(Outcome),
    /// Under way without data-out; the outcome comes later.
    Pending,
    /// Wants data-out of `len` bytes, zero perhaps. With `inline`, the place in the medium where
    /// it may be received to.
    Wants {
        /// In bytes.
        len: u32,
        /// In bytes from the start of the medium.
        inline: Option<u64>,
    },
}

/// The data of a command that starts.
#[derive(Debug)]
pub enum DataOut {
    /// The first so many bytes of a buffer.
    Buf(Buf, u32),
    /// So many bytes, where [`Begun::Wants`] said.
    Inline(u32),
}

/// Where a PDU's data segment belongs.
#[derive(Debug)]
pub enum Destination {
    /// There is none.
    None,
    /// Nowhere.
    Discard,
    /// To [`Connection::on_data`] as a slice.
    Control,
    /// Into this buffer, from the offset on.
    Buf(Buf, usize),
    /// Into the medium of a logical unit, from the offset on.
    Inline(u16, u64),
}

/// A data segment that has arrived where [`Destination`] said.
#[derive(Debug)]
pub enum Received<'a> {
    /// It was thrown away, or went to the medium.
    Elsewhere,
    /// In the buffer.
    Buf(Buf),
    /// Here.
    Control(&'a [u8]),
}

/// The connection cannot go on: close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// What one connection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SCSI commands answered.
    pub commands: u64,
    /// Payload received.
    pub data_out_bytes: u64,
    /// Payload sent.
    pub data_in_bytes: u64,
    /// PDUs answered with a Reject.
    pub rejects: u64,
    /// Digests that were wrong.
    pub digest_errors: u64,
    /// Commands outside the window, which RFC 7143 has ignored.
    pub ignored: u64,
}

/// How a connection keeps an eye on its peer.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Silence after which the target asks.
    pub idle: Duration,
    /// And how long it waits for the answer.
    pub patience: Duration,
}

/// Full-feature phase of a connection.
pub struct Connection {
    id: u64,
    tsih: u16,
    cid: u16,
    discovery: bool,
    params: Params,
    stat_sn: u32,
    tasks: Vec<Task>,
    free: Vec<u32>,
    by_itt: HashMap<u32, u32, BuildHasherDefault<TagHasher>>,
    held: BTreeMap<u32, Held>,
    current: Current,
    buffered: usize,
    /// Data that commands under way will bring, in bytes.
    reading: usize,
    /// Tasks that wait for room to ask for more data.
    waiting: VecDeque<u64>,
    recent: VecDeque<u32>,
    next_ttt: u32,
    functions: Vec<Function>,
    text: TextExchange,
    ping: Option<(u32, Nanos)>,
    heard: Nanos,
    closing: bool,
    counters: Counters,
    pdus: Vec<(Bhs, u32, u32)>,
}

/// The PDU whose data is on its way.
#[derive(Debug)]
enum Current {
    None,
    Discard,
    Control { bhs: Bhs, turn: Turn },
    Command { tag: u64, len: u32 },
    DataOut { tag: u64, ttt: u32, len: u32, is_final: bool },
}

/// A numbered command ahead of its turn.
enum Held {
    Task(u64),
    Pdu(Bhs, Vec<u8>),
    /// Aborted meanwhile; its number still counts.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// Ahead of its turn.
    Held,
    /// The data-out comes in.
    Collecting,
    /// With the logical unit.
    Running,
    /// Aborted, but the logical unit still has it.
    Aborting,
    /// Answered, but unsolicited data is still to come.
    Answered,
}

struct Task {
    generation: u32,
    phase: Phase,
    itt: u32,
    lun: Option<u16>,
    lun_field: [u8; 8],
    read_len: u32,
    write_len: u32,
    bidirectional: bool,
    /// Data-out that the command takes: what the initiator sends beyond is dropped.
    want: u32,
    /// Received in order, dropped bytes included.
    got: u32,
    inline: Option<u64>,
    buf: Option<Buf>,
    /// Counted in `buffered`.
    buf_bytes: usize,
    unsolicited: Option<Burst>,
    bursts: VecDeque<Burst>,
    next_r2t: u32,
    r2t_sn: u32,
    failed: Option<Sense>,
    outcome: Option<Outcome>,
    cdb: Vec<u8>,
    attribute: TaskAttribute,
    is_waiting: bool,
    /// Counted in `reading`.
    is_reading: bool,
}

/// A run of Data-Out PDUs that may come.
#[derive(Clone, Copy, Debug)]
struct Burst {
    ttt: u32,
    at: u32,
    end: u32,
    data_sn: u32,
}

/// A task management function that waits for tasks to be gone.
struct Function {
    function: u8,
    itt: u32,
    /// Of ours, for ABORT TASK.
    tag: Option<u64>,
    /// Of everybody's.
    pending: Vec<IsDone>,
}

impl Connection {
    /// A connection that has just logged in.
    pub fn new(id: u64, tsih: u16, cid: u16, discovery: bool, params: Params, stat_sn: u32) -> Connection {
        Connection {
            id,
            tsih,
            cid,
            discovery,
            params,
            stat_sn,
            tasks: Vec::new(),
            free: Vec::new(),
            by_itt: HashMap::default(),
            held: BTreeMap::new(),
            current: Current::None,
            buffered: 0,
            reading: 0,
            waiting: VecDeque::new(),
            recent: VecDeque::with_capacity(RECENT_MAX),
            next_ttt: 0,
            functions: Vec::new(),
            text: TextExchange::default(),
            ping: None,
            heard: Nanos(0),
            closing: false,
            counters: Counters::default(),
            pdus: Vec::new(),
        }
    }

    /// What was negotiated.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Everything was said: close when it is sent.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Commands that are not answered.
    pub fn outstanding(&self) -> u32 {
        (self.tasks.len() - self.free.len()) as u32
    }

    /// Bytes of data that commands under way are going to send: what a driver holds further
    /// commands back by.
    pub fn reading_bytes(&self) -> usize {
        self.reading
    }

    /// Counts a wrong header digest, with which a connection ends (RFC 7143, 7.7).
    pub fn count_digest_error(&mut self) {
        self.counters.digest_errors += 1;
    }

    // ---- PDUs

    /// Takes a PDU's header and additional headers; says where its data belongs. Unless that is
    /// [`Destination::None`], [`Connection::on_data`] comes next.
    ///
    /// # Errors
    /// The peer broke the framing or the rules so that nothing after it can be trusted.
    #[inline]
    pub fn on_header(
        &mut self,
        bhs: &Bhs,
        ahs: &[u8],
        window: &mut CommandWindow,
        io: &mut impl Io,
    ) -> Result<Destination, Broken> {
        let len = bhs.data_len();
        if len > self.params.max_recv_data_segment_length as usize {
            return Err(Broken("a data segment is longer than MaxRecvDataSegmentLength"));
        }
        if self.closing {
            return Ok(if len > 0 { Destination::Discard } else { Destination::None });
        }
        self.current = Current::Discard;
        let destination = match bhs.kind() {
            Opcode::ScsiCommand => self.on_command(bhs, ahs, window, io)?,
            Opcode::DataOut => self.on_data_out(bhs, window, io),
            Opcode::NopOut | Opcode::TaskManagementRequest | Opcode::TextRequest | Opcode::LogoutRequest => {
                self.on_control(bhs, window, io)
            }
            Opcode::SnackRequest => self.reject(bhs, code::reject::SNACK_REJECT, window, io),
            Opcode::LoginRequest => self.reject(bhs, code::reject::PROTOCOL_ERROR, window, io),
            _ => self.reject(bhs, code::reject::COMMAND_NOT_SUPPORTED, window, io),
        };
        self.drain_held(window, io);
        if len == 0 {
            if !matches!(self.current, Current::Discard) {
                let received = match destination {
                    Destination::Buf(buf, _) => Received::Buf(buf),
                    Destination::Control => Received::Control(&[]),
                    _ => Received::Elsewhere,
                };
                self.on_data(received, true, window, io);
            }
            return Ok(Destination::None);
        }
        Ok(destination)
    }

    /// The data of the PDU is where it belongs, or was thrown away with a wrong digest.
    pub fn on_data(
        &mut self,
        received: Received<'_>,
        digest_ok: bool,
        window: &mut CommandWindow,
        io: &mut impl Io,
    ) {
        if !digest_ok {
            self.counters.digest_errors += 1;
        }
        let buf = |received: Received<'_>| match received {
            Received::Buf(buf) => Some(buf),
            _ => None,
        };
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None | Current::Discard => {}
            Current::Control { bhs, turn } => {
                let Received::Control(data) = received else { return };
                if !digest_ok {
                    self.reject(&bhs, code::reject::DATA_DIGEST_ERROR, window, io);
                } else if turn == Turn::Later {
                    self.held.insert(NopOut::view(&bhs).cmd_sn.get(), Held::Pdu(bhs, data.to_vec()));
                } else {
                    self.control(&bhs, data, window, io);
                }
            }
            Current::Command { tag, len } => {
                self.counters.data_out_bytes += u64::from(len);
                let Some(slot) = self.slot(tag) else { return };
                self.put_buf(slot, buf(received));
                let task = &mut self.tasks[slot];
                task.got += len;
                if !digest_ok {
                    task.failed = Some(CRC_ERROR);
                    let bhs = self.bhs_of(slot);
                    self.reject(&bhs, code::reject::DATA_DIGEST_ERROR, window, io);
                }
                self.advance(slot, window, io);
            }
            Current::DataOut { tag, ttt, len, is_final } => {
                self.counters.data_out_bytes += u64::from(len);
                let Some(slot) = self.slot(tag) else { return };
                self.put_buf(slot, buf(received));
                if !digest_ok {
                    self.tasks[slot].failed = Some(CRC_ERROR);
                    let bhs = self.bhs_of(slot);
                    self.reject(&bhs, code::reject::DATA_DIGEST_ERROR, window, io);
                }
                self.burst_moved(slot, ttt, len, is_final);
                self.advance(slot, window, io);
            }
        }
        self.drain_held(window, io);
    }

    /// A logical unit has finished a command.
    pub fn on_outcome(&mut self, outcome: Outcome, window: &mut CommandWindow, io: &mut impl Io) {
        let tag = outcome.tag;
        let Some(slot) = self.slot(tag) else { return };
        let aborted = outcome.status == Status::TaskAborted;
        if aborted || self.tasks[slot].phase == Phase::Aborting {
            // Nothing is answered to a task that was aborted (RFC 7143, 11.5).
            self.remember(slot);
            self.release(slot, window);
            for function in &mut self.functions {
                function.tag = function.tag.filter(|&other| other != tag);
            }
        } else if self.tasks[slot].unsolicited.is_some() {
            // The initiator is still sending what nobody wants; it hears when it is through.
            self.tasks[slot].phase = Phase::Answered;
            self.tasks[slot].outcome = Some(outcome);
        } else {
            self.respond(slot, outcome, window, io);
        }
        self.ask_waiting(window, io);
    }

    /// Answers the task management functions that are done by now. Call after outcomes and wake-ups.
    pub fn look_at_functions(&mut self, window: &mut CommandWindow, io: &mut impl Io) {
        if !self.functions.is_empty() {
            self.finish_functions(window, io);
        }
    }

    /// Another thread had something to say.
    pub fn on_message(&mut self, message: Message, window: &mut CommandWindow, io: &mut impl Io) {
        match message {
            Message::Turn => {}
            Message::AskLogout(seconds) => {
                let message = AsyncMessage {
                    flags: FLAG_FINAL,
                    initiator_task_tag: RESERVED_TAG.into(),
                    stat_sn: self.take_stat_sn().into(),
                    exp_cmd_sn: window.exp_cmd_sn().into(),
                    max_cmd_sn: window.max_cmd_sn().into(),
                    async_event: code::async_event::LOGOUT_REQUEST,
                    parameter3: seconds.into(),
                    ..AsyncMessage::default()
                };
                io.send(message.bhs(), &[]);
            }
            Message::Close => self.closing = true,
        }
        self.drain_held(window, io);
    }

    /// The connection is over: everything it has under way is given up.
    pub fn on_end(&mut self, window: &mut CommandWindow, io: &mut impl Io) {
        for slot in 0..self.tasks.len() {
            if self.tasks[slot].phase != Phase::Free {
                self.abort_task(slot, window, io);
            }
            if self.tasks[slot].phase != Phase::Free {
                self.release(slot, window);
            }
        }
        window.forget(self.id, 0);
    }

    /// Looks after the peer's health. `heard` says that something came since the last time. Returns
    /// when to look again.
    ///
    /// # Errors
    /// The peer did not answer a NOP-In in time.
    pub fn on_time(
        &mut self,
        now: Nanos,
        heard: bool,
        keep_alive: KeepAlive,
        window: &mut CommandWindow,
        io: &mut impl Io,
    ) -> Result<Nanos, Broken> {
        if heard || self.heard == Nanos(0) {
            self.heard = now;
            self.ping = None;
        }
        if let Some((_, sent)) = self.ping {
            let deadline = sent.after(keep_alive.patience);
            return if now >= deadline {
                Err(Broken("the initiator does not answer a NOP-In"))
            } else {
                Ok(deadline)
            };
        }
        let deadline = self.heard.after(keep_alive.idle);
        if now < deadline {
            return Ok(deadline);
        }
        let ttt = self.take_ttt();
        self.ping = Some((ttt, now));
        let ping = NopIn {
            flags: FLAG_FINAL,
            initiator_task_tag: RESERVED_TAG.into(),
            target_transfer_tag: ttt.into(),
            // The next one's, not advanced: nothing is acknowledged by it (RFC 7143, 11.19).
            stat_sn: self.stat_sn.into(),
            exp_cmd_sn: window.exp_cmd_sn().into(),
            max_cmd_sn: window.max_cmd_sn().into(),
            ..NopIn::default()
        };
        io.send(ping.bhs(), &[]);
        Ok(now.after(keep_alive.patience))
    }

    // ---- SCSI commands

    fn on_command(
        &mut self,
        bhs: &Bhs,
        ahs: &[u8],
        window: &mut CommandWindow,
        io: &mut impl Io,
    ) -> Result<Destination, Broken> {
        let pdu = ScsiCommand::view(bhs);
        let itt = pdu.initiator_task_tag.get();
        if self.discovery {
            return Ok(self.reject(bhs, code::reject::PROTOCOL_ERROR, window, io));
        }
        let ahs = match ahs {
            [] => Ahs::default(),
            bytes => Ahs::parse(bytes).map_err(|_| Broken("an additional header segment is malformed"))?,
        };
        let mut turn = Turn::Now;
        if !bhs.is_immediate() {
            turn = window.arrive(pdu.cmd_sn.get(), self.id);
            if turn == Turn::Never {
                self.counters.ignored += 1;
                return Ok(Destination::Discard);
            }
        }
        let reason = if itt == RESERVED_TAG {
            Some(code::reject::INVALID_PDU_FIELD)
        } else if !self.by_itt.is_empty() && self.by_itt.contains_key(&itt) {
            Some(code::reject::TASK_IN_PROGRESS)
        } else if self.outstanding() as usize >= TASKS_MAX {
            Some(code::reject::IMMEDIATE_COMMAND_REJECT)
        } else {
            None
        };
        if let Some(reason) = reason {
            if turn == Turn::Later {
                self.held.insert(pdu.cmd_sn.get(), Held::Nothing);
            }
            return Ok(self.reject(bhs, reason, window, io));
        }
        let slot = self.new_task(pdu, &ahs);
        let tag = self.tag(slot);
        let immediate = pdu.data_segment_length.get();
        let is_final = pdu.flags & code::command::FINAL != 0;
        let task = &mut self.tasks[slot];
        if immediate > 0 || !is_final {
            let first_burst = self.params.first_burst_length.min(task.write_len);
            if (immediate > 0 && (task.write_len == 0 || !self.params.immediate_data))
                || (!is_final && (task.write_len == 0 || self.params.initial_r2t))
            {
                task.failed = Some(UNEXPECTED_UNSOLICITED);
            } else if immediate > first_burst {
                task.failed = Some(INCORRECT_AMOUNT);
            }
            if !is_final {
                let end = first_burst.max(immediate);
                task.unsolicited = Some(Burst { ttt: RESERVED_TAG, at: immediate, end, data_sn: 0 });
            }
        }
        if turn == Turn::Later {
            self.tasks[slot].phase = Phase::Held;
            self.keep_cdb(slot, pdu, &ahs);
            self.held.insert(pdu.cmd_sn.get(), Held::Task(tag));
            self.by_itt.insert(itt, slot as u32);
            window.delivered();
        } else {
            let command = Command {
                tag,
                cdb: &pdu.cdb,
                attribute: self.tasks[slot].attribute,
                data_out_len: self.tasks[slot].write_len,
                data_in_len: self.tasks[slot].read_len,
            };
            let lun = self.tasks[slot].lun;
            let begun = match ahs.extended_cdb {
                None => io.begin(lun, command),
                Some(rest) => {
                    let cdb = [&pdu.cdb[..], rest].concat();
                    io.begin(lun, Command { cdb: &cdb, ..command })
                }
            };
            match begun {
                // Most commands end here: no data-out, answered on the spot.
                Begun::Done(outcome) if immediate == 0 && is_final && self.tasks[slot].failed.is_none() => {
                    self.answer(slot, outcome, window, io);
                    self.clear(slot);
                    return Ok(Destination::None);
                }
                begun => {
                    self.by_itt.insert(itt, slot as u32);
                    window.delivered();
                    self.begun(slot, begun);
                }
            }
        }
        if immediate == 0 {
            self.advance(slot, window, io);
            return Ok(Destination::None);
        }
        self.current = Current::Command { tag, len: immediate };
        Ok(self.destination(slot, 0, immediate, io))
    }

    fn begun(&mut self, slot: usize, begun: Begun) {
        let task = &mut self.tasks[slot];
        self.reading += task.read_len as usize;
        task.is_reading = true;
        match begun {
            Begun::Done(outcome) => {
                task.phase = Phase::Answered;
                task.outcome = Some(outcome);
            }
            Begun::Pending => task.phase = Phase::Running,
            Begun::Wants { len, inline } => {
                task.phase = Phase::Collecting;
                task.want = len.min(task.write_len);
                // The medium must not see data whose digest is wrong; lengths that do not agree, or
                // data that came ahead of its command's turn, go through a buffer.
                let agree = task.want == len && task.want == task.write_len;
                let direct = agree && !self.params.data_digest && task.buf_bytes == 0;
                task.inline = inline.filter(|_| direct);
                if len > DATA_OUT_BYTES_MAX {
                    task.failed = Some(INCORRECT_AMOUNT);
                }
            }
        }
    }

    /// Hands a command whose turn has come to its logical unit.
    fn deliver(&mut self, slot: usize, io: &mut impl Io) {
        let tag = self.tag(slot);
        let task = &mut self.tasks[slot];
        let cdb = std::mem::take(&mut task.cdb);
        let command = Command {
            tag,
            cdb: &cdb,
            attribute: task.attribute,
            data_out_len: task.write_len,
            data_in_len: task.read_len,
        };
        let begun = io.begin(task.lun, command);
        self.begun(slot, begun);
    }

    fn drain_held(&mut self, window: &mut CommandWindow, io: &mut impl Io) {
        if self.held.is_empty() {
            return;
        }
        while let Some(cmd_sn) = window.next_held(self.id) {
            match self.held.remove(&cmd_sn) {
                Some(Held::Task(tag)) => {
                    let Some(slot) = self.slot(tag) else { continue };
                    self.deliver(slot, io);
                    let coming = matches!(self.current, Current::Command { tag: current, .. }
                        | Current::DataOut { tag: current, .. } if current == tag);
                    if !coming {
                        self.advance(slot, window, io);
                    }
                }
                Some(Held::Pdu(bhs, data)) => self.control(&bhs, &data, window, io),
                Some(Held::Nothing) | None => {}
            }
        }
    }

    fn on_data_out(&mut self, bhs: &Bhs, window: &mut CommandWindow, io: &mut impl Io) -> Destination {
        let pdu = DataOutPdu::view(bhs);
        let itt = pdu.initiator_task_tag.get();
        let ttt = pdu.target_transfer_tag.get();
        let Some(slot) = self.by_itt.get(&itt).map(|&slot| slot as usize) else {
            if self.recent.contains(&itt) {
                return Destination::Discard;
            }
            return self.reject(bhs, code::reject::INVALID_PDU_FIELD, window, io);
        };
        let task = &mut self.tasks[slot];
        let burst = if ttt == RESERVED_TAG {
            task.unsolicited.as_mut()
        } else {
            task.bursts.iter_mut().find(|burst| burst.ttt == ttt)
        };
        let Some(burst) = burst else {
            return self.reject(bhs, code::reject::INVALID_PDU_FIELD, window, io);
        };
        let len = pdu.data_segment_length.get();
        let offset = pdu.buffer_offset.get();
        let is_final = pdu.flags & FLAG_FINAL != 0;
        // DataPDUInOrder and DataSequenceInOrder are always Yes here, and there is no recovery
        // within a connection: a hole is the end of the command (RFC 7143, 7.9).
        let in_order = pdu.data_sn.get() == burst.data_sn && offset == burst.at;
        burst.data_sn = burst.data_sn.wrapping_add(1);
        if !in_order {
            task.failed.get_or_insert(CRC_ERROR);
        } else if len > burst.end - burst.at {
            task.failed.get_or_insert(INCORRECT_AMOUNT);
        }
        let tag = self.tag(slot);
        self.current = Current::DataOut { tag, ttt, len, is_final };
        self.destination(slot, offset, len, io)
    }

    /// A Data-Out PDU of this burst is in.
    fn burst_moved(&mut self, slot: usize, ttt: u32, len: u32, is_final: bool) {
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

    /// Where `len` bytes at `offset` of a task's data-out go.
    fn destination(&mut self, slot: usize, offset: u32, len: u32, io: &mut impl Io) -> Destination {
        let end = offset.saturating_add(len);
        let task = &mut self.tasks[slot];
        let collecting = matches!(task.phase, Phase::Collecting | Phase::Held);
        if !collecting || task.failed.is_some() || len == 0 {
            return Destination::Discard;
        }
        let limit = if task.phase == Phase::Held {
            task.write_len.min(self.params.first_burst_length)
        } else {
            task.want
        };
        // Beyond what the command takes: dropped. A PDU that spans the end goes to the buffer whole.
        if offset >= limit {
            return Destination::Discard;
        }
        if let (Some(at), Some(lun)) = (task.inline, task.lun)
            && end <= limit
        {
            return Destination::Inline(lun, at + u64::from(offset));
        }
        if task.inline.is_some() {
            task.failed = Some(INCORRECT_AMOUNT);
            return Destination::Discard;
        }
        let have = task.buf.as_ref().map_or(0, |buf| buf.len());
        if have < end as usize {
            // Unsolicited data first: no more than the first burst is set aside before the
            // command has its turn at the byte budget. Data that spans the limit needs its room too.
            let need = limit.min(self.params.first_burst_length.max(end)).max(end) as usize;
            self.grow(slot, need, io);
        }
        match self.tasks[slot].buf.take() {
            Some(buf) => Destination::Buf(buf, offset as usize),
            None => Destination::Discard,
        }
    }

    /// Makes the task's buffer `len` bytes long and keeps what is in it.
    fn grow(&mut self, slot: usize, len: usize, io: &mut impl Io) {
        let task = &mut self.tasks[slot];
        let mut buf = io.buffer(len);
        if let Some(old) = task.buf.take() {
            let keep = old.len().min(len);
            buf[..keep].copy_from_slice(&old[..keep]);
        }
        self.buffered = self.buffered - task.buf_bytes + len;
        task.buf_bytes = len;
        task.buf = Some(buf);
    }

    fn put_buf(&mut self, slot: usize, buf: Option<Buf>) {
        if let Some(buf) = buf {
            self.tasks[slot].buf = Some(buf);
        }
    }

    /// Moves a task on: asks for more data, starts it, or answers it.
    fn advance(&mut self, slot: usize, window: &mut CommandWindow, io: &mut impl Io) {
        let tag = self.tag(slot);
        let task = &mut self.tasks[slot];
        if task.unsolicited.is_some() {
            return;
        }
        match task.phase {
            Phase::Answered => {
                let outcome = task.outcome.take().expect("an answered task has its outcome");
                let failed = task.failed.take();
                let outcome = failed.map_or(outcome, |sense| failure(tag, sense));
                self.respond(slot, outcome, window, io);
                return;
            }
            Phase::Collecting => {}
            _ => return,
        }
        if let Some(sense) = task.failed {
            // The initiator finishes what it was asked for; then it hears.
            if task.bursts.is_empty() {
                io.abort(task.lun, tag);
                self.respond(slot, failure(tag, sense), window, io);
            }
            return;
        }
        if task.next_r2t < task.got {
            task.next_r2t = task.got;
        }
        if task.next_r2t < task.want {
            let need = task.want as usize;
            if task.inline.is_none() && task.buf_bytes < need {
                if self.buffered - task.buf_bytes + need > BUFFERED_BYTES_MAX
                    && self.buffered > task.buf_bytes
                {
                    if !task.is_waiting {
                        task.is_waiting = true;
                        self.waiting.push_back(tag);
                    }
                    return;
                }
                self.grow(slot, need, io);
            }
            self.ask(slot, window, io);
            return;
        }
        let task = &mut self.tasks[slot];
        if !task.bursts.is_empty() || task.got < task.want {
            return;
        }
        let data = if task.inline.is_some() && task.want > 0 {
            DataOut::Inline(task.want)
        } else {
            DataOut::Buf(task.buf.take().unwrap_or_else(Buf::empty), task.want)
        };
        task.phase = Phase::Running;
        let lun = task.lun;
        if let Some(outcome) = io.start(lun, tag, data) {
            self.respond(slot, outcome, window, io);
        }
    }

    /// Sends as many R2Ts as may be outstanding.
    fn ask(&mut self, slot: usize, window: &mut CommandWindow, io: &mut impl Io) {
        while self.tasks[slot].bursts.len() < usize::from(self.params.max_outstanding_r2t)
            && self.tasks[slot].next_r2t < self.tasks[slot].want
        {
            let ttt = self.take_ttt();
            let task = &mut self.tasks[slot];
            let len = self.params.max_burst_length.min(task.want - task.next_r2t);
            let r2t = R2t {
                flags: FLAG_FINAL,
                lun: task.lun_field,
                initiator_task_tag: task.itt.into(),
                target_transfer_tag: ttt.into(),
                stat_sn: self.stat_sn.into(),
                exp_cmd_sn: window.exp_cmd_sn().into(),
                max_cmd_sn: window.max_cmd_sn().into(),
                r2t_sn: task.r2t_sn.into(),
                buffer_offset: task.next_r2t.into(),
                desired_data_transfer_length: len.into(),
                ..R2t::default()
            };
            io.send(r2t.bhs(), &[]);
            task.bursts.push_back(Burst { ttt, at: task.next_r2t, end: task.next_r2t + len, data_sn: 0 });
            task.r2t_sn += 1;
            task.next_r2t += len;
        }
    }

    /// Gives tasks that waited for room their turn.
    fn ask_waiting(&mut self, window: &mut CommandWindow, io: &mut impl Io) {
        while let Some(tag) = self.waiting.front().copied() {
            if let Some(slot) = self.slot(tag) {
                let need = self.tasks[slot].want as usize;
                let task = &mut self.tasks[slot];
                if self.buffered - task.buf_bytes + need > BUFFERED_BYTES_MAX
                    && self.buffered > task.buf_bytes
                {
                    return;
                }
                task.is_waiting = false;
                self.waiting.pop_front();
                self.advance(slot, window, io);
            } else {
                self.waiting.pop_front();
            }
        }
    }

    /// Answers a task and forgets it.
    fn respond(&mut self, slot: usize, outcome: Outcome, window: &mut CommandWindow, io: &mut impl Io) {
        self.answer(slot, outcome, window, io);
        self.release(slot, window);
    }

    /// Sends data, status and residuals (RFC 7143, 11.4, 11.7).
    #[inline]
    fn answer(&mut self, slot: usize, outcome: Outcome, window: &mut CommandWindow, io: &mut impl Io) {
        self.counters.commands += 1;
        let task = &self.tasks[slot];
        let good = outcome.status == Status::Good;
        let available = match &outcome.data_in {
            DataIn::None => 0,
            DataIn::Bytes(bytes) => bytes.len() as u32,
            DataIn::Buf(_, len) | DataIn::Inline { len, .. } => *len,
        };
        let length = available.min(task.read_len);
        let (read_flag, read_residual) = residual(available, task.read_len);
        let (write_flag, write_residual) = residual(outcome.data_out_len, task.write_len);
        let (flags, count, bidi_count) = if task.bidirectional {
            // The bidirectional bits lie two to the left.
            (write_flag | read_flag << 2, write_residual, read_residual)
        } else if task.write_len > 0 || (task.read_len == 0 && outcome.data_out_len > 0) {
            (write_flag, write_residual, 0)
        } else {
            (read_flag, read_residual, 0)
        };
        let (exp_cmd_sn, max_cmd_sn) = (window.exp_cmd_sn(), window.max_cmd_sn());
        let mut data_sn = 0;
        if length > 0 {
            self.counters.data_in_bytes += u64::from(length);
            let segment = self.params.peer_max_recv_data_segment_length;
            let burst = self.params.max_burst_length;
            // Status rides in the last Data-In, where it may: GOOD, and one direction only (11.7.3).
            let ride = good && !task.bidirectional;
            let mut at = 0;
            let mut burst_end = burst.min(length);
            self.pdus.clear();
            while at < length {
                let len = segment.min(burst_end - at);
                let end = at + len;
                let mut pdu = DataInPdu {
                    flags: if end == burst_end { FLAG_FINAL } else { 0 },
                    data_segment_length: U24::new(len),
                    initiator_task_tag: task.itt.into(),
                    target_transfer_tag: RESERVED_TAG.into(),
                    exp_cmd_sn: exp_cmd_sn.into(),
                    max_cmd_sn: max_cmd_sn.into(),
                    data_sn: data_sn.into(),
                    buffer_offset: at.into(),
                    ..DataInPdu::default()
                };
                if end == length && ride {
                    pdu.flags |= code::response::STATUS | flags;
                    pdu.stat_sn = self.stat_sn.into();
                    pdu.residual_count = count.into();
                }
                self.pdus.push((pdu.into(), at, len));
                data_sn += 1;
                at = end;
                if at == burst_end {
                    burst_end = burst_end.saturating_add(burst).min(length);
                }
            }
            io.send_data_in(task.lun, outcome.data_in, &self.pdus);
            if ride {
                self.stat_sn = self.stat_sn.wrapping_add(1);
                return;
            }
        }
        let response = ScsiResponse {
            flags: FLAG_FINAL | flags,
            response: code::response::COMPLETED_AT_TARGET,
            status: outcome.status.to_byte(),
            initiator_task_tag: task.itt.into(),
            stat_sn: self.stat_sn.into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            exp_data_sn: (data_sn + task.r2t_sn).into(),
            bidirectional_read_residual_count: bidi_count.into(),
            residual_count: count.into(),
            ..ScsiResponse::default()
        };
        self.stat_sn = self.stat_sn.wrapping_add(1);
        match outcome.sense {
            None => io.send(response.bhs(), &[]),
            Some(sense) => {
                let sense = sense.to_bytes(io.wants_descriptor_sense(task.lun));
                let mut data = (sense.len() as u16).to_be_bytes().to_vec();
                data.extend_from_slice(&sense);
                let response = ScsiResponse { data_segment_length: U24::new(data.len() as u32), ..response };
                io.send(response.bhs(), &data);
            }
        }
    }

    // ---- everything else

    fn on_control(&mut self, bhs: &Bhs, window: &mut CommandWindow, io: &mut impl Io) -> Destination {
        // CmdSN stands in the same place in all four.
        let pdu = NopOut::view(bhs);
        let mut turn = Turn::Now;
        if bhs.is_immediate() {
        } else if bhs.kind() == Opcode::NopOut && pdu.initiator_task_tag.get() == RESERVED_TAG {
            // An answer to a ping is immediate (RFC 7143, 11.18).
            return self.reject(bhs, code::reject::INVALID_PDU_FIELD, window, io);
        } else {
            turn = window.arrive(pdu.cmd_sn.get(), self.id);
            if turn == Turn::Never {
                self.counters.ignored += 1;
                return Destination::Discard;
            }
        }
        self.current = Current::Control { bhs: *bhs, turn };
        Destination::Control
    }

    fn control(&mut self, bhs: &Bhs, data: &[u8], window: &mut CommandWindow, io: &mut impl Io) {
        match bhs.kind() {
            Opcode::NopOut => self.nop(NopOut::view(bhs), data, window, io),
            Opcode::TaskManagementRequest => self.manage(TaskManagementRequest::view(bhs), window, io),
            Opcode::TextRequest => self.text(bhs, data, window, io),
            Opcode::LogoutRequest => self.logout(LogoutRequest::view(bhs), window, io),
            _ => unreachable!("only these four are taken as control PDUs"),
        }
    }

    fn nop(&mut self, pdu: &NopOut, data: &[u8], window: &mut CommandWindow, io: &mut impl Io) {
        if pdu.initiator_task_tag.get() == RESERVED_TAG {
            if self.ping.is_some_and(|(ttt, _)| ttt == pdu.target_transfer_tag.get()) {
                self.ping = None;
            }
            return;
        }
        let data = &data[..data.len().min(self.params.peer_max_recv_data_segment_length as usize)];
        let answer = NopIn {
            flags: FLAG_FINAL,
            data_segment_length: U24::new(data.len() as u32),
            lun: pdu.lun,
            initiator_task_tag: pdu.initiator_task_tag,
            target_transfer_tag: RESERVED_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: window.exp_cmd_sn().into(),
            max_cmd_sn: window.max_cmd_sn().into(),
            ..NopIn::default()
        };
        io.send(answer.bhs(), data);
    }

    fn text(&mut self, bhs: &Bhs, data: &[u8], window: &mut CommandWindow, io: &mut impl Io) {
        let request = TextRequest::view(bhs);
        let ttt = self.take_ttt();
        match self.text.on_request(request, data, ttt, self.discovery, &mut self.params, io) {
            Ok((mut response, data)) => {
                response.stat_sn = self.take_stat_sn().into();
                response.exp_cmd_sn = window.exp_cmd_sn().into();
                response.max_cmd_sn = window.max_cmd_sn().into();
                io.send(response.bhs(), &data);
            }
            Err(reason) => drop(self.reject(bhs, reason, window, io)),
        }
    }

    fn logout(&mut self, pdu: &LogoutRequest, window: &mut CommandWindow, io: &mut impl Io) {
        let mut result = code::logout::SUCCESS;
        let mut close = false;
        match pdu.reason & code::logout::REASON_MASK {
            code::logout::CLOSE_SESSION => {
                io.close_elsewhere(Reach::Session(self.tsih));
                close = true;
            }
            code::logout::CLOSE_CONNECTION if pdu.cid.get() == self.cid => close = true,
            code::logout::CLOSE_CONNECTION => {
                if !io.close_cid(pdu.cid.get()) {
                    result = code::logout::CID_NOT_FOUND;
                }
            }
            // Recovery of connections is error recovery level 2.
            _ => result = code::logout::RECOVERY_NOT_SUPPORTED,
        }
        if close {
            for slot in 0..self.tasks.len() {
                if self.tasks[slot].phase != Phase::Free {
                    self.abort_task(slot, window, io);
                }
            }
        }
        let response = LogoutResponse {
            flags: FLAG_FINAL,
            response: result,
            initiator_task_tag: pdu.initiator_task_tag,
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: window.exp_cmd_sn().into(),
            max_cmd_sn: window.max_cmd_sn().into(),
            time2wait: self.params.default_time2wait.into(),
            time2retain: self.params.default_time2retain.into(),
            ..LogoutResponse::default()
        };
        io.send(response.bhs(), &[]);
        self.closing |= close;
    }

    /// Task management (RFC 7143, 11.5).
    fn manage(&mut self, pdu: &TaskManagementRequest, window: &mut CommandWindow, io: &mut impl Io) {
        use code::task_management as tm;
        let function = pdu.function & tm::FUNCTION_MASK;
        let itt = pdu.initiator_task_tag.get();
        let lun = lun_number(pdu.lun).filter(|&lun| io.has_lun(lun));
        let needs_lun = matches!(
            function,
            tm::ABORT_TASK | tm::ABORT_TASK_SET | tm::CLEAR_TASK_SET | tm::LOGICAL_UNIT_RESET
        );
        if needs_lun && lun.is_none() {
            return self.manage_response(itt, tm::LUN_DOES_NOT_EXIST, window, io);
        }
        let mut tag = None;
        let mut pending = Vec::new();
        match function {
            tm::ABORT_TASK => {
                let referenced = pdu.referenced_task_tag.get();
                match self.by_itt.get(&referenced).map(|&slot| slot as usize) {
                    Some(slot) if self.tasks[slot].lun == lun => tag = self.abort_task(slot, window, io),
                    // Not here yet: its number is taken as received, and what comes is a duplicate.
                    None if window.may_still_arrive(pdu.ref_cmd_sn.get()) => {
                        if window.arrive(pdu.ref_cmd_sn.get(), self.id) == Turn::Later {
                            self.held.insert(pdu.ref_cmd_sn.get(), Held::Nothing);
                        }
                    }
                    _ => return self.manage_response(itt, tm::TASK_DOES_NOT_EXIST, window, io),
                }
            }
            tm::ABORT_TASK_SET | tm::CLEAR_TASK_SET | tm::LOGICAL_UNIT_RESET => {
                self.abort_undelivered(lun, window, io);
                pending = io.manage(function, lun);
            }
            tm::TARGET_WARM_RESET | tm::TARGET_COLD_RESET => {
                self.abort_undelivered(None, window, io);
                pending = io.manage(function, None);
            }
            tm::TASK_REASSIGN => {
                return self.manage_response(itt, tm::REASSIGNMENT_NOT_SUPPORTED, window, io);
            }
            _ => return self.manage_response(itt, tm::NOT_SUPPORTED, window, io),
        }
        self.functions.push(Function { function, itt, tag, pending });
        self.finish_functions(window, io);
    }

    /// Answers the functions whose tasks are all gone.
    fn finish_functions(&mut self, window: &mut CommandWindow, io: &mut impl Io) {
        use code::task_management as tm;
        let mut index = 0;
        while let Some(function) = self.functions.get(index) {
            if function.tag.is_some() || !function.pending.iter().all(|is_done| is_done()) {
                index += 1;
                continue;
            }
            let function = self.functions.remove(index);
            self.manage_response(function.itt, tm::FUNCTION_COMPLETE, window, io);
            if function.function == tm::TARGET_COLD_RESET {
                // As after power on: every connection ends (RFC 7143, 11.5.1).
                io.close_elsewhere(Reach::Target);
                self.closing = true;
            }
        }
    }

    fn manage_response(&mut self, itt: u32, response: u8, window: &mut CommandWindow, io: &mut impl Io) {
        let pdu = TaskManagementResponse {
            flags: FLAG_FINAL,
            response,
            initiator_task_tag: itt.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: window.exp_cmd_sn().into(),
            max_cmd_sn: window.max_cmd_sn().into(),
            ..TaskManagementResponse::default()
        };
        io.send(pdu.bhs(), &[]);
    }

    /// Gives up the tasks that no logical unit has: ahead of their turn, or answered and waiting for
    /// the end of their data.
    fn abort_undelivered(&mut self, lun: Option<u16>, window: &mut CommandWindow, io: &mut impl Io) {
        for slot in 0..self.tasks.len() {
            let task = &self.tasks[slot];
            let undelivered = matches!(task.phase, Phase::Held | Phase::Answered);
            if undelivered && (lun.is_none() || task.lun == lun) {
                self.abort_task(slot, window, io);
            }
        }
    }

    /// Gives up a task; its tag when its outcome has to be waited for.
    fn abort_task(&mut self, slot: usize, window: &mut CommandWindow, io: &mut impl Io) -> Option<u64> {
        let tag = self.tag(slot);
        self.remember(slot);
        let task = &mut self.tasks[slot];
        match task.phase {
            Phase::Free => return None,
            Phase::Held => {
                for held in self.held.values_mut() {
                    if matches!(held, Held::Task(other) if *other == tag) {
                        *held = Held::Nothing;
                    }
                }
            }
            Phase::Answered => {}
            Phase::Collecting => io.abort(task.lun, tag),
            Phase::Aborting => return Some(tag),
            Phase::Running => {
                io.abort(task.lun, tag);
                // Its tag may be used again at once; the old one is known by our own.
                let itt = task.itt;
                task.phase = Phase::Aborting;
                self.by_itt.remove(&itt);
                return Some(tag);
            }
        }
        self.release(slot, window);
        None
    }

    /// Data may still be on its way to this task when it is gone.
    fn remember(&mut self, slot: usize) {
        let task = &self.tasks[slot];
        if task.unsolicited.is_some() || !task.bursts.is_empty() {
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(task.itt);
        }
    }

    /// Rejects a PDU (RFC 7143, 11.17); its data is thrown away.
    fn reject(&mut self, bhs: &Bhs, reason: u8, window: &mut CommandWindow, io: &mut impl Io) -> Destination {
        self.counters.rejects += 1;
        let reject = Reject {
            flags: FLAG_FINAL,
            reason,
            data_segment_length: U24::new(BHS_BYTES as u32),
            initiator_task_tag: RESERVED_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: window.exp_cmd_sn().into(),
            max_cmd_sn: window.max_cmd_sn().into(),
            ..Reject::default()
        };
        io.send(reject.bhs(), bhs.as_bytes());
        Destination::Discard
    }

    // ---- the table of tasks

    fn new_task(&mut self, pdu: &ScsiCommand, ahs: &Ahs<'_>) -> usize {
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None => {
                self.tasks.push(Task::new());
                self.tasks.len() - 1
            }
        };
        let expected = pdu.expected_data_transfer_length.get();
        let reads = pdu.flags & code::command::READ != 0;
        let writes = pdu.flags & code::command::WRITE != 0;
        let task = &mut self.tasks[slot];
        task.phase = Phase::Running;
        task.itt = pdu.initiator_task_tag.get();
        task.lun = lun_number(pdu.lun);
        task.lun_field = pdu.lun;
        task.write_len = if writes { expected } else { 0 };
        task.bidirectional = reads && writes;
        task.read_len = match (reads, writes) {
            (true, true) => ahs.bidirectional_read_length.unwrap_or(0),
            (true, false) => expected,
            _ => 0,
        };
        task.attribute = match pdu.flags & code::command::ATTR_MASK {
            code::command::ATTR_ORDERED => TaskAttribute::Ordered,
            code::command::ATTR_HEAD_OF_QUEUE => TaskAttribute::HeadOfQueue,
            code::command::ATTR_ACA => TaskAttribute::Aca,
            _ => TaskAttribute::Simple,
        };
        slot
    }

    fn keep_cdb(&mut self, slot: usize, pdu: &ScsiCommand, ahs: &Ahs<'_>) {
        let cdb = &mut self.tasks[slot].cdb;
        cdb.clear();
        cdb.extend_from_slice(&pdu.cdb);
        cdb.extend_from_slice(ahs.extended_cdb.unwrap_or(&[]));
    }

    /// A header that names the task, for a Reject whose PDU is gone.
    fn bhs_of(&self, slot: usize) -> Bhs {
        let task = &self.tasks[slot];
        DataOutPdu { lun: task.lun_field, initiator_task_tag: task.itt.into(), ..DataOutPdu::default() }
            .into()
    }

    #[inline]
    fn tag(&self, slot: usize) -> u64 {
        u64::from(self.tasks[slot].generation) << 32 | slot as u64
    }

    #[inline]
    fn slot(&self, tag: u64) -> Option<usize> {
        let slot = tag as u32 as usize;
        let task = self.tasks.get(slot)?;
        (task.generation == (tag >> 32) as u32 && task.phase != Phase::Free).then_some(slot)
    }

    /// Frees a task that was in the tables.
    fn release(&mut self, slot: usize, window: &mut CommandWindow) {
        let task = &self.tasks[slot];
        if self.by_itt.get(&task.itt) == Some(&(slot as u32)) {
            let itt = task.itt;
            self.by_itt.remove(&itt);
        }
        window.finished();
        self.clear(slot);
    }

    /// Frees a task that never got into the tables.
    #[inline]
    fn clear(&mut self, slot: usize) {
        let task = &mut self.tasks[slot];
        self.buffered -= task.buf_bytes;
        if std::mem::take(&mut task.is_reading) {
            self.reading -= task.read_len as usize;
        }
        task.generation = task.generation.wrapping_add(1);
        task.phase = Phase::Free;
        task.want = 0;
        task.got = 0;
        task.inline = None;
        task.buf = None;
        task.buf_bytes = 0;
        task.unsolicited = None;
        task.bursts.clear();
        task.next_r2t = 0;
        task.r2t_sn = 0;
        task.failed = None;
        task.outcome = None;
        task.is_waiting = false;
        self.free.push(slot as u32);
    }

    fn take_stat_sn(&mut self) -> u32 {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        stat_sn
    }

    fn take_ttt(&mut self) -> u32 {
        self.next_ttt = self.next_ttt.wrapping_add(1);
        if self.next_ttt == RESERVED_TAG {
            self.next_ttt = 0;
        }
        self.next_ttt
    }
}

impl Task {
    fn new() -> Task {
        Task {
            generation: 0,
            phase: Phase::Free,
            itt: 0,
            lun: None,
            lun_field: [0; 8],
            read_len: 0,
            write_len: 0,
            bidirectional: false,
            want: 0,
            got: 0,
            inline: None,
            buf: None,
            buf_bytes: 0,
            unsolicited: None,
            bursts: VecDeque::new(),
            next_r2t: 0,
            r2t_sn: 0,
            failed: None,
            outcome: None,
            cdb: Vec::new(),
            attribute: TaskAttribute::Simple,
            is_waiting: false,
            is_reading: false,
        }
    }
}

fn failure(tag: u64, sense: Sense) -> Outcome {
    Outcome {
        tag,
        status: Status::CheckCondition,
        sense: Some(sense),
        data_in: DataIn::None,
        data_out_len: 0,
    }
}

/// Residual flag and count of one direction: what there was against what the initiator expected.
fn residual(available: u32, expected: u32) -> (u8, u32) {
    match available.cmp(&expected) {
        std::cmp::Ordering::Greater => (code::response::OVERFLOW, available - expected),
        std::cmp::Ordering::Less => (code::response::UNDERFLOW, expected - available),
        std::cmp::Ordering::Equal => (0, 0),
    }
}

#[cfg(test)]
mod tests;
