//! The kinds of operations on devices and files. A load declares the kinds that it issues; figures, tables and pages
//! have an entry for each.
//!
//! To add a kind, add a variant at the end and its row in [`TABLE`]. The rule: a name that has been written to a result
//! never changes its meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OpKind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Flushes the write cache.
    Flush,
    /// Deallocates blocks; they read as zeros.
    Unmap,
    /// Zeroes blocks without sending data.
    WriteZeroes,
    /// Looks up a name in a directory.
    Lookup,
    /// Creates a file.
    Create,
    /// Removes a file.
    Remove,
    /// Opens a file.
    Open,
    /// Closes a file.
    Close,
    /// Reads a file's attributes, by name or file handle.
    GetAttributes,
    /// Changes a file's attributes.
    SetAttributes,
    /// Lists a directory.
    ReadDirectory,
    /// Renames or moves a file.
    Rename,
    /// Creates a hard link.
    Link,
    /// Creates a symbolic link.
    SymbolicLink,
    /// Reads a symbolic link.
    ReadLink,
    /// Creates a directory.
    MakeDirectory,
    /// Removes an empty directory.
    RemoveDirectory,
    /// Checks access permissions.
    Access,
    /// Changes a file's length.
    Truncate,
    /// Reads properties of a file system, or only whether its server replies.
    FileSystem,
    /// Locks a range of a file.
    Lock,
    /// Tests whether a range of a file could be locked.
    TestLock,
    /// Unlocks a range of a file.
    Unlock,
}

/// Properties of a kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// The kind.
    pub kind: OpKind,
    /// Name in files, tables and messages.
    pub name: &'static str,
    /// Whether the operation transfers the bytes in its request; the bytes of other kinds are left out of sums over
    /// kinds.
    pub moves_bytes: bool,
}

const fn moves(kind: OpKind, name: &'static str) -> OpInfo {
    OpInfo {
        kind,
        name,
        moves_bytes: true,
    }
}

const fn other(kind: OpKind, name: &'static str) -> OpInfo {
    OpInfo {
        kind,
        name,
        moves_bytes: false,
    }
}

/// All kinds, in the order of [`OpKind`].
pub const TABLE: [OpInfo; 25] = [
    moves(OpKind::Read, "read"),
    moves(OpKind::Write, "write"),
    other(OpKind::Flush, "flush"),
    other(OpKind::Unmap, "unmap"),
    other(OpKind::WriteZeroes, "write-zeroes"),
    other(OpKind::Lookup, "lookup"),
    other(OpKind::Create, "create"),
    other(OpKind::Remove, "remove"),
    other(OpKind::Open, "open"),
    other(OpKind::Close, "close"),
    other(OpKind::GetAttributes, "get-attributes"),
    other(OpKind::SetAttributes, "set-attributes"),
    other(OpKind::ReadDirectory, "read-directory"),
    other(OpKind::Rename, "rename"),
    other(OpKind::Link, "link"),
    other(OpKind::SymbolicLink, "symbolic-link"),
    other(OpKind::ReadLink, "read-link"),
    other(OpKind::MakeDirectory, "make-directory"),
    other(OpKind::RemoveDirectory, "remove-directory"),
    other(OpKind::Access, "access"),
    other(OpKind::Truncate, "truncate"),
    other(OpKind::FileSystem, "file-system"),
    other(OpKind::Lock, "lock"),
    other(OpKind::TestLock, "test-lock"),
    other(OpKind::Unlock, "unlock"),
];

impl OpKind {
    /// Properties of this kind.
    pub fn info(self) -> &'static OpInfo {
        &TABLE[self as usize]
    }

    /// Name in files, tables and messages: `read`, `get-attributes`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Whether the operation transfers the bytes in its request.
    pub fn moves_bytes(self) -> bool {
        self.info().moves_bytes
    }

    /// The kind with this name.
    pub fn of_name(name: &str) -> Option<OpKind> {
        TABLE
            .iter()
            .find(|info| info.name == name)
            .map(|info| info.kind)
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
            assert_eq!(
                serde_json::from_value::<OpKind>(info.name.into()).unwrap(),
                info.kind
            );
            assert_eq!(OpKind::of_name(info.name), Some(info.kind));
        }
        assert_eq!(OpKind::of_name("nonsense"), None);
    }
}
