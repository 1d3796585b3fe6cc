//! Latencies in nanoseconds, kept so that percentiles of many threads and intervals can be
//! merged exactly as if one had counted. Recorders fill one, reports read it.
//!
//! The rule: merge histograms, never average their percentiles.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Nanos;

/// Longest latency told apart from longer ones: 2^43 ns, 2.4 hours. Longer ones count as this in
/// percentiles; [`Histogram::max`] and [`Histogram::mean`] stay exact.
pub const NANOS_MAX: u64 = 1 << 43;

/// Three digits: a percentile is at most 0.1 % above the latency it stands for.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Counts by latency, with exact count, sum, minimum and maximum. 270 KiB, allocated once.
#[derive(Clone)]
pub struct Histogram {
    counts: Hdr<u64>,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Histogram {
        let counts =
            Hdr::new_with_bounds(1, NANOS_MAX, SIGNIFICANT_DIGITS).expect("the bounds are constants");
        Histogram { counts, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        self.counts.saturating_record(latency.0);
        self.sum += u128::from(latency.0);
        self.min = self.min.min(latency.0);
        self.max = self.max.max(latency.0);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        if other.is_empty() {
            return;
        }
        self.counts.add(&other.counts).expect("all histograms have the same bounds");
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.counts.reset();
            (self.sum, self.min, self.max) = (0, u64::MAX, 0);
        }
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Whether none were.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The exact mean in nanoseconds; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// The exact sum in nanoseconds.
    pub fn sum_nanos(&self) -> u128 {
        self.sum
    }

    /// Minimum, exact.
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.min))
    }

    /// Maximum, exact.
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.max))
    }

    /// The latency that `percent` of all are at or below (`99.9` for p99.9), at most 0.1 % too long.
    pub fn percentile(&self, percent: f64) -> Option<Nanos> {
        (!self.is_empty()).then(|| {
            let value = self.counts.value_at_percentile(percent);
            Nanos(value.clamp(self.min, self.max))
        })
    }

    /// The share of latencies at or below `limit`, 0 to 1; `None` when empty.
    pub fn share_at_or_below(&self, limit: Nanos) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.quantile_below(limit.0.min(NANOS_MAX)))
    }

    /// Every bucket that counted something, shortest first: its longest latency and its count. What
    /// a file keeps, and what [`Histogram::record_bucket`] takes back.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.counts
            .iter_recorded()
            .map(|bucket| (Nanos(bucket.value_iterated_to()), bucket.count_since_last_iteration()))
    }

    /// The shortest latency that is counted in the same bucket as `latency`.
    pub fn bucket_low(&self, latency: Nanos) -> Nanos {
        Nanos(self.counts.lowest_equivalent(latency.0))
    }

    /// Counts a bucket read from a file. The sum, minimum and maximum are then those of the
    /// bucket's edge, 0.1 % off at most.
    pub fn record_bucket(&mut self, latency: Nanos, count: u64) {
        if count > 0 {
            self.counts.saturating_record_n(latency.0, count);
            self.sum += u128::from(latency.0) * u128::from(count);
            self.min = self.min.min(latency.0);
            self.max = self.max.max(latency.0);
        }
    }
}

/// What is sent of a histogram: the buckets that counted something, and what buckets do not tell.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Histogram")]
struct Sparse {
    /// Of the sum, 2^64 ns and up: 0 but for centuries.
    sum_high: u64,
    sum_low: u64,
    min: u64,
    max: u64,
    /// Longest latency of each bucket and its count.
    buckets: Vec<(u64, u64)>,
}

/// Exact, and only as long as there are different latencies.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (sum_high, sum_low) = ((self.sum >> 64) as u64, self.sum as u64);
        let buckets = self.buckets().map(|(latency, count)| (latency.0, count)).collect();
        Sparse { sum_high, sum_low, min: self.min, max: self.max, buckets }.serialize(to)
    }
}

/// The same histogram again, to the bit. Takes 270 KiB whatever was sent: who reads from a peer limits how many.
impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Histogram, D::Error> {
        let Sparse { sum_high, sum_low, min, max, buckets } = Sparse::deserialize(from)?;
        let mut histogram = Histogram::new();
        for (latency, count) in buckets {
            histogram.counts.saturating_record_n(latency, count);
        }
        histogram.sum = u128::from(sum_high) << 64 | u128::from(sum_low);
        (histogram.min, histogram.max) = (min, max);
        if histogram.is_empty() != (min > max) {
            return Err(serde::de::Error::custom("a histogram's minimum and maximum are not its counts'"));
        }
        Ok(histogram)
    }
}

/// Whether they counted the same latencies, as far as buckets tell them apart, with the same sum and ends.
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
        write!(f, "Histogram({} recorded, p50 {:?} ns, ", self.count(), percentile(50.0))?;
        write!(f, "p99 {:?} ns, max {:?} ns)", percentile(99.0), self.max().map(|nanos| nanos.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Percentiles are within the stated error of those of the sorted list.
    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut random = Random::new(1);
        let mut all: Vec<u64> = (0..100_000).map(|_| random.exponential(250_000.0) as u64 + 1).collect();
        let mut histogram = Histogram::new();
        all.iter().for_each(|&nanos| histogram.record(Nanos(nanos)));
        all.sort_unstable();
        for percent in [0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            let rank = ((percent / 100.0 * all.len() as f64).ceil() as usize).clamp(1, all.len());
            let (exact, told) = (all[rank - 1], histogram.percentile(percent).unwrap().0);
            assert!(told >= exact && told as f64 <= exact as f64 * 1.001, "p{percent}: {told} for {exact}");
        }
        let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
        assert!((histogram.mean().unwrap() - mean).abs() < 1e-6 * mean);
    }

    /// Merging parts is the same as having counted all, and a file's round trip keeps percentiles.
    #[test]
    fn merging_is_counting() {
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
        all.buckets().for_each(|(nanos, count)| read.record_bucket(nanos, count));
        assert!(merged.buckets().eq(all.buckets()) && read.buckets().eq(all.buckets()));
        assert_eq!((merged.min(), merged.max(), merged.mean()), (all.min(), all.max(), all.mean()));
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
    fn what_is_sent_is_the_same_again() {
        let mut random = Random::new(3);
        let mut histogram = Histogram::new();
        let check = |histogram: &Histogram| {
            let text = serde_json::to_string(histogram).unwrap();
            let read: Histogram = serde_json::from_str(&text).unwrap();
            assert_eq!(read, *histogram);
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            assert_eq!(read.mean().map(f64::to_bits), histogram.mean().map(f64::to_bits));
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

    /// A latency beyond the range is counted, and its true length is kept.
    #[test]
    fn longest_latency_is_exact() {
        let mut histogram = Histogram::new();
        histogram.record(Nanos(0));
        histogram.record(Nanos(NANOS_MAX * 3));
        assert_eq!((histogram.count(), histogram.max()), (2, Some(Nanos(NANOS_MAX * 3))));
        assert_eq!(histogram.min(), Some(Nanos(0)));
    }
}
