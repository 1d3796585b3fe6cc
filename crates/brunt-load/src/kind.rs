//! What a kind of load brings for its line of [`crate::LOADS`], and what its descriptions are read with.
//!
//! The rule: this file knows no kind of load, so that the table and its entries don't form an import cycle.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use crate::load::{Load, WorkloadError};

/// A kind of load.
pub struct LoadKind {
    /// Its name, as [`Load::kind`] says.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// A description of one, as in an experiment file.
    pub example: &'static str,
    /// What the list of an agent's owner calls what it uses beside devices, files and folders, if that is something:
    /// `nfs` for `nfs:` ([`crate::HostedLoad::check_allowed`]).
    pub permit: Option<&'static str>,
    /// Reads a description; some describe several loads.
    pub read: fn(&str, &LoadContext) -> Result<Vec<NamedLoad>, ReadError>,
}

/// A load, with its name among those that one description makes.
pub type NamedLoad = (String, Arc<dyn Load>);

/// Why a load cannot be made of a description.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not TOML, or has a key that does not exist.
    #[error(transparent)]
    Text(#[from] Box<toml::de::Error>),
    /// It makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// What a load is read with beside its description.
#[derive(Clone, Default)]
pub struct LoadContext {
    /// Names of the targets that it drives as one device, in the order of their parts
    /// ([`crate::load::LoadTarget::parts`]); none: one target, or all that it names.
    pub targets: Vec<String>,
    /// What other loads have read that it may need as well.
    pub inputs: SharedInputs,
}

/// Inputs that several loads of an experiment or an agent need, such as what is known of a trace, so that each is made
/// once. Clones share them.
#[derive(Clone, Default)]
pub struct SharedInputs {
    /// Each is a key with its input.
    kept: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
    inputs_max: Option<usize>,
}

impl SharedInputs {
    /// Keeps all of them.
    pub fn new() -> SharedInputs {
        SharedInputs::default()
    }

    /// Keeps at most so many: one more discards all others, which loads that have them still hold.
    pub fn at_most(inputs_max: usize) -> SharedInputs {
        SharedInputs {
            inputs_max: Some(inputs_max),
            ..SharedInputs::default()
        }
    }

    /// The input of this key, which is made now if no load with the same types has asked for it.
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
