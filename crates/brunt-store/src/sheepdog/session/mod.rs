//! A connection's requests and responses, without I/O.
//!
//! Its driver (`link`) moves bytes: it passes in requests (`submit`), sends the output of
//! [`SheepdogSession::pull`], asks [`SheepdogSession::on_header`] where a response's data belongs, puts it there,
//! reports the response with [`SheepdogSession::on_response`], and retires answered requests. The session outlives its
//! connection: after a loss its tasks wait for a new one (`detach`, [`SheepdogSession::attach`]).
//!
//! After a loss, all unanswered messages are sent again, each at most [`SheepdogSessionConfig::tries`] times. A message
//! that the server cannot serve at the moment (for example, with too few nodes) is sent again every 200 ms until the
//! timeout, on the same connection. When a snapshot of the disk is taken, writes to the VDI that became the snapshot
//! are refused. This also ends the connection, and the next one determines the disk's new VDI.
//!
//! The one rule: a response that doesn't match the request is a [`SheepdogViolation`], and the connection is dropped;
//! nothing is written outside a task's buffer.

mod receive;
mod task;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::remote::{RemoteEvents, RemoteSession};
use brunt_block::{Buf, Completion, DeviceError, Op, RefusalKind, Request};
use brunt_core::Nanos;
use brunt_wire::sheepdog::header::{HEADER_BYTES, flag};

pub use receive::{SheepdogPayload, SheepdogViolation};

use self::task::{CallerRequest, Next, SheepdogTask, Step, TaskState};
use super::device_errors::SheepdogResult;
use super::objects::SheepdogObjects;

/// Maximum tasks of a session: ids carry the index in `INDEX_BITS` bits.
pub const DEPTH_MAX: u32 = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 12;
/// Delay before resending a message that the server cannot serve at the moment.
const PAUSE: Duration = Duration::from_millis(200);
/// Delay before the next probe.
const PROBE_PAUSE: Duration = Duration::from_millis(5);

/// The configuration of a session.
#[derive(Clone, Copy, Debug)]
pub struct SheepdogSessionConfig {
    /// Maximum concurrent tasks.
    pub depth: u32,
    /// Time limit for one message.
    pub timeout: Duration,
    /// Maximum attempts per message.
    pub tries: u32,
    /// Whether writes go through the object cache, and are stable only after a flush.
    pub cache: bool,
}

/// Events other than normal responses. Printed with results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SheepdogCounts {
    /// Messages sent again because their connection was lost or the server could not serve them.
    pub replays: u64,
    /// Messages that timed out.
    pub timeouts: u64,
    /// The last result that caused a message to be sent again.
    pub result: Option<u32>,
    /// Whether the server has no object cache to flush.
    pub no_cache: bool,
}

/// Why a connection must be dropped, other than a protocol violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SheepdogLoss {
    /// The server announced its shutdown.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// A message timed out.
    #[error("the server did not reply to a request in time")]
    NoAnswer,
    /// The VDI that was written to has become a snapshot.
    #[error("a snapshot of the disk was taken")]
    Snapshot,
}

/// Data to send: a header, followed by data of a task, other data, or zeros.
#[derive(Clone, Copy, Debug)]
pub struct SheepdogOutgoing {
    /// The header.
    pub header: [u8; HEADER_BYTES],
    /// Data after the header, from a task's buffer.
    pub data: Option<SheepdogDataRange>,
    /// Other data after the header: an entry of the inode.
    pub entry: Option<[u8; 4]>,
    /// Number of zeros after the header.
    pub zeros: usize,
}

/// Part of a task's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheepdogDataRange {
    /// Index of the task.
    pub task: u16,
    /// First byte.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
}

/// The session for a disk; see the module's docs.
#[derive(Debug)]
pub struct SheepdogSession {
    config: SheepdogSessionConfig,
    objects: Arc<SheepdogObjects>,
    copies: u8,
    object_shift: u8,
    attached: bool,
    tasks: Vec<SheepdogTask>,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
    parked: Vec<u16>,
    answered: VecDeque<u16>,
    /// Number of messages sent so far; makes ids unique.
    sent: u32,
    sequence: u64,
    /// Number of released claims when the parked tasks were last checked.
    released_seen: u64,
    next_check: Nanos,
    loss: Option<SheepdogLoss>,
    counts: SheepdogCounts,
}

