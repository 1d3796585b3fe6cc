//! Sizes of the files that a load creates: one size, or a distribution written like `blocks`. Used by NFS and
//! metadata loads.
//!
//! The rule: the size of a file depends only on its number and its owner's, so it is the same in every run, on every
//! host and in every version.

use std::fmt;

use brunt_core::Size;
use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::block::sizes::{BlockSizes, SizeSampler};
use crate::load::{WorkloadError, wrong};

/// Sizes of files: one, or a distribution.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum FileSizes {
    /// All files have this size.
    One(Size),
    /// Each file's size is drawn from a distribution.
    Drawn(BlockSizes),
}

impl FileSizes {
    /// Checks that all sizes are from 1 B to `bytes_max`. Errors name `key`.
    ///
    /// # Errors
    /// Invalid sizes.
    pub(crate) fn check(&self, key: &'static str, bytes_max: u64) -> Result<(), WorkloadError> {
        if let FileSizes::Drawn(sizes) = self
            && let Err(error) = sizes.check()
        {
            return wrong(key, format!("{} (as for {})", error.what, error.key));
        }
        for size in self.corners() {
            if !(1..=bytes_max).contains(&size.0) {
                wrong(key, format!("{size} is outside 1 B to {}", Size(bytes_max)))?;
            }
        }
        Ok(())
    }

    fn corners(&self) -> Vec<Size> {
        match self {
            FileSizes::One(size) => vec![*size],
            FileSizes::Drawn(sizes) => sizes.corners(),
        }
    }

    /// Returns the largest size in bytes.
    pub(crate) fn largest(&self) -> u64 {
        let sizes = self.corners().into_iter().map(|size| size.0);
        sizes.max().unwrap_or(0)
    }

    /// Returns true if files can differ in size.
    pub(crate) fn varies(&self) -> bool {
        match self {
            FileSizes::One(_) => false,
            FileSizes::Drawn(sizes) => sizes.varies(),
        }
    }

    /// Describes the sizes in a few words.
    pub(crate) fn describe(&self) -> String {
        match self {
            FileSizes::One(size) => size.to_string(),
            FileSizes::Drawn(sizes) => sizes.describe(),
        }
    }
}

impl From<Size> for FileSizes {
    fn from(size: Size) -> FileSizes {
        FileSizes::One(size)
    }
}

/// Preserves the messages about wrong keys, which a derived implementation would lose.
impl<'de> Deserialize<'de> for FileSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileSizes, D::Error> {
        struct FileSizesVisitor;
        impl<'de> Visitor<'de> for FileSizesVisitor {
            type Value = FileSizes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a size such as \"64k\", a list of sizes such as [{ size = \"4k\" }], or a table with a kind",
                )
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<FileSizes, E> {
                text.parse().map(FileSizes::One).map_err(E::custom)
            }
            fn visit_u64<E: Error>(self, bytes: u64) -> Result<FileSizes, E> {
                Size::deserialize(bytes.into_deserializer()).map(FileSizes::One)
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<FileSizes, E> {
                Size::deserialize(bytes.into_deserializer()).map(FileSizes::One)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<FileSizes, A::Error> {
                BlockSizes::deserialize(SeqAccessDeserializer::new(items)).map(FileSizes::Drawn)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileSizes, A::Error> {
                BlockSizes::deserialize(MapAccessDeserializer::new(map)).map(FileSizes::Drawn)
            }
        }
        deserializer.deserialize_any(FileSizesVisitor)
    }
}

/// The sizes of one owner's files.
#[derive(Clone, Debug)]
pub(crate) struct FileSizeSampler {
    drawn: Option<SizeSampler>,
    one: u64,
    owner: u64,
}

impl FileSizeSampler {
    /// Prepares sizes that have passed their check.
    pub(crate) fn new(sizes: &FileSizes, owner: u32) -> FileSizeSampler {
        let drawn = match sizes {
            FileSizes::One(_) => None,
            FileSizes::Drawn(sizes) => Some(SizeSampler::new(sizes)),
        };
        FileSizeSampler {
            drawn,
            one: sizes.largest(),
            owner: owner.into(),
        }
    }

    /// Returns the size in bytes of the file with this number.
    #[inline]
    pub(crate) fn size_of(&self, file: u64) -> u64 {
        match &self.drawn {
            None => self.one,
            Some(sizes) => sizes.draw(&mut Random::for_part(self.owner, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize, PartialEq)]
    struct Files {
        size: FileSizes,
    }

    fn read(text: &str) -> FileSizes {
        let files: Files = toml::from_str(&format!("size = {text}")).unwrap();
        let written = toml::to_string(&files).unwrap();
        assert_eq!(
            toml::from_str::<Files>(&written).unwrap(),
            files,
            "{written}"
        );
        files.size
    }

    #[test]
    fn a_file_has_the_same_size_whenever_it_is_asked_for() {
        let sizes = read(
            "{ kind = \"log-normal\", median = \"16k\", sigma = 1.5, min = \"512\", max = \"1MiB\" }",
        );
        let of = |owner| {
            let sampler = FileSizeSampler::new(&sizes, owner);
            (0..1000)
                .map(|file| sampler.size_of(file))
                .collect::<Vec<u64>>()
        };
        let first = of(0);
        assert_eq!(of(0), first);
        assert_ne!(of(1), first);
        let sampler = FileSizeSampler::new(&sizes, 0);
        assert_eq!(sampler.size_of(999), first[999], "in any order");
        assert!(first.iter().all(|size| (512..=1 << 20).contains(size)));
        let below = first.iter().filter(|size| **size <= 16 << 10).count();
        assert!(
            (450..550).contains(&below),
            "{below} of 1000 below the median"
        );
        let one = FileSizeSampler::new(&read("\"50000\""), 3);
        assert_eq!((one.size_of(0), one.size_of(7)), (50_000, 50_000));
    }

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        let check = |text: &str, said: &str| {
            let error = read(text).check("nfs.file_size", 1 << 20).unwrap_err();
            assert_eq!(error.key, "nfs.file_size");
            assert!(error.what.contains(said), "{}", error.what);
        };
        assert_eq!(read("\"1\"").check("nfs.file_size", 1 << 20), Ok(()));
        check("\"0\"", "outside 1 B to 1MiB");
        check("\"2MiB\"", "outside");
        check("[{ size = \"4k\" }, { size = \"2MiB\" }]", "outside");
        check(
            "{ kind = \"pareto\", shape = -1, min = \"4k\", max = \"8k\" }",
            "shape",
        );
        let text = "size = { kind = \"paretto\" }";
        let error = toml::from_str::<Files>(text).unwrap_err();
        assert!(error.message().contains("unknown variant"), "{error}");
    }
}
