//! The smallest pattern, only for tests: it shows what a new one requires.

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{AccessPattern, Draw, PatternInfo};
use crate::load::WorkloadError;

/// Always the last offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LastOffset {}

#[derive(Clone, Debug)]
pub(super) struct Sampler(u64);

impl AccessPattern for LastOffset {
    const INFO: PatternInfo = PatternInfo {
        name: "last-offset",
        help: "always the last offset",
        example: "{ kind = \"last-offset\" }",
    };
    type Sampler = Sampler;

    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some("the last block".into())
    }

    fn sampler(&self, count: u64) -> Sampler {
        Sampler(count - 1)
    }
}

impl Draw for Sampler {
    fn draw(&mut self, _random: &mut Random) -> u64 {
        self.0
    }
}
