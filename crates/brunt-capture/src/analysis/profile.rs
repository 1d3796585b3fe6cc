//! The workload profile for sizing storage: how much is read and written, in what sizes, sequentially or randomly,
//! over how large a working set, and at what queue depth.

use std::borrow::Cow;

use brunt_core::sketch::spread;
use brunt_core::{HyperLogLog, rank};
use brunt_result::capture::AnalysisSection;
use serde::{Deserialize, Serialize, Serializer};

use super::analyse::Analyse;
use super::event::OperationEvent;
use super::order::{FileTransfer, Order};
use super::servers::{ServerFigures, Servers};
use crate::operation::{FileKey, TransferDirection};

/// The granularity of working sets.
pub const WORKING_SET_BLOCK_BYTES: u64 = 4096;
/// Maximum blocks of one operation that are added to the working set: 16 MiB of data, plus one block because a
/// misaligned transfer touches one more.
const BLOCKS_MAX: u64 = 4096;

/// READs or WRITEs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transfers {
    /// Number of operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Operations that began where the client's previous one of the same kind on the same file ended.
    pub sequential: u64,
    /// Counts by size: index `i` counts operations of at most `2^i` bytes that don't fit a smaller class.
    pub by_size: [u64; 32],
}

/// The profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "ProfileFigures")]
pub struct Profile {
    /// Everything that doesn't depend on order, and the order-dependent figures of transfers already judged.
    figures: ProfileFigures,
    order: Order,
}

/// The figures of the profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileFigures {
    /// What was read and written at each server.
    pub servers: Servers,
    all: HyperLogLog,
    outstanding_max: u32,
    /// Sum of all latencies.
    waited_ns: u64,
}

impl From<ProfileFigures> for Profile {
    fn from(figures: ProfileFigures) -> Profile {
        Profile {
            figures,
            order: Order::default(),
        }
    }
}

/// Serialized as if all waiting transfers had been judged, so that the receiver has nothing pending.
impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.figures().serialize(serializer)
    }
}

impl Profile {
    /// The figures as if the input had ended, including transfers that are still waiting.
    pub fn figures(&self) -> Cow<'_, ProfileFigures> {
        if self.order.is_empty() {
            return Cow::Borrowed(&self.figures);
        }
        let mut all = self.clone();
        all.finish();
        Cow::Owned(all.figures)
    }

    /// Judges the transfers that are still waiting.
    fn finish(&mut self) {
        while let Some((transfer, sequential)) = self.order.next() {
            self.figures.judge(&transfer, sequential);
        }
    }
}

/// The block numbers that a transfer touches.
pub fn working_set_blocks(offset: u64, bytes: u32) -> impl Iterator<Item = u64> {
    let first = offset / WORKING_SET_BLOCK_BYTES;
    let last = offset.saturating_add(u64::from(bytes).saturating_sub(1)) / WORKING_SET_BLOCK_BYTES;
    (first..=last.min(first.saturating_add(BLOCKS_MAX))).filter(move |_| bytes > 0)
}

