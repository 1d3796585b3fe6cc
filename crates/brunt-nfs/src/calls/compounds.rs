//! The NFSv4.1 part of a connection's calls: each call is a compound on a slot of the session, and the server may ask
//! the client to repeat it later.
//!
//! A call keeps its slot until it is answered, across connections, so that the server recognizes it. When its session
//! has ended, the call gets a slot in the next session, so a server that has already executed it executes it twice.
//!
//! The rule: nothing here affects NFSv3.

use std::time::Duration;

use brunt_core::Nanos;
use brunt_wire::nfs::v3::Procedure;
use brunt_wire::nfs::v4::{AttributeList, PROCEDURE_COMPOUND, Status};
use brunt_wire::rpc::{PROGRAM_NFS, ReplyStatus, Xid};

use super::{CallState, INDEX_BITS, NfsCalls};
use crate::rpc::{NfsViolation, bad_results, begin_call, begin_call_like, parse_reply, set_xid};
use crate::v41::{
    NfsClient, NfsGrant, NfsOpened, NfsOpens, NfsSlots, OPENS_MAX, Sequenced, asks_to_wait,
    encode_renewal, put_slot, sequenced,
};

/// Delay before a call is repeated after NFS4ERR_DELAY or NFS4ERR_GRACE.
const DELAY_PAUSE: Duration = Duration::from_millis(200);

/// Why a working connection has to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsLoss {
    /// A call was not answered in time.
    Late(&'static str),
    /// The server no longer has the session, or disagrees with the client about its state.
    Session(Status),
    /// A call was abandoned, and it is unknown whether the server has executed it, so its slot cannot be reused.
    Slot,
}

impl std::fmt::Display for NfsLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NfsLoss::Late(operation) => {
                write!(f, "{operation}: the server did not reply in time")
            }
            NfsLoss::Session(status) => {
                let name = status.name().unwrap_or("an unknown status");
                write!(
                    f,
                    "SEQUENCE: the server returned {name} ({}); a new session is needed",
                    status.0
                )
            }
            NfsLoss::Slot => f.write_str("a call was abandoned, which requires a new session"),
        }
    }
}

/// The state of a connection's compounds.
#[derive(Debug)]
pub(super) struct Compounds {
    /// The slots of the session; none before the first connection.
    pub(super) slots: Option<NfsSlots>,
    /// The files that the session has open.
    pub(super) opens: NfsOpens,
    pub(super) list: AttributeList,
    /// Buffer for an encoded OPEN.
    pub(super) open: Vec<u8>,
    renew_every: Duration,
    pub(super) renew_at: Nanos,
    pub(super) next_resume: Nanos,
    /// The latest time that the owner passed in.
    pub(super) now: Nanos,
    /// Why the session can no longer be used.
    over: Option<NfsLoss>,
    /// The client, shared with the thread that connects.
    pub(super) client: NfsClient,
    delays: u64,
}

impl Compounds {
    pub(super) fn new(client: NfsClient, depth: u32) -> Compounds {
        Compounds {
            slots: None,
            opens: NfsOpens::new(OPENS_MAX + depth as usize),
            list: AttributeList::default(),
            open: Vec::new(),
            renew_every: Duration::MAX,
            renew_at: Nanos::MAX,
            next_resume: Nanos::MAX,
            now: Nanos(0),
            over: None,
            client,
            delays: 0,
        }
    }

    fn end_session(&mut self, why: NfsLoss) {
        self.client.end_session();
        self.over.get_or_insert(why);
    }

    /// Whether the session has ended, so that its slots can't be used any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }
}

impl NfsCalls {
    /// Begins a call with this credential in `out`.
    pub(super) fn begin_as(
        &self,
        out: &mut Vec<u8>,
        xid: Xid,
        procedure: Procedure,
        credentials: Option<&[u8]>,
    ) {
        let (version, number) = match self.compounds {
            None => (3, procedure as u32),
            Some(_) => (4, PROCEDURE_COMPOUND),
        };
        match credentials {
            None => begin_call_like(out, &self.usual_head, xid, number),
            Some(credentials) => begin_call(out, xid, [PROGRAM_NFS, version, number], credentials),
        }
    }

