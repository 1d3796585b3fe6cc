//! The commands for RESERVE, RELEASE and persistent reservations, which apply the rules in `reservation` to the unit's
//! state. The one rule: a reservation that must be saved takes effect only once it is saved.

use brunt_wire::scsi::cdb::{self, Cdb};
use brunt_wire::scsi::persistent;
use brunt_wire::scsi::sense::{Sense, key};

use super::{LogicalUnit, pair_of};
use crate::scsi::command::Refused;
use crate::scsi::management::{AbortRequest, AbortScope};
use crate::scsi::reservation::ReservationRefusal;
use crate::scsi::{DataIn, Nexus, replies};

impl LogicalUnit {
    pub(super) fn reserve(&self, nexus: &Nexus) -> Result<DataIn, Refused> {
        let mut state = self.state();
        if state.reservations.any_registered() {
            // RESERVE (CRH; SPC-4, 5.12.3): success without effect for registrants, a conflict for other nexuses.
            let registered = state.reservations.is_registered(&pair_of(nexus));
            return if registered {
                Ok(DataIn::None)
            } else {
                Err(Refused::Conflict)
            };
        }
        if state.reserved_by.is_some_and(|id| id != nexus.id) {
            return Err(Refused::Conflict);
        }
        state.reserved_by = Some(nexus.id);
        self.refresh(&state);
        Ok(DataIn::None)
    }

    pub(super) fn release(&self, nexus: &Nexus) -> Result<DataIn, Refused> {
        let mut state = self.state();
        if state.reservations.any_registered() {
            let registered = state.reservations.is_registered(&pair_of(nexus));
            return if registered {
                Ok(DataIn::None)
            } else {
                Err(Refused::Conflict)
            };
        }
        if state.reserved_by == Some(nexus.id) {
            state.reserved_by = None;
            self.refresh(&state);
        }
        Ok(DataIn::None)
    }

    pub(super) fn persistent_reserve_in(&self, cdb: &Cdb) -> Result<DataIn, Refused> {
        let state = self.state();
        let answer = match cdb[1] & 0x1f {
            0 => state.reservations.keys(),
            1 => state.reservations.reservation(),
            2 => persistent::report_capabilities(
                self.options.store.is_some(),
                state.reservations.aptpl(),
            ),
            _ => state.reservations.full_status(),
        };
        Ok(replies::cut(answer, cdb::list_length(cdb)))
    }

    /// PERSISTENT RESERVE OUT. Aborts the tasks of preempted nexuses (PREEMPT AND ABORT).
    pub(in crate::scsi) fn persistent_reserve_out(
        &self,
        nexus: &Nexus,
        cdb: &Cdb,
        list: &[u8],
    ) -> Result<(), Refused> {
        let action = cdb[1] & 0x1f;
        let list = persistent::parse_out(action, list).map_err(Refused::Check)?;
        if list.aptpl && self.options.store.is_none() {
            return Err(Refused::parameter(20));
        }
        let mut state = self.state();
        let mut next = state.reservations.clone();
        let ports: Vec<u16> = state.groups.iter().map(|port| port.id).collect();
        let ports = &ports;
        let effects = next
            .out(&pair_of(nexus), action, cdb[2], &list, ports)
            .map_err(|refusal| match refusal {
                ReservationRefusal::Conflict => Refused::Conflict,
                ReservationRefusal::Check(sense) => Refused::Check(sense),
            })?;
        if let Some(store) = self.options.store.as_ref().filter(|_| effects.save) {
            // The change takes effect only if it is saved. INTERNAL TARGET FAILURE fits best if saving fails.
            let failed = Refused::Check(Sense::new(key::HARDWARE_ERROR, 0x44, 0x00));
            store.save(&next.to_text()).map_err(|_| failed)?;
        }
        state.reservations = next;
        for entry in &mut state.nexuses {
            let pair = entry.pair();
            for (who, attention) in &effects.attentions {
                if *who == pair {
                    entry.attentions.push(*attention);
                }
            }
        }
        for who in &effects.aborted {
            self.post(
                &state,
                &AbortRequest::new(AbortScope::Ports(who.clone())),
                None,
            );
        }
        self.refresh(&state);
        Ok(())
    }
}