/// Hashes of the blocks that a transfer touches, mixed with the file.
fn blocks(file: FileKey, offset: u64, bytes: u32) -> impl Iterator<Item = u64> {
    let hash = move |block: u64| {
        spread(
            file.0
                .wrapping_add(block.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        )
    };
    working_set_blocks(offset, bytes).map(hash)
}

impl ProfileFigures {
    #[inline]
    fn judge(&mut self, transfer: &FileTransfer, sequential: bool) {
        let write = transfer.direction == TransferDirection::Write;
        let server = self.servers.at(transfer.server);
        server.transfers[usize::from(write)].sequential += u64::from(sequential);
        if !write && !sequential {
            let touched = blocks(transfer.file, transfer.offset, transfer.bytes);
            touched.for_each(|hash| server.random_reads.insert(hash));
        }
    }

    /// The sum of all servers.
    pub fn total(&self) -> ServerFigures {
        self.servers.total()
    }

    /// Standard error of the working set estimates, in percent.
    pub fn working_set_error_percent(&self) -> f64 {
        100.0 * self.all.standard_error()
    }

    /// Total bytes touched.
    pub fn working_set_bytes(&self) -> u64 {
        self.all.count() * WORKING_SET_BLOCK_BYTES
    }

    /// Outstanding calls: the mean over `duration_s` (Little's law: total waiting time divided by the duration;
    /// `None` if the duration is zero), and the peak seen when a call arrived (with several pipelines, the highest
    /// peak of any single pipeline).
    pub fn outstanding(&self, duration_s: f64) -> (Option<f64>, u32) {
        let mean = (duration_s > 0.0).then(|| self.waited_ns as f64 * 1e-9 / duration_s);
        (mean, self.outstanding_max)
    }
}

impl Analyse for Profile {
    const HELP: &'static str =
        "workload profile for sizing: amounts, sizes, order, working set, depth";
    const SQL: Option<&'static str> = Some(include_str!("../../sql/profile.sql"));

    #[inline]
    fn on_event(&mut self, event: &OperationEvent, _: usize) {
        let figures = &mut self.figures;
        figures.waited_ns = figures
            .waited_ns
            .saturating_add(event.latency_ns.unwrap_or(0));
        figures.outstanding_max = figures.outstanding_max.max(event.outstanding);
        let place = figures.servers.place(event.server);
        let server = figures.servers.at(place);
        let Some(direction) = event.transfer() else {
            match event.direction {
                Some(_) => server.left_out.add(event.outcome),
                None => server.metadata += 1,
            }
            return;
        };
        server.times.add(event.time_ns);
        let transfers = &mut server.transfers[usize::from(direction == TransferDirection::Write)];
        transfers.operations += 1;
        transfers.bytes += u64::from(event.bytes);
        transfers.by_size[size_class(event.bytes)] += 1;
        if let Some(file) = event.file {
            blocks(file, event.offset, event.bytes).for_each(|hash| figures.all.insert(hash));
        }
        if let Some((transfer, sequential)) = self.order.add(event, place) {
            figures.judge(&transfer, sequential);
        }
    }

    fn merge(&mut self, mut other: Profile) {
        self.finish();
        other.finish();
        self.figures.merge(&other.figures);
    }

    fn sections(&self) -> Vec<AnalysisSection> {
        self.figures().servers.sections()
    }
}

impl ProfileFigures {
    pub(crate) fn merge(&mut self, other: &ProfileFigures) {
        self.servers.merge(&other.servers);
        self.outstanding_max = self.outstanding_max.max(other.outstanding_max);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.all.merge(&other.all);
    }
}

impl Transfers {
    pub(super) fn merge(&mut self, other: &Transfers) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.sequential += other.sequential;
        for (mine, theirs) in self.by_size.iter_mut().zip(&other.by_size) {
            *mine += theirs;
        }
    }

    /// Share of sequential transfers; `None` without transfers.
    pub fn sequential_share(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.sequential as f64 / self.operations as f64)
    }

    /// The size that a share `q` of the transfers does not exceed, rounded up to a power of two; `None` without
    /// transfers.
    pub fn size_quantile(&self, q: f64) -> Option<u64> {
        if self.operations == 0 {
            return None;
        }
        let rank = rank(100.0 * q, self.operations);
        let mut below = 0;
        for (class, count) in self.by_size.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(1 << class);
            }
        }
        None
    }
}

fn size_class(bytes: u32) -> usize {
    ((32 - bytes.saturating_sub(1).leading_zeros()) as usize).min(31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dissect::rpc::GETATTR;
    use crate::operation::Protocol;

    /// Size classes are powers of two, and a working set counts each block once.
    #[test]
    fn sizes_have_classes_and_working_sets_count_each_block_once() {
        for (bytes, class) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 2),
            (4096, 12),
            (4097, 13),
            (65536, 16),
        ] {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
        let mut profile = Profile::default();
        for pass in 0..3u64 {
            for i in 0..1000u64 {
                // Descending offsets in the first two passes, ascending ones in the last.
                let block = if pass < 2 { 999 - i } else { i };
                let event = OperationEvent {
                    record_id: pass * 1000 + i,
                    time_ns: 0,
                    latency_ns: Some(2_000_000),
                    client: Default::default(),
                    server: Default::default(),
                    kind: GETATTR,
                    protocol: Protocol::all().next().unwrap(),
                    direction: Some(TransferDirection::Read),
                    outcome: brunt_core::TransferOutcome::Moved,
                    file: Some(FileKey(77)),
                    offset: block * 65536,
                    bytes: 65536,
                    error: None,
                    outstanding: 4,
                };
                profile.on_event(&event, 0);
            }
        }
        let figures = profile.figures();
        let expected = 1000.0 * 65536.0;
        for found in [
            figures.working_set_bytes(),
            figures.total().random_read_working_set_bytes(),
        ] {
            assert!((found as f64 / expected - 1.0).abs() < 0.03, "{found}");
        }
        assert_eq!(figures.total().transfers[0].sequential, 999);
        assert_eq!(figures.total().transfers[0].size_quantile(0.5), Some(65536));
        let written = &figures.total().transfers[1];
        assert_eq!(
            (written.size_quantile(0.95), written.sequential_share()),
            (None, None)
        );
        // 3000 calls of 2 ms in 1.5 s.
        assert_eq!(figures.outstanding(1.5), (Some(4.0), 4));
        assert_eq!(figures.outstanding(0.0), (None, 4));
    }
}
