//! The logical units of a target by LUN, and the answers for LUNs that don't exist. Units may be added and removed
//! while connections are open: a connection checks [`LunMap::generation`] before each batch. The one rule: nexuses with
//! open units are notified of a change (REPORTED LUNS DATA HAS CHANGED) before their next command is executed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};

use brunt_wire::iscsi::pdu::lun_field;
use brunt_wire::scsi::cdb::{self, op};
use brunt_wire::scsi::inquiry;
use brunt_wire::scsi::sense::{Sense, key};

use super::command::Refused;
use super::replies;
use super::{CommandOutcome, DataIn, LogicalUnit, TransportCommand};

type Numbered = (u16, Arc<LogicalUnit>);

/// Maps LUNs to units. Each target has one map, shared by its connections.
pub struct LunMap {
    /// Ordered by LUN.
    units: RwLock<Vec<Numbered>>,
    generation: AtomicU64,
    own: Weak<LunMap>,
}

impl LunMap {
    /// Creates a map of these units, which keep a reference to it (for REPORT LUNS and EXTENDED COPY).
    ///
    /// # Panics
    /// A unit is already in a map, or two units have the same number.
    pub fn new(units: Vec<Numbered>) -> Arc<LunMap> {
        let map = Arc::new_cyclic(|own: &Weak<LunMap>| LunMap {
            units: RwLock::default(),
            generation: AtomicU64::new(0),
            own: own.clone(),
        });
        map.change(&[], units);
        map
    }

    /// The unit at `lun`, if there is one.
    pub fn get(&self, lun: u16) -> Option<Arc<LogicalUnit>> {
        let units = self.read();
        let index = units.binary_search_by_key(&lun, |(lun, _)| *lun).ok()?;
        Some(Arc::clone(&units[index].1))
    }

    /// All units, ordered by LUN.
    pub fn units(&self) -> Vec<Numbered> {
        self.read().clone()
    }

    /// Number of changes so far.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Removes units and adds new ones, which may reuse the LUNs of removed units. Returns the removed units;
    /// commands in progress on them run to completion.
    ///
    /// # Panics
    /// A unit is already in a map, or two units have the same number.
    pub fn change(&self, remove: &[u16], add: Vec<Numbered>) -> Vec<Numbered> {
        for (_, unit) in &add {
            assert!(unit.join(self.own.clone()), "a unit belongs to one map");
        }
        let mut units = self.units.write().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *units).into_iter();
        let (left, mut stay): (Vec<_>, Vec<_>) = all.partition(|(lun, _)| remove.contains(lun));
        if !left.is_empty() || !add.is_empty() {
            stay.iter().for_each(|(_, unit)| unit.luns_changed());
        }
        stay.extend(add);
        stay.sort_by_key(|(lun, _)| *lun);
        assert!(
            stay.windows(2).all(|pair| pair[0].0 != pair[1].0),
            "duplicate LUN"
        );
        *units = stay;
        self.generation.fetch_add(1, Ordering::AcqRel);
        drop(units);
        left.iter().for_each(|(_, unit)| unit.wake_connections());
        left
    }

    /// REPORT LUNS, the complete list.
    pub(super) fn report(&self) -> Vec<u8> {
        let numbers: Vec<u16> = self.read().iter().map(|(lun, _)| *lun).collect();
        inquiry::report_luns(numbers.into_iter().map(lun_field))
    }

    /// Called when a nexus has received the list, so that it no longer needs to be notified of changes (SAM-5, 5.14.2).
    pub(super) fn reported_to(&self, nexus: u64) {
        self.read()
            .iter()
            .for_each(|(_, unit)| unit.luns_reported_to(nexus));
    }

    /// The answer to a command of `nexus` for a LUN that doesn't exist (SPC-4, 6.6.1, 6.33, 6.39;
    /// SAM-5, 4.6.4).
    pub fn answer_unknown(&self, nexus: u64, command: &TransportCommand<'_>) -> CommandOutcome {
        let cdb = cdb::pad(command.cdb);
        let not_supported = Sense::new(key::ILLEGAL_REQUEST, 0x25, 0x00);
        let result = match cdb[0] {
            op::INQUIRY if cdb[1] & 3 == 0 && cdb[2] == 0 => Ok(replies::cut(
                inquiry::standard_no_unit(),
                cdb::list_length(&cdb),
            )),
            op::REPORT_LUNS => {
                self.reported_to(nexus);
                replies::report_luns(&cdb, || self.report())
            }
            op::REQUEST_SENSE => Ok(replies::request_sense(&cdb, &not_supported)),
            _ => Err(Refused::Check(not_supported)),
        };
        let result = result.map(|data| {
            if matches!(data, DataIn::Bytes(ref b) if b.is_empty()) {
                DataIn::None
            } else {
                data
            }
        });
        CommandOutcome::new(command.tag, result, 0)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Numbered>> {
        self.units.read().unwrap_or_else(PoisonError::into_inner)
    }
}
