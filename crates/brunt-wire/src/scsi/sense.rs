//! Status and sense data (SAM-5 5.3, SPC-4 4.5), with which a device reports errors.

/// SCSI status codes (SAM-5, 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's own names
pub enum ScsiStatus {
    Good,
    CheckCondition,
    ConditionMet,
    Busy,
    ReservationConflict,
    TaskSetFull,
    AcaActive,
    TaskAborted,
    /// Not defined by the standard.
    Other(u8),
}

impl ScsiStatus {
    /// Converts from the byte on the wire.
    pub const fn from_byte(byte: u8) -> ScsiStatus {
        match byte {
            0x00 => ScsiStatus::Good,
            0x02 => ScsiStatus::CheckCondition,
            0x04 => ScsiStatus::ConditionMet,
            0x08 => ScsiStatus::Busy,
            0x18 => ScsiStatus::ReservationConflict,
            0x28 => ScsiStatus::TaskSetFull,
            0x30 => ScsiStatus::AcaActive,
            0x40 => ScsiStatus::TaskAborted,
            other => ScsiStatus::Other(other),
        }
    }

    /// The byte on the wire.
    pub const fn to_byte(self) -> u8 {
        match self {
            ScsiStatus::Good => 0x00,
            ScsiStatus::CheckCondition => 0x02,
            ScsiStatus::ConditionMet => 0x04,
            ScsiStatus::Busy => 0x08,
            ScsiStatus::ReservationConflict => 0x18,
            ScsiStatus::TaskSetFull => 0x28,
            ScsiStatus::AcaActive => 0x30,
            ScsiStatus::TaskAborted => 0x40,
            ScsiStatus::Other(byte) => byte,
        }
    }
}

/// Sense keys (SPC-4, 4.5.6).
#[allow(missing_docs)] // the standard's own names
pub mod key {
    pub const NO_SENSE: u8 = 0x0;
    pub const RECOVERED_ERROR: u8 = 0x1;
    pub const NOT_READY: u8 = 0x2;
    pub const MEDIUM_ERROR: u8 = 0x3;
    pub const HARDWARE_ERROR: u8 = 0x4;
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    pub const UNIT_ATTENTION: u8 = 0x6;
    pub const DATA_PROTECT: u8 = 0x7;
    pub const BLANK_CHECK: u8 = 0x8;
    pub const COPY_ABORTED: u8 = 0xa;
    pub const ABORTED_COMMAND: u8 = 0xb;
    pub const MISCOMPARE: u8 = 0xe;
}

/// An error: key, additional sense code and qualifier, and the position of the error if known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense {
    /// One of [`key`].
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// The information field, if it is valid: an LBA, or the offset of a miscompare.
    pub information: Option<u64>,
    /// The three sense-key-specific bytes, including the valid bit.
    pub specific: Option<[u8; 3]>,
    /// Whether the error is deferred, that is, was caused by an earlier command.
    pub deferred: bool,
}

impl Sense {
    /// Sense data without further detail.
    pub const fn new(key: u8, asc: u8, ascq: u8) -> Sense {
        Sense {
            key,
            asc,
            ascq,
            information: None,
            specific: None,
            deferred: false,
        }
    }

    /// Adds an information field.
    pub const fn with_information(mut self, information: u64) -> Sense {
        self.information = Some(information);
        self
    }

    /// Adds a pointer to byte `byte` of the CDB (or of the parameter list) and, if given, to the
    /// most significant bit in error (SPC-4, 4.5.2.4.2).
    pub const fn with_field(mut self, in_cdb: bool, byte: u16, bit: Option<u8>) -> Sense {
        let mut head = 0x80; // SKSV
        if in_cdb {
            head |= 0x40;
        }
        if let Some(bit) = bit {
            head |= 0x08 | (bit & 7);
        }
        let [high, low] = byte.to_be_bytes();
        self.specific = Some([head, high, low]);
        self
    }

