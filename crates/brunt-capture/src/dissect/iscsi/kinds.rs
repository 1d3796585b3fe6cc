//! The kinds of iSCSI operations: SCSI commands and task management. The one rule: a command that is not in the table
//! still counts as an operation, of kind "SCSI OTHER".

use brunt_result::OpKind;
use brunt_wire::scsi::cdb::Cdb;

use super::commands::{TASK_MANAGEMENT, place};
use super::id::IscsiId;
use crate::dissect::OperationInfo;
use crate::operation::OperationKind;

/// The kinds, in the order of `place`.
pub const KINDS: [OperationInfo; 17] = [
    OperationInfo::of("SCSI READ", OpKind::Read),
    OperationInfo::of("SCSI WRITE", OpKind::Write),
    OperationInfo {
        name: "SCSI SYNCHRONIZE CACHE",
        op: None,
    },
    OperationInfo {
        name: "SCSI UNMAP",
        op: None,
    },
    OperationInfo {
        name: "SCSI WRITE SAME",
        op: None,
    },
    OperationInfo {
        name: "SCSI COMPARE AND WRITE",
        op: None,
    },
    OperationInfo {
        name: "SCSI VERIFY",
        op: None,
    },
    OperationInfo {
        name: "SCSI TEST UNIT READY",
        op: None,
    },
    OperationInfo {
        name: "SCSI INQUIRY",
        op: None,
    },
    OperationInfo {
        name: "SCSI READ CAPACITY",
        op: None,
    },
    OperationInfo {
        name: "SCSI REPORT LUNS",
        op: None,
    },
    OperationInfo {
        name: "SCSI MODE SENSE",
        op: None,
    },
    OperationInfo {
        name: "SCSI REQUEST SENSE",
        op: None,
    },
    OperationInfo {
        name: "SCSI PERSISTENT RESERVE",
        op: None,
    },
    OperationInfo {
        name: "SCSI EXTENDED COPY",
        op: None,
    },
    OperationInfo {
        name: "SCSI OTHER",
        op: None,
    },
    OperationInfo {
        name: "iSCSI TASK MANAGEMENT",
        op: None,
    },
];
/// WRITE: writes to a logical unit.
pub const SCSI_WRITE: OperationKind = OperationKind::of::<IscsiId>(1);
/// SYNCHRONIZE CACHE: makes written data durable.
pub const SCSI_SYNCHRONIZE_CACHE: OperationKind = OperationKind::of::<IscsiId>(2);

/// The kind of a command; `None` means task management.
pub fn kind(cdb: Option<&Cdb>) -> OperationKind {
    OperationKind::of::<IscsiId>(cdb.map_or(TASK_MANAGEMENT, place))
}
