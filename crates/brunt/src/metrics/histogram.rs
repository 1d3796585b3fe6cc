//! Latencies as a Prometheus histogram, with the same bounds for every command, so that one panel can show them all.

use super::{Labels, MetricsPage};

/// Exponents of the upper bounds: 1.024 us times powers of two, up to 17 s.
const OCTAVES: std::ops::RangeInclusive<u32> = 0..=24;

/// The bounds in nanoseconds.
pub fn bounds() -> impl Iterator<Item = u64> + Clone {
    OCTAVES.map(|octave| 1024 << octave)
}

impl MetricsPage {
    /// Writes the samples of a histogram for the metric that was begun last. `below` contains the counts at or below
    /// each of the [`bounds`], in the same order.
    pub fn latencies(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        below: impl Iterator<Item = u64>,
        count: u64,
        sum_seconds: f64,
    ) {
        let bucket = format!("{name}_bucket");
        for (bound, below) in bounds().zip(below) {
            let bound = (bound as f64 * 1e-9).to_string();
            let labels: Vec<(&str, &str)> = labels
                .iter()
                .copied()
                .chain([("le", bound.as_str())])
                .collect();
            self.sample(&bucket, &labels, below);
        }
        let all: Vec<(&str, &str)> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.sample(&bucket, &all, count);
        self.sample(&format!("{name}_sum"), labels, sum_seconds);
        self.sample(&format!("{name}_count"), labels, count);
    }
}
