//! Sizes with a heavy tail.

use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{DrawSize, SizeDistribution, SizeInfo};
use super::range::SizeRange;
use crate::load::{WorkloadError, wrong};

/// Pareto: the share of requests of size x or larger is (`min` / x) to the power `shape`, before the sizes above `max`
/// are excluded. Sizes are rounded down to whole steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParetoSizes {
    /// Exponent, above 0 and at most 100; smaller values give more large sizes.
    pub shape: f64,
    /// Smallest and most frequent size.
    pub min: Size,
    /// Largest size, if it is a whole number of steps from the smallest.
    pub max: Size,
    /// Distance between sizes; default: `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Size>,
}

impl ParetoSizes {
    pub(super) const INFO: SizeInfo = SizeInfo {
        name: "pareto",
        help: "mostly the smallest sizes, with a heavy tail",
        example: "{ kind = \"pareto\", shape = 1.2, min = \"4KiB\", max = \"1MiB\" }",
    };

    fn range(&self) -> SizeRange {
        SizeRange::new(self.min, self.max, self.step)
    }
}

#[derive(Debug)]
struct Sampler {
    min: f64,
    /// The share of the untruncated distribution up to the end of the last step.
    below: f64,
    exponent: f64,
    range: SizeRange,
}

impl SizeDistribution for ParetoSizes {
    fn info(&self) -> &'static SizeInfo {
        &ParetoSizes::INFO
    }

    fn check(&self) -> Result<(), WorkloadError> {
        self.range().check()?;
        let shape = self.shape;
        if !(shape > 0.0 && shape <= 100.0) {
            wrong(
                "blocks.shape",
                format!("{shape} is out of range (above 0, at most 100)"),
            )?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{}, Pareto {}", self.range().describe(), self.shape)
    }

    fn corners(&self) -> Vec<Size> {
        self.range().corners()
    }

    fn sampler(&self) -> Arc<dyn DrawSize> {
        let range = self.range();
        let (min, end) = (self.min.0 as f64, range.end() as f64);
        Arc::new(Sampler {
            min,
            below: 1.0 - libm::pow(min / end, self.shape),
            exponent: -1.0 / self.shape,
            range,
        })
    }
}

impl DrawSize for Sampler {
    fn draw(&self, random: &mut Random) -> u64 {
        let share = 1.0 - self.below * random.unit();
        self.range.floor(self.min * libm::pow(share, self.exponent))
    }
}
