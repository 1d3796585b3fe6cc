//! The target side of a connection's full-feature phase (RFC 7143, sections 4, 7, 10, 11): PDUs in, PDUs and SCSI
//! commands out. `driver` calls it twice for each PDU: with the header, to learn where the data goes, and once the data
//! is there. The one rule: nothing here waits or reads a clock, and every length or tag from a peer is looked up or
//! bounded before use.
//!
//! The files: `command` accepts commands and hands them to logical units, `data_out` collects their data, `response`
//! answers them; `control` and `task_management` handle all other PDUs. `tasks` is the table that they share, `io` the
//! interface to their environment.

mod command;
mod control;
mod data_out;
mod io;
mod response;
mod task_management;
mod tasks;

use std::collections::{BTreeMap, VecDeque};

use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::{
    AsyncMessage, Bhs, FLAG_FINAL, NopIn, NopOut, Opcode, RESERVED_TAG, code,
};
use brunt_wire::scsi::sense::{ScsiStatus, Sense, key};

pub use io::{
    Broken, CommandBegun, ConnectionContext, ConnectionCounters, ConnectionIo, DataOut,
    Destination, IsDone, KeepAlive, Received,
};

use self::tasks::{PendingFunction, RECENT_MAX, TaskPhase, TaskTable};
use super::session::{CommandWindow, ConnectionMessage, Turn};
use super::text::TextExchange;
use crate::params::Params;
use crate::scsi::CommandOutcome;

const CRC_ERROR: Sense = Sense::new(key::ABORTED_COMMAND, 0x47, 0x05);

/// Full-feature phase of a connection.
pub struct TargetConnection {
    id: u64,
    tsih: u16,
    cid: u16,
    discovery: bool,
    params: Params,
    stat_sn: u32,
    tasks: TaskTable,
    held: BTreeMap<u32, Held>,
    current: Current,
    /// Tasks that wait for buffer space to request more data.
    waiting: VecDeque<u64>,
    /// Tags of aborted tasks whose data may still arrive.
    recent: VecDeque<u32>,
    next_ttt: u32,
    functions: Vec<PendingFunction>,
    text: TextExchange,
    ping: Option<(u32, Nanos)>,
    heard: Nanos,
    closing: bool,
    counters: ConnectionCounters,
    pdus: Vec<(Bhs, u32, u32)>,
}

/// The PDU whose data is being received.
#[derive(Debug)]
enum Current {
    None,
    Discard,
    Control {
        bhs: Bhs,
        turn: Turn,
    },
    Command {
        tag: u64,
        len: u32,
    },
    DataOut {
        tag: u64,
        ttt: u32,
        len: u32,
        is_final: bool,
    },
}

/// A numbered PDU that arrived before its turn.
enum Held {
    Task(u64),
    Pdu(Bhs, Vec<u8>),
    /// The command was aborted in the meantime, but its number still counts.
    Nothing,
}

impl TargetConnection {
    /// Creates a connection that has just logged in.
    pub fn new(
        id: u64,
        tsih: u16,
        cid: u16,
        discovery: bool,
        params: Params,
        stat_sn: u32,
    ) -> TargetConnection {
        TargetConnection {
            id,
            tsih,
            cid,
            discovery,
            params,
            stat_sn,
            tasks: TaskTable::default(),
            held: BTreeMap::new(),
            current: Current::None,
            waiting: VecDeque::new(),
            recent: VecDeque::with_capacity(RECENT_MAX),
            next_ttt: 0,
            functions: Vec::new(),
            text: TextExchange::default(),
            ping: None,
            heard: Nanos(0),
            closing: false,
            counters: ConnectionCounters::default(),
            pdus: Vec::new(),
        }
    }

    /// The negotiated parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Counters so far.
    pub fn counters(&self) -> ConnectionCounters {
        self.counters
    }

    /// Whether to close the connection once everything in the queue has been sent.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Number of unanswered commands.
    pub fn outstanding(&self) -> u32 {
        self.tasks.outstanding() as u32
    }

    /// Bytes of data that running commands will send. The driver uses this to limit further commands.
    pub fn reading_bytes(&self) -> usize {
        self.tasks.reading_bytes()
    }

