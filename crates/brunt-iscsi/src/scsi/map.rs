//! The logical units of a target by their numbers, and the answers that the target gives when
//! there is none.

use std::sync::{Arc, Weak};

use brunt_wire::iscsi::pdu::lun_field;
use brunt_wire::scsi::cdb::{self, op};
use brunt_wire::scsi::inquiry;
use brunt_wire::scsi::sense::{Sense, key};

use super::answers;
use super::command::Refused;
use super::{CommandOutcome, DataIn, LogicalUnit, TransportCommand};

/// Which LUN is which. One for each target, shared by its connections.
pub struct LunMap {
    units: Vec<(u16, Arc<LogicalUnit>)>,
}

impl LunMap {
    /// The units know their map from now on (REPORT LUNS, EXTENDED COPY).
    ///
    /// # Panics
    /// A unit is in a map already, or two have the same number.
    pub fn new(mut units: Vec<(u16, Arc<LogicalUnit>)>) -> Arc<LunMap> {
        units.sort_by_key(|(lun, _)| *lun);
        assert!(units.windows(2).all(|pair| pair[0].0 != pair[1].0), "two units with one number");
        Arc::new_cyclic(|map: &Weak<LunMap>| {
            for (_, unit) in &units {
                assert!(unit.join(map.clone()), "a unit belongs to one map");
            }
            LunMap { units }
        })
    }

    /// The unit at `lun`.
    pub fn get(&self, lun: u16) -> Option<&Arc<LogicalUnit>> {
        let index = self.units.binary_search_by_key(&lun, |(lun, _)| *lun).ok()?;
        Some(&self.units[index].1)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Arc<LogicalUnit>)> {
        self.units.iter().map(|(lun, unit)| (*lun, unit))
    }

    /// REPORT LUNS, the whole list.
    pub(super) fn report(&self) -> Vec<u8> {
        inquiry::report_luns(self.units.iter().map(|(lun, _)| lun_field(*lun)))
    }

    /// The answer to a command for a LUN that is not there (SPC-4, 6.6.1, 6.33, 6.39; SAM-5, 4.6.4).
    pub fn answer_unknown(&self, command: &TransportCommand<'_>) -> CommandOutcome {
        let cdb = cdb::pad(command.cdb);
        let not_supported = Sense::new(key::ILLEGAL_REQUEST, 0x25, 0x00);
        let result = match cdb[0] {
            op::INQUIRY if cdb[1] & 3 == 0 && cdb[2] == 0 => {
                Ok(answers::cut(inquiry::standard_no_unit(), cdb::list_length(&cdb)))
            }
            op::REPORT_LUNS => answers::report_luns(&cdb, || self.report()),
            op::REQUEST_SENSE => Ok(answers::request_sense(&cdb, &not_supported)),
            _ => Err(Refused::Check(not_supported)),
        };
        let result = result.map(|data| {
            if matches!(data, DataIn::Bytes(ref b) if b.is_empty()) { DataIn::None } else { data }
        });
        CommandOutcome::new(command.tag, result, 0)
    }
}
