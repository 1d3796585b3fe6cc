//! The kinds of operations that loads are made of, on devices and on files. A load states which ones it makes;
//! figures, tables and pages have a part for each of those.
//!
//! To add a kind: a variant at the end and its row in [`TABLE`]. The rule: a name, once written to a result,
//! never changes its meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // TABLE says what each does
pub enum OpKind {
    Read,
    Write,
    Flush,
    Unmap,
    WriteZeroes,
    Lookup,
    Create,
    Remove,
    Open,
    Close,
    GetAttributes,
    SetAttributes,
    ReadDirectory,
    Rename,
    Link,
    SymbolicLink,
    ReadLink,
    MakeDirectory,
    RemoveDirectory,
    Access,
    Truncate,
}

/// What there is to know of a kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// The kind.
    pub kind: OpKind,
    /// As it is called in files, tables and messages.
    pub name: &'static str,
    /// Whether it moves the bytes that it names; the figures of others have requests only.
    pub moves_bytes: bool,
    /// What it does.
    pub help: &'static str,
}

const fn moves(kind: OpKind, name: &'static str, help: &'static str) -> OpInfo {
    OpInfo { kind, name, moves_bytes: true, help }
}

const fn other(kind: OpKind, name: &'static str, help: &'static str) -> OpInfo {
    OpInfo { kind, name, moves_bytes: false, help }
}

/// All kinds, in the order of [`OpKind`].
pub const TABLE: [OpInfo; 21] = [
    moves(OpKind::Read, "read", "reads data"),
    moves(OpKind::Write, "write", "writes data"),
    other(OpKind::Flush, "flush", "makes completed writes stable"),
    other(OpKind::Unmap, "unmap", "gives blocks back; they read as zeros"),
    other(OpKind::WriteZeroes, "write-zeroes", "has blocks read as zeros without sending any"),
    other(OpKind::Lookup, "lookup", "finds a name in a directory"),
    other(OpKind::Create, "create", "makes a file"),
    other(OpKind::Remove, "remove", "removes a file's name"),
    other(OpKind::Open, "open", "opens a file"),
    other(OpKind::Close, "close", "closes a file"),
    other(OpKind::GetAttributes, "get-attributes", "reads a file's attributes, by its name or opened"),
    other(OpKind::SetAttributes, "set-attributes", "changes a file's attributes"),
    other(OpKind::ReadDirectory, "read-directory", "lists names of a directory"),
    other(OpKind::Rename, "rename", "gives a file another name or directory"),
    other(OpKind::Link, "link", "gives a file one more name"),
    other(OpKind::SymbolicLink, "symbolic-link", "makes a symbolic link"),
    other(OpKind::ReadLink, "read-link", "reads where a symbolic link points to"),
    other(OpKind::MakeDirectory, "make-directory", "makes a directory"),
    other(OpKind::RemoveDirectory, "remove-directory", "removes an empty directory"),
    other(OpKind::Access, "access", "asks what the caller may do with a file"),
    other(OpKind::Truncate, "truncate", "changes a file's length"),
];

impl OpKind {
    /// What there is to know of it.
    pub fn info(self) -> &'static OpInfo {
        &TABLE[self as usize]
    }

    /// As it is called in files, tables and messages: `read`, `get-attributes`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Whether it moves the bytes that it names.
    pub fn moves_bytes(self) -> bool {
        self.info().moves_bytes
    }

    /// The kind of this name.
    pub fn of_name(name: &str) -> Option<OpKind> {
        TABLE.iter().find(|info| info.name == name).map(|info| info.kind)
    }
}

impl std::fmt::Display for OpKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_kind_at_its_place() {
        for (index, info) in TABLE.iter().enumerate() {
            assert_eq!(info.kind as usize, index, "{}", info.name);
            assert_eq!(serde_json::to_value(info.kind).unwrap(), info.name);
            assert_eq!(serde_json::from_value::<OpKind>(info.name.into()).unwrap(), info.kind);
            assert_eq!(OpKind::of_name(info.name), Some(info.kind));
            assert!(!info.help.is_empty());
        }
        assert_eq!(OpKind::of_name("nonsense"), None);
    }
}
