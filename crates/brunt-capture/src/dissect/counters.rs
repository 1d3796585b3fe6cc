//! All counters of the loss ledger by name, including the protocol-specific ones. Used by reports, metrics and
//! traces. The one rule: the table of dissectors defines the counters; the ledger only stores them.

use brunt_lake::Column;
use serde::{Serialize, Serializer};

use super::registered::Registered;
use super::table::{COUNTER_COUNT, OWN_COUNTERS};
use crate::ledger::{Ledger, OWN_MAX};

const _: () = assert!(
    COUNTER_COUNT <= OWN_MAX,
    "the ledger is too small for all counters"
);

impl Ledger {
    /// Number of counters.
    pub const COUNT: usize = Ledger::SHARED.len() + COUNTER_COUNT;

    /// The table columns that store the counters: a time, then each counter.
    pub const COLUMNS: [Column; Ledger::COUNT + 1] = {
        let mut own = [Column::int("", ""); COUNTER_COUNT];
        let mut at = 0;
        while at < COUNTER_COUNT {
            own[at] = Column::int(OWN_COUNTERS[at].1.name, OWN_COUNTERS[at].1.doc);
            at += 1;
        }
        brunt_lake::columns(&[&[Column::time("time", "When.")], &Ledger::SHARED, &own])
    };

    /// A protocol-specific counter, by its index in [`Dissector::COUNTERS`](crate::dissect::Dissector::COUNTERS).
    #[inline]
    pub fn own<D: Registered>(&mut self, place: usize) -> &mut u64 {
        assert!(place < D::COUNTER_COUNT);
        &mut self.own[D::FIRST_COUNTER + place]
    }

    /// All counters, in the order of the columns.
    pub fn counters(&self) -> [u64; Ledger::COUNT] {
        let (shared, mut all) = (self.shared(), [0; Ledger::COUNT]);
        all[..shared.len()].copy_from_slice(&shared);
        all[shared.len()..].copy_from_slice(&self.own[..COUNTER_COUNT]);
        all
    }

    /// All counters with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Ledger::COLUMNS[1..]
            .iter()
            .map(|column| column.name)
            .zip(self.counters())
    }

    /// Creates a ledger from all counters.
    pub fn from_counters(counters: [u64; Ledger::COUNT]) -> Ledger {
        let own = |index: usize| {
            counters
                .get(Ledger::SHARED.len() + index)
                .copied()
                .unwrap_or(0)
        };
        Ledger::from_parts(
            std::array::from_fn(|index| counters[index]),
            std::array::from_fn(own),
        )
    }
}

/// Serialized as an object with all counters by name.
impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}
