//! One request of a disk: its state, and its current call. Used by the other files of `disk`.
//!
//! The rule: only [`NfsTask::plan`] decides which calls make up a request.

use brunt_block::{Buf, DeviceError, Op};
use brunt_core::Nanos;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, StableHow};

use super::NfsFile;
use crate::calls::{NfsPayload, write_args};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Free,
    /// Its call is waiting to be sent, or for its reply.
    Calling,
    /// The server asked to wait; the call is repeated at this time.
    Pausing(Nanos),
    Answered(Result<(), DeviceError>),
}

/// The caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerRequest {
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    pub force_unit_access: bool,
}

#[derive(Debug)]
pub(super) struct NfsTask {
    pub state: TaskState,
    pub tag: u64,
    pub ask: CallerRequest,
    /// Completed bytes of a read or write.
    pub done_bytes: u64,
    pub committed: bool,
    /// From `NfsStability::before_commit`, called before the COMMIT was first sent.
    pub mark: u64,
    pub buf: Buf,
    /// The time after which a server that keeps asking to wait counts as unable to serve the request.
    pub patience_end: Nanos,
}

impl NfsTask {
    pub fn new() -> NfsTask {
        NfsTask {
            state: TaskState::Free,
            tag: 0,
            ask: CallerRequest {
                op: Op::Flush,
                offset: 0,
                len: 0,
                force_unit_access: false,
            },
            done_bytes: 0,
            committed: false,
            mark: 0,
            buf: Buf::empty(),
            patience_end: Nanos::MAX,
        }
    }

    /// Length of the current READ or WRITE.
    pub fn piece_bytes(&self, file: &NfsFile) -> u32 {
        let most = match self.ask.op {
            Op::Read => file.read_bytes_max,
            _ => file.write_bytes_max,
        };
        (self.ask.len - self.done_bytes).min(most.into()) as u32
    }

    /// How stable a write has to be.
    pub fn stable(&self, write_back: bool) -> StableHow {
        match write_back && !self.ask.force_unit_access {
            true => StableHow::Unstable,
            false => StableHow::FileSync,
        }
    }

    /// The next call; `None` when the request is complete.
    ///
    /// # Errors
    /// NFSv3 has no operation for the request.
    pub fn plan<'a>(
        &self,
        file: &'a NfsFile,
        write_back: bool,
    ) -> Result<Option<(Args<'a>, NfsPayload)>, DeviceError> {
        let handle = FileHandle(&file.handle);
        let offset = self.ask.offset + self.done_bytes;
        let count = self.piece_bytes(file);
        let is_done = self.done_bytes == self.ask.len;
        match self.ask.op {
            // A flush covers the whole file, because it has to include the writes of other threads.
            Op::Flush if self.committed => Ok(None),
            Op::Flush => Ok(Some((
                Args::Commit {
                    file: handle,
                    offset: 0,
                    count: 0,
                },
                NfsPayload::None,
            ))),
            Op::Unmap => Err(DeviceError::Unsupported),
            Op::Read | Op::Write | Op::WriteZeroes if is_done => Ok(None),
            Op::Read => Ok(Some((
                Args::Read {
                    file: handle,
                    offset,
                    count,
                },
                NfsPayload::None,
            ))),
            Op::Write | Op::WriteZeroes => {
                let stable = self.stable(write_back);
                let len = count as usize;
                let payload = match self.ask.op {
                    Op::Write => NfsPayload::Buf {
                        start: self.done_bytes as usize,
                        len,
                    },
                    _ => NfsPayload::Zeros(len),
                };
                let args = write_args(handle, offset, count, stable);
                Ok(Some((args, payload)))
            }
        }
    }
}
