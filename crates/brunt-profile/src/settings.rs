//! `[profile]` of an experiment file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Highest sampling rate.
pub const HZ_MAX: u32 = 5_000;
/// Default: a prime, so that samples don't run in step with timers of 100, 250 or 1000 Hz.
const HZ: u32 = 199;

/// Shows where CPU time goes during runs, by sampling the running functions (docs/profiles.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileSettings {
    /// Samples per second of each busy processor, 1 to 5000; default: 199.
    pub hz: u32,
}

impl Default for ProfileSettings {
    fn default() -> ProfileSettings {
        ProfileSettings { hz: HZ }
    }
}

impl ProfileSettings {
    /// Whether the rate is within its limits.
    pub fn is_valid(&self) -> bool {
        (1..=HZ_MAX).contains(&self.hz)
    }
}
