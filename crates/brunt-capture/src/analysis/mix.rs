//! Which operations there are, how long each takes, how many fail.

use std::collections::HashMap;

use brunt_wire::nfs::v4;

use super::{Event, Latency};

/// Index of MOUNT's operations.
pub const MOUNT: usize = 22;
/// Index of all others.
pub const OTHER: usize = 23;

/// Index of NFSv4's callbacks.
pub const CALLBACK: usize = 24;
/// NFSv4's own operations follow, by their numbers; the last stands for ILLEGAL.
const V4_FIRST: usize = 25;
const V4_LAST: usize = V4_FIRST + 76;
const INDEXES: usize = V4_LAST + 1;

/// Names of the first operations, by index: NFSv3's procedures, MOUNT, others, callbacks.
const NAMES: [&str; V4_FIRST] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
    "MOUNT",
    "other RPC",
    "CALLBACK",
];

/// An operation's name.
pub fn name(index: usize) -> &'static str {
    match index.checked_sub(V4_FIRST) {
        None => NAMES[index],
        Some(number) => v4::Op::from_number(number as u32).map_or("ILLEGAL", v4::Op::name),
    }
}

/// The index of each name.
pub fn indexes() -> HashMap<&'static str, usize> {
    // Where NFSv4 has the same name the first one is meant, and numbers without a name mean ILLEGAL.
    let mut indexes: HashMap<_, _> = (0..INDEXES).rev().map(|index| (name(index), index)).collect();
    indexes.insert(v4::Op::Illegal.name(), V4_LAST);
    indexes
}

/// The index of an operation of NFSv4: that of NFSv3's procedure where both mean the same.
pub fn of_v4(op: v4::Op) -> usize {
    use v4::Op;
    match op {
        Op::Getattr => 1,
        Op::Setattr => 2,
        Op::Lookup => 3,
        Op::Access => 4,
        Op::Readlink => 5,
        Op::Read => 6,
        Op::Write => 7,
        Op::Create => 8,
        Op::Remove => 12,
        Op::Rename => 14,
        Op::Link => 15,
        Op::Readdir => 16,
        Op::Commit => 21,
        Op::Illegal => V4_LAST,
        other => V4_FIRST + other as usize,
    }
}

/// One operation's figures.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Calls.
    pub calls: u64,
    /// Calls whose reply was seen.
    pub replies: u64,
    /// Replies with a status that is not OK.
    pub errors: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// How long they took.
    pub latency: Latency,
}

/// All operations.
#[derive(Debug)]
pub struct Mix {
    by_index: Box<[Operations]>,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix { by_index: vec![Operations::default(); INDEXES].into() }
    }
}

impl Mix {
    #[inline]
    pub(super) fn on_event(&mut self, event: &Event) {
        let operations = &mut self.by_index[event.operation];
        operations.calls += 1;
        operations.errors += u64::from(event.error.is_some());
        operations.bytes += u64::from(event.bytes);
        if let Some(ns) = event.latency_ns {
            operations.replies += 1;
            operations.latency.record(ns);
        }
    }

    pub(super) fn merge(&mut self, other: &Mix) {
        for (mine, theirs) in self.by_index.iter_mut().zip(&other.by_index) {
            mine.calls += theirs.calls;
            mine.replies += theirs.replies;
            mine.errors += theirs.errors;
            mine.bytes += theirs.bytes;
            mine.latency.merge(&theirs.latency);
        }
    }

    /// Figures by index.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Operations)> {
        (0..INDEXES).map(name).zip(&self.by_index)
    }

    /// All calls.
    pub fn calls(&self) -> u64 {
        self.by_index.iter().map(|o| o.calls).sum()
    }

    /// One operation's figures.
    pub fn of(&self, index: usize) -> &Operations {
        &self.by_index[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each operation has a place and its own name there.
    #[test]
    fn names() {
        for op in v4::Op::ALL {
            assert_eq!(name(of_v4(*op)), op.name());
            assert_eq!(indexes()[op.name()], of_v4(*op));
        }
        assert_eq!(Mix::default().iter().count(), INDEXES);
    }
}
