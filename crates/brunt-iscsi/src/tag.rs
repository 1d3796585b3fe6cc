//! A hasher for task tags. Each request looks up its tag several times, so hashing is a single multiplication.

use std::hash::Hasher;

/// Tags are numbers that a transport counts or an initiator chooses, and one multiplication distributes them well. An
/// initiator that provokes collisions slows down only its own connection, with a table of at most a thousand entries.
#[derive(Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}
