//! Offsets with a Zipf distribution.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo};
use super::scatter::Scatter;
use crate::load::{WorkloadError, wrong};

/// Zipf: the block of rank k is accessed with probability proportional to 1/k^theta. Ranks are scattered over the
/// region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zipf {
    /// Exponent, above 0; 1.1 is common.
    pub theta: f64,
}

/// Draws ranks and scatters them over the region.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    ranks: Ranks,
    scatter: Scatter,
}

impl AccessPattern for Zipf {
    const INFO: PatternInfo = PatternInfo {
        name: "zipf",
        help: "the block of rank k with probability proportional to 1/k^theta",
        example: "{ kind = \"zipf\", theta = 1.1 }",
    };
    type Sampler = Sampler;

    fn check(&self) -> Result<(), WorkloadError> {
        let theta = self.theta;
        if theta > 0.0 && theta <= 20.0 {
            return Ok(());
        }
        wrong(
            "distribution.theta",
            format!("{theta} is out of range (above 0, at most 20)"),
        )
    }

    fn describe(&self) -> Option<String> {
        Some(format!("zipf {}", self.theta))
    }

    fn sampler(&self, count: u64) -> Sampler {
        Sampler {
            ranks: Ranks::new(count, self.theta),
            scatter: Scatter::new(count),
        }
    }
}

impl Draw for Sampler {
    fn draw(&mut self, random: &mut Random) -> u64 {
        self.scatter.apply(self.ranks.draw(random) - 1)
    }
}

/// Zipf by rejection-inversion (Hörmann, Derflinger: Rejection-inversion to generate variates from monotone discrete
/// distributions, 1996). It needs no table, so a region may have any size.
#[derive(Clone, Debug)]
struct Ranks {
    count: f64,
    theta: f64,
    area_first: f64,
    area_last: f64,
    squeeze: f64,
}

impl Ranks {
    fn new(count: u64, theta: f64) -> Ranks {
        let mut ranks = Ranks {
            count: count as f64,
            theta,
            area_first: 0.0,
            area_last: 0.0,
            squeeze: 0.0,
        };
        ranks.area_first = ranks.area(1.5) - 1.0;
        ranks.area_last = ranks.area(ranks.count + 0.5);
        ranks.squeeze = 2.0 - ranks.area_inverse(ranks.area(2.5) - ranks.height(2.0));
        ranks
    }

    /// Draws a rank in `1..=count`.
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = libm::round(x).clamp(1.0, self.count);
            if rank - x <= self.squeeze || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }

    /// x^-theta.
    fn height(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// Returns the integral of the height from 1 to x.
    fn area(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        let log = libm::log(x);
        if power.abs() < 1e-12 {
            log
        } else {
            libm::expm1(power * log) / power
        }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-12 {
            libm::exp(area)
        } else {
            // Rounding may push the argument just below -1, where the logarithm is undefined.
            libm::exp(libm::log1p((area * power).max(-1.0 + f64::EPSILON)) / power)
        }
    }
}
