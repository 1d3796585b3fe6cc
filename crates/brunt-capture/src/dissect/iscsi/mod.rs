//! iSCSI (RFC 7143) on any port: commands, R2Ts, data in both directions, status and sense, task management.
//!
//! ```text
//!   bytes ─► PDUs (framing, digests, search) ─┬─► login: digests, names
//!                                             └─► tasks: commands and their answers ─► operations
//! ```
//!
//! The connections of a session share the session number in table `scsi_commands`: each command belongs to one
//! connection, and the connections may belong to different pipelines. The one rule: a PDU is accepted only with
//! evidence beyond its own bytes (`frames.rs`), and a response belongs only to a task on its own connection.

pub mod commands;
mod digests;
mod frames;
mod headers;
mod id;
pub mod kinds;
mod login;
pub mod tables;
mod task;
mod tasks;

use brunt_wire::iscsi::pdu::{self, Bhs, Opcode, code};
use brunt_wire::scsi::sense::Sense;
use brunt_wire::scsi::unmap;

use super::{Claim, Counter, Dissector, Flow, FramingState, Gap, OperationInfo, Out, ProtocolInfo};
use crate::checksum::{BLOCK_BYTES, BlockSums};
use crate::limits::Limits;
use crate::operation::{ChecksumRun, Message, MessagePlace, Sink};
pub(crate) use id::SCSI;
pub use task::Scsi;

use digests::Digests;
use frames::{GapInPdu, Half, PduEvent};
use id::{DATA_WITHOUT_TASK, IscsiId, PDUS_REJECTED};
use login::CapturedLogin;
use task::{ScsiSession, ScsiTask, TaskAnswer, file_of};
use tasks::ScsiTasks;

/// The port that targets listen on.
const PORT: u16 = 3260;
/// Maximum sense data kept: 252 bytes and a two-byte length.
const SENSE_BYTES_MAX: usize = 254;
/// Maximum logical units per connection whose names and block sizes are tracked.
const NAMED_MAX: usize = 1024;
/// Maximum data kept for an UNMAP list or a capacity: enough for 1,024 extents.
const LIST_BYTES_MAX: usize = 8 + 16 * 1024;

/// One connection: the framing state of each direction, and the login parameters.
#[derive(Debug, Default)]
pub struct IscsiConnection {
    halves: [Half; 2],
    digests: Digests,
    login: CapturedLogin,
    /// The initiator's direction, once a PDU has revealed it.
    initiator: Option<u8>,
    /// Data of the current PDU that is parsed at the PDU's end: sense data, an UNMAP list or a capacity.
    kept: [Vec<u8>; 2],
    /// Logical units whose names were reported.
    named: Vec<[u8; 8]>,
    /// Block size by logical unit.
    block_bytes: Vec<([u8; 8], u32)>,
}

impl IscsiConnection {
    fn session(&self) -> ScsiSession<'_> {
        ScsiSession {
            number: self.login.session,
            target: self.login.target.as_deref(),
        }
    }

    fn block_bytes_of(&self, lun: [u8; 8]) -> Option<u32> {
        self.block_bytes
            .iter()
            .find(|(unit, _)| *unit == lun)
            .map(|(_, bytes)| *bytes)
    }

    /// Stores a block size derived from a command or a capacity.
    fn set_block_bytes(&mut self, lun: [u8; 8], bytes: u32) {
        if let Some((_, known)) = self.block_bytes.iter_mut().find(|(unit, _)| *unit == lun) {
            *known = bytes;
        } else if self.block_bytes.len() < NAMED_MAX {
            self.block_bytes.push((lun, bytes));
        }
    }
}

/// The iSCSI dissector.
#[derive(Debug)]
pub struct Iscsi {
    tasks: ScsiTasks,
    sums: BlockSums,
}

