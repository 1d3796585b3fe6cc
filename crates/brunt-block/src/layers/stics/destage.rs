//! The thread that destages the log to the device: batches of the oldest records, omitting data overwritten since, with
//! adjacent pieces merged into one request. A failed batch is retried until it succeeds.
//!
//! The rule: log space is freed only after its record has reached the device, the device has then flushed its volatile
//! cache (if any), and the log's superblock has then been updated, in this order.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use brunt_core::Nanos;

use super::cache::{Due, Piece};
use super::format::{EntryKind, LogPlace};
use super::shared::{Mode, Shared, State};
use crate::turn::turn_until;
use crate::{Backend, Device, DeviceError, Op, OpenError, RefusalKind, Request, Ring, RingConfig};

/// How often a thread waiting for the device checks whether it should stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Initial and maximum pause between attempts.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Maximum length of a request without data.
const ZEROES_BYTES_MAX: u64 = 1 << 30;

/// Batch options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchOptions {
    /// Approximate number of log bytes per batch.
    pub bytes: u64,
    /// Concurrent requests.
    pub depth: u32,
    /// Maximum length of a merged request.
    pub merge_bytes: u64,
    /// Sort by offset instead of log order.
    pub by_offset: bool,
    /// Flush the device even if it has no volatile cache.
    pub flush: bool,
}

