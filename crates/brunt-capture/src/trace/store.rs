//! Writes rows to disk: separate threads arrange, compress and write them, so that parsers never do. Fed by
//! [`super::recorder`] with batches of rows.
//!
//! Each thread (a *lane*) owns some of the tables and has a bounded queue. When the disk is full, the lane retries or
//! stops with an error, as configured.
//!
//! A trace with a size limit is written in *generations*: each contains every row to which its other rows refer, so
//! older generations can be deleted without leaving dangling references (see `budget`).
//!
//! The one rule: every lost row is counted, wherever it is lost.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_actors::pin_thread;
use brunt_core::Nanos;
use brunt_lake::{Batch, ClosedPart, LakeError, TableWriter, Workspace, WriterLock, WriterOptions};

use super::budget::{Budget, KeepLimits};
use super::health::TraceHealth;
use super::rows::{Chunk, LANES, TableEntry};
use super::sketches::SketchMaker;
use crate::ledger::Ledger;

/// Maximum chunks queued for a lane: as many as a parser produces while the lane writes a part, which takes about 20
/// ms.
const QUEUE_CHUNKS: usize = 12;
/// Interval for retrying when the disk is full, and for checking waiting rows.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// What to do when the disk is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Stop with an error; earlier output is kept.
    #[default]
    Stop,
    /// Wait for space, then continue.
    Wait,
}

/// What to do when packets arrive faster than rows can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLag {
    /// Make the parser wait; for files.
    #[default]
    Wait,
    /// Drop rows and count them; for live traffic.
    Drop,
}

/// Reports a message to the user during the capture.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;
/// Whether the user wants to stop.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Options for writing a trace.
#[derive(Clone)]
pub struct TraceOptions {
    /// Maximum rows per part.
    pub rows_max: usize,
    /// Maximum bytes of a part's rows in memory.
    pub bytes_max: usize,
    /// Maximum time before rows are written to a file.
    pub age_max: Duration,
    /// Maximum age of a part's first row; the part is then closed.
    pub part_age_max: Duration,
    /// Rows for a writer thread are sent when they take up this much memory.
    pub chunk_bytes: usize,
    /// Maximum bytes of the trace on disk; when it is exceeded, the oldest parts are deleted. `None` keeps all parts.
    /// Moved parts don't count.
    pub keep_bytes: Option<u64>,
    /// Maximum time since a part was closed; it is then deleted. `None` keeps all parts.
    pub keep_age: Option<Duration>,
    /// Whether to list closed parts so that they can be moved elsewhere ([`super::TraceParts`]).
    pub lists_parts: bool,
    /// What to do when the disk is full.
    pub on_full: OnFull,
    /// What to do when writing is slower than parsing.
    pub on_lag: OnLag,
    /// Writes pseudonyms instead of names, addresses and ids.
    pub anonymizer: Option<super::Anonymizer>,
    /// Whether to store attributes with every reply, not only when they differ from those last stored for the file:
    /// the trace is larger, but shows which reply had which attributes.
    pub repeats_attributes: bool,
    /// Whether to write rows to the table `latency_histograms`; if not, it is empty.
    pub latency_histograms: bool,
    /// Whether to write rows to the table `sketches`; if not, it is empty.
    pub sketches: bool,
    /// Sets of CPUs on which the writer threads are placed in turn; if empty, they run anywhere.
    pub cpus: Vec<Vec<usize>>,
    /// Receives messages for the user.
    pub tell: Notify,
    /// Returns true if a wait for disk space should end.
    pub stop: Stop,
}

impl Default for TraceOptions {
    fn default() -> TraceOptions {
        TraceOptions {
            rows_max: 1 << 17,
            bytes_max: 16 << 20,
            age_max: Duration::from_secs(10),
            part_age_max: Duration::from_secs(600),
            chunk_bytes: 512 << 10,
            keep_bytes: None,
            keep_age: None,
            lists_parts: false,
            on_full: OnFull::default(),
            on_lag: OnLag::default(),
            anonymizer: None,
            repeats_attributes: false,
            latency_histograms: true,
            sketches: true,
            cpus: Vec::new(),
            tell: Arc::new(|_| {}),
            stop: Arc::new(|| false),
        }
    }
}

/// Parallel pipelines share the memory for open parts, but each gets at least this much.
const ROWS_SHARE_MIN: usize = 1 << 14;
const BYTES_SHARE_MIN: usize = 2 << 20;

