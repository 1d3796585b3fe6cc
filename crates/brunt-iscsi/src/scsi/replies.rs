//! Answers and sense data that don't depend on a logical unit's state.

use brunt_wire::scsi::cdb::{self, Cdb};
use brunt_wire::scsi::sense::{Sense, key};

use super::command::{DataIn, Refused};

/// An answer, truncated to the allocation length.
pub(super) fn cut(mut bytes: Vec<u8>, allocation_length: u32) -> DataIn {
    bytes.truncate(allocation_length as usize);
    if bytes.is_empty() {
        DataIn::None
    } else {
        DataIn::Bytes(bytes)
    }
}

pub(super) fn report_luns(cdb: &Cdb, list: impl FnOnce() -> Vec<u8>) -> Result<DataIn, Refused> {
    let allocation = cdb::be32(cdb, 6);
    match cdb[2] {
        0x00 | 0x02 => Ok(cut(list(), allocation)),
        // These lists contain only well-known logical units, and there are none.
        0x01 => Ok(cut(vec![0; 8], allocation)),
        _ => Err(Refused::field(2)),
    }
}

pub(super) fn request_sense(cdb: &Cdb, sense: &Sense) -> DataIn {
    // The command's DESC bit decides the format, not D_SENSE.
    cut(sense.to_bytes(cdb[1] & 1 != 0), u32::from(cdb[4]))
}

pub(super) fn no_medium() -> Sense {
    Sense::new(key::NOT_READY, 0x3a, 0x00)
}

/// LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED: the unit is stopped until START STOP UNIT starts it.
pub(super) fn stopped() -> Sense {
    Sense::new(key::NOT_READY, 0x04, 0x02)
}