impl Iscsi {
    fn on_event<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        event: PduEvent<'_>,
        time_ns: u64,
        out: &mut Out<'_, S>,
    ) {
        match event {
            PduEvent::Begin => self.on_begin(connection, flow, out),
            PduEvent::Data(at, bytes) => self.on_data(connection, flow, at, bytes, time_ns, out),
            PduEvent::End => {
                let end_ns = connection.halves[usize::from(flow.direction & 1)]
                    .pdu()
                    .last_ns;
                self.on_pdu_end(connection, flow, Some(end_ns), out)
            }
        }
    }

    /// Handles a header.
    fn on_begin<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        out: &mut Out<'_, S>,
    ) {
        let side = usize::from(flow.direction & 1);
        connection.kept[side].clear();
        let pdu = *connection.halves[side].pdu();
        let bhs = &pdu.bhs;
        let opcode = bhs.kind();
        connection.initiator = Some(if bhs.opcode & 0x20 == 0 {
            flow.direction
        } else {
            flow.direction ^ 1
        });
        let tag = bhs.initiator_task_tag.get();
        match opcode {
            Opcode::ScsiCommand => {
                let command = *pdu::ScsiCommand::view(bhs);
                self.begin_task(connection, flow, tag, Some(command), None, out);
            }
            Opcode::TaskManagementRequest => {
                let request = pdu::TaskManagementRequest::view(bhs);
                let function = request.function & code::task_management::FUNCTION_MASK;
                let function = Some((function, request.referenced_task_tag.get()));
                self.begin_task(connection, flow, tag, None, function, out);
            }
            Opcode::R2t => {
                if let Some(task) = self.tasks.of(flow.connection, tag) {
                    task.r2ts += 1;
                    task.first_r2t_ns.get_or_insert(pdu.first_ns);
                }
            }
            Opcode::DataIn | Opcode::DataOut => {
                let counted = u64::from(!self.tasks.waits(flow.connection, tag));
                *out.ledger.own::<IscsiId>(DATA_WITHOUT_TASK) += counted;
            }
            Opcode::Reject => *out.ledger.own::<IscsiId>(PDUS_REJECTED) += 1,
            // A login uses no digests, and earlier agreements no longer apply.
            Opcode::LoginRequest | Opcode::LoginResponse => connection.digests = Digests::NONE,
            _ => {}
        }
    }

    fn begin_task<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        tag: u32,
        command: Option<pdu::ScsiCommand>,
        function: Option<(u8, u32)>,
        out: &mut Out<'_, S>,
    ) {
        let pdu = connection.halves[usize::from(flow.direction & 1)].pdu();
        let (lun, target) = (pdu.bhs.lun, connection.login.target.as_deref());
        let place = MessagePlace {
            at: pdu.at,
            len: pdu.len,
        };
        let request = Message {
            first_ns: pdu.first_ns,
            last_ns: None,
            whole: false,
            place,
        };
        let has_new_name = connection.named.len() < NAMED_MAX && !connection.named.contains(&lun);
        let peers = flow.forward;
        let task = ScsiTask {
            record_id: out.ids.take(),
            peers,
            tag,
            request,
            lun,
            command,
            function,
            file: file_of(&peers, lun, target),
            has_new_name,
            out: Default::default(),
            into: Default::default(),
            r2ts: 0,
            first_r2t_ns: None,
            unit_block_bytes: connection.block_bytes_of(lun),
            extents: None,
            outstanding: self.tasks.count() as u32 + 1,
            session: connection.login.session,
            aborted_by: None,
        };
        let session = ScsiSession {
            number: connection.login.session,
            target,
        };
        let shown = task
            .offset()
            .and(task.block_bytes())
            .filter(|bytes| task.unit_block_bytes != Some(*bytes));
        self.tasks.begin(flow.connection, task, &session, out);
        if let Some(bytes) = shown {
            connection.set_block_bytes(lun, bytes);
        }
        if has_new_name {
            connection.named.push(lun);
        }
    }

    /// Handles bytes of a data segment.
    fn on_data<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        at: u32,
        bytes: &[u8],
        time_ns: u64,
        out: &mut Out<'_, S>,
    ) {
        let side = usize::from(flow.direction & 1);
        let pdu = connection.halves[side].pdu();
        let tag = pdu.bhs.initiator_task_tag.get();
        let offset = match pdu.bhs.kind() {
            Opcode::DataIn => pdu::DataIn::view(&pdu.bhs).buffer_offset.get(),
            Opcode::DataOut => pdu::DataOut::view(&pdu.bhs).buffer_offset.get(),
            Opcode::ScsiCommand => 0,
            Opcode::ScsiResponse => {
                let room = SENSE_BYTES_MAX.saturating_sub(connection.kept[side].len());
                return connection.kept[side].extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Opcode::LoginRequest => return connection.login.on_text(0, bytes),
            Opcode::LoginResponse => return connection.login.on_text(1, bytes),
            _ => return,
        };
        let Some(task) = self.tasks.of(flow.connection, tag) else {
            return;
        };
        let is_read = pdu.bhs.kind() == Opcode::DataIn;
        if is_read {
            task.into.add(bytes.len(), time_ns)
        } else {
            task.out.add(bytes.len(), time_ns)
        }
        out.ledger.data_bytes += bytes.len() as u64;
        if task
            .command
            .is_some_and(|command| commands::is_described_by_data(&command.cdb))
        {
            let room = LIST_BYTES_MAX.saturating_sub(connection.kept[side].len());
            connection.kept[side].extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        let place = task
            .offset()
            .map(|begin| begin + u64::from(offset) + u64::from(at));
        let Some(place) = place.filter(|_| bytes.len() >= BLOCK_BYTES) else {
            return;
        };
        // Blocks that straddle two segments are not summed, since the data of several tasks is interleaved in a
        // stream.
        let (record_id, file) = (task.record_id, task.file);
        let Out { sink, ledger, .. } = out;
        if !sink.wants_checksums() {
            return;
        }
        let mut emit = |offset: u64, sums: &[u64]| {
            ledger.blocks_summed += sums.len() as u64;
            sink.on_checksums(&ChecksumRun {
                record_id,
                file,
                write: !is_read,
                offset,
                sums,
            });
        };
        self.sums.start(place);
        self.sums.update(bytes, &mut emit);
        self.sums.finish(&mut emit);
    }

    /// Ends a PDU; `end_ns` is `None` if its end was not captured.
    fn on_pdu_end<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        end_ns: Option<u64>,
        out: &mut Out<'_, S>,
    ) {
        let side = usize::from(flow.direction & 1);
        let pdu = *connection.halves[side].pdu();
        let (bhs, tag) = (&pdu.bhs, pdu.bhs.initiator_task_tag.get());
        let whole = pdu.whole && end_ns.is_some();
        let place = MessagePlace {
            at: pdu.at,
            len: pdu.len,
        };
        let message = Message {
            first_ns: pdu.first_ns,
            last_ns: end_ns,
            whole,
            place,
        };
        if whole && !connection.kept[side].is_empty() {
            self.on_data_parsed(connection, flow);
        }
        match bhs.kind() {
            Opcode::ScsiCommand | Opcode::TaskManagementRequest => {
                if let Some(task) = self.tasks.of(flow.connection, tag) {
                    (task.request.last_ns, task.request.whole) = (end_ns, whole);
                }
            }
            Opcode::LoginRequest => connection.login.on_request(pdu::LoginRequest::view(bhs)),
            Opcode::LoginResponse => {
                if let Some(digests) = connection.login.on_response(pdu::LoginResponse::view(bhs)) {
                    connection.digests = digests;
                }
            }
            _ => {
                if let Some(answer) = answer_of(bhs, message, &connection.kept[side]) {
                    let session = connection.session();
                    self.tasks
                        .answer(flow.connection, tag, &answer, &session, out);
                }
            }
        }
    }

    /// Ends a PDU whose data contains the command's blocks or the block size.
    fn on_data_parsed(&mut self, connection: &mut IscsiConnection, flow: &Flow) {
        let side = usize::from(flow.direction & 1);
        let (bhs, data) = (connection.halves[side].pdu().bhs, &connection.kept[side]);
        let tag = bhs.initiator_task_tag.get();
        let begins = match bhs.kind() {
            Opcode::ScsiCommand => true,
            Opcode::DataOut => pdu::DataOut::view(&bhs).buffer_offset.get() == 0,
            Opcode::DataIn => pdu::DataIn::view(&bhs).buffer_offset.get() == 0,
            _ => false,
        };
        if !begins {
            return;
        }
        // An UNMAP list that continues in another PDU, or is too long to keep, is ignored.
        let len = data
            .get(2..4)
            .and_then(|len| len.try_into().ok())
            .map(u16::from_be_bytes);
        let is_whole = len.is_some_and(|len| 8 + usize::from(len) <= data.len());
        if let (true, Ok(extents)) = (is_whole && bhs.kind() != Opcode::DataIn, unmap::parse(data))
        {
            return self.tasks.unmaps(flow.connection, tag, extents);
        }
        let Some(task) = self.tasks.of(flow.connection, tag) else {
            return;
        };
        let bytes = task
            .command
            .and_then(|command| commands::capacity_block_bytes(&command.cdb, data));
        if let (Opcode::DataIn, Some(bytes)) = (bhs.kind(), bytes) {
            let lun = task.lun;
            connection.set_block_bytes(lun, bytes);
        }
    }

    /// Handles missing bytes in one direction.
    fn pass_over<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        gap: Gap,
        out: &mut Out<'_, S>,
    ) {
        let len = match gap {
            Gap::Hole(len) => Some(len),
            Gap::Jump => None,
        };
        let side = usize::from(flow.direction & 1);
        let was_framed = connection.halves[side].is_framed();
        let GapInPdu {
            data_missing: missing,
            begins,
            ended,
        } = connection.halves[side].on_gap(len);
        if begins {
            self.on_begin(connection, flow, out);
        }
        let pdu = connection.halves[side].pdu();
        out.ledger.slow_mode_entries +=
            u64::from(was_framed && !connection.halves[side].is_framed());
        if missing > 0
            && matches!(
                pdu.bhs.kind(),
                Opcode::DataIn | Opcode::DataOut | Opcode::ScsiCommand
            )
        {
            out.ledger.data_bytes_missing += u64::from(missing);
            let is_read = pdu.bhs.kind() == Opcode::DataIn;
            if let Some(task) = self
                .tasks
                .of(flow.connection, pdu.bhs.initiator_task_tag.get())
            {
                let moved = if is_read {
                    &mut task.into
                } else {
                    &mut task.out
                };
                moved.missing = moved.missing.saturating_add(missing);
            }
        }
        if ended {
            out.ledger.records_damaged += 1;
            // The header alone is useful, for example for a status that was sent with data.
            self.on_pdu_end(connection, flow, None, out);
        }
    }
}

