//! SCSI commands of a connection: numbers them, enters them in the task table, and hands them to their logical unit in
//! CmdSN order. Called by [`TargetConnection::on_header`] and, for commands that arrived early, whenever the command
//! window moves. The one rule: every delivered command is answered exactly once.

use brunt_wire::iscsi::ahs::Ahs;
use brunt_wire::iscsi::pdu::{Bhs, RESERVED_TAG, ScsiCommand, code};
use brunt_wire::scsi::sense::{Sense, key};

use super::io::{Broken, CommandBegun, ConnectionContext, ConnectionIo, Destination};
use super::tasks::{DataOutBurst, TaskPhase};
use super::{Current, Held, TargetConnection};
use crate::scsi::TransportCommand;
use crate::target_node::session::Turn;

/// Maximum commands of a connection: a full session plus some immediate commands.
const TASKS_MAX: usize = crate::target_node::session::SESSION_TASKS_MAX as usize + 64;
/// Maximum Data-Out of a command; the block limits page advertises less.
const DATA_OUT_BYTES_MAX: u32 = 256 << 20;

/// UNEXPECTED UNSOLICITED DATA.
pub(super) const UNEXPECTED_UNSOLICITED: Sense = Sense::new(key::ABORTED_COMMAND, 0x0c, 0x0c);
/// INCORRECT AMOUNT OF DATA.
pub(super) const INCORRECT_AMOUNT: Sense = Sense::new(key::ABORTED_COMMAND, 0x0c, 0x0d);

impl TargetConnection {
    pub(super) fn on_command(
        &mut self,
        bhs: &Bhs,
        ahs: &[u8],
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> Result<Destination, Broken> {
        let pdu = ScsiCommand::view(bhs);
        if self.discovery {
            return Ok(self.reject(bhs, code::reject::PROTOCOL_ERROR, cx));
        }
        let ahs = match ahs {
            [] => Ahs::default(),
            bytes => {
                Ahs::parse(bytes).map_err(|_| Broken("malformed additional header segment"))?
            }
        };
        let mut turn = Turn::Now;
        if !bhs.is_immediate() {
            turn = cx.window.arrive(pdu.cmd_sn.get(), self.id);
            if turn == Turn::Never {
                self.counters.ignored += 1;
                return Ok(Destination::Discard);
            }
        }
        if let Some(reason) = self.reason_to_reject(pdu) {
            if turn == Turn::Later {
                self.held.insert(pdu.cmd_sn.get(), Held::Nothing);
            }
            return Ok(self.reject(bhs, reason, cx));
        }
        let slot = self.tasks.take(pdu, &ahs);
        let immediate = pdu.data_segment_length.get();
        let is_final = pdu.flags & code::command::FINAL != 0;
        if immediate > 0 || !is_final {
            self.expect_unsolicited(slot, immediate, is_final);
        }
        if turn == Turn::Later {
            self.hold(slot, pdu, &ahs, cx);
        } else if self.hand_over(slot, pdu, &ahs, cx) {
            return Ok(Destination::None);
        }
        if immediate == 0 {
            self.advance(slot, cx);
            return Ok(Destination::None);
        }
        self.current = Current::Command {
            tag: self.tasks.tag(slot),
            len: immediate,
        };
        Ok(self.destination(slot, 0, immediate, cx.io))
    }

    #[inline]
    fn reason_to_reject(&self, pdu: &ScsiCommand) -> Option<u8> {
        let itt = pdu.initiator_task_tag.get();
        if itt == RESERVED_TAG {
            Some(code::reject::INVALID_PDU_FIELD)
        } else if self.tasks.find(itt).is_some() {
            Some(code::reject::TASK_IN_PROGRESS)
        } else if self.tasks.outstanding() >= TASKS_MAX {
            Some(code::reject::IMMEDIATE_COMMAND_REJECT)
        } else {
            None
        }
    }

    /// Prepares for unsolicited data: immediate data, Data-Out PDUs after the command, or both.
    fn expect_unsolicited(&mut self, slot: usize, immediate: u32, is_final: bool) {
        let task = &mut self.tasks[slot];
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
            task.unsolicited = Some(DataOutBurst {
                ttt: RESERVED_TAG,
                at: immediate,
                end,
                data_sn: 0,
            });
        }
    }