#[derive(Debug, thiserror::Error)]
enum DestageError {
    #[error("cannot set up its ring: {0}")]
    Ring(#[from] io::Error),
    #[error("cannot open it: {0}")]
    Open(#[from] OpenError),
    #[error("cannot read the log: {0}")]
    Log(io::Error),
    #[error("{op:?} of {len} bytes at {offset}: {error}")]
    Request {
        op: Op,
        offset: u64,
        len: u64,
        error: DeviceError,
    },
    #[error("the device is closed")]
    Stopped,
}

struct Far {
    // Must be dropped before its ring.
    device: Box<dyn Device>,
    ring: Ring,
}

/// The destaging thread.
pub(super) struct Destager {
    shared: Arc<Shared>,
    inner: Arc<dyn Backend>,
    options: BatchOptions,
    far: Option<Far>,
    pieces: Vec<Piece>,
    /// The next piece, and how much of it has already been sent.
    cursor: (usize, u64),
    /// Requests sent but not yet completed, by tag.
    sent: Vec<Option<(Op, u64, u64)>>,
    /// Whether the device was found not to support zeroing.
    zeroes_are_written: bool,
}

impl Destager {
    pub(super) fn new(
        shared: Arc<Shared>,
        inner: Arc<dyn Backend>,
        options: BatchOptions,
    ) -> Destager {
        let sent = vec![None; options.depth as usize];
        let (pieces, cursor) = (Vec::new(), (0, 0));
        Destager {
            shared,
            inner,
            options,
            far: None,
            pieces,
            cursor,
            sent,
            zeroes_are_written: false,
        }
    }

    /// Runs until the device is closed.
    pub(super) fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        while let Some(end) = self.wait() {
            match self.carry_out(end) {
                Ok(()) => backoff = BACKOFF_MIN,
                Err(DestageError::Stopped) => return,
                Err(error) => {
                    self.far = None;
                    let unsupported = DestageError::is_unsupported(&error);
                    if unsupported && !self.zeroes_are_written {
                        self.zeroes_are_written = true;
                        continue;
                    }
                    let mut state = self.shared.lock();
                    state.counts.destage_retries += 1;
                    state.trouble = Some(format!(
                        "cannot destage to {}: {error}",
                        self.inner.info().name
                    ));
                    self.rest(state, backoff);
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    fn rest(&self, mut state: std::sync::MutexGuard<'_, State>, time: Duration) {
        let until = self.shared.clock.now().after(time);
        while !self.shared.is_stopping() {
            let left = until.since(self.shared.clock.now());
            if left.is_zero() {
                return;
            }
            let wait = self.shared.destage_work.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for a batch and returns its end.
    fn wait(&mut self) -> Option<LogPlace> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if shared.is_stopping() {
                return None;
            }
            let failing = state.mode == Mode::Failing;
            if failing && state.cache.backlog_bytes() == 0 {
                drop(state);
                self.bypass();
                state = shared.lock();
                continue;
            }
            let forced = failing || state.far_wanted > state.cache.released_before();
            let now = shared.clock.now();
            let wait = match state.cache.due(forced, now) {
                Due::Now => match state
                    .cache
                    .batch(self.options.bytes, failing, &mut self.pieces)
                {
                    Some(end) => return Some(end),
                    // The writer notifies this thread when a batch is available.
                    None => Duration::MAX,
                },
                Due::At(at) => at.since(now),
                Due::Never => Duration::MAX,
            };
            state = match wait {
                Duration::MAX => shared
                    .destage_work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                time => {
                    let wait = shared.destage_work.wait_timeout(state, time);
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Retires a failed log once nothing is left in it.
    fn bypass(&mut self) {
        let head = self.shared.lock().cache.head();
        let outcome = self.shared.log.retire(head);
        let mut state = self.shared.lock();
        match outcome {
            // Nothing is added in the meantime: writes wait.
            Ok(()) => {
                state.cache.clear();
                state.mode = Mode::Bypass;
            }
            Err(error) => {
                state.mode = Mode::Stuck;
                let path = self.shared.log.path().display();
                state.trouble = Some(format!(
                    "cannot mark the log {path} as unused: {error}; writes fail, because replaying \
                     the log would overwrite them; remove the log"
                ));
            }
        }
        self.shared.announce(&mut state);
    }

    fn carry_out(&mut self, end: LogPlace) -> Result<(), DestageError> {
        if self.options.by_offset {
            self.pieces.sort_unstable_by_key(|piece| piece.offset);
        }
        let mut far = match self.far.take() {
            Some(far) => far,
            None => {
                let ring = Ring::new(RingConfig::default())?;
                Far {
                    device: self.inner.open(&ring, self.options.depth)?,
                    ring,
                }
            }
        };
        self.cursor = (0, 0);
        self.sent.fill(None);
        self.send_all(&mut far)?;
        if self.options.flush || self.inner.info().volatile_cache {
            self.flush(&mut far)?;
        }
        self.far = Some(far);
        let mut state = self.shared.lock();
        state.cache.destaged(end);
        let logging = state.mode == Mode::Logging;
        drop(state);
        if logging && let Err(error) = self.shared.log.move_tail(end) {
            self.shared.log_failed("write", &error);
        }
        let mut state = self.shared.lock();
        state.cache.release(end);
        self.shared.announce(&mut state);
        Ok(())
    }

    fn send_all(&mut self, far: &mut Far) -> Result<(), DestageError> {
        let (mut batch, mut done) = (VecDeque::new(), Vec::new());
        let mut under_way = 0;
        loop {
            while under_way < self.options.depth
                && let Some(request) = self.next_request(&far.ring)?
            {
                batch.push_back(request);
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(());
            }
            self.turn(far, &mut batch, &mut done)?;
            let (mut requests, mut bytes, mut failed) = (0, 0, None);
            for one in done.drain(..) {
                let (op, offset, len) = self.sent[one.tag as usize]
                    .take()
                    .expect("each request completes once");
                if let Err(error) = one.result
                    && !error.is_recovered()
                {
                    failed = Some(DestageError::Request {
                        op,
                        offset,
                        len,
                        error,
                    });
                    break;
                }
                under_way -= 1;
                requests += 1;
                bytes += if op == Op::Write { len } else { 0 };
            }
            let mut state = self.shared.lock();
            state.counts.destage_requests += requests;
            state.counts.destaged_bytes += bytes;
            drop(state);
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }

    fn flush(&mut self, far: &mut Far) -> Result<(), DestageError> {
        let (mut batch, mut done) = (VecDeque::new(), Vec::new());
        batch.push_back(Request {
            tag: 0,
            op: Op::Flush,
            offset: 0,
            len: 0,
            buf: crate::Buf::empty(),
            force_unit_access: false,
        });
        while done.is_empty() {
            self.turn(far, &mut batch, &mut done)?;
        }
        match done[0].result {
            Err(error) if !error.is_recovered() => Err(DestageError::Request {
                op: Op::Flush,
                offset: 0,
                len: 0,
                error,
            }),
            _ => Ok(()),
        }
    }

    fn turn(
        &self,
        far: &mut Far,
        batch: &mut VecDeque<Request>,
        done: &mut Vec<crate::Completion>,
    ) -> Result<(), DestageError> {
        if self.shared.is_stopping() {
            return Err(DestageError::Stopped);
        }
        let until: Nanos = self.shared.clock.now().after(CHECK_INTERVAL);
        Ok(turn_until(&far.ring, &mut *far.device, batch, done, until)?)
    }

    /// The next request of the batch.
    fn next_request(&mut self, ring: &Ring) -> Result<Option<Request>, DestageError> {
        let (index, skip) = self.cursor;
        let Some(piece) = self.pieces.get(index).copied() else {
            return Ok(None);
        };
        let offset = piece.offset + skip;
        let as_data = piece.kind == EntryKind::Data || self.zeroes_are_written;
        let most = if as_data {
            self.options.merge_bytes
        } else {
            ZEROES_BYTES_MAX
        };
        // Extend the request over all adjacent pieces of the same kind.
        let mut len = 0;
        let (mut next, mut into) = (index, skip);
        while len < most
            && let Some(other) = self.pieces.get(next)
            && other.kind == piece.kind
            && other.offset + into == offset + len
        {
            let take = (other.len - into).min(most - len);
            (len, into) = (len + take, into + take);
            if into == other.len {
                (next, into) = (next + 1, 0);
            }
        }
        self.cursor = (next, into);
        let mut buf = crate::Buf::empty();
        if as_data {
            buf = ring.pool().take(len as usize);
        }
        if piece.kind == EntryKind::Data {
            let (mut at, mut from, mut skip) = (0, index, skip);
            while at < len as usize {
                let piece = self.pieces[from];
                let take = ((piece.len - skip) as usize).min(len as usize - at);
                self.read(piece.at + skip, &mut buf[at..at + take])?;
                (at, from, skip) = (at + take, from + 1, 0);
            }
        } else {
            buf.fill(0);
        }
        let op = match piece.kind {
            _ if as_data => Op::Write,
            EntryKind::Unmap => Op::Unmap,
            EntryKind::Zeroes | EntryKind::Data => Op::WriteZeroes,
        };
        let tag = self
            .sent
            .iter()
            .position(Option::is_none)
            .expect("one buffer per request");
        self.sent[tag] = Some((op, offset, len));
        let force_unit_access = false;
        Ok(Some(Request {
            tag: tag as u64,
            op,
            offset,
            len,
            buf,
            force_unit_access,
        }))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), DestageError> {
        let state = self.shared.lock();
        if state.cache.is_in_memory(at) {
            state.cache.get(at, out);
            return Ok(());
        }
        drop(state);
        self.shared.log.read(at, out).map_err(DestageError::Log)
    }
}

impl DestageError {
    /// Whether the device doesn't support an operation without data.
    fn is_unsupported(&self) -> bool {
        let DestageError::Request {
            op: Op::Unmap | Op::WriteZeroes,
            error,
            ..
        } = self
        else {
            return false;
        };
        matches!(
            error,
            DeviceError::Unsupported
                | DeviceError::Refused {
                    kind: RefusalKind::BadRequest,
                    ..
                }
        )
    }
}
