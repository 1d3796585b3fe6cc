//! The `sync` setting of a workload: when its writes complete, in fio's terms.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// When a write completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum SyncWrites {
    /// When its data is in the device's cache, or on stable storage if the device has no cache.
    #[default]
    None,
    /// When its data is on stable storage: each write carries RWF_DSYNC or FUA.
    Dsync,
}

impl SyncWrites {
    /// Returns true if each write requires stable storage.
    pub fn is_stable(self) -> bool {
        self == SyncWrites::Dsync
    }
}

impl Serialize for SyncWrites {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            SyncWrites::None => "none",
            SyncWrites::Dsync => "dsync",
        })
    }
}

/// Parses the word, or the boolean that the key had in earlier versions.
struct Word;

impl Visitor<'_> for Word {
    type Value = SyncWrites;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"none\" or \"dsync\"")
    }

    fn visit_bool<E: Error>(self, is_stable: bool) -> Result<SyncWrites, E> {
        Ok(match is_stable {
            true => SyncWrites::Dsync,
            false => SyncWrites::None,
        })
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<SyncWrites, E> {
        match word {
            "none" => Ok(SyncWrites::None),
            "dsync" => Ok(SyncWrites::Dsync),
            "sync" => Err(E::custom(
                "sync = \"sync\" would also wait for a file's metadata, which devices do not have; \
                write \"dsync\"",
            )),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for SyncWrites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SyncWrites, D::Error> {
        deserializer.deserialize_any(Word)
    }
}
