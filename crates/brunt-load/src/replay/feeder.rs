//! The thread that reads a trace ahead of the workers. It selects and places requests, splits them to the target's
//! maximum size, and passes them on in bounded batches whose memory is reused. Started by [`super::ReplayLoad`] for
//! each run, drained by [`super::stream`].
//!
//! The rule: at most [`BATCHES`] batches of [`BATCH_ROWS`] rows are read ahead, however long the trace is.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_block::Op;
use serde::{Deserialize, Serialize};

use super::place::{Placed, Placement};
use super::routes::Routes;
use super::select::{Choice, Selected, Selection};
use super::settings::{AddressMap, ReplayContents, ReplaySettings};
use super::share::Share;
use super::survey::{NOT_MET, Survey, open};
use crate::load::WorkloadError;

/// Rows per batch: 56 bytes each.
const BATCH_ROWS: usize = 2048;
/// Maximum number of batches ahead.
const BATCHES: usize = 16;
/// Total time for which a finished run waits for the reader; anything read later is only counted.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How a request of a trace is changed to fit its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RowChange {
    /// Extended to whole blocks of the target.
    Rounded,
    /// The request's device is placed after another device of the trace.
    PutBehind,
    /// Wrapped around; its blocks now share addresses with others.
    Wrapped,
    /// Moved by `map = "scale"`.
    Scaled,
    /// Packed together with the other extents that the trace uses.
    Packed,
    /// Split, because the target doesn't accept requests of this length.
    InPieces,
}

impl RowChange {
    /// Describes the change for people.
    pub(super) fn describe(self) -> &'static str {
        match self {
            RowChange::Rounded => "repaired: extended to whole blocks of the target",
            RowChange::PutBehind => "moved: devices of the trace concatenated",
            RowChange::Wrapped => "moved: wrapped",
            RowChange::Scaled => "moved: scaled",
            RowChange::Packed => "moved: packed",
            RowChange::InPieces => {
                "repaired: split, because longer than the target's longest request"
            }
        }
    }
}

/// A request to be sent at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayRow {
    /// Time since the start, in nanoseconds of the trace, including earlier rounds of a loop.
    pub(super) time_ns: u64,
    /// Response time in the trace; `u64::MAX` if unknown.
    pub(super) response_ns: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) op: Op,
    pub(super) of: RowOrigin,
    /// Whether the request has to be on stable storage before it completes.
    pub(super) fua: bool,
    /// Whether the row is a whole request of the trace, or the last piece of one.
    pub(super) is_last: bool,
    /// Whether another host sends the request.
    pub(super) is_foreign: bool,
    /// Identifies the content of the row, if known from the trace.
    pub(super) content: Option<NonZeroU64>,
}

/// The device and target of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowOrigin {
    /// Index of the request's device among those that have their own figures ([`Survey::listed_index`]).
    pub(super) device: u8,
    /// Number of the request's target.
    pub(super) target: u16,
}

/// A message from the reader.
enum Fed {
    Rows(Vec<ReplayRow>),
    /// Reading the trace failed.
    Failed(WorkloadError),
}

/// Number of changed rows, by kind of change.
pub(super) type RowCounts = BTreeMap<RowChange, u64>;

/// The receiving side.
pub(super) struct Feed {
    fed: Option<Receiver<Fed>>,
    empty: SyncSender<Vec<ReplayRow>>,
    rows: Vec<ReplayRow>,
    next: usize,
    failure: Option<WorkloadError>,
    thread: Option<JoinHandle<RowCounts>>,
    /// The remaining part of [`WAIT_MAX`].
    patience: Duration,
}

/// The next row of the feed.
pub(super) enum NextRow<'a> {
    Row(&'a ReplayRow),
    /// The reader is behind.
    NotYet,
    /// There are no more rows.
    End,
}

/// The result of asking for the next batch.
enum Batch {
    Here,
    NotYet,
    End,
}

/// Parameters of the reader.
pub(super) struct FeederPlan {
    pub(super) settings: ReplaySettings,
    pub(super) routes: Routes,
    /// The share of the trace that is sent by this host.
    pub(super) share: Share,
    pub(super) survey: std::sync::Arc<Survey>,
    /// The targets' parts of the device.
    pub(super) parts: Vec<Range<u64>>,
    pub(super) block: u64,
    /// Maximum length of a request that is not split.
    pub(super) piece_max: u64,
}

