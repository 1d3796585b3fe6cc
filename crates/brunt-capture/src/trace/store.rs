//! Rows on their way to disk: threads of their own lay out, compress and write, so that whoever
//! parses packets never does. Fed by [`super::recorder`] with batches of rows.
//!
//! Each thread (a *lane*) owns some of the tables; what is on the way to it is bounded. When the
//! disk is full the lane tries again or gives up, as told.
//!
//! A trace that may take so much room only is written in *generations*: each tells anew whatever its rows
//! refer to, so that older ones can go without leaving riddles behind (see `budget`).
//!
//! The one rule: a row that is lost is counted, wherever it is lost.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_core::Nanos;
use brunt_lake::{Batch, ClosedPart, LakeError, TableWriter, Workspace, WriterLock, WriterOptions};

use super::budget::Budget;
use super::rows::{Chunk, LANES, TableEntry};
use super::sketches::SketchMaker;
use crate::ledger::Ledger;

/// Chunks on the way to a lane: what a parser makes while the lane writes a part, which takes it some 20 ms.
const QUEUE_CHUNKS: usize = 12;
/// How often a full disk is tried again, and waiting rows are looked at.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// What to do when the disk is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Stop with an error; what was written before is kept.
    #[default]
    Stop,
    /// Wait for room, and go on when there is some.
    Wait,
}

/// What to do when the packets come faster than rows can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLag {
    /// Let whoever parses wait: for files.
    #[default]
    Wait,
    /// Give rows up and count them: for live traffic.
    Drop,
}

/// Tells a user something while the capture goes on.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;
/// Says whether the user wants an end.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// How a trace is written.
#[derive(Clone)]
pub struct TraceOptions {
    /// Rows of a part.
    pub rows_max: usize,
    /// Bytes of a part in memory.
    pub bytes_max: usize,
    /// Rows wait no longer than this for a file.
    pub age_max: Duration,
    /// A part is closed when its first row is this old.
    pub part_age_max: Duration,
    /// Rows on the way to a thread that writes take so much memory before they are sent.
    pub chunk_bytes: usize,
    /// Bytes of the trace on disk; beyond it the oldest parts go. `None`: keep all. Parts that were moved take none.
    pub keep_bytes: Option<u64>,
    /// Closed parts are listed for whoever moves them to another place ([`super::TraceParts`]).
    pub lists_parts: bool,
    /// When the disk is full.
    pub on_full: OnFull,
    /// When writing is slower than parsing.
    pub on_lag: OnLag,
    /// Pseudonyms instead of names.
    pub anonymizer: Option<super::Anonymizer>,
    /// Attributes are stored with every reply, not only when they are not what was told of the file last: a larger
    /// trace that says which reply had which.
    pub repeats_attributes: bool,
    /// The table `latency_histograms` is written; otherwise it is empty.
    pub latency_histograms: bool,
    /// The table `sketches` is written; otherwise it is empty.
    pub sketches: bool,
    /// Takes what the user should know.
    pub tell: Tell,
    /// Ends a wait for room.
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
            lists_parts: false,
            on_full: OnFull::default(),
            on_lag: OnLag::default(),
            anonymizer: None,
            repeats_attributes: false,
            latency_histograms: true,
            sketches: true,
            tell: Arc::new(|_| {}),
            stop: Arc::new(|| false),
        }
    }
}

/// Pipelines that write side by side share the memory for open parts; less than this is none of theirs.
const ROWS_SHARE_MIN: usize = 1 << 14;
const BYTES_SHARE_MIN: usize = 2 << 20;

impl TraceOptions {
    /// What one of `count` pipelines goes by.
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

/// What all lanes and their feeders know of one another.
pub(super) struct Shared {
    pub rows_lost: AtomicU64,
    /// What the rings had no room for: the pipelines do not know.
    pub packets_dropped: AtomicU64,
    failed: AtomicBool,
    /// Each pipeline's counters as it told them last, and when the next row of their sum is due.
    ledgers: Mutex<(Vec<Ledger>, u64)>,
    error: Mutex<Option<LakeError>>,
    pub budget: Option<Budget>,
    /// Says that parts may still come.
    pub lock: WriterLock,
}

impl Shared {
    pub fn new(pipelines: usize, options: &TraceOptions, lock: WriterLock) -> Shared {
        let keep_bytes = options
            .keep_bytes
            .or(options.lists_parts.then_some(u64::MAX));
        Shared {
            rows_lost: AtomicU64::new(0),
            packets_dropped: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            ledgers: Mutex::new((vec![Ledger::default(); pipelines], 0)),
            error: Mutex::new(None),
            budget: keep_bytes.map(|keep| Budget::new(keep, pipelines * LANES)),
            lock,
        }
    }

