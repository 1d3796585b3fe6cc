//! Latencies in a few hundred counters: logarithmic buckets with eight steps per octave (HdrHistogram's scheme with
//! three bits), so a quantile is off by at most 6.25 % or half a microsecond, whichever is larger. Used for files and
//! clients, of which there are thousands. Anything that shows a quantile shows its error, too
//! ([`Quantiles::ERROR_PERCENT`]).

use brunt_core::{prefetch, rank};
use serde::{Deserialize, Serialize};

const STEP_BITS: u32 = 3;
const STEPS: usize = 1 << STEP_BITS;
/// The resolution is about a microsecond; the range ends at 68 seconds.
const UNIT_SHIFT: u32 = 10;
const OCTAVES: usize = 27;
const BUCKETS: usize = OCTAVES * STEPS;

/// The figures of a latency distribution that reports show.
pub trait Quantiles {
    /// Maximum error of a quantile, in percent.
    const ERROR_PERCENT: f64;

    /// Number of latencies.
    fn count(&self) -> u64;
    /// Sum of the latencies, in nanoseconds.
    fn sum_ns(&self) -> u64;
    /// The longest latency, in nanoseconds.
    fn max_ns(&self) -> u64;
    /// The smallest latency that at least a share `q` of all latencies does not exceed, in nanoseconds; zero if there
    /// are none.
    fn quantile_ns(&self, q: f64) -> u64;
}

/// A distribution of latencies.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Latency {
    counts: Box<[u32; BUCKETS]>,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            counts: Box::new([0; BUCKETS]),
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

/// The serialized form: only non-zero buckets.
#[derive(Serialize, Deserialize)]
struct Stored {
    counts: Vec<(u16, u32)>,
    sum_ns: u64,
    max_ns: u64,
}

impl From<Latency> for Stored {
    fn from(latency: Latency) -> Stored {
        let counts = (0..)
            .zip(latency.counts.iter().copied())
            .filter(|(_, count)| *count > 0);
        Stored {
            counts: counts.collect(),
            sum_ns: latency.sum_ns,
            max_ns: latency.max_ns,
        }
    }
}

/// A stored latency names a bucket that doesn't exist.
#[derive(Debug, thiserror::Error)]
#[error("no latency bucket {0}")]
struct StoredLatencyError(u16);

impl TryFrom<Stored> for Latency {
    type Error = StoredLatencyError;

    fn try_from(stored: Stored) -> Result<Latency, StoredLatencyError> {
        let mut latency = Latency {
            sum_ns: stored.sum_ns,
            max_ns: stored.max_ns,
            ..Latency::default()
        };
        for (bucket, count) in stored.counts {
            *latency
                .counts
                .get_mut(usize::from(bucket))
                .ok_or(StoredLatencyError(bucket))? = count;
        }
        Ok(latency)
    }
}

/// The bucket of a latency. Stored in traces, so it must not change.
#[inline(always)]
pub(crate) fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    if units < STEPS as u64 {
        return units as usize;
    }
    let octave = 63 - units.leading_zeros();
    let step = (units >> (octave - STEP_BITS)) as usize & (STEPS - 1);
    ((octave - STEP_BITS + 1) as usize * STEPS + step).min(BUCKETS - 1)
}

/// The longest latency in a bucket, in nanoseconds; the last bucket also counts all longer ones.
pub(super) fn bucket_up_to(bucket: usize) -> u64 {
    let (octave, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    let next = match octave {
        0 => step + 1,
        _ => (STEPS as u64 + step + 1) << (octave - 1),
    };
    (next << UNIT_SHIFT) - 1
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (octave, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    let (low, width) = match octave {
        0 => (step, 1),
        octave => ((STEPS as u64 + step) << (octave - 1), 1 << (octave - 1)),
    };
    ((low << UNIT_SHIFT) + (width << UNIT_SHIFT) / 2).max(1)
}

impl Latency {
    /// Adds a latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let counter = &mut self.counts[bucket(ns)];
        *counter = counter.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Prefetches the counter for a latency.
    #[inline]
    pub(super) fn prefetch(&self, ns: u64) {
        prefetch(&self.counts[bucket(ns)]);
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Latency) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

impl Quantiles for Latency {
    const ERROR_PERCENT: f64 = 6.25;

    fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    fn max_ns(&self) -> u64 {
        self.max_ns
    }

    fn quantile_ns(&self, q: f64) -> u64 {
        let count = self.count();
        let rank = rank(100.0 * q, count);
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += u64::from(*count);
            if below >= rank {
                return middle(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles are within 6.25 % (and a microsecond) of the exact ones.
    #[test]
    fn quantiles_are_within_their_stated_error() {
        let mut latency = Latency::default();
        let mut random = brunt_core::random::Random::new(3);
        let mut all: Vec<u64> = (0..50_000)
            .map(|_| random.exponential(3e6) as u64)
            .collect();
        all.iter().for_each(|ns| latency.record(*ns));
        all.sort_unstable();
        for q in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let exact = all[rank(100.0 * q, all.len() as u64) as usize - 1] as f64;
            let found = latency.quantile_ns(q) as f64;
            assert!(
                (found - exact).abs() <= exact * 0.0625 + 1024.0,
                "{q}: {found} {exact}"
            );
        }
        latency.record(u64::MAX);
        assert_eq!(latency.max_ns(), u64::MAX);
    }
}