impl TraceOptions {
    /// The options for one of `count` pipelines.
    pub(super) fn share(&self, count: usize) -> TraceOptions {
        TraceOptions {
            rows_max: (self.rows_max / count).max(self.rows_max.min(ROWS_SHARE_MIN)),
            bytes_max: (self.bytes_max / count).max(self.bytes_max.min(BYTES_SHARE_MIN)),
            ..self.clone()
        }
    }
}

impl std::fmt::Debug for TraceOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TraceOptions {
            rows_max,
            age_max,
            keep_bytes,
            on_full,
            on_lag,
            anonymizer,
            ..
        } = self;
        write!(
            f,
            "TraceOptions {{ rows_max: {rows_max}, age_max: {age_max:?}, keep_bytes: {keep_bytes:?}, "
        )?;
        write!(
            f,
            "on_full: {on_full:?}, on_lag: {on_lag:?}, anonymizer: {anonymizer:?} }}"
        )
    }
}

/// The counters of a trace.
struct Counters {
    /// What each pipeline reported last.
    each: Vec<Ledger>,
    /// When the next row with the sum is due.
    due_ns: u64,
    /// The counters of earlier captures that this one continues.
    earlier: Ledger,
    /// When the last of the earlier captures ended; cleared when this one begins.
    ended_ns: Option<u64>,
}

/// The earlier captures that a capture continues.
#[derive(Default)]
pub(super) struct Earlier {
    /// Number of pipelines of the earlier captures.
    pub pipelines: usize,
    /// Counters of the earlier captures, and the time of the last packet; `None` if there is nothing to continue.
    pub counters: Option<(Ledger, u64)>,
    /// Totals of the parts that the earlier captures wrote.
    pub parts: EarlierParts,
}

/// Totals of the parts of earlier captures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EarlierParts {
    pub parts: u64,
    pub rows: u64,
    pub bytes: u64,
}

/// State shared by all lanes and their feeders.
pub(super) struct Shared {
    pub rows_lost: AtomicU64,
    /// Packets dropped by the rings, which the pipelines don't know about.
    pub packets_dropped: AtomicU64,
    failed: AtomicBool,
    counters: Mutex<Counters>,
    health: Mutex<Option<TraceHealth>>,
    error: Mutex<Option<LakeError>>,
    pub budget: Option<Budget>,
    pub earlier_parts: EarlierParts,
    /// Signals to other programs that parts may still be added.
    pub lock: WriterLock,
}

