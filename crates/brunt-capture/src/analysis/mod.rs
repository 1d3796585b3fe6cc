//! Analyses of live traffic: each sees every operation once and keeps a sketch of bounded size. The pipeline's sink;
//! [`Analysis::report`] returns the findings. The one rule: an operation may cost only a few tens of nanoseconds, so
//! it is reduced to an [`OperationEvent`] once, and all analyses share that event.

mod analyse;
mod bounded;
mod duplicates;
mod errors;
mod event;
mod findings;
mod glance;
mod hide;
mod histogram;
mod hot;
#[cfg(test)]
mod largest;
mod latency;
mod mix;
mod names;
mod not_understood;
mod order;
mod profile;
mod rates;
pub mod report;
mod selection;
mod servers;
mod table;

pub use analyse::Analyse;
pub use event::OperationEvent;
pub use findings::ledger_findings;
pub use glance::{Analysed, CaptureGlance, OperationGlance, PastWindows};
pub use histogram::OperationLatency;
pub use hot::HotLoad;
pub(crate) use latency::bucket as latency_bucket;
pub use latency::{Latency, Quantiles};
pub(crate) use profile::{Profile, ProfileFigures, working_set_blocks};
pub use report::{Finding, Report};
pub use selection::{AnalysisSet, UnknownAnalysis};
pub use servers::ServerProfile;
pub use table::{ANALYSES, AnalysisInfo};

use std::collections::BTreeMap;
use std::sync::Arc;

use brunt_wire::net::{IpAddress, NextHeader};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hide::Hide;
use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, FileKey, Operation, Sink};
use table::Analyses;

/// Events are collected and processed in batches, so that the memory accesses to many table entries overlap.
const EVENTS_PENDING: usize = 64;

/// All analyses.
#[derive(Debug)]
pub struct Analysis {
    pub(crate) all: Analyses,
    pending: Vec<OperationEvent>,
    /// Replaces identifying data before any analysis sees it.
    hide: Option<Arc<dyn Hide>>,
}

impl Default for Analysis {
    fn default() -> Analysis {
        Analysis::new()
    }
}

/// The serialized state: the state of each analysis, by name.
impl Serialize for Analysis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(
            self.pending.is_empty(),
            "deferred operations are processed first"
        );
        self.all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Analysis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Analysis, D::Error> {
        Ok(Analysis {
            all: Analyses::deserialize(deserializer)?,
            ..Analysis::new()
        })
    }
}

impl Analysis {
    /// An empty state. All analyses together use less than 80 MB, plus at most 280 KiB per kind of operation.
    pub fn new() -> Analysis {
        Analysis {
            all: Analyses::default(),
            pending: Vec::with_capacity(EVENTS_PENDING),
            hide: None,
        }
    }

    /// An empty state that replaces names, addresses and ids.
    pub fn hiding(hide: Arc<dyn Hide>) -> Analysis {
        Analysis {
            hide: Some(hide),
            ..Analysis::new()
        }
    }

    /// An empty state that hides the same data and runs the same analyses.
    pub fn afresh(&self) -> Analysis {
        Analysis {
            hide: self.hide.clone(),
            ..Analysis::new()
        }
        .running(self.all.selected)
    }

    /// This state, but running only these analyses from now on.
    #[must_use]
    pub fn running(mut self, selected: AnalysisSet) -> Analysis {
        self.all.selected = selected;
        self
    }

    /// The analyses that run.
    pub fn selected(&self) -> AnalysisSet {
        self.all.selected
    }

    /// Sets the earliest time: requests sent before it count at this time.
    pub(crate) fn begin_at(&mut self, from_ns: u64) {
        self.all.rates.begin_at(from_ns);
    }

    /// Extends the time covered by the capture to at least this range, even where there were no packets.
    pub(crate) fn cover(&mut self, from_ns: u64, until_ns: u64) {
        self.all.rates.cover(from_ns, until_ns);
    }

