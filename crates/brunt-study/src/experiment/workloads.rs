//! `[workloads.NAME]`: what an experiment runs, by name. A workload describes requests to targets; its `kind` makes
//! it something else, such as a group of workloads or a file system benchmark. Kinds with their own table can also be
//! written there, such as `[together.NAME]` and `[filesystems.NAME]`: [`gather`] turns their entries into workloads
//! before anything is read.
//!
//! The rule: the table of loads alone defines the kinds ([`brunt_load::LOADS`]).

use std::collections::BTreeMap;
use std::ops::{Index, Range};
use std::sync::Arc;

use brunt_load::together::load_of;
use brunt_load::{LOADS, LoadContext, LoadEntry, LoadForm, LoadKind, Workload, load_kind};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{FileError, Source};
use super::wording::unknown_value;
use super::{Experiment, TogetherEntry};

/// The table of all workloads.
const WORKLOADS: &str = "workloads";
/// The key that selects the kind of a workload.
const KIND_KEY: &str = "kind";

/// An entry among an experiment's workloads.
#[derive(Clone, Debug)]
pub enum WorkloadEntry {
    /// Requests to targets.
    OnTargets(Box<Workload>),
    /// A group of workloads that run at once.
    Together(TogetherEntry),
    /// A load that needs no target.
    Own(Arc<dyn LoadEntry>),
}

impl PartialEq for WorkloadEntry {
    fn eq(&self, other: &WorkloadEntry) -> bool {
        match (self, other) {
            (WorkloadEntry::OnTargets(one), WorkloadEntry::OnTargets(other)) => one == other,
            (WorkloadEntry::Together(one), WorkloadEntry::Together(other)) => one == other,
            (WorkloadEntry::Own(one), WorkloadEntry::Own(other)) => {
                one.kind() == other.kind() && one.settings() == other.settings()
            }
            _ => false,
        }
    }
}

impl From<Workload> for WorkloadEntry {
    fn from(workload: Workload) -> WorkloadEntry {
        WorkloadEntry::OnTargets(Box::new(workload))
    }
}

impl From<TogetherEntry> for WorkloadEntry {
    fn from(group: TogetherEntry) -> WorkloadEntry {
        WorkloadEntry::Together(group)
    }
}

/// An experiment's workloads, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workloads(BTreeMap<String, WorkloadEntry>);

impl Workloads {
    /// Adds a workload; it replaces one with the same name.
    pub fn insert(&mut self, name: String, workload: impl Into<WorkloadEntry>) {
        self.0.insert(name, workload.into());
    }

    /// Adds these workloads; they replace those with the same names.
    pub(super) fn extend(&mut self, more: Workloads) {
        self.0.extend(more.0);
    }

    /// The names of all workloads.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Workloads that send requests to targets.
    pub fn on_targets(&self) -> impl Iterator<Item = (&String, &Workload)> {
        self.0.iter().filter_map(|(name, entry)| match entry {
            WorkloadEntry::OnTargets(workload) => Some((name, &**workload)),
            _ => None,
        })
    }

    /// Like [`Workloads::on_targets`], but mutable.
    pub fn on_targets_mut(&mut self) -> impl Iterator<Item = (&String, &mut Workload)> {
        self.0.iter_mut().filter_map(|(name, entry)| match entry {
            WorkloadEntry::OnTargets(workload) => Some((name, &mut **workload)),
            _ => None,
        })
    }

    /// The workload with this name, if it sends requests to targets.
    pub fn on_target(&self, name: &str) -> Option<&Workload> {
        match self.0.get(name)? {
            WorkloadEntry::OnTargets(workload) => Some(workload),
            _ => None,
        }
    }

    /// Like [`Workloads::on_target`], but mutable.
    pub fn on_target_mut(&mut self, name: &str) -> Option<&mut Workload> {
        match self.0.get_mut(name)? {
            WorkloadEntry::OnTargets(workload) => Some(workload),
            _ => None,
        }
    }

    /// Groups of workloads that run at once.
    pub fn groups(&self) -> impl Iterator<Item = (&String, &TogetherEntry)> {
        self.0.iter().filter_map(|(name, entry)| match entry {
            WorkloadEntry::Together(group) => Some((name, group)),
            _ => None,
        })
    }

    /// Loads that need no target.
    pub fn own(&self) -> impl Iterator<Item = (&String, &Arc<dyn LoadEntry>)> {
        self.0.iter().filter_map(|(name, entry)| match entry {
            WorkloadEntry::Own(entry) => Some((name, entry)),
            _ => None,
        })
    }

