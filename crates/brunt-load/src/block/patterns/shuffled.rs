//! Every offset once per pass.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo};
use crate::block::shuffle::Shuffle;
use crate::load::WorkloadError;

/// Every offset once in random order, then once more in another order, and so on. Each worker covers all offsets, or
/// only those of its part if the region is divided among workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shuffled {}

impl AccessPattern for Shuffled {
    const INFO: PatternInfo = PatternInfo {
        name: "shuffled",
        help: "every offset once in a random order, then again in a different order",
        example: "{ kind = \"shuffled\" }",
    };
    type Sampler = Shuffle;

    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some("each block once per pass".into())
    }

    fn sampler(&self, count: u64) -> Shuffle {
        Shuffle::new(count)
    }
}

impl Draw for Shuffle {
    fn draw(&mut self, random: &mut Random) -> u64 {
        Shuffle::draw(self, random)
    }
}
