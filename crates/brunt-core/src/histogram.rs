//! Latency histograms in nanoseconds. Histograms from many threads and intervals merge exactly, so percentiles of the
//! merged histogram equal those of a single one. Recorders fill them; reports read them.
//!
//! The rule: merge histograms, never average their percentiles.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Nanos;
use crate::{prefetch, rank};

/// Longest latency with a bucket: 2^43 ns, 2.4 hours. Percentiles clamp longer ones to this value; [`Histogram::max`]
/// and [`Histogram::mean`] stay exact.
pub const NANOS_MAX: u64 = 1 << 43;

/// Buckets per octave (the latencies from a power of two up to the next): 1024, so a bucket's width is at most 0.1 % of
/// its latencies. Below 2048 ns each nanosecond has its own bucket; all latencies below 1024 ns form one octave.
const OCTAVE: usize = 1024;

/// Maximum count of a histogram read from a file or a peer: a million latencies per second for nine years. 65,536 such
/// histograms can be merged before a 64-bit count overflows.
pub const COUNT_READ_MAX: u64 = 1 << 48;

/// Why stored data is not a valid histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// The counts exceed [`COUNT_READ_MAX`].
    #[error(
        "a histogram of {counted} latencies has {more} more in one bucket; the maximum is {COUNT_READ_MAX}"
    )]
    TooMany {
        /// Total count of the preceding buckets.
        counted: u64,
        /// Count of this bucket.
        more: u64,
    },
    /// A minimum and maximum without counts, or counts without them.
    #[error("a histogram's minimum and maximum don't match its counts")]
    Ends,
}

/// Counts latencies per bucket, and keeps the exact count, sum, minimum and maximum.
///
/// Buckets are linear within an octave, like HdrHistogram's with three significant digits. Memory is allocated only
/// for the octaves from the shortest to the longest recorded latency: 8 KiB each, 280 KiB for all 35. An empty
/// histogram uses none, and a clone omits empty octaves below the shortest and above the longest latency.
pub struct Histogram {
    /// Index of the bucket of `counts[0]`; always the first bucket of an octave.
    first: usize,
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// A histogram that is cleared and refilled keeps its memory up to the longest latency that it ever counted. Its
/// clones, one per interval of a run, don't.
impl Clone for Histogram {
    fn clone(&self) -> Histogram {
        // Don't derive this from `min` and `max`: a peer may have sent any values.
        let counts = |octave: &[u64]| octave.iter().any(|count| *count > 0);
        let octaves = || self.counts.chunks(OCTAVE);
        let first = octaves().position(counts).unwrap_or(0);
        let end = octaves().rposition(counts).map_or(first, |last| last + 1);
        let used = first * OCTAVE..end * OCTAVE;
        Histogram {
            first: self.first + used.start,
            counts: self.counts[used].to_vec(),
            ..*self
        }
    }
}

/// The bucket of a latency.
#[inline]
fn bucket_of(latency: u64) -> usize {
    let latency = latency.min(NANOS_MAX);
    // Number of octaves above the finest one, which starts at 1024 ns.
    let shift = 53 - (latency | OCTAVE as u64).leading_zeros();
    shift as usize * OCTAVE + (latency >> shift) as usize
}

/// The shortest and longest latency of a bucket.
fn ends(bucket: usize) -> (u64, u64) {
    let shift = (bucket / OCTAVE).saturating_sub(1);
    let low = ((bucket - shift * OCTAVE) as u64) << shift;
    (low, low + (1 << shift) - 1)
}

impl Histogram {
    /// An empty histogram.
    pub const fn new() -> Histogram {
        Histogram {
            first: 0,
            counts: Vec::new(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Records one latency. Allocates if the latency is outside the allocated octaves.
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        *self.bucket(bucket_of(latency.0)) += 1;
        self.count += 1;
        self.sum += u128::from(latency.0);
        self.min = self.min.min(latency.0);
        self.max = self.max.max(latency.0);
    }

    /// Adds a bucket read from a file or a peer. The sum, minimum and maximum are then computed
    /// from the bucket's edge and are off by at most 0.1 %.
    ///
    /// # Errors
    /// The total count would exceed [`COUNT_READ_MAX`]; this bucket is not added.
    pub fn record_bucket(&mut self, latency: Nanos, count: u64) -> Result<(), HistogramError> {
        let all = self
            .count
            .checked_add(count)
            .filter(|all| *all <= COUNT_READ_MAX);
        self.count = all.ok_or(HistogramError::TooMany {
            counted: self.count,
            more: count,
        })?;
        if count > 0 {
            *self.bucket(bucket_of(latency.0)) += count;
            self.sum += u128::from(latency.0) * u128::from(count);
            self.min = self.min.min(latency.0);
            self.max = self.max.max(latency.0);
        }
        Ok(())
    }

    /// Prefetches the counter that recording `latency` will change.
    #[inline]
    pub fn prefetch(&self, latency: Nanos) {
        if let Some(count) = self
            .counts
            .get(bucket_of(latency.0).wrapping_sub(self.first))
        {
            prefetch(count);
        }
    }

    /// The counter of a bucket; allocates memory for its octave if needed.
    #[inline]
    fn bucket(&mut self, bucket: usize) -> &mut u64 {
        if bucket.wrapping_sub(self.first) >= self.counts.len() {
            self.reach(bucket, bucket);
        }
        &mut self.counts[bucket - self.first]
    }

    /// Allocates the octaves of two buckets and all octaves between them.
    #[cold]
    fn reach(&mut self, low: usize, high: usize) {
        let low = low / OCTAVE * OCTAVE;
        let end = (high / OCTAVE + 1) * OCTAVE;
        if self.counts.is_empty() {
            self.first = low;
        }
        if low < self.first {
            self.counts
                .splice(..0, std::iter::repeat_n(0, self.first - low));
            self.first = low;
        }
        if end > self.first + self.counts.len() {
            self.counts.resize(end - self.first, 0);
        }
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        if other.is_empty() {
            return;
        }
        self.reach(other.first, other.first + other.counts.len() - 1);
        let at = other.first - self.first;
        for (mine, theirs) in self.counts[at..].iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Empties the histogram but keeps its memory.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.counts.fill(0);
            (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
        }
    }

    /// The number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether no latencies are recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The exact mean in nanoseconds; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// The exact sum in nanoseconds.
    pub fn sum_nanos(&self) -> u128 {
        self.sum
    }

    /// The exact minimum.
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.min))
    }

