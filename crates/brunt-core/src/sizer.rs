//! The workload profile that sizing tools require, derived from counts of transfers. `brunt analyze` and `brunt trace
//! fit` print it overall, by server and by window; `brunt sql DIR sizer` and `servers` compute the same in SQL.
//!
//! The rule: a value computed from an empty set is absent, not zero.

use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum number of seconds kept: four and a half hours of continuous traffic.
const SECONDS_MAX: usize = 1 << 14;
/// Number of the latest seconds, which are always kept because they are still being counted.
const SECONDS_OPEN: usize = 1 << 10;

/// The inputs to a sizing tool. They cover reads and writes only, not flushes or unmaps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizerProfile {
    /// Reads and writes per second, from first to last; `None` if all arrived at the same time.
    pub mean_per_s: Option<f64>,
    /// Highest number of reads and writes requested in one second of the clock: UTC for captures, the trace's own time
    /// line for block traces.
    pub peak_per_s: u64,
    /// Distinct bytes touched by random reads, in 4 KiB blocks (± 0.8 %).
    pub random_read_working_set_bytes: u64,
    /// Random reads as a fraction of all reads and writes; `None` if there are none.
    pub random_read: Option<f64>,
    /// See `random_read`.
    pub random_write: Option<f64>,
    /// See `random_read`.
    pub sequential_read: Option<f64>,
    /// See `random_read`.
    pub sequential_write: Option<f64>,
    /// Mean size of reads in bytes; `None` if there are none.
    pub read_bytes: Option<f64>,
    /// Mean size of writes in bytes; `None` if there are none.
    pub write_bytes: Option<f64>,
}

/// Counts of reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizerTransfers {
    /// Number of transfers.
    pub count: u64,
    /// Number of sequential transfers.
    pub sequential: u64,
    /// Total bytes.
    pub bytes: u64,
}

/// Counts from which a [`SizerProfile`] is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizerCounts {
    /// Reads.
    pub reads: SizerTransfers,
    /// Writes.
    pub writes: SizerTransfers,
    /// Nanoseconds from the first read or write to the last one.
    pub span_ns: u64,
    /// See [`SizerProfile::peak_per_s`].
    pub peak_per_s: u64,
    /// See [`SizerProfile::random_read_working_set_bytes`].
    pub random_read_working_set_bytes: u64,
}

/// When transfers were requested: the first, the last, and the busiest second. Times may come in any order.
///
/// If there are more seconds than can be kept, the quietest of the earlier ones are dropped. So the peak is exact,
/// except that after a merge it may lack transfers of a second that the other state dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizerTimes {
    /// First and last, in nanoseconds; `None` without transfers.
    span: Option<(u64, u64)>,
    /// Seconds with transfers, in order, and the number of transfers in each.
    seconds: Vec<(u64, u64)>,
    /// The highest number of transfers in a dropped second.
    dropped_max: u64,
}

impl SizerTimes {
    /// Adds a transfer that was requested at this time.
    #[inline]
    pub fn add(&mut self, time_ns: u64) {
        let (first, last) = self.span.unwrap_or((time_ns, time_ns));
        self.span = Some((first.min(time_ns), last.max(time_ns)));
        let second = time_ns / SECOND_NS;
        match self.seconds.last_mut() {
            Some((of, count)) if *of == second => *count += 1,
            _ => self.count(second, 1),
        }
    }

    #[cold]
    fn count(&mut self, second: u64, more: u64) {
        match self.seconds.binary_search_by_key(&second, |(of, _)| *of) {
            Ok(place) => self.seconds[place].1 += more,
            Err(place) => {
                self.seconds.insert(place, (second, more));
                if self.seconds.len() > SECONDS_MAX {
                    self.drop_quietest();
                }
            }
        }
    }

    /// Drops the quieter half of the complete seconds, or more.
    fn drop_quietest(&mut self) {
        let complete = self.seconds.len() - SECONDS_OPEN;
        let mut counts: Vec<u64> = self.seconds[..complete].iter().map(|(_, n)| *n).collect();
        let (_, &mut median, _) = counts.select_nth_unstable(complete / 2);
        self.dropped_max = self.dropped_max.max(median);
        let mut place = 0;
        self.seconds.retain(|(_, count)| {
            place += 1;
            place > complete || *count > median
        });
    }

