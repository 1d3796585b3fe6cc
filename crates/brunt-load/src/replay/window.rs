//! Tracks the requests of a replay that were given to workers and have not all ended: which ones conflict, what a later
//! request has to wait for, and when each was due, sent and completed. Part of [`super::stream`].
//!
//! The rule: the window is bounded by [`ENTRIES_MAX`]; adding to a full window has to wait for its oldest request.

use std::collections::VecDeque;

use brunt_block::Op;
use brunt_core::Nanos;

use super::feeder::{ReplayRow, RowOrigin};

/// Maximum number of requests from the oldest unfinished one to the newest.
pub(super) const ENTRIES_MAX: usize = 1 << 16;
/// Number of ended requests kept for those that depend on them.
const KEPT: usize = 1 << 14;
/// Size of a region in bytes, longer than most requests.
const REGION_BYTES: u64 = 64 << 10;
/// Number of hash values of regions.
const REGION_HASHES: usize = 1024;
/// The request is not in flight.
const NOT_ACTIVE: u32 = u32::MAX;

/// Why a request was handed out late.
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
    /// Whether it completes a request of the trace: no piece was dropped, and this is the last one.
    pub(super) closes: bool,
    pub(super) cause: LateCause,
    /// Number of requests in flight when it was given to a worker, here and in the trace.
    pub(super) found: (u32, u32),
    pub(super) due: Nanos,
    /// When the request was given to a worker.
    pub(super) given: Nanos,
    /// `Nanos(0)` if not sent yet.
    pub(super) sent: Nanos,
    done: Nanos,
    ended: bool,
    active_at: u32,
}

impl Entry {
    pub(super) fn new(
        row: &ReplayRow,
        closes: bool,
        due: Nanos,
        given: Nanos,
        cause: LateCause,
    ) -> Entry {
        let ReplayRow {
            offset,
            len,
            op,
            of,
            fua,
            ..
        } = *row;
        Entry {
            offset,
            len,
            op,
            of,
            fua,
            closes,
            cause,
            found: (0, 0),
            due,
            given,
            sent: Nanos(0),
            done: Nanos(0),
            ended: false,
            active_at: NOT_ACTIVE,
        }
    }
}

/// A request in flight, in compact form.
#[derive(Clone, Copy)]
struct Active {
    index: u64,
    offset: u64,
    end: u64,
    changes: bool,
    sent: bool,
}

/// Tracks which address regions have requests in flight. Most requests are not near any of these and don't have to be
/// compared with each one.
struct Regions {
    /// Number of requests in the regions with each hash value.
    counts: Box<[u32; REGION_HASHES]>,
    /// Number of requests that span too many regions to be counted by region.
    wide: u32,
}

impl Regions {
    fn new() -> Regions {
        Regions {
            counts: Box::new([0; REGION_HASHES]),
            wide: 0,
        }
    }

    /// Returns the hashes of the first and the last region between `offset` and `end` (exclusive); `None` if there are
    /// more regions in between.
    #[inline]
    fn of(offset: u64, end: u64) -> Option<(usize, usize)> {
        let (first, last) = (offset / REGION_BYTES, (end - 1) / REGION_BYTES);
        let hash = |region: u64| {
            // The increment of the Weyl sequence in splitmix64; the upper bits of its multiples are evenly distributed.
            (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - REGION_HASHES.ilog2())) as usize
        };
        (last - first <= 1).then(|| (hash(first), hash(last)))
    }

    /// Adds (1) or removes (-1) a request from `offset` to `end`.
    #[inline]
    fn count(&mut self, offset: u64, end: u64, by: i32) {
        if offset == end {
            return;
        }
        let Some((first, last)) = Regions::of(offset, end) else {
            self.wide = self.wide.wrapping_add_signed(by);
            return;
        };
        // If both ends are in the same region, it is counted twice, and later removed twice.
        self.counts[first] = self.counts[first].wrapping_add_signed(by);
        self.counts[last] = self.counts[last].wrapping_add_signed(by);
    }

    /// Returns true if a request may be in flight near the range from `offset` to `end`.
    #[inline]
    fn is_near(&self, offset: u64, end: u64) -> bool {
        if offset == end {
            return false;
        }
        match Regions::of(offset, end) {
            Some((first, last)) => (self.wide | self.counts[first] | self.counts[last]) > 0,
            None => true,
        }
    }
}

