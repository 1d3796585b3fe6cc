//! Block requests on one file as calls of one connection, without I/O.
//!
//! Its driver (`protocol`) moves bytes: it passes in requests, sends the output of [`NfsDisk::pull`], asks
//! [`crate::calls::NfsCalls::examine`] what has arrived, and reports replies with [`NfsDisk::on_reply`] and
//! [`NfsDisk::on_read`]. The session outlives its connection.
//!
//! Requests above the server's limits are split, one call after the other. With `write_back`, writes are UNSTABLE and
//! a flush is a COMMIT of the whole file; otherwise, and with FUA, they are FILE_SYNC. All calls of a disk are
//! idempotent, so sending them again after a loss is safe.
//!
//! The one rule: nothing is written outside a task's buffer, and every request is answered once.

mod receive;
mod stability;
mod task;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::remote::{RemoteEvents, RemoteSession};
use brunt_block::{Buf, Completion, DeviceError, Op, RefusalKind, Request};
use brunt_core::Nanos;

pub use stability::NfsStability;

use self::task::{CallerRequest, NfsTask, TaskState};
use crate::calls::{NfsCalls, NfsCallsConfig, NfsLoss, NfsOutgoing, NfsUnanswered};
use crate::device_errors::NfsRefusal;
use crate::url::NfsVersion;
use crate::v41::{NfsClient, NfsGrant, NfsScratch};

/// Delay before a call is repeated after NFS3ERR_JUKEBOX.
const JUKEBOX_PAUSE: Duration = Duration::from_millis(200);

/// The file, and what its server can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsFile {
    /// The file's handle.
    pub handle: Vec<u8>,
    /// Maximum data of one READ (`rtmax`).
    pub read_bytes_max: u32,
    /// Maximum data of one WRITE (`wtmax`).
    pub write_bytes_max: u32,
}

/// The configuration of a session.
#[derive(Clone, Debug)]
pub struct NfsDiskConfig {
    /// Maximum concurrent tasks.
    pub depth: u32,
    /// Time limit for one call, and for a server that asks to wait.
    pub timeout: Duration,
    /// Maximum attempts per call.
    pub tries: u32,
    /// Whether completed writes are stable only after a flush.
    pub write_back: bool,
    /// The body of the AUTH_SYS credential.
    pub credentials: Vec<u8>,
    /// Where xids start.
    pub first_xid: u32,
    /// With NFSv4.1, the client whose session the connection has; `None` for NFSv3.
    pub client: Option<NfsClient>,
}

/// A disk's session, which outlives its connections; see the module's docs.
#[derive(Debug)]
pub struct NfsDisk {
    config: NfsDiskConfig,
    file: NfsFile,
    calls: NfsCalls,
    stability: Arc<NfsStability>,
    tasks: Vec<NfsTask>,
    free: Vec<u16>,
    answered: VecDeque<u16>,
    next_resume: Nanos,
    /// Number of write losses that this session has reported.
    losses_seen: u64,
    waits: u64,
    scratch: NfsScratch,
    version: NfsVersion,
    refusal: Option<NfsRefusal>,
}

impl NfsDisk {
    /// A session for a file, without a connection.
    ///
    /// # Panics
    /// Panics if the depth is 0 or exceeds [`crate::calls::DEPTH_MAX`], or the server's limits are 0.
    pub fn new(config: NfsDiskConfig, file: NfsFile, stability: Arc<NfsStability>) -> NfsDisk {
        assert!(
            file.read_bytes_max > 0 && file.write_bytes_max > 0,
            "rtmax and wtmax are not 0"
        );
        let calls = NfsCalls::new(NfsCallsConfig {
            depth: config.depth,
            timeout: config.timeout,
            tries: config.tries,
            credentials: config.credentials.clone(),
            data_bytes_max: file.read_bytes_max,
            first_xid: config.first_xid,
            client: config.client.clone(),
        });
        let depth = config.depth as u16;
        NfsDisk {
            file,
            calls,
            losses_seen: stability.losses(),
            stability,
            tasks: (0..depth).map(|_| NfsTask::new()).collect(),
            free: (0..depth).rev().collect(),
            answered: VecDeque::with_capacity(depth.into()),
            next_resume: Nanos::MAX,
            waits: 0,
            scratch: NfsScratch::default(),
            version: NfsVersion::with_session(config.client.is_some()),
            refusal: None,
            config,
        }
    }

