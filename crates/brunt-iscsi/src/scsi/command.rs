//! The types exchanged between a transport and a logical unit.

use brunt_block::{Buf, DeviceError};
use brunt_wire::scsi::sense::{ScsiStatus, Sense, key};

use crate::device_errors;

/// The sender of a command: an I_T nexus (SAM-5, 4.7). The names are iSCSI's transport IDs; the number is unique for
/// the life of the process and never reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexus {
    /// Never reused.
    pub id: u64,
    /// The initiator port's name: `iqn…,i,0x<ISID in 12 hex digits>` (RFC 7143, 4.4.2).
    pub initiator_port: String,
    /// Relative target port identifier, which is the portal group tag.
    pub target_port: u16,
}

/// Task attributes (SAM-5, 8.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's names
pub enum TaskAttribute {
    #[default]
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

/// A command as a transport delivers it.
#[derive(Clone, Copy, Debug)]
pub struct TransportCommand<'a> {
    /// The transport's tag, unique among the outstanding commands of this task set; the outcome contains it, too.
    pub tag: u64,
    /// The CDB, at least 16 bytes (longer for an extended CDB).
    pub cdb: &'a [u8],
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Number of bytes that the initiator will send (zero if the command does not write).
    pub data_out_len: u32,
    /// Number of bytes that the initiator has room for (zero if the command does not read).
    pub data_in_len: u32,
}

/// The result of [`super::TaskSet::begin`].
#[derive(Debug)]
pub enum Begin {
    /// The command is finished.
    Done(CommandOutcome),
    /// The command needs no data and is running; the outcome comes from [`super::TaskSet::poll`].
    Pending,
    /// The command wants `len` bytes of Data-Out, possibly fewer than the initiator wants to send: the transport
    /// collects `min(len, data_out_len)`, drops the rest and reports the residual. Then call [`super::TaskSet::start`]
    /// with the data.
    Wants {
        /// In bytes.
        len: u32,
        /// Where the transport may write the data itself instead of collecting it: an offset in bytes from the start
        /// of the medium ([`brunt_block::Inline`]). If it does so, it calls [`super::TaskSet::start_direct`].
        /// Collecting is always allowed.
        direct: Option<u64>,
    },
}

/// The answer to a command. [`ScsiStatus::TaskAborted`] isn't sent to the initiator: the task was aborted (TAS is
/// zero), so the transport forgets the tag and sends nothing.
#[derive(Debug)]
pub struct CommandOutcome {
    /// The command's tag.
    pub tag: u64,
    /// Its status.
    pub status: ScsiStatus,
    /// Sense data, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// With GOOD: the data that the command returns, truncated to the CDB's allocation length but not to the
    /// initiator's expected length, so that the transport can report the residual.
    pub data_in: DataIn,
    /// Number of Data-Out bytes that the CDB describes, from which the transport computes the residual.
    pub data_out_len: u32,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Conflict,
    Check(Sense),
    Status(ScsiStatus),
}

impl Refused {
    pub(super) const fn illegal(asc: u8, ascq: u8) -> Refused {
        Refused::Check(Sense::new(key::ILLEGAL_REQUEST, asc, ascq))
    }

    /// INVALID FIELD IN CDB, at this byte.
    pub(super) const fn field(byte: u16) -> Refused {
        Refused::Check(Sense::new(key::ILLEGAL_REQUEST, 0x24, 0x00).with_field(true, byte, None))
    }

    /// INVALID FIELD IN PARAMETER LIST, at this byte.
    pub(super) const fn parameter(byte: u16) -> Refused {
        Refused::Check(Sense::new(key::ILLEGAL_REQUEST, 0x26, 0x00).with_field(false, byte, None))
    }

    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub(super) const OUT_OF_RANGE: Refused = Refused::illegal(0x21, 0x00);
    /// PARAMETER LIST LENGTH ERROR.
    pub(super) const LIST_LENGTH: Refused = Refused::illegal(0x1a, 0x00);
    /// INVALID FIELD IN COMMAND INFORMATION UNIT: the Data-Out ends within a block.
    pub(super) const DATA_LENGTH: Refused = Refused::illegal(0x0e, 0x03);
    /// INVALID FIELD IN CDB, without a field pointer: the CDB and the Data-Out have different lengths, though each is
    /// valid by itself.
    pub(super) const DATA_MISMATCH: Refused = Refused::illegal(0x24, 0x00);

    /// Converts a device error to what the initiator sees.
    pub(super) fn device(error: DeviceError, writing: bool) -> Refused {
        let sense = match error {
            DeviceError::Refused { kind, detail } => {
                match device_errors::status_for(kind, detail, writing) {
                    (ScsiStatus::CheckCondition, Some(sense)) => sense,
                    (status, _) => return Refused::Status(status),
                }
            }
            // SPACE ALLOCATION FAILED WRITE PROTECT
            DeviceError::Os(libc::ENOSPC | libc::EDQUOT) => {
                Sense::new(key::DATA_PROTECT, 0x27, 0x07)
            }
            DeviceError::Os(libc::EROFS) => Sense::new(key::DATA_PROTECT, 0x27, 0x00),
            DeviceError::Os(_) if writing => Sense::new(key::MEDIUM_ERROR, 0x0c, 0x00),
            DeviceError::Os(_) => Sense::new(key::MEDIUM_ERROR, 0x11, 0x00),
            DeviceError::OutOfRange => Sense::new(key::ILLEGAL_REQUEST, 0x21, 0x00),
            // LOGICAL UNIT COMMUNICATION TIME-OUT and LOGICAL UNIT COMMUNICATION FAILURE
            DeviceError::TimedOut => Sense::new(key::HARDWARE_ERROR, 0x08, 0x01),
            DeviceError::Gone => Sense::new(key::HARDWARE_ERROR, 0x08, 0x00),
            DeviceError::Unsupported => Sense::new(key::ILLEGAL_REQUEST, 0x20, 0x00),
        };
        Refused::Check(sense)
    }
}

impl CommandOutcome {
    pub(super) fn new(
        tag: u64,
        result: Result<DataIn, Refused>,
        data_out_len: u32,
    ) -> CommandOutcome {
        let (status, sense, data_in) = match result {
            Ok(data_in) => (ScsiStatus::Good, None, data_in),
            Err(Refused::Conflict) => (ScsiStatus::ReservationConflict, None, DataIn::None),
            Err(Refused::Check(sense)) => (ScsiStatus::CheckCondition, Some(sense), DataIn::None),
            Err(Refused::Status(status)) => (status, None, DataIn::None),
        };
        CommandOutcome {
            tag,
            status,
            sense,
            data_in,
            data_out_len,
        }
    }
}

/// Data for the initiator.
#[derive(Debug)]
pub enum DataIn {
    /// No data.
    None,
    /// Short answers such as INQUIRY data and mode pages.
    Bytes(Vec<u8>),
    /// Blocks that were read: the first `len` bytes of the buffer.
    Buf(Buf, u32),
    /// Blocks that the transport may read directly from the medium ([`brunt_block::Inline`]).
    Inline {
        /// In bytes from the start of the medium.
        offset: u64,
        /// In bytes.
        len: u32,
    },
}
