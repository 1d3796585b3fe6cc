//! Operation kinds and protocols by their numbers in the table of dissectors, with their names and serialized form.
//! The one rule: a number is valid only within one process; names are stored and sent instead.

use brunt_result::OpKind;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::table::{KIND_COUNT, PROTOCOL_COUNT, kind_at, protocol_at};
use crate::operation::{OperationKind, Protocol};

impl OperationKind {
    /// Number of kinds.
    pub const COUNT: usize = KIND_COUNT;

    /// All kinds, in table order.
    pub fn all() -> impl Iterator<Item = OperationKind> {
        (0..Self::COUNT as u16).map(OperationKind::numbered)
    }

    /// The kind with this index.
    pub(crate) fn from_index(index: usize) -> OperationKind {
        assert!(index < Self::COUNT, "unknown operation {index}");
        OperationKind::numbered(index as u16)
    }

    /// The kind's name in the protocol's standard.
    pub fn name(self) -> &'static str {
        kind_at(self.index()).1.name
    }

    /// The corresponding operation in workloads and results, if there is one.
    pub fn op(self) -> Option<OpKind> {
        kind_at(self.index()).1.op
    }

    /// The kinds of all protocols that correspond to this operation in workloads and results.
    pub fn of_op(op: OpKind) -> impl Iterator<Item = OperationKind> {
        OperationKind::all().filter(move |kind| kind.op() == Some(op))
    }

    /// The name of the dissector that produces these operations.
    pub fn dissector(self) -> &'static str {
        kind_at(self.index()).0.name
    }
}

/// Serialized as the names of the dissector and of the kind: indexes are valid only within one process.
impl Serialize for OperationKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.dissector(), self.name()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OperationKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OperationKind, D::Error> {
        let (dissector, name) = <(String, String)>::deserialize(deserializer)?;
        let found =
            OperationKind::all().find(|kind| kind.dissector() == dissector && kind.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("unknown operation {name} of {dissector}")))
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Protocol, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Protocol::all().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("unknown protocol {name}")))
    }
}

impl Protocol {
    /// Number of protocols.
    pub const COUNT: usize = PROTOCOL_COUNT;

    /// All protocols, in table order.
    pub fn all() -> impl Iterator<Item = Protocol> {
        (0..Self::COUNT as u8).map(Protocol::numbered)
    }

    /// The protocol with this index.
    pub(crate) fn from_index(index: usize) -> Protocol {
        assert!(index < Self::COUNT, "unknown protocol {index}");
        Protocol::numbered(index as u8)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        protocol_at(self.index()).1.name
    }

    /// The name of the dissector that handles it.
    pub fn dissector(self) -> &'static str {
        protocol_at(self.index()).0.name
    }

    /// The name of a status, or its number.
    pub fn status_name(self, status: u32) -> String {
        let name = (protocol_at(self.index()).1.status_name)(status);
        name.map_or_else(|| status.to_string(), str::to_string)
    }
}
