//! The first step of a command: all checks that are possible with its CDB, and the fast path for READ and WRITE. Called
//! by the transport for each command. The one rule: nothing here waits, and READ and WRITE neither allocate nor lock
//! unless a condition is pending.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brunt_block::Inline;
use brunt_wire::scsi::cdb::{self, Cdb, Transfer, op};
use brunt_wire::scsi::opcodes::{self, Lookup};
use brunt_wire::scsi::sense::ScsiStatus;

use super::TaskSet;
use super::task::{CommandPlan, LockMode, TaskStage, TaskWork};
use crate::scsi::command::Refused;
use crate::scsi::jobs::ByteRange;
use crate::scsi::lun::{flag, gate};
use crate::scsi::{Begin, CommandOutcome, DataIn, TaskAttribute, TransportCommand};

/// The conditions under which a transfer must be checked in full: flags of the nexus, and the unit's gate.
struct Refusing {
    flags: u32,
    gate: u32,
}

impl TaskSet {
    /// Begins a command; see [`Begin`].
    pub fn begin(&mut self, command: &TransportCommand<'_>) -> Begin {
        let cdb = cdb::pad(command.cdb);
        match cdb[0] {
            op::READ_10 | op::READ_16 | op::READ_12 | op::READ_6 => self.begin_read(command, &cdb),
            op::WRITE_10 | op::WRITE_16 | op::WRITE_12 | op::WRITE_6 => {
                self.begin_write(command, &cdb)
            }
            _ => self.begin_other(command, &cdb),
        }
    }

    /// READ: neither allocates nor locks unless a condition is pending.
    fn begin_read(&mut self, command: &TransportCommand<'_>, cdb: &Cdb) -> Begin {
        let refusing = Refusing {
            flags: flag::ATTENTION | flag::DENY_READ | flag::UNREACHABLE,
            gate: gate::CLOSED,
        };
        let range = match self.check_transfer(cdb, self.unit.gate(), refusing) {
            Ok((_, range)) => range,
            Err(refused) => return Begin::Done(CommandOutcome::new(command.tag, Err(refused), 0)),
        };
        let len = range.len as u32;
        if len == 0 {
            return Begin::Done(CommandOutcome::new(command.tag, Ok(DataIn::None), 0));
        }
        let inline = !matches!(self.unit.inline(), Inline::No);
        if inline && self.runs_now(command) && self.unit.locks.is_free(range.offset, range.len) {
            let data = DataIn::Inline {
                offset: range.offset,
                len,
            };
            return Begin::Done(CommandOutcome::new(command.tag, Ok(data), 0));
        }
        let Some(slot) = self.add(
            command,
            TaskWork::Read,
            TaskStage::Parked,
            range,
            LockMode::Share,
            0,
        ) else {
            return Begin::Done(task_set_full(command.tag));
        };
        self.run(slot);
        Begin::Pending
    }

    /// WRITE: neither allocates nor locks unless a condition is pending.
    fn begin_write(&mut self, command: &TransportCommand<'_>, cdb: &Cdb) -> Begin {
        let gate = self.unit.gate();
        let refusing = Refusing {
            flags: flag::ATTENTION | flag::DENY_WRITE | flag::UNREACHABLE,
            gate: gate::CLOSED | gate::PROTECTED,
        };
        let (transfer, range) = match self.check_transfer(cdb, gate, refusing) {
            Ok(checked) => checked,
            Err(refused) => return Begin::Done(CommandOutcome::new(command.tag, Err(refused), 0)),
        };
        let len = range.len as u32;
        if len == 0 {
            return Begin::Done(CommandOutcome::new(command.tag, Ok(DataIn::None), 0));
        }
        let force = transfer.fua || gate & gate::FORCE != 0;
        let Some(slot) = self.add(
            command,
            TaskWork::Write { force },
            TaskStage::Collecting,
            range,
            LockMode::Share,
            len,
        ) else {
            return Begin::Done(task_set_full(command.tag));
        };
        let whole = command.data_out_len >= len;
        let mut direct = None;
        if whole
            && self.runs_now(command)
            && !matches!(self.unit.inline(), Inline::No)
            && let Some(hold) = self.unit.locks.share(range.offset, range.len)
        {
            let task = self.tasks[slot].as_mut().expect("the task was just added");
            task.hold = hold;
            task.has_lock = true;
            direct = Some(range.offset);
        }
        Begin::Wants { len, direct }
    }

