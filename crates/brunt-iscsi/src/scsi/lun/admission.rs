//! Decides whether a command may proceed, regardless of its own fields: unit attentions, reservations, the medium's
//! state, write protection. Called for each command if one of the atomics is set. The one rule: a unit attention is
//! reported before anything else.

use std::sync::atomic::Ordering;

use brunt_wire::scsi::cdb::{Cdb, op};
use brunt_wire::scsi::opcodes::{Access, CommandDescriptor};
use brunt_wire::scsi::sense::{Sense, key};

use super::{LogicalUnit, NexusShared, flag, gate, pair_of};
use crate::scsi::attention::Attention;
use crate::scsi::command::Refused;
use crate::scsi::reservation::Allowed;
use crate::scsi::{Nexus, replies};

impl LogicalUnit {
    /// Checks whether a command may proceed, apart from its own fields: unit attentions,
    /// reservations, the medium's state, write protection.
    pub(in crate::scsi) fn admit(
        &self,
        nexus: &NexusShared,
        row: &CommandDescriptor,
        cdb: &Cdb,
    ) -> Result<(), Refused> {
        if matches!(cdb[0], op::INQUIRY | op::REPORT_LUNS | op::REQUEST_SENSE) {
            return Ok(());
        }
        let flags = nexus.flags.load(Ordering::Acquire);
        if flags & flag::ATTENTION != 0
            && let Some(attention) = self.take_attention(nexus.nexus.id)
        {
            return Err(Refused::Check(attention.sense()));
        }
        if flags & flag::UNREACHABLE != 0 {
            self.reachable(&nexus.nexus, cdb)?;
        }
        if flags & (flag::DENY_READ | flag::DENY_WRITE | flag::DENY_ALL) != 0
            && conflicts(flags, row, cdb)
        {
            return Err(Refused::Conflict);
        }
        let gate = self.gate();
        if gate & gate::CLOSED != 0 {
            self.closed(gate, cdb)?;
        }
        if gate & gate::PROTECTED != 0 && writes(cdb[0]) {
            // WRITE PROTECTED, or SOFTWARE WRITE PROTECTED if only the initiator requested it.
            let hard = self.options.read_only || self.backend.info().read_only;
            let ascq = if hard { 0x00 } else { 0x02 };
            return Err(Refused::Check(Sense::new(key::DATA_PROTECT, 0x27, ascq)));
        }
        Ok(())
    }

    fn closed(&self, gate: u32, cdb: &Cdb) -> Result<(), Refused> {
        if gate & gate::SANITIZING != 0 && !allowed_in_sanitize(cdb[0]) {
            return Err(Refused::Check(self.sanitize.sense()));
        }
        if gate & gate::NO_MEDIUM != 0 && needs_medium(cdb[0]) {
            return Err(Refused::Check(replies::no_medium()));
        }
        if gate & gate::STOPPED != 0 && needs_medium(cdb[0]) {
            return Err(Refused::Check(replies::stopped()));
        }
        if gate & gate::LOST != 0 && needs_medium(cdb[0]) {
            // LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED
            return Err(Refused::Check(Sense::new(key::NOT_READY, 0x04, 0x03)));
        }
        let leaves = cdb[0] == op::SANITIZE;
        if gate & gate::SANITIZE_FAILED != 0 && needs_medium(cdb[0]) && !leaves {
            // SANITIZE COMMAND FAILED
            return Err(Refused::Check(Sense::new(key::MEDIUM_ERROR, 0x31, 0x03)));
        }
        Ok(())
    }

    pub(super) fn take_attention(&self, nexus: u64) -> Option<Attention> {
        let mut state = self.state();
        let entry = state
            .nexuses
            .iter_mut()
            .find(|entry| entry.shared.nexus.id == nexus)?;
        let attention = entry.attentions.pop();
        if attention == Some(Attention::AsymmetricAccessStateChanged) {
            self.access_notified.fetch_add(1, Ordering::Relaxed);
        }
        self.refresh(&state);
        attention
    }

    /// The access that a copy running on another unit has to this unit.
    pub(in crate::scsi) fn allowed(&self, nexus: &Nexus) -> Allowed {
        let state = self.state();
        if state.reserved_by.is_some_and(|id| id != nexus.id) {
            return Allowed {
                read: false,
                write: false,
            };
        }
        let mut allowed = state.reservations.allowed(&pair_of(nexus));
        let gate = self.gate();
        allowed.read &= gate & gate::CLOSED == 0;
        allowed.write &= gate & (gate::CLOSED | gate::PROTECTED) == 0;
        allowed
    }
}

fn conflicts(flags: u32, row: &CommandDescriptor, cdb: &Cdb) -> bool {
    let all = flags & flag::DENY_ALL != 0;
    let read = flags & flag::DENY_READ != 0;
    let write = flags & flag::DENY_WRITE != 0;
    match (row.access, cdb[0]) {
        (Access::Always, _) => false,
        (Access::Persistent, op::READ_CAPACITY_10 | op::SERVICE_ACTION_IN_16) => false,
        (Access::Persistent, _) => all,
        (Access::Read, _) => read,
        (Access::Write, _) => write,
        // RESERVE and RELEASE check for conflicts themselves.
        (Access::Own, op::PREVENT_ALLOW_MEDIUM_REMOVAL) => write && cdb[4] & 3 != 0,
        (Access::Own, op::START_STOP_UNIT) => write && (all || cdb[4] & 0xf1 != 0x01),
        (Access::Own, _) => false,
    }
}

/// Whether a command changes the medium.
fn writes(opcode: u8) -> bool {
    matches!(
        opcode,
        op::WRITE_6
            | op::WRITE_10
            | op::WRITE_12
            | op::WRITE_16
            | op::WRITE_AND_VERIFY_10
            | op::WRITE_AND_VERIFY_12
            | op::WRITE_AND_VERIFY_16
            | op::WRITE_SAME_10
            | op::WRITE_SAME_16
            | op::WRITE_ATOMIC_16
            | op::COMPARE_AND_WRITE
            | op::ORWRITE_16
            | op::UNMAP
            | op::SANITIZE
    )
}

/// Whether a command needs the medium.
pub(in crate::scsi) fn needs_medium(opcode: u8) -> bool {
    !matches!(
        opcode,
        op::MODE_SENSE_6
            | op::MODE_SENSE_10
            | op::MODE_SELECT_6
            | op::MODE_SELECT_10
            | op::RESERVE_6
            | op::RESERVE_10
            | op::RELEASE_6
            | op::RELEASE_10
            | op::PERSISTENT_RESERVE_IN
            | op::PERSISTENT_RESERVE_OUT
            | op::START_STOP_UNIT
            | op::PREVENT_ALLOW_MEDIUM_REMOVAL
            | op::MAINTENANCE_IN
            | op::MAINTENANCE_OUT
            | op::RECEIVE_COPY_RESULTS
    )
}

/// Whether a command is allowed during SANITIZE (SBC-3, 4.11.2), apart from INQUIRY and similar commands.
fn allowed_in_sanitize(opcode: u8) -> bool {
    matches!(
        opcode,
        op::MAINTENANCE_IN | op::PERSISTENT_RESERVE_IN | op::READ_CAPACITY_10
    )
}
