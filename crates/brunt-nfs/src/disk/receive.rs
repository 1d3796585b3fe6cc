//! Replies to a disk's calls, and their effects.
//!
//! The rule: a reply ends its call before the next one of the same request is planned.

use brunt_block::Op;
use brunt_core::Nanos;
use brunt_wire::nfs::v3::{Procedure, ResultBody, Results, StableHow, Status};

use super::task::TaskState;
use super::{JUKEBOX_PAUSE, NfsDisk};
use crate::calls::{NfsReadData, NfsReply};
use crate::device_errors::NfsRefusal;
use crate::rpc::NfsViolation;
use crate::v41::NfsScratch;

impl NfsDisk {
    /// Offset of a READ's data in the buffer of its task.
    #[inline]
    pub fn place_of(&self, read: &NfsReadData) -> usize {
        self.tasks[usize::from(read.call)].done_bytes as usize
    }

    /// Handles the reply to a READ whose data is already in place.
    ///
    /// # Errors
    /// The reply moves no data although the file doesn't end there.
    #[inline]
    pub fn on_read(&mut self, read: &NfsReadData, now: Nanos) -> Result<(), NfsViolation> {
        self.calls.end(read.call);
        self.read_done(read.call, read.len, read.eof, now)
    }

    /// Handles a complete record, without its mark.
    ///
    /// # Errors
    /// The reply violates a protocol.
    #[inline]
    pub fn on_reply(&mut self, call: u16, record: &[u8], now: Nanos) -> Result<(), NfsViolation> {
        // Taken out of `self`, because the results borrow from it while `self` changes.
        let mut scratch = std::mem::take(&mut self.scratch);
        let answered = self.answer_reply(call, record, &mut scratch, now);
        self.scratch = scratch;
        answered
    }

    #[inline]
    fn answer_reply(
        &mut self,
        call: u16,
        record: &[u8],
        scratch: &mut NfsScratch,
        now: Nanos,
    ) -> Result<(), NfsViolation> {
        let procedure = self.procedure_of(call);
        let reply = self.calls.results(call, record, scratch)?;
        self.calls.end(call);
        match reply {
            NfsReply::Results(Results {
                status: Status::OK,
                body,
            }) => match body {
                ResultBody::Read { eof, data, .. } => {
                    let task = &mut self.tasks[usize::from(call)];
                    let start = task.done_bytes as usize;
                    task.buf[start..start + data.bytes.len()].copy_from_slice(data.bytes);
                    self.read_done(call, data.len, eof, now)
                }
                ResultBody::Write {
                    count,
                    committed,
                    verifier,
                    ..
                } => self.write_done(call, count, committed, verifier, now),
                ResultBody::Commit { verifier, .. } => {
                    let task = &mut self.tasks[usize::from(call)];
                    self.stability.on_commit(verifier, task.mark);
                    task.committed = true;
                    self.plan(call, now);
                    Ok(())
                }
                _ => unreachable!("a disk reads, writes and commits"),
            },
            NfsReply::Results(Results {
                status: Status::JUKEBOX,
                ..
            }) => {
                self.wait(call, procedure, now);
                Ok(())
            }
            NfsReply::Results(Results { status, .. }) => {
                self.refuse(call, NfsRefusal::of_status(self.version, procedure, status));
                Ok(())
            }
            NfsReply::Refused(status) => {
                self.refuse(call, NfsRefusal::Rpc(procedure, status));
                Ok(())
            }
        }
    }

    fn procedure_of(&self, call: u16) -> Procedure {
        match self.tasks[usize::from(call)].ask.op {
            Op::Read => Procedure::Read,
            Op::Flush => Procedure::Commit,
            Op::Write | Op::WriteZeroes | Op::Unmap => Procedure::Write,
        }
    }

    fn read_done(
        &mut self,
        call: u16,
        len: u32,
        eof: bool,
        now: Nanos,
    ) -> Result<(), NfsViolation> {
        let task = &mut self.tasks[usize::from(call)];
        task.done_bytes += u64::from(len);
        // A server may return less than requested. An empty reply before the end of the file would be retried forever.
        if task.done_bytes < task.ask.len && eof {
            self.refuse(call, NfsRefusal::EndOfFile);
        } else if len == 0 {
            let asked = task.piece_bytes(&self.file);
            return Err(NfsViolation::Count {
                operation: Procedure::Read.name(),
                answered: 0,
                asked,
            });
        } else {
            self.plan(call, now);
        }
        Ok(())
    }

    fn write_done(
        &mut self,
        call: u16,
        count: u32,
        committed: StableHow,
        verifier: u64,
        now: Nanos,
    ) -> Result<(), NfsViolation> {
        let task = &mut self.tasks[usize::from(call)];
        let asked = task.piece_bytes(&self.file);
        if count == 0 || count > asked {
            return Err(NfsViolation::Count {
                operation: Procedure::Write.name(),
                answered: count,
                asked,
            });
        }
        if committed.number() < task.stable(self.config.write_back).number() {
            return Err(NfsViolation::Stability);
        }
        self.stability
            .on_write(verifier, committed == StableHow::Unstable);
        task.done_bytes += u64::from(count);
        self.plan(call, now);
        Ok(())
    }

    /// Repeats the call with a new xid after the server asked to try again later, until the request's time limit.
    fn wait(&mut self, call: u16, procedure: Procedure, now: Nanos) {
        let until = now.after(JUKEBOX_PAUSE);
        let task = &mut self.tasks[usize::from(call)];
        if until >= task.patience_end {
            let refusal = NfsRefusal::of_status(self.version, procedure, Status::JUKEBOX);
            return self.refuse(call, refusal);
        }
        task.state = TaskState::Pausing(until);
        self.next_resume = self.next_resume.min(until);
        self.waits += 1;
        self.refusal = Some(NfsRefusal::Status(procedure, Status::JUKEBOX));
    }

    fn refuse(&mut self, call: u16, refusal: NfsRefusal) {
        self.refusal = Some(refusal);
        self.answer(call, Err(refusal.error()));
    }
}
