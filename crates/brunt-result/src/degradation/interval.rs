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
    /// Distributions of the response times and ages; `None` for results read from disk, whose tables don't store them
    /// per interval.
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
///
/// A run with faults keeps one per interval until the runs of its point are judged together, so it is packed: most
/// buckets take two bytes instead of sixteen for a pair of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalTimes {
    /// Response times, then the ages of outstanding requests.
    packed: Box<[u8]>,
}

impl IntervalTimes {
    /// From the response times in the interval and the ages at its end.
    pub fn of(response: &Histogram, waiting: &Histogram) -> Arc<IntervalTimes> {
        let mut packed = Vec::new();
        pack(&coarse(response), &mut packed);
        pack(&coarse(waiting), &mut packed);
        Arc::new(IntervalTimes {
            packed: packed.into_boxed_slice(),
        })
    }

    /// Response times: the upper edge of each bucket in nanoseconds, ascending, and its count.
    pub(super) fn answered(&self) -> impl Iterator<Item = (u64, u64)> {
        Buckets::new(&self.packed)
    }

    /// Ages of outstanding requests, in the same form.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut answered = Buckets::new(&self.packed);
        answered.by_ref().for_each(drop);
        Buckets::new(answered.packed)
    }

    /// The 99th percentile of response times and ages together, in microseconds; `None` without any.
    pub(super) fn p99_us(&self) -> Option<f64> {
        p99_us(self.answered().chain(self.waiting()).collect())
    }
}

/// Packs buckets: their number, the edge of the last bucket (the longest time, which is inside its bucket), then for
/// each bucket its distance from the previous one in buckets, and its count.
fn pack(buckets: &[(u64, u64)], packed: &mut Vec<u8>) {
    let Some((longest, _)) = buckets.last() else {
        return put_number(0, packed);
    };
    put_number(buckets.len() as u64, packed);
    put_number(*longest, packed);
    let mut before = 0;
    for (edge, count) in buckets {
        let index = bucket_index(*edge);
        put_number(index - before, packed);
        put_number(*count, packed);
        before = index;
    }
}

/// Reads what [`pack`] has written.
struct Buckets<'a> {
    packed: &'a [u8],
    left: u64,
    longest: u64,
    index: u64,
}

impl<'a> Buckets<'a> {
    fn new(mut packed: &'a [u8]) -> Buckets<'a> {
        let left = take_number(&mut packed);
        let longest = match left {
            0 => 0,
            _ => take_number(&mut packed),
        };
        Buckets {
            packed,
            left,
            longest,
            index: 0,
        }
    }
}

impl Iterator for Buckets<'_> {
    type Item = (u64, u64);
    fn next(&mut self) -> Option<(u64, u64)> {
        self.left = self.left.checked_sub(1)?;
        self.index += take_number(&mut self.packed);
        let count = take_number(&mut self.packed);
        Some((bucket_edge(self.index).min(self.longest), count))
    }
}

/// Bits of a value that its bucket ignores.
fn ignored_bits(nanos: u64) -> u32 {
    (nanos | BUCKETS).ilog2() - BUCKETS.ilog2()
}

/// Buckets in the order of their times, without gaps.
fn bucket_index(nanos: u64) -> u64 {
    let width = ignored_bits(nanos);
    u64::from(width) * BUCKETS + (nanos >> width)
}

/// The upper edge of a bucket: all bits that it ignores are set.
fn bucket_edge(index: u64) -> u64 {
    let width = (index / BUCKETS).saturating_sub(1);
    let kept = index - width * BUCKETS;
    (kept << width) | ((1 << width) - 1)
}

/// Seven bits per byte, lowest first; the top bit is set if more bytes follow (LEB128).
fn put_number(mut number: u64, packed: &mut Vec<u8>) {
    while number > 0x7f {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn take_number(packed: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    while let Some((byte, rest)) = packed.split_first() {
        *packed = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}

/// Merges a histogram's buckets into fewer, wider ones.
fn coarse(of: &Histogram) -> Vec<(u64, u64)> {
    let longest = of.max().map_or(0, |max| max.0);
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for (high, count) in of.buckets() {
        let edge = bucket_edge(bucket_index(high.0)).min(longest);
        match kept.last_mut() {
            Some((known, sum)) if *known == edge => *sum += count,
            _ => kept.push((edge, count)),
        }
    }
    kept
}

/// The 99th percentile of times in nanoseconds, each given with its count; the result is in microseconds.
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

/// The intervals to sum over for the time between two moments. Each of these intervals counts completely: anything
/// missing or outstanding in an interval at the edge belongs to this time, because the rest of that interval was
/// usual.
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

#[cfg(test)]
mod tests {
    use brunt_core::Nanos;
    use brunt_core::random::Random;

    use super::*;

    /// An interval with this many response times of this mean, and a few ages.
    fn times(requests: usize, mean: f64) -> ([Histogram; 2], Arc<IntervalTimes>) {
        let mut random = Random::for_part(3, requests as u64);
        let mut both = [Histogram::new(), Histogram::new()];
        for _ in 0..requests {
            both[0].record(Nanos(random.exponential(mean) as u64));
        }
        for age in 0..requests.min(32) as u64 {
            both[1].record(Nanos(age * age * 1000));
        }
        let times = IntervalTimes::of(&both[0], &both[1]);
        (both, times)
    }

    #[test]
    fn packed_times_are_read_back() {
        let mut extremes = Histogram::new();
        for nanos in [0, 1, 127, 128, 255, 256, 511, 512, u64::MAX >> 8, u64::MAX] {
            extremes
                .record_bucket(Nanos(nanos), 1 + nanos % 1000)
                .unwrap();
        }
        let mut cases = vec![[extremes, Histogram::new()]];
        for (requests, mean) in [(0, 1.0), (1, 5.0), (40, 300.0), (5000, 2e5), (5000, 3e9)] {
            cases.push(times(requests, mean).0);
        }
        for [response, waiting] in cases {
            let times = IntervalTimes::of(&response, &waiting);
            assert_eq!(times.answered().collect::<Vec<_>>(), coarse(&response));
            assert_eq!(times.waiting().collect::<Vec<_>>(), coarse(&waiting));
        }
    }

    /// Each interval of a run with faults adds little memory. Buckets as pairs of numbers took 3 KB for 200 requests
    /// and 19 KB for 10 000.
    #[test]
    fn an_interval_takes_few_bytes() {
        // Includes the overhead of the allocator and of the reference count for two allocations.
        let fixed = size_of::<IntervalFigures>() + size_of::<(Nanos, Nanos)>() + 3 * 16;
        for (requests, bytes_max) in [(10, 300), (200, 700), (10_000, 2800)] {
            for mean in [1e4, 2e5, 1e7] {
                let (_, times) = times(requests, mean);
                let bytes = fixed + size_of::<IntervalTimes>() + times.packed.len();
                assert!(
                    bytes <= bytes_max,
                    "{requests} requests of {mean} ns: {bytes} bytes"
                );
            }
        }
    }
}
