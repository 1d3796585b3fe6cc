//! The profile that sizing tools ask for, and how its figures follow from counts of transfers.
//! `brunt trace fit` prints it; `brunt sql DIR sizer` computes the same in SQL.
//!
//! The rule: a figure of an empty set is absent, not zero.

use serde::Serialize;

/// The values that a sizing tool needs. All are of reads and writes; flushes and unmaps are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizerProfile {
    /// Reads and writes per second, from the first of them to the last; `None` if all came at the same time.
    pub mean_per_s: Option<f64>,
    /// Highest number of reads and writes in one second; seconds count from the first of them.
    pub peak_per_s: u64,
    /// Distinct bytes touched by random reads, in 4 KiB blocks (± 0.8 %).
    pub random_read_working_set_bytes: u64,
    /// Share of all reads and writes; `None` if there are none.
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
    /// Their number.
    pub count: u64,
    /// How many of them are sequential.
    pub sequential: u64,
    /// Their bytes.
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
    /// The profile.
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
    fn figures_of_nothing_are_absent() {
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
