//! The mix of operations: how many of each kind, their latencies and failures.

use serde::{Deserialize, Serialize};

use super::OperationLatency;
use super::analyse::Analyse;
use super::event::OperationEvent;
use crate::operation::OperationKind;

/// The figures of one kind of operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationFigures {
    /// Calls.
    pub calls: u64,
    /// Calls whose reply was seen.
    pub replies: u64,
    /// Replies with an error status.
    pub errors: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Their latency.
    pub latency: OperationLatency,
}

/// The figures of all kinds of operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    from = "Vec<(OperationKind, OperationFigures)>",
    into = "Vec<(OperationKind, OperationFigures)>"
)]
pub struct Mix {
    by_kind: Box<[OperationFigures]>,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            by_kind: vec![OperationFigures::default(); OperationKind::COUNT].into(),
        }
    }
}

impl Mix {
    /// Figures by kind, with the kind's name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &OperationFigures)> {
        OperationKind::all()
            .map(OperationKind::name)
            .zip(&self.by_kind)
    }

    /// Total number of calls.
    pub fn calls(&self) -> u64 {
        self.by_kind.iter().map(|o| o.calls).sum()
    }

    /// The figures of one kind of operation.
    pub fn of(&self, kind: OperationKind) -> &OperationFigures {
        &self.by_kind[kind.index()]
    }
}

/// The serialized form: only the kinds that occurred.
impl From<Mix> for Vec<(OperationKind, OperationFigures)> {
    fn from(mix: Mix) -> Vec<(OperationKind, OperationFigures)> {
        OperationKind::all()
            .zip(mix.by_kind)
            .filter(|(_, operations)| operations.calls > 0)
            .collect()
    }
}

impl From<Vec<(OperationKind, OperationFigures)>> for Mix {
    fn from(stored: Vec<(OperationKind, OperationFigures)>) -> Mix {
        let mut mix = Mix::default();
        for (kind, operations) in stored {
            mix.by_kind[kind.index()] = operations;
        }
        mix
    }
}

impl Analyse for Mix {
    const HELP: &'static str = "number, latency and failures of each operation";
    const SQL: Option<&'static str> = Some(include_str!("../../sql/mix.sql"));

    /// Prefetches the counters that these events will update.
    fn prefetch(&mut self, events: &[OperationEvent]) {
        for event in events {
            if let Some(ns) = event.latency_ns {
                self.by_kind[event.kind.index()].latency.prefetch(ns);
            }
        }
    }

    #[inline]
    fn on_event(&mut self, event: &OperationEvent, _: usize) {
        let operations = &mut self.by_kind[event.kind.index()];
        operations.calls += 1;
        operations.errors += u64::from(event.error.is_some());
        operations.bytes += u64::from(event.bytes);
        if let Some(ns) = event.latency_ns {
            operations.replies += 1;
            operations.latency.record(ns);
        }
    }

    fn merge(&mut self, other: Mix) {
        for (mine, theirs) in self.by_kind.iter_mut().zip(&other.by_kind) {
            mine.calls += theirs.calls;
            mine.replies += theirs.replies;
            mine.errors += theirs.errors;
            mine.bytes += theirs.bytes;
            mine.latency.merge(&theirs.latency);
        }
    }
}
