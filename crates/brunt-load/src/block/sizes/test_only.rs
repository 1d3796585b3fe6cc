//! The smallest distribution, only for tests: it shows what a new one requires.

use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{DrawSize, SizeDistribution, SizeInfo};
use crate::load::WorkloadError;

/// Always one sector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SectorSizes {}

impl SectorSizes {
    pub(super) const INFO: SizeInfo = SizeInfo {
        name: "sector",
        help: "always one sector",
        example: "{ kind = \"sector\" }",
    };
}

#[derive(Debug)]
struct Sampler;

impl SizeDistribution for SectorSizes {
    fn info(&self) -> &'static SizeInfo {
        &SectorSizes::INFO
    }

    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn describe(&self) -> String {
        "one sector".into()
    }

    fn corners(&self) -> Vec<Size> {
        vec![Size(512)]
    }

    fn sampler(&self) -> Arc<dyn DrawSize> {
        Arc::new(Sampler)
    }
}

impl DrawSize for Sampler {
    fn draw(&self, _random: &mut Random) -> u64 {
        512
    }
}
