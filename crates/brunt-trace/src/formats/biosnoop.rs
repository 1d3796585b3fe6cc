//! Output of bcc's biosnoop: `TIME(s) COMM PID DISK T SECTOR [BYTES] [QUE(ms)] LAT(ms)` under a header
//! with these names, and one row per completed request. (bpftrace's biosnoop.bt prints no addresses.)

use super::{RowOutcome, TextRow, TextRows, described::in_unit};
use crate::field::{number, seconds};
use crate::format::{DamagedRow, Decode, Format};
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "biosnoop",
    help: "bcc's biosnoop: TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)",
    note: "times are completion times minus latencies, and sorted; response times are truncated to 10 µs",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
        0.000000    my prog        1950   nvme0n1 W 13092560   4096      0.74\n\
        0.001498    jbd2/xvda1-8   221    nvme0n1 R 13092440   8192      0.52\n",
    decoder: |_| Box::new(Biosnoop(TextRows::new(Lines { has_queue: None }))),
};

/// Times count from the first completion; this offset keeps earlier start times positive.
const ZERO_NS: u64 = 1_000_000_000_000;

struct Biosnoop(TextRows<Lines>);

struct Lines {
    /// Whether there is a column for the time in the queue; `None` until the header is read.
    has_queue: Option<bool>,
}

impl Decode for Biosnoop {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        self.0.decode(bytes, last, devices, requests, damaged)
    }

    fn by_completion(&self) -> bool {
        true
    }
}

impl TextRow for Lines {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if line.starts_with(b"TIME(s)") {
            let names = line.split(|byte| byte.is_ascii_whitespace());
            self.has_queue = Some(names.clone().any(|name| name == b"QUE(ms)"));
            // Without sizes and addresses there are no requests.
            let is_whole = [b"SECTOR", &b"BYTES"[..]]
                .iter()
                .all(|wanted| names.clone().any(|name| name == *wanted));
            return match is_whole {
                true => RowOutcome::Nothing,
                false => RowOutcome::Damaged,
            };
        }
        match self.has_queue {
            Some(has_queue) => request(line, has_queue, devices).into(),
            None => RowOutcome::Damaged,
        }
    }
}

/// A process name may contain blanks, so columns are counted from the end.
fn request(line: &[u8], has_queue: bool, devices: &mut Devices) -> Option<BlockRequest> {
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let time_ns = seconds(words.next()?)?.checked_add(ZERO_NS)?;
    let response_ns = in_unit(words.next_back()?, 1_000_000)?;
    if has_queue {
        in_unit(words.next_back()?, 1_000_000)?;
    }
    let len_bytes = u32::try_from(number(words.next_back()?)?).ok()?;
    let offset_bytes = number(words.next_back()?)?.checked_mul(512)?;
    let op = match words.next_back()? {
        b"R" => TraceOp::Read,
        b"W" => TraceOp::Write,
        b"D" => TraceOp::Unmap,
        b"F" => TraceOp::Flush,
        _ => return None,
    };
    let device = words.next_back()?;
    number(words.next_back()?)?;
    let device = devices.index_of(device)?;
    let sent_ns = time_ns.checked_sub(response_ns)?;
    Some(BlockRequest {
        response_ns: Some(response_ns),
        ..BlockRequest::new(sent_ns, device, op, offset_bytes, len_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    #[test]
    fn requests_start_one_latency_before_their_completion() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!((devices, damaged), (vec!["nvme0n1".to_string()], vec![]));
        let expected = [
            (
                740_000,
                TraceOp::Write,
                13_092_560 * 512,
                4096,
                ZERO_NS - 740_000,
            ),
            (
                520_000,
                TraceOp::Read,
                13_092_440 * 512,
                8192,
                ZERO_NS + 978_000,
            ),
        ];
        for (request, (response, op, offset, len, time)) in requests.iter().zip(expected) {
            let expected = BlockRequest {
                response_ns: Some(response),
                ..BlockRequest::new(time, 0, op, offset, len)
            };
            assert_eq!(*request, expected);
        }
        let queued = b"TIME(s) COMM PID DISK T SECTOR BYTES QUE(ms) LAT(ms)\n1.5 a 1 sda R 8 512 0.01 0.30\n1.5 a\n";
        let (requests, _, damaged) = read(&FORMAT, queued);
        assert_eq!((requests.len(), requests[0].offset_bytes), (1, 4096));
        assert_eq!(damaged, [3]);
        assert!(
            read(&FORMAT, b"TIME(ms) DISK COMM PID LAT(ms)\n1 sda x 1 2\n")
                .0
                .is_empty()
        );
    }
}
