//! Readings of counters over time, to determine afterwards what happened between two moments.
//!
//! The rule: memory is bounded for recordings of any length. Beyond the limit, every second reading is dropped and the
//! period doubles.

use std::time::Duration;

use crate::Nanos;

/// Readings in chronological order.
#[derive(Clone, Debug)]
pub struct ReadingLog<T> {
    period: Duration,
    limit: usize,
    all: Vec<(Nanos, T)>,
}

/// The readings next to a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReadingsAround<'a, T> {
    /// There are no readings.
    None,
    /// The moment is before the first reading or after the last; contains that reading.
    Only(&'a T),
    /// The moment is between two readings.
    Between {
        /// The reading before the moment, or at the moment itself.
        before: &'a T,
        /// The reading after the moment.
        after: &'a T,
        /// Position of the moment between these readings, 0 to 1.
        share: f64,
    },
}

impl<T> ReadingLog<T> {
    /// An empty log whose readings are `period` apart until there are more than `limit`.
    pub fn new(period: Duration, limit: usize) -> ReadingLog<T> {
        ReadingLog {
            period,
            limit,
            all: Vec::new(),
        }
    }

    /// The time that should pass between two readings.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// All readings that are kept.
    pub fn all(&self) -> &[(Nanos, T)] {
        &self.all
    }

    /// When the next reading is due: one period after the last one, or at `first` if that is earlier and no reading
    /// has been taken since. For an empty log, this is in the distant past.
    pub fn due(&self, first: Nanos) -> Nanos {
        let last = self.all.last().map_or(Nanos(0), |(at, _)| *at);
        let next = last.after(self.period);
        match last < first {
            true => next.min(first),
            false => next,
        }
    }

    /// Adds a reading, which must not be earlier than the last.
    pub fn add(&mut self, at: Nanos, reading: T) {
        self.all.push((at, reading));
        if self.all.len() > self.limit {
            let mut number = 0;
            self.all.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.period *= 2;
        }
    }

    /// The readings next to a moment.
    pub fn around(&self, when: Nanos) -> ReadingsAround<'_, T> {
        let next = self.all.partition_point(|(at, _)| *at <= when);
        let before = next.checked_sub(1).map(|last| &self.all[last]);
        match (before, self.all.get(next)) {
            (Some((from, before)), Some((to, after))) => ReadingsAround::Between {
                before,
                after,
                share: when.since(*from).as_secs_f64() / to.since(*from).as_secs_f64(),
            },
            (Some((_, only)), None) | (None, Some((_, only))) => ReadingsAround::Only(only),
            (None, None) => ReadingsAround::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_between_two_readings_or_beside_one() {
        let mut log = ReadingLog::new(Duration::from_nanos(10), 8);
        assert_eq!(log.around(Nanos(5)), ReadingsAround::None);
        log.add(Nanos(10), 'a');
        log.add(Nanos(20), 'b');
        assert_eq!(log.around(Nanos(9)), ReadingsAround::Only(&'a'));
        for (at, share) in [(10, 0.0), (15, 0.5)] {
            let (before, after) = (&'a', &'b');
            let between = ReadingsAround::Between {
                before,
                after,
                share,
            };
            assert_eq!(log.around(Nanos(at)), between, "{at}");
        }
        assert_eq!(log.around(Nanos(20)), ReadingsAround::Only(&'b'));
    }

    #[test]
    fn a_reading_is_due_after_a_period_and_at_the_first_moment() {
        let mut log = ReadingLog::new(Duration::from_nanos(10), 8);
        log.add(Nanos(100), 'a');
        let due = |first| log.due(Nanos(first)).0;
        assert_eq!([99, 100, 104, 115].map(due), [110, 110, 104, 110]);
    }

    /// Readings beyond the limit are thinned out evenly, and the first one is kept.
    #[test]
    fn readings_beyond_the_limit_are_thinned_out() {
        let mut log = ReadingLog::new(Duration::from_nanos(1), 4);
        (0..5).for_each(|at| log.add(Nanos(at), at));
        let kept: Vec<u64> = log.all().iter().map(|(_, reading)| *reading).collect();
        assert_eq!(
            (kept, log.period()),
            (vec![0, 2, 4], Duration::from_nanos(2))
        );
    }
}
