//! Arbitrary calls on the files of an export as requests of one connection, without I/O. Each request is one call,
//! chosen by the caller's plan.
//!
//! Driven like a disk's session ([`crate::disk`]), but any answer other than NFS3_OK ends its request, even
//! NFS3ERR_JUKEBOX. (NFSv4.1's counterparts, NFS4ERR_DELAY and NFS4ERR_GRACE, do not: see [`crate::calls`].) Calls that
//! were not answered before a connection was lost are resent with the same xid, so a server without a reply cache may
//! answer NFS3ERR_EXIST or NFS3ERR_NOENT to a call that it has already executed.
//!
//! The one rule: every request is answered once, and nothing is written outside its buffer.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use brunt_block::remote::{RemoteEvents, RemoteSession};
use brunt_block::{Buf, Completion, DeviceError, Op, RefusalKind, Request};
use brunt_core::Nanos;
use brunt_wire::nfs::v3::{Args, Procedure, ResultBody, Results, StableHow, Status};

use crate::calls::{
    NfsCalls, NfsCallsConfig, NfsLoss, NfsPayload, NfsReadData, NfsReply, NfsUnanswered,
    reply_data_max,
};
use crate::device_errors::NfsRefusal;
use crate::protocol::NfsSession;
use crate::rpc::NfsViolation;
use crate::url::NfsVersion;
use crate::v41::{NfsClient, NfsLock, NfsLockOp, NfsScratch};

/// Maximum entries and attributes that a READDIRPLUS may ask for: a reply has to fit into the receive buffer.
pub const ENTRIES_BYTES_MAX: u32 = 64 << 10;

/// A request, for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsAsk {
    /// [`Op::Read`] for READ, [`Op::Write`] for WRITE, and [`Op::Flush`] for all other calls.
    pub op: Op,
    /// The plan defines its meaning.
    pub offset: u64,
    /// Bytes to read or write; otherwise 0.
    pub len: u32,
}

/// Room for the names in a call.
#[derive(Debug, Default)]
pub struct NfsNames {
    /// The name, or the old name in a RENAME.
    pub name: Vec<u8>,
    /// The new name in a RENAME.
    pub new_name: Vec<u8>,
}

/// The server's answer to a request.
#[derive(Clone, Copy, Debug)]
pub struct NfsAnswer<'a> {
    /// The status.
    pub status: Status,
    /// Bytes transferred by READ or WRITE.
    pub moved: u32,
    /// The data after the status; [`ResultBody::Empty`] for a READ.
    pub body: ResultBody<'a>,
}

/// Decides which call a request is.
pub trait NfsPlan: Debug {
    /// The call of a request, with names in `names`. The data of a WRITE comes from the request's buffer.
    fn call<'a>(&'a self, ask: NfsAsk, names: &'a mut NfsNames) -> Args<'a>;

    /// The lock operation that a request makes instead of a call; only with NFSv4.1.
    fn lock(&self, _ask: NfsAsk) -> Option<NfsLock<'_>> {
        None
    }

    /// The body of the AUTH_SYS credential of a request; `None` for the credential in the URL.
    fn credentials(&self, _ask: NfsAsk) -> Option<&[u8]> {
        None
    }

    /// Called when the server has executed a call. If this returns true, the request succeeds regardless of the
    /// answer; otherwise only if the status is NFS3_OK and all data was moved.
    fn answered(&self, _ask: NfsAsk, _answer: &NfsAnswer<'_>) -> bool {
        false
    }
}

