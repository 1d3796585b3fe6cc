//! CRC32C digests of header and data (RFC 7143, 13.1; the polynomial is RFC 3385's choice). The
//! `crc32c` crate uses the CPU's CRC instruction if available.

use super::pdu::{DIGEST_BYTES, padded};

/// The digest of these bytes, in wire order.
#[inline]
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc32c::crc32c(bytes).to_le_bytes()
}

/// The digest of a data segment padded with zeros; the padding need not be in memory.
pub fn padded_digest(data: &[u8]) -> [u8; DIGEST_BYTES] {
    let pad = padded(data.len()) - data.len();
    crc32c::crc32c_append(crc32c::crc32c(data), &[0; 3][..pad]).to_le_bytes()
}

/// The digest of a data segment with its padding as received.
///
/// # Panics
/// Panics if the data with its padding is not a multiple of four bytes, which means that the caller split the segment
/// wrongly.
pub fn received_digest(data: &[u8], padding: &[u8]) -> [u8; DIGEST_BYTES] {
    assert!(
        data.len() + padding.len() == padded(data.len()),
        "a segment with its padding is a multiple of 4 bytes"
    );
    crc32c::crc32c_append(crc32c::crc32c(data), padding).to_le_bytes()
}

/// The digest of bytes that arrive in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningDigest(u32);

impl RunningDigest {
    /// Adds more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The digest of all bytes so far, in wire order.
    pub fn so_far(self) -> [u8; DIGEST_BYTES] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7143, appendix A.4, byte for byte on the wire.
    #[test]
    fn digests_match_the_examples_of_the_rfc() {
        assert_eq!(digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(digest(&up), [0x4e, 0x79, 0xdd, 0x46]);
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(digest(&down), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn padding_is_zeros() {
        assert_eq!(padded_digest(b"abcde"), digest(b"abcde\0\0\0"));
        assert_eq!(
            received_digest(b"abcde", b"\0\0\x07"),
            digest(b"abcde\0\0\x07")
        );
    }

    /// The digest doesn't depend on how the bytes are divided into pieces.
    #[test]
    fn pieces_have_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..99).collect();
        assert_eq!(RunningDigest::default().so_far(), digest(&[]));
        for cut in 0..=bytes.len() {
            let mut running = RunningDigest::default();
            running.add(&bytes[..cut]);
            running.add(&bytes[cut..]);
            assert_eq!(running.so_far(), digest(&bytes), "{cut}");
        }
    }
}
