//! The files of calls with a stateid (NFSv4.1): a READ or WRITE whose file isn't open opens it in the same compound, a
//! SETATTR of the length uses an open if there is one, and calls without an owner close files.
//!
//! The rule: a call's stateid is chosen when it gets a slot, because the bytes resent on that slot must be the same.

use brunt_wire::Cursor;
use brunt_wire::nfs::v3::Procedure;
use brunt_wire::nfs::v4::{ANONYMOUS, AttributeList, CURRENT_STATEID, Stateid, Status};
use brunt_wire::rpc::Xid;

use super::{CallState, INDEX_BITS, NfsCalls};
use crate::rpc::finish_record;
use crate::v41::{
    NfsClosing, NfsFarewell, NfsFileUse, NfsGrant, NfsOpened, NfsSlots, encode_closing,
    encode_open, is_state_lost, opened,
};

/// The file of a READ or WRITE, of a SETATTR of the length, or of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallFile {
    /// Offset of the operation in the call's head, without an OPEN before it.
    pub(super) io_at: usize,
    /// Whether the call opens a file that isn't open.
    pub(super) opens: bool,
    /// The access with which the file has to be open.
    pub(super) access: u32,
    /// The owner of the open.
    pub(super) owner: u32,
    /// Length of the OPEN before the operation; 0 without one.
    pub(super) open_len: usize,
    /// While the call has a slot: the file's place among the open files, and its stateid unless the call opens the
    /// file. `None` if the call uses no open.
    pub(super) used: Option<(u32, Option<Stateid>)>,
}

impl NfsCalls {
    /// Gives a call that got a slot the stateid of its file, or an OPEN. A call that doesn't open files gets the
    /// anonymous stateid if its file isn't open.
    pub(super) fn use_file(&mut self, index: u16) {
        let call = &mut self.calls[usize::from(index)];
        if let Some(lock) = call.lock {
            return self.use_lock(index, lock);
        }
        let (Some(file), Some(compounds)) = (&mut call.file, &mut self.compounds) else {
            return;
        };
        call.head.drain(file.io_at..file.io_at + file.open_len);
        let handle = handle_of(&call.head, call.slot_at);
        if !file.opens {
            let found = compounds.opens.enter_open(file.owner, handle, file.access);
            file.used = found.map(|(place, stateid)| (place, Some(stateid)));
            let stateid = found.map_or(*ANONYMOUS, |(_, stateid)| stateid);
            // The stateid follows the operation's number.
            call.head[file.io_at + 4..][..16].copy_from_slice(&stateid);
            return;
        }
        let NfsFileUse {
            place,
            stateid,
            evicted,
        } = compounds.opens.enter(file.owner, handle, file.access);
        file.used = Some((place, stateid));
        compounds.open.clear();
        if stateid.is_none() {
            encode_open(file.owner, file.access, false, &mut compounds.open);
        }
        file.open_len = compounds.open.len();
        call.head
            .splice(file.io_at..file.io_at, compounds.open.drain(..));
        // The stateid follows the operation's number.
        let stateid_at = file.io_at + file.open_len + 4;
        call.head[stateid_at..][..16].copy_from_slice(&stateid.unwrap_or(*CURRENT_STATEID));
        // SEQUENCE, PUTFH, possibly OPEN, and the operation itself. Their count precedes the number of SEQUENCE.
        let count = 3 + u32::from(stateid.is_none());
        call.head[call.slot_at - 8..][..4].copy_from_slice(&count.to_be_bytes());
        finish_record(&mut call.head, call.payload.len());
        if let Some((handle, stateid)) = evicted {
            self.end_file(NfsClosing::Close, &handle, &stateid);
        }
    }

    /// Closes a file, or returns its delegation. If too many are being closed already, this is left to the server,
    /// which does it when the client ends.
    pub(super) fn end_file(&mut self, how: NfsClosing, handle: &[u8], stateid: &Stateid) {
        let first = self.config.depth as usize + 1;
        let idle = (first..self.calls.len()).find(|at| self.calls[*at].state == CallState::Idle);
        if let Some(index) = idle {
            self.start_own(index, |_, out| encode_closing(how, handle, stateid, out));
        }
    }

    /// Queues a call without an owner before all others.
    pub(super) fn start_own(
        &mut self,
        index: usize,
        encode: impl FnOnce(&mut AttributeList, &mut Vec<u8>) -> usize,
    ) {
        self.sequence += 1;
        let deadline = self.compounds().now.after(self.config.timeout);
        let call = &mut self.calls[index];
        call.xid = Xid(call.xid.0.wrapping_add(1 << INDEX_BITS));
        let xid = call.xid;
        let mut head = std::mem::take(&mut call.head);
        self.begin_as(&mut head, xid, Procedure::Null, None);
        let slot_at = encode(&mut self.compounds().list, &mut head);
        finish_record(&mut head, 0);
        let sequence = self.sequence;
        let call = &mut self.calls[index];
        (call.state, call.head, call.slot_at) = (CallState::Waiting, head, slot_at);
        (call.tries, call.sequence, call.deadline, call.late) = (0, sequence, deadline, false);
        self.next_check = self.next_check.min(deadline);
        self.waiting.push_front(index as u16);
    }

