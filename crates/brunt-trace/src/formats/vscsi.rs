//! VMware's vscsi traces, as CloudPhysics published them and libCacheSim reads them (`vscsi.h`): little-endian
//! records of 32 bytes (version 1) or 40 (version 2), with the version in the upper byte of a 16-bit field. Addresses
//! are in blocks of 512 bytes, times in microseconds.

use super::{BinaryRow, BinaryRows, OneDevice};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// Version 1's table entry.
pub const FORMAT_1: Format = Format {
    name: "vscsi1",
    help: "VMware vscsi, version 1 (CloudPhysics): 32-byte records",
    note: "lengths are in bytes; times come from the host's clock",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: &[
        0xf4, 0x00, 0x00, 0x80, 0x00, 0x02, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x2a, 0x00, 0x00,
        0x01, //
        0x09, 0x1a, 0x8f, 0x02, 0x00, 0x00, 0x00, 0x00, 0x22, 0xcf, 0x82, 0xbe, 0x1f, 0x05, 0x00,
        0x00,
    ],
    decoder: |_| Box::new(BinaryRows::new(Version1(OneDevice::default()))),
};

/// Version 2's table entry.
pub const FORMAT_2: Format = Format {
    name: "vscsi2",
    help: "VMware vscsi, version 2: 40-byte records with response times",
    note: "lengths are in bytes; response times are assumed to be in microseconds, like the times",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: &[
        0x28, 0x00, 0x00, 0x02, 0x07, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x00,
        0x00, //
        0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe8, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, //
        0x32, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ],
    decoder: |_| Box::new(BinaryRows::new(Version2(OneDevice::default()))),
};

struct Version1(OneDevice);
struct Version2(OneDevice);

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(record[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
}

impl BinaryRow for Version1 {
    /// u32 serial, length, segments; u16 command, version; u64 block, time.
    const BYTES: usize = 32;
    #[inline]
    fn row(&mut self, record: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
        if u16_at(record, 14) >> 8 != 1 {
            return None;
        }
        let (block, time_us) = (u64_at(record, 16), u64_at(record, 24));
        let device = self.0.index(devices)?;
        request(
            u16_at(record, 12),
            u32_at(record, 4),
            block,
            time_us,
            None,
            device,
        )
    }
}

impl BinaryRow for Version2 {
    /// u16 command, version; u32 serial, length, segments; u64 block, time, response time.
    const BYTES: usize = 40;
    #[inline]
    fn row(&mut self, record: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
        if u16_at(record, 2) >> 8 != 2 {
            return None;
        }
        let response_us = Some(u64_at(record, 32));
        let (block, time_us) = (u64_at(record, 16), u64_at(record, 24));
        let device = self.0.index(devices)?;
        request(
            u16_at(record, 0),
            u32_at(record, 8),
            block,
            time_us,
            response_us,
            device,
        )
    }
}

#[inline(always)] // runs for every record; as a real call, it would cost a few loads
fn request(
    command: u16,
    len_bytes: u32,
    block: u64,
    time_us: u64,
    response_us: Option<u64>,
    device: u32,
) -> Option<BlockRequest> {
    let op = TraceOp::of_scsi(u8::try_from(command).ok()?);
    let response_ns = match response_us {
        Some(us) => Some(us.checked_mul(1000)?),
        None => None,
    };
    let (time_ns, offset_bytes) = (time_us.checked_mul(1000)?, block.checked_mul(512)?);
    Some(BlockRequest {
        response_ns,
        ..BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// The first record of libCacheSim's `cloudPhysicsIO.vscsi`.
    #[test]
    fn a_record_of_the_publisher_is_parsed() {
        let (requests, _, damaged) = read(&FORMAT_1, FORMAT_1.example);
        let first = BlockRequest {
            time_ns: 0x051f_be82_cf22 * 1000,
            device: 0,
            op: TraceOp::Write,
            offset_bytes: 0x028f_1a09 * 512,
            len_bytes: 512,
            response_ns: None,
            fua: false,
            content: None,
        };
        assert_eq!((requests, damaged.len()), (vec![first], 0));
    }

    #[test]
    fn version_2_has_response_times() {
        let (requests, _, damaged) = read(&FORMAT_2, FORMAT_2.example);
        let first = BlockRequest {
            time_ns: 1_000_000,
            device: 0,
            op: TraceOp::Read,
            offset_bytes: 4096,
            len_bytes: 4096,
            response_ns: Some(50_000),
            fua: false,
            content: None,
        };
        assert_eq!((requests, damaged.len()), (vec![first], 0));
    }

    #[test]
    fn another_version_and_a_cut_record_are_damaged() {
        let mut bytes = FORMAT_1.example.to_vec();
        bytes.extend_from_slice(FORMAT_1.example);
        bytes[15] = 7;
        bytes.extend_from_slice(&FORMAT_1.example[..9]);
        let (requests, _, damaged) = read(&FORMAT_1, &bytes);
        assert_eq!((requests.len(), damaged), (1, vec![1, 3]));
    }
}
