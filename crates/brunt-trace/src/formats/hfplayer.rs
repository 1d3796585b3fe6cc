//! hfplayer's traces (Haghdoost and others, FAST '17; github.com/umn-cris/hfplayer): CSV under a line `#NAME.TYPE,…`, in
//! which the columns are found by name. Microseconds, blocks of 512 bytes.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, find, number, seconds};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The line for the table.
pub const FORMAT: Format = Format {
    name: "hfplayer",
    help: "hfplayer's CSV with a typed head: #…,ELAPSED_USECS.D,…,LBA.I,NBLKS.I,…",
    note: "blocks of 512 bytes; a device for each LUN_SSID; rows of answers (PHASE 1) are passed over, since requests \
           have their latencies",
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

/// Columns of a row at the most; a head with more is damaged.
const COLUMNS_MAX: usize = 64;

struct HfPlayer {
    columns: Option<Columns>,
}

/// Where the columns are.
#[derive(Clone, Copy)]
struct Columns {
    time: usize,
    lun: usize,
    op: usize,
    phase: Option<usize>,
    block: usize,
    blocks: usize,
    latency: Option<usize>,
}

impl TextRow for HfPlayer {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if let Some(head) = line.strip_prefix(b"#") {
            self.columns = columns(head);
            return if self.columns.is_some() { RowOutcome::Nothing } else { RowOutcome::Damaged };
        }
        match self.columns {
            Some(columns) => columns.row(line, devices).unwrap_or(RowOutcome::Damaged),
            None => RowOutcome::Damaged,
        }
    }
}

fn columns(head: &[u8]) -> Option<Columns> {
    let place = |name: &[u8]| {
        DelimitedFields::new(head, b',').take(COLUMNS_MAX).position(|column| {
            let end = memchr::memchr(b'.', column).unwrap_or(column.len());
            column[..end].eq_ignore_ascii_case(name)
        })
    };
    Some(Columns {
        time: place(b"ELAPSED_USECS")?,
        lun: place(b"LUN_SSID")?,
        op: place(b"OP")?,
        phase: place(b"PHASE"),
        block: place(b"LBA")?,
        blocks: place(b"NBLKS")?,
        latency: place(b"LATENCY_USECS"),
    })
}

impl Columns {
    fn row(&self, line: &[u8], devices: &mut Devices) -> Option<RowOutcome> {
        let mut fields = [&b""[..]; COLUMNS_MAX];
        fields.iter_mut().zip(DelimitedFields::new(line, b',')).for_each(|(field, found)| *field = found);
        if self.phase.is_some_and(|phase| fields[phase] != b"0") {
            return (fields[self.phase?] == b"1").then_some(RowOutcome::Nothing);
        }
        let time_ns = microseconds(fields[self.time])?;
        let op = match fields[self.op] {
            b"0" => TraceOp::Read,
            b"1" => TraceOp::Write,
            _ => return None,
        };
        number(fields[self.lun])?;
        let offset_bytes = number(fields[self.block])?.checked_mul(512)?;
        let len_bytes = u32::try_from(number(fields[self.blocks])?.checked_mul(512)?).ok()?;
        let response_ns = match self.latency {
            Some(latency) => Some(microseconds(fields[latency])?).filter(|latency| *latency > 0),
            None => None,
        };
        let device = devices.index_of(fields[self.lun])?;
        let request = BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes);
        Some(RowOutcome::Request(BlockRequest { response_ns, ..request }))
    }
}

/// Microseconds with a fraction, in nanoseconds.
fn microseconds(text: &[u8]) -> Option<u64> {
    // The same digits as seconds, a millionth of them.
    match find(b'.', text) {
        None => number(text)?.checked_mul(1000),
        Some(at) => {
            let fraction = seconds(&text[at..])? / 1_000_000;
            number(&text[..at])?.checked_mul(1000)?.checked_add(fraction)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// Rows of `sampleTrace.csv` and `small-tpch.csv` of the publisher.
    #[test]
    fn rows_of_the_publisher() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!((damaged.len(), devices), (0, vec!["6".to_string(), "1".into()]));
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
            (vec![BlockRequest::new(1500, 0, TraceOp::Read, 4096, 4096)], vec![4, 5])
        );
        assert_eq!(read(&FORMAT, b"#LBA.I\n1,2,3\n").2, [1, 2]);
    }
}
