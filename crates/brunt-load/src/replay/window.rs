//! The requests of a replay that were given to workers and have not all ended: what conflicts with what, what a later
//! request has to wait for, and when each was due, sent and done. Part of [`super::stream`].
//!
//! The rule: bounded by [`ENTRIES_MAX`]; whoever wants to add to a full window waits for its oldest request.

use std::collections::VecDeque;

use brunt_block::Op;
use brunt_core::Nanos;

use super::feeder::{ReplayRow, RowOrigin};

/// Most requests between the oldest that has not ended and the newest.
pub(super) const ENTRIES_MAX: usize = 1 << 16;
/// How many that have ended are kept for those that depend on them.
const KEPT: usize = 1 << 14;
/// It is not in flight.
const NOT_ACTIVE: u32 = u32::MAX;

/// Why a request was given away late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LateCause {
    #[default]
    Worker,
    Reader,
    Depth,
    Conflict,
}

/// A request that was given to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) op: Op,
    pub(super) of: RowOrigin,
    pub(super) fua: bool,
    pub(super) cause: LateCause,
    pub(super) due: Nanos,
    /// When it was given to a worker.
    pub(super) given: Nanos,
    /// `Nanos(0)`: not yet.
    pub(super) sent: Nanos,
    done: Nanos,
    ended: bool,
    active_at: u32,
}

impl Entry {
    pub(super) fn new(row: &ReplayRow, due: Nanos, given: Nanos, cause: LateCause) -> Entry {
        let ReplayRow { offset, len, op, of, fua, .. } = *row;
        Entry {
            offset,
            len,
            op,
            of,
            fua,
            cause,
            due,
            given,
            sent: Nanos(0),
            done: Nanos(0),
            ended: false,
            active_at: NOT_ACTIVE,
        }
    }
}

/// What is in flight, close together.
#[derive(Clone, Copy)]
struct Active {
    index: u64,
    offset: u64,
    end: u64,
    changes: bool,
    sent: bool,
}

/// All of them.
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// Index of the first entry.
    base: u64,
    active: Vec<Active>,
    /// Whether ended ones are kept for a while.
    keeps: bool,
    /// When the last of those that were let go ended.
    forgotten_done: Nanos,
}

/// Bytes in which a request can meet another: a flush is about no blocks of its own.
fn touched(op: Op, len: u64) -> u64 {
    if op == Op::Flush { 0 } else { len }
}

fn changes(op: Op) -> bool {
    matches!(op, Op::Write | Op::Unmap | Op::WriteZeroes)
}

impl Window {
    /// For at most so many in flight; `keeps`: [`Window::done_at`] is going to be asked.
    pub(super) fn new(in_flight: usize, keeps: bool) -> Window {
        Window {
            entries: VecDeque::with_capacity(if keeps { ENTRIES_MAX } else { in_flight * 4 }),
            base: 0,
            active: Vec::with_capacity(in_flight),
            keeps,
            forgotten_done: Nanos(0),
        }
    }

    /// Index of the next request.
    #[inline]
    pub(super) fn next_index(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// The oldest request, if there is no room for another.
    #[inline]
    pub(super) fn blocked_by(&self) -> Option<u64> {
        (self.entries.len() == ENTRIES_MAX).then_some(self.base)
    }

    /// Requests in flight.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.active.len()
    }

    /// One more, given to a worker.
    #[inline]
    pub(super) fn push(&mut self, mut entry: Entry) -> u64 {
        let index = self.next_index();
        entry.active_at = self.active.len() as u32;
        let Entry { op, offset, len, .. } = entry;
        self.active.push(Active {
            index,
            offset,
            end: offset + touched(op, len),
            changes: changes(op),
            sent: false,
        });
        self.entries.push_back(entry);
        index
    }

    /// One that is left out: it takes its index and is over.
    pub(super) fn push_dropped(&mut self, mut entry: Entry, now: Nanos) {
        (entry.ended, entry.done) = (true, now);
        self.entries.push_back(entry);
        self.slide();
    }

    /// A request in flight on the same blocks, where one of the two changes data.
    #[inline]
    pub(super) fn conflict(&self, op: Op, offset: u64, len: u64) -> Option<u64> {
        let (end, writes) = (offset + touched(op, len), changes(op));
        let overlaps = |other: &&Active| other.offset < end && offset < other.end && (writes | other.changes);
        self.active.iter().find(overlaps).map(|other| other.index)
    }

    /// Requests in flight that this one overlaps (where one of the two changes data) or continues.
    pub(super) fn followed(&self, op: Op, offset: u64, len: u64, found: &mut Vec<u64>) {
        let (end, writes) = (offset + touched(op, len), changes(op));
        found.extend(
            self.active
                .iter()
                .filter(|other| {
                    let overlaps = other.offset < end && offset < other.end && (writes | other.changes);
                    overlaps || (touched(op, len) > 0 && other.end == offset && other.end > other.offset)
                })
                .map(|other| other.index),
        );
    }

