//! BYU's Linux disk trace buffer, version 1.1: records of 16 bytes, `r` or `w`, major, minor, `L`,
//! `C` or `S` (how the driver addresses), then u32 sectors, u32 first sector and u32 time in
//! jiffies, in the byte order of the host.
//!
//! The byte order is detected: request lengths are small numbers in one order and huge ones in the other.

use std::num::NonZeroU64;

use super::{BinaryRow, BinaryRows, NumberedDevices};
use crate::format::{DamagedRow, Decode, Format, ReadingKey};
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "dtb",
    help: "BYU disk trace buffer 1.1: records of 16 bytes",
    note: "100 jiffies per second unless --jiffies says otherwise; the count may wrap; all requests \
     of a jiffy get the time of its start; the byte order is detected",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[ReadingKey::Jiffies],
    example:
        b"r\x03\x01L\x08\0\0\0\x3f\0\0\0\x10\x27\0\0w\x03\x02L\x02\0\0\0\x80\x1a\x06\0\x12\x27\0\0",
    decoder: |options| {
        Box::new(Dtb {
            rows: None,
            jiffies_per_s: u64::from(options.jiffies_per_s.max(1)),
        })
    },
};

const BYTES: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// Records examined to detect the byte order.
const RECORDS_LOOKED_AT: usize = 64;
/// Maximum plausible length of a request in sectors: 64 MiB.
const SECTORS_MAX: u32 = 1 << 17;
/// Marks bytes without a meaning; ORing it with any value leaves it unchanged.
const NO_CODE: u8 = 0xff;
/// For each byte: the operation if it is the first of a record; 0 if it is a valid way to address. These are tables
/// because whether a request reads or writes is unpredictable, so a branch would often be mispredicted.
const OPS: [u8; 256] = table(&[(b'r', 0), (b'w', 1)]);
const ADDRESSING: [u8; 256] = table(&[(b'L', 0), (b'C', 0), (b'S', 0)]);

const fn table(codes: &[(u8, u8)]) -> [u8; 256] {
    let (mut table, mut index) = ([NO_CODE; 256], 0);
    while index < codes.len() {
        table[codes[index].0 as usize] = codes[index].1;
        index += 1;
    }
    table
}

/// Bytes per sector.
const SECTOR_BYTES: u32 = 512;

struct Dtb {
    /// Set once the byte order is known.
    rows: Option<Box<dyn Decode + Send>>,
    jiffies_per_s: u64,
}

impl Decode for Dtb {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        if self.rows.is_none() && bytes.len() < RECORDS_LOOKED_AT * BYTES && !last {
            return 0;
        }
        let per_s = self.jiffies_per_s;
        let rows = self.rows.get_or_insert_with(|| match is_big_endian(bytes) {
            true => Box::new(BinaryRows::new(Record::<true>::new(per_s))),
            false => Box::new(BinaryRows::new(Record::<false>::new(per_s))),
        });
        rows.decode(bytes, last, devices, requests, damaged)
    }
}

/// Whether more lengths are plausible in big-endian than in little-endian byte order.
fn is_big_endian(bytes: &[u8]) -> bool {
    let (mut little, mut big) = (0, 0);
    for record in bytes.chunks_exact(BYTES).take(RECORDS_LOOKED_AT) {
        let sectors = [record[4], record[5], record[6], record[7]];
        little += u32::from(u32::from_le_bytes(sectors) <= SECTORS_MAX);
        big += u32::from(u32::from_be_bytes(sectors) <= SECTORS_MAX);
    }
    big > little
}

struct Record<const BIG_ENDIAN: bool> {
    per_s: u64,
    /// Nanoseconds per jiffy, if whole: a division takes longer than everything else done per record.
    tick_ns: Option<NonZeroU64>,
    /// The previous record's jiffies as in the file, and the total including wraparounds; -1 before the first record.
    last: u32,
    ticks: i64,
    numbered: NumberedDevices,
}

impl<const BIG_ENDIAN: bool> BinaryRow for Record<BIG_ENDIAN> {
    const BYTES: usize = BYTES;
    #[inline]
    fn row(&mut self, record: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
        let record: &[u8; BYTES] = record.try_into().ok()?;
        let op = OPS[usize::from(record[0])];
        if op | ADDRESSING[usize::from(record[3])] == NO_CODE {
            return None;
        }
        let op = if op == 0 {
            TraceOp::Read
        } else {
            TraceOp::Write
        };
        let word = |at: usize| {
            let bytes = [record[at], record[at + 1], record[at + 2], record[at + 3]];
            if BIG_ENDIAN {
                u32::from_be_bytes(bytes)
            } else {
                u32::from_le_bytes(bytes)
            }
        };
        let (sectors, sector, jiffies) = (word(4), word(8), word(12));
        if sectors > SECTORS_MAX {
            return None;
        }
        let number = u16::from_be_bytes([record[1], record[2]]).into();
        let name = |number| format!("{}:{}", number >> 8, number & 0xff);
        let device = self.numbered.index_of(number, devices, name)?;
        let time_ns = self.time_ns(jiffies)?;
        let offset_bytes = u64::from(sector) * u64::from(SECTOR_BYTES);
        Some(BlockRequest::new(
            time_ns,
            device,
            op,
            offset_bytes,
            sectors * SECTOR_BYTES,
        ))
    }
}

