//! Turns the pipeline's results into rows. A sink of the pipeline, in addition to the analyses. It runs on the
//! parser's thread, so it only appends to columns. Each group of tables has a file that describes and fills them; a
//! protocol's groups are part of the protocol. The one rule: anything that could identify people or machines goes
//! through [`Pseudonyms`], so that nothing escapes anonymization.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brunt_lake::{LakeError, TableWriter, WriterLock, WriterOptions};

use super::budget::TraceParts;
use super::checksums::Checksums;
use super::common::Common;
use super::files::Files;
use super::flows::Flows;
use super::health::{HealthRows, TraceHealth};
use super::latencies::LatencyHistograms;
use super::operations::Operations;
use super::packets::Packets;
use super::pseudonyms::Pseudonyms;
use super::rows::{LANES, Registry, Rows};
use super::sketches;
use super::statistics::{NOTES, Statistics, VERSION, record_last};
use super::store::{Earlier, Lane, Shared, TraceOptions};
use crate::analysis::Analysis;
use crate::dissect::ProtocolTables;
use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, Operation, Packet, Sink, Transport};

/// Rows are sent after at most this time, however few they are.
const CHUNK_AGE: Duration = Duration::from_millis(500);
/// Time between rows of `statistics`.
const STATISTICS_NS: u64 = 1_000_000_000;
/// Upper bound on the size of the last row of `statistics`, which is in a separate part.
const LAST_ROW_BYTES: u64 = 16 << 10;
/// IANA protocol numbers of the transports.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Totals of a written trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TraceSummary {
    /// Rows in all tables, whether on disk or moved elsewhere.
    pub rows: u64,
    /// Bytes of all parts, whether on disk or moved elsewhere.
    pub bytes: u64,
    /// Parts, whether on disk or moved elsewhere.
    pub parts: u64,
    /// Rows lost because the disk or the queue to it was full.
    pub rows_lost: u64,
    /// Parts deleted to stay within the requested size.
    pub parts_deleted: u64,
    /// Rows in the deleted parts.
    pub rows_deleted: u64,
    /// Bytes of the deleted parts.
    pub bytes_deleted: u64,
}

/// Reports the state of a trace to other threads.
#[derive(Clone)]
pub struct TraceStatus(Arc<Shared>);

impl TraceStatus {
    /// Whether writing has ended with an error; [`TraceRecorder::finish`] returns that error.
    pub fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    /// Adds the counts of lost rows and deleted parts so far to a ledger.
    pub fn count_into(&self, ledger: &mut Ledger) {
        self.0.count_into(ledger);
    }

    /// Sets the number of packets dropped by the rings, so that `statistics` includes it while the capture is
    /// running.
    pub fn set_packets_dropped(&self, dropped: u64) {
        self.0.packets_dropped.store(dropped, Ordering::Relaxed);
    }
}

impl TraceStatus {
    /// Sets the health figures for the next row of `capture_health`.
    pub fn set_health(&self, health: TraceHealth) {
        self.0.set_health(health);
    }
}

/// All groups of tables.
struct Groups {
    packets: Packets,
    checksums: Checksums,
    operations: Operations,
    flows: Flows,
    latencies: LatencyHistograms,
    files: Files,
    statistics: Statistics,
    health: HealthRows,
    protocols: ProtocolTables,
}

impl Groups {
    fn register(registry: &mut Registry) -> Groups {
        let groups = Groups {
            packets: Packets::register(registry),
            checksums: Checksums::register(registry),
            operations: Operations::register(registry),
            flows: Flows::register(registry),
            latencies: LatencyHistograms::register(registry),
            files: Files::register(registry),
            protocols: ProtocolTables::register(registry),
            statistics: Statistics::register(registry),
            health: HealthRows::register(registry),
        };
        sketches::register(registry);
        groups
    }
}

/// All tables with their assigned lanes.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::default();
    Groups::register(&mut registry);
    registry
}

/// Fills the tables.
pub struct TraceRecorder {
    lanes: [Lane; LANES],
    shared: Arc<Shared>,
    common: Common,
    groups: Groups,
    latency_histograms: bool,
    generation: u64,
    chunk_bytes: usize,
    sent: Instant,
    /// When this pipeline next reports its counters; `None` before its first packet.
    statistics_ns: Option<u64>,
    now_ns: u64,
}

impl std::fmt::Debug for TraceRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("pipeline", &self.common.pipeline)
            .finish_non_exhaustive()
    }
}

