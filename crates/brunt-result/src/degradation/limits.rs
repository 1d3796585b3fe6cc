//! The thresholds of the verdicts.

use std::time::Duration;

/// Minimum number of baseline intervals.
pub const BASELINE_MIN: usize = 3;
/// Minimum half-width of the band, as a share of the median.
pub const BAND_SHARE: f64 = 0.05;
/// Minimum half-width of the band, in spreads.
pub const BAND_SPREADS: f64 = 3.0;
/// How long a series has to stay usual to count as recovered.
pub const HOLD: Duration = Duration::from_secs(1);

/// Version of the methods that judge the effects of faults. Increased when the same intervals may lead to a different
/// verdict; results of other versions are judged again when they are reported or compared.
pub const METHODS: u32 = 6;

/// The answer is *never* only if a change by this share of the baseline would have been detected.
pub const NOTICEABLE: f64 = 0.15;
