//! Passively reassembles one direction of a TCP connection: takes segments and emits an ordered stream of data and
//! holes. Fed by the pipeline; [`crate::dissect`] receives the stream. The one rule: the receiver's acknowledgements
//! decide. Acknowledged data is not sent again, so a gap below the acknowledgement is a hole (the capture lost the
//! data). A gap above it may still be filled, so the data after the gap waits in a small reorder buffer. If no
//! acknowledgement is ever seen (one port of a tap), data waits only for a number of segments or milliseconds. If
//! there is no room, the oldest gap is abandoned, but never the bytes that have just arrived.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use brunt_wire::net::Payload;

use crate::ledger::Ledger;
use crate::memory::Memory;

/// Maximum segments waiting for a gap to be filled; beyond that, the gap is abandoned.
const SEGMENTS_WAITING_MAX: usize = 2048;
/// Maximum bytes waiting in one direction; a sender's window is rarely larger.
const BYTES_WAITING_MAX: usize = 4 << 20;
/// Maximum time that a gap may stay open, in capture time.
const GAP_NS_MAX: u64 = 3_000_000_000;
/// If the other direction was never seen, a gap is abandoned after this many later segments or this much time. Over
/// the distances at which storage is accessed, a lost segment is retransmitted within about that time.
const ONE_SIDED_SEGMENTS_MAX: usize = 128;
const ONE_SIDED_GAP_NS_MAX: u64 = 20_000_000;
/// A sequence number this far away belongs to another connection on the same ports, or follows an interruption of the
/// capture: nothing is known about the bytes in between.
const JUMP_BYTES_MAX: u32 = 1 << 30;

/// A part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The next bytes of the stream.
    Data(&'a [u8]),
    /// A hole, with the number of missing bytes.
    Hole(u32),
    /// An unknown part of the stream is missing.
    Jump,
}

/// Receives the stream.
pub trait StreamSink {
    /// Receives the next piece, captured at `time_ns`.
    fn piece(&mut self, piece: Piece<'_>, time_ns: u64, ledger: &mut Ledger, memory: &mut Memory);
}

/// Where a direction's stream goes, and the state shared by all directions.
#[derive(Debug)]
pub struct StreamContext<'a, O> {
    /// Receives the stream.
    pub out: &'a mut O,
    /// Counts lost, abandoned and retransmitted data.
    pub ledger: &'a mut Ledger,
    /// Budget for the waiting data.
    pub memory: &'a mut Memory,
}

impl<O: StreamSink> StreamContext<'_, O> {
    #[inline(always)]
    fn piece(&mut self, piece: Piece<'_>, time_ns: u64) {
        self.out.piece(piece, time_ns, self.ledger, self.memory);
    }
}

/// A sequence number. Numbers are only compared if they are less than half the number space apart (RFC 9293, 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seq(u32);

impl Ord for Seq {
    fn cmp(&self, other: &Seq) -> Ordering {
        ahead(self.0, other.0).cmp(&0)
    }
}

impl PartialOrd for Seq {
    fn partial_cmp(&self, other: &Seq) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Maximum total bytes of the segments in one run. The run's buffer grows to less than twice that, so it can still be
/// reused.
const RUN_BYTES_MAX: usize = 32 << 10;

/// Contiguous segments that wait for earlier data. After a loss, the rest of the window forms one run.
#[derive(Debug)]
struct Run {
    /// Total length of the segments on the wire.
    wire_len: u32,
    bytes: Vec<u8>,
    /// Length of the first segment.
    first_len: u32,
    first_ns: u64,
    /// For each further segment, where it ends within the run and when it was captured.
    others: Vec<(u32, u64)>,
}

impl Run {
    fn segments(&self) -> usize {
        1 + self.others.len()
    }

    fn last_ns(&self) -> u64 {
        self.others
            .last()
            .map_or(self.first_ns, |(_, time_ns)| *time_ns)
    }

