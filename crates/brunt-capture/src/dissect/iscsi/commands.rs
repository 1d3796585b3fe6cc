//! SCSI commands: the fields of their CDBs that determine kind and blocks, and the names of statuses. The one rule:
//! an unknown command still counts as an operation, with the index of "SCSI OTHER".

use brunt_wire::scsi::cdb::{Cdb, Transfer, op};
use brunt_wire::scsi::sense::ScsiStatus;

use crate::key::TransferDirection;

const OTHER: u16 = 15;
/// The index of the kind for task management functions.
pub const TASK_MANAGEMENT: u16 = 16;

/// The index of a command's kind.
pub const fn place(cdb: &Cdb) -> u16 {
    match cdb[0] {
        op::READ_6 | op::READ_10 | op::READ_12 | op::READ_16 => 0,
        op::WRITE_6 | op::WRITE_10 | op::WRITE_12 | op::WRITE_16 | op::WRITE_ATOMIC_16 => 1,
        op::WRITE_AND_VERIFY_10 | op::WRITE_AND_VERIFY_12 | op::WRITE_AND_VERIFY_16 => 1,
        op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => 2,
        op::UNMAP => 3,
        op::WRITE_SAME_10 | op::WRITE_SAME_16 => 4,
        op::COMPARE_AND_WRITE => 5,
        op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => 6,
        op::TEST_UNIT_READY => 7,
        op::INQUIRY => 8,
        op::READ_CAPACITY_10 => 9,
        op::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == op::SA_READ_CAPACITY_16 => 9,
        op::REPORT_LUNS => 10,
        op::MODE_SENSE_6 | op::MODE_SENSE_10 => 11,
        op::REQUEST_SENSE => 12,
        op::PERSISTENT_RESERVE_IN | op::PERSISTENT_RESERVE_OUT => 13,
        op::EXTENDED_COPY => 14,
        _ => OTHER,
    }
}

/// The direction in which a command moves block data, if it moves any.
pub fn direction(cdb: &Cdb) -> Option<TransferDirection> {
    match place(cdb) {
        0 => Some(TransferDirection::Read),
        1 => Some(TransferDirection::Write),
        _ => None,
    }
}

/// Whether a command is UNMAP, which lists its blocks in its data.
pub fn is_unmap(cdb: &Cdb) -> bool {
    cdb[0] == op::UNMAP
}

/// Whether a command's data is parsed: the list of an UNMAP, or a capacity.
pub fn is_described_by_data(cdb: &Cdb) -> bool {
    matches!(place(cdb), 3 | 9)
}

/// Whether a command is WRITE SAME, which sends at most one block.
pub fn is_write_same(cdb: &Cdb) -> bool {
    place(cdb) == 4
}

/// The logical unit's block size, if `data` is a target's response to READ CAPACITY (SBC-4, 5.15 and 5.16).
pub fn capacity_block_bytes(cdb: &Cdb, data: &[u8]) -> Option<u32> {
    let at = match (place(cdb), cdb[0]) {
        (9, op::READ_CAPACITY_10) => 4,
        (9, _) => 8,
        _ => return None,
    };
    let bytes = data
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_be_bytes)?;
    (512..=1 << 20).contains(&bytes).then_some(bytes)
}

/// The blocks that a command addresses, if its CDB contains them.
pub fn blocks(cdb: &Cdb) -> Option<(u64, u32)> {
    match place(cdb) {
        5 => Some((Transfer::decode(cdb).lba, u32::from(cdb[13]))),
        0 | 1 | 2 | 4 | 6 => {
            let Transfer { lba, blocks, .. } = Transfer::decode(cdb);
            Some((lba, blocks))
        }
        _ => None,
    }
}

/// The name of a status (SAM-5, 5.3.1).
pub fn status_name(status: u32) -> Option<&'static str> {
    Some(match ScsiStatus::from_byte(u8::try_from(status).ok()?) {
        ScsiStatus::Good => "GOOD",
        ScsiStatus::CheckCondition => "CHECK CONDITION",
        ScsiStatus::ConditionMet => "CONDITION MET",
        ScsiStatus::Busy => "BUSY",
        ScsiStatus::ReservationConflict => "RESERVATION CONFLICT",
        ScsiStatus::TaskSetFull => "TASK SET FULL",
        ScsiStatus::AcaActive => "ACA ACTIVE",
        ScsiStatus::TaskAborted => "TASK ABORTED",
        ScsiStatus::Other(_) => return None,
    })
}
