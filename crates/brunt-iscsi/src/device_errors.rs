//! Converts SCSI errors to [`DeviceError`] and back: a remote LUN's error becomes a device error that carries it, and a
//! device error becomes the status and sense data of a target's response.
//!
//! Used by the initiator and the target. The rule: an error from a LUN is passed on unchanged, even
//! through layers and a second target.

use std::fmt;

use brunt_block::error::{Language, WORDS_BYTES};
use brunt_block::{DeviceError, RefusalDetail, RefusalKind};
use brunt_wire::scsi::sense::{ScsiStatus, Sense, key};

/// The encoding of SCSI errors: status, sense key and flags, code, qualifier, sense-key-specific bytes, and the eight
/// bytes of the information field.
pub static SCSI: Language = Language {
    name: "SCSI",
    write,
    cause: |bytes| {
        let (status, sense) = decode(bytes);
        let sense = sense.map(|sense| Sense {
            specific: None,
            information: None,
            ..sense
        });
        encode(status, sense)
    },
};

/// Flags in the bits above the sense key.
const HAS_SENSE: u8 = 0x80;
const HAS_INFORMATION: u8 = 0x40;
const HAS_SPECIFIC: u8 = 0x20;
const DEFERRED: u8 = 0x10;

/// Converts a LUN's status and sense to a device error.
pub fn from_status(status: ScsiStatus, sense: Option<Sense>) -> DeviceError {
    DeviceError::Refused {
        kind: kind(status, sense.as_ref()),
        detail: RefusalDetail::Words {
            language: &SCSI,
            bytes: encode(status, sense),
        },
    }
}

/// Whether a status and its sense data mean that the command completed despite the error (SPC-4, 4.5.6).
pub fn is_recovered(status: ScsiStatus, sense: Option<&Sense>) -> bool {
    status == ScsiStatus::CheckCondition && kind(status, sense) == RefusalKind::Recovered
}

/// The status and sense of an error that came from a LUN; `None` for other errors.
pub fn status_of(error: &DeviceError) -> Option<(ScsiStatus, Option<Sense>)> {
    match error {
        DeviceError::Refused {
            detail: RefusalDetail::Words { language, bytes },
            ..
        } if **language == SCSI => Some(decode(bytes)),
        _ => None,
    }
}

/// The status and sense data for this kind of refusal: the LUN's own if `detail` carries them, otherwise those that
/// correspond to the kind.
pub(crate) fn status_for(
    kind: RefusalKind,
    detail: RefusalDetail,
    writing: bool,
) -> (ScsiStatus, Option<Sense>) {
    let sense = match (&detail, kind) {
        (RefusalDetail::Words { language, bytes }, _) if **language == SCSI => {
            return decode(bytes);
        }
        (RefusalDetail::Code([key, asc, ascq]), _) => Sense::new(*key & 0x0f, *asc, *ascq),
        (_, RefusalKind::Busy) => return (ScsiStatus::Busy, None),
        (_, RefusalKind::QueueFull) => return (ScsiStatus::TaskSetFull, None),
        (_, RefusalKind::Conflict) => return (ScsiStatus::ReservationConflict, None),
        (_, RefusalKind::Cancelled) => return (ScsiStatus::TaskAborted, None),
        // WRITE ERROR - RECOVERED WITH AUTO REALLOCATION; RECOVERED DATA WITH RETRIES
        (_, RefusalKind::Recovered) if writing => Sense::new(key::RECOVERED_ERROR, 0x0c, 0x01),
        (_, RefusalKind::Recovered) => Sense::new(key::RECOVERED_ERROR, 0x17, 0x01),
        // LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE
        (_, RefusalKind::NotReady) => Sense::new(key::NOT_READY, 0x04, 0x00),
        // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED
        (_, RefusalKind::Attention) => Sense::new(key::UNIT_ATTENTION, 0x29, 0x00),
        // WRITE ERROR; UNRECOVERED READ ERROR
        (_, RefusalKind::MediumError) if writing => Sense::new(key::MEDIUM_ERROR, 0x0c, 0x00),
        (_, RefusalKind::MediumError) => Sense::new(key::MEDIUM_ERROR, 0x11, 0x00),
        // LOGICAL UNIT COMMUNICATION FAILURE
        (_, RefusalKind::Unreachable) => Sense::new(key::HARDWARE_ERROR, 0x08, 0x00),
        // DATA PHASE ERROR
        (_, RefusalKind::Aborted) => Sense::new(key::ABORTED_COMMAND, 0x4b, 0x00),
        // WRITE PROTECTED
        (_, RefusalKind::Protected) => Sense::new(key::DATA_PROTECT, 0x27, 0x00),
        // INVALID FIELD IN CDB
        (_, RefusalKind::BadRequest) => Sense::new(key::ILLEGAL_REQUEST, 0x24, 0x00),
        // MISCOMPARE DURING VERIFY OPERATION
        (_, RefusalKind::Miscompare) => Sense::new(key::MISCOMPARE, 0x1d, 0x00),
        // INTERNAL TARGET FAILURE
        (_, RefusalKind::HardwareError | RefusalKind::Other) => {
            Sense::new(key::HARDWARE_ERROR, 0x44, 0x00)
        }
    };
    // The information field contains the block number (SBC-3, 4.18.1).
    let sense = if let RefusalDetail::Block(block) = detail {
        sense.with_information(block)
    } else {
        sense
    };
    (ScsiStatus::CheckCondition, Some(sense))
}

