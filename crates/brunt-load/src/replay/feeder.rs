//! The thread that reads a trace ahead of the workers: chosen, placed and cut to what the target takes, in bounded
//! batches whose memory goes back and forth. Started by [`super::ReplayLoad`] for each run, drained by
//! [`super::stream`].
//!
//! The rule: at most [`BATCHES`] batches of [`BATCH_ROWS`] rows are ahead, however long the trace is.

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

/// Rows that are handed over at once: 56 bytes each.
const BATCH_ROWS: usize = 2048;
/// Batches that are ahead.
const BATCHES: usize = 16;
/// How long a run that is over waits for the reader, in all: what it reads then is only counted.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What is done to a request of a trace on its way to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RowChange {
    /// It begins and ends with blocks of the target.
    Rounded,
    /// Its device stands behind another of the trace.
    PutBehind,
    /// Its blocks share places with others' now.
    Wrapped,
    /// The same of `map = "scale"`.
    Scaled,
    /// It has its place among those that the trace uses.
    Packed,
    /// The target takes no request of its length.
    InPieces,
}

impl RowChange {
    /// For people.
    pub(super) fn said(self) -> &'static str {
        match self {
            RowChange::Rounded => "repaired: made whole blocks of the target",
            RowChange::PutBehind => "moved: a device of the trace behind another",
            RowChange::Wrapped => "moved: wrapped",
            RowChange::Scaled => "moved: scaled",
            RowChange::Packed => "moved: packed",
            RowChange::InPieces => {
                "repaired: sent in pieces, as the target takes no longer requests"
            }
        }
    }
}

/// A request, ready to be sent at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayRow {
    /// From the start, in nanoseconds of the trace, earlier rounds of a loop included.
    pub(super) time_ns: u64,
    /// How long it took in the trace; `u64::MAX` where that is not known.
    pub(super) response_ns: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) op: Op,
    pub(super) of: RowOrigin,
    /// It has to be on stable storage before it completes.
    pub(super) fua: bool,
    /// It is a whole request of the trace, or the last piece of one.
    pub(super) is_last: bool,
    /// Another host sends it.
    pub(super) is_foreign: bool,
    /// What it carries, where the trace knows.
    pub(super) content: Option<NonZeroU64>,
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowOrigin {
    /// The number of its device among those that are told apart ([`Survey::told_apart`]).
    pub(super) device: u8,
    /// The number of its target.
    pub(super) target: u16,
}

/// What comes through.
enum Fed {
    Rows(Vec<ReplayRow>),
    /// The trace could not be read on.
    Failed(WorkloadError),
}

/// What was done to rows on their way, by reason.
pub(super) type RowCounts = BTreeMap<RowChange, u64>;

/// The receiving side.
pub(super) struct Feed {
    fed: Option<Receiver<Fed>>,
    empty: SyncSender<Vec<ReplayRow>>,
    rows: Vec<ReplayRow>,
    next: usize,
    failure: Option<WorkloadError>,
    thread: Option<JoinHandle<RowCounts>>,
    /// What is left of [`WAIT_MAX`].
    patience: Duration,
}

/// What the feed has.
pub(super) enum NextRow<'a> {
    Row(&'a ReplayRow),
    /// The reader is behind.
    NotYet,
    /// There is no more.
    End,
}

/// What became of asking for the next batch.
enum Batch {
    Here,
    NotYet,
    End,
}

/// What the reader has to know.
pub(super) struct FeederPlan {
    pub(super) settings: ReplaySettings,
    pub(super) routes: Routes,
    /// What of the trace is sent here.
    pub(super) share: Share,
    pub(super) survey: std::sync::Arc<Survey>,
    /// The parts of the device that targets have.
    pub(super) parts: Vec<Range<u64>>,
    pub(super) block: u64,
    /// The longest request that is sent in one piece.
    pub(super) piece_max: u64,
}

impl Feed {
    /// Starts reading, and waits for the first batch: a run whose first requests are late because the reader has only
    /// just begun would be called late from its start to its end.
    ///
    /// # Errors
    /// There is no thread to be had.
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

    /// The next row, if it is there; it stays the next one until [`Feed::advance`]. Never waits.
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

    /// Goes on to the row after the next one.
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

    /// Waits until the next row, or the end, is there, but all in all no longer than [`WAIT_MAX`]: for a worker that has
    /// nothing else to do.
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
                // A full or closed channel only means that the memory is not used again.
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

    /// Ends the reader, and says what was done to rows and why it ended early, if it did.
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
    /// What comes by hand in place of a reader's rows: at its end when whoever gives it is dropped. `patience`: how long
    /// it is waited for.
    pub(super) fn by_hand(patience: Duration) -> (impl Fn(Vec<ReplayRow>) + Send, Feed) {
        let (feed, fed) = sync_channel(BATCHES);
        let (empty, _) = sync_channel(BATCHES * 2);
        let give = move |rows| feed.send(Fed::Rows(rows)).expect("somebody waits for it");
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

/// Why reading ends early.
enum Stop {
    /// Nobody wants more.
    Unwanted,
    /// A request is where the trace had none before the start.
    Unknown,
    Failed(WorkloadError),
}

impl Stop {
    /// With a request of this device.
    #[cold]
    fn of_device(self, device: &str) -> Stop {
        let Stop::Unknown = self else { return self };
        let what = format!(
            "it was changed after the start: device {device} has a request where it had none"
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
        // A file that grew since it was surveyed has only what was surveyed.
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
        let told = plan.survey.told_apart.get(request.device as usize).copied();
        let (Some(placed), Some(device)) = (placed, told.filter(|told| *told != NOT_MET)) else {
            return Err(Stop::Unknown);
        };
        let Placed {
            mut offset,
            len,
            rounded,
            moved,
        } = placed;
        let is_foreign = !plan.share.has(request);
        let mut count =
            |what: RowChange| *counts.entry(what).or_default() += u64::from(!is_foreign);
        if rounded {
            count(RowChange::Rounded);
        }
        if moved {
            count(match plan.settings.map {
                AddressMap::AsIs => RowChange::PutBehind,
                AddressMap::Wrap => RowChange::Wrapped,
                AddressMap::Scale => RowChange::Scaled,
                AddressMap::Pack => RowChange::Packed,
            });
        }
        let piece_max = if matches!(request.op, Op::Read | Op::Write) {
            plan.piece_max
        } else {
            u64::MAX
        };
        if len > piece_max {
            count(RowChange::InPieces);
        }
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

/// What a piece of a request carries that begins so far into it: the same for the same request, other data for another
/// piece.
fn content_of_piece(content: NonZeroU64, at: u64) -> NonZeroU64 {
    // The steps of Weyl's sequence in splitmix64: no two places of one request are the same.
    let moved = content
        .get()
        .wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    NonZeroU64::new(moved).unwrap_or(NonZeroU64::MAX)
}
