//! `[[fault]]`: a fault to inject into each run, and when.
//!
//! ```toml
//! [[fault]]                             # transient: from 5 s to 10 s of the measured time
//! target = "disk"
//! storage = "aborted-command,p=0.5"     # the words of a device's fault= option
//! at = "5s"
//! for = "5s"
//!
//! [[fault]]                             # sticky: without a time, for the whole run
//! target = "disk"
//! storage = "slow:1ms"
//!
//! [[fault]]                             # a link of the lab, both ways
//! link = "wan"
//! set = { loss = 0.005 }
//! at = "10s"
//! for = "2s"
//! ```
//!
//! Several faults can be active at once; [`super::overlap`] defines what happens when they affect each other.
//!
//! The rule: one key selects the kind of fault ([`super::kinds`] lists them), common keys set time and
//! target, and all others belong to that kind. A mistake is reported at its key.

use std::ops::Range;

use brunt_core::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

use super::kind::{FaultCommon, Side};
use super::kinds::{FaultKind, KINDS, KindEntry};
use crate::experiment::wording::reworded;
use crate::host::HostName;

/// One fault: its effect, time and place.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultEntry {
    /// Time and place.
    pub common: FaultCommon,
    /// The effect.
    pub kind: FaultKind,
}

/// The common keys, as they are written.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CommonKeys {
    /// Name shown in reports; default: its effect.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// Start, counted from the start of measuring. Without it the fault is sticky: present from before the first
    /// request until after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Span>,
    /// Duration; default: until the end of the run.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    lasts: Option<Span>,
    /// Target that it affects; runs against other targets are made without it. Optional for faults of the whole
    /// machine or lab, which then affect all runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
    /// Host with `ssh` or `agent` on which it is injected; default: where the experiment runs. For `cpu`, `memory`,
    /// `freeze`, `kill`, `netem` and `bridge`. `target` then only says in which runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostName>,
}

/// The keys of [`CommonKeys`].
pub(super) const COMMON_KEYS: [&str; 5] = ["name", "at", "for", "target", "host"];

/// Why a table is not a valid fault.
#[derive(Debug)]
pub(crate) enum EntryError {
    /// A wrong key.
    Key {
        /// Its position; `None` for the whole table.
        place: Option<Range<usize>>,
        /// The mistake.
        what: String,
        /// What would be right.
        help: String,
    },
    /// A wrong value or an unknown key, as reported by the parser.
    Value {
        /// The position, if the parser reports none.
        place: Range<usize>,
        /// The parser's error.
        error: toml::de::Error,
    },
}

impl FaultEntry {
    /// Its effect, in a word or two.
    pub fn what(&self) -> String {
        self.kind.as_kind().what()
    }

