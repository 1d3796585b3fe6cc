//! What is known of each interval of a run: the input of everything that is concluded about faults.
//!
//! The rule: nothing here knows of faults.

use std::sync::Arc;

use brunt_core::{Histogram, rank};

/// One interval of a run. Times in seconds from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalFigures {
    /// Its begin.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Requests completed in it.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Requests that ended otherwise than well in it.
    pub failed: u64,
    /// Mean response time of those completed, in microseconds; `None` if none was.
    pub response_mean_us: Option<f64>,
    /// Its 99th percentile.
    pub response_p99_us: Option<f64>,
    /// Its maximum.
    pub response_max_us: Option<f64>,
    /// Requests that were due by its end and not answered; `None` if nobody knows.
    pub waiting: Option<WaitingFigures>,
    /// Distributions of these times; `None` of results from disk, whose tables have none for each interval.
    pub times: Option<Arc<IntervalTimes>>,
}

impl IntervalFigures {
    pub(super) fn rate(&self) -> f64 {
        self.requests as f64 / (self.end_s - self.start_s)
    }
}

/// Buckets in an octave of what is kept of each interval: a percentile over intervals is at most 0.8 % too long.
const BUCKETS: u64 = 128;

/// How long requests waited that were due by an interval's end and not answered, since they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitingFigures {
    /// How many there were.
    pub requests: u64,
    /// Mean of their ages, in microseconds; `None` without any.
    pub mean_us: Option<f64>,
    /// Age of the oldest.
    pub oldest_us: Option<f64>,
}

impl WaitingFigures {
    /// Of a histogram of ages.
    pub fn of(ages: &Histogram) -> WaitingFigures {
        WaitingFigures {
            requests: ages.count(),
            mean_us: ages.mean().map(|nanos| nanos / 1e3),
            oldest_us: ages.max().map(|nanos| nanos.0 as f64 / 1e3),
        }
    }
}

/// How the times of an interval are distributed, as far as percentiles over several intervals need that.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalTimes {
    /// Response times: the longest of each bucket in nanoseconds, ascending, and how many.
    pub(super) answered: Vec<(u64, u64)>,
    /// Ages of those that wait.
    pub(super) waiting: Vec<(u64, u64)>,
}

impl IntervalTimes {
    /// Of response times, and of ages at its end.
    pub fn of(response: &Histogram, waiting: &Histogram) -> Arc<IntervalTimes> {
        Arc::new(IntervalTimes {
            answered: coarse(response),
            waiting: coarse(waiting),
        })
    }

    /// The 99th percentile of both, in microseconds; `None` without any.
    pub(super) fn p99_us(&self) -> Option<f64> {
        p99_us(self.answered.iter().chain(&self.waiting).copied().collect())
    }
}

/// The buckets of a histogram, fewer and wider.
fn coarse(of: &Histogram) -> Vec<(u64, u64)> {
    let longest = of.max().map_or(0, |max| max.0);
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for (high, count) in of.buckets() {
        // As many bits below the first as make up a bucket are set.
        let width = (high.0 | BUCKETS).ilog2() - BUCKETS.ilog2();
        let edge = (high.0 | ((1 << width) - 1)).min(longest);
        match kept.last_mut() {
            Some((known, sum)) if *known == edge => *sum += count,
            _ => kept.push((edge, count)),
        }
    }
    kept
}

/// The 99th percentile of counted nanoseconds, in microseconds.
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

/// The intervals with some time between `from_s` and `to_s`, by their place, and the part of each that lies there.
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

/// Whether a part of an interval is all of it, but for the inaccuracy of the times at which faults begin and end.
pub(super) fn is_whole(part: f64) -> bool {
    part >= 0.999
}

/// The intervals that say what it was like between two times, as [`parts`] has them: the whole ones. One at the edge mixes
/// this time with another; such intervals count, with their part, only if there is no other.
pub(super) fn in_time(series: &[IntervalFigures], from_s: f64, to_s: f64) -> Vec<(usize, f64)> {
    let all: Vec<(usize, f64)> = parts(series, from_s, to_s).collect();
    let whole = all.iter().filter(|(_, part)| is_whole(*part)).copied();
    let whole: Vec<(usize, f64)> = whole.collect();
    if whole.is_empty() { all } else { whole }
}

/// Two times are one if they are closer than this, in seconds.
const SAME_TIME_S: f64 = 1e-6;

/// The intervals of which sums between two times are made. They count whole: what is missing or waits in one at an edge is
/// due to this time, for the rest of it was as usual.
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
