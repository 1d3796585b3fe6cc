//! Counters of connections and of their threads' rings, which other threads can read at any time. The threads set
//! them once per turn; [`super::TargetStats`] sums them up.

use std::sync::atomic::{AtomicU64, Ordering};

use brunt_block::Ring;

use super::connection::ConnectionCounters;

/// A connection's counters.
#[derive(Debug, Default)]
pub(super) struct LiveCounters {
    fields: [AtomicU64; 6],
}

impl LiveCounters {
    pub fn set(&self, counters: ConnectionCounters) {
        let values = [
            counters.commands,
            counters.data_out_bytes,
            counters.data_in_bytes,
            counters.rejects,
            counters.digest_errors,
            counters.ignored,
        ];
        for (field, value) in self.fields.iter().zip(values) {
            field.store(value, Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> ConnectionCounters {
        let value = |index: usize| self.fields[index].load(Ordering::Relaxed);
        ConnectionCounters {
            commands: value(0),
            data_out_bytes: value(1),
            data_in_bytes: value(2),
            rejects: value(3),
            digest_errors: value(4),
            ignored: value(5),
        }
    }
}

/// Resources used by a worker's ring so far.
#[derive(Debug, Default)]
pub(super) struct LiveRing {
    system_calls: AtomicU64,
    polled_nanos: AtomicU64,
}

impl LiveRing {
    pub fn set(&self, ring: &Ring) {
        let calls = ring.stats().system_calls;
        self.system_calls.store(calls, Ordering::Relaxed);
        self.polled_nanos
            .store(ring.polled_nanos(), Ordering::Relaxed);
    }

    /// System calls.
    pub fn system_calls(&self) -> u64 {
        self.system_calls.load(Ordering::Relaxed)
    }

    /// Time spent polling, in nanoseconds.
    pub fn polled_nanos(&self) -> u64 {
        self.polled_nanos.load(Ordering::Relaxed)
    }
}