impl SheepdogSession {
    /// A session for a disk, without a connection.
    ///
    /// # Panics
    /// Panics if the depth is 0 or exceeds [`DEPTH_MAX`].
    pub fn new(config: SheepdogSessionConfig, objects: Arc<SheepdogObjects>) -> SheepdogSession {
        assert!(
            (1..=DEPTH_MAX).contains(&config.depth),
            "depth {} is not in 1 to {DEPTH_MAX}",
            config.depth
        );
        let depth = config.depth as u16;
        let inode = objects.inode();
        SheepdogSession {
            objects,
            copies: inode.copies,
            object_shift: inode.object_shift,
            attached: false,
            tasks: (0..depth).map(|_| SheepdogTask::new()).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth.into()),
            parked: Vec::new(),
            answered: VecDeque::with_capacity(depth.into()),
            sent: 0,
            sequence: 0,
            released_seen: 0,
            next_check: Nanos::MAX,
            loss: None,
            counts: SheepdogCounts::default(),
            config,
        }
    }

    /// Counters so far.
    pub fn counts(&self) -> &SheepdogCounts {
        &self.counts
    }

    /// Queues the next message of a request, or ends the request.
    fn plan(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        match task.plan(&self.objects, self.object_shift, self.config.cache) {
            Next::Send(piece) => {
                task.piece = piece;
                task.tries = 0;
                task.patience_end = now.after(self.config.timeout);
                self.queue(index, now);
            }
            Next::Park => {
                task.state = TaskState::Parked;
                self.parked.push(index);
            }
            Next::Done => self.answer(index, Ok(())),
        }
    }

    fn queue(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        task.late = false;
        task.state = TaskState::Waiting;
        task.deadline = now.after(self.config.timeout);
        self.next_check = self.next_check.min(task.deadline);
        self.waiting.push_back(index);
    }

    /// Schedules the same message again after a delay.
    fn pause(&mut self, index: u16, time: Duration, now: Nanos) {
        let until = now.after(time);
        let task = &mut self.tasks[usize::from(index)];
        // The message was answered; only unanswered messages count as attempts.
        (task.state, task.tries) = (TaskState::Pausing(until), 0);
        self.next_check = self.next_check.min(until);
    }

    /// Replans tasks that wait for another task's claim, if a claim was released.
    #[inline]
    pub fn replan_parked(&mut self, now: Nanos) {
        while !self.parked.is_empty() {
            let released = self.objects.released();
            if released == self.released_seen {
                return;
            }
            self.released_seen = released;
            for index in std::mem::take(&mut self.parked) {
                self.plan(index, now);
            }
        }
    }

    /// The next data to send.
    #[inline]
    pub fn pull(&mut self) -> Option<SheepdogOutgoing> {
        if !self.attached || self.loss.is_some() {
            return None;
        }
        let index = self.waiting.pop_front()?;
        self.sent = self.sent.wrapping_add(1);
        let task = &mut self.tasks[usize::from(index)];
        task.state = TaskState::Sent;
        task.tries += 1;
        task.id = self.sent << INDEX_BITS | u32::from(index);
        let piece = task.piece;
        let cache_flag = if self.config.cache {
            flag::CACHE
        } else {
            flag::DIRECT
        };
        let request = piece.request(task.id, cache_flag, self.copies);
        let mut out = SheepdogOutgoing {
            header: request.encode(),
            data: None,
            entry: None,
            zeros: 0,
        };
        match piece.step {
            Step::Write | Step::Create { .. } if task.ask.op == Op::Write => {
                let start = task.done_bytes as usize;
                out.data = Some(SheepdogDataRange {
                    task: index,
                    start,
                    len: piece.len as usize,
                });
            }
            Step::Write | Step::Create { .. } => out.zeros = piece.len as usize,
            Step::Record(entry) => out.entry = Some(entry.to_le_bytes()),
            Step::Read | Step::Probe | Step::Flush => {}
        }
        Some(out)
    }

    fn answer(&mut self, index: u16, result: Result<(), DeviceError>) {
        let task = &mut self.tasks[usize::from(index)];
        let over = matches!(task.state, TaskState::Free | TaskState::Answered(_));
        assert!(!over, "only outstanding tasks complete, and only once");
        task.give_back(&self.objects);
        task.state = TaskState::Answered(result);
        self.answered.push_back(index);
    }

    /// Continues on a new connection. The driver must already have updated the objects to the current disk.
    ///
    /// # Panics
    /// Panics if there is a connection already.
    pub fn attach(&mut self, now: Nanos) {
        assert!(!self.attached, "a session without a connection gets one");
        (self.attached, self.loss) = (true, None);
        self.next_check = now.after(self.config.timeout);
        self.waiting.clear();
        self.parked.clear();
        let unsent = |task: &SheepdogTask| {
            matches!(
                task.state,
                TaskState::Waiting | TaskState::Parked | TaskState::Pausing(_)
            )
        };
        let mut unsent: Vec<usize> = (0..self.tasks.len())
            .filter(|index| unsent(&self.tasks[*index]))
            .collect();
        unsent.sort_by_key(|index| self.tasks[*index].sequence);
        for index in unsent {
            // The disk may be a different VDI now: plan again from the current state.
            let task = &self.tasks[index];
            let (tries, piece) = (task.tries, task.piece);
            self.plan(index as u16, now);
            let task = &mut self.tasks[index];
            if task.piece == piece {
                task.tries = tries;
            }
        }
    }
}

impl RemoteSession for SheepdogSession {
    type Loss = SheepdogLoss;

    fn room(&self) -> usize {
        self.free.len()
    }

    fn outstanding(&self) -> u32 {
        (self.tasks.len() - self.free.len()) as u32
    }

