//! Through which groups of target ports a unit can be reached, and how (ALUA). Changed by the operator, by faults and
//! by SET TARGET PORT GROUPS; looked at for each command of a port that is not active. The one rule: a state that
//! changes is told to initiators as a unit attention before it shows in anything else.

use std::sync::atomic::Ordering;

use brunt_wire::scsi::alua::{self, AccessState, PortGroup, StatusCode};
use brunt_wire::scsi::cdb::{self, Cdb, op};
use brunt_wire::scsi::sense::{Sense, key};

use super::{LogicalUnit, UnitState};
use crate::scsi::attention::Attention;
use crate::scsi::command::Refused;
use crate::scsi::{DataIn, Nexus, answers};

/// Who changes the states (TPGS of INQUIRY, SPC-4, table 165).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alua {
    /// There is no asymmetric access: all ports are alike.
    Off,
    /// The target.
    #[default]
    Implicit,
    /// Initiators, with SET TARGET PORT GROUPS.
    Explicit,
    /// Either.
    Both,
}

impl Alua {
    /// Bits 5 and 4 of byte 5 of the standard INQUIRY data.
    pub(in crate::scsi) fn tpgs(self) -> u8 {
        match self {
            Alua::Off => 0,
            Alua::Implicit => 1,
            Alua::Explicit => 2,
            Alua::Both => 3,
        }
    }

    pub(in crate::scsi) fn is_explicit(self) -> bool {
        matches!(self, Alua::Explicit | Alua::Both)
    }
}

/// What came of a change of states, so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessReport {
    /// Each group, as it is.
    pub groups: Vec<PortGroup>,
    /// Commands refused because of a state, since the unit was made.
    pub refused: u64,
    /// Initiators that were told of a change, since then.
    pub told: u64,
}

/// There is no such group of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no target port group {0}")]
pub struct NoSuchGroup(pub u16);

impl UnitState {
    pub(super) fn access_of(&self, group: u16) -> AccessState {
        let found = self.groups.iter().find(|one| one.id == group);
        found.map_or(AccessState::ActiveOptimized, |one| one.state)
    }
}

impl LogicalUnit {
    /// Puts a group of target ports into a state, on behalf of the target. The state before.
    ///
    /// # Errors
    /// There is no such group.
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

    /// Says of a group of target ports whether initiators should prefer it. Like a new state, it is told to all:
    /// otherwise nobody would ask.
    ///
    /// # Errors
    /// There is no such group.
    pub fn set_preferred(&self, group: u16, preferred: bool) -> Result<(), NoSuchGroup> {
        let mut unit = self.state();
        let found = unit
            .groups
            .iter_mut()
            .find(|one| one.id == group)
            .ok_or(NoSuchGroup(group))?;
        if found.preferred != preferred {
            found.preferred = preferred;
            self.tell_access(&mut unit, None);
        }
        Ok(())
    }

    /// Is reached through these groups of target ports from now on. Those that were there stay as they are, but for
    /// `renewed` ones, which are as they are given.
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
            self.tell_access(&mut unit, None);
        }
    }

    /// The states, and what they did.
    pub fn access(&self) -> AccessReport {
        let groups = self.state().groups.clone();
        let refused = self.access_refused.load(Ordering::Relaxed);
        AccessReport {
            groups,
            refused,
            told: self.access_told.load(Ordering::Relaxed),
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
            self.tell_access(unit, by);
        }
    }

    /// To all but who did it.
    fn tell_access(&self, unit: &mut UnitState, by: Option<u64>) {
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
        Ok(answers::cut(
            alua::report(&self.state().groups, extended),
            cdb::be32(cdb, 6),
        ))
    }

    /// SET TARGET PORT GROUPS.
    pub(in crate::scsi) fn set_groups(&self, nexus: &Nexus, list: &[u8]) -> Result<(), Refused> {
        // Nothing is asked for: no error (SPC-4, 6.45).
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

    /// Whether a command may go through the port of this nexus.
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

    /// What REQUEST SENSE says of the port of this nexus.
    pub(super) fn access_sense(&self, nexus: &Nexus) -> Option<Sense> {
        not_accessible(self.state().access_of(nexus.target_port))
    }
}

/// LOGICAL UNIT NOT ACCESSIBLE, and why (SPC-4, 5.15.2.4).
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

/// Commands that go through a port that is not active, those apart that are always answered (SPC-4, 5.15.2.4.4 to
/// 5.15.2.4.6). READ CAPACITY is none of the standard's list for standby, but is not forbidden, and without it Linux
/// makes no disk of such a path.
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