impl<const BIG_ENDIAN: bool> Record<BIG_ENDIAN> {
    fn new(per_s: u64) -> Record<BIG_ENDIAN> {
        let tick_ns =
            NonZeroU64::new(SECOND_NS / per_s).filter(|_| SECOND_NS.is_multiple_of(per_s));
        Record {
            per_s,
            tick_ns,
            last: 0,
            ticks: -1,
            numbered: NumberedDevices::new(),
        }
    }

    /// The time of these jiffies in nanoseconds; `None` on overflow.
    #[inline]
    fn time_ns(&mut self, jiffies: u32) -> Option<u64> {
        // Take the shorter way around 32 bits: a step of up to half the range, forward or back.
        let step = i64::from(jiffies.wrapping_sub(self.last) as i32);
        self.ticks = if self.ticks < 0 {
            jiffies.into()
        } else {
            (self.ticks + step).max(0)
        };
        self.last = jiffies;
        let ticks = self.ticks as u64;
        match self.tick_ns {
            Some(tick_ns) => ticks.checked_mul(tick_ns.get()),
            None => {
                let (seconds, more) = (ticks / self.per_s, ticks % self.per_s);
                // The product can't overflow: `more` is less than a second's jiffies, which fit 32 bits, as do a
                // second's nanoseconds.
                seconds
                    .checked_mul(SECOND_NS)?
                    .checked_add(more * SECOND_NS / self.per_s)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    fn record(op: u8, sectors: u32, sector: u32, jiffies: u32, big_endian: bool) -> Vec<u8> {
        let bytes = |word: u32| {
            if big_endian {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            }
        };
        [
            &[op, 3, 1, b'S'][..],
            &bytes(sectors),
            &bytes(sector),
            &bytes(jiffies),
        ]
        .concat()
    }

    #[test]
    fn records_of_either_byte_order_are_parsed() {
        let expected = BlockRequest::new(100_000_000_000, 0, TraceOp::Read, 63 * 512, 4096);
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!(
            (damaged.len(), devices),
            (0, vec!["3:1".to_string(), "3:2".into()])
        );
        assert_eq!((requests.len(), requests[0]), (2, expected));
        let (requests, _, damaged) = read(&FORMAT, &record(b'r', 8, 63, 10_000, true));
        assert_eq!((requests, damaged.len()), (vec![expected], 0));
    }

    /// Times are exact even if a jiffy isn't a whole number of nanoseconds.
    #[test]
    fn jiffies_are_as_long_as_stated() {
        let time = |jiffies_per_s: u32| {
            let options = crate::FormatOptions {
                jiffies_per_s,
                ..crate::FormatOptions::default()
            };
            let (mut devices, mut requests, mut damaged) =
                (Devices::default(), Vec::new(), Vec::new());
            let bytes = record(b'r', 8, 0, 4_000_000_000, false);
            (FORMAT.decoder)(&options).decode(
                &bytes,
                true,
                &mut devices,
                &mut requests,
                &mut damaged,
            );
            requests.first().map(|request| request.time_ns)
        };
        let expected = |per_s: u128| u64::try_from(4_000_000_000 * 1_000_000_000 / per_s).ok();
        for per_s in [100, 250, 300, 1000, 1024] {
            assert_eq!(time(per_s), expected(per_s.into()), "{per_s}");
        }
        assert_eq!(
            (time(1), time(0)),
            (Some(4_000_000_000_000_000_000), time(1))
        );
    }

    #[test]
    fn jiffies_wrap_and_damage_is_counted() {
        let mut bytes = record(b'r', 8, 0, u32::MAX, false);
        bytes.extend(record(b'w', 8, 0, 0, false));
        bytes.extend(record(b'x', 8, 0, 1, false));
        bytes.extend(record(b'w', 8, 0, u32::MAX - 5, false));
        bytes.push(b'r');
        let (requests, _, damaged) = read(&FORMAT, &bytes);
        let jiffies: Vec<u64> = requests
            .iter()
            .map(|request| request.time_ns / 10_000_000)
            .collect();
        assert_eq!(jiffies, [(1 << 32) - 1, 1 << 32, (1 << 32) - 6]);
        assert_eq!(damaged, [3, 5]);
    }
}
