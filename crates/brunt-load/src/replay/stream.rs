//! The requests of a trace for all workers of a run: the worker whose turn it is gets the next request when it is due.
//! Sits between the reader ([`super::feeder`]) and the workers, which pass it on through [`super::turn`].
//!
//! The rule: requests are handed out in the order of the trace, and nothing here allocates, locks or waits except
//! [`Stream::rest`], after everything has been sent.

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
    /// State of the next request, once it has been looked at.
    head: Option<Head>,
    /// Requests that the next one waits for.
    waits: Vec<u64>,
    window: Window,
    /// The last time at which the reader was behind.
    starved_until: Nanos,
    /// Whether the reader was behind at the last call.
    is_starved: bool,
    /// Whether a piece of the next request was dropped.
    lacks_piece: bool,
    /// Set once nothing more is sent: the number of requests handed out since then, just to be counted.
    rest: Option<u64>,
    /// The last of those requests with its index, until it has been counted.
    in_hand: Option<(u64, Entry)>,
    pub(super) meter: Meter,
}

/// The state of the next request.
#[derive(Clone, Copy)]
struct Head {
    /// Due time, once known.
    due: Option<Nanos>,
    /// Whether the request was held back by another one.
    held: bool,
}

/// Determines when requests are due.
struct DueRule {
    timing: ReplayTiming,
    speed: f64,
    /// Time of the previous request, in the trace and here.
    last_trace_ns: u64,
    last_due: Nanos,
    /// Whether dependencies are derived from response times.
    has_responses: bool,
    /// Completion times in the trace, relative to its start, with the requests' indexes.
    completions: BinaryHeap<Reverse<(u64, u64)>>,
    /// The latest completion in the trace that was waited for.
    gate_trace_ns: Option<u64>,
    /// The latest completion in this run that was waited for.
    gate: Nanos,
}

impl DueRule {
    #[inline]
    fn scaled(&self, trace_ns: u64) -> u64 {
        if self.speed == 1.0 {
            trace_ns
        } else {
            (trace_ns as f64 / self.speed) as u64
        }
    }

    /// Makes a request the next one; adds the requests that it depends on to `waits`.
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