    /// Whether a later request that is on its way already touches the same blocks, and one of the two changes data.
    pub(super) fn is_overtaken(&self, index: u64, op: Op, offset: u64, len: u64) -> bool {
        let (end, writes) = (offset + touched(op, len), changes(op));
        self.active.iter().any(|other| {
            other.index > index
                && other.sent
                && other.offset < end
                && offset < other.end
                && (writes | other.changes)
        })
    }

    /// The request of this index, if it was not let go.
    #[inline]
    pub(super) fn entry(&mut self, index: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(index.checked_sub(self.base)?).ok()?)
    }

    /// It was sent.
    #[inline]
    pub(super) fn mark_sent(&mut self, active_at: u32) {
        self.active[active_at as usize].sent = true;
    }

    /// Where it is among those in flight.
    pub(super) fn active_at(entry: &Entry) -> u32 {
        entry.active_at
    }

    /// Whether the request of this index, which was given away, has ended.
    #[inline]
    pub(super) fn is_done(&self, index: u64) -> bool {
        match index.checked_sub(self.base) {
            None => true,
            Some(at) => self.entries.get(at as usize).is_some_and(|entry| entry.ended),
        }
    }

    /// When the request of this index, which has ended, did so; of one that was let go a time that is not earlier.
    pub(super) fn done_at(&self, index: u64) -> Nanos {
        match index.checked_sub(self.base).and_then(|at| self.entries.get(at as usize)) {
            Some(entry) => entry.done,
            None => self.forgotten_done,
        }
    }

    /// It ended.
    #[inline]
    pub(super) fn end(&mut self, index: u64, at: Nanos) {
        let place = index.checked_sub(self.base).expect("a request ends once") as usize;
        let entry = &mut self.entries[place];
        assert!(!entry.ended, "request {index} ended twice");
        (entry.ended, entry.done) = (true, at);
        let active_at = std::mem::replace(&mut entry.active_at, NOT_ACTIVE) as usize;
        self.active.swap_remove(active_at);
        if let Some(moved) = self.active.get(active_at) {
            let place = (moved.index - self.base) as usize;
            self.entries[place].active_at = active_at as u32;
        }
        self.slide();
    }

    #[inline]
    fn slide(&mut self) {
        let kept = if self.keeps { KEPT } else { 0 };
        while self.entries.len() > kept && self.entries.front().is_some_and(|entry| entry.ended) {
            let entry = self.entries.pop_front().expect("there is a front");
            self.forgotten_done = self.forgotten_done.max(entry.done);
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op: Op, offset: u64, len: u64) -> Entry {
        let row = ReplayRow {
            time_ns: 0,
            response_ns: u64::MAX,
            offset,
            len,
            op,
            of: RowOrigin::default(),
            fua: false,
            content: None,
        };
        Entry::new(&row, Nanos(0), Nanos(0), LateCause::Worker)
    }

    #[test]
    fn conflicts_need_a_change_and_an_overlap() {
        let mut window = Window::new(4, false);
        let read = window.push(entry(Op::Read, 0, 4096));
        let write = window.push(entry(Op::Write, 8192, 4096));
        assert_eq!(window.conflict(Op::Read, 0, 512), None);
        assert_eq!(window.conflict(Op::Write, 512, 512), Some(read));
        assert_eq!(window.conflict(Op::Read, 12287, 1), Some(write));
        assert_eq!(window.conflict(Op::Write, 4096, 4096), None);
        assert_eq!(window.conflict(Op::Flush, 0, 0), None);
        window.end(read, Nanos(5));
        assert_eq!((window.conflict(Op::Write, 0, 512), window.in_flight()), (None, 1));
        assert!(window.is_done(read) && !window.is_done(write));
        let mut found = Vec::new();
        window.followed(Op::Read, 12288, 512, &mut found);
        assert_eq!(found, [write]);
    }

    /// Ended requests are forgotten from the front, and what is known of them after that is safe.
    #[test]
    fn what_is_forgotten_is_done() {
        let mut window = Window::new(8, false);
        let all: Vec<u64> = (0..4).map(|at| window.push(entry(Op::Read, at * 512, 512))).collect();
        for index in [all[1], all[3], all[0]] {
            window.end(index, Nanos(10 + index));
        }
        assert_eq!((window.is_done(0), window.is_done(1), window.is_done(2)), (true, true, false));
        assert_eq!(window.done_at(0), Nanos(11));
        assert_eq!(window.done_at(3), Nanos(13));
        window.end(2, Nanos(20));
        assert_eq!((window.next_index(), window.in_flight(), window.done_at(3)), (4, 0, Nanos(20)));
    }
}
