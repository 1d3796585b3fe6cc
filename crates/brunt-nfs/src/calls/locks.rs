//! Lock operations (NFSv4.1). If the file isn't open, a LOCK first opens it in a separate compound, because servers
//! don't accept the current stateid as the open's stateid in LOCK (Linux returns NFS4ERR_BAD_STATEID). An owner's
//! first lock on a file uses the stateid of the open; the server returns a stateid for the owner's locks on that
//! file, which later operations use.
//!
//! The rule: as for other files, a stateid is chosen when the call gets a slot.

use brunt_core::Nanos;
use brunt_wire::nfs::v3::Procedure;
use brunt_wire::nfs::v4::{ANONYMOUS, Status};

use super::files::{CallFile, handle_of};
use super::{NfsCalls, NfsPayload};
use crate::rpc::finish_record;
use crate::v41::{
    NfsClosing, NfsFileUse, NfsLock, NfsLockOp, NfsRange, begin_lock, encode_lock, encode_open,
    encode_test, encode_unlock, is_state_lost, locked, opened,
};

/// The lock of a call; its file is a [`CallFile`].
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLock {
    pub(super) op: NfsLockOp,
    range: NfsRange,
    owner: u32,
}

impl NfsCalls {
    /// Queues a lock operation, like [`NfsCalls::start_as`].
    ///
    /// # Panics
    /// With NFSv3, or if the call with this index is outstanding.
    pub fn start_lock(
        &mut self,
        index: u16,
        lock: &NfsLock<'_>,
        credentials: Option<&[u8]>,
        now: Nanos,
    ) {
        let mut head = self.begin(index, Procedure::Null, credentials, now);
        let compounds = self.compounds();
        compounds.now = now;
        let slot_at = begin_lock(lock, &mut head);
        let file = CallFile {
            io_at: head.len(),
            opens: lock.op == NfsLockOp::Lock,
            access: lock.range.access(),
            owner: compounds.opens.owner_of(credentials),
            open_len: 0,
            used: None,
        };
        self.calls[usize::from(index)].lock = Some(CallLock {
            op: lock.op,
            range: lock.range,
            owner: lock.owner,
        });
        self.queue(index, head, (slot_at, Some(file)), NfsPayload::None);
    }

    /// Writes the operation of a call that got a slot. An unlock by an owner without locks on the file is sent
    /// anyway, and the server rejects it.
    pub(super) fn use_lock(&mut self, index: u16, lock: CallLock) {
        let CallLock { op, range, owner } = lock;
        let call = &mut self.calls[usize::from(index)];
        let (Some(file), Some(compounds)) = (&mut call.file, &mut self.compounds) else {
            return;
        };
        call.head.truncate(file.io_at);
        let handle = handle_of(&call.head, call.slot_at);
        let (opens, out) = (&mut compounds.opens, &mut compounds.open);
        let mut closing = None;
        out.clear();
        match op {
            NfsLockOp::Lock => {
                let NfsFileUse {
                    place,
                    stateid,
                    evicted,
                } = opens.enter(file.owner, handle, file.access);
                (file.used, closing) = (Some((place, stateid)), evicted);
                match stateid {
                    None => encode_open(file.owner, file.access, false, out),
                    Some(open) => {
                        let held = opens.held(place, owner);
                        encode_lock(range, owner, (&open, held.as_ref()), false, out);
                    }
                }
            }
            NfsLockOp::Test => encode_test(range, owner, out),
            NfsLockOp::Unlock => {
                let found = opens.enter_open(file.owner, handle, 0);
                file.used = found.map(|(place, stateid)| (place, Some(stateid)));
                let held = found.and_then(|(place, _)| opens.held(place, owner));
                encode_unlock(range, &held.unwrap_or(*ANONYMOUS), out);
            }
        }
        call.head.append(out);
        finish_record(&mut call.head, 0);
        if let Some((handle, stateid)) = closing {
            self.end_file(NfsClosing::Close, &handle, &stateid);
        }
    }

    /// Records what a reply says about locks. Returns true if the call has to be repeated, because it has only opened
    /// its file so far or the server has forgotten the open.
    pub(super) fn settle_lock(
        &mut self,
        index: u16,
        lock: CallLock,
        status: Status,
        body: &[u8],
    ) -> bool {
        let file = self.calls[usize::from(index)].file;
        let Some((place, stateid)) = file.and_then(|file| file.used) else {
            return false;
        };
        let Some(open) = stateid else {
            let found = opened(body);
            if let Some(found) = found {
                self.on_opened(index, found);
                // Only a LOCK counts as an attempt, not the OPEN before it.
                self.calls[usize::from(index)].tries -= 1;
            }
            return found.is_some();
        };
        let opens = &mut self.compounds().opens;
        let locks = lock.op == NfsLockOp::Lock;
        match locked(body) {
            Some(stateid) => opens.changed(place, (lock.owner, stateid), lock.range, locks),
            None if is_state_lost(status) && locks => {
                opens.forget(place, &open);
                return true;
            }
            None if is_state_lost(status) => opens.unlocked(place, lock.owner),
            None => {}
        }
        false
    }
}