impl TraceRecorder {
    /// Creates a trace in `folder` (created if missing) for `count` parallel pipelines; each writes a separate
    /// series of parts.
    ///
    /// # Errors
    /// The folder already contains a trace, or cannot be written to.
    pub fn create_shared(
        folder: &Path,
        options: &TraceOptions,
        count: usize,
    ) -> Result<Vec<TraceRecorder>, LakeError> {
        std::fs::create_dir_all(folder).map_err(|source| LakeError::Io {
            path: folder.to_path_buf(),
            source,
        })?;
        let lock = WriterLock::take(folder)?;
        let mut note = TableWriter::create(folder, &NOTES, WriterOptions::default())?;
        lock.forget_name()?;
        let anonymous = options.anonymizer.is_some();
        let program = concat!("brunt ", env!("CARGO_PKG_VERSION"));
        note.rows()
            .row()
            .int(VERSION)
            .text(program)
            .bool(anonymous)
            .end();
        note.finish()?;
        let shared = Shared::new(count, Earlier::default(), options, lock);
        let recorders = TraceRecorder::start_all(folder, options, 0..count, shared)?;
        if let Some(recorder) = recorders.first() {
            recorder.shared.lock.name_trace()?;
        }
        Ok(recorders)
    }

    /// Recorders for pipelines with these numbers.
    pub(super) fn start_all(
        folder: &Path,
        options: &TraceOptions,
        pipelines: Range<usize>,
        shared: Shared,
    ) -> Result<Vec<TraceRecorder>, LakeError> {
        let (shared, options) = (Arc::new(shared), options.share(pipelines.len()));
        pipelines
            .map(|pipeline| TraceRecorder::start(folder, &options, pipeline as u16, &shared))
            .collect()
    }

    /// Creates a trace in `folder` for one pipeline.
    ///
    /// # Errors
    /// As [`TraceRecorder::create_shared`].
    pub fn create(folder: &Path, options: &TraceOptions) -> Result<TraceRecorder, LakeError> {
        let recorders = TraceRecorder::create_shared(folder, options, 1)?;
        Ok(recorders.into_iter().next().expect("a store was requested"))
    }

    fn start(
        folder: &Path,
        options: &TraceOptions,
        pipeline: u16,
        shared: &Arc<Shared>,
    ) -> Result<TraceRecorder, LakeError> {
        let mut registry = Registry::default();
        let groups = Groups::register(&mut registry);
        let lanes = registry.into_lanes().into_iter().enumerate();
        let lanes: Vec<Lane> = lanes
            .map(|(number, tables)| Lane::start(number, tables, pipeline, folder, options, shared))
            .collect::<Result<_, _>>()?;
        let lanes: [Lane; LANES] = lanes
            .try_into()
            .unwrap_or_else(|_| unreachable!("one sender per lane"));
        let rows = Rows::new(std::array::from_fn(|lane| lanes[lane].empty()));
        let hide = Pseudonyms::new(options.anonymizer.clone());
        Ok(TraceRecorder {
            lanes,
            shared: Arc::clone(shared),
            common: Common {
                rows,
                hide,
                pipeline: pipeline.into(),
                repeats_attributes: options.repeats_attributes,
            },
            groups,
            latency_histograms: options.latency_histograms,
            generation: 0,
            chunk_bytes: options.chunk_bytes,
            sent: Instant::now(),
            statistics_ns: None,
            now_ns: 0,
        })
    }

    /// The trace's status, for another thread.
    pub fn status(&self) -> TraceStatus {
        TraceStatus(Arc::clone(&self.shared))
    }

    /// The closed parts, for moving them elsewhere during the capture. Empty unless moving parts is enabled in the
    /// options.
    pub fn parts(&self) -> TraceParts {
        TraceParts::new(Arc::clone(&self.shared))
    }

    /// Ends the capture: writes the remaining rows, and `ledger` as the last row of `statistics`. Adds the trace's
    /// losses to the ledger.
    ///
    /// # Errors
    /// Returns the first error; the totals of what was written are returned in any case.
    pub fn finish(self, ledger: &mut Ledger) -> (TraceSummary, Option<LakeError>) {
        TraceRecorder::finish_shared(vec![self], ledger)
    }

    /// Like [`TraceRecorder::finish`], for all pipelines that write to one trace; `ledger` contains their merged
    /// counters.
    ///
    /// # Errors
    /// As [`TraceRecorder::finish`].
    ///
    /// # Panics
    /// Panics if `recorders` is empty.
    pub fn finish_shared(
        mut recorders: Vec<TraceRecorder>,
        ledger: &mut Ledger,
    ) -> (TraceSummary, Option<LakeError>) {
        if let Some(health) = recorders[0].shared.take_health() {
            let TraceRecorder {
                groups,
                common,
                now_ns,
                ..
            } = &mut recorders[0];
            groups.health.record(*now_ns, &health, common);
        }
        for recorder in &mut recorders {
            recorder.groups.latencies.write(&mut recorder.common);
            recorder.send_all();
        }
        let mut writers: Vec<Vec<TableWriter>> = recorders
            .iter_mut()
            .flat_map(|recorder| recorder.lanes.iter_mut().map(Lane::finish))
            .collect();
        let shared = Arc::clone(&recorders[0].shared);
        // Makes room for the last row first, because the row reports what was deleted.
        shared
            .budget
            .iter()
            .for_each(|budget| budget.on_grown(0, LAST_ROW_BYTES));
        TraceStatus(Arc::clone(&shared)).count_into(ledger);
        let now_ns = recorders
            .iter()
            .map(|recorder| recorder.now_ns)
            .max()
            .unwrap_or(0);
        let (lane, index) = recorders[0].groups.statistics.place();
        let statistics = &mut writers[lane][index];
        let mut all = shared.earlier();
        all.merge(ledger);
        record_last(statistics.rows(), now_ns, &all);
        let mut error = shared.take_error();
        if let Err(last) = statistics.finish() {
            error.get_or_insert(last);
        }
        // Deletions by this capture only, not by earlier ones.
        let mut summary = TraceSummary {
            rows_lost: ledger.trace_rows_lost,
            parts_deleted: ledger.trace_parts_deleted,
            rows_deleted: ledger.trace_rows_deleted,
            bytes_deleted: ledger.trace_bytes_deleted,
            ..TraceSummary::default()
        };
        for writer in writers.iter().flatten() {
            let written = writer.written();
            summary.rows += written.rows;
            summary.parts += written.parts;
            summary.bytes += written.bytes;
        }
        let earlier = shared.earlier_parts;
        summary.rows += earlier.rows;
        summary.parts += earlier.parts;
        summary.bytes += earlier.bytes;
        // The writers' totals still include what was deleted.
        summary.rows -= summary.rows_deleted;
        summary.parts -= summary.parts_deleted;
        summary.bytes -= summary.bytes_deleted;
        (summary, error)
    }

