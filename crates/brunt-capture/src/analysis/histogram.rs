//! The latencies of one kind of operation, in the same histogram as run results: percentiles are at most 0.1 % too
//! long. Used per kind of operation, of which there are a few dozen at most; for files and clients, of which there
//! are thousands, use a [`Latency`](super::Latency), which takes a 300th of the memory.

use brunt_core::{Histogram, Nanos};
use serde::{Deserialize, Serialize};

use super::latency::Quantiles;

/// A latency distribution. Takes 8 KiB per octave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationLatency(Histogram);

impl OperationLatency {
    /// Adds a latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.record(Nanos(ns));
    }

    /// Prefetches the counter for a latency of `ns`.
    #[inline]
    pub fn prefetch(&self, ns: u64) {
        self.0.prefetch(Nanos(ns));
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &OperationLatency) {
        self.0.merge(&other.0);
    }

    /// The counted latencies, at most 0.1 % too long, in ascending order, and their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.buckets().map(|(up_to, count)| (up_to.0, count))
    }

    /// For each of `bounds` (ascending powers of two, in nanoseconds), the number of latencies up to that bound.
    pub fn counts_up_to(&self, bounds: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        self.0.counts_up_to(bounds)
    }
}

impl Quantiles for OperationLatency {
    const ERROR_PERCENT: f64 = 0.1;

    fn count(&self) -> u64 {
        self.0.count()
    }

    fn sum_ns(&self) -> u64 {
        self.0.sum_nanos().try_into().unwrap_or(u64::MAX)
    }

    fn max_ns(&self) -> u64 {
        self.0.max().map_or(0, |max| max.0)
    }

    fn quantile_ns(&self, q: f64) -> u64 {
        self.0.percentile(100.0 * q).map_or(0, |nanos| nanos.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If one in ten requests is slow, every quantile is within 0.1 % of a latency that occurred: a fast one up to 90
    /// %, a slow one above.
    #[test]
    fn quantiles_across_a_gap_are_latencies_that_occurred() {
        let (mut whole, mut halves) = (
            OperationLatency::default(),
            [(); 2].map(|()| OperationLatency::default()),
        );
        assert_eq!(
            (whole.count(), whole.quantile_ns(0.5), whole.max_ns()),
            (0, 0, 0)
        );
        for i in 0..10_000u64 {
            let ns = if i % 10 == 7 { 9_731_113 } else { 106_411 };
            whole.record(ns);
            halves[usize::from(i % 3 == 0)].record(ns);
        }
        let [mut merged, second] = halves;
        merged.merge(&second);
        for latency in [&whole, &merged] {
            for (q, exact) in [
                (0.01, 106_411),
                (0.5, 106_411),
                (0.9, 106_411),
                (0.901, 9_731_113),
            ] {
                let found = latency.quantile_ns(q);
                assert!(
                    found >= exact && found as f64 <= exact as f64 * 1.001,
                    "{q}: {found}"
                );
            }
            assert_eq!((latency.count(), latency.max_ns()), (10_000, 9_731_113));
            assert_eq!(latency.sum_ns(), 9000 * 106_411 + 1000 * 9_731_113);
            let octaves = [16, 17, 23, 24].into_iter().map(|octave| 1 << octave);
            assert!(latency.counts_up_to(octaves).eq([0, 9000, 9000, 10_000]));
        }
    }
}
