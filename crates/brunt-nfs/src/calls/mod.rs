//! Many outstanding calls of one connection, without I/O: encodes calls, matches replies by their xid, and resends
//! unanswered calls on the next connection, with the same xid and the same bytes.
//!
//! The owner chooses an index below the depth for each call. The owner starts calls ([`NfsCalls::start`]), sends the
//! output of [`NfsCalls::pull`], asks [`NfsCalls::examine`] what has arrived, reads the results of a reply
//! ([`NfsCalls::results`]), and ends the call ([`NfsCalls::end`]).
//!
//! A call that times out ends the connection: a server that lost a call on a working connection never answers it
//! there (RFC 1813, 4.3 leaves this to the client; the Linux client does the same).
//!
//! The one rule: a reply belongs to a call that was sent on this connection and not answered; any other reply is an
//! [`crate::rpc::NfsViolation`].

mod compounds;
mod files;
mod locks;
mod receive;

use std::collections::VecDeque;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_wire::FileData;
use brunt_wire::cursor::padding;
use brunt_wire::nfs::v3::{Args, Procedure, StableHow};
use brunt_wire::nfs::v4::PROCEDURE_COMPOUND;
use brunt_wire::nfs::{FileHandle, PATH_BYTES_MAX};
use brunt_wire::rpc::{PROGRAM_NFS, Xid};

pub use compounds::NfsLoss;
pub use receive::{NfsCollected, NfsIncoming, NfsReadData, NfsReply};

use self::compounds::Compounds;
use self::files::CallFile;
use self::locks::CallLock;
use crate::record::NfsRecord;
use crate::rpc::{begin_call, finish_record};
use crate::v41::{NfsClient, NfsEncoded, NfsFileAccess, NfsGrant, NfsSlot, access_of, encode_call};

/// Maximum outstanding calls of one connection: xids carry the index in `INDEX_BITS` bits. Equals the maximum queue
/// depth of a load.
pub const DEPTH_MAX: u32 = 4096;
/// Enough for NFSv4.1, which uses up to `2 * DEPTH_MAX + 1` indexes.
const INDEX_BITS: u32 = 14;

/// The configuration of a connection's calls.
#[derive(Clone, Debug)]
pub struct NfsCallsConfig {
    /// Maximum concurrent calls.
    pub depth: u32,
    /// Time limit for one call.
    pub timeout: Duration,
    /// Maximum attempts per call.
    pub tries: u32,
    /// The body of the AUTH_SYS credential.
    pub credentials: Vec<u8>,
    /// Maximum data of one reply.
    pub data_bytes_max: u32,
    /// Where xids start, so that a server's reply cache doesn't mistake a call for one of an earlier process.
    pub first_xid: u32,
    /// With NFSv4.1, the client whose session the connection has; `None` for NFSv3.
    pub client: Option<NfsClient>,
}

/// What to send after a call's [`NfsCalls::head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsOutgoing {
    /// The call.
    pub call: u16,
    /// Data of the caller.
    pub payload: NfsPayload,
    /// Zeros after the data.
    pub padding: usize,
}

/// The data of a WRITE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsPayload {
    /// No data.
    #[default]
    None,
    /// A part of the caller's buffer.
    Buf {
        /// First byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// This many zeros.
    Zeros(usize),
}

/// The arguments of a WRITE of `count` bytes that its [`NfsPayload`] provides.
#[must_use]
pub fn write_args(file: FileHandle<'_>, offset: u64, count: u32, stable: StableHow) -> Args<'_> {
    Args::Write {
        file,
        offset,
        count,
        stable,
        data: FileData {
            at: 0,
            len: count,
            bytes: &[],
        },
    }
}

impl NfsPayload {
    fn len(self) -> usize {
        match self {
            NfsPayload::None => 0,
            NfsPayload::Buf { len, .. } | NfsPayload::Zeros(len) => len,
        }
    }
}

/// Why a call that was sent ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsUnanswered {
    /// Its last attempt timed out.
    TimedOut,
    /// Its last connection was lost.
    Lost,
}

