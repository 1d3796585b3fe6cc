//! hfplayer's traces (Haghdoost and others, FAST '17; github.com/umn-cris/hfplayer): CSV under a header
//! `#NAME.TYPE,…`; columns are found by name. Times are in microseconds, addresses and lengths in blocks of 512
//! bytes.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, each_field, find, number, trimmed};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "hfplayer",
    help: "hfplayer's CSV with a typed header: #…,ELAPSED_USECS.D,…,LBA.I,NBLKS.I,…",
    note: "blocks of 512 bytes; each LUN_SSID becomes a device; rows of completions (PHASE 1) are \
     skipped, because requests have their latencies",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"#DUMP_OFFSET.I,ELAPSED_USECS.D,ELAPSED_TICKS.I,CMD.S,INFLIGHT_IOS.I,TS.I,SEQID.I,LUN_SSID.I,OP.I,PHASE.I,\
        LBA.I,NBLKS.I,LATENCY_TICKS.I,HOST_ID.I,HOST_LUN.I,LATENCY_USECS.D\n\
        4124,50,822590674,RD,2,822590674,5001,6,0,0,2,2,426600,7,6,200\n\
        3610768,81442951.096,173744962312,WR_IN,0,30736997642535324,1483333685,1,1,0,2254431928,8,121408,6,1,56.910\n",
    decoder: |_| Box::new(TextRows::new(HfPlayer { columns: None })),
};

/// Maximum columns of a row; later columns are ignored.
const COLUMNS_MAX: usize = 64;

/// The columns that are read, in slot order, and whether each is required.
const READ: [(&[u8], bool); 7] = [
    (b"ELAPSED_USECS", true),
    (b"LUN_SSID", true),
    (b"OP", true),
    (b"LBA", true),
    (b"NBLKS", true),
    (b"PHASE", false),
    (b"LATENCY_USECS", false),
];
const PHASE: usize = 5;
const LATENCY: usize = 6;
/// The slot of columns that are not read.
const UNREAD: usize = READ.len();

struct HfPlayer {
    columns: Option<Columns>,
}

/// The positions of the columns.
struct Columns {
    /// The slot of each column.
    slots: [u8; COLUMNS_MAX],
    /// Number of columns up to the last one that is read.
    count: usize,
    has_phase: bool,
    has_latency: bool,
}

impl TextRow for HfPlayer {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if let Some(head) = line.strip_prefix(b"#") {
            self.columns = Columns::of(head);
            return if self.columns.is_some() {
                RowOutcome::Nothing
            } else {
                RowOutcome::Damaged
            };
        }
        match &self.columns {
            Some(columns) => columns.row(line, devices).unwrap_or(RowOutcome::Damaged),
            None => RowOutcome::Damaged,
        }
    }
}

impl Columns {
    fn of(head: &[u8]) -> Option<Columns> {
        let (mut slots, mut count, mut found) =
            ([UNREAD as u8; COLUMNS_MAX], 0, [false; READ.len()]);
        for (number, column) in DelimitedFields::new(head, b',')
            .take(COLUMNS_MAX)
            .enumerate()
        {
            let end = memchr::memchr(b'.', column).unwrap_or(column.len());
            let named = |(name, _): &(&[u8], bool)| column[..end].eq_ignore_ascii_case(name);
            // If columns have the same name, the first is read.
            if let Some(slot) = READ.iter().position(named)
                && !std::mem::replace(&mut found[slot], true)
            {
                (slots[number], count) = (slot as u8, number + 1);
            }
        }
        let is_whole = READ
            .iter()
            .zip(found)
            .all(|((_, is_needed), found)| found || !is_needed);
        is_whole.then_some(Columns {
            slots,
            count,
            has_phase: found[PHASE],
            has_latency: found[LATENCY],
        })
    }

