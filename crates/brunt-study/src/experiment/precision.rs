//! The required precision of each point, and its limits: `precision`, `repetitions_max` and `time_max` of an
//! experiment. The study checks it after each round of runs.

use std::borrow::Cow;
use std::fmt;

use brunt_core::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::mistake::{FileError, Source};
use super::{Experiment, REPETITIONS_MAX};

/// Maximum number of runs of a point that has a precision but no limit.
const RUNS_USUAL_MAX: u32 = 30;

/// Half-width of a confidence interval relative to its mean, written in percent: `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision(pub f64);

/// An invalid precision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a percentage above 0 and up to 100; write for example \"5%\"")]
pub struct PrecisionError(String);

impl std::str::FromStr for Precision {
    type Err = PrecisionError;

    fn from_str(text: &str) -> Result<Precision, PrecisionError> {
        let number = text
            .trim()
            .strip_suffix('%')
            .and_then(|number| number.trim().parse::<f64>().ok());
        let percent = number.filter(|number| *number > 0.0 && *number <= 100.0);
        percent
            .map(|percent| Precision(percent / 100.0))
            .ok_or_else(|| PrecisionError(text.to_string()))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded to the digits that users write: otherwise 0.05 could become 5.000000000000001%.
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

impl Serialize for Precision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Precision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Precision {
    fn schema_name() -> Cow<'static, str> {
        "Percentage".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A percentage, such as 5%",
            "type": "string",
            "pattern": "^ *[0-9]*\\.?[0-9]+ *% *$"
        })
    }
}

/// Decides when a study stops repeating a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrecisionGoal {
    /// Target half-width of each point's interval, relative to its mean.
    pub half_width: f64,
    /// Maximum number of runs of a point.
    pub repetitions_max: u32,
    /// No round of runs starts after this time.
    pub time_max: Option<Span>,
}

impl Experiment {
    /// The requested precision, if any.
    pub fn precision_goal(&self) -> Option<PrecisionGoal> {
        let usual = if self.time_max.is_some() {
            REPETITIONS_MAX
        } else {
            RUNS_USUAL_MAX
        };
        self.precision.map(|Precision(half_width)| PrecisionGoal {
            half_width,
            repetitions_max: self.repetitions_max.unwrap_or(usual).max(self.repetitions),
            time_max: self.time_max,
        })
    }

    pub(super) fn check_precision(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let limits = [
            ("repetitions_max", self.repetitions_max.is_some()),
            ("time_max", self.time_max.is_some()),
        ];
        if let Some((key, _)) = limits
            .iter()
            .find(|(_, given)| *given && self.precision.is_none())
        {
            let what =
                format!("{key} is set without a precision: each point is run `repetitions` times");
            return Err(source.mistake(
                &[key],
                what,
                Some("add precision = \"5%\", or omit it".into()),
            ));
        }
        let (least, most) = (
            self.repetitions,
            self.repetitions_max.unwrap_or(self.repetitions),
        );
        if !(least..=REPETITIONS_MAX).contains(&most) {
            let what = format!(
                "at most {most} repetitions; write {least} (repetitions) to {REPETITIONS_MAX}"
            );
            return Err(source.mistake(&["repetitions_max"], what, None));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_and_written() {
        for (text, share) in [
            ("5%", 0.05),
            ("0.5%", 0.005),
            ("100 %", 1.0),
            ("2.25%", 0.0225),
        ] {
            let read: Precision = text.parse().unwrap();
            assert!((read.0 - share).abs() < 1e-12, "{text}");
            assert_eq!(read.to_string().parse::<Precision>().unwrap(), read);
        }
        for text in ["5", "0%", "101%", "-1%", "%", ""] {
            assert_eq!(text.parse::<Precision>(), Err(PrecisionError(text.into())));
        }
    }
}
