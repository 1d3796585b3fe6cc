//! The kernel's `block` trace events as text, from `perf script`, `trace-cmd report` or tracefs's file `trace`:
//! `… seconds: block_rq_issue: major,minor rwbs bytes (command) sector + sectors [process]`
//! (include/trace/events/block.h); perf puts `block:` before the event's name. Other events may be interspersed.

use super::{RowOutcome, TextRow, TextRows, blkparse, word};
use crate::events::{BlockEvent, EventRequests, Step};
use crate::field::{find, number, seconds};
use crate::format::{DamagedRow, Decode, EventCounts, Format, ReadingKey};
use crate::record::{BlockRequest, Devices};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "ftrace",
    help: "block events as printed by perf script, trace-cmd report and tracefs",
    note: "requests are those issued to the device (block_rq_issue) unless --event says queued \
        (block_bio_queue) or completed (block_rq_complete); a write with a preflush becomes a \
        flush and a write",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[ReadingKey::Event],
    example: b"  fio-1234    [001] ..... 12345.678901: block_bio_queue: 7,0 R 128 + 8 [fio]\n\
          fio  1234 [001] 12345.678911:  block:block_rq_issue: 7,0 R 4096 () 128 + 8 [fio]\n\
          <idle>-0       [001] ..s.. 12345.679911: block_rq_complete: 7,0 R () 128 + 8 [0]\n",
    decoder: |options| {
        Box::new(Ftrace {
            lines: TextRows::new(Lines {
                events: EventRequests::new(options.event),
            }),
        })
    },
};

/// Turns lines into events, and events into any number of requests.
struct Ftrace {
    lines: TextRows<Lines>,
}

struct Lines {
    events: EventRequests,
}

impl Decode for Ftrace {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        let used = self.lines.decode(bytes, last, devices, requests, damaged);
        self.lines.row_mut().events.take(last, requests);
        used
    }

    fn events(&self) -> Option<EventCounts> {
        Some(self.lines.row().events.counts())
    }
}

impl TextRow for Lines {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        // Comments of ftrace, and trace-cmd's lines about CPUs.
        if line.starts_with(b"#") || line.starts_with(b"cpus=") || line.starts_with(b"CPU ") {
            return RowOutcome::Nothing;
        }
        match self.event(line, devices) {
            Some(()) => RowOutcome::Nothing,
            None => RowOutcome::Damaged,
        }
    }
}

/// A line's event name, time and the rest: the first `SECONDS:` that is followed by a name with a colon.
fn named_event(line: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let mut rest = line;
    while let Some((field, behind)) = word(rest) {
        rest = behind;
        let Some(time_ns) = field
            .strip_suffix(b":")
            .filter(|time| find(b'.', time).is_some())
            .and_then(seconds)
        else {
            continue;
        };
        let (name, behind) = word(behind)?;
        let name = name.strip_suffix(b":")?;
        let name = name.strip_prefix(b"block:").unwrap_or(name);
        return Some((name, time_ns, behind));
    }
    None
}

impl Lines {
    fn event(&mut self, line: &[u8], devices: &mut Devices) -> Option<()> {
        let (name, time_ns, rest) = named_event(line)?;
        let step = match name {
            b"block_bio_queue" => Step::Queue,
            b"block_bio_backmerge" | b"block_bio_frontmerge" => Step::Merge,
            b"block_rq_issue" => Step::Dispatch,
            b"block_rq_complete" => Step::Complete,
            b"block_split" => Step::Split,
            _ => {
                self.events.other();
                return Some(());
            }
        };
        let (device, rest) = word(rest)?;
        let comma = find(b',', device)?;
        number(&device[..comma])?;
        number(&device[comma + 1..])?;
        let (flags, rest) = word(rest)?;
        let (sector, sectors) = blocks(rest)?;
        let bytes = u32::try_from(sectors.checked_mul(512)?).ok()?;
        // Flushes and driver commands have no blocks; the flags of driver commands contain neither R nor W.
        let kind = blkparse::kind(flags, sectors == 0 && flags.first() == Some(&b'N'));
        let device = devices.index_of(device)?;
        self.events.event(&BlockEvent {
            step,
            time_ns,
            device,
            sector,
            bytes,
            kind,
        });
        Some(())
    }
}

/// Parses `[bytes] [(command)] sector + sectors`, or `sector / sector` of a split.
fn blocks(mut rest: &[u8]) -> Option<(u64, u64)> {
    if let Some(end) = memchr::memchr(b')', rest) {
        rest = &rest[end + 1..];
    }
    let (sector, rest) = word(rest)?;
    let (sign, rest) = word(rest)?;
    let (sectors, _) = word(rest)?;
    match sign {
        b"+" => Some((number(sector)?, number(sectors)?)),
        b"/" => Some((number(sector)?, 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::TraceOp;

    #[test]
    fn lines_of_perf_and_ftrace_are_the_same_events() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        let expected = BlockRequest {
            response_ns: Some(1_000_000),
            ..BlockRequest::new(12_345_678_911_000, 0, TraceOp::Read, 65_536, 4096)
        };
        assert_eq!(
            (requests, devices, damaged),
            (vec![expected], vec!["7,0".to_string()], vec![])
        );
    }

    #[test]
    fn other_events_and_names_with_blanks_do_not_confuse_the_parser() {
        let text = b"# tracer: nop\n\
            Web Content 9:1  77 [000] 5.000001: sched:sched_switch: prev_comm=x ==> next_comm=y\n\
            Web Content 9:1  77 [000] 5.000002: block:block_rq_issue: 8,16 WFS 2048 (2a 00 (x) 4112 + 4 be,0,4 [a b]\n\
            kworker/0:1H-33 [000] 5.000003: block_rq_issue: 8,16 FF 0 () 0 + 0 [kworker]\n\
            no event at all\n\
            x-1 [000] 5.1: block_rq_issue: 8,16 R 4096 () x + 8 [x]\n";
        let (requests, _, damaged) = read(&FORMAT, text);
        assert_eq!(damaged, [5, 6]);
        let ops: Vec<_> = requests
            .iter()
            .map(|r| (r.op, r.fua, r.len_bytes))
            .collect();
        assert_eq!(
            ops,
            [(TraceOp::Write, true, 2048), (TraceOp::Flush, false, 0)]
        );
    }
}
