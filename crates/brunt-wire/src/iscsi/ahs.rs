//! Additional header segments (RFC 7143, 11.2.2): the rest of a long CDB, and the expected read length of a
//! bidirectional command. Other types are skipped.

use crate::Malformed;

/// Maximum length of a CDB (SPC-4, 4.3.3: 260 bytes).
pub const CDB_BYTES_MAX: usize = 260;

/// The additional headers of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahs<'a> {
    /// The CDB from the 17th byte on.
    pub extended_cdb: Option<&'a [u8]>,
    /// Expected bidirectional read data length, in bytes.
    pub bidirectional_read_length: Option<u32>,
}

impl<'a> Ahs<'a> {
    /// Parses the segments in `bytes` (all TotalAHSLength bytes). Offsets in errors are relative to the start of
    /// `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Ahs<'a>, Malformed> {
        let mut ahs = Ahs::default();
        let mut at = 0;
        while at < bytes.len() {
            let Some(head) = bytes.get(at..at + 4) else {
                return Err(Malformed::new(at, "AHS shorter than 4 bytes"));
            };
            // AHSLength counts the bytes after AHSType, including the reserved one but not the padding.
            let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
            let Some(body) = bytes.get(at + 3..at + 3 + length).filter(|_| length >= 1) else {
                return Err(Malformed::new(
                    at,
                    "AHSLength is zero or exceeds TotalAHSLength",
                ));
            };
            match head[2] & 0x3f {
                1 => {
                    let cdb = &body[1..];
                    if cdb.len() + 16 > CDB_BYTES_MAX {
                        return Err(Malformed::new(at, "CDB longer than 260 bytes"));
                    }
                    ahs.extended_cdb = Some(cdb);
                }
                2 => {
                    let Some(field) = body.get(1..5) else {
                        return Err(Malformed::new(
                            at,
                            "bidirectional read length is not 4 bytes",
                        ));
                    };
                    ahs.bidirectional_read_length =
                        Some(u32::from_be_bytes(field.try_into().expect("4 bytes")));
                }
                _ => {}
            }
            at += super::pdu::padded(3 + length);
        }
        Ok(ahs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_types_are_parsed_and_padding_is_skipped() {
        let bytes = [0, 5, 1, 0, 0xa, 0xb, 0xc, 0xd, 0, 5, 2, 0, 0, 0, 2, 0];
        let ahs = Ahs::parse(&bytes).unwrap();
        assert_eq!(ahs.extended_cdb, Some(&[0xa, 0xb, 0xc, 0xd][..]));
        assert_eq!(ahs.bidirectional_read_length, Some(512));
    }

    /// Truncation at any byte gives an error or a shorter list, never a panic.
    #[test]
    fn a_truncated_header_never_panics() {
        let bytes = [0, 5, 1, 0, 0xa, 0xb, 0xc, 0xd, 0, 5, 2, 0, 0, 0, 2, 0];
        for end in 0..bytes.len() {
            let result = Ahs::parse(&bytes[..end]);
            assert_eq!(result.is_ok(), end == 0 || end == 8, "cut at {end}");
        }
        assert!(Ahs::parse(&[0, 0, 1, 0]).is_err());
    }
}
