//! What the events of Linux's block layer are as requests: which step counts, what it asks for, when it was answered.
//! Used by the formats of blktrace and blkparse.
//!
//! The rule: requests come in the order of their events; a request waits for its answer only while few wait with it.
//!
//! What is done once an event is inlined by force: an event stays in registers from its bytes to its request.

use std::collections::HashMap;

use foldhash::fast::RandomState;

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
            EventKind {
                passthrough: true, ..
            } => TraceOp::Other,
            EventKind { discard: true, .. } => TraceOp::Unmap,
            EventKind { flush: true, .. } if bytes == 0 => TraceOp::Flush,
            _ if bytes == 0 => TraceOp::Other,
            EventKind { write: true, .. } => TraceOp::Write,
            _ => TraceOp::Read,
        }
    }
}

/// Turns events into requests.
pub struct EventRequests {
    event: TracedEvent,
    /// Requests in the order of their events.
    made: Vec<BlockRequest>,
    /// For each of these the sector under which it waits for its answer, while it does.
    waits: Vec<Option<u64>>,
    /// The number of the first of these since the beginning.
    first: u64,
    /// How many of these were taken, and how many from the first one on wait for nothing more.
    taken: usize,
    free: usize,
    /// By device and sector: the number of the one that waits. Seeded, so that no file can be made whose sectors meet.
    open: HashMap<(u32, u64), u64, RandomState>,
    counts: EventCounts,
}