    /// Whether a segment at this distance from the run's start can extend the run: it is contiguous, neither was
    /// truncated, and there is room.
    fn is_extended_by(&self, distance: u32, payload: Payload<'_>) -> bool {
        distance == self.wire_len
            && self.bytes.len() == self.wire_len as usize
            && payload.bytes.len() == payload.wire_len
            && self.bytes.len() + payload.wire_len <= RUN_BYTES_MAX
    }
}

/// The reassembly state of one direction.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// Sequence number of the stream's next byte.
    next: u32,
    /// The highest acknowledgement seen from the other side.
    acked: u32,
    /// The value of `acked` when the stream began; as long as they are equal, the other side has not been seen.
    start: u32,
    synchronized: bool,
    /// Waiting runs, keyed by the sequence number of their first byte; almost always empty.
    waiting: BTreeMap<Seq, Run>,
    waiting_segments: usize,
    waiting_bytes: usize,
}

/// `a - b` for sequence numbers (RFC 9293, 3.4).
#[inline]
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

impl Reassembly {
    /// Whether a SYN with this sequence number opens another connection on the same ports, rather than being a
    /// retransmission of the last SYN.
    pub fn is_new_syn(&self, seq: u32) -> bool {
        !self.synchronized || seq.wrapping_add(1) != self.next
    }

    /// Starts the stream of the connection that a SYN opens.
    pub fn on_syn(&mut self, seq: u32, memory: &mut Memory) {
        self.clear(memory);
        self.begin(seq.wrapping_add(1));
    }

    fn begin(&mut self, seq: u32) {
        (self.next, self.acked, self.start) = (seq, seq, seq);
        self.synchronized = true;
    }

    /// Whether the other side has acknowledged everything before `seq`.
    fn is_acked(&self, seq: u32) -> bool {
        self.acked != self.start && ahead(self.acked, seq) >= 0
    }

    /// Records that the other side has acknowledged everything before `ack`. Returns `true` if segments are waiting,
    /// so that [`Reassembly::settle`] may be able to deliver them.
    #[inline(always)]
    pub fn on_ack(&mut self, ack: u32) -> bool {
        if !self.synchronized
            || ahead(ack, self.acked) <= 0
            || ahead(ack, self.next) > JUMP_BYTES_MAX as i32
        {
            return false;
        }
        self.acked = ack;
        !self.waiting.is_empty()
    }

    /// Processes a segment.
    #[inline]
    pub fn on_segment(
        &mut self,
        seq: u32,
        payload: Payload<'_>,
        time_ns: u64,
        to: &mut StreamContext<'_, impl StreamSink>,
    ) {
        if seq == self.next && self.synchronized && self.waiting.is_empty() {
            self.deliver(payload.bytes, payload.wire_len as u32, time_ns, to);
        } else {
            self.on_other_segment(seq, payload, time_ns, to);
        }
    }

    // Always inlined: almost every segment takes this path.
    #[inline(always)]
    fn deliver(
        &mut self,
        bytes: &[u8],
        wire_len: u32,
        time_ns: u64,
        to: &mut StreamContext<'_, impl StreamSink>,
    ) {
        self.next = self.next.wrapping_add(wire_len);
        if !bytes.is_empty() {
            to.piece(Piece::Data(bytes), time_ns);
        }
        let missing = wire_len - bytes.len() as u32;
        if missing > 0 {
            to.ledger.hole_bytes += u64::from(missing);
            to.piece(Piece::Hole(missing), time_ns);
        }
    }

