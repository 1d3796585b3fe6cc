//! blktrace's binary files, one per CPU (`linux/blktrace_api.h`): events of 48 bytes (version 7) or
//! 64 (version 8), each followed by `pdu_len` bytes of payload, in the byte order of the host.
//!
//! Version 7: u32 magic and version, u32 number, u64 ns, u64 sector, u32 bytes, u32 action, u32
//! pid, u32 device, u32 CPU, u16 error, u16 pdu_len. Version 8 has the action as a u64 after the
//! pid, and ends with 12 unused bytes.

use super::NumberedDevices;
use crate::events::{BlockEvent, EventKind, EventRequests, Step};
use crate::format::{DamagedRow, Decode, EventCounts, Format, ReadingKey};
use crate::record::{BlockRequest, Devices};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "blktrace",
    help: "binary events of blktrace, versions 7 and 8; the files of all CPUs are merged",
    note: "requests are those issued to the device (D) unless --event says queued (Q) or \
        completed (C); a write with a preflush becomes a flush and a write",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[ReadingKey::Event],
    example: &EXAMPLE,
    decoder: |options| {
        let events = EventRequests::new(options.event);
        Box::new(Blktrace {
            events,
            number: 0,
            skipping: false,
            numbered: NumberedDevices::new(),
        })
    },
};

/// `0x65617400` and the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION_1_BYTES: usize = 48;
const VERSION_2_BYTES: usize = 64;
const MAGIC_BYTES: usize = 4;

/// A version 7 event: a write of 4096 bytes at sector 8 is issued to device 8,0.
const EXAMPLE: [u8; VERSION_1_BYTES] = {
    let mut event = [0; VERSION_1_BYTES];
    (event[0], event[1], event[2], event[3]) = (0x07, b't', b'a', b'e');
    (event[4], event[8], event[16], event[25]) = (1, 100, 8, 16);
    // Action 7 (issue), categories write and issue.
    (event[28], event[30]) = (7, 0x42);
    event[38] = 0x80;
    event
};

/// An event's header, independent of its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHead {
    /// Bytes of the event, including its payload.
    pub bytes: usize,
    /// The time of the event.
    pub time_ns: u64,
    sector: u64,
    moved: u32,
    action: u64,
    device: u32,
}

/// The byte order (true for big-endian) and version of the event that begins here, if any.
/// Force-inlined, like the code in [`crate::events`] that runs per event.
#[inline(always)]
fn begins(bytes: &[u8]) -> Option<(bool, u8)> {
    let magic: [u8; MAGIC_BYTES] = *bytes.first_chunk()?;
    let version =
        |word: u32| (word & !0xff == MAGIC && matches!(word as u8, 7 | 8)).then_some(word as u8);
    let little = version(u32::from_le_bytes(magic)).map(|version| (false, version));
    little.or_else(|| version(u32::from_be_bytes(magic)).map(|version| (true, version)))
}

/// The result of parsing the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAt {
    /// A complete event.
    Whole(EventHead),
    /// An event or garbage; more bytes are needed.
    Cut,
    /// Not an event.
    Garbage,
}

/// Parses the event at the beginning of `bytes`.
#[inline(always)]
pub fn parse(bytes: &[u8]) -> EventAt {
    let head = match begins(bytes) {
        Some((false, 7)) => whole::<false, 7>(bytes),
        Some((false, _)) => whole::<false, 8>(bytes),
        Some((true, 7)) => whole::<true, 7>(bytes),
        Some((true, _)) => whole::<true, 8>(bytes),
        None if bytes.len() < MAGIC_BYTES => None,
        None => return EventAt::Garbage,
    };
    head.map_or(EventAt::Cut, EventAt::Whole)
}

