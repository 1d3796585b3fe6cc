//! `[[fault]]`: a fault to inject into each run, and when.
//!
//! ```toml
//! [[fault]] # transient: from 5 s to 10 s of the measured time target = "disk" storage =
//! "aborted-command,p=0.5" # as in a device's fault= option at = "5s" for = "5s"
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
//! A fault can occur several times in a run ([`super::recurrence`]): once a file has been read, each occurrence is a
//! fault. Several faults can be active at once; [`super::overlap`] defines what happens when they affect each other.
//!
//! The rule: one key selects the kind of fault ([`super::kinds`] lists them), common keys set time and target, and
//! all other keys belong to that kind. A mistake is reported at its key.

use std::ops::Range;
use std::time::Duration;

use brunt_core::Span;
use brunt_core::random::Random;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

use super::kind::{FaultCommon, Mistake, Side};
use super::kinds::{FaultKind, KINDS, KindEntry};
use super::recurrence::{Occurrence, Recurrence};
use crate::experiment::wording::reworded;
use crate::host::HostName;

/// Makes the times of faults independent of other random numbers that derive from the same seed.
const RECURRENCE_SEED: u64 = 0x6d74_6266;

/// A fault: its effect, time and place. For a fault that occurs several times in a run, one occurrence
/// ([`super::Recurrence`]).
#[derive(Clone, Debug, PartialEq)]
pub struct FaultEntry {
    /// The fault's time and place.
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
    /// Start, counted from the start of measuring, or a list of starts. Without it the fault is sticky: present from
    /// before the first request until after the last. With `period`, the first start; with `mtbf`, the time before
    /// which the fault doesn't occur.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Starts>,
    /// Duration; default: until the end of the run.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    lasts: Option<Span>,
    /// Time from one start to the next, for a fault that occurs periodically.
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<Span>,
    /// Mean time between failures, from one start to the next, for a fault that occurs at random times. These times
    /// are exponentially distributed, derived from the experiment's `seed`, and the same in all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtbf: Option<Span>,
    /// With `mtbf`: mean time to repair, the mean of exponentially distributed durations; or use `for`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mttr: Option<Span>,
    /// With `period` or `mtbf`: number of occurrences in a run; default: as many as end within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    /// The target that the fault affects; it isn't injected into runs against other targets. Optional for faults of
    /// the whole machine or lab; without it, they affect all runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
    /// Host with `ssh` or `agent` on which the fault is injected; default: where the experiment runs. Only for `cpu`,
    /// `memory`, `freeze`, `kill`, `netem` and `bridge`. `target` then only selects the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostName>,
}

/// The key `at`.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(untagged)]
enum Starts {
    One(Span),
    Several(Vec<Span>),
}

/// Implemented by hand to keep the messages about wrong durations, which a derived implementation would lose.
impl<'de> Deserialize<'de> for Starts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Starts, D::Error> {
        struct StartsVisitor;
        impl<'de> Visitor<'de> for StartsVisitor {
            type Value = Starts;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration with its unit, such as \"2s\", or a list of them")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Starts, E> {
                text.parse().map(Starts::One).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Starts, A::Error> {
                let mut starts = Vec::new();
                while let Some(start) = list.next_element()? {
                    starts.push(start);
                }
                Ok(Starts::Several(starts))
            }
        }
        deserializer.deserialize_any(StartsVisitor)
    }
}

/// The keys of [`CommonKeys`].
pub(super) const COMMON_KEYS: [&str; 9] = [
    "name", "at", "for", "period", "mtbf", "mttr", "times", "target", "host",
];

/// Why a table is not a valid fault.
#[derive(Debug)]
pub(crate) enum EntryError {
    /// A mistake at a key.
    Key {
        /// The key's position; `None` for the whole table.
        place: Option<Range<usize>>,
        /// The mistake.
        what: String,
        /// What would be valid instead.
        help: String,
    },
    /// A wrong value or an unknown key, as reported by the parser.
    Value {
        /// The table's position, in case the parser reports none.
        place: Range<usize>,
        /// The parser's error.
        error: toml::de::Error,
    },
}

