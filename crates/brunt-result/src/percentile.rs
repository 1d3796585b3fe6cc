//! Percentiles of response times by name: `p95`, `p99.99`. Experiments choose them, and tables, comparisons and
//! requirements name them.
//!
//! The rule: a percentile is absent if the requests are so few that none is expected beyond it, because it would only
//! repeat the maximum.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use brunt_core::Histogram;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use crate::latencies::Latencies;

/// Resolution of percentiles: more digits would need more requests than a run has.
const PARTS_PER_PERCENT: u32 = 1_000_000;
const HUNDRED: u32 = 100 * PARTS_PER_PERCENT;

/// A percentile above 0 and below 100 with at most six decimals, written `p99.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentile(u32);

/// Values by percentile, in microseconds; those with too few requests are absent.
pub type PercentilesUs = BTreeMap<Percentile, f64>;

/// The percentiles shown unless an experiment chooses others.
pub const USUAL: [Percentile; 3] = [Percentile::P50, Percentile::P99, Percentile::P99_9];

/// The invalid percentile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not a percentile above 0 and below 100 with at most six decimals; write for example 99.9"
)]
pub struct PercentileError(String);

impl Percentile {
    /// The median.
    pub const P50: Percentile = Percentile(50 * PARTS_PER_PERCENT);
    /// The 90th percentile.
    pub const P90: Percentile = Percentile(90 * PARTS_PER_PERCENT);
    /// The 99th percentile.
    pub const P99: Percentile = Percentile(99 * PARTS_PER_PERCENT);
    /// One in a thousand takes longer.
    pub const P99_9: Percentile = Percentile(99_900_000);
    /// One in ten thousand takes longer.
    pub const P99_99: Percentile = Percentile(99_990_000);

    /// The percentile for a number such as 99.9.
    ///
    /// # Errors
    /// The number isn't above 0 and below 100, or has more than six decimals.
    pub fn new(percent: f64) -> Result<Percentile, PercentileError> {
        let parts = percent * f64::from(PARTS_PER_PERCENT);
        let is_exact = (parts - parts.round()).abs() < 1e-3;
        let is_within = parts >= 1.0 && parts.round() < f64::from(HUNDRED);
        match is_exact && is_within {
            true => Ok(Percentile(parts.round() as u32)),
            false => Err(PercentileError(percent.to_string())),
        }
    }

    /// The percentile with a name such as `p99.9`.
    pub fn named(name: &str) -> Option<Percentile> {
        let digits = name.strip_prefix('p')?;
        let plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        Percentile::new(digits.parse().ok().filter(|_| plain)?).ok()
    }

    /// The number, such as 99.9.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / f64::from(PARTS_PER_PERCENT)
    }

    /// Whether at least one of this many requests is expected beyond the percentile.
    fn is_known_from(self, requests: u64) -> bool {
        u128::from(requests) * u128::from(HUNDRED - self.0) >= u128::from(HUNDRED)
    }

    /// The percentile's value in microseconds; `None` with too few requests.
    pub fn of(self, histogram: &Histogram) -> Option<f64> {
        let nanos = histogram.percentile(self.percent())?;
        self.is_known_from(histogram.count())
            .then_some(nanos.0 as f64 / 1e3)
    }

    /// The values of those percentiles among several that have enough requests.
    pub fn of_each(percentiles: &[Percentile], histogram: &Histogram) -> PercentilesUs {
        let each = percentiles.iter();
        each.filter_map(|one| Some((*one, one.of(histogram)?)))
            .collect()
    }

    /// Whether every summary contains the percentile, regardless of the percentiles that its experiment chose.
    pub fn is_in_every_summary(self) -> bool {
        let usual = [Percentile::P50, Percentile::P90, Percentile::P99];
        usual.contains(&self) || [Percentile::P99_9, Percentile::P99_99].contains(&self)
    }

    /// The percentile's value in a row of latencies, if the row contains it.
    fn in_row(self, times: &Latencies) -> Option<f64> {
        match self {
            Percentile::P50 => Some(times.p50_us),
            Percentile::P90 => Some(times.p90_us),
            Percentile::P99 => Some(times.p99_us),
            Percentile::P99_9 => Some(times.p99_9_us),
            Percentile::P99_99 => Some(times.p99_99_us),
            _ => None,
        }
    }

    /// The percentile's value in microseconds, from those kept or else from a row of latencies; `None` with too few
    /// requests.
    pub(crate) fn find(
        self,
        kept: &PercentilesUs,
        row: Option<&Latencies>,
        requests: u64,
    ) -> Option<f64> {
        let in_row = || row.and_then(|times| self.in_row(times));
        kept.get(&self)
            .copied()
            .or_else(in_row)
            .filter(|_| self.is_known_from(requests))
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.percent())
    }
}

impl FromStr for Percentile {
    type Err = PercentileError;

    /// From a number as on a command line, `99.9`, or from a name, `p99.9`.
    fn from_str(text: &str) -> Result<Percentile, PercentileError> {
        let wrong = || PercentileError(format!("'{text}'"));
        let text = text.trim();
        Percentile::named(text)
            .or_else(|| Percentile::named(&format!("p{text}")))
            .ok_or_else(wrong)
    }
}

impl Serialize for Percentile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percentile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percentile, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Percentile {
    fn schema_name() -> Cow<'static, str> {
        "Percentile".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A percentile by name, such as p99.9",
            "type": "string",
            "pattern": "^p[0-9]{1,2}(\\.[0-9]{1,6})?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Nanos;

    #[test]
    fn names_are_read_and_written() {
        for text in [
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "p0.1",
            "p12.5",
            "p99.999999",
        ] {
            let read = Percentile::named(text).unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(text[1..].parse(), Ok(read));
            assert_eq!(Percentile::new(text[1..].parse().unwrap()), Ok(read));
        }
        for text in [
            "p0",
            "p100",
            "p101",
            "p-5",
            "p",
            "99",
            "p1e1",
            "pinf",
            "pNaN",
            "p99.9999999",
            "p 5",
            "p+5",
        ] {
            assert_eq!(Percentile::named(text), None, "{text}");
        }
        let error = "100".parse::<Percentile>().unwrap_err().to_string();
        assert!(
            error.starts_with("'100' is not a percentile above 0 and below 100"),
            "{error}"
        );
    }

    /// A percentile needs enough requests that at least one is expected beyond it.
    #[test]
    fn too_few_requests_have_no_percentile() {
        let mut times = Histogram::new();
        let of = |name: &str, times: &Histogram| Percentile::named(name).unwrap().of(times);
        for count in 1..=1000u64 {
            times.record(Nanos(count));
            assert_eq!(of("p95", &times).is_some(), count >= 20, "{count}");
            assert_eq!(of("p50", &times).is_some(), count >= 2, "{count}");
            assert_eq!(of("p99.9", &times).is_some(), count >= 1000, "{count}");
        }
        let all = [Percentile::P99_9, Percentile::P99_99];
        let kept = Percentile::of_each(&all, &times);
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), [Percentile::P99_9]);
    }
}