/// The response that a target's PDU contains; `None` if it doesn't end a task. `sense` is the data of a SCSI
/// response.
#[inline]
fn answer_of(bhs: &Bhs, message: Message, sense: &[u8]) -> Option<TaskAnswer> {
    Some(match bhs.kind() {
        Opcode::DataIn if bhs.flags & code::response::STATUS != 0 => {
            let data = pdu::DataIn::view(bhs);
            TaskAnswer {
                message,
                status: Some(data.status),
                residual: residual(data.flags, data.residual_count.get()),
                ..TaskAnswer::default()
            }
        }
        Opcode::ScsiResponse => {
            let response = pdu::ScsiResponse::view(bhs);
            TaskAnswer {
                message,
                status: (response.response == 0).then_some(response.status),
                response: response.response,
                // Two bytes of length, then sense data (11.4.7.2).
                sense: sense.get(2..).and_then(Sense::parse),
                residual: residual(response.flags, response.residual_count.get()),
            }
        }
        Opcode::TaskManagementResponse => {
            let response = pdu::TaskManagementResponse::view(bhs).response;
            TaskAnswer {
                message,
                status: (response == 0).then_some(0),
                response,
                ..TaskAnswer::default()
            }
        }
        _ => return None,
    })
}

/// The residual: expected bytes that were not moved, or (negative) bytes needed beyond the expected length (RFC 7143,
/// 11.4.5).
fn residual(flags: u8, count: u32) -> Option<i64> {
    match (
        flags & code::response::UNDERFLOW != 0,
        flags & code::response::OVERFLOW != 0,
    ) {
        (true, _) => Some(count.into()),
        (false, true) => Some(-i64::from(count)),
        (false, false) => None,
    }
}

