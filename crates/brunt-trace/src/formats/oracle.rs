//! libCacheSim's oracleGeneral: little-endian records of 24 bytes: u32 time in seconds, u64 object, u32 size, i64
//! next access of the object (a request number, -1 for never). There is no operation. An object's id is taken as a
//! block number, because libCacheSim converted block traces in that way.

use super::{BinaryRow, BinaryRows, OneDevice};
use crate::format::{Format, ReadingKey};
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "oracleGeneral",
    help: "libCacheSim's oracleGeneral: 24-byte records without operations",
    note: "all requests have the operation given by --op; object ids are numbers of 512-byte \
        blocks unless --block says otherwise; times are whole seconds",
    checked: true,
    needs_op: true,
    needs_columns: false,
    takes: &[ReadingKey::Op, ReadingKey::Block],
    example: &[
        0x6a, 0xf7, 0x55, 0x00, 0x09, 0x1a, 0x8f, 0x02, 0x00, 0x00, 0x00, 0x00, //
        0x00, 0x02, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, //
    ],
    decoder: |options| {
        let (op, block_bytes) = (
            options.op.unwrap_or(TraceOp::Read),
            options.block_bytes.into(),
        );
        Box::new(BinaryRows::new(OracleGeneral {
            op,
            block_bytes,
            device: OneDevice::default(),
        }))
    },
};

/// Maximum plausible size of a request.
const SIZE_BYTES_MAX: u32 = 1 << 30;
/// Maximum requests of a trace.
const NEXT_MAX: i64 = 1 << 48;

struct OracleGeneral {
    op: TraceOp,
    block_bytes: u64,
    device: OneDevice,
}

impl BinaryRow for OracleGeneral {
    const BYTES: usize = 24;
    #[inline]
    fn row(&mut self, record: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
        let record: &[u8; 24] = record.try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (seconds, object, size, next) = (word(0), long(4), word(12), long(16) as i64);
        let possible = (1..=SIZE_BYTES_MAX).contains(&size)
            && ((-1..NEXT_MAX).contains(&next) || next == i64::MAX);
        if !possible {
            return None;
        }
        let offset_bytes = object.checked_mul(self.block_bytes)?;
        let device = self.device.index(devices)?;
        Some(BlockRequest::new(
            u64::from(seconds) * 1_000_000_000,
            device,
            self.op,
            offset_bytes,
            size,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// The first record of libCacheSim's `cloudPhysicsIO.oracleGeneral.bin`.
    #[test]
    fn a_record_of_the_publisher_is_parsed() {
        let (requests, _, damaged) = read(&FORMAT, FORMAT.example);
        let first = BlockRequest::new(
            0x55_f76a * 1_000_000_000,
            0,
            TraceOp::Read,
            0x028f_1a09 * 512,
            512,
        );
        assert_eq!((requests, damaged.len()), (vec![first], 0));
        assert_eq!(read(&FORMAT, &[0; 30]).2, [1, 2]);
    }
}