    /// Gives the call a slot, if it needs one; `false` if none is free.
    #[inline]
    pub(super) fn take_slot(&mut self, index: u16) -> bool {
        let Some(compounds) = &mut self.compounds else {
            return true;
        };
        let call = &mut self.calls[usize::from(index)];
        if call.slot.is_some() {
            return true;
        }
        call.slot = compounds.slots.as_mut().and_then(NfsSlots::take);
        let Some(slot) = &call.slot else {
            return false;
        };
        put_slot(&mut call.head, call.slot_at, slot);
        // The call may have waited for the slot: its time limit begins now.
        let deadline = compounds.now.after(self.config.timeout);
        call.deadline = call.deadline.max(deadline);
        self.next_check = self.next_check.min(call.deadline);
        self.use_file(index);
        true
    }

    /// Why the connection has to be dropped.
    pub fn lost(&self) -> Option<NfsLoss> {
        let over = self.compounds.as_ref().and_then(|compounds| compounds.over);
        self.late.map(NfsLoss::Late).or(over)
    }

    /// Number of times that the server asked to repeat a call later.
    pub fn delays(&self) -> u64 {
        self.compounds
            .as_ref()
            .map_or(0, |compounds| compounds.delays)
    }

    /// Looks at a complete reply before its results are read. Returns true if the call is not answered yet or isn't
    /// one of the owner's.
    ///
    /// # Errors
    /// The reply violates a protocol.
    pub fn settle(&mut self, index: u16, record: &[u8], now: Nanos) -> Result<bool, NfsViolation> {
        if self.compounds.is_none() {
            return Ok(false);
        }
        let call = &self.calls[usize::from(index)];
        let operation = call.name();
        let slot = call.slot.expect("a call is sent on a slot");
        let header = parse_reply(record, operation)?;
        let verdict = match header.status {
            ReplyStatus::Success => sequenced(&record[header.body_at..], &slot)
                .map_err(|error| bad_results(operation, error))?,
            // RPC didn't pass the call on to the program.
            _ => Sequenced::Refused(Status::OK),
        };
        match verdict {
            Sequenced::Executed(status, target) => {
                let body = &record[header.body_at..];
                let is_reopened = self.settle_file(index, status, body);
                self.free_slot(index, true, now);
                self.slots().set_target(target);
                if is_reopened {
                    return Ok(self.try_again(index, now));
                }
                Ok(asks_to_wait(status) && self.pause(index, now) || self.is_own(index))
            }
            Sequenced::Uncached => {
                self.free_slot(index, true, now);
                Ok(self.is_own(index) || self.try_again(index, now))
            }
            Sequenced::Later(_) => {
                self.free_slot(index, false, now);
                Ok(self.pause(index, now) || self.is_own(index))
            }
            Sequenced::Over(status) => {
                self.compounds().end_session(NfsLoss::Session(status));
                Ok(true)
            }
            Sequenced::Refused(_) => {
                self.free_slot(index, false, now);
                Ok(self.is_own(index))
            }
        }
    }

    /// Handles the answer to a READ whose data was placed as it arrived. `opened` is the result of its OPEN, if it
    /// had one.
    pub fn settle_data(&mut self, index: u16, opened: Option<NfsOpened>, now: Nanos) {
        if self.compounds.is_some() {
            if let Some(opened) = opened {
                self.on_opened(index, opened);
            }
            self.free_slot(index, true, now);
        }
    }

    pub(super) fn compounds(&mut self) -> &mut Compounds {
        self.compounds.as_mut().expect("NFSv4.1")
    }

    fn slots(&mut self) -> &mut NfsSlots {
        let slots = self.compounds().slots.as_mut();
        slots.expect("a connection has a session")
    }