impl Dissector for Iscsi {
    type Connection = IscsiConnection;
    type Id = IscsiId;
    type Tables = tables::IscsiTables;
    const NAME: &'static str = "iscsi";
    const HELP: &'static str = "iSCSI on any port: SCSI commands and task management";
    const KINDS: &'static [OperationInfo] = &kinds::KINDS;
    const PROTOCOLS: &'static [ProtocolInfo] = &[ProtocolInfo {
        name: "SCSI",
        status_name: commands::status_name,
    }];
    const COUNTERS: &'static [Counter] = &[
        Counter {
            name: "iscsi_pdus_rejected",
            label: "PDUs rejected by targets",
            doc: "Reject PDUs of iSCSI targets.",
        },
        Counter {
            name: "iscsi_data_without_task",
            label: "data PDUs of unknown commands",
            doc: "iSCSI data PDUs whose command was not captured.",
        },
    ];

    fn new(limits: &Limits) -> Iscsi {
        let tasks = ScsiTasks::new(limits.calls_waiting, limits.call_timeout_ns);
        Iscsi {
            tasks,
            sums: BlockSums::default(),
        }
    }

    /// A login is conclusive, and so is a credible header on iSCSI's port. Other bytes on that port may begin in the
    /// middle of a PDU.
    fn claim(&self, flow: &Flow, bytes: &[u8]) -> Claim {
        let bhs = pdu::Bhs::peek(bytes).filter(|bhs| headers::is_credible(bhs));
        let is_login =
            bhs.is_some_and(|bhs| bhs.kind() == Opcode::LoginRequest && bhs.data_len() > 0);
        match (bhs, flow.has_port(PORT)) {
            (Some(_), true) => Claim::Bytes,
            (Some(bhs), false) if is_login && bhs.total_len(false, false) <= bytes.len() => {
                Claim::Bytes
            }
            (_, true) => Claim::Port,
            _ => Claim::No,
        }
    }

    fn on_bytes<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        bytes: &[u8],
        time_ns: u64,
        out: &mut Out<'_, S>,
    ) {
        let side = usize::from(flow.direction & 1);
        let mut rest = bytes;
        let (searched, was_framed) = (
            connection.halves[side].searched_all(),
            connection.halves[side].is_framed(),
        );
        loop {
            let IscsiConnection {
                halves, digests, ..
            } = connection;
            let waits = |tag| self.tasks.waits(flow.connection, tag);
            let Some(event) = halves[side].next(bytes, &mut rest, time_ns, digests, waits) else {
                break;
            };
            self.on_event(connection, flow, event, time_ns, out);
        }
        let half = &connection.halves[side];
        out.ledger.slow_mode_bytes += half.searched_all() - searched;
        out.ledger.slow_mode_entries += u64::from(was_framed && !half.is_framed());
    }

    fn on_gap<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        gap: Gap,
        out: &mut Out<'_, S>,
    ) {
        self.pass_over(connection, flow, gap, out);
    }

    fn framing_state(connection: &IscsiConnection, direction: u8) -> FramingState {
        let half = &connection.halves[usize::from(direction & 1)];
        let is_known = connection.initiator.is_some();
        match (half.is_framed(), half.gave_up() && !is_known) {
            (true, _) => FramingState::Framed,
            (false, true) => FramingState::GaveUp,
            (false, false) => FramingState::Searching,
        }
    }

    fn on_end<S: Sink>(
        &mut self,
        connection: &mut IscsiConnection,
        flow: &Flow,
        out: &mut Out<'_, S>,
    ) {
        let side = usize::from(flow.direction & 1);
        if connection.halves[side].on_gap(None).ended {
            out.ledger.records_damaged += 1;
            self.on_pdu_end(connection, flow, None, out);
        }
    }

    fn expire<S: Sink>(&mut self, now_ns: u64, out: &mut Out<'_, S>) {
        self.tasks.expire(now_ns, out);
    }

    fn finish<S: Sink>(&mut self, out: &mut Out<'_, S>) {
        self.tasks.finish(out);
    }
}