impl FaultEntry {
    /// The fault's effect, in a word or two.
    pub fn what(&self) -> String {
        self.kind.as_kind().what()
    }

    /// The name of the fault's kind: the key that selects it.
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

    /// The fault's name in reports.
    pub fn label(&self) -> String {
        match self.common.occurrence {
            Some(Occurrence { number, count }) => format!("{} ({number} of {count})", self.name()),
            None => self.name(),
        }
    }

    /// The name that all occurrences of the fault have in common.
    pub fn name(&self) -> String {
        if self.common.name.is_empty() {
            self.what()
        } else {
            self.common.name.clone()
        }
    }

    /// Whether the fault is the one to write to a file: of a recurring fault, only the first occurrence is.
    pub fn is_written(&self) -> bool {
        self.common.occurrence.is_none_or(|one| one.number == 1)
    }

    /// Replaces each fault that occurs several times with its occurrences, in runs of length `run`. Random times are
    /// derived from `seed`.
    ///
    /// # Errors
    /// Returns the index of a fault that can't recur as specified, and its mistake.
    pub fn expand(
        faults: Vec<FaultEntry>,
        seed: u64,
        run: Option<Duration>,
    ) -> Result<Vec<FaultEntry>, (usize, Mistake)> {
        let mut found = Vec::new();
        for (index, fault) in faults.into_iter().enumerate() {
            let Some(recurrence) = &fault.common.recurrence else {
                found.push(fault);
                continue;
            };
            let mut random = Random::for_part(seed ^ RECURRENCE_SEED, index as u64);
            let times = recurrence
                .occurrences(fault.common.lasts, run, &mut random)
                .map_err(|mistake| (index, mistake))?;
            let count = times.len() as u32;
            found.extend(times.into_iter().zip(1..).map(|((at, lasts), number)| {
                let mut one = fault.clone();
                one.common.at = Some(at);
                one.common.lasts = lasts;
                one.common.occurrence = Some(Occurrence { number, count });
                one
            }));
        }
        Ok(found)
    }

    pub(super) fn side(&self) -> Side<'_> {
        Side {
            common: &self.common,
            kind: self.kind.as_kind(),
        }
    }

    /// Reads a fault from a table whose keys have positions in a file.
    pub(crate) fn read(table: Spanned<DeTable<'_>>) -> Result<FaultEntry, EntryError> {
        let place = table.span();
        // `freeze = false` means the same as omitting the key.
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
        let places: Vec<(String, Range<usize>)> = keys
            .keys()
            .map(|key| (key.get_ref().to_string(), key.span()))
            .collect();
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
        let common = common.checked().map_err(|mistake| {
            let key = keys_at(&places, mistake.key).unwrap_or(at);
            EntryError::Key {
                place: Some(key),
                what: format!("{}: {}", mistake.key, mistake.what),
                help: mistake.help,
            }
        })?;
        Ok(FaultEntry { common, kind })
    }
}

impl CommonKeys {
    /// Checks the keys and converts them to settings.
    fn checked(self) -> Result<FaultCommon, Mistake> {
        let recurrence = self.recurrence()?;
        let at = match self.at {
            Some(Starts::One(at)) => Some(at),
            Some(Starts::Several(_)) | None => None,
        };
        Ok(FaultCommon {
            name: self.name,
            at,
            lasts: self.lasts,
            target: self.target,
            host: self.host,
            recurrence,
            occurrence: None,
        })
    }