/// The configuration of a session.
#[derive(Clone, Debug)]
pub struct NfsOperationsConfig {
    /// Maximum concurrent calls.
    pub depth: u32,
    /// Time limit for one attempt of a call.
    pub timeout: Duration,
    /// Maximum attempts per call.
    pub tries: u32,
    /// The body of the AUTH_SYS credential.
    pub credentials: Vec<u8>,
    /// Maximum data of one READ.
    pub read_bytes_max: u32,
    /// Where xids start.
    pub first_xid: u32,
    /// With NFSv4.1, the client whose session the connection has; `None` for NFSv3.
    pub client: Option<NfsClient>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationState {
    Free,
    Calling,
    Answered(Result<(), DeviceError>),
}

#[derive(Debug)]
struct Operation {
    state: OperationState,
    tag: u64,
    ask: NfsAsk,
    procedure: Procedure,
    lock: Option<NfsLockOp>,
    /// Bytes that the call asks to move.
    asked: u32,
    stable: StableHow,
    buf: Buf,
}

/// The session; see the module's docs.
#[derive(Debug)]
pub struct NfsOperations<P> {
    plan: P,
    calls: NfsCalls,
    tasks: Vec<Operation>,
    free: Vec<u16>,
    answered: VecDeque<u16>,
    names: NfsNames,
    scratch: NfsScratch,
    version: NfsVersion,
    refusal: Option<NfsRefusal>,
}

impl<P: NfsPlan> NfsOperations<P> {
    /// A session without a connection.
    ///
    /// # Panics
    /// Panics if the depth is 0 or exceeds [`crate::calls::DEPTH_MAX`].
    pub fn new(config: NfsOperationsConfig, plan: P) -> NfsOperations<P> {
        let NfsOperationsConfig {
            depth,
            timeout,
            tries,
            credentials,
            read_bytes_max,
            first_xid,
            client,
        } = config;
        let version = NfsVersion::with_session(client.is_some());
        let task = |_| Operation {
            state: OperationState::Free,
            tag: 0,
            ask: NfsAsk {
                op: Op::Flush,
                offset: 0,
                len: 0,
            },
            procedure: Procedure::Null,
            lock: None,
            asked: 0,
            stable: StableHow::Unstable,
            buf: Buf::empty(),
        };
        NfsOperations {
            plan,
            calls: NfsCalls::new(NfsCallsConfig {
                depth,
                timeout,
                tries,
                credentials,
                data_bytes_max: read_bytes_max.max(ENTRIES_BYTES_MAX),
                first_xid,
                client,
            }),
            tasks: (0..depth).map(task).collect(),
            free: (0..depth as u16).rev().collect(),
            answered: VecDeque::with_capacity(depth as usize),
            names: NfsNames::default(),
            scratch: NfsScratch::default(),
            version,
            refusal: None,
        }
    }

    fn answer(&mut self, index: u16, result: Result<(), DeviceError>) {
        let task = &mut self.tasks[usize::from(index)];
        assert!(
            task.state == OperationState::Calling,
            "only outstanding requests complete, and only once"
        );
        task.state = OperationState::Answered(result);
        self.answered.push_back(index);
    }

    fn refuse(&mut self, index: u16, refusal: NfsRefusal) {
        self.refusal = Some(refusal);
        self.answer(index, Err(refusal.error()));
    }

    /// Answers the request of a call that has moved this many bytes.
    fn moved(&mut self, index: u16, bytes: u32, body: ResultBody<'_>) {
        let Operation {
            asked,
            procedure,
            ask,
            ..
        } = self.tasks[usize::from(index)];
        let answer = NfsAnswer {
            status: Status::OK,
            moved: bytes,
            body,
        };
        match self.plan.answered(ask, &answer) || bytes == asked {
            true => self.answer(index, Ok(())),
            false => self.refuse(index, NfsRefusal::Short(procedure)),
        }
    }

    fn succeeded(&mut self, call: u16, body: ResultBody<'_>) -> Result<(), NfsViolation> {
        let task = &mut self.tasks[usize::from(call)];
        match body {
            ResultBody::Read { data, .. } => {
                // No more than requested: `results` has checked it.
                task.buf[..data.bytes.len()].copy_from_slice(data.bytes);
                self.moved(call, data.len, ResultBody::Empty);
            }
            ResultBody::Write {
                count, committed, ..
            } => {
                if count > task.asked {
                    return Err(NfsViolation::Count {
                        operation: Procedure::Write.name(),
                        answered: count,
                        asked: task.asked,
                    });
                }
                if committed.number() < task.stable.number() {
                    return Err(NfsViolation::Stability);
                }
                self.moved(call, count, body);
            }
            // Other calls transfer no data and requested none.
            _ => self.moved(call, 0, body),
        }
        Ok(())
    }
}

impl<P: NfsPlan> NfsSession for NfsOperations<P> {
    fn calls(&mut self) -> &mut NfsCalls {
        &mut self.calls
    }

    fn place_of(&self, _read: &NfsReadData) -> usize {
        0
    }

    #[inline]
    fn on_read(&mut self, read: &NfsReadData, _now: Nanos) -> Result<(), NfsViolation> {
        self.calls.end(read.call);
        self.moved(read.call, read.len, ResultBody::Empty);
        Ok(())
    }