    fn row(&self, line: &[u8], devices: &mut Devices) -> Option<RowOutcome> {
        let mut fields = [&b""[..]; UNREAD + 1];
        let mut slots = self.slots[..self.count].iter();
        each_field(line, b',', |field| {
            slots
                .next()
                .map(|slot| fields[usize::from(*slot) % (UNREAD + 1)] = field)
                .is_some()
        });
        let [time, lun, op, block, blocks, phase, latency, _] = fields.map(trimmed);
        if self.has_phase && phase != b"0" {
            return (phase == b"1").then_some(RowOutcome::Nothing);
        }
        let time_ns = microseconds(time)?;
        let op = match op {
            b"0" => TraceOp::Read,
            b"1" => TraceOp::Write,
            _ => return None,
        };
        number(lun)?;
        let offset_bytes = number(block)?.checked_mul(512)?;
        let len_bytes = u32::try_from(number(blocks)?.checked_mul(512)?).ok()?;
        let response_ns = match self.has_latency {
            true => Some(microseconds(latency)?).filter(|latency| *latency > 0),
            false => None,
        };
        let device = devices.index_of(lun)?;
        let request = BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes);
        Some(RowOutcome::Request(BlockRequest {
            response_ns,
            ..request
        }))
    }
}

/// Parses microseconds with a fraction into nanoseconds, truncating finer digits.
fn microseconds(text: &[u8]) -> Option<u64> {
    let Some(point) = find(b'.', text) else {
        return number(text)?.checked_mul(1000);
    };
    let (whole, fraction) = (number(&text[..point])?, &text[point + 1..]);
    let nanos = match *fraction {
        // Most traces have three decimals.
        [a, b, c] => thousandths(a, b, c)?,
        [] => return None,
        [a] => thousandths(a, b'0', b'0')?,
        [a, b] => thousandths(a, b, b'0')?,
        [a, b, c, ref finer @ ..] => {
            if !finer.iter().all(u8::is_ascii_digit) {
                return None;
            }
            thousandths(a, b, c)?
        }
    };
    whole.checked_mul(1000)?.checked_add(nanos)
}

/// Parses three digits.
#[inline]
fn thousandths(a: u8, b: u8, c: u8) -> Option<u64> {
    let [a, b, c] = [a, b, c].map(|digit| digit.wrapping_sub(b'0'));
    (a <= 9 && b <= 9 && c <= 9).then(|| u64::from(a) * 100 + u64::from(b) * 10 + u64::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// Rows of `sampleTrace.csv` and `small-tpch.csv` of the publisher.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!(
            (damaged.len(), devices),
            (0, vec!["6".to_string(), "1".into()])
        );
        let second = BlockRequest {
            response_ns: Some(56_910),
            ..BlockRequest::new(81_442_951_096, 1, TraceOp::Write, 2_254_431_928 * 512, 4096)
        };
        assert_eq!((requests.len(), requests[1]), (2, second));
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = b"#LBA.I,NBLKS.I,OP.I,PHASE.I,LUN_SSID.I,ELAPSED_USECS.D\n8,8,0,0,1,1.5\n8,8,2,1,1,2\n8,8,2,0,1,3\n8\n";
        let (requests, _, damaged) = read(&FORMAT, text);
        assert_eq!(
            (requests, damaged),
            (
                vec![BlockRequest::new(1500, 0, TraceOp::Read, 4096, 4096)],
                vec![4, 5]
            )
        );
        assert_eq!(read(&FORMAT, b"#LBA.I\n1,2,3\n").2, [1, 2]);
        // If two columns have the same name, the first is read.
        let text = b"#LBA.I,NBLKS.I,OP.I,LUN_SSID.I,ELAPSED_USECS.D,X.I,LBA.I\n8,8,1,1,2,16,16\n";
        let expected = vec![BlockRequest::new(2000, 0, TraceOp::Write, 4096, 4096)];
        assert_eq!(read(&FORMAT, text).0, expected);
    }

    /// Checked against the same digits parsed as seconds, which give a million times the value.
    #[test]
    fn microseconds_are_exact_or_none() {
        for text in ["0", "50", "81442951.096", "56.9", "56.91", "1.0009999"] {
            let expected = text.parse::<f64>().map(|us| (us * 1000.0) as u64).ok();
            let found = microseconds(text.as_bytes());
            assert!(
                found.unwrap().abs_diff(expected.unwrap()) <= 1,
                "{text}: {found:?}"
            );
        }
        assert_eq!(microseconds(b"18446744073709551.615"), Some(u64::MAX));
        assert_eq!(
            (microseconds(b"0.05"), microseconds(b"7.1239")),
            (Some(50), Some(7123))
        );
        for text in [
            "",
            ".",
            ".5",
            "1.",
            "-1",
            "1.-5",
            "1.5e3",
            "1.12x",
            "1.1234x",
            "18446744073709551.616",
        ] {
            assert_eq!(microseconds(text.as_bytes()), None, "{text}");
        }
    }
}