    /// The exact maximum.
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.max))
    }

    /// The latency that `percent` of all latencies don't exceed (`99.9` for p99.9); at most 0.1 % too high. For 0
    /// percent, the minimum.
    pub fn percentile(&self, percent: f64) -> Option<Nanos> {
        if percent <= 0.0 {
            return self.min();
        }
        let rank = rank(percent, self.count);
        // Summing chunks of buckets is fast; only the chunk that contains the rank is searched.
        let (mut below, mut start) = (0, 0);
        for stretch in self.counts.chunks(64) {
            let sum: u64 = stretch.iter().sum();
            if below + sum >= rank {
                break;
            }
            (below, start) = (below + sum, start + stretch.len());
        }
        let place = self.counts[start..].iter().position(|count| {
            below += count;
            below >= rank
        });
        place.map(|place| Nanos(ends(self.first + start + place).1.clamp(self.min, self.max)))
    }

    /// The share of latencies at or below `limit`, 0 to 1; `None` when empty.
    pub fn share_at_or_below(&self, limit: Nanos) -> Option<f64> {
        let end = (bucket_of(limit.0) + 1)
            .saturating_sub(self.first)
            .min(self.counts.len());
        let below: u64 = self.counts[..end].iter().sum();
        (!self.is_empty()).then(|| below as f64 / self.count as f64)
    }

    /// The number of latencies at or below each of `bounds`, which must ascend. A bucket counts as a whole, at its
    /// upper edge. No bucket straddles a power of two, so the number of latencies below one is exact.
    pub fn counts_up_to(&self, bounds: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        let mut buckets = self.buckets().peekable();
        let mut below = 0;
        bounds.map(move |bound| {
            while let Some((_, count)) = buckets.next_if(|(high, _)| high.0 <= bound) {
                below += count;
            }
            below
        })
    }

    /// Every non-empty bucket, shortest first: its longest latency and its count. Files store
    /// these, and [`Histogram::record_bucket`] reads them back.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let counted = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        counted.map(|(i, &count)| (Nanos(ends(self.first + i).1), count))
    }

    /// The shortest latency that falls into the same bucket as `latency`.
    pub fn bucket_low(&self, latency: Nanos) -> Nanos {
        Nanos(ends(bucket_of(latency.0)).0)
    }
}

/// The serialized form of a histogram: the non-empty buckets, and the values that can't be derived from them.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Histogram")]
struct Sparse {
    /// The sum's high 64 bits: 0 unless latencies add up to centuries.
    sum_high: u64,
    sum_low: u64,
    min: u64,
    max: u64,
    /// Longest latency of each bucket and its count.
    buckets: Vec<(u64, u64)>,
}

/// Lossless; the size depends only on the number of non-empty buckets.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (sum_high, sum_low) = ((self.sum >> 64) as u64, self.sum as u64);
        let buckets = self
            .buckets()
            .map(|(latency, count)| (latency.0, count))
            .collect();
        Sparse {
            sum_high,
            sum_low,
            min: self.min,
            max: self.max,
            buckets,
        }
        .serialize(to)
    }
}

