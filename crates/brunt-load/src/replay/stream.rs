//! One trace for all workers of a run: whoever has its turn gets the next request when it is due. Stands between the
//! reader ([`super::feeder`]) and the workers, which hand it on by [`super::turn`].
//!
//! The rule: requests are given away in the order of the trace, and nothing here allocates, locks or waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use brunt_core::Nanos;
use brunt_result::RequestStatus;

use super::feeder::{Feed, NextRow, ReplayRow};
use super::meter::Meter;
use super::settings::{Conflicts, ReplaySettings, ReplayTiming};
use super::window::{ENTRIES_MAX, Entry, LateCause, Window};
use crate::block::generator::Planned;
use crate::sequence::Next;

/// How soon a worker asks again when the reader is behind.
const READER_POLL_NANOS: u64 = 50_000;

/// The requests of a run.
pub(super) struct Stream {
    feed: Feed,
    due: DueRule,
    conflicts: Conflicts,
    start: Nanos,
    /// What is known of the request that comes next, once it was looked at.
    head: Option<Head>,
    /// What the head waits for.
    waits: Vec<u64>,
    window: Window,
    /// The reader was behind until then.
    starved_until: Nanos,
    pub(super) meter: Meter,
}

/// The request that comes next.
#[derive(Clone, Copy)]
struct Head {
    /// Once it is known.
    due: Option<Nanos>,
    /// It was held back for another.
    held: bool,
}

/// When requests are due.
struct DueRule {
    timing: ReplayTiming,
    speed: f64,
    /// Of the request before: in the trace, and here.
    last_trace_ns: u64,
    last_due: Nanos,
    /// Whether dependencies come from response times.
    has_responses: bool,
    /// Requests by when they completed in the trace, relative to its start.
    completions: BinaryHeap<Reverse<(u64, u64)>>,
    /// The last completion in the trace that was waited for.
    gate_trace_ns: Option<u64>,
    /// And the last one here.
    gate: Nanos,
}

impl DueRule {
    #[inline]
    fn scaled(&self, trace_ns: u64) -> u64 {
        if self.speed == 1.0 { trace_ns } else { (trace_ns as f64 / self.speed) as u64 }
    }

    /// A request becomes the next one: what it has to wait for goes to `waits`.
    #[inline]
    fn admit(&mut self, row: &ReplayRow, window: &Window, waits: &mut Vec<u64>) {
        waits.clear();
        if self.timing != ReplayTiming::Dependency {
            return;
        }
        if !self.has_responses {
            return window.followed(row.op, row.offset, row.len, waits);
        }
        while let Some(Reverse((completed, index))) = self.completions.peek().copied() {
            if completed > row.time_ns {
                break;
            }
            self.completions.pop();
            self.gate_trace_ns = Some(completed);
            waits.push(index);
        }
    }

    /// When the request is due, with all ended that it had to wait for.
    #[inline]
    fn due(&mut self, row: &ReplayRow, start: Nanos, now: Nanos) -> Nanos {
        let gap = self.scaled(row.time_ns.saturating_sub(self.last_trace_ns));
        let before = if self.last_due == Nanos(0) { start } else { self.last_due };
        match self.timing {
            ReplayTiming::Trace => Nanos(start.0.saturating_add(self.scaled(row.time_ns))),
            ReplayTiming::Depth => now,
            ReplayTiming::Dependency => match self.gate_trace_ns {
                Some(completed) if self.has_responses => {
                    let think = self.scaled(row.time_ns - completed);
                    before.max(Nanos(self.gate.0.max(start.0).saturating_add(think)))
                }
                _ => self.gate.max(Nanos(before.0.saturating_add(gap))),
            },
        }
    }

    /// It was given away.
    #[inline]
    fn given(&mut self, row: &ReplayRow, index: u64, due: Nanos) {
        (self.last_trace_ns, self.last_due) = (row.time_ns, due);
        if self.timing == ReplayTiming::Dependency
            && self.has_responses
            && row.response_ns != u64::MAX
            && self.completions.len() < ENTRIES_MAX
        {
            self.completions.push(Reverse((row.time_ns.saturating_add(row.response_ns), index)));
        }
    }
}

