//! Sizes with equal probability.

use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{DrawSize, SizeDistribution, SizeInfo};
use super::range::SizeRange;
use crate::load::WorkloadError;

/// Every size in a range equally often, like fio's `bsrange` and vdbench's `xfersize=(min,max,step)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniformSizes {
    /// Smallest size.
    pub min: Size,
    /// Largest size, if it is a whole number of steps from the smallest.
    pub max: Size,
    /// Distance between sizes; default: `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Size>,
}

impl UniformSizes {
    pub(super) const INFO: SizeInfo = SizeInfo {
        name: "uniform",
        help: "every size in a range equally often",
        example: "{ kind = \"uniform\", min = \"4KiB\", max = \"64KiB\" }",
    };

    fn range(&self) -> SizeRange {
        SizeRange::new(self.min, self.max, self.step)
    }
}

#[derive(Debug)]
struct Sampler(SizeRange);

impl SizeDistribution for UniformSizes {
    fn info(&self) -> &'static SizeInfo {
        &UniformSizes::INFO
    }

    fn check(&self) -> Result<(), WorkloadError> {
        self.range().check()
    }

    fn describe(&self) -> String {
        self.range().describe()
    }

    fn corners(&self) -> Vec<Size> {
        self.range().corners()
    }

    fn sampler(&self) -> Arc<dyn DrawSize> {
        Arc::new(Sampler(self.range()))
    }

    fn mean(&self) -> f64 {
        let range = self.range();
        (range.size(0) + range.size(u64::MAX)) as f64 / 2.0
    }
}

impl DrawSize for Sampler {
    /// Draws the same sizes as a list with equal weights.
    fn draw(&self, random: &mut Random) -> u64 {
        self.0.size((random.unit() * self.0.count() as f64) as u64)
    }
}