/// Maximum length of a reply beyond [`crate::rpc::REPLY_HEAD_BYTES_MAX`], in bytes.
pub fn reply_data_max(args: &Args<'_>) -> u32 {
    match args {
        Args::Read { count, .. } | Args::Readdir { count, .. } => *count,
        Args::Readdirplus { max_count, .. } => *max_count,
        Args::Readlink { .. } => PATH_BYTES_MAX,
        _ => 0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Idle,
    Waiting,
    Sent,
    /// The server asked to repeat the call, which happens at this time (NFSv4.1).
    Paused(Nanos),
}

#[derive(Debug)]
struct Call {
    state: CallState,
    xid: Xid,
    /// NULL for operations that NFSv3 doesn't have.
    procedure: Procedure,
    /// A lock operation (NFSv4.1).
    lock: Option<CallLock>,
    /// The record, without data and padding.
    head: Vec<u8>,
    payload: NfsPayload,
    /// Data that the reply may carry.
    asked: u32,
    tries: u32,
    sequence: u64,
    deadline: Nanos,
    late: bool,
    /// When to stop repeating the call at the server's request.
    patience_end: Nanos,
    /// Its slot, and where that is in `head` (NFSv4.1).
    slot: Option<NfsSlot>,
    slot_at: usize,
    /// The file of a call with a stateid (NFSv4.1).
    file: Option<CallFile>,
}

impl Call {
    /// The operation's name.
    fn name(&self) -> &'static str {
        match self.lock {
            Some(lock) => lock.op.name(),
            None => self.procedure.name(),
        }
    }
}

/// The calls of one connection; see the module's docs.
#[derive(Debug)]
pub struct NfsCalls {
    config: NfsCallsConfig,
    /// The head of a call with the connection's credential.
    usual_head: Vec<u8>,
    attached: bool,
    calls: Vec<Call>,
    waiting: VecDeque<u16>,
    sequence: u64,
    next_check: Nanos,
    /// The operation that timed out.
    late: Option<&'static str>,
    replays: u64,
    timeouts: u64,
    record: NfsRecord,
    /// With NFSv4.1. `calls` has the owner's calls, one to renew the lease, and as many as the owner's to close files.
    compounds: Option<Compounds>,
}

impl NfsCalls {
    /// Calls without a connection, none of them outstanding.
    ///
    /// # Panics
    /// Panics if the depth is 0 or exceeds [`DEPTH_MAX`].
    pub fn new(config: NfsCallsConfig) -> NfsCalls {
        let depth = config.depth;
        assert!(
            (1..=DEPTH_MAX).contains(&depth),
            "depth {depth} is not in 1 to {DEPTH_MAX}"
        );
        let call = |index| Call {
            state: CallState::Idle,
            xid: Xid(config.first_xid << INDEX_BITS | index),
            procedure: Procedure::Null,
            lock: None,
            head: Vec::new(),
            payload: NfsPayload::None,
            asked: 0,
            tries: 0,
            sequence: 0,
            deadline: Nanos::MAX,
            late: false,
            patience_end: Nanos::MAX,
            slot: None,
            slot_at: 0,
            file: None,
        };
        let compounds = config.client.clone();
        let compounds = compounds.map(|client| Compounds::new(client, depth));
        let numbers = match compounds {
            None => [PROGRAM_NFS, 3, 0],
            Some(_) => [PROGRAM_NFS, 4, PROCEDURE_COMPOUND],
        };
        let mut usual_head = Vec::new();
        begin_call(&mut usual_head, Xid(0), numbers, &config.credentials);
        let count = match compounds {
            None => depth,
            Some(_) => 2 * depth + 1,
        };
        NfsCalls {
            usual_head,
            attached: false,
            calls: (0..count).map(call).collect(),
            waiting: VecDeque::with_capacity(count as usize),
            sequence: 0,
            next_check: Nanos::MAX,
            late: None,
            replays: 0,
            timeouts: 0,
            record: NfsRecord::default(),
            compounds,
            config,
        }
    }