    /// The workloads that are written in their own tables, as TOML.
    pub(super) fn tables(&self) -> toml::Table {
        let mut tables = toml::Table::new();
        let mut add = |table: Option<&str>, name: &String, keys: toml::Table| {
            let table = tables.entry(table.unwrap_or(WORKLOADS));
            let table = table.or_insert_with(|| toml::Table::new().into());
            let inner = table.as_table_mut().expect("made as a table");
            inner.insert(name.clone(), keys.into());
        };
        let groups = LOADS
            .iter()
            .find(|kind| matches!(kind.form, LoadForm::Group(_)));
        let groups = groups.and_then(|kind| kind.form.table());
        for (name, group) in self.groups() {
            add(groups, name, brunt_load::written(group));
        }
        for (name, entry) in self.own() {
            let table = load_kind(entry.kind()).and_then(|kind| kind.form.table());
            add(table, name, entry.settings());
        }
        tables
    }
}

/// The workload with this name, which must send requests to targets.
///
/// # Panics
/// There is no such workload.
impl<N: AsRef<str> + ?Sized> Index<&N> for Workloads {
    type Output = Workload;
    fn index(&self, name: &N) -> &Workload {
        let name = name.as_ref();
        self.on_target(name)
            .unwrap_or_else(|| panic!("no workload {name}"))
    }
}

/// Serializes the workloads that send requests to targets; [`Experiment::written_out`] adds the others.
impl Serialize for Workloads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.on_targets())
    }
}

/// Deserializes the workloads that send requests to targets; `read_kinds` reads the others.
impl<'de> Deserialize<'de> for Workloads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Workloads, D::Error> {
        let workloads = BTreeMap::<String, Workload>::deserialize(deserializer)?;
        let entries = workloads.into_iter();
        Ok(Workloads(
            entries.map(|(name, one)| (name, one.into())).collect(),
        ))
    }
}

impl JsonSchema for Workloads {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Workloads".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, Workload>::json_schema(generator)
    }
}

/// The kinds that appear in the reference documentation.
fn documented() -> impl Iterator<Item = &'static LoadKind> {
    let is_hidden =
        |kind: &&LoadKind| matches!(kind.form, LoadForm::Own(own) if own.help.is_empty());
    LOADS.iter().filter(move |kind| !is_hidden(kind))
}

/// The schema of an experiment, with the tables of all kinds of load.
pub(super) fn schema() -> Schema {
    let (mut generator, mut tables) = (SchemaGenerator::default(), serde_json::Map::new());
    let mut plain = Vec::new();
    for kind in documented() {
        let (table, help, entry) = match kind.form {
            LoadForm::Workload => {
                plain.push(kind.name);
                continue;
            }
            LoadForm::Group(table) => (
                table,
                GROUPS_HELP,
                generator.subschema_for::<TogetherEntry>(),
            ),
            LoadForm::Own(own) => (own.name, own.help, (own.schema)(&mut generator)),
        };
        let shape = json!({ "type": "object", "description": help, "additionalProperties": entry });
        tables.insert(table.to_string(), shape);
    }
    let mut schema = generator.into_root_schema_for::<Experiment>();
    let mut add = |place: &str, more: serde_json::Map<String, Value>| {
        let properties = schema.pointer_mut(place).and_then(Value::as_object_mut);
        properties.expect("a struct has properties").extend(more);
    };
    add("/properties", tables);
    let help = format!(
        "Kind of load: {}; default: what the other keys describe. The kinds with their own tables, \
         such as `together`, are allowed too, with the keys of these tables.",
        plain.join(", ")
    );
    let kind = json!({ "type": "string", "enum": plain, "description": help });
    let kind = serde_json::Map::from_iter([(KIND_KEY.to_string(), kind)]);
    add("/$defs/Workload/properties", kind);
    schema
}

const GROUPS_HELP: &str = "Workloads that run at once, by a name of your choice. Each such group is a \
 point, and so is each of its jobs. A workload in a group runs alone only on targets whose `workloads` list it.";

/// Whether no workload sends requests to targets.
pub(super) fn none_on_targets(workloads: &Workloads) -> bool {
    workloads.on_targets().next().is_none()
}

/// A mistake in the file: its position, a message, and a suggestion.
type Misplaced = (Range<usize>, String, Option<String>);

/// Turns the entries of all kinds' own tables into workloads with the key `kind`.
pub(super) fn gather(source: &mut Source<'_>) -> Result<(), Box<FileError>> {
    let mut moved = BTreeMap::new();
    for kind in LOADS {
        let Some(table) = kind.form.table() else {
            continue;
        };
        let done = move_entries(source.root_mut(), table, kind.name, &mut moved);
        done.map_err(|(place, what, help)| source.mistake_at(Some(place), what, help))?;
    }
    Ok(())
}

