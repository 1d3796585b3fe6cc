//! Offsets with a normal distribution.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo, percent};
use crate::load::{WorkloadError, wrong};

/// Maximum number of redraws for positions outside the region; after that, the nearest position is used.
const DRAWS_MAX: u32 = 64;

/// Normal distribution around one offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Normal {
    /// Mean offset as a share of the region, 0 to 1.
    #[serde(default = "half")]
    pub mean: f64,
    /// Standard deviation as a share of the region, above 0.
    pub deviation: f64,
}

/// Mean and deviation in positions.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    mean: f64,
    deviation: f64,
    count: u64,
}

impl AccessPattern for Normal {
    const INFO: PatternInfo = PatternInfo {
        name: "normal",
        help: "normal distribution around one offset",
        example: "{ kind = \"normal\", mean = 0.5, deviation = 0.1 }",
    };
    type Sampler = Sampler;

    fn check(&self) -> Result<(), WorkloadError> {
        let Normal { mean, deviation } = *self;
        if !(0.0..=1.0).contains(&mean) {
            wrong(
                "distribution.mean",
                format!("{mean} is not a share of the region; write 0 to 1"),
            )?;
        }
        if !(deviation > 0.0 && deviation <= 10.0) {
            wrong(
                "distribution.deviation",
                format!("{deviation} is out of range (above 0, at most 10 regions)"),
            )?;
        }
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some(format!(
            "normal around {} ± {}",
            percent(self.mean),
            percent(self.deviation)
        ))
    }

    fn sampler(&self, count: u64) -> Sampler {
        Sampler {
            mean: self.mean * count as f64,
            deviation: self.deviation * count as f64,
            count,
        }
    }
}

impl Draw for Sampler {
    fn draw(&mut self, random: &mut Random) -> u64 {
        let mut place = 0.0;
        for _ in 0..DRAWS_MAX {
            place = self.mean + self.deviation * random.normal();
            if place >= 0.0 && place < self.count as f64 {
                break;
            }
        }
        (place.max(0.0) as u64).min(self.count - 1)
    }
}

fn half() -> f64 {
    0.5
}
