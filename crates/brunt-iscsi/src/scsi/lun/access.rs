//! Asymmetric access (ALUA): the target port groups through which a unit can be reached, and their states. Changed by
//! the operator, by faults and by SET TARGET PORT GROUPS; checked for each command that arrives through a port that
//! isn't active. The one rule: initiators get a unit attention about a changed state before any other sign of it.

use std::sync::atomic::Ordering;

use brunt_wire::scsi::alua::{self, AccessState, PortGroup, StatusCode};
use brunt_wire::scsi::cdb::{self, Cdb, op};
use brunt_wire::scsi::sense::{Sense, key};

use super::{LogicalUnit, UnitState};
use crate::scsi::attention::Attention;
use crate::scsi::command::Refused;
use crate::scsi::{DataIn, Nexus, replies};

/// The port groups of a unit, with counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessReport {
    /// The groups in their current state.
    pub groups: Vec<PortGroup>,
    /// Number of commands refused because of a state since the unit was created.
    pub refused: u64,
    /// Number of unit attentions about state changes reported to initiators since the unit was created.
    pub notified: u64,
}

/// The target port group doesn't exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown target port group {0}")]
pub struct NoSuchGroup(pub u16);

impl UnitState {
    pub(super) fn access_of(&self, group: u16) -> AccessState {
        let found = self.groups.iter().find(|one| one.id == group);
        found.map_or(AccessState::ActiveOptimized, |one| one.state)
    }
}

impl LogicalUnit {
    /// Sets the state of a target port group, on behalf of the target. Returns the previous state.
    ///
    /// # Errors
    /// The group doesn't exist.
    pub fn set_access(&self, group: u16, state: AccessState) -> Result<AccessState, NoSuchGroup> {
        let mut unit = self.state();
        let before = unit
            .groups
            .iter()
            .find(|one| one.id == group)
            .ok_or(NoSuchGroup(group))?
            .state;
        self.change_access(&mut unit, &[(group, state)], StatusCode::Implicit, None);
        Ok(before)
    }

    /// Sets whether initiators should prefer a target port group. Initiators are notified as they are of a new state,
    /// because they wouldn't query the preference otherwise.
    ///
    /// # Errors
    /// The group doesn't exist.
    pub fn set_preferred(&self, group: u16, preferred: bool) -> Result<(), NoSuchGroup> {
        let mut unit = self.state();
        let found = unit
            .groups
            .iter_mut()
            .find(|one| one.id == group)
            .ok_or(NoSuchGroup(group))?;
        if found.preferred != preferred {
            found.preferred = preferred;
            self.notify_access_change(&mut unit, None);
        }
        Ok(())
    }

    /// Replaces the target port groups. Existing groups keep their state, except those in `renewed`, which are set as
    /// given.
    pub fn renew_groups(&self, groups: &[PortGroup], renewed: &[u16]) {
        let mut unit = self.state();
        let next =
            groups.iter().map(
                |group| match unit.groups.iter().find(|old| old.id == group.id) {
                    Some(old) if !renewed.contains(&group.id) => *old,
                    Some(old) if old.state != group.state => PortGroup {
                        status: StatusCode::Implicit,
                        ..*group
                    },
                    Some(old) => PortGroup {
                        status: old.status,
                        ..*group
                    },
                    None => *group,
                },
            );
        let next: Vec<PortGroup> = next.collect();
        if next != unit.groups {
            unit.groups = next;
            self.notify_access_change(&mut unit, None);
        }
    }

    /// Current states and counters.
    pub fn access(&self) -> AccessReport {
        let groups = self.state().groups.clone();
        let refused = self.access_refused.load(Ordering::Relaxed);
        AccessReport {
            groups,
            refused,
            notified: self.access_notified.load(Ordering::Relaxed),
        }
    }

    fn change_access(
        &self,
        unit: &mut UnitState,
        states: &[(u16, AccessState)],
        status: StatusCode,
        by: Option<u64>,
    ) {
        let mut changed = false;
        for (id, state) in states {
            for group in unit
                .groups
                .iter_mut()
                .filter(|group| group.id == *id && group.state != *state)
            {
                (group.state, group.status) = (*state, status);
                changed = true;
            }
        }
        if changed {
            self.notify_access_change(unit, by);
        }
    }

