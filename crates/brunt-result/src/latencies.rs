//! The latencies of a kind of operation, in one row.

use brunt_core::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Summary of a latency histogram, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latencies {
    /// Minimum, exact.
    pub min_us: f64,
    /// Mean, exact.
    pub mean_us: f64,
    /// Median. Percentiles are at most 0.1 % too high.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99 % of the latencies are at most this long.
    pub p99_us: f64,
    /// 99.9 % of the latencies are at most this long.
    pub p99_9_us: f64,
    /// 99.99 % of the latencies are at most this long.
    pub p99_99_us: f64,
    /// Maximum, exact.
    pub max_us: f64,
}

impl Latencies {
    /// `None` for an empty histogram.
    pub fn of(histogram: &Histogram) -> Option<Latencies> {
        let at = |percent| {
            histogram
                .percentile(percent)
                .map(|nanos| nanos.0 as f64 / 1e3)
        };
        Some(Latencies {
            min_us: histogram.min()?.0 as f64 / 1e3,
            mean_us: histogram.mean()? / 1e3,
            p50_us: at(50.0)?,
            p90_us: at(90.0)?,
            p99_us: at(99.0)?,
            p99_9_us: at(99.9)?,
            p99_99_us: at(99.99)?,
            max_us: histogram.max()?.0 as f64 / 1e3,
        })
    }
}
