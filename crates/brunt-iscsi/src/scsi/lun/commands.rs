//! Commands that read or change a unit's state and need no medium. Called by the task set. The one rule: other nexuses
//! get a unit attention about each change before any other sign of it.

use brunt_wire::scsi::cdb::{self, Cdb, op};
use brunt_wire::scsi::{copy, mode};

use super::{LogicalUnit, gate};
use crate::scsi::attention::Attention;
use crate::scsi::command::Refused;
use crate::scsi::{DataIn, Nexus, answers, replies};

impl LogicalUnit {
    /// Answers commands that need neither the medium nor Data-Out.
    pub(in crate::scsi) fn answer(&self, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
        match cdb[0] {
            op::TEST_UNIT_READY => Ok(DataIn::None),
            op::INQUIRY => answers::inquiry(self, nexus, cdb),
            op::REQUEST_SENSE => Ok(self.request_sense(nexus, cdb)),
            op::REPORT_LUNS => {
                if let Some(map) = self.map() {
                    map.reported_to(nexus.id);
                }
                let report = || self.map().map_or_else(|| vec![0; 8], |map| map.report());
                replies::report_luns(cdb, report)
            }
            op::MODE_SENSE_6 | op::MODE_SENSE_10 => {
                let settings = self.state().settings;
                answers::mode_sense(self, &settings, cdb)
            }
            op::READ_CAPACITY_10 => Ok(answers::read_capacity_10(self)),
            op::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == op::SA_READ_CAPACITY_16 => {
                Ok(answers::read_capacity_16(self, cdb))
            }
            op::SERVICE_ACTION_IN_16 => answers::get_lba_status(self, cdb),
            op::READ_DEFECT_DATA_10 | op::READ_DEFECT_DATA_12 => Ok(answers::read_defect_data(cdb)),
            op::MAINTENANCE_IN if cdb[1] & 0x1f == op::SA_REPORT_SUPPORTED_OPERATION_CODES => {
                answers::supported_opcodes(self, cdb)
            }
            op::MAINTENANCE_IN if cdb[1] & 0x1f == op::SA_REPORT_TARGET_PORT_GROUPS => {
                self.report_groups(cdb)
            }
            op::MAINTENANCE_IN => answers::supported_task_management(cdb),
            op::RESERVE_6 | op::RESERVE_10 => self.reserve(nexus),
            op::RELEASE_6 | op::RELEASE_10 => self.release(nexus),
            op::PERSISTENT_RESERVE_IN => self.persistent_reserve_in(cdb),
            op::PREVENT_ALLOW_MEDIUM_REMOVAL => self.prevent_allow(nexus, cdb),
            op::RECEIVE_COPY_RESULTS => self.copy_results(nexus, cdb),
            _ => Err(Refused::illegal(0x20, 0x00)),
        }
    }

    fn request_sense(&self, nexus: &Nexus, cdb: &Cdb) -> DataIn {
        let gate = self.gate();
        let sense = match self.take_attention(nexus.id) {
            Some(attention) => attention.sense(),
            None if gate & gate::SANITIZING != 0 => self.sanitize.sense(),
            None if gate & gate::NO_MEDIUM != 0 => replies::no_medium(),
            None if gate & gate::STOPPED != 0 => replies::stopped(),
            None => self.access_sense(nexus).unwrap_or_default(),
        };
        replies::request_sense(cdb, &sense)
    }

    fn prevent_allow(&self, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
        let mut state = self.state();
        let entry = state
            .nexuses
            .iter_mut()
            .find(|entry| entry.shared.nexus.id == nexus.id);
        entry
            .expect("commands come from attached nexuses")
            .prevents_removal = match cdb[4] & 3 {
            0 => false,
            1 => true,
            _ => return Err(Refused::field(4)),
        };
        Ok(DataIn::None)
    }

    /// START STOP UNIT. Returns whether the cache must be flushed before the answer.
    pub(in crate::scsi) fn start_stop(&self, nexus: &Nexus, cdb: &Cdb) -> Result<bool, Refused> {
        let (power_condition, no_flush) = (cdb[4] >> 4, cdb[4] & 0x04 != 0);
        let (load_eject, start) = (cdb[4] & 0x02 != 0, cdb[4] & 0x01 != 0);
        // There is no power condition page: power conditions are accepted but change nothing (SBC-3, 5.25).
        if power_condition != 0 {
            return Ok(false);
        }
        if load_eject {
            if !self.options.removable {
                return Err(Refused::field(4));
            }
            let mut state = self.state();
            let changes = state.medium_loaded != start;
            if (changes || !start) && state.nexuses.iter().any(|entry| entry.prevents_removal) {
                // MEDIUM REMOVAL PREVENTED; a prevention that was set while the medium was out also locks the tray.
                return Err(Refused::illegal(0x53, 0x02));
            }
            if changes {
                state.medium_loaded = start;
                if start {
                    for entry in state
                        .nexuses
                        .iter_mut()
                        .filter(|entry| entry.shared.nexus.id != nexus.id)
                    {
                        entry.attentions.push(Attention::MediumMayHaveChanged);
                    }
                }
                self.refresh(&state);
            }
        } else if !self.options.removable {
            // A stopped unit refuses commands that need the medium. A unit with a tray keeps its medium ready until
            // the medium is ejected, as libiscsi's test suite expects.
            let mut state = self.state();
            state.stopped = !start;
            self.refresh(&state);
        }
        Ok(!start && !no_flush)
    }

    /// MODE SELECT. Returns whether the cache must be flushed before the answer.
    pub(in crate::scsi) fn mode_select(
        &self,
        nexus: &Nexus,
        cdb: &Cdb,
        list: &[u8],
    ) -> Result<bool, Refused> {
        let mut state = self.state();
        let before = state.settings;
        let ten = cdb[0] == op::MODE_SELECT_10;
        let after = mode::parse_select(ten, list, &before, self.blocks(), self.shape.block_bytes)
            .map_err(Refused::Check)?;
        if after != before {
            state.settings = after;
            for entry in state
                .nexuses
                .iter_mut()
                .filter(|entry| entry.shared.nexus.id != nexus.id)
            {
                entry.attentions.push(Attention::ModeParametersChanged);
            }
            self.refresh(&state);
        }
        Ok(before.write_cache && !after.write_cache)
    }

    fn copy_results(&self, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
        let allocation = cdb::be32(cdb, 10);
        if cdb[1] & 0x1f == op::SA_OPERATING_PARAMETERS {
            return Ok(replies::cut(copy::operating_parameters(), allocation));
        }
        let state = self.state();
        let copy = state
            .copies
            .iter()
            .rev()
            .find(|copy| copy.nexus == nexus.id && copy.list == cdb[2]);
        let copy = copy.ok_or(Refused::field(2))?;
        Ok(replies::cut(
            copy::copy_status(copy.failed, copy.segments, copy.bytes),
            allocation,
        ))
    }
}
