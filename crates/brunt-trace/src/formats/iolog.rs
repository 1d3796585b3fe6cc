//! fio's iologs (HOWTO, "Trace file format"). Version 2: `file action` and `file action offset length`; `wait` gives
//! the microseconds since the previous wait. Version 3: the same, preceded by a time in microseconds, and without
//! waits. Both begin with a line that names the version.

use super::{RowOutcome, TextRow, TextRows, word};
use crate::field::number;
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// Version 2's table entry.
pub const FORMAT_2: Format = Format {
    name: "iolog2",
    help: "fio's iolog, version 2: file action offset length",
    note: "the time of a `wait` counts from the previous one, so a request's time is the sum of all \
     waits before it; each file becomes a device",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example:
        b"fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda read 4096 8192\n/dev/sda wait 1500 0\n\
        /dev/sda write 0 512\n/dev/sda sync 0 0\n/dev/sda close\n",
    decoder: |_| Box::new(TextRows::new(Iolog::new(2))),
};

/// Version 3's table entry.
pub const FORMAT_3: Format = Format {
    name: "iolog3",
    help: "fio's iolog, version 3: time file action offset length",
    note: "times are in microseconds; each file becomes a device",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"fio version 3 iolog\n0 /dev/sda add\n1 /dev/sda open\n10 /dev/sda read 4096 8192\n\
        1510 /dev/sda write 0 512\n1511 /dev/sda sync 0 0\n1512 /dev/sda trim 0 4096\n1600 /dev/sda close\n",
    decoder: |_| Box::new(TextRows::new(Iolog::new(3))),
};

struct Iolog {
    version: u8,
    /// Whether the first line named this version.
    begun: bool,
    /// Sum of the waits so far.
    waited_us: u64,
}

impl Iolog {
    fn new(version: u8) -> Iolog {
        Iolog {
            version,
            begun: false,
            waited_us: 0,
        }
    }

    fn action(&mut self, line: &[u8], devices: &mut Devices) -> Option<RowOutcome> {
        let (time_us, line) = if self.version == 3 {
            let (time, rest) = word(line)?;
            (number(time)?, rest)
        } else {
            (self.waited_us, line)
        };
        let (file, rest) = word(line)?;
        let (action, rest) = word(rest)?;
        if matches!(action, b"add" | b"open" | b"close") {
            return rest.trim_ascii().is_empty().then_some(RowOutcome::Nothing);
        }
        let (offset, rest) = word(rest)?;
        let (length, rest) = word(rest)?;
        if !rest.trim_ascii().is_empty() {
            return None;
        }
        let (offset_bytes, len_bytes) = (number(offset)?, u32::try_from(number(length)?).ok()?);
        let op = match action {
            b"wait" if self.version == 2 => {
                self.waited_us = self.waited_us.checked_add(offset_bytes)?;
                return Some(RowOutcome::Nothing);
            }
            b"read" => TraceOp::Read,
            b"write" => TraceOp::Write,
            b"trim" => TraceOp::Unmap,
            b"sync" | b"datasync" => TraceOp::Flush,
            _ => return None,
        };
        let time_ns = time_us.checked_mul(1000)?;
        let device = devices.index_of(file)?;
        // The length that fio writes for a sync refers to its buffer, not the device.
        let len_bytes = if op == TraceOp::Flush { 0 } else { len_bytes };
        Some(RowOutcome::Request(BlockRequest::new(
            time_ns,
            device,
            op,
            offset_bytes,
            len_bytes,
        )))
    }
}

impl TextRow for Iolog {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if !self.begun {
            let version = line
                .strip_prefix(b"fio version ")
                .and_then(|rest| rest.first())
                .copied();
            self.begun = version == Some(b'0' + self.version);
            return if self.begun {
                RowOutcome::Nothing
            } else {
                RowOutcome::Damaged
            };
        }
        self.action(line, devices).unwrap_or(RowOutcome::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    #[test]
    fn rows_of_the_manual_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT_2, FORMAT_2.example);
        let expected = [
            BlockRequest::new(0, 0, TraceOp::Read, 4096, 8192),
            BlockRequest::new(1_500_000, 0, TraceOp::Write, 0, 512),
            BlockRequest::new(1_500_000, 0, TraceOp::Flush, 0, 0),
        ];
        assert_eq!(
            (requests, devices, damaged.len()),
            (expected.to_vec(), vec!["/dev/sda".to_string()], 0)
        );
        let (requests, _, damaged) = read(&FORMAT_3, FORMAT_3.example);
        assert_eq!((requests.len(), damaged.len()), (4, 0));
        assert_eq!(
            requests[1],
            BlockRequest::new(1_510_000, 0, TraceOp::Write, 0, 512)
        );
        assert_eq!(requests[3].op, TraceOp::Unmap);
    }

    #[test]
    fn damage_is_counted() {
        let text =
            b"fio version 3 iolog\n0 f wait 5 0\n0 f read 0\n0 f read 0 512 9\nf read 0 512\n0 f dance 0 0\n";
        assert_eq!(read(&FORMAT_3, text).2, [2, 3, 4, 5, 6]);
        assert_eq!(read(&FORMAT_2, b"f read 0 512\n").2, [1]);
    }
}
