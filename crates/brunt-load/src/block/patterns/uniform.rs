//! Uniform offsets.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo};
use crate::load::WorkloadError;

/// Uniform over the region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Uniform {}

/// The number of positions.
#[derive(Clone, Debug)]
pub(super) struct Sampler(u64);

impl AccessPattern for Uniform {
    const INFO: PatternInfo = PatternInfo {
        name: "uniform",
        help: "every offset is equally likely (default)",
        example: "{ kind = \"uniform\" }",
    };
    type Sampler = Sampler;

    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        None
    }

    fn sampler(&self, count: u64) -> Sampler {
        Sampler(count)
    }
}

impl Draw for Sampler {
    #[inline(always)] // once per request, from the worker's loop
    fn draw(&mut self, random: &mut Random) -> u64 {
        random.below(self.0)
    }
}