    /// The latest time seen, in nanoseconds since 1970; 0 if none.
    pub(crate) fn end_ns(&self) -> u64 {
        self.all.rates.end_ns()
    }

    /// The workload profile.
    pub(crate) fn profile(&self) -> std::borrow::Cow<'_, ProfileFigures> {
        self.all.profile.figures()
    }

    /// The sum of an operation's latencies, in nanoseconds.
    pub(crate) fn latency_sum_ns(&self, operation: &str) -> u64 {
        let of = |(name, o): (&str, &mix::OperationFigures)| {
            (name == operation).then(|| o.latency.sum_ns())
        };
        self.all.mix.iter().filter_map(of).sum()
    }

    /// An operation's latencies: the upper bound of each bucket (there are eight per power of two) and its count.
    pub(crate) fn latency_buckets(&self, operation: &str) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for (_, o) in self.all.mix.iter().filter(|(name, _)| *name == operation) {
            for (up_to_ns, count) in o.latency.buckets() {
                let up_to_ns = latency::bucket_up_to(latency_bucket(up_to_ns)).max(up_to_ns);
                *counts.entry(up_to_ns).or_default() += count;
            }
        }
        counts
    }

    /// Adds the state of another pipeline, or of another part of the traffic.
    pub fn merge(&mut self, mut other: Analysis) {
        self.settle();
        other.settle();
        self.all.merge(other.all);
    }

    // For replaying a stored trace, whose tables contain what `Sink` derives from operations.

    pub(crate) fn feed_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.all.on_packet(time_ns, wire_len);
    }

    pub(crate) fn feed_not_understood(&mut self, next: NextHeader, wire_len: u32) {
        self.all.on_not_understood(next, wire_len);
    }

    pub(crate) fn feed_event(&mut self, event: OperationEvent) {
        self.pending.push(event);
    }

    pub(crate) fn feed_name(
        &mut self,
        server: IpAddress,
        file: FileKey,
        parent: Option<FileKey>,
        name: &[u8],
    ) {
        self.all.on_name(server, file, parent, name);
    }

    pub(crate) fn feed_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.all.on_checksums(run);
    }

    pub(crate) fn settle_if_full(&mut self) {
        if self.pending.len() >= EVENTS_PENDING {
            self.settle();
        }
    }

    /// Processes deferred events.
    pub fn settle(&mut self) {
        let Analysis { all, pending, .. } = self;
        all.settle();
        all.prefetch(pending);
        for (place, event) in pending.iter().enumerate() {
            all.on_event(event, place);
        }
        pending.clear();
    }
}

impl Sink for Analysis {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let (event, all) = (OperationEvent::of(operation), &mut self.all);
        let server = operation.peers.server.address;
        match &self.hide {
            None => {
                self.pending.push(event);
                operation
                    .each_name(&mut |file, parent, name| all.on_name(server, file, parent, name));
            }
            Some(hide) => {
                self.pending.push(event.hidden(&**hide));
                let server = hide.address(server);
                operation.each_name(&mut |file, parent, name| {
                    let parent = parent.map(|parent| hide.file(parent));
                    all.on_name(server, hide.file(file), parent, &hide.name(name));
                });
            }
        }
        self.settle_if_full();
    }

    #[inline]
    fn on_batch_end(&mut self, _: u64, _: &Ledger) {
        self.settle();
    }

    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        let all = &mut self.all;
        match &self.hide {
            None => all.on_checksums(run),
            Some(hide) => hide::hidden_sums(run, &**hide, |run| all.on_checksums(run)),
        }
    }

    #[inline]
    fn wants_checksums(&self) -> bool {
        self.all.wants_checksums()
    }

    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.all.on_packet(time_ns, wire_len);
    }

    fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
        self.all.on_not_understood(next, wire_len);
    }
}

#[cfg(test)]
mod tests;
