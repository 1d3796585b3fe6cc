//! Frames in flight, ordered by arrival time.
//!
//! The rule: frames that arrive in the order in which they were sent don't have to be sorted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use brunt_core::Nanos;

/// A queue ordered by time; entries with equal times leave in insertion order.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    /// Due times never decrease from front to back.
    in_order: VecDeque<(Nanos, u64, T)>,
    others: BinaryHeap<Reverse<Entry<T>>>,
    count: u64,
}

#[derive(Debug)]
struct Entry<T>(Nanos, u64, T);

impl<T> Default for Schedule<T> {
    fn default() -> Schedule<T> {
        Schedule::new()
    }
}

impl<T> Schedule<T> {
    pub(super) fn new() -> Schedule<T> {
        Schedule {
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            count: 0,
        }
    }

    pub(super) fn push(&mut self, due: Nanos, item: T) {
        self.count += 1;
        if self.in_order.back().is_none_or(|(last, ..)| *last <= due) {
            self.in_order.push_back((due, self.count, item));
        } else {
            self.others.push(Reverse(Entry(due, self.count, item)));
        }
    }

    /// When the next entry is due.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        let (first, _) = self.next()?;
        Some(first)
    }

    /// Removes the next entry if it is due.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<T> {
        let (due, from_others) = self.next()?;
        if due > now {
            return None;
        }
        match from_others {
            true => self.others.pop().map(|Reverse(entry)| entry.2),
            false => self.in_order.pop_front().map(|(.., item)| item),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    fn next(&self) -> Option<(Nanos, bool)> {
        let ordered = self
            .in_order
            .front()
            .map(|(due, count, _)| (*due, *count, false));
        let other = self
            .others
            .peek()
            .map(|Reverse(entry)| (entry.0, entry.1, true));
        ordered
            .into_iter()
            .chain(other)
            .min()
            .map(|(due, _, from_others)| (due, from_others))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

#[cfg(test)]
mod tests {
    use brunt_core::random::Random;

    use super::*;

    /// Entries leave by time, and in insertion order for equal times.
    #[test]
    fn entries_leave_by_time() {
        let mut random = Random::new(7);
        let mut schedule = Schedule::new();
        let mut expected = Vec::new();
        for number in 0..10_000u64 {
            let due = Nanos(number + random.below(50));
            schedule.push(due, number);
            expected.push((due, number));
        }
        expected.sort();
        assert_eq!(schedule.len(), expected.len());
        for (due, number) in expected {
            assert_eq!(schedule.pop_due(Nanos(due.0.saturating_sub(1))), None);
            assert_eq!(schedule.next_due(), Some(due));
            assert_eq!(schedule.pop_due(due), Some(number));
        }
        assert_eq!(schedule.next_due(), None);
    }
}
