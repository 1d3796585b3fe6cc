//! Shares as users write them: a number from 0 to 1 such as `0.01`, or a percentage such as `"1%"`. All share keys of
//! links and faults are parsed here.
//!
//! The rule: this module only parses; code that knows the valid range checks it and reports violations with
//! [`mistake`].

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A share in a file, for schemas and lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

/// How to write a share, for error messages.
pub const FORMS: &str = "write a number from 0 to 1 or a percentage, such as 0.01 or \"1%\"";

/// Parses `0.01` or `1%`; `None` if it is neither. The range is not checked.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let number = |text: &str| {
        let number: f64 = text.trim_end().parse().ok()?;
        number.is_finite().then_some(number)
    };
    match text.strip_suffix('%') {
        // Rounded to the digits that users write: 7 % is 0.07, not 0.07000000000000001.
        Some(percent) => Some((number(percent)? * 1e10).round() / 1e12),
        None => number(text),
    }
}

/// The message for an invalid share.
pub fn mistake(value: impl fmt::Display) -> String {
    format!("{value} is not a share; {FORMS}")
}

/// An invalid share. The message doesn't include the key, because serde adds it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoShare(String);

struct ShareVisitor;

impl Visitor<'_> for ShareVisitor {
    type Value = Result<f64, NoShare>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 1 or a percentage such as \"1%\"")
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Ok(number))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Ok(number as f64))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Ok(number as f64))
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Err(NoShare(mistake(value))))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(parse(text).ok_or_else(|| NoShare(mistake(format_args!("'{text}'")))))
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        let read = deserializer.deserialize_any(ShareVisitor)?;
        read.map(Share).map_err(D::Error::custom)
    }
}

impl JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A share: a number from 0 to 1, or a percentage such as 1%",
            "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "string", "pattern": "^ *[0-9]*\\.?[0-9]+ *%? *$" }
            ]
        })
    }
}

/// Parses the share of a key; errors include the key.
fn of_key<'de, D: Deserializer<'de>>(key: &str, deserializer: D) -> Result<f64, D::Error> {
    let read = deserializer.deserialize_any(ShareVisitor)?;
    read.map_err(|what| D::Error::custom(format!("{key}: {what}")))
}

/// Defines functions for serde's `deserialize_with`, two per key: for a required share and for an optional one.
macro_rules! keys {
    ($($key:ident)*) => {
        /// Functions for required keys.
        pub mod set {
            $(
                #[doc = concat!("Reads `", stringify!($key), "`.\n\n# Errors\nIf it isn't a share.")]
                pub fn $key<'de, D: super::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
                    super::of_key(stringify!($key), from)
                }
            )*
        }
        /// Functions for optional keys.
        pub mod optional {
            $(
                #[doc = concat!("Reads `", stringify!($key), "`.\n\n# Errors\nIf it isn't a share.")]
                pub fn $key<'de, D: super::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
                    super::of_key(stringify!($key), from).map(Some)
                }
            )*
        }
    };
}

keys! { loss loss_correlation corrupt ecn duplicate reorder to_bad to_good loss_good loss_bad cpu }

/// Parses the list `link_loss` of a sweep.
///
/// # Errors
/// An element isn't a share.
pub fn link_loss<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    struct OfLink(f64);
    impl<'de> Deserialize<'de> for OfLink {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OfLink, D::Error> {
            of_key("link_loss", deserializer).map(OfLink)
        }
    }
    let all = Vec::<OfLink>::deserialize(from)?;
    Ok(all.into_iter().map(|one| one.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_percentages_are_parsed() {
        for (text, share) in [
            ("0.01", 0.01),
            ("1%", 0.01),
            ("7%", 0.07),
            (" 0.5 % ", 0.005),
            ("100%", 1.0),
            ("0", 0.0),
            ("150%", 1.5),
        ] {
            assert_eq!(parse(text), Some(share), "{text}");
        }
        for text in ["", "%", "one", "1%%", "nan", "inf%", "1 percent"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