    fn recurrence(&self) -> Result<Option<Recurrence>, Mistake> {
        let times = self.times;
        match (self.period, self.mtbf) {
            (Some(_), Some(_)) => {
                let what = "a fault is either periodic or random";
                Err(Mistake::new("mtbf", what, "omit period or mtbf"))
            }
            (Some(_), None) if self.mttr.is_some() => {
                let what = "durations are random only together with mtbf";
                Err(Mistake::new("mttr", what, "write for = \"500ms\""))
            }
            (Some(period), None) => {
                let at = self.first("period")?;
                Ok(Some(Recurrence::Periodic { at, period, times }))
            }
            (None, Some(mtbf)) => Ok(Some(Recurrence::Random {
                at: self.first("mtbf")?,
                mtbf,
                mttr: self.mttr,
                times,
            })),
            (None, None) => {
                self.refuse_without_recurrence()?;
                Ok(match &self.at {
                    Some(Starts::Several(starts)) => Some(Recurrence::Listed(starts.clone())),
                    Some(Starts::One(_)) | None => None,
                })
            }
        }
    }

    /// The first start of a fault that recurs as specified by `key`.
    fn first(&self, key: &'static str) -> Result<Span, Mistake> {
        match self.at {
            Some(Starts::One(at)) => Ok(at),
            Some(Starts::Several(_)) => {
                let help = format!("write a single start, or omit {key}");
                Err(Mistake::new(
                    "at",
                    format!("at is a list, but {key} is set as well"),
                    help,
                ))
            }
            None => {
                let help = "write at = \"2s\", because the effect is compared with the time before";
                Err(Mistake::new(key, "there is no first start", help))
            }
        }
    }

    /// Refuses keys of periodic and random faults if the fault is neither.
    fn refuse_without_recurrence(&self) -> Result<(), Mistake> {
        let help = "write mtbf = \"5s\" as well, or omit it";
        if self.mttr.is_some() {
            return Err(Mistake::new("mttr", "it needs mtbf", help));
        }
        if self.times.is_some() {
            let help = "write period = \"5s\" or mtbf = \"5s\" as well, or omit it";
            return Err(Mistake::new("times", "it needs period or mtbf", help));
        }
        Ok(())
    }

    /// The keys of a fault as they were written.
    fn written(common: FaultCommon) -> CommonKeys {
        let (at, lasts) = (common.at.map(Starts::One), common.lasts);
        let mut keys = CommonKeys {
            name: common.name,
            at,
            lasts,
            target: common.target,
            host: common.host,
            ..CommonKeys::default()
        };
        let Some(recurrence) = common.recurrence else {
            return keys;
        };
        keys.lasts = recurrence.stated_duration(lasts);
        keys.at = Some(match recurrence {
            Recurrence::Listed(starts) => Starts::Several(starts),
            Recurrence::Periodic { at, period, times } => {
                (keys.period, keys.times) = (Some(period), times);
                Starts::One(at)
            }
            Recurrence::Random {
                at,
                mtbf,
                mttr,
                times,
            } => {
                (keys.mtbf, keys.mttr, keys.times) = (Some(mtbf), mttr, times);
                Starts::One(at)
            }
        });
        keys
    }
}

/// The position of a key.
fn keys_at(places: &[(String, Range<usize>)], key: &str) -> Option<Range<usize>> {
    let found = places.iter().find(|(name, _)| name == key);
    found.map(|(_, place)| place.clone())
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
        Written {
            common: CommonKeys::written(self.common.clone()),
            kind: &self.kind,
        }
        .serialize(serializer)
    }
}

/// Serializes an experiment's faults as they were written, for serde's `serialize_with`.
pub(crate) fn serialize_written<S: serde::Serializer>(
    faults: &[FaultEntry],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(faults.iter().filter(|fault| fault.is_written()))
}

impl<'de> Deserialize<'de> for FaultEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FaultEntry, D::Error> {
        // This works with any format, but loses positions; code that has the file finds them again.
        let table = toml::Table::deserialize(deserializer)?;
        let text = toml::to_string(&table).map_err(D::Error::custom)?;
        let table = DeTable::parse(&text).map_err(D::Error::custom)?;
        FaultEntry::read(table).map_err(D::Error::custom)
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