    /// The name of its kind: the key that selects it.
    pub fn kind_name(&self) -> &'static str {
        self.kind.entry().name()
    }

    /// The affected place: a target's name, a host, or the machine.
    pub fn place(&self) -> String {
        match &self.common.host {
            Some(host) => format!("host {host}"),
            None => self.kind.as_kind().place(&self.common),
        }
    }

    /// Its name in reports.
    pub fn label(&self) -> String {
        if self.common.name.is_empty() {
            self.what()
        } else {
            self.common.name.clone()
        }
    }

    pub(super) fn side(&self) -> Side<'_> {
        Side {
            common: &self.common,
            kind: self.kind.as_kind(),
        }
    }

    /// Reads a fault whose keys have their positions in a file.
    pub(crate) fn read(table: Spanned<DeTable<'_>>) -> Result<FaultEntry, EntryError> {
        let place = table.span();
        // `freeze = false` is the same as no key.
        let names = |key: &str| KINDS.iter().any(|kind| kind.name() == key);
        let there = |(key, value): &(Spanned<DeString<'_>>, Spanned<DeValue<'_>>)| {
            !names(key.get_ref()) || !matches!(value.get_ref(), DeValue::Boolean(false))
        };
        let keys: DeTable<'_> = table.into_inner().into_iter().filter(there).collect();
        let (kind, at) = the_kind(&keys)?;
        let stray = keys.keys().find(|key| {
            let key: &str = key.get_ref();
            let known = COMMON_KEYS.contains(&key) || kind.info.keys.contains(&key);
            !known && KINDS.iter().any(|other| other.info.keys.contains(&key))
        });
        if let Some(key) = stray {
            let owner = KINDS
                .iter()
                .find(|other| other.info.keys.contains(&key.get_ref().as_ref()));
            let (key, owner, kind) = (
                key.clone(),
                owner.map_or("", |owner| owner.name()),
                kind.name(),
            );
            let what = format!(
                "{} is a key of {owner} faults, but this is a {kind} fault",
                key.get_ref()
            );
            let help = format!("omit {}", key.get_ref());
            return Err(EntryError::Key {
                place: Some(key.span()),
                what,
                help,
            });
        }
        let is_common = |key: &Spanned<DeString<'_>>| COMMON_KEYS.contains(&key.get_ref().as_ref());
        let (common, own): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(key, _)| is_common(key));
        let value =
            |keys: Vec<_>| Spanned::new(place.clone(), DeValue::Table(keys.into_iter().collect()));
        // A missing key is reported at the key that selects the kind.
        let wrong = |error: toml::de::Error| {
            let place = error
                .span()
                .filter(|span| *span != place)
                .unwrap_or_else(|| at.clone());
            EntryError::Value { place, error }
        };
        let common =
            CommonKeys::deserialize(ValueDeserializer::from(value(common))).map_err(&wrong)?;
        let kind = (kind.read)(value(own)).map_err(&wrong)?;
        let CommonKeys {
            name,
            at,
            lasts,
            target,
            host,
        } = common;
        Ok(FaultEntry {
            common: FaultCommon {
                name,
                at,
                lasts,
                target,
                host,
            },
            kind,
        })
    }
}

/// The kind that a table's keys select, and the key's position.
fn the_kind(keys: &DeTable<'_>) -> Result<(&'static KindEntry, Range<usize>), EntryError> {
    let place = |kind: &KindEntry| {
        keys.keys()
            .find(|key| key.get_ref() == kind.name())
            .map(Spanned::span)
    };
    let mut named = KINDS.iter().filter_map(|kind| Some((*kind, place(kind)?)));
    match (named.next(), named.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => {
            let help = "add its kind, such as storage = \"medium-error,p=0.1\", cpu = 0.98 or freeze = true";
            Err(EntryError::Key {
                place: None,
                what: "it does nothing".into(),
                help: help.into(),
            })
        }
        (Some((first, _)), Some((second, place))) => {
            let what = format!("{} and {} are separate faults", first.name(), second.name());
            let help = "write a separate [[fault]] for each; they can overlap in time".to_string();
            Err(EntryError::Key {
                place: Some(place),
                what,
                help,
            })
        }
    }
}

impl std::fmt::Display for EntryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EntryError::Key { what, help, .. } => write!(f, "{what}; {help}"),
            EntryError::Value { error, .. } => f.write_str(&reworded(error.message()).0),
        }
    }
}

impl Serialize for FaultEntry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            #[serde(flatten)]
            common: CommonKeys,
            #[serde(flatten)]
            kind: &'a FaultKind,
        }
        let FaultCommon {
            name,
            at,
            lasts,
            target,
            host,
        } = self.common.clone();
        Written {
            common: CommonKeys {
                name,
                at,
                lasts,
                target,
                host,
            },
            kind: &self.kind,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FaultEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FaultEntry, D::Error> {
        // Works with any format: positions are lost here; code that has the file finds them again.
        let table = toml::Table::deserialize(deserializer)?;
        let text = toml::to_string(&table).map_err(serde::de::Error::custom)?;
        let table = DeTable::parse(&text).map_err(serde::de::Error::custom)?;
        FaultEntry::read(table).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for FaultEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FaultEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        let mut add = |schema: Schema| {
            let own = schema.get("properties").and_then(|own| own.as_object());
            for (key, value) in own.into_iter().flatten() {
                properties
                    .entry(key.clone())
                    .or_insert_with(|| value.clone());
            }
        };
        add(CommonKeys::json_schema(generator));
        for kind in KINDS {
            add((kind.schema)(generator));
        }
        json_schema!({
            "type": "object",
            "description": "A fault. Exactly one key selects its kind.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}