    /// Checks whether a READ or WRITE is admitted, and determines its range.
    #[inline]
    fn check_transfer(
        &mut self,
        cdb: &Cdb,
        gate: u32,
        refusing: Refusing,
    ) -> Result<(Transfer, ByteRange), Refused> {
        let flags = self.nexus.flags.load(Ordering::Acquire);
        if flags & refusing.flags != 0 || gate & refusing.gate != 0 {
            self.admit(cdb)?;
        }
        let transfer = Transfer::decode(cdb);
        let range = self.range_of(cdb, &transfer)?;
        Ok((transfer, range))
    }

    /// Whether a command needn't wait for ordered commands.
    #[inline]
    fn runs_now(&self, command: &TransportCommand<'_>) -> bool {
        self.ordered == 0 && command.attribute != TaskAttribute::Ordered
    }

    fn begin_other(&mut self, command: &TransportCommand<'_>, cdb: &Cdb) -> Begin {
        let refuse = |refused| Begin::Done(CommandOutcome::new(command.tag, Err(refused), 0));
        let unit = Arc::clone(&self.unit);
        let row = match opcodes::lookup(cdb, |which| unit.has(which)) {
            Lookup::Found(row) => row,
            Lookup::NoSuchAction => return refuse(Refused::field(1)),
            Lookup::NoSuchCode => return refuse(Refused::illegal(0x20, 0x00)),
        };
        if naca(cdb) {
            return refuse(Refused::field(row.usage.len() as u16 - 1));
        }
        if let Err(refused) = unit.admit(&self.nexus, row, cdb) {
            return refuse(refused);
        }
        let plan = match self.plan(cdb, command.data_out_len) {
            Ok(plan) => plan,
            Err(refused) => return refuse(refused),
        };
        match plan {
            CommandPlan::Answer(data) => Begin::Done(CommandOutcome::new(command.tag, Ok(data), 0)),
            CommandPlan::Collect { len, range, lock } => {
                match self.add(
                    command,
                    TaskWork::Collect(*cdb),
                    TaskStage::Collecting,
                    range,
                    lock,
                    len,
                ) {
                    Some(_) => Begin::Wants { len, direct: None },
                    None => Begin::Done(task_set_full(command.tag)),
                }
            }
            CommandPlan::Job { job, range, lock } => {
                match self.add(
                    command,
                    TaskWork::Job(job),
                    TaskStage::Parked,
                    range,
                    lock,
                    0,
                ) {
                    Some(slot) => {
                        self.run(slot);
                        Begin::Pending
                    }
                    None => Begin::Done(task_set_full(command.tag)),
                }
            }
        }
    }

    fn admit(&self, cdb: &Cdb) -> Result<(), Refused> {
        match opcodes::lookup(cdb, |which| self.unit.has(which)) {
            Lookup::Found(row) => self.unit.admit(&self.nexus, row, cdb),
            _ => Err(Refused::illegal(0x20, 0x00)),
        }
    }

    /// Checks a transfer against the medium (SBC-3, 4.1 and 5.x).
    #[inline]
    pub(super) fn range_of(&self, cdb: &Cdb, transfer: &Transfer) -> Result<ByteRange, Refused> {
        if transfer.protect != 0 {
            return Err(Refused::field(1));
        }
        if naca(cdb) {
            return Err(Refused::field(
                u16::from(cdb::length(cdb[0]).unwrap_or(16)) - 1,
            ));
        }
        let range = self.checked(transfer.lba, u64::from(transfer.blocks))?;
        if transfer.blocks > self.unit.shape().transfer_blocks_max {
            return Err(Refused::field(if cdb[0] >> 5 == 4 { 10 } else { 6 }));
        }
        Ok(range)
    }

    /// Converts a range of blocks to bytes.
    #[inline]
    pub(super) fn checked(&self, lba: u64, blocks: u64) -> Result<ByteRange, Refused> {
        let end = lba.checked_add(blocks).ok_or(Refused::OUT_OF_RANGE)?;
        if end > self.unit.blocks() {
            return Err(Refused::OUT_OF_RANGE);
        }
        let block_bytes = u64::from(self.unit.block_bytes());
        Ok(ByteRange {
            offset: lba * block_bytes,
            len: blocks * block_bytes,
        })
    }
}

/// NACA in the control byte: ACA is not supported (NORMACA is zero).
#[inline]
fn naca(cdb: &Cdb) -> bool {
    let at = cdb::length(cdb[0]).map_or(15, |length| usize::from(length) - 1);
    cdb[at] & 0x04 != 0
}

fn task_set_full(tag: u64) -> CommandOutcome {
    CommandOutcome::new(tag, Err(Refused::Status(ScsiStatus::TaskSetFull)), 0)
}