    /// Queues a call. Data of a WRITE is not in `args` but in `payload`.
    ///
    /// # Panics
    /// Panics if the call with this index is outstanding.
    pub fn start(&mut self, index: u16, args: &Args<'_>, payload: NfsPayload, now: Nanos) {
        self.start_as(index, args, payload, None, now);
    }

    /// Like [`NfsCalls::start`], with the body of an AUTH_SYS credential that differs from the connection's.
    ///
    /// # Panics
    /// Panics if the call with this index is outstanding.
    pub fn start_as(
        &mut self,
        index: u16,
        args: &Args<'_>,
        payload: NfsPayload,
        credentials: Option<&[u8]>,
        now: Nanos,
    ) {
        let procedure = args.procedure();
        let mut head = self.begin(index, procedure, credentials, now);
        self.calls[usize::from(index)].asked = reply_data_max(args);
        let (mut slot_at, mut file) = (0, None);
        match &mut self.compounds {
            None => args.encode(&mut head),
            Some(compounds) => {
                compounds.now = now;
                let access = NfsFileAccess::Elsewhere;
                let encoded = encode_call(args, access, &mut compounds.list, &mut head);
                let NfsEncoded { io_at, .. } = encoded;
                slot_at = encoded.slot_at;
                file = io_at.map(|io_at| CallFile {
                    io_at,
                    opens: matches!(procedure, Procedure::Read | Procedure::Write),
                    access: access_of(procedure),
                    owner: compounds.opens.owner_of(credentials),
                    open_len: 0,
                    used: None,
                });
            }
        }
        self.queue(index, head, (slot_at, file), payload);
    }

    /// The beginning of the head of a new call.
    fn begin(
        &mut self,
        index: u16,
        procedure: Procedure,
        credentials: Option<&[u8]>,
        now: Nanos,
    ) -> Vec<u8> {
        self.sequence += 1;
        let call = &mut self.calls[usize::from(index)];
        assert!(
            call.state == CallState::Idle,
            "a call completes before its index is reused"
        );
        call.state = CallState::Waiting;
        call.xid = Xid(call.xid.0.wrapping_add(1 << INDEX_BITS));
        (call.procedure, call.lock, call.asked) = (procedure, None, 0);
        (call.tries, call.sequence, call.late) = (0, self.sequence, false);
        let deadline = now.after(self.config.timeout);
        (call.deadline, call.patience_end) = (deadline, deadline);
        let xid = call.xid;
        let mut head = std::mem::take(&mut call.head);
        self.begin_as(&mut head, xid, procedure, credentials);
        head
    }

    /// Queues a call with this head; the pair is the slot's offset in it and the call's file.
    fn queue(
        &mut self,
        index: u16,
        mut head: Vec<u8>,
        (slot_at, file): (usize, Option<CallFile>),
        payload: NfsPayload,
    ) {
        finish_record(&mut head, payload.len());
        let call = &mut self.calls[usize::from(index)];
        (call.head, call.slot_at, call.file) = (head, slot_at, file);
        call.payload = payload;
        self.next_check = self.next_check.min(call.deadline);
        self.waiting.push_back(index);
    }

    /// The next thing to send: the call's [`NfsCalls::head`], its payload and padding.
    #[inline]
    pub fn pull(&mut self) -> Option<NfsOutgoing> {
        let is_over = self.compounds.as_ref().is_some_and(Compounds::is_over);
        if !self.attached || self.late.is_some() || is_over {
            return None;
        }
        let index = self.waiting.pop_front()?;
        if !self.take_slot(index) {
            self.waiting.push_front(index);
            return None;
        }
        let call = &mut self.calls[usize::from(index)];
        call.state = CallState::Sent;
        call.tries += 1;
        let padding = padding(call.payload.len());
        Some(NfsOutgoing {
            call: index,
            payload: call.payload,
            padding,
        })
    }

    /// The record of a call, without its data.
    #[inline]
    pub fn head(&self, index: u16) -> &[u8] {
        &self.calls[usize::from(index)].head
    }

    /// Ends a call that was answered, or that its owner cancels before it is sent.
    pub fn end(&mut self, index: u16) {
        let call = &mut self.calls[usize::from(index)];
        if call.state == CallState::Waiting {
            self.waiting.retain(|waiting| *waiting != index);
        }
        call.state = CallState::Idle;
        self.abandon_slot(index);
    }

