//! The id of the iSCSI dissector, and the indexes of its protocol and counters.

use super::task::Scsi;
use crate::dissect::DissectorId;
use crate::operation::Protocol;

/// The iSCSI dissector's id.
#[derive(Debug)]
pub enum IscsiId {}

impl DissectorId for IscsiId {
    type Detail<'a> = Scsi<'a>;
}

/// The protocol of all iSCSI operations.
pub const SCSI: Protocol = Protocol::of::<IscsiId>(0);

/// Indexes of the counters.
pub const PDUS_REJECTED: usize = 0;
pub const DATA_WITHOUT_TASK: usize = 1;
