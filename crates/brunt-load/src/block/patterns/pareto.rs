//! Self-similar offsets.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo};
use super::scatter::Scatter;
use crate::load::{WorkloadError, wrong};

/// Self-similar: a share `1 - skew` of the requests goes to a share `skew` of the blocks (0.2 is the 80/20 rule),
/// recursively. Ranks are scattered over the region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// Share of blocks, above 0 and below 0.5.
    pub skew: f64,
}

/// The exponent of the distribution function's inverse.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    exponent: f64,
    scatter: Scatter,
    count: u64,
}

impl AccessPattern for Pareto {
    const INFO: PatternInfo = PatternInfo {
        name: "pareto",
        help: "self-similar, such as the 80/20 rule",
        example: "{ kind = \"pareto\", skew = 0.2 }",
    };
    type Sampler = Sampler;

    fn check(&self) -> Result<(), WorkloadError> {
        let skew = self.skew;
        if skew > 0.0 && skew < 0.5 {
            return Ok(());
        }
        wrong(
            "distribution.skew",
            format!("{skew} is out of range (above 0, below 0.5)"),
        )
    }

    fn describe(&self) -> Option<String> {
        Some(format!("pareto {}", self.skew))
    }

    fn sampler(&self, count: u64) -> Sampler {
        Sampler {
            // A share `skew` of the positions gets `1 - skew` of the draws: F(x) = x^(ln(1-s)/ln(s)).
            exponent: libm::log(self.skew) / libm::log(1.0 - self.skew),
            scatter: Scatter::new(count),
            count,
        }
    }
}

impl Draw for Sampler {
    fn draw(&mut self, random: &mut Random) -> u64 {
        let rank = (self.count as f64 * libm::pow(random.unit(), self.exponent)) as u64;
        self.scatter.apply(rank.min(self.count - 1))
    }
}