fn move_entries(
    root: &mut DeTable<'_>,
    table: &'static str,
    kind: &'static str,
    moved: &mut BTreeMap<String, &'static str>,
) -> Result<(), Misplaced> {
    let Some((key, entries)) = root.remove_entry(table) else {
        return Ok(());
    };
    let place = key.span();
    let no_table = |place: Range<usize>| (place, "expected a table".to_string(), None);
    let DeValue::Table(entries) = entries.into_inner() else {
        return Err(no_table(place));
    };
    if root.get(WORKLOADS).is_none() {
        let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
        root.insert(Spanned::new(place, WORKLOADS.into()), empty);
    }
    let workloads = root.get_mut(WORKLOADS).map(Spanned::get_mut);
    let Some(DeValue::Table(workloads)) = workloads else {
        // The mistake is reported when the workloads are read.
        return Ok(());
    };
    for (name, mut entry) in entries {
        let place = name.span();
        let DeValue::Table(keys) = entry.get_mut() else {
            return Err(no_table(place));
        };
        if workloads.get(name.get_ref().as_ref()).is_some() {
            let there = moved.get(name.get_ref().as_ref()).unwrap_or(&WORKLOADS);
            let what = format!(
                "{} is in both [{there}] and [{table}]: results could not distinguish them",
                name.get_ref()
            );
            return Err((place, what, Some("rename one of them".into())));
        }
        match keys.get(KIND_KEY) {
            None => {
                let value = Spanned::new(place.clone(), DeValue::String(kind.into()));
                keys.insert(Spanned::new(place, KIND_KEY.into()), value);
            }
            Some(stated) if matches!(stated.get_ref(), DeValue::String(text) if *text == kind) => {}
            Some(stated) => {
                let what = format!("[{table}] is only for loads of kind {kind}");
                let help = "omit kind, or write the entry in [workloads]".to_string();
                return Err((stated.span(), what, Some(help)));
            }
        }
        moved.insert(name.get_ref().to_string(), table);
        workloads.insert(name, entry);
    }
    Ok(())
}

/// Reads and removes the workloads whose kind doesn't send requests to targets; from the others, removes the key
/// `kind` and returns its value by workload name.
pub(super) fn read_kinds(
    root: &mut DeTable<'_>,
    source: &Source<'_>,
) -> Result<(Workloads, BTreeMap<String, &'static str>), Box<FileError>> {
    let (mut read, mut stated) = (Workloads::default(), BTreeMap::new());
    let Some(DeValue::Table(workloads)) = root.get_mut(WORKLOADS).map(Spanned::get_mut) else {
        return Ok((read, stated));
    };
    let names = workloads.keys().map(|name| name.get_ref().to_string());
    for name in names.collect::<Vec<String>>() {
        let Some(entry) = workloads.get_mut(name.as_str()) else {
            continue;
        };
        let place = entry.span();
        let DeValue::Table(keys) = entry.get_mut() else {
            continue;
        };
        let Some(written) = keys.remove(KIND_KEY) else {
            continue;
        };
        let kind = match written.get_ref() {
            DeValue::String(kind) => kind,
            _ => {
                let what = "expected a name in quotes".to_string();
                return Err(source.mistake_at(Some(written.span()), what, None));
            }
        };
        let Some(kind) = load_kind(kind) else {
            let known: Vec<&str> = documented().map(|kind| kind.name).collect();
            let (what, help) = unknown_value(kind, &known);
            return Err(source.mistake_at(Some(written.span()), what, help));
        };
        let keys = Spanned::new(place.clone(), std::mem::take(keys));
        let entry = match kind.form {
            LoadForm::Workload => {
                stated.insert(name.clone(), kind.name);
                let keys = Spanned::new(place, DeValue::Table(keys.into_inner()));
                *workloads.get_mut(name.as_str()).expect("seen above") = keys;
                continue;
            }
            LoadForm::Group(_) => TogetherEntry::deserialize(toml::de::Deserializer::from(keys))
                .map(WorkloadEntry::Together),
            LoadForm::Own(own) => (own.read)(keys).map(WorkloadEntry::Own),
        };
        let entry = entry.map_err(|error| source.unreadable(&error, Some(place)))?;
        workloads.remove(name.as_str());
        read.insert(name, entry);
    }
    Ok((read, stated))
}