    /// Takes in a pipeline's counters. Returns those of all when it is time for a row of them, to the
    /// first that asks.
    pub fn add_up(
        &self,
        pipeline: usize,
        ledger: &Ledger,
        now_ns: u64,
        every_ns: u64,
    ) -> Option<Ledger> {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let (ledgers, due_ns) = &mut *ledgers;
        ledgers[pipeline] = ledger.clone();
        if now_ns < *due_ns {
            return None;
        }
        *due_ns = now_ns + every_ns;
        let mut all = Ledger::default();
        ledgers.iter().for_each(|ledger| all.merge(ledger));
        all.packets_dropped += self.packets_dropped.load(Ordering::Relaxed);
        self.count_into(&mut all);
        Some(all)
    }

    /// Rows lost and parts deleted up to now, into a ledger.
    pub fn count_into(&self, ledger: &mut Ledger) {
        ledger.trace_rows_lost = self.rows_lost.load(Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            let deleted = budget.deleted();
            ledger.trace_parts_deleted = deleted.parts;
            ledger.trace_rows_deleted = deleted.rows;
            ledger.trace_bytes_deleted = deleted.bytes;
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

    /// Which generation rows belong to from now on.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.budget.as_ref().map_or(0, Budget::generation)
    }
}

/// Rows of all tables of a lane, and the generation that they belong to.
type LaneRows = (u64, Vec<Chunk>);

/// The feeder's end of a lane.
pub(super) struct Lane {
    to: Option<SyncSender<LaneRows>>,
    back: Receiver<Vec<Chunk>>,
    thread: Option<JoinHandle<Vec<TableWriter>>>,
    tables: Vec<TableEntry>,
    shared: Arc<Shared>,
    on_lag: OnLag,
}

impl Lane {
    /// Makes the tables in `folder` for a pipeline and starts the thread.
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
            .spawn(move || worker.run(&from, &give_back))
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

    /// Empty batches: used ones, if some came back.
    pub fn empty(&self) -> Vec<Chunk> {
        self.back
            .try_recv()
            .unwrap_or_else(|_| self.tables.iter().map(Chunk::new).collect())
    }

    /// Hands rows of a generation on.
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

    /// No more rows will come: waits until all are written; the tables' writers, finished.
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
        // Whoever forgets to finish loses nothing but the figures.
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    tables: Vec<TableEntry>,
    /// Its number among the lanes of all pipelines.
    number: usize,
    generation: u64,
    /// Bytes of the writers' open parts, as the budget knows them.
    open_bytes: Vec<u64>,
    writers: Vec<TableWriter>,
    /// In the lane that writes the operations.
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
                            // Its earlier rows may have waited long enough.
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

    /// What comes belongs to another generation: no part has rows of two.
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

    /// Has the sketches add rows of theirs, unless nothing is written any more.
    fn sketch(&mut self, act: impl FnOnce(&mut SketchMaker, &mut Batch)) {
        if let Some(sketches) = self.sketches.as_mut().filter(|_| !self.shared.has_failed()) {
            act(sketches, self.writers[sketches.place()].rows());
        }
    }

    /// Tells the budget what became of a table's parts.
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

    /// Commits, and again until it succeeds, if a full disk is to be waited for.
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
                        (self.options.tell)(&format!("{error}; waiting for room"));
                        told = true;
                    }
                    std::thread::sleep(RETRY);
                }
                Err(error) => self.shared.fail(error),
            }
        }
        // One lane's trouble ends the other too. What was not written is not in the trace.
        let writer = &mut self.writers[index];
        let before = writer.written().rows_lost;
        writer.give_up_rows();
        self.shared
            .rows_lost
            .fetch_add(writer.written().rows_lost - before, Ordering::Relaxed);
    }
}