impl Stream {
    /// For at most so many requests in flight, of all workers together.
    pub(super) fn new(
        feed: Feed,
        settings: &ReplaySettings,
        has_responses: bool,
        in_flight: usize,
        meter: Meter,
    ) -> Stream {
        let depends = settings.timing == ReplayTiming::Dependency;
        Stream {
            feed,
            due: DueRule {
                timing: settings.timing,
                speed: settings.speed,
                last_trace_ns: 0,
                last_due: Nanos(0),
                has_responses,
                completions: BinaryHeap::with_capacity(if depends { ENTRIES_MAX } else { 0 }),
                gate_trace_ns: None,
                gate: Nanos(0),
            },
            conflicts: settings.conflicts,
            start: Nanos(0),
            head: None,
            waits: Vec::with_capacity(if depends { ENTRIES_MAX } else { 0 }),
            window: Window::new(in_flight, depends),
            starved_until: Nanos(0),
            meter,
        }
    }

    /// Ends the reader.
    pub(super) fn finish_feed(&mut self) -> (super::feeder::RowCounts, Option<crate::load::WorkloadError>) {
        self.feed.finish()
    }

    /// The run starts at this time.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.start = start;
        self.meter.starts(start);
    }

    /// The next request for a worker whose queue was full until `full_until`.
    #[inline]
    pub(super) fn next(&mut self, now: Nanos, full_until: Nanos, place: &mut Planned) -> Next {
        loop {
            let row = match self.feed.peek() {
                NextRow::Row(row) => row,
                NextRow::NotYet => {
                    self.starved_until = now;
                    return Next::Later(Nanos(now.0 + READER_POLL_NANOS));
                }
                NextRow::End => {
                    self.meter.ended();
                    return Next::End;
                }
            };
            let head = match &mut self.head {
                Some(head) => head,
                none => {
                    self.due.admit(row, &self.window, &mut self.waits);
                    none.insert(Head { due: None, held: false })
                }
            };
            while let Some(index) = self.waits.last().copied() {
                if !self.window.is_done(index) {
                    return Next::WaitFor(index);
                }
                self.due.gate = self.due.gate.max(self.window.done_at(index));
                self.waits.pop();
            }
            let due = match head.due {
                Some(due) => due,
                None => *head.due.insert(self.due.due(row, self.start, now)),
            };
            if due > now {
                return Next::Later(due);
            }
            if let Some(index) = self.window.blocked_by() {
                return Next::WaitFor(index);
            }
            let ReplayRow { op, offset, len, fua, content, .. } = *row;
            let conflict = self.window.conflict(op, offset, len);
            if let Some(index) = conflict {
                if !std::mem::replace(&mut head.held, true) {
                    self.meter.conflict();
                }
                if self.conflicts == Conflicts::HoldBack {
                    return Next::WaitFor(index);
                }
            }
            let cause = match () {
                () if head.held && conflict.is_none() => LateCause::Conflict,
                () if self.starved_until >= due => LateCause::Reader,
                () if full_until >= due => LateCause::Depth,
                () => LateCause::Worker,
            };
            self.head = None;
            let index = self.window.next_index();
            self.due.given(row, index, due);
            self.meter.planned(index, row);
            let entry = Entry::new(row, due, now, cause);
            if conflict.is_some() && self.conflicts == Conflicts::Drop {
                self.window.push_dropped(entry, now);
                self.feed.advance();
                continue;
            }
            self.meter.arrival(row, due, self.window.in_flight());
            self.window.push(entry);
            self.feed.advance();
            *place = Planned { index, op, offset, len, force_unit_access: fua, content };
            return Next::Due(due);
        }
    }

    /// A request went out at this time.
    #[inline]
    pub(super) fn sent(&mut self, request: &Planned, at: Nanos) {
        let Planned { index, op, offset, len, .. } = *request;
        let overtaken =
            self.meter.is_out_of_order(index, at) && self.window.is_overtaken(index, op, offset, len);
        // Another attempt is none of the replay's.
        if let Some(entry) = self.window.mark_sent(index, at) {
            self.meter.sent(request, entry, at, overtaken);
        }
    }

    /// A request ended at this time.
    #[inline]
    pub(super) fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        let of = self.window.end(index, at);
        self.meter.completed(status, of);
    }
}