/// Restores the identical histogram. It takes up to 280 KiB, so callers that read from a peer
/// must limit the number of histograms.
impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Histogram, D::Error> {
        let Sparse {
            sum_high,
            sum_low,
            min,
            max,
            buckets,
        } = Sparse::deserialize(from)?;
        let mut histogram = Histogram::new();
        for (latency, count) in buckets {
            histogram
                .record_bucket(Nanos(latency), count)
                .map_err(serde::de::Error::custom)?;
        }
        histogram.sum = u128::from(sum_high) << 64 | u128::from(sum_low);
        (histogram.min, histogram.max) = (min, max);
        if histogram.is_empty() != (min > max) {
            return Err(serde::de::Error::custom(HistogramError::Ends));
        }
        Ok(histogram)
    }
}

/// Equal if the buckets, sums, minimums and maximums are equal.
impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        (self.sum, self.min, self.max) == (other.sum, other.min, other.max)
            && self.buckets().eq(other.buckets())
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percentile = |percent| self.percentile(percent).map(|nanos| nanos.0);
        write!(
            f,
            "Histogram({} recorded, p50 {:?} ns, ",
            self.count(),
            percentile(50.0)
        )?;
        write!(
            f,
            "p99 {:?} ns, max {:?} ns)",
            percentile(99.0),
            self.max().map(|nanos| nanos.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Percentiles differ from those of the sorted list by at most the stated error.
    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut random = Random::new(1);
        let mut all: Vec<u64> = (0..100_000)
            .map(|_| random.exponential(250_000.0) as u64 + 1)
            .collect();
        let mut histogram = Histogram::new();
        all.iter().for_each(|&nanos| histogram.record(Nanos(nanos)));
        all.sort_unstable();
        for percent in [0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            let rank = rank(percent, all.len() as u64) as usize;
            let (exact, told) = (all[rank - 1], histogram.percentile(percent).unwrap().0);
            assert!(
                told >= exact && told as f64 <= exact as f64 * 1.001,
                "p{percent}: {told} for {exact}"
            );
        }
        let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
        assert!((histogram.mean().unwrap() - mean).abs() < 1e-6 * mean);
    }

    /// Buckets are contiguous and don't overlap. Result files contain them, so their edges must never change.
    #[test]
    fn buckets_are_frozen() {
        let mut next = 0;
        for bucket in 0..=bucket_of(NANOS_MAX) {
            let (low, high) = ends(bucket);
            assert!(
                low == next && high >= low,
                "{bucket}: {low} to {high} after {next}"
            );
            assert!(
                (high - low) as f64 <= low as f64 * 0.001,
                "{bucket}: {low} to {high}"
            );
            assert_eq!([low, high.min(NANOS_MAX)].map(bucket_of), [bucket, bucket]);
            next = high + 1;
        }
        assert_eq!(bucket_of(u64::MAX), bucket_of(NANOS_MAX));
        let edges =
            [0, 2047, 2048, 1_000_000, 5_000_000_000].map(|latency| ends(bucket_of(latency)));
        let frozen = [
            (0, 0),
            (2047, 2047),
            (2048, 2049),
            (999_936, 1_000_447),
            (4_999_610_368, 5_003_804_671),
        ];
        assert_eq!(edges, frozen);
    }

    /// Memory is allocated only for recorded octaves, and grows in both directions without moving counts. A single long
    /// latency doesn't enlarge the clones of all later intervals.
    #[test]
    fn a_clone_allocates_only_recorded_octaves() {
        let mut histogram = Histogram::new();
        for latency in [300, 5_000, NANOS_MAX + 7] {
            histogram.record(Nanos(latency));
        }
        let copy = histogram.clone();
        assert_eq!(copy, histogram);
        assert_eq!(copy.counts.len(), histogram.counts.len());
        histogram.clear();
        assert_eq!(histogram.clone().counts.capacity(), 0);
        histogram.record(Nanos(5_000));
        let mut copy = histogram.clone();
        assert_eq!(copy, histogram);
        assert_eq!(copy.counts.capacity(), OCTAVE);
        assert!(histogram.counts.len() > 30 * OCTAVE);
        // The clone still accepts any latency.
        for latency in [300, NANOS_MAX] {
            copy.record(Nanos(latency));
            histogram.record(Nanos(latency));
        }
        assert_eq!(copy, histogram);
    }

    #[test]
    fn memory_covers_only_recorded_octaves() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.counts.capacity(), 0);
        for (i, nanos) in [70_000, 90_000, 3_000_000, 40, NANOS_MAX, 0, 70_000]
            .into_iter()
            .enumerate()
        {
            histogram.record(Nanos(nanos));
            assert_eq!(
                histogram.buckets().map(|(_, count)| count).sum::<u64>(),
                i as u64 + 1
            );
            // Prefetching a latency outside the allocated octaves does nothing.
            [nanos, 2_000]
                .into_iter()
                .for_each(|nanos| histogram.prefetch(Nanos(nanos)));
            if i == 1 {
                assert_eq!(histogram.counts.len(), OCTAVE);
            }
        }
        assert_eq!(histogram.counts.len() * size_of::<u64>(), 35 * 8192);
        let counted: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(counted, [1, 1, 2, 1, 1, 1]);
    }

    /// Merging parts equals recording everything in one histogram, and a round trip through a file preserves
    /// percentiles.
    #[test]
    fn merging_equals_recording_in_one_histogram() {
        let mut random = Random::new(2);
        let (mut all, mut parts) = (Histogram::new(), [Histogram::new(), Histogram::new()]);
        for i in 0..10_000 {
            let nanos = Nanos(random.below(10_000_000_000));
            all.record(nanos);
            parts[i % 2].record(nanos);
        }
        let [mut merged, second] = parts;
        merged.merge(&second);
        merged.merge(&Histogram::new());
        let mut read = Histogram::new();
        all.buckets()
            .for_each(|(nanos, count)| read.record_bucket(nanos, count).unwrap());
        assert!(merged.buckets().eq(all.buckets()) && read.buckets().eq(all.buckets()));
        assert_eq!(
            (merged.min(), merged.max(), merged.mean()),
            (all.min(), all.max(), all.mean())
        );
        let mut end = None;
        for (high, _) in all.buckets() {
            let low = all.bucket_low(high);
            assert!(Some(low) > end && low <= high && high.0 as f64 <= low.0 as f64 * 1.001 + 1.0);
            end = Some(high);
        }
        merged.clear();
        assert!(merged.is_empty() && merged.percentile(50.0).is_none() && merged.mean().is_none());
    }

    #[test]
    fn a_serialized_histogram_is_restored_identically() {
        let mut random = Random::new(3);
        let mut histogram = Histogram::new();
        let check = |histogram: &Histogram| {
            let text = serde_json::to_string(histogram).unwrap();
            let read: Histogram = serde_json::from_str(&text).unwrap();
            assert_eq!(read, *histogram);
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            assert_eq!(
                read.mean().map(f64::to_bits),
                histogram.mean().map(f64::to_bits)
            );
        };
        check(&histogram);
        for nanos in [0, 1, NANOS_MAX, NANOS_MAX + 1, u64::MAX, u64::MAX] {
            histogram.record(Nanos(nanos));
            check(&histogram);
        }
        for _ in 0..1000 {
            histogram.record(Nanos(random.next_u64() >> random.below(64)));
        }
        check(&histogram);
        let nonsense = r#"{"sum_high":0,"sum_low":5,"min":9,"max":3,"buckets":[[5,1]]}"#;
        assert!(serde_json::from_str::<Histogram>(nonsense).is_err());
    }

    /// Impossibly large counts are rejected on reading, before they are summed. Accepted histograms can be merged many
    /// times.
    #[test]
    fn counts_that_overflow_are_refused() {
        let read = |buckets: &str| {
            let text =
                format!(r#"{{"sum_high":0,"sum_low":5,"min":1,"max":9000,"buckets":[{buckets}]}}"#);
            serde_json::from_str::<Histogram>(&text)
        };
        let half = 1u64 << 63;
        for buckets in [
            format!("[5,{half}],[9000,{half}]"),
            format!("[5,1],[5,{}]", u64::MAX),
        ] {
            let error = read(&buckets).unwrap_err().to_string();
            assert!(error.contains("the maximum is 281474976710656"), "{error}");
        }
        let mut most = read(&format!("[5,{}],[9000,1]", COUNT_READ_MAX - 1)).unwrap();
        assert_eq!(
            most.record_bucket(Nanos(5), 1),
            Err(HistogramError::TooMany {
                counted: COUNT_READ_MAX,
                more: 1
            })
        );
        let again = most.clone();
        (0..1000).for_each(|_| most.merge(&again));
        assert_eq!(most.percentile(100.0), Some(Nanos(9000)));
        assert!(
            most.share_at_or_below(Nanos(9000)) == Some(1.0)
                && most.count() == 1001 * COUNT_READ_MAX
        );
        assert_eq!(
            most.counts_up_to([1 << 20].into_iter()).collect::<Vec<_>>(),
            [most.count()]
        );
    }

    /// A latency beyond the range is counted, and its exact value is kept.
    #[test]
    fn longest_latency_is_exact() {
        let mut histogram = Histogram::new();
        histogram.record(Nanos(0));
        histogram.record(Nanos(NANOS_MAX * 3));
        assert_eq!(
            (histogram.count(), histogram.max()),
            (2, Some(Nanos(NANOS_MAX * 3)))
        );
        assert_eq!(histogram.min(), Some(Nanos(0)));
    }
}
