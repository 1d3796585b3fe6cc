//! A connection's requests and replies, without I/O.
//!
//! Its driver (`link`) moves bytes: it passes in requests (`submit`), sends the output of [`NbdSession::pull`], asks
//! [`NbdSession::on_header`] where a reply's data belongs, puts it there, reports the reply with
//! [`NbdSession::on_reply`], and retires answered requests. The session outlives its connection: after a loss, its
//! tasks wait for a new one (`detach`, [`NbdSession::attach`]).
//!
//! After a loss, all unanswered commands are sent again. This is safe because all requests of a block device may be
//! executed twice. Each command is sent at most [`NbdSessionConfig::tries`] times. NBD cannot cancel a request, so a
//! request that times out ends the connection.
//!
//! The one rule: a reply that doesn't match the request (cookie, offset, length, duplicate or missing parts) is an
//! [`NbdViolation`], and the connection is dropped; nothing is written outside a task's buffer.

mod coverage;
mod receive;
mod task;

use std::collections::VecDeque;
use std::time::Duration;

use brunt_block::remote::{RemoteEvents, RemoteSession};
use brunt_block::{Buf, Completion, DeviceError, Op, RefusalKind, Request};
use brunt_core::Nanos;
use brunt_wire::nbd::transmission::NbdHeaderBytes;
use brunt_wire::nbd::{NbdCommand, NbdRequest};

pub use receive::{NbdPayload, NbdViolation, SHORT_PAYLOAD_BYTES_MAX};

use self::task::{CallerRequest, Done, NbdTask, NbdTaskState, plan};
use super::export::NbdExport;

/// Maximum tasks of a session: cookies carry the index in 16 bits. As large as the maximum queue depth of a load, so
/// that no queue is silently shorter.
pub const DEPTH_MAX: u32 = 4096;

/// The configuration of a session.
#[derive(Clone, Copy, Debug)]
pub struct NbdSessionConfig {
    /// Maximum concurrent tasks.
    pub depth: u32,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Time limit for one command.
    pub timeout: Duration,
    /// Maximum attempts per command.
    pub tries: u32,
}

/// Events other than normal replies. Printed with results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdCounts {
    /// Commands sent again after their connection was lost.
    pub replays: u64,
    /// Commands that timed out.
    pub timeouts: u64,
    /// The text of the server's last error.
    pub words: Option<String>,
}

/// Why a connection must be dropped, other than a protocol violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdLoss {
    /// The server announced its shutdown.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// A command timed out.
    #[error("the server did not reply to a request in time")]
    NoAnswer,
}

/// Data to send: a header, followed by data of a task or zeros.
#[derive(Clone, Copy, Debug)]
pub struct NbdOutgoing {
    /// The header.
    pub header: NbdHeaderBytes,
    /// Data after the header, from a task's buffer.
    pub data: Option<NbdDataRange>,
    /// Number of zeros after the header.
    pub zeros: usize,
}

/// Part of a task's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdDataRange {
    /// Index of the task.
    pub task: u16,
    /// First byte.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
}

/// The session for an export; see the module's docs.
#[derive(Debug)]
pub struct NbdSession {
    config: NbdSessionConfig,
    export: NbdExport,
    attached: bool,
    tasks: Vec<NbdTask>,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
    answered: VecDeque<u16>,
    /// Number of commands sent so far; makes cookies unique.
    sent: u64,
    sequence: u64,
    next_check: Nanos,
    loss: Option<NbdLoss>,
    counts: NbdCounts,
}

