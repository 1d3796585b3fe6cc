//! Sizes whose logarithms have a normal distribution.

use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{DrawSize, SizeDistribution, SizeInfo};
use super::range::SizeRange;
use crate::load::{WorkloadError, wrong};

/// Log-normal: most sizes are near `median`, and a few are many times larger, as in many file systems and object
/// stores. Sizes are rounded to whole steps; those outside the range are drawn again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogNormalSizes {
    /// Half of the sizes are smaller, before those outside the range are drawn again.
    pub median: Size,
    /// Standard deviation of the sizes' natural logarithms, above 0 and at most 10: two thirds of the sizes are within a
    /// factor of e^sigma of the median.
    pub sigma: f64,
    /// Smallest size.
    pub min: Size,
    /// Largest size, if it is a whole number of steps from the smallest.
    pub max: Size,
    /// Distance between sizes; default: `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Size>,
}

impl LogNormalSizes {
    pub(super) const INFO: SizeInfo = SizeInfo {
        name: "log-normal",
        help: "most sizes near a median, and a few many times larger",
        example: "{ kind = \"log-normal\", median = \"16KiB\", sigma = 1.0, min = \"4KiB\", max = \"1MiB\" }",
    };

    fn range(&self) -> SizeRange {
        SizeRange::new(self.min, self.max, self.step)
    }
}

#[derive(Debug)]
struct Sampler {
    median: f64,
    sigma: f64,
    range: SizeRange,
}

impl SizeDistribution for LogNormalSizes {
    fn info(&self) -> &'static SizeInfo {
        &LogNormalSizes::INFO
    }

    fn check(&self) -> Result<(), WorkloadError> {
        self.range().check()?;
        let LogNormalSizes {
            median, sigma, min, ..
        } = *self;
        let max = Size(self.range().size(u64::MAX));
        if !(min..=max).contains(&median) {
            wrong(
                "blocks.median",
                format!("{median} is not from {min} to {max}"),
            )?;
        }
        if !(sigma > 0.0 && sigma <= 10.0) {
            wrong(
                "blocks.sigma",
                format!("{sigma} is out of range (above 0, at most 10)"),
            )?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!(
            "{}, log-normal around {} (sigma {})",
            self.range().describe(),
            self.median,
            self.sigma
        )
    }

    fn corners(&self) -> Vec<Size> {
        self.range().corners()
    }

    fn sampler(&self) -> Arc<dyn DrawSize> {
        Arc::new(Sampler {
            median: self.median.0 as f64,
            sigma: self.sigma,
            range: self.range(),
        })
    }
}

impl DrawSize for Sampler {
    fn draw(&self, random: &mut Random) -> u64 {
        let bytes = |random: &mut Random| self.median * libm::exp(self.sigma * random.normal());
        self.range.draw(random, bytes)
    }
}
