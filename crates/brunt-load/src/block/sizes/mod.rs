//! The table of distributions of block sizes: one file and one line here for each. The generator draws a size for each
//! request.

mod kind;
mod list;
mod log_normal;
mod pareto;
mod range;
#[cfg(test)]
mod test_only;
mod uniform;

use std::fmt;
use std::sync::Arc;

use brunt_core::Size;
use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::load::WorkloadError;
use kind::{DrawSize, SizeDistribution};
use list::Shares;

pub use kind::SizeInfo;
pub use list::{BlockSize, CHOICES_MAX};
pub use log_normal::LogNormalSizes;
pub use pareto::ParetoSizes;
#[cfg(test)]
pub use test_only::SectorSizes;
pub use uniform::UniformSizes;

/// Defines [`SizeLaw`] and [`SIZES`] from one line for each distribution except the list.
macro_rules! sizes {
    ($($(#[$only:meta])* $name:ident($config:ident),)*) => {
        /// A distribution of block sizes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        #[allow(missing_docs)] // the settings of each distribution have their own documentation
        pub enum SizeLaw {
            $($(#[$only])* $name($config),)*
        }

        impl SizeLaw {
            fn as_distribution(&self) -> &dyn SizeDistribution {
                match self {
                    $($(#[$only])* SizeLaw::$name(config) => config,)*
                }
            }
        }

        /// All distributions of block sizes.
        pub static SIZES: &[&SizeInfo] = &[&list::INFO, $($(#[$only])* &$config::INFO,)*];
    };
}

sizes! {
    Uniform(UniformSizes),
    LogNormal(LogNormalSizes),
    Pareto(ParetoSizes),
    #[cfg(test)] Sector(SectorSizes),
}

/// Block sizes: a list with weights, or a distribution.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum BlockSizes {
    /// Sizes and their weights.
    List(Vec<BlockSize>),
    /// Sizes from a distribution.
    Law(SizeLaw),
}

impl BlockSizes {
    /// Always this size.
    pub fn only(size: Size) -> BlockSizes {
        BlockSizes::List(vec![BlockSize { size, weight: 1.0 }])
    }

    /// Returns the list; `None` for another distribution.
    pub fn list(&self) -> Option<&[BlockSize]> {
        match self {
            BlockSizes::List(list) => Some(list),
            BlockSizes::Law(_) => None,
        }
    }

    fn as_distribution(&self) -> &dyn SizeDistribution {
        match self {
            BlockSizes::List(list) => list,
            BlockSizes::Law(law) => law.as_distribution(),
        }
    }

    /// Returns the distribution's entry in the table.
    pub fn info(&self) -> &'static SizeInfo {
        self.as_distribution().info()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub fn check(&self) -> Result<(), WorkloadError> {
        self.as_distribution().check()
    }

    /// Returns a description such as `4KiB (75 %) + 64KiB (25 %)`.
    pub fn describe(&self) -> String {
        self.as_distribution().describe()
    }

    /// Returns representative sizes: they include the smallest and the largest, and if both are multiples of a
    /// number, so are the others.
    pub fn corners(&self) -> Vec<Size> {
        self.as_distribution().corners()
    }

    /// Returns the mean size in bytes.
    pub fn mean(&self) -> f64 {
        self.as_distribution().mean()
    }

    /// Returns true if sizes can differ.
    pub fn varies(&self) -> bool {
        let corners = self.corners();
        corners.iter().any(|size| *size != corners[0])
    }
}

impl From<Vec<BlockSize>> for BlockSizes {
    fn from(list: Vec<BlockSize>) -> BlockSizes {
        BlockSizes::List(list)
    }
}

/// Preserves the messages about wrong keys, which a derived implementation would lose.
impl<'de> Deserialize<'de> for BlockSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BlockSizes, D::Error> {
        struct SizesVisitor;
        impl<'de> Visitor<'de> for SizesVisitor {
            type Value = BlockSizes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of sizes such as [{ size = \"4k\" }], or a table with a kind")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<BlockSizes, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(BlockSizes::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BlockSizes, A::Error> {
                SizeLaw::deserialize(MapAccessDeserializer::new(map)).map(BlockSizes::Law)
            }
        }
        deserializer.deserialize_any(SizesVisitor)
    }
}

/// Prepared block sizes. A list's draws are inlined into the worker's loop.
#[derive(Clone, Debug)]
pub struct SizeSampler {
    shares: Shares,
    law: Option<Arc<dyn DrawSize>>,
}

impl SizeSampler {
    /// Prepares sizes that have passed their check.
    pub fn new(sizes: &BlockSizes) -> SizeSampler {
        SizeSampler {
            shares: Shares::of(sizes.list().unwrap_or_default()),
            law: match sizes {
                BlockSizes::List(_) => None,
                BlockSizes::Law(law) => Some(law.as_distribution().sampler()),
            },
        }
    }

    /// Draws the next size in bytes.
    #[inline(always)] // once per request
    pub fn draw(&self, random: &mut Random) -> u64 {
        match &self.law {
            None => self.shares.draw(random),
            Some(law) => law.draw(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::workload::Workload;

    fn of(text: &str) -> BlockSizes {
        let workload: Workload = toml::from_str(&format!("blocks = {text}")).unwrap();
        workload.blocks
    }

    fn draws(sizes: &BlockSizes, seed: u64) -> Vec<u64> {
        let (sampler, mut random) = (SizeSampler::new(sizes), Random::new(seed));
        (0..20_000).map(|_| sampler.draw(&mut random)).collect()
    }

    /// Names are unique; every distribution has help and an example that parses, passes its check, round-trips through
    /// text, draws the same sizes for the same seed, and respects its bounds and its mean.
    #[test]
    fn the_table() {
        for (index, info) in SIZES.iter().enumerate() {
            let name = info.name;
            assert!(SIZES[..index].iter().all(|other| other.name != name));
            assert!(!info.help.is_empty(), "{name}");
            let sizes = of(info.example);
            assert_eq!(sizes.info().name, name);
            assert_eq!(sizes.check(), Ok(()), "{name}");
            assert!(!sizes.describe().is_empty(), "{name}");
            let written = toml::Value::try_from(&sizes).unwrap();
            let kind = written.get("kind").and_then(|kind| kind.as_str());
            assert_eq!(kind.unwrap_or("list"), name);
            assert_eq!(of(&written.to_string()), sizes, "{written}");
            let json = serde_json::to_string(&sizes).unwrap();
            let read: BlockSizes = serde_json::from_str(&json).unwrap();
            assert_eq!(read, sizes, "{json}");
            let all = draws(&sizes, 1);
            assert_eq!(all, draws(&sizes, 1), "{name}");
            let corners = sizes.corners();
            let (least, most) = (corners.iter().min().unwrap(), corners.iter().max().unwrap());
            assert!(all.iter().all(|size| (least.0..=most.0).contains(size)));
            assert!(all.iter().all(|size| size.is_multiple_of(512)), "{name}");
            let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
            let expected = sizes.mean();
            assert!(
                (mean / expected - 1.0).abs() < 0.05,
                "{name}: {mean} {expected}"
            );
            let unknown = info.example.replace(" }", ", unknown = 1 }");
            let text = format!("blocks = {unknown}");
            assert!(toml::from_str::<Workload>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_uniform_range_draws_the_same_sizes_as_a_list() {
        let range = of("{ kind = \"uniform\", min = \"4k\", max = \"16k\" }");
        let list =
            of("[{ size = \"4k\" }, { size = \"8k\" }, { size = \"12k\" }, { size = \"16k\" }]");
        assert_eq!(draws(&range, 7), draws(&list, 7));
        let stepped = of("{ kind = \"uniform\", min = \"4k\", max = \"6k\", step = \"512\" }");
        assert_eq!(stepped.corners(), [4096, 4608, 6144].map(Size));
        assert!(stepped.varies() && !BlockSizes::only(Size(512)).varies());
        assert_eq!(stepped.describe(), "4KiB to 6KiB in steps of 512B");
    }

    /// The median of a log-normal distribution, and the share of a Pareto distribution's tail.
    #[test]
    fn shares_are_those_of_the_distribution() {
        let share = |sizes: &str, above: u64| {
            let all = draws(&of(sizes), 3);
            all.iter().filter(|size| **size > above).count() as f64 / all.len() as f64
        };
        let log_normal =
            "{ kind = \"log-normal\", median = \"64k\", sigma = 1, min = \"512\", max = \"1GiB\" }";
        assert!((share(log_normal, 64 << 10) - 0.5).abs() < 0.02);
        assert!((share(log_normal, 174 << 10) - 0.16).abs() < 0.02);
        let pareto = "{ kind = \"pareto\", shape = 1.0, min = \"512\", max = \"1GiB\" }";
        assert!((share(pareto, 5120) - 1.0 / 11.0).abs() < 0.01);
        // The share of sizes from 8 KiB on: 2^-1.2, corrected for the truncation at 1 MiB.
        let pareto = "{ kind = \"pareto\", shape = 1.2, min = \"4k\", max = \"1MiB\" }";
        assert!((share(pareto, 4096) - 0.4346).abs() < 0.01);
    }

    #[test]
    fn mistakes_are_reported_by_their_key() {
        let check = |text: &str, key: &str| {
            assert_eq!(of(text).check().unwrap_err().key, key, "{text}");
        };
        check("[]", "blocks");
        check("[{ size = \"100\" }]", "blocks");
        check(
            "{ kind = \"uniform\", min = \"100\", max = \"4k\" }",
            "blocks.min",
        );
        check(
            "{ kind = \"uniform\", min = \"8k\", max = \"4k\" }",
            "blocks.max",
        );
        check(
            "{ kind = \"uniform\", min = \"4k\", max = \"8k\", step = \"1\" }",
            "blocks.step",
        );
        check(
            "{ kind = \"log-normal\", median = \"1k\", sigma = 1, min = \"4k\", max = \"8k\" }",
            "blocks.median",
        );
        check(
            "{ kind = \"log-normal\", median = \"4k\", sigma = 0, min = \"4k\", max = \"8k\" }",
            "blocks.sigma",
        );
        check(
            "{ kind = \"pareto\", shape = -1, min = \"4k\", max = \"8k\" }",
            "blocks.shape",
        );
        let error = toml::from_str::<Workload>("blocks = { kind = \"unifrom\" }").unwrap_err();
        assert!(error.message().contains("unknown variant"), "{error}");
    }
}
