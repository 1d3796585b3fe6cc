//! The figures of each interval of a run: the input of all conclusions about faults.
//!
//! The rule: nothing here depends on faults.

use std::sync::Arc;

use brunt_core::{Histogram, rank};

/// One interval of a run. Times in seconds from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalFigures {
    /// Start of the interval.
    pub start_s: f64,
    /// End of the interval.
    pub end_s: f64,
    /// Requests completed in it.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Requests that failed in it.
    pub failed: u64,
    /// Mean response time of the completed requests, in microseconds; `None` without any.
    pub response_mean_us: Option<f64>,
    /// 99th percentile of these response times.
    pub response_p99_us: Option<f64>,
    /// Maximum of these response times.
    pub response_max_us: Option<f64>,
    /// Requests that were due by its end but not answered; `None` if unknown.
    pub waiting: Option<WaitingFigures>,
    /// Distributions of these times; `None` for results read from disk, whose tables don't store them per interval.
    pub times: Option<Arc<IntervalTimes>>,
}

impl IntervalFigures {
    pub(super) fn rate(&self) -> f64 {
        self.requests as f64 / (self.end_s - self.start_s)
    }
}

/// Buckets per octave in the distributions kept for each interval: a percentile over intervals is at most
/// 0.8 % too high.
const BUCKETS: u64 = 128;

/// Ages of the requests that were due by an interval's end but not answered, counted from when they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitingFigures {
    /// Number of these requests.
    pub requests: u64,
    /// Mean age in microseconds; `None` without any.
    pub mean_us: Option<f64>,
    /// Age of the oldest.
    pub oldest_us: Option<f64>,
}

impl WaitingFigures {
    /// From a histogram of ages.
    pub fn of(ages: &Histogram) -> WaitingFigures {
        WaitingFigures {
            requests: ages.count(),
            mean_us: ages.mean().map(|nanos| nanos / 1e3),
            oldest_us: ages.max().map(|nanos| nanos.0 as f64 / 1e3),
        }
    }
}

/// Distribution of an interval's times, coarse but sufficient for percentiles over several intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalTimes {
    /// Response times: the upper edge of each bucket in nanoseconds, ascending, and its count.
    pub(super) answered: Vec<(u64, u64)>,
    /// Ages of outstanding requests.
    pub(super) waiting: Vec<(u64, u64)>,
}

impl IntervalTimes {
    /// From the response times in the interval and the ages at its end.
    pub fn of(response: &Histogram, waiting: &Histogram) -> Arc<IntervalTimes> {
        Arc::new(IntervalTimes {
            answered: coarse(response),
            waiting: coarse(waiting),
        })
    }

    /// The 99th percentile of response times and ages together, in microseconds; `None` without any.
    pub(super) fn p99_us(&self) -> Option<f64> {
        p99_us(self.answered.iter().chain(&self.waiting).copied().collect())
    }
}

/// Merges a histogram's buckets into fewer, wider ones.
fn coarse(of: &Histogram) -> Vec<(u64, u64)> {
    let longest = of.max().map_or(0, |max| max.0);
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for (high, count) in of.buckets() {
        // The upper edge of a bucket: all bits below the bucket's precision are set.
        let width = (high.0 | BUCKETS).ilog2() - BUCKETS.ilog2();
        let edge = (high.0 | ((1 << width) - 1)).min(longest);
        match kept.last_mut() {
            Some((known, sum)) if *known == edge => *sum += count,
            _ => kept.push((edge, count)),
        }
    }
    kept
}

/// The 99th percentile of nanoseconds with their counts, in microseconds.
pub(super) fn p99_us(mut counted: Vec<(u64, u64)>) -> Option<f64> {
    counted.sort_unstable();
    let all = counted.iter().map(|(_, count)| count).sum();
    let wanted = rank(99.0, all);
    let mut below = 0;
    let found = counted.iter().find(|(_, count)| {
        below += count;
        below >= wanted
    });
    found.map(|(nanos, _)| *nanos as f64 / 1e3)
}

/// The indices of intervals that overlap the time from `from_s` to `to_s`, and the share of each that lies in it.
pub(super) fn parts(
    series: &[IntervalFigures],
    from_s: f64,
    to_s: f64,
) -> impl Iterator<Item = (usize, f64)> {
    let time = move |one: &IntervalFigures| one.end_s.min(to_s) - one.start_s.max(from_s);
    series
        .iter()
        .enumerate()
        .map(move |(at, one)| (at, time(one) / (one.end_s - one.start_s)))
        .filter(|(_, part)| *part > 0.0)
}

/// Whether a share covers the whole interval, within the accuracy of the times at which faults begin and end.
pub(super) fn is_whole(part: f64) -> bool {
    part >= 0.999
}

/// The intervals that represent the time between two moments, in the form of [`parts`]: only whole ones, because one at
/// the edge mixes two states. If there is no whole interval, the partial ones count by their share.
pub(super) fn in_time(series: &[IntervalFigures], from_s: f64, to_s: f64) -> Vec<(usize, f64)> {
    let all: Vec<(usize, f64)> = parts(series, from_s, to_s).collect();
    let whole = all.iter().filter(|(_, part)| is_whole(*part)).copied();
    let whole: Vec<(usize, f64)> = whole.collect();
    if whole.is_empty() { all } else { whole }
}

/// Times closer than this, in seconds, are treated as equal.
const SAME_TIME_S: f64 = 1e-6;

/// The intervals to sum over for the time between two moments. They count whole: anything missing or outstanding in an
/// interval at the edge belongs to this time, because the rest of that interval was usual.
pub(super) fn touched(
    series: &[IntervalFigures],
    from_s: f64,
    to_s: f64,
) -> impl Iterator<Item = usize> {
    let time = move |one: &IntervalFigures| one.end_s.min(to_s) - one.start_s.max(from_s);
    (0..series.len()).filter(move |at| time(&series[*at]) > SAME_TIME_S)
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    }
}