impl NbdSession {
    /// A session for an export, without a connection.
    ///
    /// # Panics
    /// Panics if the depth is 0 or exceeds [`DEPTH_MAX`].
    pub fn new(config: NbdSessionConfig, export: NbdExport) -> NbdSession {
        assert!(
            (1..=DEPTH_MAX).contains(&config.depth),
            "depth {} is not in 1 to {DEPTH_MAX}",
            config.depth
        );
        let depth = config.depth as u16;
        NbdSession {
            export,
            attached: false,
            tasks: (0..depth).map(|_| NbdTask::new()).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth.into()),
            answered: VecDeque::with_capacity(depth.into()),
            sent: 0,
            sequence: 0,
            next_check: Nanos::MAX,
            loss: None,
            counts: NbdCounts::default(),
            config,
        }
    }

    /// Counters so far.
    pub fn counts(&self) -> &NbdCounts {
        &self.counts
    }

    /// The negotiated export.
    pub fn export(&self) -> &NbdExport {
        &self.export
    }

    /// Queues the next command of a request, or ends the request.
    fn plan(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        match plan(&self.export, self.config.block_bytes, task.ask, task.done) {
            Ok(Some(piece)) => {
                task.piece = piece;
                task.tries = 0;
                task.state = NbdTaskState::Waiting;
                self.queue(index, now);
            }
            Ok(None) => self.answer(index, Ok(())),
            Err(error) => self.answer(index, Err(error)),
        }
    }

    fn queue(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        task.coverage.clear();
        (task.error, task.late) = (None, false);
        task.deadline = now.after(self.config.timeout);
        self.next_check = self.next_check.min(task.deadline);
        self.waiting.push_back(index);
    }

    /// The next data to send.
    #[inline]
    pub fn pull(&mut self) -> Option<NbdOutgoing> {
        if !self.attached || self.loss.is_some() {
            return None;
        }
        let index = self.waiting.pop_front()?;
        self.sent += 1;
        let task = &mut self.tasks[usize::from(index)];
        task.state = NbdTaskState::Sent;
        task.tries += 1;
        task.cookie = self.sent << 16 | u64::from(index);
        let piece = task.piece;
        let request = NbdRequest {
            flags: piece.flags,
            command: piece.command,
            cookie: task.cookie,
            offset: piece.offset,
            len: piece.len,
        };
        let header = request.encode(self.export.headers);
        let len = if piece.command == NbdCommand::Write {
            piece.len as usize
        } else {
            0
        };
        let start = (piece.offset - task.ask.offset.min(piece.offset)) as usize;
        Some(match piece.from_zeros {
            true => NbdOutgoing {
                header,
                data: None,
                zeros: len,
            },
            false => {
                let data = (len > 0).then_some(NbdDataRange {
                    task: index,
                    start,
                    len,
                });
                NbdOutgoing {
                    header,
                    data,
                    zeros: 0,
                }
            }
        })
    }

    fn answer(&mut self, index: u16, result: Result<(), DeviceError>) {
        let task = &mut self.tasks[usize::from(index)];
        assert!(
            matches!(task.state, NbdTaskState::Waiting | NbdTaskState::Sent),
            "only outstanding tasks complete, and only once"
        );
        task.state = NbdTaskState::Answered(result);
        self.answered.push_back(index);
    }

    /// Continues a request after one of its commands succeeded, or ends it.
    fn command_done(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        match task.piece.command {
            NbdCommand::Flush => task.done.flushed = true,
            _ => task.done.bytes += task.piece.len,
        }
        self.plan(index, now);
    }

    /// Continues on a new connection.
    ///
    /// # Panics
    /// Panics if there is a connection already.
    pub fn attach(&mut self, export: NbdExport, now: Nanos) {
        assert!(!self.attached, "a session without a connection gets one");
        (self.export, self.attached, self.loss) = (export, true, None);
        self.next_check = now.after(self.config.timeout);
        let waiting = std::mem::take(&mut self.waiting);
        let mut waiting: Vec<u16> = waiting.into();
        waiting.sort_by_key(|index| self.tasks[usize::from(*index)].sequence);
        for index in waiting {
            // The server's flags may have changed: plan again from the current state.
            let task = &self.tasks[usize::from(index)];
            let tries = task.tries;
            self.plan(index, now);
            self.tasks[usize::from(index)].tries = tries;
        }
    }
}

impl RemoteSession for NbdSession {
    type Loss = NbdLoss;

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
            task.state == NbdTaskState::Free,
            "a request takes a free slot"
        );
        task.state = NbdTaskState::Waiting;
        task.tag = tag;
        task.ask = CallerRequest {
            op,
            offset,
            len,
            force_unit_access,
        };
        task.done = Done::default();
        task.buf = buf;
        task.sequence = self.sequence;
        self.plan(index, now);
        Ok(())
    }

    /// Cancels a request unless its command was already sent.
    fn cancel(&mut self, tag: u64) {
        let found = self
            .tasks
            .iter()
            .position(|task| task.tag == tag && task.state == NbdTaskState::Waiting);
        let Some(index) = found else { return };
        self.waiting
            .retain(|waiting| usize::from(*waiting) != index);
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
        let NbdTaskState::Answered(result) = task.state else {
            panic!("only completed tasks are retired")
        };
        task.state = NbdTaskState::Free;
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
        for task in &mut self.tasks {
            match task.state {
                NbdTaskState::Sent if task.deadline <= now => {
                    task.late = true;
                    self.counts.timeouts += 1;
                    self.loss = Some(NbdLoss::NoAnswer);
                }
                NbdTaskState::Sent | NbdTaskState::Waiting => {
                    self.next_check = self.next_check.min(task.deadline);
                }
                _ => {}
            }
        }
    }

    fn lost(&self) -> Option<NbdLoss> {
        self.loss
    }

    fn detach(&mut self) {
        (self.attached, self.next_check) = (false, Nanos::MAX);
        for index in 0..self.tasks.len() as u16 {
            let task = &mut self.tasks[usize::from(index)];
            if task.state != NbdTaskState::Sent {
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
                task.state = NbdTaskState::Waiting;
                self.counts.replays += 1;
                self.waiting.push_back(index);
            }
        }
    }

    fn fail_all(&mut self, error: DeviceError) {
        assert!(!self.attached, "tasks are failed only without a connection");
        while let Some(index) = self.waiting.pop_front() {
            self.answer(index, Err(error));
        }
    }

    fn events(&self) -> RemoteEvents {
        let words = self.counts.words.as_ref();
        RemoteEvents {
            replays: self.counts.replays,
            timeouts: self.counts.timeouts,
            words: words.map(|words| format!("error message from the server: '{words}'")),
        }
    }
}

#[cfg(test)]
mod tests;
