//! Sizes with weights: the only distribution that is written as a list.

use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;
use brunt_core::units::format_size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{DrawSize, SizeDistribution, SizeInfo};
use crate::block::patterns::percent;
use crate::load::{WorkloadError, wrong};

/// Maximum number of block sizes.
pub const CHOICES_MAX: usize = 64;

/// A block size and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockSize {
    /// Size of a request.
    pub size: Size,
    /// Relative frequency: the share of requests is this divided by the sum of all weights.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// Each size with its cumulative probability.
#[derive(Clone, Debug)]
pub(super) struct Shares(Vec<(f64, u64)>);

impl Shares {
    pub fn of(list: &[BlockSize]) -> Shares {
        let total = weights(list);
        let mut sum = 0.0;
        let shares = list.iter().map(|block| {
            sum += block.weight;
            (sum / total, block.size.0)
        });
        Shares(shares.collect())
    }

    /// Draws a size; uses no random number if there is only one size.
    #[inline(always)] // once per request
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self.0[..] {
            [(_, size)] => size,
            ref sizes => {
                let draw = random.unit();
                sizes
                    .iter()
                    .find(|(below, _)| draw < *below)
                    .unwrap_or(&sizes[sizes.len() - 1])
                    .1
            }
        }
    }
}

impl DrawSize for Shares {
    fn draw(&self, random: &mut Random) -> u64 {
        Shares::draw(self, random)
    }
}

fn weights(list: &[BlockSize]) -> f64 {
    list.iter().map(|block| block.weight).sum()
}

pub(super) const INFO: SizeInfo = SizeInfo {
    name: "list",
    help: "sizes with their weights",
    example: "[{ size = \"4k\", weight = 3.0 }, { size = \"64k\", weight = 1.0 }]",
};

impl SizeDistribution for Vec<BlockSize> {
    fn info(&self) -> &'static SizeInfo {
        &INFO
    }

    fn check(&self) -> Result<(), WorkloadError> {
        if !(1..=CHOICES_MAX).contains(&self.len()) {
            wrong(
                "blocks",
                format!("give 1 to {CHOICES_MAX} block sizes, such as [{{ size = \"4k\" }}]"),
            )?;
        }
        for block in self {
            if block.size.0 == 0 || !block.size.0.is_multiple_of(512) {
                wrong(
                    "blocks",
                    format!("{} is not a multiple of 512 bytes", block.size),
                )?;
            }
            if !(block.weight > 0.0 && block.weight.is_finite()) {
                wrong(
                    "blocks",
                    format!("weight {} is not a number above 0", block.weight),
                )?;
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        if let [only] = &self[..] {
            return format_size(only.size.0);
        }
        let weights = weights(self);
        let share = |block: &BlockSize| {
            let share = percent(block.weight / weights);
            format!("{} ({share})", format_size(block.size.0))
        };
        self.iter().map(share).collect::<Vec<String>>().join(" + ")
    }

    fn corners(&self) -> Vec<Size> {
        self.iter().map(|block| block.size).collect()
    }

    fn sampler(&self) -> Arc<dyn DrawSize> {
        Arc::new(Shares::of(self))
    }

    fn mean(&self) -> f64 {
        let sizes = self.iter().map(|block| block.size.0 as f64 * block.weight);
        sizes.sum::<f64>() / weights(self)
    }
}
