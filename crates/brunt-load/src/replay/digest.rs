//! A digest of requests which shows that two streams have the same operations, addresses and sizes, regardless of their
//! order of completion. Fed by the survey before the start, by the reader and by the workers.
//!
//! The rule: each request is hashed with its position in the trace, and the hashes are added up, so that a missing,
//! duplicate or changed request is detected, whichever worker sent it. This does not protect against forgery.

use brunt_block::Op;
use serde::{Deserialize, Serialize};

/// A sum of hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    sum: u64,
    count: u64,
}

impl Digest {
    /// Adds a request at this offset of its target.
    #[inline]
    pub fn add(&mut self, index: u64, op: Op, target: u16, offset: u64, len: u64) {
        self.sum = self.sum.wrapping_add(hash(index, op, target, offset, len));
        self.count += 1;
    }

    /// Removes a request that was added earlier.
    pub fn remove(&mut self, index: u64, op: Op, target: u16, offset: u64, len: u64) {
        self.sum = self.sum.wrapping_sub(hash(index, op, target, offset, len));
        self.count -= 1;
    }

    /// Adds the digest of another part of the same requests.
    pub fn merge(&mut self, other: &Digest) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.count = self.count.saturating_add(other.count);
    }

    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Formats the digest for people and files: sum and count.
    pub fn text(&self) -> String {
        format!("{:016x}-{}", self.sum, self.count)
    }
}

/// Returns the hash of one request.
#[inline]
fn hash(index: u64, op: Op, target: u16, offset: u64, len: u64) -> u64 {
    let operation = (op as u64) << 56 | u64::from(target) << 40;
    // A flush is fully described by its target.
    let (offset, len) = if op == Op::Flush {
        (0, 0)
    } else {
        (offset, len)
    };
    mixed(mixed(mixed(index ^ operation).wrapping_add(offset)) ^ len)
}

/// Applies the finalizer of splitmix64: every bit of the number changes half of the hash's bits.
fn mixed(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_shows_any_change_except_of_the_order() {
        let of = |requests: &[(u64, Op, u64, u64)]| {
            let mut digest = Digest::default();
            requests
                .iter()
                .for_each(|(index, op, offset, len)| digest.add(*index, *op, 0, *offset, *len));
            digest
        };
        let [a, b] = [(0, Op::Read, 4096, 512), (1, Op::Write, 8192, 512)];
        assert_eq!(of(&[a, b]), of(&[b, a]));
        let mut fewer = of(&[a, b]);
        fewer.remove(b.0, b.1, 0, b.2, b.3);
        assert_eq!(fewer, of(&[a]));
        let others = [
            vec![a],
            vec![a, b, b],
            vec![a, (1, Op::Read, 8192, 512)],
            vec![a, (1, Op::Write, 8192, 1024)],
            vec![a, (1, Op::Write, 8704, 512)],
            vec![(1, Op::Read, 4096, 512), (0, Op::Write, 8192, 512)],
        ];
        for other in others {
            assert_ne!(of(&[a, b]).text(), of(&other).text());
        }
    }
}