    /// Holds a command that arrived before its turn.
    fn hold(
        &mut self,
        slot: usize,
        pdu: &ScsiCommand,
        ahs: &Ahs<'_>,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) {
        self.tasks[slot].phase = TaskPhase::Held;
        self.tasks.keep_cdb(slot, pdu, ahs);
        self.held
            .insert(pdu.cmd_sn.get(), Held::Task(self.tasks.tag(slot)));
        self.tasks.enter(slot);
        cx.window.delivered();
    }

    /// Hands a command to its logical unit. Returns true if it has already been answered, like most commands without
    /// Data-Out, which are never entered in the tables.
    #[inline]
    fn hand_over(
        &mut self,
        slot: usize,
        pdu: &ScsiCommand,
        ahs: &Ahs<'_>,
        cx: &mut ConnectionContext<'_, impl ConnectionIo>,
    ) -> bool {
        let task = &self.tasks[slot];
        let command = TransportCommand {
            tag: self.tasks.tag(slot),
            cdb: &pdu.cdb,
            attribute: task.attribute,
            data_out_len: task.write_len,
            data_in_len: task.read_len,
        };
        let begun = match ahs.extended_cdb {
            None => cx.io.begin(task.lun, command),
            Some(rest) => {
                let cdb = [&pdu.cdb[..], rest].concat();
                cx.io.begin(
                    task.lun,
                    TransportCommand {
                        cdb: &cdb,
                        ..command
                    },
                )
            }
        };
        let brings_data = pdu.data_segment_length.get() > 0 || task.unsolicited.is_some();
        match begun {
            CommandBegun::Done(outcome) if !brings_data && task.failed.is_none() => {
                self.answer(slot, outcome, cx);
                self.tasks.clear(slot);
                true
            }
            begun => {
                self.tasks.enter(slot);
                cx.window.delivered();
                self.begun(slot, begun);
                false
            }
        }
    }

    fn begun(&mut self, slot: usize, begun: CommandBegun) {
        self.tasks.count_reading(slot);
        let task = &mut self.tasks[slot];
        match begun {
            CommandBegun::Done(outcome) => {
                task.phase = TaskPhase::Answered;
                task.outcome = Some(outcome);
            }
            CommandBegun::Pending => task.phase = TaskPhase::Running,
            CommandBegun::Wants { len, inline } => {
                task.phase = TaskPhase::Collecting;
                task.want = len.min(task.write_len);
                // Data with a wrong digest must not reach the medium. Data is buffered if there are data digests, if
                // lengths differ, or if data arrived before the command's turn.
                let agree = task.want == len && task.want == task.write_len;
                let direct = agree && !self.params.data_digest && task.buf_bytes == 0;
                task.inline = inline.filter(|_| direct);
                if len > DATA_OUT_BYTES_MAX {
                    task.failed = Some(INCORRECT_AMOUNT);
                }
            }
        }
    }

    /// Hands a held command to its logical unit.
    fn deliver(&mut self, slot: usize, io: &mut impl ConnectionIo) {
        let tag = self.tasks.tag(slot);
        let task = &mut self.tasks[slot];
        let cdb = std::mem::take(&mut task.cdb);
        let command = TransportCommand {
            tag,
            cdb: &cdb,
            attribute: task.attribute,
            data_out_len: task.write_len,
            data_in_len: task.read_len,
        };
        let begun = io.begin(task.lun, command);
        self.begun(slot, begun);
    }

    /// Processes held commands and PDUs up to the next gap in CmdSN.
    pub(super) fn drain_held(&mut self, cx: &mut ConnectionContext<'_, impl ConnectionIo>) {
        if self.held.is_empty() {
            return;
        }
        while let Some(cmd_sn) = cx.window.next_held(self.id) {
            match self.held.remove(&cmd_sn) {
                Some(Held::Task(tag)) => {
                    let Some(slot) = self.tasks.slot(tag) else {
                        continue;
                    };
                    self.deliver(slot, cx.io);
                    let coming = matches!(self.current, Current::Command { tag: current, .. }
                        | Current::DataOut { tag: current, .. } if current == tag);
                    if !coming {
                        self.advance(slot, cx);
                    }
                }
                Some(Held::Pdu(bhs, data)) => self.control(&bhs, &data, cx),
                Some(Held::Nothing) | None => {}
            }
        }
    }
}
