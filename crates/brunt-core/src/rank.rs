//! Percentile ranks: which of the sorted values is the p99.9. All code that computes a percentile from values or counts
//! uses this module, so the results agree.
//!
//! The rule: ranks use integer arithmetic. In floating point, `99.9 / 100.0 * 1000.0` is slightly
//! more than 999, and rounding it up yields the maximum.

/// Percentages are exact to nine decimals: p99.999999999 is the highest that differs from p100.
const PARTS_PER_PERCENT: f64 = 1e9;
const PARTS: u128 = 100_000_000_000;

/// The rank, 1 to `count`, of a percentile among `count` sorted values: the lowest one at which at
/// least `percent` (0 to 100) of the values are at or below the ranked value. This is the inverse
/// of the empirical distribution function (`inverted_cdf` in numpy; type 1 in Hyndman and Fan,
/// *Sample Quantiles in Statistical Packages*, 1996). 1 if there are no values.
pub fn rank(percent: f64, count: u64) -> u64 {
    let parts = (percent.clamp(0.0, 100.0) * PARTS_PER_PERCENT).round() as u128;
    // A 64-bit count times 10^11 fits in 128 bits, and the quotient is at most the count.
    ((parts * u128::from(count)).div_ceil(PARTS) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Histogram, Nanos};

    /// The percentiles in reports, tables, metrics and fio's output, as exact fractions.
    const PERCENTS: [(f64, u64, u64); 14] = [
        (0.1, 1, 1000),
        (1.0, 1, 100),
        (10.0, 1, 10),
        (12.5, 1, 8),
        (50.0, 1, 2),
        (90.0, 9, 10),
        (95.0, 19, 20),
        (99.0, 99, 100),
        (99.5, 199, 200),
        (99.9, 999, 1000),
        (99.95, 1999, 2000),
        (99.99, 9999, 10_000),
        (99.999, 99_999, 100_000),
        (100.0, 1, 1),
    ];

    /// Checks each count up to 200,000, computed both from the percentile and from its fraction as callers do.
    #[test]
    fn ranks_are_exact_for_every_count() {
        for (percent, numerator, denominator) in PERCENTS {
            for count in 1..=200_000 {
                let exact = (numerator * count).div_ceil(denominator);
                let of_share = 100.0 * (numerator as f64 / denominator as f64);
                let found = [rank(percent, count), rank(of_share, count)];
                assert_eq!(found, [exact; 2], "p{percent} of {count}");
            }
        }
    }

    /// A histogram that records one value at a time reports the percentiles of the sorted values.
    #[test]
    fn histograms_agree_with_sorted_values_for_every_count() {
        // One value per bucket: percentiles are exact as long as buckets are one nanosecond wide.
        let mut histogram = Histogram::new();
        for count in 1..=2000u64 {
            histogram.record(Nanos(count - 1));
            for (percent, numerator, denominator) in PERCENTS {
                let exact = (numerator * count).div_ceil(denominator) - 1;
                assert_eq!(
                    histogram.percentile(percent),
                    Some(Nanos(exact)),
                    "p{percent} of {count}"
                );
            }
        }
        // Beyond that, a percentile is at most 0.1 % above the exact value. The counts checked are multiples of 97 or
        // 1000: as 97 is prime, every remainder occurs.
        for count in 2001..=200_000u64 {
            histogram.record(Nanos(count - 1));
            if count % 97 != 0 && count % 1000 != 0 {
                continue;
            }
            for (percent, numerator, denominator) in PERCENTS {
                let exact = (numerator * count).div_ceil(denominator) - 1;
                let found = histogram.percentile(percent).unwrap().0;
                let most = exact as f64 * 1.001;
                assert!(
                    (exact..=most as u64).contains(&found),
                    "p{percent} of {count}: {found} for {exact}"
                );
            }
        }
    }

    #[test]
    fn ranks_stay_within_the_values() {
        for (percent, count, expected) in [
            (0.0, 10, 1),
            (-1.0, 10, 1),
            (f64::NAN, 10, 1),
            (101.0, 10, 10),
            (99.9, 0, 1),
            (100.0, u64::MAX, u64::MAX),
            (50.0, u64::MAX, u64::MAX / 2 + 1),
        ] {
            assert_eq!(rank(percent, count), expected, "p{percent} of {count}");
        }
    }
}