    #[cold]
    fn on_other_segment(
        &mut self,
        seq: u32,
        payload: Payload<'_>,
        time_ns: u64,
        to: &mut StreamContext<'_, impl StreamSink>,
    ) {
        let wire_len = payload.wire_len as u32;
        if !self.synchronized {
            self.begin(seq);
            return self.deliver(payload.bytes, wire_len, time_ns, to);
        }
        let distance = ahead(seq, self.next);
        if distance.unsigned_abs() > JUMP_BYTES_MAX {
            to.ledger.stream_jumps += 1;
            self.clear(to.memory);
            self.begin(seq);
            to.piece(Piece::Jump, time_ns);
            return self.deliver(payload.bytes, wire_len, time_ns, to);
        }
        if distance <= 0 {
            let known = distance.unsigned_abs();
            to.ledger.bytes_retransmitted += u64::from(known.min(wire_len));
            if known < wire_len {
                let bytes = payload.bytes.get(known as usize..).unwrap_or(&[]);
                self.deliver(bytes, wire_len - known, time_ns, to);
            }
        } else if self.is_acked(seq) && self.waiting.is_empty() {
            self.hole(seq, time_ns, to);
            return self.deliver(payload.bytes, wire_len, time_ns, to);
        } else {
            self.keep(seq, payload, time_ns, to);
        }
        self.settle(to);
    }

    fn hole(&mut self, until: u32, time_ns: u64, to: &mut StreamContext<'_, impl StreamSink>) {
        let len = until.wrapping_sub(self.next);
        self.next = until;
        to.ledger.holes += 1;
        to.ledger.hole_bytes += u64::from(len);
        to.piece(Piece::Hole(len), time_ns);
    }

    fn keep(
        &mut self,
        seq: u32,
        payload: Payload<'_>,
        time_ns: u64,
        to: &mut StreamContext<'_, impl StreamSink>,
    ) {
        let wire_len = payload.wire_len as u32;
        if let Some((Seq(start), run)) = self.waiting.range_mut(..=Seq(seq)).next_back() {
            let distance = seq.wrapping_sub(*start);
            // A retransmission of bytes that are waiting. Partial overlaps are trimmed on delivery.
            if distance.saturating_add(wire_len) <= run.wire_len {
                to.ledger.bytes_retransmitted += u64::from(wire_len);
                return;
            }
            if run.is_extended_by(distance, payload)
                && self.waiting_bytes + payload.wire_len <= BYTES_WAITING_MAX
                && to.memory.append(&mut run.bytes, payload.bytes)
            {
                run.wire_len += wire_len;
                run.others.push((run.wire_len, time_ns));
                self.waiting_bytes += payload.wire_len;
                self.waiting_segments += 1;
                to.ledger.segments_reordered += 1;
                return;
            }
        }
        let mut bytes = Vec::new();
        while self.waiting_bytes + payload.bytes.len() > BYTES_WAITING_MAX
            || !to.memory.append(&mut bytes, payload.bytes)
        {
            let oldest = self.waiting.first_key_value().map(|(oldest, _)| oldest.0);
            let until = oldest
                .filter(|oldest| ahead(*oldest, seq) < 0)
                .unwrap_or(seq);
            self.give_up_for_room(until, time_ns, to);
            let known = ahead(self.next, seq);
            if known >= 0 {
                // The segment is now next in the stream and needs no room.
                let known = (known as u32).min(wire_len);
                let bytes = payload.bytes.get(known as usize..).unwrap_or(&[]);
                return self.deliver(bytes, wire_len - known, time_ns, to);
            }
        }
        self.waiting_bytes += bytes.len();
        to.ledger.segments_reordered += 1;
        self.waiting_segments += 1;
        let run = Run {
            wire_len,
            bytes,
            first_len: wire_len,
            first_ns: time_ns,
            others: Vec::new(),
        };
        if let Some(shorter) = self.waiting.insert(Seq(seq), run) {
            self.waiting_bytes -= shorter.bytes.len();
            self.waiting_segments -= shorter.segments();
            to.memory.release(shorter.bytes);
        }
    }