impl Feed {
    /// Starts reading, and waits for the first batch. Otherwise the first requests would be late, because the reader
    /// has only just started, and the whole run would be judged as late.
    ///
    /// # Errors
    /// No thread could be created.
    pub(super) fn start(plan: FeederPlan) -> std::io::Result<Feed> {
        let (feed, fed) = sync_channel(BATCHES);
        let (empty, emptied) = sync_channel(BATCHES * 2);
        let work = move || {
            let mut feeder = Feeder {
                feed,
                emptied,
                batch: Vec::with_capacity(BATCH_ROWS),
            };
            let mut counts = RowCounts::new();
            if let Err(Stop::Failed(error)) = feeder.read(&plan, &mut counts) {
                let _ = feeder.feed.send(Fed::Failed(error));
            }
            counts.retain(|_, count| *count > 0);
            counts
        };
        let thread = std::thread::Builder::new()
            .name("replay-reader".into())
            .spawn(work)?;
        let mut started = Feed {
            fed: None,
            empty,
            rows: Vec::new(),
            next: 0,
            failure: None,
            thread: Some(thread),
            patience: WAIT_MAX,
        };
        match fed.recv() {
            Ok(Fed::Rows(rows)) => (started.rows, started.fed) = (rows, Some(fed)),
            Ok(Fed::Failed(error)) => started.failure = Some(error),
            // There is nothing to replay.
            Err(_) => {}
        }
        Ok(started)
    }

    /// Returns the next row if it is available; it remains the next one until [`Feed::advance`]. Never waits.
    #[inline]
    pub(super) fn peek(&mut self) -> NextRow<'_> {
        if self.next == self.rows.len() {
            let waits = self.next_batch();
            if !matches!(waits, Batch::Here) {
                return if matches!(waits, Batch::NotYet) {
                    NextRow::NotYet
                } else {
                    NextRow::End
                };
            }
        }
        NextRow::Row(&self.rows[self.next])
    }

    /// Advances to the next row.
    #[inline]
    pub(super) fn advance(&mut self) {
        debug_assert!(self.next < self.rows.len(), "there was a next row");
        self.next += 1;
    }

    #[cold]
    fn next_batch(&mut self) -> Batch {
        let Some(fed) = &self.fed else {
            return Batch::End;
        };
        let received = fed.try_recv();
        self.receive(received)
    }

    /// Waits for the next row or the end, but in total no longer than [`WAIT_MAX`]. For workers that have nothing else
    /// to do.
    pub(super) fn wait(&mut self) {
        let Some(fed) = self.fed.as_ref().filter(|_| self.next == self.rows.len()) else {
            return;
        };
        let began = Instant::now();
        let received = fed
            .recv_timeout(self.patience)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => TryRecvError::Empty,
                RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
            });
        self.patience = self.patience.saturating_sub(began.elapsed());
        self.receive(received);
    }

    fn receive(&mut self, received: Result<Fed, TryRecvError>) -> Batch {
        match received {
            Ok(Fed::Rows(rows)) => {
                assert!(!rows.is_empty(), "a batch has rows");
                let mut used = std::mem::replace(&mut self.rows, rows);
                used.clear();
                // If the channel is full or closed, the memory just isn't reused.
                let _ = self.empty.try_send(used);
                self.next = 0;
                Batch::Here
            }
            Ok(Fed::Failed(error)) => {
                (self.failure, self.fed) = (Some(error), None);
                Batch::End
            }
            Err(TryRecvError::Empty) => Batch::NotYet,
            Err(TryRecvError::Disconnected) => {
                self.fed = None;
                Batch::End
            }
        }
    }

    /// Ends the reader. Returns the counts of changed rows and, if it ended early, the reason.
    pub(super) fn finish(&mut self) -> (RowCounts, Option<WorkloadError>) {
        self.fed = None;
        let counts = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(counts)) => counts,
            Some(Err(panic)) if !std::thread::panicking() => std::panic::resume_unwind(panic),
            Some(Err(_)) | None => RowCounts::new(),
        };
        (counts, self.failure.take())
    }
}

