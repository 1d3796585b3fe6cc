//! The table of distributions of random offsets: one file and one line here for each. The generator draws a position in
//! `0..count` for each random request. Only a shuffle remembers earlier draws.

mod hot_zones;
mod kind;
mod normal;
mod pareto;
mod scatter;
mod shuffled;
#[cfg(test)]
mod test_only;
mod uniform;
mod zipf;

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::WorkloadError;
use kind::{AccessPattern, Draw};

pub use hot_zones::{HotZones, Zone};
pub use kind::PatternInfo;
pub(crate) use kind::percent;
pub use normal::Normal;
pub use pareto::Pareto;
pub use shuffled::Shuffled;
#[cfg(test)]
pub use test_only::LastOffset;
pub use uniform::Uniform;
pub use zipf::Zipf;

/// Defines [`OffsetDistribution`], [`OffsetSampler`] and [`PATTERNS`] from one line for each distribution. The first is
/// the default; its draws are inlined into the worker's loop.
macro_rules! patterns {
    ($first:ident, $($(#[$only:meta])* $pattern:ident,)*) => {
        /// Distribution of random offsets.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        #[allow(missing_docs)] // the settings of each distribution have their own documentation
        pub enum OffsetDistribution {
            $first($first),
            $($(#[$only])* $pattern($pattern),)*
        }

        impl Default for OffsetDistribution {
            fn default() -> OffsetDistribution {
                OffsetDistribution::$first($first::default())
            }
        }

        impl OffsetDistribution {
            /// Returns the distribution's entry in the table.
            pub fn info(&self) -> &'static PatternInfo {
                match self {
                    OffsetDistribution::$first(_) => &$first::INFO,
                    $($(#[$only])* OffsetDistribution::$pattern(_) => &$pattern::INFO,)*
                }
            }

            /// Checks the distribution's settings.
            ///
            /// # Errors
            /// The error names the first invalid key.
            pub fn check(&self) -> Result<(), WorkloadError> {
                match self {
                    OffsetDistribution::$first(pattern) => pattern.check(),
                    $($(#[$only])* OffsetDistribution::$pattern(pattern) => pattern.check(),)*
                }
            }

            /// Returns a description such as `zipf 1.1`; `None` for uniform offsets.
            pub fn describe(&self) -> Option<String> {
                match self {
                    OffsetDistribution::$first(pattern) => pattern.describe(),
                    $($(#[$only])* OffsetDistribution::$pattern(pattern) => pattern.describe(),)*
                }
            }
        }

        #[derive(Clone, Debug)]
        enum Law {
            $first(<$first as AccessPattern>::Sampler),
            $($(#[$only])* $pattern(<$pattern as AccessPattern>::Sampler),)*
        }

        impl Law {
            fn new(distribution: &OffsetDistribution, count: u64) -> Law {
                match distribution {
                    OffsetDistribution::$first(pattern) => Law::$first(pattern.sampler(count)),
                    $($(#[$only])* OffsetDistribution::$pattern(pattern) => Law::$pattern(pattern.sampler(count)),)*
                }
            }

            #[inline(always)] // once per request
            fn draw(&mut self, random: &mut Random) -> u64 {
                match self {
                    Law::$first(sampler) => sampler.draw(random),
                    law => law.draw_by_kind(random),
                }
            }

            #[inline(never)] // logarithms and powers take longer than the call
            fn draw_by_kind(&mut self, random: &mut Random) -> u64 {
                match self {
                    Law::$first(sampler) => sampler.draw(random),
                    $($(#[$only])* Law::$pattern(sampler) => sampler.draw(random),)*
                }
            }
        }

        /// All distributions of random offsets.
        pub static PATTERNS: &[&PatternInfo] = &[&$first::INFO, $($(#[$only])* &$pattern::INFO,)*];
    };
}

patterns! {
    Uniform,
    Shuffled,
    Zipf,
    Pareto,
    Normal,
    HotZones,
    #[cfg(test)] LastOffset,
}

/// A prepared distribution over `0..count`.
#[derive(Clone, Debug)]
pub struct OffsetSampler(Law);

impl OffsetSampler {
    /// Prepares `distribution` over `count` positions.
    ///
    /// # Panics
    /// Panics if `count` is zero. [`crate::Workload::check`] has validated the other parameters.
    pub fn new(distribution: &OffsetDistribution, count: u64) -> OffsetSampler {
        assert!(count > 0, "a pattern needs at least one position");
        OffsetSampler(Law::new(distribution, count))
    }

    /// Draws the next position.
    #[inline(always)] // once per request
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        self.0.draw(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::workload::Workload;

    /// Names are unique; every pattern has help, and an example that parses, passes its check, round-trips through
    /// text, and draws the same positions for the same seed.
    #[test]
    fn every_pattern_has_help_and_a_valid_example() {
        for (index, info) in PATTERNS.iter().enumerate() {
            let name = info.name;
            assert!(
                PATTERNS[..index].iter().all(|other| other.name != name),
                "{name} appears twice"
            );
            assert!(!info.help.is_empty(), "{name}");
            let text = format!("distribution = {}", info.example);
            let workload: Workload = toml::from_str(&text).unwrap();
            let distribution = workload.distribution;
            assert_eq!(distribution.info().name, name);
            assert_eq!(distribution.check(), Ok(()), "{name}");
            let written = toml::Value::try_from(&distribution).unwrap();
            let original: toml::Table = toml::from_str(&text).unwrap();
            assert_eq!(written, original["distribution"], "{name}");
            assert_eq!(written["kind"].as_str(), Some(name));
            let json = serde_json::to_string(&distribution).unwrap();
            let read: OffsetDistribution = serde_json::from_str(&json).unwrap();
            assert_eq!(read, distribution, "{json}");
            assert_eq!(
                counts(&distribution, 50, 1000),
                counts(&distribution, 50, 1000),
                "{name}"
            );
            let unknown = text.replace(" }", ", unknown = 1 }");
            assert!(toml::from_str::<Workload>(&unknown).is_err(), "{unknown}");
        }
    }

    fn counts(distribution: &OffsetDistribution, positions: u64, draws: u32) -> Vec<u32> {
        let (mut pattern, mut random) =
            (OffsetSampler::new(distribution, positions), Random::new(5));
        let mut counts = vec![0; positions as usize];
        (0..draws).for_each(|_| counts[pattern.draw(&mut random) as usize] += 1);
        counts
    }

    /// Rank k of Zipf is drawn in proportion to 1/k^theta, including theta = 1.
    #[test]
    fn zipf_ranks_have_their_probability() {
        for theta in [0.5, 1.0, 1.2] {
            let (count, draws) = (100, 400_000);
            let mut counts = counts(&OffsetDistribution::Zipf(Zipf { theta }), count, draws);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let total: f64 = (1..=count).map(|k| (k as f64).powf(-theta)).sum();
            for rank in [1usize, 2, 5, 20] {
                let expected = f64::from(draws) * (rank as f64).powf(-theta) / total;
                let got = f64::from(counts[rank - 1]);
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 0.02 * expected,
                    "{theta} {rank}"
                );
            }
        }
    }

    /// An 80/20 distribution is again 80/20 within the 20 percent.
    #[test]
    fn pareto_is_self_similar() {
        let mut counts = counts(
            &OffsetDistribution::Pareto(Pareto { skew: 0.2 }),
            1000,
            200_000,
        );
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |n| f64::from(counts[..n].iter().sum::<u32>()) / 200_000.0;
        assert!((share(200) - 0.8).abs() < 0.01, "{}", share(200));
        assert!((share(40) - 0.64).abs() < 0.01, "{}", share(40));
    }

    /// Positions drawn from zones and from the normal distribution are distributed as specified, and all are inside
    /// the region.
    #[test]
    fn zones_and_normal_draws_are_in_their_places() {
        let zones =
            [(0.7, 0.1), (0.0, 0.4), (0.3, 0.5)].map(|(access, size)| Zone { access, size });
        let zoned = counts(
            &OffsetDistribution::HotZones(HotZones {
                zones: zones.to_vec(),
            }),
            1000,
            100_000,
        );
        let share = |counts: &[u32], from: usize, to: usize| {
            f64::from(counts[from..to].iter().sum::<u32>()) / 100_000.0
        };
        assert!((share(&zoned, 0, 100) - 0.7).abs() < 0.01);
        assert_eq!(share(&zoned, 100, 500), 0.0);
        let bell = counts(
            &OffsetDistribution::Normal(Normal {
                mean: 0.5,
                deviation: 0.1,
            }),
            1000,
            100_000,
        );
        assert!((share(&bell, 400, 600) - 0.6827).abs() < 0.01);
        let edge = counts(
            &OffsetDistribution::Normal(Normal {
                mean: 0.0,
                deviation: 0.1,
            }),
            10,
            1000,
        );
        assert_eq!(edge.iter().sum::<u32>(), 1000);
    }

    /// Every distribution works with a single position, two positions, and huge regions.
    #[test]
    fn every_distribution_works_with_one_position_and_huge_regions() {
        let laws = [
            OffsetDistribution::Uniform(Uniform {}),
            OffsetDistribution::Shuffled(Shuffled {}),
            OffsetDistribution::Zipf(Zipf { theta: 1.1 }),
            OffsetDistribution::Zipf(Zipf { theta: 20.0 }),
            OffsetDistribution::Pareto(Pareto { skew: 0.1 }),
            OffsetDistribution::Normal(Normal {
                mean: 1.0,
                deviation: 1e-9,
            }),
            OffsetDistribution::HotZones(HotZones {
                zones: vec![
                    Zone {
                        access: 0.5,
                        size: 0.001,
                    },
                    Zone {
                        access: 0.5,
                        size: 0.999,
                    },
                ],
            }),
        ];
        for law in &laws {
            for count in [1, 2, 3, 1 << 40] {
                let (mut pattern, mut random) = (OffsetSampler::new(law, count), Random::new(9));
                assert!(
                    (0..1000).all(|_| pattern.draw(&mut random) < count),
                    "{law:?} over {count}"
                );
            }
        }
    }
}
