//! The trait of distributions of sizes, separate from their table to avoid an import cycle.

use std::fmt::Debug;
use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;

use crate::load::WorkloadError;

/// Number of draws averaged by the default [`SizeDistribution::mean`]: its relative error is below 1 % unless sizes
/// differ by orders of magnitude.
const MEAN_DRAWS: u32 = 1 << 16;

/// Describes a distribution of sizes.
#[derive(Clone, Copy, Debug)]
pub struct SizeInfo {
    /// The distribution's name: the value of `kind`.
    pub name: &'static str,
    /// The distribution's one-line help.
    pub help: &'static str,
    /// A value of `blocks`.
    pub example: &'static str,
}

/// The settings of a distribution.
pub(super) trait SizeDistribution {
    /// Returns the distribution's description.
    fn info(&self) -> &'static SizeInfo;

    /// Checks the settings; errors name their key.
    fn check(&self) -> Result<(), WorkloadError>;

    /// Describes the distribution in a few words.
    fn describe(&self) -> String;

    /// Returns representative sizes: they include the smallest and the largest, and if both are multiples of a
    /// number, so are the others. Empty only for settings that fail their check.
    fn corners(&self) -> Vec<Size>;

    /// Returns the prepared distribution; the settings have passed their check.
    fn sampler(&self) -> Arc<dyn DrawSize>;

    /// Returns the mean size in bytes.
    fn mean(&self) -> f64 {
        let (sampler, mut random) = (self.sampler(), Random::new(0));
        let draws = (0..MEAN_DRAWS).map(|_| sampler.draw(&mut random) as f64);
        draws.sum::<f64>() / f64::from(MEAN_DRAWS)
    }
}

/// A prepared distribution. The same seed gives the same sizes in every version and on every machine.
pub(super) trait DrawSize: Debug + Send + Sync {
    /// Draws a size in bytes, without allocating.
    fn draw(&self, random: &mut Random) -> u64;
}