fn kind(status: ScsiStatus, sense: Option<&Sense>) -> RefusalKind {
    match (status, sense) {
        (ScsiStatus::Busy, _) => RefusalKind::Busy,
        (ScsiStatus::TaskSetFull, _) => RefusalKind::QueueFull,
        (ScsiStatus::ReservationConflict, _) => RefusalKind::Conflict,
        (ScsiStatus::TaskAborted, _) => RefusalKind::Cancelled,
        (ScsiStatus::CheckCondition, Some(sense)) => match sense.key {
            // A deferred error is about an earlier command, not this one (SPC-4, 4.5.6).
            key::RECOVERED_ERROR if !sense.deferred => RefusalKind::Recovered,
            key::NOT_READY => RefusalKind::NotReady,
            key::MEDIUM_ERROR => RefusalKind::MediumError,
            key::HARDWARE_ERROR => RefusalKind::HardwareError,
            key::ILLEGAL_REQUEST => RefusalKind::BadRequest,
            key::UNIT_ATTENTION => RefusalKind::Attention,
            key::DATA_PROTECT => RefusalKind::Protected,
            key::ABORTED_COMMAND => RefusalKind::Aborted,
            key::MISCOMPARE => RefusalKind::Miscompare,
            _ => RefusalKind::Other,
        },
        _ => RefusalKind::Other,
    }
}

fn encode(status: ScsiStatus, sense: Option<Sense>) -> [u8; WORDS_BYTES] {
    let mut bytes = [0; WORDS_BYTES];
    bytes[0] = status.to_byte();
    let Some(sense) = sense else { return bytes };
    bytes[1] = HAS_SENSE | sense.key & 0x0f;
    (bytes[2], bytes[3]) = (sense.asc, sense.ascq);
    if let Some(specific) = sense.specific {
        bytes[1] |= HAS_SPECIFIC;
        bytes[4..7].copy_from_slice(&specific);
    }
    if let Some(information) = sense.information {
        bytes[1] |= HAS_INFORMATION;
        bytes[7..].copy_from_slice(&information.to_be_bytes());
    }
    if sense.deferred {
        bytes[1] |= DEFERRED;
    }
    bytes
}

fn decode(bytes: &[u8; WORDS_BYTES]) -> (ScsiStatus, Option<Sense>) {
    let [
        status,
        flags,
        asc,
        ascq,
        specific @ ..,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
    ] = *bytes;
    let has = |flag| flags & flag != 0;
    let sense = Sense {
        key: flags & 0x0f,
        asc,
        ascq,
        information: has(HAS_INFORMATION)
            .then(|| u64::from_be_bytes(bytes[7..].try_into().expect("eight bytes"))),
        specific: has(HAS_SPECIFIC).then_some(specific),
        deferred: has(DEFERRED),
    };
    (
        ScsiStatus::from_byte(status),
        has(HAS_SENSE).then_some(sense),
    )
}

