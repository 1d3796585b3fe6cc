//! The type of the entries of [`crate::LOADS`], and the context in which load descriptions are parsed.
//!
//! The rule: this file knows no particular kind of load, so that the table and its entries don't form an import cycle.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use crate::entry::LoadEntry;
use crate::load::{Load, WorkloadError};

/// A kind of load.
pub struct LoadKind {
    /// The kind's name, as returned by [`Load::kind`].
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// An example description, as in an experiment file.
    pub example: &'static str,
    /// The prefix for resources, other than devices, files and folders, in the permit list, if the kind needs any:
    /// `nfs` for `nfs:` ([`crate::HostedLoad::check_allowed`]).
    pub permit: Option<&'static str>,
    /// Parses a description; some describe several loads.
    pub read: fn(&str, &LoadContext) -> Result<Vec<NamedLoad>, ReadError>,
    /// How experiment files describe loads of this kind.
    pub form: LoadForm,
}

/// How experiment files describe loads of a kind.
#[derive(Clone, Copy)]
pub enum LoadForm {
    /// As a [`Workload`](crate::Workload), which runs on each target.
    Workload,
    /// As a group of other workloads, in this table.
    Group(&'static str),
    /// By its own keys; it needs no target.
    Own(OwnTable),
}

impl LoadForm {
    /// Returns the table that holds such loads in addition to `workloads`, if any.
    pub fn table(&self) -> Option<&'static str> {
        match self {
            LoadForm::Workload => None,
            LoadForm::Group(table) => Some(table),
            LoadForm::Own(own) => Some(own.name),
        }
    }
}

/// The table of a kind of load in experiment files, such as `[filesystems.NAME]`. The same keys are allowed in
/// `[workloads.NAME]`, with `kind`.
#[derive(Clone, Copy)]
pub struct OwnTable {
    /// The table's name.
    pub name: &'static str,
    /// A sentence or two for references; empty for a load that only tests use, which references omit.
    pub help: &'static str,
    /// Parses an entry; its keys carry their positions in the file.
    pub read: ReadEntry,
    /// Generates the JSON schema of an entry.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

/// Parses the keys of a load, which carry their positions in a file.
pub type ReadEntry = fn(Spanned<DeTable<'_>>) -> Result<Arc<dyn LoadEntry>, toml::de::Error>;

impl OwnTable {
    /// Creates a table of these entries.
    pub const fn of<T>(name: &'static str, help: &'static str) -> OwnTable
    where
        T: LoadEntry + DeserializeOwned + JsonSchema + 'static,
    {
        OwnTable {
            name,
            help,
            read: |table| Ok(Arc::new(T::deserialize(Deserializer::from(table))?)),
            schema: |generator| generator.subschema_for::<T>(),
        }
    }
}

/// A load, with its name among the loads of one description.
pub type NamedLoad = (String, Arc<dyn Load>);

/// Why a description can't be turned into a load.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not valid TOML, or an unknown key.
    #[error(transparent)]
    Text(#[from] Box<toml::de::Error>),
    /// Invalid settings.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// What a load is created from, in addition to its description.
#[derive(Clone, Default)]
pub struct LoadContext {
    /// Names of the targets that the load drives as a single device, in the order of their parts
    /// ([`crate::load::LoadTarget::parts`]). Empty means a single target, or all targets that the description names.
    pub targets: Vec<String>,
    /// Inputs that other loads have read and that this one may need, too.
    pub inputs: SharedInputs,
}

/// Inputs that several loads of an experiment or an agent need, such as the survey of a trace, so that each is created
/// only once. Clones share them.
#[derive(Clone, Default)]
pub struct SharedInputs {
    /// Pairs of a key and its input.
    kept: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
    inputs_max: Option<usize>,
}

impl SharedInputs {
    /// Keeps an unlimited number of inputs.
    pub fn new() -> SharedInputs {
        SharedInputs::default()
    }

    /// Keeps at most `inputs_max` inputs: adding another removes all others, though loads that already have them keep
    /// using them.
    pub fn at_most(inputs_max: usize) -> SharedInputs {
        SharedInputs {
            inputs_max: Some(inputs_max),
            ..SharedInputs::default()
        }
    }

    /// Returns the input with this key and these types, creating it now if no load has requested it before.
    pub fn share<K, V>(&self, key: K, make: impl FnOnce() -> V) -> V
    where
        K: PartialEq + Send + 'static,
        V: Clone + Send + 'static,
    {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut same_types = kept.iter().filter_map(|one| one.downcast_ref::<(K, V)>());
        if let Some((_, input)) = same_types.find(|(known, _)| *known == key) {
            return input.clone();
        }
        if self.inputs_max.is_some_and(|max| kept.len() >= max) {
            kept.clear();
        }
        let input = make();
        kept.push(Box::new((key, input.clone())));
        input
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_made_once_for_each_key_and_type() {
        let inputs = SharedInputs::at_most(2);
        let made = |key: &'static str, value: u32| inputs.clone().share(key, || value);
        assert_eq!([made("a", 1), made("b", 2), made("a", 3)], [1, 2, 1]);
        assert_eq!(
            inputs.share("a", || "another type"),
            "another type",
            "the third input discards the others"
        );
        assert_eq!(made("a", 4), 4);
    }
}