    /// Adds the times of another state.
    pub fn merge(&mut self, other: &SizerTimes) {
        self.span = match (self.span, other.span) {
            (Some(mine), Some(theirs)) => Some((mine.0.min(theirs.0), mine.1.max(theirs.1))),
            (mine, theirs) => mine.or(theirs),
        };
        self.dropped_max = self.dropped_max.max(other.dropped_max);
        for (second, count) in &other.seconds {
            self.count(*second, *count);
        }
    }

    /// The first and the last time, in nanoseconds; `None` without transfers.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    /// Nanoseconds from the first transfer to the last.
    pub fn span_ns(&self) -> u64 {
        self.span.map_or(0, |(first, last)| last - first)
    }

    /// See [`SizerProfile::peak_per_s`].
    pub fn peak_per_s(&self) -> u64 {
        let kept = self.seconds.iter().map(|(_, count)| *count).max();
        kept.unwrap_or(0).max(self.dropped_max)
    }
}

impl SizerCounts {
    /// Computes the profile.
    pub fn profile(&self) -> SizerProfile {
        let (reads, writes) = (self.reads, self.writes);
        let all = reads.count + writes.count;
        SizerProfile {
            mean_per_s: quotient(all as f64 * 1e9, self.span_ns),
            peak_per_s: self.peak_per_s,
            random_read_working_set_bytes: self.random_read_working_set_bytes,
            random_read: quotient((reads.count - reads.sequential) as f64, all),
            random_write: quotient((writes.count - writes.sequential) as f64, all),
            sequential_read: quotient(reads.sequential as f64, all),
            sequential_write: quotient(writes.sequential as f64, all),
            read_bytes: quotient(reads.bytes as f64, reads.count),
            write_bytes: quotient(writes.bytes as f64, writes.count),
        }
    }
}

fn quotient(dividend: f64, divisor: u64) -> Option<f64> {
    (divisor > 0).then(|| dividend / divisor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_an_empty_set_are_absent() {
        let nothing = SizerCounts::default().profile();
        assert_eq!((nothing.mean_per_s, nothing.random_read), (None, None));
        let reads = SizerTransfers {
            count: 4,
            sequential: 1,
            bytes: 1 << 14,
        };
        let counts = SizerCounts {
            reads,
            span_ns: 2_000_000_000,
            peak_per_s: 3,
            ..SizerCounts::default()
        };
        let expected = SizerProfile {
            mean_per_s: Some(2.0),
            peak_per_s: 3,
            random_read_working_set_bytes: 0,
            random_read: Some(0.75),
            random_write: Some(0.0),
            sequential_read: Some(0.25),
            sequential_write: Some(0.0),
            read_bytes: Some(4096.0),
            write_bytes: None,
        };
        assert_eq!(counts.profile(), expected);
    }

    fn times(of: impl IntoIterator<Item = u64>) -> SizerTimes {
        let mut times = SizerTimes::default();
        of.into_iter().for_each(|time_ns| times.add(time_ns));
        times
    }

    /// The order of times does not matter, and two states add up, also within one second.
    #[test]
    fn seconds_are_those_of_the_clock() {
        let at = [1_900_000_000, 2_000_000_000, 2_999_999_999, 2_500_000_000];
        let all = times(at);
        assert_eq!((all.peak_per_s(), all.span_ns()), (3, 1_099_999_999));
        assert_eq!(times(at.into_iter().rev()), all);
        for cut in 0..=at.len() {
            let mut merged = times(at[..cut].iter().copied());
            merged.merge(&times(at[cut..].iter().copied()));
            assert_eq!(merged, all, "{cut}");
        }
        assert_eq!((times([]).peak_per_s(), times([]).span()), (0, None));
    }

    /// For a month of traffic, few seconds are kept, and the peak of its one busy second.
    #[test]
    fn long_captures_keep_their_peak_in_little_memory() {
        let month = 30 * 86_400;
        let busy = (0..7).map(|i| 1_000_000 * SECOND_NS + i);
        let steady = (0..month).map(|second| second * SECOND_NS + 5);
        let times = times(steady.chain(busy));
        assert!(
            times.seconds.len() <= SECONDS_MAX,
            "{}",
            times.seconds.len()
        );
        assert_eq!(times.span_ns(), (month - 1) * SECOND_NS);
        // The busy second had been dropped when its seven late transfers arrived, so its first transfer is missing;
        // in order, all eight count.
        assert_eq!(times.peak_per_s(), 7);
        let mut ordered = SizerTimes::default();
        for second in 0..month {
            let count = if second == 1_000_000 { 8 } else { 1 };
            (0..count).for_each(|i| ordered.add(second * SECOND_NS + i));
        }
        assert_eq!(ordered.peak_per_s(), 8);
    }
}
