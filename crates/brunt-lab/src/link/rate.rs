//! Line rates as people write them: `"100Mb/s"`, `"1Gb/s"`.
//!
//! Read from experiment files and sweeps. The rule: rates are decimal and in bits, as is usual for lines; a rate in
//! bytes is rejected rather than guessed at.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bits per second: `"100Mb/s"`, `"1Gb/s"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(pub u64);

/// Units of a bit rate; decimal, as usual for lines.
const RATE_UNITS: [(&str, u64); 4] = [
    ("gb/s", 1_000_000_000),
    ("mb/s", 1_000_000),
    ("kb/s", 1_000),
    ("b/s", 1),
];

/// Why a text is not a line rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitRateError {
    /// Storage counts in bytes: "100MB/s" read as bits would be an eighth of the intended rate.
    #[error("'{text}' is in bytes, but a line rate is in bits; write \"8Mb/s\" for 1MB/s")]
    InBytes {
        /// The text.
        text: String,
    },
    /// Not a number with a unit, or out of range.
    #[error("'{text}' is not a line rate; write \"100Mb/s\" or \"1Gb/s\"")]
    NotARate {
        /// The text.
        text: String,
    },
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = [
            ("Gb/s", 1_000_000_000),
            ("Mb/s", 1_000_000),
            ("kb/s", 1_000),
            ("b/s", 1),
        ];
        // The largest unit in which the rate is exact with at most three decimals.
        let exact = |scale: u64| {
            self.0 >= scale && (u128::from(self.0) * 1000).is_multiple_of(u128::from(scale))
        };
        let (unit, scale) = written
            .into_iter()
            .find(|(_, scale)| exact(*scale))
            .unwrap_or(("b/s", 1));
        write!(f, "{}{unit}", self.0 as f64 / scale as f64)
    }
}

impl FromStr for BitRate {
    type Err = BitRateError;
    fn from_str(text: &str) -> Result<BitRate, BitRateError> {
        if text.trim_end().ends_with("B/s") {
            return Err(BitRateError::InBytes {
                text: text.to_string(),
            });
        }
        let lower = text.trim().to_ascii_lowercase().replace("bit", "b");
        let mistake = || BitRateError::NotARate {
            text: text.to_string(),
        };
        let (unit, scale) = RATE_UNITS
            .iter()
            .find(|(unit, _)| lower.ends_with(unit))
            .ok_or_else(mistake)?;
        let number: f64 = lower[..lower.len() - unit.len()]
            .trim()
            .parse()
            .map_err(|_| mistake())?;
        let bits = number * *scale as f64;
        if bits.is_finite() && (0.0..1e18).contains(&bits) {
            Ok(BitRate(bits.round() as u64))
        } else {
            Err(mistake())
        }
    }
}

impl Serialize for BitRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BitRate, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for BitRate {
    fn schema_name() -> Cow<'static, str> {
        "BitRate".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bits per second with a decimal unit: b/s, kb/s, Mb/s, Gb/s",
            "type": "string",
            "pattern": "^ *[0-9]+\\.?[0-9]* *[kKmMgG]?b(it)?/s *$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates parse in the usual units, and round-trip exactly.
    #[test]
    fn rates_round_trip() {
        let check = |text: &str, bits| assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        check("100Mb/s", 100_000_000);
        check("1 Gbit/s", 1_000_000_000);
        check("1.5gb/s", 1_500_000_000);
        check("9600b/s", 9600);
        for bits in [1, 9600, 100_000_000, 1_500_000_000, 123_456_789] {
            assert_eq!(BitRate(bits).to_string().parse(), Ok(BitRate(bits)));
        }
        for text in ["100MB/s", "1 GB/s", "100B/s "] {
            let error = text.parse::<BitRate>().unwrap_err();
            assert!(
                matches!(error, BitRateError::InBytes { .. }),
                "{text}: {error}"
            );
        }
        for text in ["100", "fast", "-1Mb/s", "1e30Gb/s", "NaNb/s", ""] {
            let error = text.parse::<BitRate>().unwrap_err();
            assert!(
                matches!(error, BitRateError::NotARate { .. }),
                "{text}: {error}"
            );
        }
    }
}
