//! The percentiles of response times that an experiment shows: its key `percentiles`.

use std::borrow::Cow;

use brunt_result::percentile::{Percentile, PercentileError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Experiment;

/// Maximum number of percentiles: each is a column in every table.
const PERCENTILES_MAX: usize = 10;

/// Percentiles in ascending order, written as numbers: `[50, 99, 99.9]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Percentiles(Vec<Percentile>);

/// What is wrong with a list of percentiles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PercentilesError {
    /// A value isn't a percentile.
    #[error("percentiles: {0}")]
    Percentile(#[from] PercentileError),
    /// The list is empty or too long.
    #[error("percentiles has {0} values; write 1 to {PERCENTILES_MAX}, such as [50, 99, 99.9]")]
    Number(usize),
    /// A value is repeated.
    #[error("percentiles lists {0} twice")]
    Twice(Percentile),
}

impl Percentiles {
    /// Sorts these percentiles.
    ///
    /// # Errors
    /// There are none or too many, or one is repeated.
    pub fn new(mut all: Vec<Percentile>) -> Result<Percentiles, PercentilesError> {
        if !(1..=PERCENTILES_MAX).contains(&all.len()) {
            return Err(PercentilesError::Number(all.len()));
        }
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(PercentilesError::Twice(pair[0])),
            None => Ok(Percentiles(all)),
        }
    }
}

/// Serialized as users write them: 50 stays an integer.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u8),
    Decimal(f64),
}

impl Serialize for Percentiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|one| {
            let percent = one.percent();
            match percent.fract() == 0.0 {
                true => Number::Whole(percent as u8),
                false => Number::Decimal(percent),
            }
        }))
    }
}

impl<'de> Deserialize<'de> for Percentiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percentiles, D::Error> {
        let read = |numbers: Vec<f64>| {
            let each: Result<_, PercentileError> =
                numbers.into_iter().map(Percentile::new).collect();
            Percentiles::new(each?)
        };
        read(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Percentiles {
    fn schema_name() -> Cow<'static, str> {
        "Percentiles".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Percentiles above 0 and below 100, such as [50, 99, 99.9]",
            "type": "array",
            "minItems": 1,
            "maxItems": PERCENTILES_MAX,
            "uniqueItems": true,
            "items": { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100 }
        })
    }
}

impl Experiment {
    /// The percentiles that the experiment chose to show; none if it uses the defaults.
    pub fn chosen_percentiles(&self) -> &[Percentile] {
        self.percentiles.as_ref().map_or(&[], |chosen| &chosen.0)
    }

    /// The percentiles to keep for each run: those that the experiment chose, and those that requirements name.
    pub fn kept_percentiles(&self) -> Vec<Percentile> {
        let required = self.require.iter().filter_map(|one| one.percentile());
        let mut kept: Vec<Percentile> = self.chosen_percentiles().to_vec();
        kept.extend(required);
        kept.sort_unstable();
        kept.dedup();
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_mistake;
    use super::*;

    const FILE: &str = "name = \"x\"\npercentiles = [99.9, 50, 95]\n[targets.d]\nurl = \"memory:1MiB\"\n\
                        [workloads.w]\nstop = { time = \"1s\" }\n";

    #[test]
    fn chosen_percentiles_are_read_and_written_in_order() {
        let required = format!("{FILE}[[require]]\nfigure = \"p99.99\"\nbelow = \"2ms\"\n");
        let experiment = Experiment::parse("x.toml", &required).unwrap();
        let names =
            |all: &[Percentile]| -> Vec<String> { all.iter().map(|one| one.to_string()).collect() };
        assert_eq!(
            names(experiment.chosen_percentiles()),
            ["p50", "p95", "p99.9"]
        );
        assert_eq!(
            names(&experiment.kept_percentiles()),
            ["p50", "p95", "p99.9", "p99.99"]
        );
        let toml = experiment.summary().toml;
        assert_eq!(
            names(&experiment.summary().percentiles),
            ["p50", "p95", "p99.9"]
        );
        let again = Experiment::parse("again.toml", &toml).unwrap();
        assert_eq!(again.percentiles, experiment.percentiles, "{toml}");
    }

    #[test]
    fn usual_percentiles_are_not_written() {
        let text = FILE.replace("percentiles = [99.9, 50, 95]\n", "");
        let experiment = Experiment::parse("x.toml", &text).unwrap();
        assert!(experiment.summary().percentiles.is_empty());
        assert_eq!(experiment.summary().shown_percentiles().len(), 3);
    }

    #[test]
    fn mistakes_name_the_key_and_what_is_right() {
        let check = |list: &str, said: &str| {
            let error = assert_mistake(&FILE.replace("[99.9, 50, 95]", list), 2, said);
            assert!(error.to_string().contains("percentiles"), "{error}");
        };
        check("[0]", "0 is not a percentile above 0 and below 100");
        check("[50, 100]", "100 is not a percentile");
        check("[99.12345678]", "at most six decimals");
        check("[]", "write 1 to 10, such as [50, 99, 99.9]");
        check("[50, 50.0]", "p50 twice");
    }
}