    /// Records what a reply says about its call's file. Returns true if the server rejected the call's stateid, so
    /// the call has to be repeated. Even the stateid of an OPEN in the same compound is old (NFS4ERR_OLD_STATEID) if
    /// another call has opened the file in between; the recorded stateid stands for the newest.
    pub(super) fn settle_file(&mut self, index: u16, status: Status, body: &[u8]) -> bool {
        let call = &self.calls[usize::from(index)];
        if let Some(lock) = call.lock {
            return self.settle_lock(index, lock, status, body);
        }
        let used = call.file.and_then(|file| file.used);
        if let Some((place, Some(stateid))) = used
            && is_state_lost(status)
        {
            self.compounds().opens.forget(place, &stateid);
            return true;
        }
        match self.examine_open(index, body) {
            Some(found) => {
                self.on_opened(index, found);
                is_state_lost(status)
            }
            None => false,
        }
    }

    /// Records that a call has opened its file.
    pub(super) fn on_opened(&mut self, index: u16, found: NfsOpened) {
        let call = &self.calls[usize::from(index)];
        let file = call.file.expect("the call of a file");
        let (place, _) = file.used.expect("a call that was sent");
        let handle = handle_of(&call.head, call.slot_at).to_vec();
        let compounds = self.compounds();
        compounds.opens.opened(place, file.access, found.stateid);
        if let Some(delegation) = found.delegation {
            self.end_file(NfsClosing::Return, &handle, &delegation);
        }
    }

    /// The result of the call's OPEN, if it has one, from the beginning of the reply.
    pub(super) fn examine_open(&self, index: u16, body: &[u8]) -> Option<NfsOpened> {
        match self.calls[usize::from(index)].file?.used? {
            (_, None) => opened(body),
            (_, Some(_)) => None,
        }
    }

    /// Ends the call's use of its file.
    pub(super) fn leave_file(&mut self, index: u16) {
        let call = &mut self.calls[usize::from(index)];
        let used = call.file.as_mut().and_then(|file| file.used.take());
        if let Some((place, _)) = used {
            self.compounds().opens.leave(place);
        }
    }

    /// Continues in a new session, with the files that were reclaimed.
    pub(super) fn reopen_files(&mut self) {
        let first = self.config.depth as u16 + 1;
        for call in &mut self.calls[usize::from(first)..] {
            call.state = CallState::Idle;
        }
        self.waiting.retain(|index| *index < first);
        for call in &mut self.calls {
            if let Some(file) = &mut call.file {
                file.used = None;
            }
        }
        let compounds = self.compounds();
        let files = compounds.client.take_opens();
        compounds.opens.replace(files);
    }

    /// The last messages of a connection whose owner has no outstanding calls: they close its files and end its
    /// session.
    ///
    /// # Panics
    /// With NFSv3.
    pub fn farewell(&mut self, grant: NfsGrant, xid: Xid) -> NfsFarewell {
        let mut begun = Vec::new();
        while let Some(out) = self.pull() {
            begun.push(self.head(out.call).to_vec());
        }
        let outstanding = self.calls.iter();
        let outstanding = outstanding.filter(|call| call.state == CallState::Sent);
        let awaited = outstanding.map(|call| call.xid).collect();
        let compounds = self.compounds();
        let mut slots: Vec<_> = compounds.slots.iter().flat_map(NfsSlots::idle).collect();
        slots.extend(compounds.client.slot());
        let files = compounds.opens.list().collect();
        NfsFarewell::new(grant, xid, &self.config.credentials)
            .with_calls(begun, awaited)
            .with_files(files, slots)
    }

    /// Leaves the open files to the thread that restores the connection.
    pub(super) fn keep_files(&self) {
        if let Some(compounds) = &self.compounds {
            let files = compounds.opens.list().collect();
            compounds.client.keep_opens(files);
        }
    }
}

/// The handle in the PUTFH that follows SEQUENCE.
pub(super) fn handle_of(head: &[u8], slot_at: usize) -> &[u8] {
    // After the slot come the 16-byte session id, four words, and the number of PUTFH.
    let mut cur = Cursor::new(&head[slot_at + 32 + 4..]);
    let handle = cur.opaque(u32::MAX, "a handle");
    handle.expect("a call that was encoded here")
}