impl EventRequests {
    /// Of which step requests are made.
    pub fn new(event: TracedEvent) -> EventRequests {
        EventRequests {
            event,
            made: Vec::new(),
            waits: Vec::new(),
            first: 0,
            taken: 0,
            free: 0,
            open: HashMap::default(),
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

    /// The next event.
    #[inline(always)]
    pub fn event(&mut self, event: &BlockEvent) {
        match (event.step, self.event) {
            (Step::Queue, TracedEvent::Queued) | (Step::Complete, TracedEvent::Completed) => {
                self.make(event)
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
        self.release(WAITING_MAX);
    }

    /// Hands over the requests that wait for nothing more: all of them where the events are at their end.
    pub fn take(&mut self, end: bool, requests: &mut Vec<BlockRequest>) {
        if end {
            self.release(0);
        }
        requests.extend_from_slice(&self.made[self.taken..self.free]);
        self.taken = self.free;
        // The others move to the front once they are no more than these: each request moves once at the most.
        if self.made.len() <= self.free * 2 {
            self.made.drain(..self.free);
            self.waits.drain(..self.free);
            self.first += self.free as u64;
            (self.taken, self.free) = (0, 0);
        }
    }

    /// A write that makes the cache stable before is a flush and a write.
    #[inline(always)]
    fn make(&mut self, event: &BlockEvent) {
        let op = event.kind.op(event.bytes);
        if event.kind.flush && op == TraceOp::Write {
            self.push(BlockRequest::new(
                event.time_ns,
                event.device,
                TraceOp::Flush,
                0,
                0,
            ));
        }
        // Some steps of a flush say -1 for the sector they do not have.
        let offset_bytes = if op == TraceOp::Flush {
            0
        } else {
            event.sector.saturating_mul(512)
        };
        let request = BlockRequest::new(event.time_ns, event.device, op, offset_bytes, event.bytes);
        self.push(BlockRequest {
            fua: event.kind.fua,
            ..request
        });
    }

    #[inline(always)]
    fn push(&mut self, request: BlockRequest) {
        self.made.push(request);
        self.waits.push(None);
    }

    #[inline(always)]
    fn dispatch(&mut self, event: &BlockEvent) {
        self.make(event);
        // Only the last of them has an answer of its own.
        let place = self.made.len() - 1;
        self.waits[place] = Some(event.sector);
        if let Some(before) = self
            .open
            .insert((event.device, event.sector), self.first + place as u64)
        {
            // Sent again: the first one had no answer.
            self.settle(before, None);
        }
    }

    #[inline(always)]
    fn answer(&mut self, event: &BlockEvent) {
        if let Some(number) = self.open.remove(&(event.device, event.sector)) {
            self.settle(number, Some(event.time_ns));
        }
    }

    /// Requests that are open are among those that were made.
    #[inline(always)]
    fn settle(&mut self, number: u64, answered_ns: Option<u64>) {
        let place = (number - self.first) as usize;
        let request = &mut self.made[place];
        request.response_ns = answered_ns.and_then(|time| time.checked_sub(request.time_ns));
        self.waits[place] = None;
    }

    /// Requests that wait for nothing more, and those that have waited while more than `keep` came, are free to go.
    #[inline(always)]
    fn release(&mut self, keep: usize) {
        while let Some(waits) = self.waits.get(self.free) {
            if let Some(sector) = *waits {
                if self.waits.len() - self.free <= keep {
                    break;
                }
                // Its answer, should it come, finds nobody.
                self.open.remove(&(self.made[self.free].device, sector));
            }
            self.free += 1;
        }
        assert!(
            self.open.len() <= self.waits.len() - self.free,
            "answers are waited for by requests that wait"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(step: Step, time_ns: u64, sector: u64, bytes: u32, kind: EventKind) -> BlockEvent {
        BlockEvent {
            step,
            time_ns,
            device: 0,
            sector,
            bytes,
            kind,
        }
    }

    fn run(chosen: TracedEvent, events: &[BlockEvent]) -> (Vec<BlockRequest>, EventCounts) {
        let (mut made, mut requests) = (EventRequests::new(chosen), Vec::new());
        events.iter().for_each(|event| made.event(event));
        made.take(true, &mut requests);
        (requests, made.counts())
    }

    /// Two queued writes that are merged and sent as one, a read, and a write with flush and FUA.
    #[test]
    fn steps_are_chosen_and_answers_found() {
        let write = EventKind {
            write: true,
            ..EventKind::default()
        };
        let stable = EventKind {
            flush: true,
            fua: true,
            ..write
        };
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
        let ops: Vec<_> = queued
            .iter()
            .map(|request| (request.op, request.len_bytes, request.fua))
            .collect();
        let expected = [
            (TraceOp::Write, 4096, false),
            (TraceOp::Write, 4096, false),
            (TraceOp::Read, 512, false),
            (TraceOp::Flush, 0, false),
            (TraceOp::Write, 512, true),
        ];
        assert_eq!(
            (ops.as_slice(), counts),
            (
                &expected[..],
                EventCounts {
                    merges: 1,
                    splits: 1,
                    others: 4
                }
            )
        );
        let (dispatched, _) = run(TracedEvent::Dispatched, &events);
        let answers: Vec<_> = dispatched
            .iter()
            .map(|request| (request.time_ns, request.response_ns))
            .collect();
        assert_eq!(answers, [(20, Some(20)), (22, Some(8))]);
        let (completed, _) = run(TracedEvent::Completed, &events);
        assert_eq!(
            completed
                .iter()
                .map(|request| request.time_ns)
                .collect::<Vec<_>>(),
            [30, 40]
        );
    }

    /// Held against the next event of the same place, looked for from the beginning of each request.
    #[test]
    fn each_request_has_the_first_answer_before_it_is_sent_again() {
        let mut random = brunt_core::random::Random::new(3);
        let (mut made, mut requests) = (EventRequests::new(TracedEvent::Dispatched), Vec::new());
        let events: Vec<BlockEvent> = (0..5000)
            .map(|time_ns| {
                let step = if random.chance(0.5) {
                    Step::Dispatch
                } else {
                    Step::Complete
                };
                let place = event(step, time_ns, random.below(40), 512, EventKind::default());
                BlockEvent {
                    device: random.below(2) as u32,
                    ..place
                }
            })
            .collect();
        for event in &events {
            made.event(event);
            if random.chance(0.02) {
                made.take(false, &mut requests);
            }
        }
        made.take(true, &mut requests);
        let sent = events
            .iter()
            .enumerate()
            .filter(|(_, event)| event.step == Step::Dispatch);
        let expected = sent.map(|(at, sent)| {
            let mut later = events[at + 1..].iter();
            let next = later.find(|next| (next.device, next.sector) == (sent.device, sent.sector));
            let answer = next.filter(|next| next.step == Step::Complete);
            (
                sent.time_ns,
                answer.map(|answer| answer.time_ns - sent.time_ns),
            )
        });
        assert!(
            requests
                .iter()
                .map(|request| (request.time_ns, request.response_ns))
                .eq(expected)
        );
    }

    #[test]
    fn a_request_sent_again_and_one_never_answered_hold_nobody_up() {
        let read = EventKind::default();
        let mut events = vec![
            event(Step::Dispatch, 1, 8, 512, read),
            event(Step::Dispatch, 2, 8, 512, read),
        ];
        events.push(event(Step::Complete, 5, 8, 512, read));
        let (requests, _) = run(TracedEvent::Dispatched, &events);
        let answers: Vec<_> = requests.iter().map(|request| request.response_ns).collect();
        assert_eq!(answers, [None, Some(3)]);
        let (mut made, mut out) = (EventRequests::new(TracedEvent::Dispatched), Vec::new());
        for number in 0..WAITING_MAX as u64 * 3 {
            made.event(&event(Step::Dispatch, number, number, 512, read));
            if number % 1000 == 0 {
                made.take(false, &mut out);
            }
        }
        made.take(false, &mut out);
        assert_eq!((out.len(), made.open.len()), (WAITING_MAX * 2, WAITING_MAX));
        made.take(true, &mut out);
        assert!(
            out.iter()
                .map(|request| request.time_ns)
                .eq(0..WAITING_MAX as u64 * 3)
                && made.open.is_empty()
        );
    }

    /// Whose offset in bytes is no number, so that many of them have the same.
    #[test]
    fn requests_for_sectors_that_no_device_has_wait_no_longer_than_others() {
        let mut made = EventRequests::new(TracedEvent::Dispatched);
        for number in 0..WAITING_MAX as u64 * 3 {
            made.event(&event(
                Step::Dispatch,
                number,
                u64::MAX - number,
                512,
                EventKind::default(),
            ));
        }
        assert_eq!(made.open.len(), WAITING_MAX);
    }
}
