//! Converts events of Linux's block layer to requests: which step counts as the request, its
//! operation, and when it completed. Used by the formats blktrace, blkparse and ftrace.
//!
//! The rule: requests come in the order of their events, and a bounded number of them wait for their completions.
//!
//! Everything done per event is force-inlined, so an event stays in registers from its bytes to its request.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::format::{EventCounts, TracedEvent};
use crate::record::{BlockRequest, TraceOp};

/// Maximum requests waiting for completions; above it, the oldest is released without one.
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

/// One event of the block layer.
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
    /// Whether the cache is flushed before this request.
    pub flush: bool,
    pub fua: bool,
    /// Whether it is a driver-specific command that doesn't address blocks.
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
    /// For each request in `made`, the sector of the completion that it waits for, if any.
    waits: Vec<Option<u64>>,
    /// Index of `made[0]`, counted from the start of the trace.
    first: u64,
    /// How many requests at the start of `made` were taken, and how many no longer wait.
    taken: usize,
    free: usize,
    /// The index of the waiting request by device and sector. Its hashes are seeded, so no crafted file can make
    /// sectors collide.
    open: HashMap<(u32, u64), u64, RandomState>,
    counts: EventCounts,
}

impl EventRequests {
    /// Makes requests from the given step.
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

    /// Counts of events that didn't become requests.
    pub fn counts(&self) -> EventCounts {
        self.counts
    }

    /// Counts an event that is known to be irrelevant.
    pub fn other(&mut self) {
        self.counts.others += 1;
    }

    /// Processes the next event.
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

    /// Moves out the requests that no longer wait, or all of them at the `end` of the events.
    pub fn take(&mut self, end: bool, requests: &mut Vec<BlockRequest>) {
        if end {
            self.release(0);
        }
        requests.extend_from_slice(&self.made[self.taken..self.free]);
        self.taken = self.free;
        // The rest moves to the front once it is no longer than the removed part, so the
        // amortized cost per request is constant.
        if self.made.len() <= self.free * 2 {
            self.made.drain(..self.free);
            self.waits.drain(..self.free);
            self.first += self.free as u64;
            (self.taken, self.free) = (0, 0);
        }
    }

    /// A write with a preceding flush becomes a flush and a write.
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
        // A flush has no sector; some steps report -1.
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
        // For a flush and a write, only the write gets a completion.
        let place = self.made.len() - 1;
        self.waits[place] = Some(event.sector);
        if let Some(before) = self
            .open
            .insert((event.device, event.sector), self.first + place as u64)
        {
            // Dispatched again: the first one never completed.
            self.settle(before, None);
        }
    }

    #[inline(always)]
    fn answer(&mut self, event: &BlockEvent) {
        if let Some(number) = self.open.remove(&(event.device, event.sector)) {
            self.settle(number, Some(event.time_ns));
        }
    }

    /// Ends the wait of an open request, which is always still in `made`.
    #[inline(always)]
    fn settle(&mut self, number: u64, answered_ns: Option<u64>) {
        let place = (number - self.first) as usize;
        let request = &mut self.made[place];
        request.response_ns = answered_ns.and_then(|time| time.checked_sub(request.time_ns));
        self.waits[place] = None;
    }

    /// Releases requests that no longer wait, and waiting ones that are followed by more than `keep` requests.
    #[inline(always)]
    fn release(&mut self, keep: usize) {
        while let Some(waits) = self.waits.get(self.free) {
            if let Some(sector) = *waits {
                if self.waits.len() - self.free <= keep {
                    break;
                }
                // A completion that arrives later is ignored.
                self.open.remove(&(self.made[self.free].device, sector));
            }
            self.free += 1;
        }
        assert!(
            self.open.len() <= self.waits.len() - self.free,
            "only open requests await completions"
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

    /// Two queued writes that are merged and dispatched as one, a read, and a write with flush and FUA.
    #[test]
    fn the_chosen_step_makes_requests_with_response_times() {
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

    /// Checked against a linear search from each request to the next event at the same sector.
    #[test]
    fn each_request_gets_the_first_completion_before_its_next_dispatch() {
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
    fn repeated_and_unanswered_requests_delay_no_others() {
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

    /// Their byte offsets overflow, so many of them have the same offset.
    #[test]
    fn requests_beyond_any_device_also_wait_within_the_limit() {
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