impl Experiment {
    /// Checks that workloads are of the kind that their key `kind` says.
    pub(super) fn check_kinds(
        &self,
        source: &Source<'_>,
        stated: &BTreeMap<String, &'static str>,
    ) -> Result<(), Box<FileError>> {
        for (name, workload) in self.workloads.on_targets() {
            let Some(stated) = stated.get(name) else {
                continue;
            };
            // A workload with mistakes makes no load; the mistakes are reported by other checks.
            if workload.check().is_err() {
                continue;
            }
            let load = load_of(workload.clone(), &LoadContext::default());
            if load.kind() != *stated {
                let what = format!(
                    "workload {name}: its keys describe a load of kind {}, not {stated}",
                    load.kind()
                );
                let help = Some("omit kind, or change the keys".to_string());
                return Err(source.mistake(&[WORKLOADS, name, KIND_KEY], what, help));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, assert_mistake_at};

    const TEXT: &str = r#"
name = "kinds"
[targets.disk]
url = "memory:1MiB"
[workloads.plain]
stop = { time = "1s" }
[workloads.stated]
kind = "block"
stop = { time = "1s" }
[workloads.both]
kind = "together"
jobs = [{ workload = "plain", target = "disk" }, { workload = "stated", target = "disk" }]
[workloads.home]
kind = "file"
directory = "/tmp"
[workloads.near]
kind = "nap"
naps = 3
"#;

    /// An entry in a kind's own table and a workload with the key `kind` mean the same, and what is written out can
    /// be read again.
    #[test]
    fn a_kind_can_be_written_in_its_own_table() {
        let experiment = Experiment::parse("x.toml", TEXT).unwrap();
        let names: Vec<&String> = experiment.workloads.names().collect();
        assert_eq!(names, ["both", "home", "near", "plain", "stated"]);
        let mut text = TEXT.to_string();
        for (kind, table) in [
            ("together", "together"),
            ("file", "filesystems"),
            ("nap", "beds"),
        ] {
            let key = format!("\nkind = \"{kind}\"");
            let place = text.find(&key).unwrap();
            text.replace_range(place..place + key.len(), "");
            let place = text[..place].rfind("[workloads.").unwrap();
            text.replace_range(place + 1..place + 10, table);
        }
        assert_eq!(Experiment::parse("x.toml", &text).unwrap(), experiment);
        let written = experiment.written_out();
        assert_eq!(Experiment::parse("x.toml", &written).unwrap(), experiment);
        for table in ["[workloads.plain]", "[filesystems.home]", "[beds.near]"] {
            assert!(written.contains(table), "{written}");
        }
    }

    #[test]
    fn mistakes_in_kinds_have_their_line() {
        let check = |from: &str, to: &str, at: &str, said: &str| {
            assert!(TEXT.contains(from), "{from}");
            assert_mistake_at(&TEXT.replace(from, to), at, said);
        };
        let (from, to) = ("kind = \"file\"", "kind = \"fiel\"");
        check(from, to, to, "did you mean file?");
        check(from, "kind = 3", "kind = 3", "expected a name in quotes");
        let (from, to) = ("kind = \"block\"", "kind = \"nfs\"");
        check(from, to, to, "describe a load of kind block, not nfs");
        check(
            from,
            "kind = \"nfs-replay\"\nnfs_replay = {}",
            "nfs_replay = {}",
            "trace",
        );
        check(
            "[workloads.home]",
            "[together.home]",
            "kind = \"file\"",
            "[together] is only for loads of kind together",
        );
        let (from, to) = ("naps = 3", "nap = 3");
        check(from, to, to, "did you mean naps?");
        let (from, to) = ("[workloads.near]", "[together.plain]");
        check(from, to, to, "plain is in both [workloads] and [together]");
        let text = TEXT.replacen("\n[targets.disk]", "\nfilesystems = 3\n[targets.disk]", 1);
        assert_mistake_at(&text, "filesystems = 3", "expected a table");
    }

    #[test]
    fn a_misspelled_table_is_corrected() {
        let text = TEXT.replace("[workloads.home]\nkind = \"file\"", "[filesystem.home]");
        assert_mistake_at(&text, "[filesystem.home]", "did you mean filesystems?");
    }

    /// The schema has the tables and names of all kinds, except test-only kinds.
    #[test]
    fn the_schema_has_all_kinds() {
        let schema = serde_json::to_value(Experiment::schema()).unwrap();
        let properties = &schema["properties"];
        assert!(properties["filesystems"]["description"].is_string());
        assert!(properties["together"]["additionalProperties"]["$ref"].is_string());
        assert!(properties["beds"].is_null());
        let kind = &schema["$defs"]["Workload"]["properties"]["kind"]["enum"];
        assert_eq!(
            *kind,
            serde_json::json!(["block", "replay", "nfs", "nfs-replay"])
        );
    }
}