    /// Abandons the gap before `until` and delivers what follows it.
    #[cold]
    fn give_up_for_room(
        &mut self,
        until: u32,
        time_ns: u64,
        to: &mut StreamContext<'_, impl StreamSink>,
    ) {
        to.ledger.gaps_no_room += 1;
        to.ledger.gap_bytes_no_room += u64::from(until.wrapping_sub(self.next));
        self.hole(until, time_ns, to);
        while self
            .waiting
            .first_key_value()
            .is_some_and(|(first, _)| ahead(first.0, self.next) <= 0)
        {
            self.forward_first(to);
        }
    }

    /// Delivers waiting runs, as far as the gaps before them are closed or abandoned.
    pub fn settle(&mut self, to: &mut StreamContext<'_, impl StreamSink>) {
        while let Some((&Seq(seq), first)) = self.waiting.first_key_value() {
            if ahead(seq, self.next) > 0 {
                let since = first.first_ns;
                if self.is_full() {
                    self.give_up_for_room(seq, since, to);
                    continue;
                }
                if !self.is_acked(seq) && !self.is_too_old(since) {
                    return;
                }
                self.hole(seq, since, to);
            }
            self.forward_first(to);
        }
    }

    fn is_full(&self) -> bool {
        self.waiting_segments > SEGMENTS_WAITING_MAX
            || self.waiting_bytes > BYTES_WAITING_MAX - (1 << 16)
    }

    /// Whether the first gap has been open too long. The data after the gap arrived at `since_ns`.
    fn is_too_old(&self, since_ns: u64) -> bool {
        let last = self
            .waiting
            .last_key_value()
            .map_or(since_ns, |(_, last)| last.last_ns());
        let age_ns = last.saturating_sub(since_ns);
        let is_one_sided = self.acked == self.start;
        age_ns > GAP_NS_MAX
            || is_one_sided
                && (age_ns > ONE_SIDED_GAP_NS_MAX || self.waiting_segments > ONE_SIDED_SEGMENTS_MAX)
    }

    /// Delivers the first waiting run, which starts at or before the stream's position.
    fn forward_first(&mut self, to: &mut StreamContext<'_, impl StreamSink>) {
        let Some((Seq(seq), run)) = self.waiting.pop_first() else {
            return;
        };
        self.waiting_bytes -= run.bytes.len();
        self.waiting_segments -= run.segments();
        let mut begin = 0;
        for (end, time_ns) in std::iter::once((run.first_len, run.first_ns)).chain(run.others) {
            // The part of the segment that overlaps earlier data.
            let known = self
                .next
                .wrapping_sub(seq.wrapping_add(begin))
                .min(end - begin);
            if known < end - begin {
                let of_segment = &run.bytes[..run.bytes.len().min(end as usize)];
                let bytes = of_segment.get((begin + known) as usize..).unwrap_or(&[]);
                self.deliver(bytes, end - begin - known, time_ns, to);
            }
            to.ledger.bytes_retransmitted += u64::from(known);
            begin = end;
        }
        to.memory.release(run.bytes);
    }

    /// Abandons every gap, at the end of the connection or the capture.
    pub fn finish(&mut self, to: &mut StreamContext<'_, impl StreamSink>) {
        while let Some((&Seq(seq), first)) = self.waiting.first_key_value() {
            let since = first.first_ns;
            if ahead(seq, self.next) > 0 {
                self.hole(seq, since, to);
            }
            self.forward_first(to);
        }
    }

    fn clear(&mut self, memory: &mut Memory) {
        while let Some((_, waiting)) = self.waiting.pop_first() {
            memory.release(waiting.bytes);
        }
        (self.waiting_bytes, self.waiting_segments) = (0, 0);
        self.synchronized = false;
    }