/// The window over all these requests.
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// Index of the first entry.
    base: u64,
    active: Vec<Active>,
    /// The regions of active requests.
    regions: Regions,
    /// Number of active requests that change data.
    changing: usize,
    /// Whether ended requests are kept for a while.
    keeps: bool,
    /// The latest end of any request that was removed from the window.
    forgotten_done: Nanos,
}

/// Returns the number of bytes in which a request can conflict with another; a flush has no address
/// range.
fn touched(op: Op, len: u64) -> u64 {
    if op == Op::Flush { 0 } else { len }
}

fn changes(op: Op) -> bool {
    matches!(op, Op::Write | Op::Unmap | Op::WriteZeroes)
}

impl Window {
    /// Creates a window for at most `in_flight` requests in flight. `keeps`: [`Window::done_at`] will be called.
    pub(super) fn new(in_flight: usize, keeps: bool) -> Window {
        Window {
            entries: VecDeque::with_capacity(if keeps { ENTRIES_MAX } else { in_flight * 4 }),
            base: 0,
            active: Vec::with_capacity(in_flight),
            regions: Regions::new(),
            changing: 0,
            keeps,
            forgotten_done: Nanos(0),
        }
    }

    /// Returns the index of the next request.
    #[inline]
    pub(super) fn next_index(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// Returns the oldest request if no space is left for another.
    #[inline]
    pub(super) fn blocked_by(&self) -> Option<u64> {
        (self.entries.len() == ENTRIES_MAX).then_some(self.base)
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.active.len()
    }

    /// Adds a request that is given to a worker.
    #[inline]
    pub(super) fn push(&mut self, mut entry: Entry) -> u64 {
        let index = self.next_index();
        entry.active_at = self.active.len() as u32;
        let Entry {
            op, offset, len, ..
        } = entry;
        let (end, changes) = (offset + touched(op, len), changes(op));
        self.active.push(Active {
            index,
            offset,
            end,
            changes,
            sent: false,
        });
        self.regions.count(offset, end, 1);
        self.changing += usize::from(changes);
        self.entries.push_back(entry);
        index
    }

    /// Adds a dropped request, which uses up an index and has already ended.
    pub(super) fn push_dropped(&mut self, mut entry: Entry, now: Nanos) {
        (entry.ended, entry.done) = (true, now);
        self.entries.push_back(entry);
        self.slide();
    }

    /// Returns a request in flight on the same blocks, if at least one of the two changes data.
    #[inline]
    pub(super) fn conflict(&self, op: Op, offset: u64, len: u64) -> Option<u64> {
        let (end, writes) = (offset + touched(op, len), changes(op));
        if !(writes || self.changing > 0) || !self.regions.is_near(offset, end) {
            return None;
        }
        let overlaps =
            |other: &&Active| other.offset < end && offset < other.end && (writes | other.changes);
        self.active.iter().find(overlaps).map(|other| other.index)
    }

    /// Finds the requests in flight that this one overlaps (if at least one of the two changes data) or continues.
    pub(super) fn followed(&self, op: Op, offset: u64, len: u64, found: &mut Vec<u64>) {
        let (end, writes) = (offset + touched(op, len), changes(op));
        found.extend(
            self.active
                .iter()
                .filter(|other| {
                    let overlaps =
                        other.offset < end && offset < other.end && (writes | other.changes);
                    overlaps
                        || (touched(op, len) > 0 && other.end == offset && other.end > other.offset)
                })
                .map(|other| other.index),
        );
    }

    /// Returns true if a later request was already sent to the same blocks, and at least one of the two changes data.
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

    /// Returns the position of the request with this index if it is still in the window.
    #[inline]
    fn place(&self, index: u64) -> Option<usize> {
        let place = usize::try_from(index.checked_sub(self.base)?).ok()?;
        (place < self.entries.len()).then_some(place)
    }

    /// Marks a request as sent; returns `None` if it had already been sent.
    #[inline]
    pub(super) fn mark_sent(&mut self, index: u64, at: Nanos) -> Option<&Entry> {
        let place = self.place(index)?;
        let entry = &mut self.entries[place];
        if entry.sent != Nanos(0) {
            return None;
        }
        entry.sent = at;
        self.active[entry.active_at as usize].sent = true;
        Some(entry)
    }

    /// Returns true if the request with this index, which was handed out, has ended.
    #[inline]
    pub(super) fn is_done(&self, index: u64) -> bool {
        match index.checked_sub(self.base) {
            None => true,
            Some(at) => self
                .entries
                .get(at as usize)
                .is_some_and(|entry| entry.ended),
        }
    }

    /// Returns when the request with this index ended; if it was removed from the window, a time that is not earlier.
    pub(super) fn done_at(&self, index: u64) -> Nanos {
        match index
            .checked_sub(self.base)
            .and_then(|at| self.entries.get(at as usize))
        {
            Some(entry) => entry.done,
            None => self.forgotten_done,
        }
    }

    /// Returns the request with this index if it is still in the window.
    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(self.place(index)?)
    }

