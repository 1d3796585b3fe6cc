//! Output of blkparse: `major,minor cpu number seconds pid action rwbs …`, followed for steps of
//! requests by `sector + sectors [process]`. A summary at the end is ignored.

use super::{RowOutcome, word};
use crate::events::{BlockEvent, EventKind, EventRequests, Step};
use crate::field::{find, number, seconds};
use crate::format::{DamagedRow, Decode, EventCounts, Format, ReadingKey};
use crate::formats::{TextRow, TextRows};
use crate::record::{BlockRequest, Devices};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "blkparse",
    help: "output of blkparse: major,minor cpu number seconds pid action rwbs sector + sectors",
    note: "requests are those issued to the device (D) unless --event says queued (Q) or \
        completed (C); a write with a preflush becomes a flush and a write",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[ReadingKey::Event],
    example: b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
          8,0    3        2     0.000001829   697  D   W 223490 + 8 [kjournald]\n\
          8,0    3        3     0.000004829     0  C   W 223490 + 8 [0]\n",
    decoder: |options| {
        let events = EventRequests::new(options.event);
        Box::new(Blkparse {
            lines: TextRows::new(Lines {
                events,
                summary: false,
            }),
        })
    },
};

/// Turns lines into events, and events into any number of requests.
struct Blkparse {
    lines: TextRows<Lines>,
}

struct Lines {
    events: EventRequests,
    /// Whether the summary has started.
    summary: bool,
}

impl Decode for Blkparse {
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
        if self.event(line, devices).is_some() {
            return RowOutcome::Nothing;
        }
        self.summary |= [&b"CPU"[..], b"Total", b"Input file"]
            .iter()
            .any(|start| line.starts_with(start));
        if self.summary {
            RowOutcome::Nothing
        } else {
            RowOutcome::Damaged
        }
    }
}

impl Lines {
    fn event(&mut self, line: &[u8], devices: &mut Devices) -> Option<()> {
        let (name, rest) = word(line)?;
        let comma = find(b',', name)?;
        number(&name[..comma])?;
        number(&name[comma + 1..])?;
        let (cpu, rest) = word(rest)?;
        number(cpu)?;
        let (count, rest) = word(rest)?;
        number(count)?;
        let (time, rest) = word(rest)?;
        let time_ns = seconds(time)?;
        let (pid, rest) = word(rest)?;
        number(pid)?;
        let (action, rest) = word(rest)?;
        let step = match action {
            b"Q" => Step::Queue,
            b"M" | b"F" => Step::Merge,
            b"D" => Step::Dispatch,
            b"C" => Step::Complete,
            b"X" => Step::Split,
            _ => Step::Other,
        };
        if step == Step::Other {
            self.events.other();
            return Some(());
        }
        let (flags, rest) = word(rest)?;
        let (sector, sectors) = blocks(rest);
        let kind = kind(flags, sectors.is_none());
        let device = devices.index_of(name)?;
        let bytes = u32::try_from(sectors.unwrap_or(0).checked_mul(512)?).ok()?;
        let event = BlockEvent {
            step,
            time_ns,
            device,
            sector: sector.unwrap_or(0),
            bytes,
            kind,
        };
        self.events.event(&event);
        Some(())
    }
}

/// Parses `sector + sectors`, or `sector / sectors` of a split; flushes and driver commands have none.
fn blocks(rest: &[u8]) -> (Option<u64>, Option<u64>) {
    let read = || {
        let (sector, rest) = word(rest)?;
        let (sign, rest) = word(rest)?;
        let (sectors, _) = word(rest)?;
        matches!(sign, b"+" | b"/").then_some((number(sector)?, number(sectors)?))
    };
    match read() {
        Some((sector, sectors)) => (Some(sector), Some(sectors)),
        None => (None, None),
    }
}

/// Parses blkparse's flags: F for a preceding flush, the operation, F again for FUA, then others.
pub(super) fn kind(flags: &[u8], bare: bool) -> EventKind {
    let flush = flags.first() == Some(&b'F');
    let rest = if flush { &flags[1..] } else { flags };
    let what = rest.first().copied();
    EventKind {
        write: what == Some(b'W'),
        discard: what == Some(b'D'),
        flush,
        fua: rest.get(1..).is_some_and(|more| more.contains(&b'F')),
        passthrough: bare && !flush,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::TraceOp;

    #[test]
    fn rows_of_the_manual_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        let write = BlockRequest {
            response_ns: Some(3000),
            ..BlockRequest::new(1829, 0, TraceOp::Write, 223_490 * 512, 4096)
        };
        assert_eq!(
            (requests, devices, damaged.len()),
            (vec![write], vec!["8,0".to_string()], 0)
        );
    }

    #[test]
    fn flags_are_parsed_summaries_ignored_and_damage_reported() {
        let text = b"  8,0 0 1 0.1 7 D FWFS 8 + 8 [x]\n  8,0 0 2 0.2 7 D FN [x]\n  8,0 0 3 0.3 7 D D 0 + 8 [x]\n\
            8,0 0 4 0.4 7 D R 36 (12 00 00) [x]\n8,0 0 5 0.5 7 m N some message\nnonsense\n8,0 0 6 x 7 D R 0 + 8 [x]\n\
            CPU0 (8,0):\n Reads Queued: 1\nTotal (8,0):\n Writes: 2\n";
        let (requests, _, damaged) = read(&FORMAT, text);
        let ops: Vec<_> = requests
            .iter()
            .map(|request| (request.op, request.fua))
            .collect();
        let expected = [
            (TraceOp::Flush, false),
            (TraceOp::Write, true),
            (TraceOp::Flush, false),
            (TraceOp::Unmap, false),
            (TraceOp::Other, false),
        ];
        assert_eq!((ops.as_slice(), damaged), (&expected[..], vec![6, 7]));
    }
}
