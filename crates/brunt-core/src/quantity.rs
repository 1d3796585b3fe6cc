//! Sizes and durations in files written by users: strings with a unit (`"8k"`, `"10ms"`), or a whole number of bytes.
//! All such config fields use these two types, so the same spelling works everywhere.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

use crate::units::{format_duration, format_size_exact, parse_duration, parse_size};

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// Exact: the output parses back to the same value. For sizes that are only displayed,
/// use [`crate::units::format_size`].
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_size_exact(self.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl std::str::FromStr for Size {
    type Err = crate::units::UnitError;
    fn from_str(text: &str) -> Result<Size, Self::Err> {
        parse_size(text).map(Size)
    }
}

impl std::str::FromStr for Span {
    type Err = crate::units::UnitError;
    fn from_str(text: &str) -> Result<Span, Self::Err> {
        parse_duration(text).map(Span)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"4k\", \"1.5GiB\" or a number of bytes")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        struct SpanVisitor;
        impl Visitor<'_> for SpanVisitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, such as \"10ms\" or \"1.5s\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SpanVisitor)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes, or a number with a unit: k, M, G and T are binary, kB, MB, GB and TB decimal",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^ *[0-9_]*\\.?[0-9_]* *([kKmMgGtTpP]?[bB]?|[kKmMgGtTpP]i[bB])$" }
            ]
        })
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number with a unit: ns, us, ms, s, min (m), h, d",
            "type": "string",
            "pattern": "^ *(0|[0-9_]*\\.?[0-9_]* *(ns|us|µs|ms|s|m|min|h|d)) *$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values survive a round trip, to the byte and the nanosecond.
    #[test]
    fn quantities_survive_a_round_trip() {
        let sizes = [0, 1, 511, 4096, 1_610_612_736, 1_234_567_890_123, u64::MAX];
        for bytes in sizes.map(Size) {
            let text = serde_json::to_string(&bytes).unwrap();
            assert_eq!(
                serde_json::from_str::<Size>(&text).unwrap(),
                bytes,
                "{text}"
            );
        }
        let nanos = [
            0,
            1,
            999,
            1_000,
            1_500,
            10_000_000,
            1_500_000_000,
            3_600_000_000_001,
        ];
        for span in nanos.map(|nanos| Span(Duration::from_nanos(nanos))) {
            let text = serde_json::to_string(&span).unwrap();
            assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), span, "{text}");
        }
    }

    /// A number without a unit is accepted as a size but never as a duration.
    #[test]
    fn durations_need_their_unit() {
        assert_eq!(serde_json::from_str::<Size>("4096").unwrap(), Size(4096));
        assert!(serde_json::from_str::<Size>("-1").is_err());
        assert!(
            serde_json::from_str::<Span>("10")
                .unwrap_err()
                .to_string()
                .contains("10ms")
        );
        assert!(
            serde_json::from_str::<Size>("\"4q\"")
                .unwrap_err()
                .to_string()
                .contains("KiB")
        );
    }
}