    /// Releases all memory without delivering anything.
    pub fn release(&mut self, memory: &mut Memory) {
        self.clear(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Collect(Vec<String>);

    impl StreamSink for Collect {
        fn piece(&mut self, piece: Piece<'_>, _: u64, _: &mut Ledger, _: &mut Memory) {
            self.0.push(match piece {
                Piece::Data(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Piece::Hole(len) => format!("-{len}"),
                Piece::Jump => "!".into(),
            });
        }
    }

    fn to<'a>(
        out: &'a mut Collect,
        ledger: &'a mut Ledger,
        memory: &'a mut Memory,
    ) -> StreamContext<'a, Collect> {
        StreamContext {
            out,
            ledger,
            memory,
        }
    }

    enum Step {
        Segment(u32, &'static str),
        Cut(u32, &'static str, usize),
        Ack(u32),
        Finish,
    }
    use Step::*;

    /// Plays the steps on a connection whose first byte has sequence number `start`, and joins the output.
    fn check(start: u32, steps: &[Step], expected: &str) -> Ledger {
        let (mut ledger, mut memory) = (Ledger::default(), Memory::new(1 << 20));
        let (mut tcp, mut out) = (Reassembly::default(), Collect::default());
        tcp.on_syn(start.wrapping_sub(1), &mut memory);
        for step in steps {
            let mut segment = |at: u32, text: &str, wire_len| {
                let payload = Payload {
                    bytes: text.as_bytes(),
                    wire_len,
                };
                tcp.on_segment(
                    start.wrapping_add(at),
                    payload,
                    0,
                    &mut to(&mut out, &mut ledger, &mut memory),
                );
            };
            match *step {
                Segment(at, text) => segment(at, text, text.len()),
                Cut(at, text, wire_len) => segment(at, text, wire_len),
                Ack(at) => {
                    if tcp.on_ack(start.wrapping_add(at)) {
                        tcp.settle(&mut to(&mut out, &mut ledger, &mut memory));
                    }
                }
                Finish => tcp.finish(&mut to(&mut out, &mut ledger, &mut memory)),
            }
        }
        assert_eq!(out.0.concat(), expected);
        ledger
    }

    /// Despite reordering, overlap, loss and wrap-around, the stream is the one that the receiver got.
    #[test]
    fn the_stream_is_the_one_the_receiver_had() {
        for start in [1, 0xffff_fffe] {
            check(start, &[Segment(0, "abc"), Segment(3, "de")], "abcde");
            check(start, &[Segment(3, "de"), Segment(0, "abc")], "abcde");
            check(
                start,
                &[Segment(0, "abc"), Segment(0, "abc"), Segment(3, "d")],
                "abcd",
            );
            check(start, &[Segment(0, "abc"), Segment(1, "bcde")], "abcde");
            check(
                start,
                &[
                    Segment(4, "e"),
                    Segment(2, "cd"),
                    Segment(0, "ab"),
                    Segment(5, "f"),
                ],
                "abcdef",
            );
            // The reassembly waits for the gap to be filled, as the receiver does; overlaps are trimmed.
            check(
                start,
                &[Segment(2, "cde"), Segment(3, "def"), Segment(0, "abc")],
                "abcdef",
            );
            // Acknowledged but not captured: a hole at once.
            check(start, &[Segment(0, "a"), Ack(3), Segment(3, "d")], "a-2d");
            check(
                start,
                &[Segment(0, "a"), Segment(3, "d"), Ack(4), Segment(4, "e")],
                "a-2de",
            );
            check(
                start,
                &[
                    Segment(0, "a"),
                    Segment(3, "d"),
                    Ack(1),
                    Segment(4, "e"),
                    Finish,
                ],
                "a-2de",
            );
            // Truncated by the snap length.
            check(start, &[Cut(0, "ab", 5), Segment(5, "f")], "ab-3f");
            check(start, &[Cut(5, "f", 9), Segment(0, "abcde")], "abcdef-8");
        }
    }

    /// A gap that is neither filled nor acknowledged costs only a bounded buffer.
    #[test]
    fn an_open_gap_costs_a_bounded_buffer() {
        let (mut ledger, mut memory) = (Ledger::default(), Memory::new(64 << 20));
        let (mut tcp, mut out) = (Reassembly::default(), Collect::default());
        tcp.on_syn(0, &mut memory);
        for i in 0..100_000u32 {
            let payload = Payload {
                bytes: b"x",
                wire_len: 1,
            };
            tcp.on_segment(
                2 + i,
                payload,
                0,
                &mut to(&mut out, &mut ledger, &mut memory),
            );
        }
        assert_eq!(ledger.holes, 1);
        assert!(memory.used() <= SEGMENTS_WAITING_MAX);
        assert_eq!(out.0[0], "-1");
    }

    /// Without acknowledgements, a gap is abandoned after a number of segments: only the lost data is missing,
    /// however little memory there is.
    #[test]
    fn without_acknowledgements_only_the_lost_data_is_missing() {
        for memory_bytes in [64 << 20, 20_000, 0] {
            let (mut ledger, mut memory) = (Ledger::default(), Memory::new(memory_bytes));
            let (mut tcp, mut out) = (Reassembly::default(), Collect::default());
            let text = "0123456789".repeat(100);
            let payload = Payload {
                bytes: text.as_bytes(),
                wire_len: text.len(),
            };
            for index in 0..10_000u32 {
                if index % 100 != 50 {
                    tcp.on_segment(
                        index * 1000,
                        payload,
                        0,
                        &mut to(&mut out, &mut ledger, &mut memory),
                    );
                }
            }
            tcp.finish(&mut to(&mut out, &mut ledger, &mut memory));
            assert_eq!(
                (ledger.holes, ledger.hole_bytes),
                (100, 100_000),
                "{memory_bytes} bytes of memory"
            );
            assert_eq!(out.0.iter().filter(|piece| **piece == text).count(), 9900);
            let for_room = ledger.gap_bytes_no_room;
            assert_eq!(
                for_room > 0,
                memory_bytes < 1 << 20,
                "{for_room} with {memory_bytes} bytes of memory"
            );
            assert_eq!(memory.used(), 0);
        }
    }

    /// Segments in any order, some of them repeated or split, yield the original stream.
    #[test]
    fn segments_in_any_order_give_the_original_stream() {
        use brunt_core::random::Random;
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let start = random.next_u64() as u32;
            let mut cuts: Vec<(u32, usize)> = (0..300)
                .map(|at| (at, 1 + (random.next_u64() % 3) as usize))
                .collect();
            for place in (1..cuts.len()).rev() {
                cuts.swap(place, (random.next_u64() % (place as u64 + 1)) as usize);
            }
            let text: Vec<u8> = (0..302u32).map(|at| b'a' + (at % 26) as u8).collect();
            let (mut ledger, mut memory) = (Ledger::default(), Memory::new(1 << 20));
            let (mut tcp, mut out) = (Reassembly::default(), Collect::default());
            tcp.on_syn(start.wrapping_sub(1), &mut memory);
            // The other side has been seen, but has not acknowledged any of this data.
            tcp.acked = start.wrapping_sub(1);
            for (at, len) in &cuts {
                let bytes = &text[*at as usize..*at as usize + len];
                let payload = Payload {
                    bytes,
                    wire_len: bytes.len(),
                };
                tcp.on_segment(
                    start.wrapping_add(*at),
                    payload,
                    0,
                    &mut to(&mut out, &mut ledger, &mut memory),
                );
            }
            let (all, expected) = (out.0.concat(), String::from_utf8(text.clone()).unwrap());
            assert!(
                all.len() >= 300 && expected.starts_with(&all),
                "seed {seed}: {all}"
            );
            assert_eq!((ledger.holes, memory.used()), (0, 0));
        }
    }

    /// A jump beyond any window is treated as a new start, not as a hole of a gigabyte.
    #[test]
    fn a_jump_beyond_any_window_is_a_new_start() {
        let ledger = check(
            1,
            &[
                Segment(0, "a"),
                Segment(0x6000_0000, "b"),
                Segment(0x6000_0001, "c"),
            ],
            "a!bc",
        );
        assert_eq!((ledger.stream_jumps, ledger.holes), (1, 0));
    }
}
