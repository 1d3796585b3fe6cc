//! `serve = …` of a target: what an experiment serves itself, in terms of the roles that serve it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an experiment serves itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a LUN such as \"memory:1GiB\", a list of LUNs, \"tcp\" or \"nfs\""
)]
pub enum Serve {
    /// A single LUN, `tcp` or `nfs`.
    One(String),
    /// A list of LUNs, numbered from 0.
    Luns(Vec<String>),
}

impl Serve {
    /// The entries as written, in order.
    pub fn words(&self) -> &[String] {
        match self {
            Serve::One(word) => std::slice::from_ref(word),
            Serve::Luns(words) => words,
        }
    }

    /// What is served, with a fault layer on top of a LUN's device; the LUN's option `faults` requests it.
    pub fn with_fault_layer(mut self, lun: u16) -> Serve {
        let word = match &mut self {
            Serve::One(word) => Some(word),
            Serve::Luns(words) => words.get_mut(usize::from(lun)),
        };
        if let Some(word) = word
            && !word.split(',').any(|option| option == "faults")
        {
            word.push_str(",faults");
        }
        self
    }
}
