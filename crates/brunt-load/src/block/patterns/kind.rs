//! The trait of distributions of random offsets, separate from their table to avoid an import cycle.

use brunt_core::random::Random;

use crate::load::WorkloadError;

/// Describes a distribution of random offsets.
#[derive(Clone, Copy, Debug)]
pub struct PatternInfo {
    /// The distribution's name: the value of `kind`.
    pub name: &'static str,
    /// The distribution's one-line help.
    pub help: &'static str,
    /// A value of `distribution`.
    pub example: &'static str,
}

/// The settings of a distribution.
pub(super) trait AccessPattern {
    /// The distribution's description.
    const INFO: PatternInfo;
    /// The prepared distribution.
    type Sampler: Draw;

    /// Checks the settings; errors name their key.
    fn check(&self) -> Result<(), WorkloadError>;

    /// Returns a description such as `zipf 1.1`; `None` for the default.
    fn describe(&self) -> Option<String>;

    /// Prepares it over `0..count`; `count` is above zero and the settings have passed their check.
    fn sampler(&self, count: u64) -> Self::Sampler;
}

/// A prepared distribution over `0..count`. The same seed gives the same positions in every version.
pub(super) trait Draw {
    /// Draws the next position, without allocating.
    fn draw(&mut self, random: &mut Random) -> u64;
}

/// Formats a share with one decimal unless that is zero.
pub(crate) fn percent(share: f64) -> String {
    let percent = (share * 1000.0).round() / 10.0;
    format!("{percent} %")
}