fn write(bytes: &[u8; WORDS_BYTES], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (status, sense) = decode(bytes);
    write!(f, "SCSI status {status:?}")?;
    sense.map_or(Ok(()), |sense| write!(f, ": {sense}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All statuses, with and without sense data and each of its parts.
    fn words() -> Vec<(ScsiStatus, Option<Sense>)> {
        let mut all = Vec::new();
        for status in 1..=u8::MAX {
            let status = ScsiStatus::from_byte(status);
            all.push((status, None));
            for key in 0..16 {
                let plain = Sense::new(key, 0x11 ^ key, 0xff - key);
                let field = plain.with_field(true, 0x1234, Some(3));
                let deferred = Sense {
                    deferred: true,
                    ..field.with_information(u64::MAX)
                };
                all.extend(
                    [plain, plain.with_information(7), field, deferred]
                        .map(|one| (status, Some(one))),
                );
            }
        }
        all
    }

    #[test]
    fn a_luns_error_is_passed_on_unchanged() {
        for (status, sense) in words() {
            let error = from_status(status, sense);
            assert_eq!(status_of(&error), Some((status, sense)));
            let DeviceError::Refused { kind, detail } = error else {
                panic!("{error:?}")
            };
            for writing in [false, true] {
                assert_eq!(status_for(kind, detail, writing), (status, sense));
            }
        }
    }

    #[test]
    fn a_kind_survives_the_conversion_to_sense_data_and_back() {
        let kinds = [
            RefusalKind::Recovered,
            RefusalKind::NotReady,
            RefusalKind::Attention,
            RefusalKind::MediumError,
            RefusalKind::HardwareError,
            RefusalKind::Aborted,
            RefusalKind::Cancelled,
            RefusalKind::Busy,
            RefusalKind::QueueFull,
            RefusalKind::Conflict,
            RefusalKind::Protected,
            RefusalKind::BadRequest,
            RefusalKind::Miscompare,
        ];
        for kind in kinds {
            for detail in [RefusalDetail::Nothing, RefusalDetail::Block(9)] {
                let (status, sense) = status_for(kind, detail, true);
                let DeviceError::Refused { kind: heard, .. } = from_status(status, sense) else {
                    panic!()
                };
                assert_eq!(heard, kind);
            }
        }
    }

    #[test]
    fn kinds_map_to_the_sense_data_that_disks_use() {
        let check = |kind, detail, writing, key, asc, ascq, information| {
            let sense = Sense {
                information,
                ..Sense::new(key, asc, ascq)
            };
            assert_eq!(
                status_for(kind, detail, writing),
                (ScsiStatus::CheckCondition, Some(sense))
            );
        };
        check(
            RefusalKind::MediumError,
            RefusalDetail::Block(8),
            false,
            key::MEDIUM_ERROR,
            0x11,
            0,
            Some(8),
        );
        check(
            RefusalKind::MediumError,
            RefusalDetail::Block(10),
            true,
            key::MEDIUM_ERROR,
            0x0c,
            0,
            Some(10),
        );
        check(
            RefusalKind::Recovered,
            RefusalDetail::Block(1),
            false,
            key::RECOVERED_ERROR,
            0x17,
            1,
            Some(1),
        );
        check(
            RefusalKind::Recovered,
            RefusalDetail::Nothing,
            true,
            key::RECOVERED_ERROR,
            0x0c,
            1,
            None,
        );
        check(
            RefusalKind::HardwareError,
            RefusalDetail::Nothing,
            true,
            key::HARDWARE_ERROR,
            0x44,
            0,
            None,
        );
        check(
            RefusalKind::Aborted,
            RefusalDetail::Nothing,
            true,
            key::ABORTED_COMMAND,
            0x4b,
            0,
            None,
        );
        check(
            RefusalKind::Other,
            RefusalDetail::Code([0xb, 0x4b, 0x04]),
            false,
            key::ABORTED_COMMAND,
            0x4b,
            4,
            None,
        );
        assert_eq!(
            status_for(RefusalKind::Busy, RefusalDetail::Nothing, false),
            (ScsiStatus::Busy, None)
        );
        assert_eq!(
            status_for(RefusalKind::Conflict, RefusalDetail::Nothing, false),
            (ScsiStatus::ReservationConflict, None)
        );
    }

    #[test]
    fn errors_are_printed_with_the_luns_status_and_sense() {
        let sense = Sense::new(key::MEDIUM_ERROR, 0x11, 0).with_information(8);
        let text = from_status(ScsiStatus::CheckCondition, Some(sense)).to_string();
        assert_eq!(
            text,
            "SCSI status CheckCondition: medium error (key 0x3, asc/ascq 11/00, information 8)"
        );
        assert_eq!(
            from_status(ScsiStatus::Busy, None).to_string(),
            "SCSI status Busy"
        );
    }
}