    /// Returns when the request is due, once all its dependencies have ended.
    #[inline]
    fn due(&mut self, row: &ReplayRow, start: Nanos, now: Nanos) -> Nanos {
        let gap = self.scaled(row.time_ns.saturating_sub(self.last_trace_ns));
        let before = if self.last_due == Nanos(0) {
            start
        } else {
            self.last_due
        };
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

    /// Updates the state after a request was handed out.
    #[inline]
    fn given(&mut self, row: &ReplayRow, index: u64, due: Nanos) {
        (self.last_trace_ns, self.last_due) = (row.time_ns, due);
        if self.timing == ReplayTiming::Dependency
            && self.has_responses
            && row.response_ns != u64::MAX
            && self.completions.len() < ENTRIES_MAX
        {
            self.completions.push(Reverse((
                row.time_ns.saturating_add(row.response_ns),
                index,
            )));
        }
    }
}

/// Returns true if this row completes a request of the trace, which is counted at its last piece. `drops`: this piece
/// is not sent; `lacks_piece` remembers earlier dropped pieces.
#[inline]
fn closes(row: &ReplayRow, drops: bool, lacks_piece: &mut bool, meter: &mut Meter) -> bool {
    *lacks_piece |= drops;
    if !row.is_last {
        return false;
    }
    let is_whole = !std::mem::take(lacks_piece);
    match is_whole {
        true => meter.given(row.of),
        false => meter.dropped(row.of),
    }
    is_whole
}

/// Skips another host's request, which only takes an index. If the window is full, returns the request to wait for.
#[inline]
fn pass_over(row: &ReplayRow, window: &mut Window, now: Nanos) -> Option<u64> {
    let blocked = window.blocked_by();
    if blocked.is_none() {
        window.push_dropped(Entry::new(row, false, now, now, LateCause::default()), now);
    }
    blocked
}

/// Returns why a request that was due at `due` is only handed out now.
#[inline]
fn late_cause(due: Nanos, was_held: bool, starved_until: Nanos, full_until: Nanos) -> LateCause {
    match () {
        () if was_held => LateCause::Conflict,
        () if starved_until >= due => LateCause::Reader,
        () if full_until >= due => LateCause::Depth,
        () => LateCause::Worker,
    }
}

impl Stream {
    /// Creates a stream with at most `in_flight` requests in flight, over all workers.
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
            is_starved: false,
            lacks_piece: false,
            rest: None,
            in_hand: None,
            meter,
        }
    }

    /// Ends the reader.
    pub(super) fn finish_feed(
        &mut self,
    ) -> (super::feeder::RowCounts, Option<crate::load::WorkloadError>) {
        self.feed.finish()
    }

    /// Sets the start time of the run.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.start = start;
        self.meter.starts(start);
    }

    /// Returns true if the next request was unknown at the last call because the reader is behind.
    #[inline]
    pub(super) fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Returns the next request for a worker whose queue was full until `full_until`.
    // Long because everything that may hold a request back is checked in one place, in order.
    #[inline]
    pub(super) fn next(&mut self, now: Nanos, full_until: Nanos, place: &mut Planned) -> Next {
        loop {
            self.is_starved = false;
            let row = match self.feed.peek() {
                NextRow::Row(_) if self.rest.is_some() => return Next::End,
                NextRow::Row(row) => row,
                NextRow::NotYet => {
                    (self.starved_until, self.is_starved) = (now, true);
                    return Next::Later(Nanos(now.0 + READER_POLL_NANOS));
                }
                NextRow::End => {
                    self.meter.ended();
                    return Next::End;
                }
            };
            if row.is_foreign {
                match pass_over(row, &mut self.window, now) {
                    Some(index) => return Next::WaitFor(index),
                    None => self.feed.advance(),
                }
                continue;
            }
            let head = match &mut self.head {
                Some(head) => head,
                none => {
                    self.due.admit(row, &self.window, &mut self.waits);
                    none.insert(Head {
                        due: None,
                        held: false,
                    })
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
            let ReplayRow {
                op,
                offset,
                len,
                fua,
                content,
                ..
            } = *row;
            let conflict = self.window.conflict(op, offset, len);
            if let Some(index) = conflict {
                if !std::mem::replace(&mut head.held, true) {
                    self.meter.conflict();
                }
                if self.conflicts == Conflicts::HoldBack {
                    return Next::WaitFor(index);
                }
            }
            let cause = late_cause(
                due,
                head.held && conflict.is_none(),
                self.starved_until,
                full_until,
            );
            self.head = None;
            let index = self.window.next_index();
            self.due.given(row, index, due);
            self.meter.planned(index, row);
            let drops = conflict.is_some() && self.conflicts == Conflicts::Drop;
            let closes = closes(row, drops, &mut self.lacks_piece, &mut self.meter);
            let mut entry = Entry::new(row, closes, due, now, cause);
            if drops {
                self.window.push_dropped(entry, now);
                self.feed.advance();
                continue;
            }
            entry.found = self.meter.arrival(row, due, self.window.in_flight());
            self.window.push(entry);
            self.feed.advance();
            *place = Planned {
                force_unit_access: fua,
                content,
                ..Planned::new(index, op, offset, len)
            };
            return Next::Due(due);
        }
    }

    /// Returns the next due request, just to be counted: from now on nothing is sent. Waits for the reader, for a
    /// limited time and only if `may_wait`, but not for requests in flight. Requests that have not been read by then
    /// count as due after the end.
    #[cold]
    pub(super) fn rest(&mut self, now: Nanos, may_wait: bool, place: &mut Planned) -> Next {
        assert!(self.in_hand.is_none(), "one after the other is counted");
        let row = loop {
            if may_wait {
                self.feed.wait();
            }
            match self.feed.peek() {
                NextRow::Row(row) if row.is_foreign => *self.rest.get_or_insert(0) += 1,
                NextRow::Row(row) => break *row,
                NextRow::NotYet => return Next::End,
                NextRow::End => {
                    self.meter.ended();
                    return Next::End;
                }
            }
            self.feed.advance();
        };
        let due = match self.head {
            Some(Head { due: Some(due), .. }) => due,
            _ if self.due.timing == ReplayTiming::Trace => self.due.due(&row, self.start, now),
            // Its due time depends on other requests, which are not sent.
            _ => return Next::End,
        };
        if due > now {
            return Next::Later(due);
        }
        let counted = self.rest.get_or_insert(0);
        let index = self.window.next_index() + *counted;
        *counted += 1;
        let ReplayRow {
            op,
            offset,
            len,
            fua,
            content,
            ..
        } = row;
        self.meter.planned(index, &row);
        let closes = closes(&row, false, &mut self.lacks_piece, &mut self.meter);
        self.in_hand = Some((
            index,
            Entry::new(&row, closes, due, now, LateCause::default()),
        ));
        self.head = None;
        self.feed.advance();
        *place = Planned {
            force_unit_access: fua,
            content,
            ..Planned::new(index, op, offset, len)
        };
        Next::Due(due)
    }

    /// Records that a request was sent at this time.
    #[inline]
    pub(super) fn sent(&mut self, request: &Planned, at: Nanos) {
        let Planned {
            index,
            op,
            offset,
            len,
            ..
        } = *request;
        let overtaken = self.meter.is_out_of_order(index, at)
            && self.window.is_overtaken(index, op, offset, len);
        // Further attempts don't count towards the replay.
        if let Some(entry) = self.window.mark_sent(index, at) {
            self.meter.sent(request, entry, at, overtaken);
        }
    }

    /// Records that a request ended at this time.
    #[inline]
    pub(super) fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        if status == RequestStatus::Skipped {
            let entry = self.unsent(index, at);
            return self.meter.skipped(&entry);
        }
        let of = self.window.end(index, at);
        self.meter.completed(status, of);
    }

    /// Records that a request that was handed out is not sent, because the run ends before it is due.
    #[cold]
    pub(super) fn given_back(&mut self, index: u64, at: Nanos) {
        let arrived = self.in_hand.is_none();
        let entry = self.unsent(index, at);
        self.meter.given_back(index, &entry, arrived);
    }

    /// Ends a request that was handed out but not sent.
    #[cold]
    fn unsent(&mut self, index: u64, at: Nanos) -> Entry {
        if let Some((_, entry)) = self.in_hand.take_if(|(in_hand, _)| *in_hand == index) {
            return entry;
        }
        let entry = *self
            .window
            .entry(index)
            .expect("a request that has not ended");
        self.window.end(index, at);
        entry
    }
}