/// The event of this byte order and version, if it is complete.
#[inline(always)]
fn whole<const BIG_ENDIAN: bool, const VERSION: u8>(bytes: &[u8]) -> Option<EventHead> {
    let head = bytes.get(
        ..if VERSION == 7 {
            VERSION_1_BYTES
        } else {
            VERSION_2_BYTES
        },
    )?;
    let word = |at: usize| {
        let word: [u8; 4] = head[at..at + 4]
            .try_into()
            .expect("four bytes of the header");
        if BIG_ENDIAN {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    };
    let long = |at: usize| {
        let long: [u8; 8] = head[at..at + 8]
            .try_into()
            .expect("eight bytes of the header");
        if BIG_ENDIAN {
            u64::from_be_bytes(long)
        } else {
            u64::from_le_bytes(long)
        }
    };
    let short = |at: usize| {
        let word = [head[at], head[at + 1]];
        if BIG_ENDIAN {
            u16::from_be_bytes(word)
        } else {
            u16::from_le_bytes(word)
        }
    };
    let (action, device, more) = match VERSION {
        7 => (u64::from(word(28)), word(36), short(46)),
        _ => (long(32), word(40), short(50)),
    };
    let event = EventHead {
        bytes: head.len() + usize::from(more),
        time_ns: long(8),
        sector: long(16),
        moved: word(24),
        action,
        device,
    };
    (event.bytes <= bytes.len()).then_some(event)
}

/// The number of bytes to skip after garbage, at least one, up to where the next event may begin.
pub fn garbage(bytes: &[u8], last: bool) -> usize {
    let found = (1..bytes.len()).find(|at| match bytes.get(*at..) {
        Some(rest) if rest.len() >= MAGIC_BYTES => begins(rest).is_some(),
        // The rest is too short to tell.
        _ => !last,
    });
    found.unwrap_or(bytes.len())
}

impl EventHead {
    fn step(&self) -> Step {
        const NOTIFY: u64 = 1 << (10 + 16);
        if self.action & NOTIFY != 0 {
            return Step::Other;
        }
        // Bit 8 means that the payload names a control group.
        match self.action & 0xff {
            1 => Step::Queue,
            2 | 3 => Step::Merge,
            7 => Step::Dispatch,
            8 => Step::Complete,
            13 => Step::Split,
            _ => Step::Other,
        }
    }

    fn kind(&self) -> EventKind {
        let is = |category: u32| self.action >> (16 + category) & 1 == 1;
        EventKind {
            write: is(1),
            flush: is(2),
            passthrough: is(9),
            discard: is(13),
            fua: is(15),
        }
    }
}

struct Blktrace {
    events: EventRequests,
    number: u64,
    /// Whether the decoder is skipping bytes that aren't an event and were already counted.
    skipping: bool,
    numbered: NumberedDevices,
}

impl Decode for Blktrace {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            match parse(rest) {
                EventAt::Whole(head) => {
                    used += head.bytes;
                    self.number += 1;
                    self.skipping = false;
                    if !self.event(&head, devices) {
                        damaged.push(DamagedRow { row: self.number });
                    }
                }
                EventAt::Cut if !last => break,
                EventAt::Cut | EventAt::Garbage => {
                    if !std::mem::replace(&mut self.skipping, true) {
                        self.number += 1;
                        damaged.push(DamagedRow { row: self.number });
                    }
                    used += garbage(rest, last);
                }
            }
        }
        self.events.take(last, requests);
        used
    }

    fn events(&self) -> Option<EventCounts> {
        Some(self.events.counts())
    }
}

impl Blktrace {
    /// Processes an event; false if its device exceeds the limit.
    #[inline(always)]
    fn event(&mut self, head: &EventHead, devices: &mut Devices) -> bool {
        let step = head.step();
        if step == Step::Other {
            self.events.other();
            return true;
        }
        // The kernel's dev_t: 12 bits of major number, 20 of minor.
        let name = |device| format!("{},{}", device >> 20, device & 0xf_ffff);
        let Some(device) = self.numbered.index_of(head.device.into(), devices, name) else {
            return false;
        };
        let (time_ns, sector, bytes) = (head.time_ns, head.sector, head.moved);
        let event = BlockEvent {
            step,
            time_ns,
            device,
            sector,
            bytes,
            kind: head.kind(),
        };
        self.events.event(&event);
        true
    }
}

/// Encodes an event, for tests.
#[cfg(test)]
pub fn encode(
    version: u8,
    big_endian: bool,
    time_ns: u64,
    action: u64,
    sector: u64,
    moved: u32,
) -> Vec<u8> {
    let word = |word: u32| {
        if big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    };
    let long = |long: u64| {
        if big_endian {
            long.to_be_bytes()
        } else {
            long.to_le_bytes()
        }
    };
    let mut bytes = [
        &word(MAGIC | u32::from(version))[..],
        &word(1),
        &long(time_ns),
        &long(sector),
        &word(moved),
    ]
    .concat();
    let device = word(8 << 20 | 16);
    match version {
        7 => bytes.extend([word(action as u32), word(9), device].concat()),
        _ => bytes.extend([&word(9)[..], &long(action), &device].concat()),
    }
    bytes.extend(word(0));
    // No error, and a payload of three bytes.
    let more = if big_endian {
        3u16.to_be_bytes()
    } else {
        3u16.to_le_bytes()
    };
    bytes.extend([0, 0, more[0], more[1]]);
    if version == 8 {
        bytes.extend([0; 12]);
    }
    bytes.extend(b"pdu");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::TraceOp;

    const WRITE: u64 = 2 << 16;

    #[test]
    fn events_of_either_version_and_byte_order_are_parsed() {
        for (version, big_endian) in [(7, false), (7, true), (8, false), (8, true)] {
            let mut bytes = encode(version, big_endian, 1000, 7 | WRITE | 1 << 31, 16, 4096);
            bytes.extend(encode(version, big_endian, 1500, 1 << 26, 0, 0));
            bytes.extend(encode(version, big_endian, 3000, 8 | WRITE, 16, 4096));
            let (requests, devices, damaged) = read(&FORMAT, &bytes);
            let write = BlockRequest {
                fua: true,
                response_ns: Some(2000),
                ..BlockRequest::new(1000, 0, TraceOp::Write, 8192, 4096)
            };
            assert_eq!(
                (requests, damaged.len()),
                (vec![write], 0),
                "{version} {big_endian}"
            );
            assert_eq!(devices, ["8,16"]);
        }
    }

    #[test]
    fn garbage_is_skipped_and_counted_once() {
        let event = encode(7, false, 1, 7 | WRITE, 8, 512);
        let bytes = [
            b"nonsense of some length".to_vec(),
            event.clone(),
            vec![0x07],
            event.clone(),
            event[..20].to_vec(),
        ];
        let (requests, _, damaged) = read(&FORMAT, &bytes.concat());
        assert_eq!((requests.len(), damaged), (2, vec![1, 3, 5]));
    }
}
