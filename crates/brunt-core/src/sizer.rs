//! The workload profile that sizing tools require, derived from counts of transfers. `brunt trace fit` prints it;
//! `brunt sql DIR sizer` computes the same in SQL.
//!
//! The rule: a value computed from an empty set is absent, not zero.

use serde::Serialize;

/// The inputs of a sizing tool. They cover reads and writes only, not flushes or unmaps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizerProfile {
    /// Reads and writes per second, from first to last; `None` if all arrived at the same time.
    pub mean_per_s: Option<f64>,
    /// Highest number of reads and writes in one second, with seconds counted from the first request.
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
}
