//! How a client releases its state on a server, without I/O: it releases its locks, closes its files, then destroys
//! its session (DESTROY_SESSION; RFC 8881, 18.37) and finally its id (DESTROY_CLIENTID; 18.50), which a server
//! refuses while the client has a session or open files.
//!
//! The one rule: a call is sent only after the calls that it must not overtake have been answered, because a server
//! executes calls on different slots, and calls without a slot, in any order.

use brunt_wire::nfs::DATA_BYTES_MAX;
use brunt_wire::nfs::v4::{Args, CompoundArgs, PROCEDURE_COMPOUND, Stateid};
use brunt_wire::rpc::{PROGRAM_NFS, Xid};

use super::call::begin_compound;
use super::client::NfsGrant;
use super::opens::{NfsClosing, NfsOpenFile};
use super::session::{NfsSlot, put_slot};
use crate::record::NfsRecord;
use crate::rpc::{REPLY_HEAD_BYTES_MAX, begin_call, finish_record};

/// What is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Calls that were begun before.
    Begun,
    Unlock,
    Close,
    Session,
    Client,
    Done,
}

/// The last calls of a client.
///
/// Its driver sends the records of [`NfsFarewell::next_calls`], passes what it receives to [`NfsFarewell::receive`]
/// while [`NfsFarewell::is_waiting`], and repeats this until there are no more records. If answers don't arrive, it
/// continues without them: the server then frees everything when the lease expires.
#[derive(Debug)]
pub struct NfsFarewell {
    grant: NfsGrant,
    /// The xid of the last call.
    xid: Xid,
    credentials: Vec<u8>,
    stage: Stage,
    /// Records of calls that wait to be sent.
    begun: Vec<Vec<u8>>,
    /// Handles and stateids of locks and of files.
    locks: Vec<(Vec<u8>, Stateid)>,
    files: Vec<(Vec<u8>, Stateid)>,
    slots: Vec<NfsSlot>,
    /// Calls that were sent and not answered.
    awaited: Vec<Xid>,
    record: NfsRecord,
}

impl NfsFarewell {
    /// The farewell of a client without open files. Its calls have xids after this one.
    pub(crate) fn new(grant: NfsGrant, xid: Xid, credentials: &[u8]) -> NfsFarewell {
        NfsFarewell {
            grant,
            xid,
            credentials: credentials.to_vec(),
            stage: Stage::Begun,
            begun: Vec::new(),
            locks: Vec::new(),
            files: Vec::new(),
            slots: Vec::new(),
            awaited: Vec::new(),
            record: NfsRecord::default(),
        }
    }

    /// Adds files to be closed before the session ends, after releasing their locks; `slots` are slots without calls,
    /// to use for that.
    pub(crate) fn with_files(self, files: Vec<NfsOpenFile>, slots: Vec<NfsSlot>) -> NfsFarewell {
        let (mut locks, mut stateids) = (Vec::new(), Vec::new());
        for file in files {
            let held = file.locks.iter().filter(|held| !held.ranges.is_empty());
            locks.extend(held.map(|held| (file.handle.clone(), held.stateid)));
            stateids.push((file.handle, file.stateid));
        }
        NfsFarewell {
            locks,
            files: stateids,
            slots,
            ..self
        }
    }

    /// Adds records to send first, and the xids of calls whose answers to wait for.
    pub(crate) fn with_calls(self, begun: Vec<Vec<u8>>, awaited: Vec<Xid>) -> NfsFarewell {
        NfsFarewell {
            begun,
            awaited,
            ..self
        }
    }

    /// The records to send; `None` if that was all.
    pub fn next_calls(&mut self) -> Option<Vec<Vec<u8>>> {
        if self.stage == Stage::Begun {
            self.stage = Stage::Unlock;
            if self.is_waiting() {
                return Some(std::mem::take(&mut self.begun));
            }
        }
        self.awaited.clear();
        if self.stage == Stage::Unlock && self.is_done(&self.locks) {
            self.stage = Stage::Close;
        }
        if self.stage == Stage::Close && self.is_done(&self.files) {
            self.stage = Stage::Session;
        }
        let (session, client) = (self.grant.session, self.grant.client);
        match self.stage {
            Stage::Begun | Stage::Unlock => Some(self.ends(NfsClosing::Unlock)),
            Stage::Close => Some(self.ends(NfsClosing::Close)),
            Stage::Session => {
                self.stage = Stage::Client;
                let session = &session;
                Some(vec![self.alone(&Args::DestroySession { session })])
            }
            Stage::Client => {
                self.stage = Stage::Done;
                Some(vec![self.alone(&Args::DestroyClientid { client })])
            }
            Stage::Done => None,
        }
    }

    /// Whether answers are missing.
    pub fn is_waiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Handles received bytes. Returns how many were consumed, excluding an incomplete record mark; `None` if they
    /// are not records.
    pub fn receive(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut at, limit) = (0, DATA_BYTES_MAX + REPLY_HEAD_BYTES_MAX);
        loop {
            at += self.record.feed(&bytes[at..], limit).ok()?;
            if !self.record.is_complete() {
                return Some(at);
            }
            let record = self.record.take();
            let xid = Xid(u32::from_be_bytes(*record.first_chunk()?));
            self.awaited.retain(|awaited| *awaited != xid);
        }
    }

    /// Whether a stage has nothing to do, or cannot do it.
    fn is_done(&self, left: &[(Vec<u8>, Stateid)]) -> bool {
        left.is_empty() || self.slots.is_empty()
    }

    /// One compound per slot, as long as there are locks to release or files to close.
    fn ends(&mut self, how: NfsClosing) -> Vec<Vec<u8>> {
        // SEQUENCE, then two operations per lock or file.
        let count = (self.grant.operations.saturating_sub(1) / 2).max(1) as usize;
        let mut records = Vec::new();
        let mut slots = std::mem::take(&mut self.slots);
        for slot in &mut slots {
            let left = match how {
                NfsClosing::Unlock => &mut self.locks,
                _ => &mut self.files,
            };
            let taken = left.split_off(left.len().saturating_sub(count));
            if taken.is_empty() {
                break;
            }
            records.push(self.call(|body| {
                let count = 1 + 2 * taken.len() as u32;
                let slot_at = begin_compound(count, false, body);
                put_slot(body, slot_at, slot);
                for (handle, stateid) in &taken {
                    how.encode(handle, stateid, body);
                }
            }));
            // The next call on this slot gets the next number.
            slot.sequence = slot.sequence.wrapping_add(1);
        }
        self.slots = slots;
        records
    }

    /// A call without a slot, which can have one operation.
    fn alone(&mut self, args: &Args<'_>) -> Vec<u8> {
        self.call(|body| {
            CompoundArgs::begin(body, 1, 1);
            args.encode(body);
        })
    }

    fn call(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.xid = Xid(self.xid.0.wrapping_add(1));
        self.awaited.push(self.xid);
        let mut record = Vec::new();
        let numbers = [PROGRAM_NFS, 4, PROCEDURE_COMPOUND];
        begin_call(&mut record, self.xid, numbers, &self.credentials);
        encode(&mut record);
        finish_record(&mut record, 0);
        record
    }
}