    /// Notifies all nexuses except `by`.
    fn notify_access_change(&self, unit: &mut UnitState, by: Option<u64>) {
        for entry in unit
            .nexuses
            .iter_mut()
            .filter(|entry| Some(entry.shared.nexus.id) != by)
        {
            entry
                .attentions
                .push(Attention::AsymmetricAccessStateChanged);
        }
        self.refresh(unit);
    }

    /// REPORT TARGET PORT GROUPS.
    pub(super) fn report_groups(&self, cdb: &Cdb) -> Result<DataIn, Refused> {
        let extended = match cdb[1] >> 5 {
            0 => false,
            1 => true,
            _ => return Err(Refused::field(1)),
        };
        Ok(replies::cut(
            alua::report(&self.state().groups, extended),
            cdb::be32(cdb, 6),
        ))
    }

    /// SET TARGET PORT GROUPS.
    pub(in crate::scsi) fn set_groups(&self, nexus: &Nexus, list: &[u8]) -> Result<(), Refused> {
        // An empty list is not an error (SPC-4, 6.45).
        if list.is_empty() {
            return Ok(());
        }
        let wanted = alua::parse_set(list).ok_or(Refused::LIST_LENGTH)?;
        let mut unit = self.state();
        let mut states = Vec::new();
        for (index, (id, code)) in wanted.iter().enumerate() {
            let byte = 4 + 4 * index as u16;
            let state = AccessState::settable(*code).ok_or(Refused::parameter(byte))?;
            if !unit.groups.iter().any(|group| group.id == *id) {
                return Err(Refused::parameter(byte + 2));
            }
            states.push((*id, state));
        }
        self.change_access(&mut unit, &states, StatusCode::Explicit, Some(nexus.id));
        Ok(())
    }

    /// Checks whether a command is allowed through this nexus's port.
    pub(super) fn reachable(&self, nexus: &Nexus, cdb: &Cdb) -> Result<(), Refused> {
        let state = self.state().access_of(nexus.target_port);
        match not_accessible(state).filter(|_| !allowed(state, cdb)) {
            None => Ok(()),
            Some(sense) => {
                self.access_refused.fetch_add(1, Ordering::Relaxed);
                Err(Refused::Check(sense))
            }
        }
    }

    /// The sense data that REQUEST SENSE returns for this nexus's port.
    pub(super) fn access_sense(&self, nexus: &Nexus) -> Option<Sense> {
        not_accessible(self.state().access_of(nexus.target_port))
    }
}

/// LOGICAL UNIT NOT ACCESSIBLE with the reason (SPC-4, 5.15.2.4).
pub(super) fn not_accessible(state: AccessState) -> Option<Sense> {
    let qualifier = match state {
        AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => return None,
        AccessState::Transitioning => 0x0a,
        AccessState::Standby => 0x0b,
        AccessState::Unavailable => 0x0c,
        // LOGICAL UNIT NOT READY, OFFLINE.
        AccessState::Offline => 0x12,
    };
    Some(Sense::new(key::NOT_READY, 0x04, qualifier))
}

/// Whether a command is allowed through a port that isn't active, apart from commands that are always answered (SPC-4,
/// 5.15.2.4.4 to 5.15.2.4.6). READ CAPACITY isn't on the standard's list for standby, but it isn't forbidden either,
/// and Linux needs it to create a disk for such a path.
fn allowed(state: AccessState, cdb: &Cdb) -> bool {
    let action = cdb[1] & 0x1f;
    match (cdb[0], state) {
        (op::MAINTENANCE_IN, _) => action == op::SA_REPORT_TARGET_PORT_GROUPS,
        (op::MAINTENANCE_OUT, AccessState::Standby | AccessState::Unavailable) => true,
        (
            op::MODE_SELECT_6
            | op::MODE_SELECT_10
            | op::MODE_SENSE_6
            | op::MODE_SENSE_10
            | op::PERSISTENT_RESERVE_IN
            | op::PERSISTENT_RESERVE_OUT
            | op::READ_CAPACITY_10,
            AccessState::Standby,
        ) => true,
        (op::SERVICE_ACTION_IN_16, AccessState::Standby) => action == op::SA_READ_CAPACITY_16,
        _ => false,
    }
}
