//! Which operations there are, how long each takes, how many fail.

use super::{Event, Latency};

/// Index of MOUNT's operations.
pub const MOUNT: usize = 22;
/// Index of all others.
pub const OTHER: usize = 23;

/// Names of operations, by index: NFSv3's procedures, MOUNT, others.
pub const NAMES: [&str; 24] = [
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
];

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
#[derive(Debug, Default)]
pub struct Mix {
    by_index: [Operations; 24],
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

    /// Figures by index.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Operations)> {
        NAMES.into_iter().zip(&self.by_index)
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