#[cfg(test)]
impl Feed {
    /// Creates a feed whose rows are supplied by the caller instead of a reader. The feed ends when the supplying
    /// closure is dropped. `patience` is the total time to wait for rows.
    pub(super) fn by_hand(patience: Duration) -> (impl Fn(Vec<ReplayRow>) + Send, Feed) {
        let (feed, fed) = sync_channel(BATCHES);
        let (empty, _) = sync_channel(BATCHES * 2);
        let give = move |rows| feed.send(Fed::Rows(rows)).expect("a receiver exists");
        let rows = Vec::new();
        (
            give,
            Feed {
                fed: Some(fed),
                empty,
                rows,
                next: 0,
                failure: None,
                thread: None,
                patience,
            },
        )
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The reading side.
struct Feeder {
    feed: SyncSender<Fed>,
    emptied: Receiver<Vec<ReplayRow>>,
    batch: Vec<ReplayRow>,
}

/// Why reading ended early.
enum Stop {
    /// The receiver no longer exists.
    Unwanted,
    /// The survey found no request on this device or at this address.
    Unknown,
    Failed(WorkloadError),
}

impl Stop {
    /// Turns [`Stop::Unknown`] into an error that names the device.
    #[cold]
    fn of_device(self, device: &str) -> Stop {
        let Stop::Unknown = self else { return self };
        let what = format!(
            "it was changed after the start and has a request on device {device} where there was none"
        );
        Stop::Failed(WorkloadError { key: "trace", what })
    }
}

impl Feeder {
    fn read(&mut self, plan: &FeederPlan, counts: &mut RowCounts) -> Result<(), Stop> {
        let FeederPlan {
            settings,
            survey,
            parts,
            block,
            ..
        } = plan;
        let placement = Placement::new(
            settings.map,
            &survey.devices,
            &survey.extents,
            parts,
            *block,
        );
        // The next round begins one mean gap after the last request.
        let gap = survey.span_ns / survey.requests.saturating_sub(1).max(1);
        for round in 0..u64::from(settings.repeat) {
            let base = round.saturating_mul(survey.span_ns + gap);
            self.round(plan, &placement, base, counts)?;
        }
        self.hand_over()
    }

    fn round(
        &mut self,
        plan: &FeederPlan,
        placement: &Placement<'_>,
        base: u64,
        counts: &mut RowCounts,
    ) -> Result<(), Stop> {
        let failed = |error: brunt_trace::TraceError| {
            Stop::Failed(WorkloadError {
                key: "trace",
                what: error.to_string(),
            })
        };
        let mut reader = open(&plan.settings).map_err(Stop::Failed)?;
        let mut selection = Selection::new(&plan.settings, &plan.routes);
        // If the file has grown since the survey, use only the part that was surveyed.
        let mut left = plan.survey.requests;
        while let Some((rows, devices)) = reader.next_rows().map_err(failed)? {
            for row in rows {
                match selection.choose(row, devices) {
                    Choice::Take(request) if left > 0 => {
                        left -= 1;
                        let pushed = self.push(plan, placement, base, &request, counts);
                        pushed.map_err(|stop| {
                            stop.of_device(&devices.names()[request.device as usize])
                        })?;
                    }
                    Choice::Leave => {}
                    Choice::Take(_) | Choice::Over => return Ok(()),
                }
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        plan: &FeederPlan,
        placement: &Placement<'_>,
        base: u64,
        request: &Selected,
        counts: &mut RowCounts,
    ) -> Result<(), Stop> {
        let placed = placement.place(request.device, request.offset, request.len);
        let told = plan
            .survey
            .listed_index
            .get(request.device as usize)
            .copied();
        let (Some(placed), Some(device)) = (placed, told.filter(|told| *told != NOT_MET)) else {
            return Err(Stop::Unknown);
        };
        let is_foreign = !plan.share.has(request);
        let piece_max = if matches!(request.op, Op::Read | Op::Write) {
            plan.piece_max
        } else {
            u64::MAX
        };
        let is_split = placed.len > piece_max;
        count_changes(
            &placed,
            is_split,
            plan.settings.map,
            u64::from(!is_foreign),
            counts,
        );
        let Placed {
            mut offset, len, ..
        } = placed;
        let (time_ns, mut left) = (base + request.time_ns, len);
        let Selected {
            op, fua, target, ..
        } = *request;
        let of = RowOrigin { device, target };
        let by_trace = plan.settings.contents == ReplayContents::Trace;
        let whole = request.content.filter(|_| by_trace);
        loop {
            let piece = left.min(piece_max);
            let response_ns = request.response_ns.unwrap_or(u64::MAX);
            let content = whole.map(|content| content_of_piece(content, len - left));
            let (len, is_last) = (piece, left == piece);
            let row = ReplayRow {
                time_ns,
                response_ns,
                offset,
                len,
                op,
                of,
                fua,
                is_last,
                is_foreign,
                content,
            };
            self.batch.push(row);
            if self.batch.len() == BATCH_ROWS {
                self.hand_over()?;
            }
            (offset, left) = (offset + piece, left - piece);
            if left == 0 {
                return Ok(());
            }
        }
    }

    fn hand_over(&mut self) -> Result<(), Stop> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let mut next = self.emptied.try_recv().unwrap_or_default();
        next.reserve(BATCH_ROWS);
        let full = std::mem::replace(&mut self.batch, next);
        self.feed.send(Fed::Rows(full)).map_err(|_| Stop::Unwanted)
    }
}

/// Adds `by` to the count of each way in which a request was changed.
#[inline(always)] // once per request, from a single call site
fn count_changes(
    placed: &Placed,
    is_split: bool,
    map: AddressMap,
    by: u64,
    counts: &mut RowCounts,
) {
    let mut count = |what: RowChange| *counts.entry(what).or_default() += by;
    if placed.rounded {
        count(RowChange::Rounded);
    }
    if placed.moved {
        count(match map {
            AddressMap::AsIs => RowChange::PutBehind,
            AddressMap::Wrap => RowChange::Wrapped,
            AddressMap::Scale => RowChange::Scaled,
            AddressMap::Pack => RowChange::Packed,
        });
    }
    if is_split {
        count(RowChange::InPieces);
    }
}

/// Returns the content number for the piece at offset `at` of a request: equal for equal requests, different for each
/// piece.
fn content_of_piece(content: NonZeroU64, at: u64) -> NonZeroU64 {
    // The increment of the Weyl sequence in splitmix64: all pieces of a request differ.
    let moved = content
        .get()
        .wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    NonZeroU64::new(moved).unwrap_or(NonZeroU64::MAX)
}
