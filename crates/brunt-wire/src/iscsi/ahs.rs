//! Additional header segments (RFC 7143, 11.2.2): the rest of a long CDB, the read length of a
//! bidirectional command. Others are stepped over.

use crate::Malformed;

/// CDBs longer than this are no CDB (SPC-4, 4.3.3: 260 bytes).
pub const CDB_BYTES_MAX: usize = 260;

/// What the additional headers of one command said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahs<'a> {
    /// CDB bytes from the 17th on.
    pub extended_cdb: Option<&'a [u8]>,
    /// Expected bidirectional read data length, in bytes.
    pub bidirectional_read_length: Option<u32>,
}

impl<'a> Ahs<'a> {
    /// Reads the segments in `bytes` (all of TotalAHSLength). Offsets in errors count from there.
    pub fn parse(bytes: &'a [u8]) -> Result<Ahs<'a>, Malformed> {
        let mut ahs = Ahs::default();
        let mut at = 0;
        while at < bytes.len() {
            let Some(head) = bytes.get(at..at + 4) else {
                return Err(Malformed::new(at, "an AHS is at least 4 bytes"));
            };
            // AHSLength counts the bytes after AHSType, the reserved one included, padding not.
            let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
            let Some(body) = bytes.get(at + 3..at + 3 + length).filter(|_| length >= 1) else {
                return Err(Malformed::new(
                    at,
                    "AHSLength runs past TotalAHSLength or is zero",
                ));
            };
            match head[2] & 0x3f {
                1 => {
                    let cdb = &body[1..];
                    if cdb.len() + 16 > CDB_BYTES_MAX {
                        return Err(Malformed::new(at, "a CDB has at most 260 bytes"));
                    }
                    ahs.extended_cdb = Some(cdb);
                }
                2 => {
                    let Some(field) = body.get(1..5) else {
                        return Err(Malformed::new(at, "the bidirectional length is 4 bytes"));
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

    /// Both known kinds are read, padding is stepped over.
    #[test]
    fn both_kinds() {
        let bytes = [0, 5, 1, 0, 0xa, 0xb, 0xc, 0xd, 0, 5, 2, 0, 0, 0, 2, 0];
        let ahs = Ahs::parse(&bytes).unwrap();
        assert_eq!(ahs.extended_cdb, Some(&[0xa, 0xb, 0xc, 0xd][..]));
        assert_eq!(ahs.bidirectional_read_length, Some(512));
    }

    /// Truncation at every byte is an error or a shorter list, never a panic.
    #[test]
    fn truncated_everywhere() {
        let bytes = [0, 5, 1, 0, 0xa, 0xb, 0xc, 0xd, 0, 5, 2, 0, 0, 0, 2, 0];
        for end in 0..bytes.len() {
            let result = Ahs::parse(&bytes[..end]);
            assert_eq!(result.is_ok(), end == 0 || end == 8, "cut at {end}");
        }
        assert!(Ahs::parse(&[0, 0, 1, 0]).is_err());
    }
}
