//! The table of host kinds: each kind has a line here and a file in this folder.
//!
//! The rule: a key of `[hosts.NAME]` selects the host's kind; without such a key it is a lab host.

use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::kind::{HostInfo, HostKind};
use super::{agent, guest, here, lab, ssh};

/// Defines [`HostSettings`] and [`HOST_KINDS`] from one line per kind.
macro_rules! kinds {
    ($($(#[$only:meta])* $module:ident::$config:ident,)*) => {
        /// One host's settings, by its kind.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum HostSettings {
            $($(#[$only])* #[doc = concat!("See `host/", stringify!($module), ".rs`.")] $config($module::$config),)*
        }

        impl HostSettings {
            /// The interface of the host's kind.
            pub fn as_kind(&self) -> &dyn HostKind {
                match self { $($(#[$only])* HostSettings::$config(config) => config,)* }
            }

            /// The description of the host's kind.
            pub fn info(&self) -> &'static HostInfo {
                match self { $($(#[$only])* HostSettings::$config(_) => &$module::INFO,)* }
            }
        }

        /// All kinds of hosts.
        pub static HOST_KINDS: &[HostEntry] = &[$($(#[$only])* HostEntry {
            info: &$module::INFO,
            read: |value| Ok(HostSettings::$config($module::$config::deserialize(ValueDeserializer::from(value))?)),
            schema: |generator| $module::$config::json_schema(generator),
        },)*];
    };
}

#[cfg(test)]
use super::test_only;

kinds! {
    here::Here,
    lab::LabHost,
    ssh::SshHost,
    agent::AgentHost,
    guest::GuestHost,
    #[cfg(test)] test_only::TestOnly,
}

/// A kind's entry in the table.
pub struct HostEntry {
    /// Its description.
    pub info: &'static HostInfo,
    read: fn(Spanned<DeValue<'_>>) -> Result<HostSettings, toml::de::Error>,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl HostSettings {
    /// Reads a `[hosts.NAME]` whose keys have their positions in a file.
    ///
    /// # Errors
    /// A wrong value or an unknown key, and the position to use if the parser doesn't report one.
    pub(crate) fn read(
        table: Spanned<DeTable<'_>>,
    ) -> Result<HostSettings, (Option<Range<usize>>, toml::de::Error)> {
        let place = table.span();
        let table = table.into_inner();
        let has = |key: &str| table.iter().any(|(there, _)| there.get_ref() == key);
        let named = HOST_KINDS
            .iter()
            .find(|kind| kind.info.marked && kind.info.keys.first().is_some_and(|key| has(key)));
        let kind = named.or_else(|| HOST_KINDS.iter().find(|kind| !kind.info.marked));
        let kind = kind.expect("one kind needs no key");
        let value = Spanned::new(place.clone(), DeValue::Table(table));
        (kind.read)(value).map_err(|error| (error.span().or(Some(place)), error))
    }
}

impl<'de> Deserialize<'de> for HostSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostSettings, D::Error> {
        // This works with any format, but loses positions; code that has the file finds them again.
        let table = toml::Table::deserialize(deserializer)?;
        let text = toml::to_string(&table).map_err(serde::de::Error::custom)?;
        let table = DeTable::parse(&text).map_err(serde::de::Error::custom)?;
        HostSettings::read(table).map_err(|(_, error)| serde::de::Error::custom(error.message()))
    }
}

impl JsonSchema for HostSettings {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostSettings".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        for kind in HOST_KINDS {
            let schema = (kind.schema)(generator);
            let own = schema.get("properties").and_then(|own| own.as_object());
            properties.extend(
                own.into_iter()
                    .flatten()
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        json_schema!({
            "type": "object",
            "description": "A host. Its keys determine its kind; a host without keys is a lab host.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}