impl Shared {
    /// State for the pipelines of this capture, which are numbered after those of earlier captures.
    pub fn new(
        pipelines: usize,
        earlier: Earlier,
        options: &TraceOptions,
        lock: WriterLock,
    ) -> Shared {
        let all = earlier.pipelines + pipelines;
        let is_limited = options.lists_parts || options.keep_age.is_some();
        let keep_bytes = options.keep_bytes.or(is_limited.then_some(u64::MAX));
        let budget = |bytes| {
            let age = options.keep_age;
            let past = earlier.pipelines * LANES;
            Budget::new(KeepLimits { bytes, age }, all * LANES, past)
        };
        let budget = keep_bytes.map(budget);
        let (mut before, ended_ns) = earlier.counters.unzip();
        if let Some(before) = &mut before {
            before.restarts += 1;
            before.calls_open_at_end += std::mem::take(&mut before.calls_open);
        }
        Shared {
            rows_lost: AtomicU64::new(0),
            packets_dropped: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            counters: Mutex::new(Counters {
                each: vec![Ledger::default(); all],
                due_ns: 0,
                earlier: before.unwrap_or_default(),
                ended_ns,
            }),
            health: Mutex::default(),
            error: Mutex::new(None),
            budget,
            earlier_parts: earlier.parts,
            lock,
        }
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a pipeline's counters. If a row is due, returns the sum over all pipelines, to the first caller only.
    pub fn add_up(
        &self,
        pipeline: usize,
        ledger: &Ledger,
        now_ns: u64,
        every_ns: u64,
    ) -> Option<Ledger> {
        let mut counters = self.counters();
        counters.each[pipeline] = ledger.clone();
        if let Some(ended_ns) = counters.ended_ns.take() {
            counters.earlier.restart_gap_ns += now_ns.saturating_sub(ended_ns);
        }
        if now_ns < counters.due_ns {
            return None;
        }
        counters.due_ns = now_ns + every_ns;
        let mut all = counters.earlier.clone();
        counters.each.iter().for_each(|ledger| all.merge(ledger));
        drop(counters);
        all.packets_dropped += self.packets_dropped.load(Ordering::Relaxed);
        self.count_into(&mut all);
        Some(all)
    }

    /// Sets the capture's health for the next row.
    pub fn set_health(&self, health: TraceHealth) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    /// The capture's health, if it was set since the last call.
    pub fn take_health(&self) -> Option<TraceHealth> {
        self.health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The counters of the captures that this one continues.
    pub fn earlier(&self) -> Ledger {
        self.counters().earlier.clone()
    }

    /// Adds the counts of lost rows and deleted parts so far to a ledger.
    pub fn count_into(&self, ledger: &mut Ledger) {
        ledger.trace_rows_lost += self.rows_lost.load(Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            let deleted = budget.deleted();
            ledger.trace_parts_deleted += deleted.parts;
            ledger.trace_rows_deleted += deleted.rows;
            ledger.trace_bytes_deleted += deleted.bytes;
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub fn take_error(&self) -> Option<LakeError> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn fail(&self, error: LakeError) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    /// The generation for new rows.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.budget.as_ref().map_or(0, Budget::generation)
    }
}

/// Rows for all tables of a lane, and their generation.
type LaneRows = (u64, Vec<Chunk>);

/// The feeder's side of a lane.
pub(super) struct Lane {
    to: Option<SyncSender<LaneRows>>,
    back: Receiver<Vec<Chunk>>,
    thread: Option<JoinHandle<Vec<TableWriter>>>,
    tables: Vec<TableEntry>,
    shared: Arc<Shared>,
    on_lag: OnLag,
}

impl Lane {
    /// Creates the tables in `folder` for a pipeline and starts the thread.
    pub fn start(
        number: usize,
        tables: Vec<TableEntry>,
        pipeline: u16,
        folder: &Path,
        options: &TraceOptions,
        shared: &Arc<Shared>,
    ) -> Result<Lane, LakeError> {
        let (mut writers, workspace) = (Vec::new(), Workspace::default());
        for entry in &tables {
            let writer_options = WriterOptions {
                rows_max: options.rows_max,
                bytes_max: options.bytes_max,
                age_max: options.age_max,
                age_min: options.age_max,
                part_age_max: Some(options.part_age_max),
                series: pipeline,
                keep_bytes: None,
                order: entry.order,
                workspace: workspace.clone(),
            };
            writers.push(TableWriter::create(folder, entry.table, writer_options)?);
        }
        let (to, from) = sync_channel(QUEUE_CHUNKS);
        let (give_back, back) = sync_channel(QUEUE_CHUNKS);
        let worker = Worker {
            tables: tables.clone(),
            number: usize::from(pipeline) * LANES + number,
            generation: 0,
            open_bytes: vec![0; tables.len()],
            writers,
            sketches: options.sketches.then(|| SketchMaker::of(&tables)).flatten(),
            options: options.clone(),
            shared: Arc::clone(shared),
            begun: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("trace-{number}"))
            .spawn(move || {
                let cpus = &worker.options.cpus;
                if !cpus.is_empty() && !pin_thread(&cpus[worker.number % cpus.len()]) {
                    (worker.options.tell)("the kernel rejected the CPUs for a trace writer");
                }
                worker.run(&from, &give_back)
            })
            .map_err(|source| LakeError::Io {
                path: folder.to_path_buf(),
                source,
            })?;
        let shared = Arc::clone(shared);
        Ok(Lane {
            to: Some(to),
            back,
            thread: Some(thread),
            tables,
            shared,
            on_lag: options.on_lag,
        })
    }

    /// Empty chunks, reused if some have been returned.
    pub fn empty(&self) -> Vec<Chunk> {
        self.back
            .try_recv()
            .unwrap_or_else(|_| self.tables.iter().map(Chunk::new).collect())
    }

    /// Sends rows of a generation to the thread.
    pub fn send(&mut self, generation: u64, batches: Vec<Chunk>) {
        let Some(to) = &self.to else { return };
        let load = (generation, batches);
        let lost = match self.on_lag {
            OnLag::Wait => to.send(load).err().map(|error| error.0),
            OnLag::Drop => match to.try_send(load) {
                Ok(()) => None,
                Err(TrySendError::Full(load) | TrySendError::Disconnected(load)) => Some(load),
            },
        };
        if let Some((_, batches)) = lost {
            let rows = batches.iter().map(Chunk::count).sum();
            self.shared.rows_lost.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// Waits until all rows have been written; returns the finished writers of the tables.
    pub fn finish(&mut self) -> Vec<TableWriter> {
        self.to = None;
        let Some(thread) = self.thread.take() else {
            return Vec::new();
        };
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // If `finish` was not called, only the totals are lost.
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    tables: Vec<TableEntry>,
    /// Index among the lanes of all pipelines.
    number: usize,
    generation: u64,
    /// Bytes of the writers' open parts, as reported to the budget.
    open_bytes: Vec<u64>,
    writers: Vec<TableWriter>,
    /// Present only in the lane that writes `operations`.
    sketches: Option<SketchMaker>,
    options: TraceOptions,
    shared: Arc<Shared>,
    begun: Instant,
}

impl Worker {
    fn run(
        mut self,
        from: &Receiver<LaneRows>,
        give_back: &SyncSender<Vec<Chunk>>,
    ) -> Vec<TableWriter> {
        (0..self.writers.len()).for_each(|index| self.account(index, None));
        loop {
            match from.recv_timeout(RETRY) {
                Ok((generation, mut batches)) => {
                    if generation > self.generation {
                        self.begin(generation);
                    }
                    self.sketch(|sketches, rows| sketches.take(&batches, rows));
                    for (index, batch) in batches.iter_mut().enumerate() {
                        if batch.is_empty() {
                            // The table has no new rows, but earlier ones may be due.
                            self.write(index, TableWriter::commit);
                            continue;
                        }
                        if self.shared.has_failed() {
                            self.shared
                                .rows_lost
                                .fetch_add(batch.count(), Ordering::Relaxed);
                        } else {
                            batch.append_to(self.writers[index].rows());
                            self.write(index, TableWriter::commit);
                        }
                        batch.clear();
                    }
                    let _ = give_back.try_send(batches);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.sketch(SketchMaker::on_time);
                    (0..self.writers.len())
                        .for_each(|index| self.write(index, TableWriter::commit));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.sketch(SketchMaker::write);
        for index in 0..self.writers.len() {
            self.write(index, |writer, _| writer.finish().map(drop));
        }
        self.writers
    }

    /// Starts another generation: no part has rows of two generations.
    fn begin(&mut self, generation: u64) {
        self.sketch(SketchMaker::write);
        for index in 0..self.writers.len() {
            self.write(index, |writer, _| writer.rotate());
        }
        self.generation = generation;
        if let Some(budget) = &self.shared.budget {
            budget.begin(self.number, generation);
        }
    }

    /// Lets the sketches add their rows, unless writing has failed.
    fn sketch(&mut self, act: impl FnOnce(&mut SketchMaker, &mut Batch)) {
        if let Some(sketches) = self.sketches.as_mut().filter(|_| !self.shared.has_failed()) {
            act(sketches, self.writers[sketches.place()].rows());
        }
    }

    /// Reports changes in a table's parts to the budget.
    fn account(&mut self, index: usize, closed_before: Option<&ClosedPart>) {
        let Some(budget) = &self.shared.budget else {
            return;
        };
        let writer = &self.writers[index];
        let mut open_before = self.open_bytes[index];
        if writer.last_closed() != closed_before
            && let Some(part) = writer.last_closed()
        {
            let is_referred_to = self.tables[index].is_referred_to;
            budget.on_closed(
                self.number,
                self.generation,
                is_referred_to,
                part.clone(),
                open_before,
            );
            open_before = 0;
        }
        self.open_bytes[index] = writer.open_bytes();
        budget.on_grown(open_before, writer.open_bytes());
    }

    /// Runs `act`; when the disk is full, retries until it succeeds, if so configured.
    fn write(
        &mut self,
        index: usize,
        mut act: impl FnMut(&mut TableWriter, Nanos) -> Result<(), LakeError>,
    ) {
        let mut told = false;
        while !self.shared.has_failed() {
            let writer = &mut self.writers[index];
            let closed_before = self
                .shared
                .budget
                .is_some()
                .then(|| writer.last_closed().cloned())
                .flatten();
            let now = Nanos(self.begun.elapsed().as_nanos() as u64);
            match act(writer, now) {
                Ok(()) => {
                    if told {
                        (self.options.tell)(
                            "space is available again; the trace continues and is complete",
                        );
                    }
                    self.account(index, closed_before.as_ref());
                    return;
                }
                Err(error)
                    if error.is_full()
                        && self.options.on_full == OnFull::Wait
                        && !(self.options.stop)() =>
                {
                    if !told {
                        (self.options.tell)(&format!("{error}; waiting for space"));
                        told = true;
                    }
                    std::thread::sleep(RETRY);
                }
                Err(error) => self.shared.fail(error),
            }
        }
        // An error in one lane also stops the others. Rows that have not been written are not in the trace.
        let writer = &mut self.writers[index];
        let before = writer.written().rows_lost;
        writer.give_up_rows();
        self.shared
            .rows_lost
            .fetch_add(writer.written().rows_lost - before, Ordering::Relaxed);
    }
}
