//! Handles a session's replies: which task they belong to, where their data goes, and when they are complete.
//!
//! The rule: [`NbdSession::on_header`] changes nothing and can be called repeatedly; [`NbdSession::on_reply`] changes
//! the state, once per reply.

use brunt_core::Nanos;
use brunt_wire::nbd::transmission::{ERROR_BYTES_MAX, parse_error, parse_hole};
use brunt_wire::nbd::{NbdChunk, NbdCommand, NbdHeaders, NbdReply, errno};
use brunt_wire::{Malformed, ParseError};

use super::task::{NbdTask, NbdTaskState};
use super::{NbdDataRange, NbdLoss, NbdSession};
use crate::nbd::device_errors;

/// Maximum payload other than the data of a read: an error with its text.
pub const SHORT_PAYLOAD_BYTES_MAX: usize = ERROR_BYTES_MAX as usize;

/// The payload after a reply's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdPayload {
    /// Data of a read, for this part of its task's buffer.
    Task(NbdDataRange),
    /// This many bytes, for [`NbdSession::on_reply`].
    Short(usize),
}

/// How a server violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdViolation {
    /// Bytes that are not a reply.
    #[error("invalid reply from server: {0}")]
    Malformed(#[from] Malformed),
    /// An unknown cookie.
    #[error("the server replied to an unknown request, or twice")]
    Cookie,
    /// Data or a hole outside the requested range.
    #[error("the server sent data for a different offset than requested")]
    Range,
    /// Data that had already arrived.
    #[error("the server sent part of a read twice")]
    Overlap,
    /// A read that ended before all of its data arrived.
    #[error("the server completed a read without sending all data")]
    Short,
    /// A chunk that is invalid for the command, or a simple reply where chunks are required.
    #[error("the server sent the wrong type of reply")]
    Kind,
    /// An error text beyond the limit.
    #[error("the server sent a reply that exceeds the maximum length")]
    Long,
}

impl NbdSession {
    fn task_of(&self, cookie: u64) -> Result<(u16, &NbdTask), NbdViolation> {
        let index = cookie as u16;
        match self.tasks.get(usize::from(index)) {
            Some(task) if task.state == NbdTaskState::Sent && task.cookie == cookie => {
                Ok((index, task))
            }
            _ => Err(NbdViolation::Cookie),
        }
    }

    /// Where the payload after this header belongs.
    ///
    /// # Errors
    /// The reply doesn't match the request.
    #[inline]
    pub fn on_header(&self, reply: &NbdReply) -> Result<NbdPayload, NbdViolation> {
        let (cookie, offset, chunk) = match *reply {
            NbdReply::Simple { error, cookie } => {
                let (index, task) = self.task_of(cookie)?;
                if task.piece.command != NbdCommand::Read || error != 0 {
                    return Ok(NbdPayload::Short(0));
                }
                if self.export.headers != NbdHeaders::Simple {
                    return Err(NbdViolation::Kind);
                }
                let start = (task.piece.offset - task.ask.offset) as usize;
                let len = task.piece.len as usize;
                return Ok(NbdPayload::Task(NbdDataRange {
                    task: index,
                    start,
                    len,
                }));
            }
            NbdReply::Chunk {
                cookie,
                offset,
                chunk,
                ..
            } => (cookie, offset, chunk),
        };
        let (index, task) = self.task_of(cookie)?;
        if offset.is_some_and(|offset| offset != task.piece.offset) {
            return Err(NbdViolation::Range);
        }
        match chunk {
            NbdChunk::None => Ok(NbdPayload::Short(0)),
            NbdChunk::Data { offset, len } => {
                let start = part_of(task, offset, len.into())?;
                Ok(NbdPayload::Task(NbdDataRange {
                    task: index,
                    start,
                    len: len as usize,
                }))
            }
            NbdChunk::Hole(len) if task.piece.command == NbdCommand::Read => {
                Ok(NbdPayload::Short(len as usize))
            }
            NbdChunk::Error { len, .. } if len <= ERROR_BYTES_MAX => {
                Ok(NbdPayload::Short(len as usize))
            }
            NbdChunk::Error { .. } => Err(NbdViolation::Long),
            _ => Err(NbdViolation::Kind),
        }
    }

    /// Processes a complete reply: its header, and its payload if short; the data of a read is already in place.
    ///
    /// # Errors
    /// The reply doesn't match the request.
    #[inline]
    pub fn on_reply(
        &mut self,
        reply: &NbdReply,
        payload: &[u8],
        now: Nanos,
    ) -> Result<(), NbdViolation> {
        let (cookie, done, chunk) = match *reply {
            NbdReply::Simple { error, cookie } => {
                let (index, _) = self.task_of(cookie)?;
                return self.finish(index, error, now);
            }
            NbdReply::Chunk {
                done,
                cookie,
                chunk,
                ..
            } => (cookie, done, chunk),
        };
        let (index, task) = self.task_of(cookie)?;
        match chunk {
            NbdChunk::Data { offset, len } => {
                self.tasks[usize::from(index)]
                    .coverage
                    .add(offset, len.into());
            }
            NbdChunk::Hole(_) => {
                let (offset, len) = parse_hole(payload).map_err(malformed)?;
                let start = part_of(task, offset, len.into())?;
                let task = &mut self.tasks[usize::from(index)];
                task.buf[start..start + len as usize].fill(0);
                task.coverage.add(offset, len.into());
            }
            NbdChunk::Error { .. } => {
                let (error, words) = parse_error(payload).map_err(malformed)?;
                self.tasks[usize::from(index)].error.get_or_insert(error);
                if !words.is_empty() {
                    self.counts.words = Some(words);
                }
            }
            _ => {}
        }
        if !done {
            return Ok(());
        }
        let task = &self.tasks[usize::from(index)];
        let error = task.error.unwrap_or(0);
        let is_read = task.piece.command == NbdCommand::Read;
        if error == 0
            && is_read
            && !task
                .coverage
                .is_whole(task.piece.offset, task.piece.offset + task.piece.len)
        {
            return Err(NbdViolation::Short);
        }
        self.finish(index, error, now)
    }

    fn finish(&mut self, index: u16, error: u32, now: Nanos) -> Result<(), NbdViolation> {
        match error {
            0 => self.command_done(index, now),
            // The command will be sent again on the next connection, like everything else in flight.
            errno::SHUTDOWN => self.loss = Some(NbdLoss::ShuttingDown),
            error => self.answer(index, Err(device_errors::from_number(error))),
        }
        Ok(())
    }
}

/// The offset of a part of a read in the task's buffer.
fn part_of(task: &NbdTask, offset: u64, len: u64) -> Result<usize, NbdViolation> {
    if task.piece.command != NbdCommand::Read {
        return Err(NbdViolation::Kind);
    }
    let (from, to) = (task.piece.offset, task.piece.offset + task.piece.len);
    let inside = offset >= from && offset.checked_add(len).is_some_and(|end| end <= to);
    if !inside {
        return Err(NbdViolation::Range);
    }
    if !task.coverage.takes(offset, len) {
        return Err(NbdViolation::Overlap);
    }
    Ok((offset - task.ask.offset) as usize)
}

fn malformed(error: ParseError) -> NbdViolation {
    match error {
        ParseError::Malformed(malformed) => malformed.into(),
        ParseError::Incomplete(needed) => {
            Malformed::new(needed, "more data than in the chunk").into()
        }
    }
}