    /// Counts a wrong header digest, which ends the connection (RFC 7143, 7.7).
    pub fn count_digest_error(&mut self) {
        self.counters.digest_errors += 1;
    }

    // ---- PDUs

    /// Processes a PDU's header and additional headers, and returns where its data goes. Unless that is
    /// [`Destination::None`], [`TargetConnection::on_data`] must be called next.
    ///
    /// # Errors
    /// The peer violated the framing or the protocol, so nothing that follows can be trusted.
    #[inline]
    pub fn on_header(
        &mut self,
        bhs: &Bhs,
        ahs: &[u8],
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Result<Destination, Broken> {
        let len = bhs.data_len();
        if len > self.params.max_recv_data_segment_length as usize {
            return Err(Broken(
                "a data segment longer than MaxRecvDataSegmentLength",
            ));
        }
        if self.closing {
            return Ok(if len > 0 {
                Destination::Discard
            } else {
                Destination::None
            });
        }
        assert!(
            matches!(self.current, Current::None | Current::Discard),
            "a PDU's data precedes the next header"
        );
        self.current = Current::Discard;
        let destination = match bhs.kind() {
            Opcode::ScsiCommand => self.on_command(bhs, ahs, cx)?,
            Opcode::DataOut => self.on_data_out(bhs, cx),
            Opcode::NopOut
            | Opcode::TaskManagementRequest
            | Opcode::TextRequest
            | Opcode::LogoutRequest => self.on_control(bhs, cx),
            Opcode::SnackRequest => self.reject(bhs, code::reject::SNACK_REJECT, cx),
            Opcode::LoginRequest => self.reject(bhs, code::reject::PROTOCOL_ERROR, cx),
            _ => self.reject(bhs, code::reject::COMMAND_NOT_SUPPORTED, cx),
        };
        self.drain_held(cx);
        if len == 0 {
            if !matches!(self.current, Current::Discard) {
                let received = match destination {
                    Destination::Buf(buf, _) => Received::Buf(buf),
                    Destination::Control => Received::Control(&[]),
                    _ => Received::Elsewhere,
                };
                self.on_data(received, true, cx);
            }
            return Ok(Destination::None);
        }
        Ok(destination)
    }

    /// Processes a PDU whose data is at its destination or was discarded because of a wrong digest.
    pub fn on_data(
        &mut self,
        received: Received<'_>,
        digest_ok: bool,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
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
                let Received::Control(data) = received else {
                    panic!("control PDUs have their data in a slice")
                };
                if !digest_ok {
                    self.reject(&bhs, code::reject::DATA_DIGEST_ERROR, cx);
                } else if turn == Turn::Later {
                    self.held.insert(
                        NopOut::view(&bhs).cmd_sn.get(),
                        Held::Pdu(bhs, data.to_vec()),
                    );
                } else {
                    self.control(&bhs, data, cx);
                }
            }
            Current::Command { tag, len } => {
                self.counters.data_out_bytes += u64::from(len);
                let Some(slot) = self.tasks.slot(tag) else {
                    return;
                };
                self.put_buf(slot, buf(received));
                let task = &mut self.tasks[slot];
                task.got += len;
                if !digest_ok {
                    task.failed = Some(CRC_ERROR);
                    let bhs = self.tasks.bhs_of(slot);
                    self.reject(&bhs, code::reject::DATA_DIGEST_ERROR, cx);
                }
                self.advance(slot, cx);
            }
            Current::DataOut {
                tag,
                ttt,
                len,
                is_final,
            } => {
                self.counters.data_out_bytes += u64::from(len);
                let Some(slot) = self.tasks.slot(tag) else {
                    return;
                };
                self.put_buf(slot, buf(received));
                if !digest_ok {
                    self.tasks[slot].failed = Some(CRC_ERROR);
                    let bhs = self.tasks.bhs_of(slot);
                    self.reject(&bhs, code::reject::DATA_DIGEST_ERROR, cx);
                }
                self.burst_moved(slot, ttt, len, is_final);
                self.advance(slot, cx);
            }
        }
        self.drain_held(cx);
    }

    /// Processes the outcome of a command from its logical unit.
    pub fn on_outcome(
        &mut self,
        outcome: CommandOutcome,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        let tag = outcome.tag;
        let Some(slot) = self.tasks.slot(tag) else {
            return;
        };
        let aborted = outcome.status == ScsiStatus::TaskAborted;
        if aborted || self.tasks[slot].phase == TaskPhase::Aborting {
            // An aborted task gets no response (RFC 7143, 11.5).
            self.remember(slot);
            self.release(slot, cx.window);
            for function in &mut self.functions {
                function.tag = function.tag.filter(|&other| other != tag);
            }
        } else if self.tasks[slot].unsolicited.is_some() {
            // The initiator is still sending unsolicited data; respond once it is done.
            self.tasks[slot].phase = TaskPhase::Answered;
            self.tasks[slot].outcome = Some(outcome);
        } else {
            self.respond(slot, outcome, cx);
        }
        self.ask_waiting(cx);
    }

    /// Answers the task management functions that are done. Call after processing outcomes and wake-ups.
    pub fn check_task_management(&mut self, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        if !self.functions.is_empty() {
            self.finish_functions(cx);
        }
    }

    /// Processes a message from another thread.
    pub fn on_message(
        &mut self,
        message: ConnectionMessage,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        match message {
            ConnectionMessage::Turn => {}
            ConnectionMessage::AskLogout(seconds) => {
                let message = AsyncMessage {
                    flags: FLAG_FINAL,
                    initiator_task_tag: RESERVED_TAG.into(),
                    stat_sn: self.take_stat_sn().into(),
                    exp_cmd_sn: cx.window.exp_cmd_sn().into(),
                    max_cmd_sn: cx.window.max_cmd_sn().into(),
                    async_event: code::async_event::LOGOUT_REQUEST,
                    parameter3: seconds.into(),
                    ..AsyncMessage::default()
                };
                cx.io.send(message.bhs(), &[]);
            }
            ConnectionMessage::Close => self.closing = true,
        }
        self.drain_held(cx);
    }

    /// Aborts all tasks when the connection ends.
    pub fn on_end(&mut self, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        for slot in 0..self.tasks.len() {
            if self.tasks[slot].phase != TaskPhase::Free {
                self.abort_task(slot, cx);
            }
            if self.tasks[slot].phase != TaskPhase::Free {
                self.release(slot, cx.window);
            }
        }
        assert_eq!(
            (
                self.tasks.outstanding(),
                self.tasks.buffered_bytes(),
                self.tasks.reading_bytes()
            ),
            (0, 0, 0),
            "all tasks of a connection were removed"
        );
        cx.window.forget(self.id);
    }

    /// Checks that the peer is alive. `heard` says whether data has arrived since the last call. Returns when to call
    /// this again.
    ///
    /// # Errors
    /// The peer did not answer a NOP-In in time.
    pub fn on_time(
        &mut self,
        now: Nanos,
        heard: bool,
        keep_alive: KeepAlive,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Result<Nanos, Broken> {
        if heard || self.heard == Nanos(0) {
            self.heard = now;
            self.ping = None;
        }
        if let Some((_, sent)) = self.ping {
            let deadline = sent.after(keep_alive.patience);
            return if now >= deadline {
                Err(Broken("the initiator does not respond to NOP-Ins"))
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
            // StatSN is the next one and is not advanced: this PDU needs no acknowledgement (RFC 7143, 11.19).
            stat_sn: self.stat_sn.into(),
            exp_cmd_sn: cx.window.exp_cmd_sn().into(),
            max_cmd_sn: cx.window.max_cmd_sn().into(),
            ..NopIn::default()
        };
        cx.io.send(ping.bhs(), &[]);
        Ok(now.after(keep_alive.patience))
    }

    /// Frees a task that was entered in the tables.
    fn release(&mut self, slot: usize, window: &mut CommandWindow) {
        self.tasks.forget_itt(slot);
        window.finished();
        self.tasks.clear(slot);
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

#[cfg(test)]
mod tests;
