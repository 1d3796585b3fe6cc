//! What the events of Linux's block layer are as requests: which step counts, what it asks for, when it was answered.
//! Used by the formats of blktrace and blkparse.
//!
//! The rule: requests come in the order of their events; a request waits for its answer only while few wait with it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::format::{EventCounts, TracedEvent};
use crate::record::{BlockRequest, TraceOp};

/// Requests that wait for their answers; beyond it the first goes on without one.
const WAITING_MAX: usize = 1 << 14;

/// The steps that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Queue,
    Merge,
    Dispatch,
    Complete,
    Split,
    Other,
}

/// What a step is about.
#[derive(Clone, Copy, Debug)]
pub struct BlockEvent {
    pub step: Step,
    pub time_ns: u64,
    pub device: u32,
    pub sector: u64,
    pub bytes: u32,
    pub kind: EventKind,
}

/// The flags of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKind {
    pub write: bool,
    pub discard: bool,
    /// The cache is made stable before.
    pub flush: bool,
    pub fua: bool,
    /// A command of the driver's own, not of blocks.
    pub passthrough: bool,
}

impl EventKind {
    fn op(self, bytes: u32) -> TraceOp {
        match self {
            EventKind { passthrough: true, .. } => TraceOp::Other,
            EventKind { discard: true, .. } => TraceOp::Unmap,
            EventKind { flush: true, .. } if bytes == 0 => TraceOp::Flush,
            _ if bytes == 0 => TraceOp::Other,
            EventKind { write: true, .. } => TraceOp::Write,
            _ => TraceOp::Read,
        }
    }
}

/// Hashes devices and sectors with one multiplication for each; the standard library's hash takes longer than all else that
/// is done with an event. Seeded, so that no file can be made whose sectors meet.
struct SectorHash {
    seed: u64,
}

struct SectorHasher(u64);

impl BuildHasher for SectorHash {
    type Hasher = SectorHasher;
    #[inline]
    fn build_hasher(&self) -> SectorHasher {
        SectorHasher(self.seed)
    }
}

impl Hasher for SectorHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }
    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }
    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Both halves of the product, as wyhash folds them.
        let wide = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Turns events into requests.
pub struct EventRequests {
    event: TracedEvent,
    /// In the order of their events, and whether they wait for nothing more.
    waiting: VecDeque<(BlockRequest, bool)>,
    /// The number of the first of them since the beginning.
    first: u64,
    /// By device and sector: the number of the one that waits.
    open: HashMap<(u32, u64), u64, SectorHash>,
    counts: EventCounts,
}

impl EventRequests {
    /// Of which step requests are made.
    pub fn new(event: TracedEvent) -> EventRequests {
        EventRequests {
            event,
            waiting: VecDeque::new(),
            first: 0,
            open: HashMap::with_hasher(SectorHash { seed: RandomState::new().build_hasher().finish() }),
            counts: EventCounts::default(),
        }
    }

    /// Events that became no requests.
    pub fn counts(&self) -> EventCounts {
        self.counts
    }

    /// An event that is known to be none of these.
    pub fn other(&mut self) {
        self.counts.others += 1;
    }

    /// The next event; requests that wait for nothing more go to `requests`.
    pub fn event(&mut self, event: &BlockEvent, requests: &mut Vec<BlockRequest>) {
        match (event.step, self.event) {
            (Step::Queue, TracedEvent::Queued) | (Step::Complete, TracedEvent::Completed) => {
                self.make(event, |request| requests.push(request));
            }
            (Step::Dispatch, TracedEvent::Dispatched) => self.dispatch(event),
            (Step::Complete, TracedEvent::Dispatched) => {
                self.counts.others += 1;
                self.answer(event);
            }
            (Step::Merge, _) => self.counts.merges += 1,
            (Step::Split, _) => self.counts.splits += 1,
            _ => self.counts.others += 1,
        }
        self.release(WAITING_MAX, requests);
    }

    /// Nothing waits any longer: the file is at its end.
    pub fn end(&mut self, requests: &mut Vec<BlockRequest>) {
        self.release(0, requests);
    }

    /// A write that makes the cache stable before is a flush and a write.
    fn make(&self, event: &BlockEvent, mut each: impl FnMut(BlockRequest)) {
        let op = event.kind.op(event.bytes);
        if event.kind.flush && op == TraceOp::Write {
            each(BlockRequest::new(event.time_ns, event.device, TraceOp::Flush, 0, 0));
        }
        // Some steps of a flush say -1 for the sector they do not have.
        let offset_bytes = if op == TraceOp::Flush { 0 } else { event.sector.saturating_mul(512) };
        let request = BlockRequest::new(event.time_ns, event.device, op, offset_bytes, event.bytes);
        each(BlockRequest { fua: event.kind.fua, ..request });
    }

