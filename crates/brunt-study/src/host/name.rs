//! The name of a host in an experiment: one namespace for all kinds of hosts. Only [`super::Hosts`] looks names up.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The name of the machine that runs the experiment; reserved, and also used by probes.
pub const LOCAL: &str = brunt_probe::LOCAL;

/// A host's name in an experiment's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostName(String);

impl HostName {
    /// The machine that runs the experiment.
    pub fn local() -> HostName {
        HostName(LOCAL.to_string())
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Several names, for a message.
    pub(crate) fn listed(names: &[HostName]) -> String {
        names
            .iter()
            .map(HostName::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl From<&str> for HostName {
    fn from(name: &str) -> HostName {
        HostName(name.to_string())
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for HostName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for HostName {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// The schema of a string, for editors.
impl JsonSchema for HostName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