    /// Encodes the fixed format, 18 bytes (SPC-4, 4.5.3). An information field of more than 32 bits does not fit: it
    /// is omitted, and its valid bit is cleared. The descriptor format has room for it.
    pub fn to_fixed(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = if self.deferred { 0x71 } else { 0x70 };
        bytes[2] = self.key & 0x0f;
        if let Some(information) = self.information.and_then(|i| u32::try_from(i).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        if let Some(specific) = self.specific {
            bytes[15..18].copy_from_slice(&specific);
        }
        bytes
    }

    /// Encodes the format that D_SENSE in the control mode page selects (SPC-4, 7.5.8).
    pub fn to_bytes(&self, descriptor_sense: bool) -> Vec<u8> {
        if descriptor_sense {
            self.to_descriptor()
        } else {
            self.to_fixed().to_vec()
        }
    }

    /// Encodes the descriptor format (SPC-4, 4.5.2): header, information, sense-key-specific.
    pub fn to_descriptor(&self) -> Vec<u8> {
        let mut bytes = vec![
            if self.deferred { 0x73 } else { 0x72 },
            self.key & 0x0f,
            self.asc,
            self.ascq,
            0,
            0,
            0,
            0,
        ];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0x00]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(specific) = self.specific {
            bytes.extend_from_slice(&[0x02, 0x06, 0x00, 0x00]);
            bytes.extend_from_slice(&specific);
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    /// Parses either format; `None` if the bytes are not sense data.
    pub fn parse(bytes: &[u8]) -> Option<Sense> {
        match bytes.first()? & 0x7f {
            code @ (0x70 | 0x71) => {
                let valid = bytes[0] & 0x80 != 0;
                let information = bytes
                    .get(3..7)
                    .filter(|_| valid)
                    .map(|b| u64::from(u32::from_be_bytes(b.try_into().expect("4 bytes"))));
                let specific = bytes
                    .get(15..18)
                    .map(|b| [b[0], b[1], b[2]])
                    .filter(|b| b[0] & 0x80 != 0);
                Some(Sense {
                    key: bytes.get(2)? & 0x0f,
                    asc: bytes.get(12).copied().unwrap_or(0),
                    ascq: bytes.get(13).copied().unwrap_or(0),
                    information,
                    specific,
                    deferred: code == 0x71,
                })
            }
            code @ (0x72 | 0x73) => {
                let mut sense = Sense::new(bytes.get(1)? & 0x0f, *bytes.get(2)?, *bytes.get(3)?);
                sense.deferred = code == 0x73;
                let mut rest = bytes.get(8..).unwrap_or(&[]);
                while let [kind, length, ..] = *rest {
                    let Some(body) = rest.get(2..2 + usize::from(length)) else {
                        break;
                    };
                    match kind {
                        0 if body.len() >= 10 && body[0] & 0x80 != 0 => {
                            sense.information =
                                Some(u64::from_be_bytes(body[2..10].try_into().expect("8 bytes")));
                        }
                        2 if body.len() >= 5 && body[2] & 0x80 != 0 => {
                            sense.specific = Some([body[2], body[3], body[4]]);
                        }
                        _ => {}
                    }
                    rest = &rest[2 + body.len()..];
                }
                Some(sense)
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Sense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.key {
            key::NO_SENSE => "no sense",
            key::RECOVERED_ERROR => "recovered error",
            key::NOT_READY => "not ready",
            key::MEDIUM_ERROR => "medium error",
            key::HARDWARE_ERROR => "hardware error",
            key::ILLEGAL_REQUEST => "illegal request",
            key::UNIT_ATTENTION => "unit attention",
            key::DATA_PROTECT => "data protect",
            key::COPY_ABORTED => "copy aborted",
            key::ABORTED_COMMAND => "aborted command",
            key::MISCOMPARE => "miscompare",
            _ => "sense key",
        };
        write!(
            f,
            "{name} (key {:#x}, asc/ascq {:02x}/{:02x}",
            self.key, self.asc, self.ascq
        )?;
        if let Some(information) = self.information {
            write!(f, ", information {information}")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_survive_a_round_trip() {
        let sense = Sense::new(key::MEDIUM_ERROR, 0x11, 0)
            .with_information(0x1234)
            .with_field(true, 2, Some(7));
        assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
        let far = sense.with_information(1 << 40);
        assert_eq!(Sense::parse(&far.to_descriptor()), Some(far));
        assert_eq!(Sense::parse(&far.to_fixed()).unwrap().information, None);
    }

    #[test]
    fn truncated_sense_never_panics() {
        let sense = Sense::new(key::MISCOMPARE, 0x1d, 0)
            .with_information(9)
            .with_field(false, 2, None);
        for bytes in [sense.to_fixed().to_vec(), sense.to_descriptor()] {
            for end in 0..bytes.len() {
                let _ = Sense::parse(&bytes[..end]);
            }
        }
    }
}
