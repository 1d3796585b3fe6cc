//! Records in several fragments (RFC 5531, 11), and records received by blocking reads: collects fragments until the
//! record is complete.
//!
//! The one rule: memory grows with the received bytes, never beyond the caller's limit; nothing is allocated based on a
//! record mark alone.

use brunt_wire::rpc::{MARK_BYTES, RecordMark};

use crate::rpc::NfsViolation;

/// Maximum fragments of one record: enough for the longest READ in fragments of 1 KiB, and empty fragments don't
/// justify more.
pub const FRAGMENTS_MAX: u32 = 16_384;

/// A record under construction.
#[derive(Debug, Default)]
pub struct NfsRecord {
    bytes: Vec<u8>,
    /// Missing bytes of the current fragment.
    left: u32,
    last: bool,
    fragments: u32,
}

impl NfsRecord {
    /// Whether a part of a record has arrived.
    pub fn is_begun(&self) -> bool {
        self.fragments > 0
    }

    /// Number of bytes needed next: never more than the record has.
    pub fn wants(&self) -> usize {
        match self.left {
            0 => MARK_BYTES,
            left => left as usize,
        }
    }

    /// Adds received bytes up to the end of the record. Returns how many were consumed, excluding an incomplete mark.
    ///
    /// # Errors
    /// The record is longer than `limit`, or in too many fragments.
    pub fn feed(&mut self, bytes: &[u8], limit: u32) -> Result<usize, NfsViolation> {
        let mut at = 0;
        while !self.is_complete() {
            if self.left > 0 {
                let part = (bytes.len() - at).min(self.left as usize);
                self.bytes.extend_from_slice(&bytes[at..at + part]);
                self.left -= part as u32;
                at += part;
                if self.left > 0 {
                    break;
                }
                continue;
            }
            let Some(mark) = bytes[at..].first_chunk::<MARK_BYTES>() else {
                break;
            };
            let mark = RecordMark::from_bytes(*mark);
            let total = self.bytes.len() as u64 + u64::from(mark.len);
            if total > u64::from(limit) {
                return Err(NfsViolation::Long {
                    bytes: total,
                    limit,
                });
            }
            if self.fragments == FRAGMENTS_MAX {
                return Err(NfsViolation::Fragments(FRAGMENTS_MAX));
            }
            at += MARK_BYTES;
            self.fragments += 1;
            (self.left, self.last) = (mark.len, mark.last);
        }
        Ok(at)
    }

    /// Whether the record is complete.
    pub fn is_complete(&self) -> bool {
        self.last && self.left == 0
    }

    /// Takes the complete record, so that the next one can begin.
    ///
    /// # Panics
    /// Panics if it is not complete.
    pub fn take(&mut self) -> Vec<u8> {
        assert!(self.is_complete(), "only complete records are taken");
        std::mem::take(self).bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
        let mark = RecordMark {
            len: bytes.len() as u32,
            last,
        };
        [&mark.to_bytes()[..], bytes].concat()
    }

    /// However the bytes are split on arrival, the record is the same, and the bytes after it remain.
    #[test]
    fn fragments_make_a_record() {
        let parts = [
            fragment(b"one ", false),
            fragment(b"", false),
            fragment(b"record", true),
            b"next".to_vec(),
        ];
        let bytes = parts.concat();
        for step in 1..bytes.len() {
            let (mut record, mut from, mut to) = (NfsRecord::default(), 0, 0);
            while !record.is_complete() {
                to = (to + step).min(bytes.len());
                from += record.feed(&bytes[from..to], 10).unwrap();
            }
            assert_eq!(
                (record.take(), &bytes[from..]),
                (b"one record".to_vec(), &b"next"[..]),
                "{step}"
            );
            assert!(!record.is_begun());
        }
    }

    #[test]
    fn records_have_limits() {
        let two_gib = [0xff, 0xff, 0xff, 0xff];
        let long = NfsViolation::Long {
            bytes: 0x7fff_ffff,
            limit: 100,
        };
        assert_eq!(NfsRecord::default().feed(&two_gib, 100), Err(long));
        let sum = [fragment(&[1; 60], false), fragment(&[2; 41], true)].concat();
        let long = NfsViolation::Long {
            bytes: 101,
            limit: 100,
        };
        assert_eq!(NfsRecord::default().feed(&sum, 100), Err(long));
        let empty = fragment(b"", false).repeat(FRAGMENTS_MAX as usize + 1);
        let many = NfsViolation::Fragments(FRAGMENTS_MAX);
        assert_eq!(NfsRecord::default().feed(&empty, 100), Err(many));
    }
}