    /// The connection's calls, to examine and collect received bytes.
    pub fn calls(&mut self) -> &mut NfsCalls {
        &mut self.calls
    }

    /// The next thing to send. The call's index is that of its task.
    #[inline]
    pub fn pull(&mut self) -> Option<NfsOutgoing> {
        self.calls.pull()
    }

    /// Continues on a new connection.
    pub fn attach(&mut self, session: Option<&NfsGrant>, now: Nanos) {
        self.calls.attach(session, now);
    }

    /// Starts the next call of a request, or ends the request.
    fn plan(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        match task.plan(&self.file, self.config.write_back) {
            Ok(Some((args, payload))) => {
                task.state = TaskState::Calling;
                if task.ask.op == Op::Flush {
                    task.mark = self.stability.before_commit();
                }
                self.calls.start(index, &args, payload, now);
            }
            Ok(None) if task.ask.op == Op::Flush => {
                let losses = self.stability.losses();
                let lost = losses != self.losses_seen;
                self.losses_seen = losses;
                if lost {
                    self.refusal = Some(NfsRefusal::LostWrites);
                }
                self.answer(
                    index,
                    if lost {
                        Err(NfsRefusal::LostWrites.error())
                    } else {
                        Ok(())
                    },
                );
            }
            Ok(None) => self.answer(index, Ok(())),
            Err(error) => self.answer(index, Err(error)),
        }
    }

    fn answer(&mut self, index: u16, result: Result<(), DeviceError>) {
        let task = &mut self.tasks[usize::from(index)];
        assert!(
            matches!(task.state, TaskState::Calling | TaskState::Pausing(_)),
            "only outstanding tasks complete, and only once"
        );
        task.state = TaskState::Answered(result);
        self.answered.push_back(index);
    }
}

impl RemoteSession for NfsDisk {
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
            force_unit_access,
        } = request;
        let moves_data = matches!(op, Op::Read | Op::Write);
        assert!(
            !moves_data || len <= buf.len() as u64,
            "the device has checked the buffer"
        );
        let task = &mut self.tasks[usize::from(index)];
        assert!(task.state == TaskState::Free, "a request takes a free slot");
        *task = NfsTask {
            state: TaskState::Calling,
            tag,
            ask: CallerRequest {
                op,
                offset,
                len,
                force_unit_access,
            },
            buf,
            patience_end: now.after(self.config.timeout),
            ..NfsTask::new()
        };
        self.plan(index, now);
        Ok(())
    }

    fn cancel(&mut self, tag: u64) {
        let is_asked = |task: &NfsTask| task.tag == tag;
        for index in 0..self.tasks.len() as u16 {
            let task = &self.tasks[usize::from(index)];
            let possible = match task.state {
                TaskState::Calling => self.calls.is_waiting(index),
                TaskState::Pausing(_) => true,
                TaskState::Free | TaskState::Answered(_) => false,
            };
            if possible && is_asked(task) {
                self.calls.end(index);
                return self.answer(index, Err(DeviceError::refused(RefusalKind::Cancelled)));
            }
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
        match self.answered.is_empty() {
            false => Nanos(0),
            true => self.calls.deadline().min(self.next_resume),
        }
    }

    fn on_time(&mut self, now: Nanos) {
        self.calls.on_time(now);
        if now < self.next_resume {
            return;
        }
        self.next_resume = Nanos::MAX;
        for index in 0..self.tasks.len() as u16 {
            match self.tasks[usize::from(index)].state {
                TaskState::Pausing(until) if until <= now => self.plan(index, now),
                TaskState::Pausing(until) => self.next_resume = self.next_resume.min(until),
                _ => {}
            }
        }
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
        self.next_resume = Nanos::MAX;
        for index in 0..self.tasks.len() as u16 {
            if matches!(
                self.tasks[usize::from(index)].state,
                TaskState::Calling | TaskState::Pausing(_)
            ) {
                self.calls.end(index);
                self.answer(index, Err(error));
            }
        }
    }

    fn events(&self) -> RemoteEvents {
        RemoteEvents {
            replays: self.calls.replays() + self.calls.delays() + self.waits,
            timeouts: self.calls.timeouts(),
            words: self.refusal.map(|refusal| refusal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