    /// Ends a request; returns its device and target.
    #[inline]
    pub(super) fn end(&mut self, index: u64, at: Nanos) -> RowOrigin {
        let place = index.checked_sub(self.base).expect("a request ends once") as usize;
        let entry = &mut self.entries[place];
        assert!(!entry.ended, "request {index} ended twice");
        (entry.ended, entry.done) = (true, at);
        let of = entry.of;
        let active_at = std::mem::replace(&mut entry.active_at, NOT_ACTIVE) as usize;
        let gone = self.active.swap_remove(active_at);
        self.regions.count(gone.offset, gone.end, -1);
        self.changing -= usize::from(gone.changes);
        if let Some(moved) = self.active.get(active_at) {
            let place = (moved.index - self.base) as usize;
            self.entries[place].active_at = active_at as u32;
        }
        self.slide();
        of
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
            is_foreign: false,
            time_ns: 0,
            response_ns: u64::MAX,
            offset,
            len,
            op,
            of: RowOrigin::default(),
            fua: false,
            is_last: true,
            content: None,
        };
        Entry::new(&row, true, Nanos(0), Nanos(0), LateCause::Worker)
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
        assert_eq!(
            (window.conflict(Op::Write, 0, 512), window.in_flight()),
            (None, 1)
        );
        assert!(window.is_done(read) && !window.is_done(write));
        let mut found = Vec::new();
        window.followed(Op::Read, 12288, 512, &mut found);
        assert_eq!(found, [write]);
    }

    /// Finds the same conflicts as a comparison of all pairs, for distant and long requests and at their edges.
    #[test]
    fn no_conflict_is_missed() {
        let mut random = brunt_core::random::Random::new(1);
        let (mut window, mut known) = (Window::new(64, false), Vec::new());
        let mut conflicts = 0;
        for _ in 0..20_000 {
            let op = if random.chance(0.5) {
                Op::Write
            } else {
                Op::Read
            };
            let longest = if random.chance(0.1) {
                1 << 20
            } else {
                64 << 10
            };
            let (offset, len) = (
                random.below(1 << 16) * 512,
                512 * (1 + random.below(longest / 512)),
            );
            let overlaps = |(_, other, at, bytes): &&(u64, Op, u64, u64)| {
                *at < offset + len
                    && offset < at + bytes
                    && (op == Op::Write || *other == Op::Write)
            };
            let expected = known.iter().any(|other| overlaps(&other));
            conflicts += u32::from(expected);
            assert_eq!(
                window.conflict(op, offset, len).is_some(),
                expected,
                "{op:?} {offset} {len}"
            );
            if known.len() == 64 {
                let (index, ..) = known.swap_remove(random.below(64) as usize);
                window.end(index, Nanos(1));
            }
            known.push((window.push(entry(op, offset, len)), op, offset, len));
        }
        assert!((1000..19_000).contains(&conflicts), "{conflicts}");
        known
            .drain(..)
            .for_each(|(index, ..)| _ = window.end(index, Nanos(1)));
        assert!(window.regions.wide == 0 && window.regions.counts.iter().all(|count| *count == 0));
    }

    /// Ended requests are removed from the front, and queries about them stay correct.
    #[test]
    fn removed_requests_count_as_done() {
        let mut window = Window::new(8, false);
        let all: Vec<u64> = (0..4)
            .map(|at| window.push(entry(Op::Read, at * 512, 512)))
            .collect();
        for index in [all[1], all[3], all[0]] {
            window.end(index, Nanos(10 + index));
        }
        assert_eq!(
            (window.is_done(0), window.is_done(1), window.is_done(2)),
            (true, true, false)
        );
        assert_eq!(window.done_at(0), Nanos(11));
        assert_eq!(window.done_at(3), Nanos(13));
        window.end(2, Nanos(20));
        assert_eq!(
            (window.next_index(), window.in_flight(), window.done_at(3)),
            (4, 0, Nanos(20))
        );
    }
}