    fn free_slot(&mut self, index: u16, executed: bool, now: Nanos) {
        self.leave_file(index);
        let slot = self.calls[usize::from(index)].slot.take();
        self.slots()
            .give_back(slot.expect("a call is sent on a slot"), executed);
        let compounds = self.compounds();
        if executed {
            compounds.renew_at = now.after(compounds.renew_every);
        }
    }

    /// Whether the call is one that renews the lease or closes a file, not one of the owner's; if so, ends it.
    fn is_own(&mut self, index: u16) -> bool {
        let is_own = u32::from(index) >= self.config.depth;
        if is_own {
            self.calls[usize::from(index)].state = CallState::Idle;
        }
        is_own
    }

    /// Repeats the call immediately; `false` if it has used up its attempts.
    fn try_again(&mut self, index: u16, now: Nanos) -> bool {
        let may = self.calls[usize::from(index)].tries < self.config.tries;
        if may {
            self.make_again(index, now);
        }
        may
    }

    /// Repeats the call after a pause; `false` if its time limit has passed.
    fn pause(&mut self, index: u16, now: Nanos) -> bool {
        let until = now.after(DELAY_PAUSE);
        let call = &mut self.calls[usize::from(index)];
        if until >= call.patience_end || u32::from(index) >= self.config.depth {
            return false;
        }
        (call.state, call.tries) = (CallState::Paused(until), 0);
        let compounds = self.compounds();
        compounds.delays += 1;
        compounds.next_resume = compounds.next_resume.min(until);
        true
    }

    /// Queues the call once more, as a new message.
    fn make_again(&mut self, index: u16, now: Nanos) {
        let deadline = now.after(self.config.timeout);
        let call = &mut self.calls[usize::from(index)];
        call.xid = Xid(call.xid.0.wrapping_add(1 << INDEX_BITS));
        set_xid(&mut call.head, call.xid);
        (call.state, call.deadline) = (CallState::Waiting, deadline);
        self.next_check = self.next_check.min(deadline);
        self.waiting.push_back(index);
    }

    /// Resumes calls after their pauses, and renews the lease of an idle client.
    pub(super) fn compounds_on_time(&mut self, now: Nanos) {
        let Some(compounds) = &mut self.compounds else {
            return;
        };
        if compounds.next_resume <= now {
            compounds.next_resume = Nanos::MAX;
            for index in 0..self.calls.len() {
                match self.calls[index].state {
                    CallState::Paused(until) if until <= now => self.make_again(index as u16, now),
                    CallState::Paused(until) => {
                        let next = &mut self.compounds().next_resume;
                        *next = until.min(*next);
                    }
                    _ => {}
                }
            }
        }
        let compounds = self.compounds();
        if compounds.renew_at <= now {
            compounds.renew_at = now.after(compounds.renew_every);
            self.renew();
        }
    }

    fn renew(&mut self) {
        let index = self.config.depth as usize;
        if self.calls[index].state == CallState::Idle {
            self.start_own(index, encode_renewal);
        }
    }

    /// Continues in the session of a new connection.
    pub(super) fn attach_session(&mut self, grant: Option<&NfsGrant>, now: Nanos) {
        let Some(compounds) = &mut self.compounds else {
            return;
        };
        let grant = grant.expect("a connection has a session");
        if compounds.slots.as_ref().map(NfsSlots::session) != Some(grant.session) {
            compounds.slots = Some(NfsSlots::new(grant.session, grant.slots));
            compounds.over = None;
            self.calls.iter_mut().for_each(|call| call.slot = None);
            self.reopen_files();
        }
        let compounds = self.compounds();
        compounds.renew_every = grant.lease / 3;
        compounds.renew_at = now.after(compounds.renew_every);
    }

    /// Ends the session if the call has a slot: the call ended without an answer or was abandoned, so the server may
    /// or may not have executed it.
    pub(super) fn abandon_slot(&mut self, index: u16) {
        if self.calls[usize::from(index)].slot.take().is_some() {
            self.compounds().end_session(NfsLoss::Slot);
        }
    }
}
