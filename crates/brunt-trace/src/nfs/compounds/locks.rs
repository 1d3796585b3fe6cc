//! LOCK, LOCKT and LOCKU, which NFSv3 leaves to another protocol: they keep their own numbers and arguments.
//!
//! The rule: an owner has one number, whether a call names it or only the stateid of its locks.

use std::collections::HashMap;

use brunt_lake::Batch;

use super::{CompoundCalls, CompoundStep, NfsTraceLock, Walker, procedure};
use crate::nfs::number;
use crate::tables::{count, int};

/// The columns of a lock operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepLock {
    pub(super) kind: u32,
    pub(super) length_bytes: u64,
    pub(super) owner: Option<i64>,
    pub(super) state: Option<i64>,
}

impl StepLock {
    /// `None` for other operations, and in traces of older versions.
    pub(super) fn read(batch: &Batch, row: usize) -> Option<StepLock> {
        let length_bytes = count(int(batch, "lock_bytes", row))?;
        Some(StepLock {
            kind: number(batch, "lock_type", row)?,
            length_bytes: match length_bytes == i64::MAX as u64 {
                true => u64::MAX,
                false => length_bytes,
            },
            owner: int(batch, "lock_owner", row),
            state: int(batch, "lock_state", row),
        })
    }
}

/// How a call identifies an owner, by a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Name(i64),
    State(i64),
}

/// The numbers of lock owners.
#[derive(Debug, Default)]
pub(super) struct LockOwners {
    /// By client, because owners of different clients may have the same name.
    numbers: HashMap<(u32, Identity), u32>,
    count: u32,
}

impl LockOwners {
    /// The number of a lock's owner. An owner whose name was not captured is identified by its stateid.
    fn number(&mut self, client: u32, lock: &StepLock) -> u32 {
        let identities = [
            lock.owner.map(Identity::Name),
            lock.state.map(Identity::State),
        ];
        let keys = identities.into_iter().flatten().map(|it| (client, it));
        let known = keys.clone().find_map(|key| self.numbers.get(&key).copied());
        let number = known.unwrap_or(self.count);
        self.count = self.count.max(number + 1);
        self.numbers.extend(keys.map(|key| (key, number)));
        number
    }
}

impl CompoundCalls {
    pub(super) fn lock(&mut self, step: &CompoundStep, file: Option<i64>, walker: &Walker) {
        let operation = match step.operation.as_str() {
            "LOCK" => 12,
            "LOCKT" => 13,
            _ => 14,
        };
        let Some(lock) = step.lock else {
            let name = &step.operation;
            return self.without_counterpart(format!("NFSv4 {name}: arguments not captured"));
        };
        let record = self.call(procedure::NULL, step, file);
        let row = NfsTraceLock {
            operation,
            kind: lock.kind,
            length_bytes: lock.length_bytes,
            owner: self.lock_owners.number(walker.client, &lock),
        };
        self.locks.push((record, row));
    }
}