    #[inline]
    fn on_reply(&mut self, call: u16, record: &[u8], _now: Nanos) -> Result<(), NfsViolation> {
        let procedure = self.tasks[usize::from(call)].procedure;
        // Taken out of `self`, because the results borrow from it while `self` changes.
        let mut scratch = std::mem::take(&mut self.scratch);
        let answered = self.answer_reply(call, record, procedure, &mut scratch);
        self.scratch = scratch;
        answered
    }
}

impl<P: NfsPlan> NfsOperations<P> {
    #[inline]
    fn answer_reply(
        &mut self,
        call: u16,
        record: &[u8],
        procedure: Procedure,
        scratch: &mut NfsScratch,
    ) -> Result<(), NfsViolation> {
        let reply = self.calls.results(call, record, scratch)?;
        self.calls.end(call);
        match reply {
            NfsReply::Results(Results {
                status: Status::OK,
                body,
            }) => return self.succeeded(call, body),
            NfsReply::Results(Results { status, body }) => {
                let (ask, moved) = (self.tasks[usize::from(call)].ask, 0);
                let answer = NfsAnswer {
                    status,
                    moved,
                    body,
                };
                match self.plan.answered(ask, &answer) {
                    true => self.answer(call, Ok(())),
                    false => {
                        let refusal = match self.tasks[usize::from(call)].lock {
                            Some(op) => NfsRefusal::Lock(op, status),
                            None => NfsRefusal::of_status(self.version, procedure, status),
                        };
                        self.refuse(call, refusal);
                    }
                }
            }
            NfsReply::Refused(status) => self.refuse(call, NfsRefusal::Rpc(procedure, status)),
        }
        Ok(())
    }
}

/// How much data a call asks to move, and the data of a WRITE, which is in the request's buffer.
fn moved_by(args: &Args<'_>) -> (u32, StableHow, NfsPayload) {
    match *args {
        Args::Read { count, .. } => (count, StableHow::Unstable, NfsPayload::None),
        Args::Write { count, stable, .. } => {
            let (start, len) = (0, count as usize);
            (count, stable, NfsPayload::Buf { start, len })
        }
        _ => (0, StableHow::Unstable, NfsPayload::None),
    }
}

impl<P: NfsPlan> RemoteSession for NfsOperations<P> {
    type Loss = NfsLoss;

    #[inline]
    fn room(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn outstanding(&self) -> u32 {
        (self.tasks.len() - self.free.len()) as u32
    }

    fn submit(&mut self, request: Request, now: Nanos) -> Result<(), Request> {
        let Some(index) = self.free.pop() else {
            return Err(request);
        };
        let Request {
            tag,
            op,
            offset,
            len,
            buf,
            ..
        } = request;
        let ask = NfsAsk {
            op,
            offset,
            len: len as u32,
        };
        let credentials = self.plan.credentials(ask);
        let (procedure, lock, asked, stable) = match self.plan.lock(ask) {
            Some(lock) => {
                self.calls.start_lock(index, &lock, credentials, now);
                (Procedure::Null, Some(lock.op), 0, StableHow::Unstable)
            }
            None => {
                let args = self.plan.call(ask, &mut self.names);
                let (asked, stable, payload) = moved_by(&args);
                assert!(
                    asked as usize <= buf.len()
                        && reply_data_max(&args) <= self.calls.data_bytes_max(),
                    "a request has room for its plan"
                );
                self.calls.start_as(index, &args, payload, credentials, now);
                (args.procedure(), None, asked, stable)
            }
        };
        let task = &mut self.tasks[usize::from(index)];
        assert!(
            task.state == OperationState::Free,
            "a request takes a free slot"
        );
        *task = Operation {
            state: OperationState::Calling,
            tag,
            ask,
            procedure,
            lock,
            asked,
            stable,
            buf,
        };
        Ok(())
    }

    fn cancel(&mut self, tag: u64) {
        let is_asked = |task: &Operation| task.tag == tag && task.state == OperationState::Calling;
        if let Some(index) = self.tasks.iter().position(is_asked)
            && self.calls.is_waiting(index as u16)
        {
            self.calls.end(index as u16);
            self.answer(
                index as u16,
                Err(DeviceError::refused(RefusalKind::Cancelled)),
            );
        }
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
        let OperationState::Answered(result) = task.state else {
            panic!("only completed requests are retired")
        };
        task.state = OperationState::Free;
        self.free.push(index);
        Completion {
            tag: task.tag,
            buf: std::mem::take(&mut task.buf),
            result,
        }
    }

    fn deadline(&self) -> Nanos {
        match self.answered.is_empty() {
            false => Nanos(0),
            true => self.calls.deadline(),
        }
    }

    fn on_time(&mut self, now: Nanos) {
        self.calls.on_time(now);
    }

    fn lost(&self) -> Option<NfsLoss> {
        self.calls.lost()
    }

    fn detach(&mut self) {
        for (index, why) in self.calls.detach() {
            let error = match why {
                NfsUnanswered::TimedOut => DeviceError::TimedOut,
                NfsUnanswered::Lost => DeviceError::Gone,
            };
            self.answer(index, Err(error));
        }
    }

    fn fail_all(&mut self, error: DeviceError) {
        for index in 0..self.tasks.len() as u16 {
            if self.tasks[usize::from(index)].state == OperationState::Calling {
                self.calls.end(index);
                self.answer(index, Err(error));
            }
        }
    }

    fn events(&self) -> RemoteEvents {
        RemoteEvents {
            replays: self.calls.replays() + self.calls.delays(),
            timeouts: self.calls.timeouts(),
            // Failed requests are counted by cause; this is the text of the last one.
            words: self.refusal.map(|refusal| refusal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