    /// Whether the call is not outstanding on any connection.
    pub fn is_waiting(&self, index: u16) -> bool {
        let state = self.calls[usize::from(index)].state;
        matches!(state, CallState::Waiting | CallState::Paused(_))
    }

    /// Maximum data of one reply.
    pub fn data_bytes_max(&self) -> u32 {
        self.config.data_bytes_max
    }

    /// Number of calls sent again so far.
    pub fn replays(&self) -> u64 {
        self.replays
    }

    /// Number of calls that timed out so far.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    // ---- timeouts and lost connections

    /// When [`NfsCalls::on_time`] must be called next.
    pub fn deadline(&self) -> Nanos {
        match (self.attached, &self.compounds) {
            (false, _) => Nanos::MAX,
            (true, None) => self.next_check,
            (true, Some(compounds)) => {
                let next = compounds.next_resume.min(compounds.renew_at);
                self.next_check.min(next)
            }
        }
    }

    /// Checks for calls that have timed out.
    pub fn on_time(&mut self, now: Nanos) {
        if let Some(compounds) = &mut self.compounds {
            compounds.now = now;
        }
        if now < self.deadline() || !self.attached {
            return;
        }
        self.compounds_on_time(now);
        self.next_check = Nanos::MAX;
        for call in &mut self.calls {
            match call.state {
                CallState::Sent if call.deadline <= now => {
                    call.late = true;
                    self.timeouts += 1;
                    self.late = Some(call.name());
                }
                // The call is waiting for a slot; its time limit begins when it is sent.
                CallState::Waiting if call.deadline <= now => {
                    call.deadline = now.after(self.config.timeout);
                    self.next_check = self.next_check.min(call.deadline);
                }
                CallState::Sent | CallState::Waiting => {
                    self.next_check = self.next_check.min(call.deadline);
                }
                CallState::Idle | CallState::Paused(_) => {}
            }
        }
    }

    /// Continues on a new connection (with NFSv4.1, in this session): unanswered calls are sent again, in the order
    /// in which they were started.
    ///
    /// # Panics
    /// Panics if there is a connection already, or `session` is `None` with NFSv4.1.
    pub fn attach(&mut self, session: Option<&NfsGrant>, now: Nanos) {
        assert!(!self.attached, "calls without a connection get one");
        self.attach_session(session, now);
        (self.attached, self.late, self.record) = (true, None, NfsRecord::default());
        let deadline = now.after(self.config.timeout);
        self.next_check = deadline;
        let calls = &mut self.calls;
        self.waiting
            .make_contiguous()
            .sort_by_key(|index| calls[usize::from(*index)].sequence);
        for index in &self.waiting {
            let call = &mut calls[usize::from(*index)];
            (call.deadline, call.late) = (deadline, false);
        }
    }

    /// Detaches from a lost connection: calls in flight wait for the next one, except those that have used up their
    /// attempts. The latter have ended, and are returned with the reason.
    pub fn detach(&mut self) -> Vec<(u16, NfsUnanswered)> {
        (self.attached, self.next_check) = (false, Nanos::MAX);
        self.keep_files();
        let mut given_up = Vec::new();
        for (index, call) in self.calls.iter_mut().enumerate() {
            if call.state != CallState::Sent {
                continue;
            }
            if call.tries >= self.config.tries {
                call.state = CallState::Idle;
                let why = if call.late {
                    NfsUnanswered::TimedOut
                } else {
                    NfsUnanswered::Lost
                };
                given_up.push((index as u16, why));
            } else {
                call.state = CallState::Waiting;
                self.replays += 1;
                self.waiting.push_back(index as u16);
            }
        }
        for (index, _) in &given_up {
            self.abandon_slot(*index);
        }
        // Calls that renew the lease or close files have no owner.
        given_up.retain(|(index, _)| u32::from(*index) < self.config.depth);
        given_up
    }
}

#[cfg(test)]
mod compound_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod lock_tests;
#[cfg(test)]
mod tests;