    fn dispatch(&mut self, event: &BlockEvent) {
        let mut made = [None; 2];
        let mut count = 0;
        self.make(event, |request| {
            made[count] = Some(request);
            count += 1;
        });
        for (index, request) in made.into_iter().flatten().enumerate() {
            // Only the last of them has an answer of its own.
            let waits = index + 1 == count;
            let number = self.first + self.waiting.len() as u64;
            if waits && let Some(before) = self.open.insert((event.device, event.sector), number) {
                // Sent again: the first one had no answer.
                self.settle(before, None);
            }
            self.waiting.push_back((request, !waits));
        }
    }

    fn answer(&mut self, event: &BlockEvent) {
        if let Some(number) = self.open.remove(&(event.device, event.sector)) {
            self.settle(number, Some(event.time_ns));
        }
    }

    fn settle(&mut self, number: u64, answered_ns: Option<u64>) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some((request, settled)) = place.and_then(|place| self.waiting.get_mut(place)) {
            request.response_ns = answered_ns.and_then(|time| time.checked_sub(request.time_ns));
            *settled = true;
        }
    }

    fn release(&mut self, keep: usize, requests: &mut Vec<BlockRequest>) {
        while self.waiting.len() > keep || self.waiting.front().is_some_and(|(_, settled)| *settled) {
            let Some((request, settled)) = self.waiting.pop_front() else { break };
            if !settled {
                // Its answer, should it come, finds nobody.
                let key = (request.device, request.offset_bytes / 512);
                if self.open.get(&key) == Some(&self.first) {
                    self.open.remove(&key);
                }
            }
            self.first += 1;
            requests.push(request);
        }
        assert!(self.open.len() <= WAITING_MAX * 2, "answers are waited for by requests that wait");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(step: Step, time_ns: u64, sector: u64, bytes: u32, kind: EventKind) -> BlockEvent {
        BlockEvent { step, time_ns, device: 0, sector, bytes, kind }
    }

    fn run(chosen: TracedEvent, events: &[BlockEvent]) -> (Vec<BlockRequest>, EventCounts) {
        let (mut made, mut requests) = (EventRequests::new(chosen), Vec::new());
        events.iter().for_each(|event| made.event(event, &mut requests));
        made.end(&mut requests);
        (requests, made.counts())
    }

    /// Two queued writes that are merged and sent as one, a read, and a write with flush and FUA.
    #[test]
    fn steps_are_chosen_and_answers_found() {
        let write = EventKind { write: true, ..EventKind::default() };
        let stable = EventKind { flush: true, fua: true, ..write };
        let read = EventKind::default();
        let events = [
            event(Step::Queue, 10, 8, 4096, write),
            event(Step::Queue, 11, 16, 4096, write),
            event(Step::Merge, 12, 16, 4096, write),
            event(Step::Dispatch, 20, 8, 8192, write),
            event(Step::Queue, 21, 100, 512, read),
            event(Step::Dispatch, 22, 100, 512, read),
            event(Step::Complete, 30, 100, 512, read),
            event(Step::Complete, 40, 8, 8192, write),
            event(Step::Queue, 50, 0, 512, stable),
            event(Step::Split, 51, 0, 512, stable),
        ];
        let (queued, counts) = run(TracedEvent::Queued, &events);
        let ops: Vec<_> = queued.iter().map(|request| (request.op, request.len_bytes, request.fua)).collect();
        let expected = [
            (TraceOp::Write, 4096, false),
            (TraceOp::Write, 4096, false),
            (TraceOp::Read, 512, false),
            (TraceOp::Flush, 0, false),
            (TraceOp::Write, 512, true),
        ];
        assert_eq!(
            (ops.as_slice(), counts),
            (&expected[..], EventCounts { merges: 1, splits: 1, others: 4 })
        );
        let (dispatched, _) = run(TracedEvent::Dispatched, &events);
        let answers: Vec<_> =
            dispatched.iter().map(|request| (request.time_ns, request.response_ns)).collect();
        assert_eq!(answers, [(20, Some(20)), (22, Some(8))]);
        let (completed, _) = run(TracedEvent::Completed, &events);
        assert_eq!(completed.iter().map(|request| request.time_ns).collect::<Vec<_>>(), [30, 40]);
    }

    #[test]
    fn a_request_sent_again_and_one_never_answered_hold_nobody_up() {
        let read = EventKind::default();
        let mut events = vec![event(Step::Dispatch, 1, 8, 512, read), event(Step::Dispatch, 2, 8, 512, read)];
        events.push(event(Step::Complete, 5, 8, 512, read));
        let (requests, _) = run(TracedEvent::Dispatched, &events);
        let answers: Vec<_> = requests.iter().map(|request| request.response_ns).collect();
        assert_eq!(answers, [None, Some(3)]);
        let (mut made, mut out) = (EventRequests::new(TracedEvent::Dispatched), Vec::new());
        for number in 0..WAITING_MAX as u64 * 3 {
            made.event(&event(Step::Dispatch, number, number, 512, read), &mut out);
        }
        assert_eq!((out.len(), made.open.len()), (WAITING_MAX * 2, WAITING_MAX));
    }
}