    fn submit(&mut self, request: Request, now: Nanos) -> Result<(), Request> {
        let Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access,
        } = request;
        let Some(index) = self.free.pop() else {
            return Err(Request {
                tag,
                op,
                offset,
                len,
                buf,
                force_unit_access,
            });
        };
        let moves_data = matches!(op, Op::Read | Op::Write);
        assert!(
            !moves_data || len <= buf.len() as u64,
            "the device has checked the buffer"
        );
        self.sequence += 1;
        let task = &mut self.tasks[usize::from(index)];
        assert!(
            task.state == TaskState::Free && task.claim.is_none(),
            "a request takes a free slot"
        );
        task.state = TaskState::Waiting;
        task.tag = tag;
        task.ask = CallerRequest {
            op,
            offset,
            len,
            force_unit_access,
        };
        (task.done_bytes, task.flushed) = (0, false);
        task.buf = buf;
        task.sequence = self.sequence;
        self.plan(index, now);
        Ok(())
    }

    /// Cancels a request unless its message was already sent or it waits for an object to be dropped.
    fn cancel(&mut self, tag: u64) {
        let idle = |task: &SheepdogTask| {
            let unsent = matches!(
                task.state,
                TaskState::Waiting | TaskState::Parked | TaskState::Pausing(_)
            );
            unsent && task.claim.is_none_or(|claim| !claim.probing)
        };
        let Some(index) = self
            .tasks
            .iter()
            .position(|task| task.tag == tag && idle(task))
        else {
            return;
        };
        self.waiting
            .retain(|waiting| usize::from(*waiting) != index);
        self.parked.retain(|parked| usize::from(*parked) != index);
        self.answer(
            index as u16,
            Err(DeviceError::refused(RefusalKind::Cancelled)),
        );
    }

    #[inline]
    fn data(&mut self, task: u16) -> &mut Buf {
        &mut self.tasks[usize::from(task)].buf
    }

    #[inline]
    fn next_answered(&mut self) -> Option<u16> {
        self.answered.pop_front()
    }

    fn retire(&mut self, index: u16) -> Completion {
        let task = &mut self.tasks[usize::from(index)];
        let TaskState::Answered(result) = task.state else {
            panic!("only completed tasks are retired")
        };
        task.state = TaskState::Free;
        self.free.push(index);
        Completion {
            tag: task.tag,
            buf: std::mem::take(&mut task.buf),
            result,
        }
    }

    fn deadline(&self) -> Nanos {
        match (self.answered.is_empty(), self.attached) {
            (false, _) => Nanos(0),
            (true, true) => self.next_check,
            (true, false) => Nanos::MAX,
        }
    }

    fn on_time(&mut self, now: Nanos) {
        if now < self.next_check || !self.attached {
            return;
        }
        self.next_check = Nanos::MAX;
        for index in 0..self.tasks.len() {
            let task = &mut self.tasks[index];
            match task.state {
                TaskState::Pausing(until) if until <= now => self.queue(index as u16, now),
                TaskState::Pausing(until) => self.next_check = self.next_check.min(until),
                TaskState::Sent if task.deadline <= now => {
                    task.late = true;
                    self.counts.timeouts += 1;
                    self.loss = Some(SheepdogLoss::NoAnswer);
                }
                TaskState::Sent | TaskState::Waiting => {
                    self.next_check = self.next_check.min(task.deadline);
                }
                TaskState::Free | TaskState::Parked | TaskState::Answered(_) => {}
            }
        }
    }

    fn lost(&self) -> Option<SheepdogLoss> {
        self.loss
    }

    fn detach(&mut self) {
        (self.attached, self.next_check) = (false, Nanos::MAX);
        for index in 0..self.tasks.len() as u16 {
            let task = &mut self.tasks[usize::from(index)];
            if task.state != TaskState::Sent {
                continue;
            }
            if task.tries >= self.config.tries {
                let error = if task.late {
                    DeviceError::TimedOut
                } else {
                    DeviceError::Gone
                };
                self.answer(index, Err(error));
            } else {
                task.state = TaskState::Waiting;
                self.counts.replays += 1;
                self.waiting.push_back(index);
            }
        }
    }

    fn fail_all(&mut self, error: DeviceError) {
        assert!(!self.attached, "tasks are failed only without a connection");
        self.waiting.clear();
        self.parked.clear();
        for index in 0..self.tasks.len() as u16 {
            let state = self.tasks[usize::from(index)].state;
            if matches!(
                state,
                TaskState::Waiting | TaskState::Parked | TaskState::Pausing(_)
            ) {
                self.answer(index, Err(error));
            }
        }
    }

    fn events(&self) -> RemoteEvents {
        let counts = &self.counts;
        let result = counts
            .result
            .map(|result| SheepdogResult(result).to_string());
        let no_cache = || "the server has no object cache to flush".to_string();
        RemoteEvents {
            replays: counts.replays,
            timeouts: counts.timeouts,
            words: result.or_else(|| counts.no_cache.then(no_cache)),
        }
    }
}

impl Drop for SheepdogSession {
    /// Releases this session's claims, which other threads may be waiting for.
    fn drop(&mut self) {
        for task in &mut self.tasks {
            task.give_back(&self.objects);
        }
    }
}

#[cfg(test)]
mod tests;