    fn send(&mut self, lane: usize) {
        if !self.common.rows.is_empty(lane) {
            let full = self.common.rows.take(lane, self.lanes[lane].empty());
            self.lanes[lane].send(self.generation, full);
        }
    }

    /// Writes the deferred rows.
    fn settle(&mut self) {
        self.groups.files.settle(&mut self.common);
        self.groups.protocols.settle(&mut self.common);
    }

    fn send_all(&mut self) {
        self.settle();
        (0..LANES).for_each(|lane| self.send(lane));
    }

    /// Rows written so far may be deleted, so everything that later rows refer to is written again.
    #[cold]
    fn begin_generation(&mut self) {
        self.groups.latencies.write(&mut self.common);
        self.send_all();
        self.generation = self.shared.generation();
        self.groups.flows.forget();
        self.groups.files.forget();
        self.groups.protocols.forget();
    }

    /// Reports this pipeline's counters; writes a row with the counters of all pipelines if one is due.
    #[cold]
    fn tell_statistics(&mut self, now_ns: u64, ledger: &Ledger) {
        let pipeline = self.common.pipeline as usize;
        if let Some(all) = self.shared.add_up(pipeline, ledger, now_ns, STATISTICS_NS) {
            self.groups
                .statistics
                .record(now_ns, &all, &mut self.common);
            if let Some(health) = self.shared.take_health() {
                self.groups.health.record(now_ns, &health, &mut self.common);
            }
        }
    }
}

impl TraceRecorder {
    /// Analyses that reveal no more about these operations than the trace does: with an anonymizer, they show its
    /// pseudonyms.
    pub fn analysis(&self) -> Analysis {
        match self.common.hide.key {
            Some(_) => Analysis::hiding(Arc::new(self.common.hide.clone())),
            None => Analysis::new(),
        }
    }
}

impl Sink for TraceRecorder {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let TraceRecorder {
            groups,
            common,
            latency_histograms,
            ..
        } = self;
        let peers = &operation.peers;
        let transport = if peers.transport == Transport::Tcp {
            TCP
        } else {
            UDP
        };
        let flow = groups
            .flows
            .number(peers.client, peers.server, transport, common);
        groups.operations.record(operation, flow, common);
        if *latency_histograms {
            groups.latencies.record(operation, common);
        }
        groups
            .protocols
            .record(operation, &mut groups.files, common);
    }

    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.groups.checksums.record(run, &mut self.common);
    }

    const PACKETS: bool = true;

    fn on_packet_parsed(&mut self, packet: &Packet) {
        if self.statistics_ns.is_none() {
            // The capture begins at the time of the first packet.
            self.statistics_ns = Some(packet.time_ns + STATISTICS_NS);
            self.tell_statistics(packet.time_ns, &Ledger::default());
        }
        let TraceRecorder { groups, common, .. } = self;
        let flow = packet.ends.map(|(source, destination, protocol)| {
            groups.flows.number(source, destination, protocol, common)
        });
        groups.packets.record(packet, flow, common);
    }

    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.now_ns = now_ns;
        self.groups.latencies.on_time(now_ns, &mut self.common);
        if self.statistics_ns.is_some_and(|due| now_ns >= due) {
            self.statistics_ns = Some(now_ns + STATISTICS_NS);
            self.tell_statistics(now_ns, ledger);
        }
        self.settle();
        if self.generation != self.shared.generation() {
            self.begin_generation();
        }
        if self.sent.elapsed() >= CHUNK_AGE {
            self.sent = Instant::now();
            return self.send_all();
        }
        for lane in 0..LANES {
            if self.common.rows.bytes(lane) >= self.chunk_bytes {
                self.send(lane);
            }
        }
    }
}
