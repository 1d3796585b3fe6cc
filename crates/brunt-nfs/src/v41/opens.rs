//! The files that a client has open, without I/O: one open per file and caller, made by the first call that needs it
//! and shared by later calls.
//!
//! The table has a limit: beyond it, opening a file closes another that no call uses; if there is none, the table
//! grows.
//!
//! The one rule: a file is not closed while a call uses its stateid.

use std::collections::HashMap;

use brunt_wire::Cursor;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v4::{
    Args, CompoundResults, Delegation, OpenClaim, OpenCreate, ResultBody, Stateid, Status,
};

use super::call::begin_compound;
use super::locks::{NfsHeldLocks, NfsRange, encode_unlock};

/// How many files a connection keeps open, in addition to those that calls are using.
pub(crate) const OPENS_MAX: usize = 1024;

/// `OPEN4_SHARE_ACCESS_READ` and `OPEN4_SHARE_ACCESS_WRITE` (RFC 8881, 18.16.1).
pub(crate) const ACCESS_READ: u32 = 1;
pub(crate) const ACCESS_WRITE: u32 = 2;
/// `OPEN4_SHARE_ACCESS_WANT_NO_DELEG`: there is no back channel on which a delegation could be recalled.
pub(crate) const WANT_NO_DELEGATION: u32 = 0x0400;

/// A file that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NfsOpenFile {
    /// Index of its owner ([`NfsOpens::owner_of`]).
    pub owner: u32,
    /// The body of the AUTH_SYS credential with which it was opened; `None` for the connection's.
    pub credentials: Option<Vec<u8>>,
    /// The file's handle.
    pub handle: Vec<u8>,
    /// How it is open: the access bits of OPEN.
    pub access: u32,
    /// Its stateid, with a sequence number of 0, which stands for the newest one (RFC 8881, 8.2.2).
    pub stateid: Stateid,
    /// The locks on it.
    pub locks: Vec<NfsHeldLocks>,
}

/// What a call needs to know about its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NfsFileUse {
    /// The place in the table, for [`NfsOpens::leave`].
    pub place: u32,
    /// The stateid; `None` if the call has to open the file.
    pub stateid: Option<Stateid>,
    /// The file to close, whose place in the table this one took.
    pub evicted: Option<(Vec<u8>, Stateid)>,
}

/// What OPEN returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsOpened {
    /// The stateid, with a sequence number of 0, which stands for the newest one (RFC 8881, 8.2.2).
    pub stateid: Stateid,
    /// An unrequested delegation, which has to be returned.
    pub delegation: Option<Stateid>,
}

#[derive(Debug)]
struct Entry {
    key: Vec<u8>,
    stateid: Option<Stateid>,
    access: u32,
    /// Calls that use it now.
    users: u32,
    /// Whether it was used since the last search for a file to close.
    is_recent: bool,
    /// The locks on it, which belong to this open.
    locks: Vec<NfsHeldLocks>,
}

impl Entry {
    /// Whether the file may be closed: no call uses it, and it has no locks, which closing would release.
    fn is_free(&self) -> bool {
        self.users == 0 && self.locks.iter().all(|held| held.ranges.is_empty())
    }
}

/// The table of open files; see the module's docs.
#[derive(Debug)]
pub(crate) struct NfsOpens {
    limit: usize,
    entries: Vec<Entry>,
    places: HashMap<Vec<u8>, u32>,
    /// Credentials by owner; the first owner has those of the connection.
    owners: Vec<Option<Vec<u8>>>,
    numbers: HashMap<Vec<u8>, u32>,
    key: Vec<u8>,
    /// Where the next search for a file to close begins.
    hand: usize,
}

impl NfsOpens {
    /// A table without files, with room for this many.
    pub fn new(limit: usize) -> NfsOpens {
        NfsOpens {
            limit,
            entries: Vec::new(),
            places: HashMap::new(),
            owners: vec![None],
            numbers: HashMap::new(),
            key: Vec::new(),
            hand: 0,
        }
    }

    /// The owner of files that are opened with this credential.
    pub fn owner_of(&mut self, credentials: Option<&[u8]>) -> u32 {
        let Some(body) = credentials else {
            return 0;
        };
        if let Some(number) = self.numbers.get(body) {
            return *number;
        }
        let number = self.owners.len() as u32;
        self.owners.push(Some(body.to_vec()));
        self.numbers.insert(body.to_vec(), number);
        number
    }

    /// Begins a call's use of a file with this access.
    pub fn enter(&mut self, owner: u32, handle: &[u8], access: u32) -> NfsFileUse {
        self.set_key(owner, handle);
        let (place, evicted) = match self.places.get(&self.key) {
            Some(place) => (*place, None),
            None => self.insert(),
        };
        let entry = &mut self.entries[place as usize];
        entry.users += 1;
        entry.is_recent = true;
        let stateid = entry.stateid.filter(|_| entry.access & access == access);
        NfsFileUse {
            place,
            stateid,
            evicted,
        }
    }

    /// Begins a call's use of a file if the file is open with this access. Returns its place and stateid.
    pub fn enter_open(&mut self, owner: u32, handle: &[u8], access: u32) -> Option<(u32, Stateid)> {
        self.set_key(owner, handle);
        let place = *self.places.get(&self.key)?;
        let entry = &mut self.entries[place as usize];
        let stateid = entry.stateid.filter(|_| entry.access & access == access)?;
        entry.users += 1;
        entry.is_recent = true;
        Some((place, stateid))
    }

    fn set_key(&mut self, owner: u32, handle: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(&owner.to_be_bytes());
        self.key.extend_from_slice(handle);
    }

    /// Adds the file of `self.key`, replacing another one if there are too many.
    fn insert(&mut self) -> (u32, Option<(Vec<u8>, Stateid)>) {
        let entry = Entry {
            key: self.key.clone(),
            stateid: None,
            access: 0,
            users: 0,
            is_recent: false,
            locks: Vec::new(),
        };
        let victim = (self.entries.len() >= self.limit)
            .then(|| self.victim())
            .flatten();
        let place = victim.unwrap_or(self.entries.len());
        self.places.insert(entry.key.clone(), place as u32);
        let Some(place) = victim else {
            self.entries.push(entry);
            return (place as u32, None);
        };
        let old = std::mem::replace(&mut self.entries[place], entry);
        self.places.remove(&old.key);
        let closed = old.stateid.map(|stateid| (old.key[4..].to_vec(), stateid));
        (place as u32, closed)
    }

    /// Finds a file without users and locks that was not used recently. Looks at each file at most twice; the first
    /// time, its recent use is forgotten.
    fn victim(&mut self) -> Option<usize> {
        for _ in 0..2 * self.entries.len() {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.entries.len();
            let entry = &mut self.entries[place];
            if entry.is_free() && !std::mem::take(&mut entry.is_recent) {
                return Some(place);
            }
        }
        None
    }

    /// Ends a call's use of the file.
    pub fn leave(&mut self, place: u32) {
        self.entries[place as usize].users -= 1;
    }

    /// Records that a call opened the file.
    pub fn opened(&mut self, place: u32, access: u32, stateid: Stateid) {
        let entry = &mut self.entries[place as usize];
        entry.access = match entry.stateid {
            // The same open, upgraded: the server combines all access that one owner asks for (RFC 8881, 18.16.3).
            Some(known) if known == stateid => entry.access | access,
            _ => {
                entry.locks.clear();
                access
            }
        };
        entry.stateid = Some(stateid);
    }

    /// Records that the server no longer knows this stateid.
    pub fn forget(&mut self, place: u32, stateid: &Stateid) {
        let entry = &mut self.entries[place as usize];
        if entry.stateid.as_ref() == Some(stateid) {
            (entry.stateid, entry.access) = (None, 0);
            entry.locks.clear();
        }
    }

    /// The stateid of an owner's locks on a file.
    pub fn held(&self, place: u32, lock_owner: u32) -> Option<Stateid> {
        let locks = self.entries[place as usize].locks.iter();
        let mut of_owner = locks.filter(|held| held.owner == lock_owner);
        of_owner.next().map(|held| held.stateid)
    }

    /// Records that the server granted an owner a lock or, if not `locks`, released one; all the owner's locks on the
    /// file have this stateid.
    pub fn changed(
        &mut self,
        place: u32,
        (lock_owner, stateid): (u32, Stateid),
        range: NfsRange,
        locks: bool,
    ) {
        let all = &mut self.entries[place as usize].locks;
        let at = all.iter().position(|held| held.owner == lock_owner);
        let at = at.unwrap_or_else(|| {
            all.push(NfsHeldLocks {
                owner: lock_owner,
                stateid,
                ranges: Vec::new(),
            });
            all.len() - 1
        });
        all[at].stateid = stateid;
        all[at].change(range, locks);
    }

    /// Records that the server no longer knows the owner's locks on the file.
    pub fn unlocked(&mut self, place: u32, lock_owner: u32) {
        let locks = &mut self.entries[place as usize].locks;
        locks.retain(|held| held.owner != lock_owner);
    }

    /// The files that are open.
    pub fn list(&self) -> impl Iterator<Item = NfsOpenFile> {
        self.entries.iter().filter_map(|entry| {
            let (owner, handle) = entry.key.split_first_chunk::<4>().expect("an owner");
            let owner = u32::from_be_bytes(*owner);
            Some(NfsOpenFile {
                owner,
                credentials: self.owners[owner as usize].clone(),
                handle: handle.to_vec(),
                access: entry.access,
                stateid: entry.stateid?,
                locks: entry.locks.clone(),
            })
        })
    }

    /// Replaces the contents of the table: a new session has only these files open.
    pub fn replace(&mut self, files: Vec<NfsOpenFile>) {
        self.entries.clear();
        self.places.clear();
        self.hand = 0;
        for file in files {
            let place = self.enter(file.owner, &file.handle, 0).place;
            self.opened(place, file.access, file.stateid);
            self.entries[place as usize].locks = file.locks;
            self.leave(place);
        }
    }
}

/// Appends the OPEN of a file by its handle, or the OPEN that reclaims it after a server restart. Its length is the
/// same for all owners.
pub(crate) fn encode_open(owner: u32, access: u32, reclaim: bool, out: &mut Vec<u8>) {
    let name = open_owner(owner);
    Args::Open {
        access: access | WANT_NO_DELEGATION,
        deny: 0,
        // Servers ignore it: the session identifies the client (RFC 8881, 18.16.3).
        client: 0,
        owner: &name,
        create: OpenCreate::No,
        claim: match reclaim {
            // There was no delegation.
            true => OpenClaim::Previous(0),
            false => OpenClaim::Fh,
        },
    }
    .encode(out);
}

fn open_owner(owner: u32) -> [u8; 12] {
    let mut name = *b"brunt io....";
    name[8..].copy_from_slice(&owner.to_be_bytes());
    name
}

/// What a call without an owner does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NfsClosing {
    /// Releases an owner's locks, so that the file can be closed.
    Unlock,
    /// Closes it.
    Close,
    /// Returns an unrequested delegation.
    Return,
}

impl NfsClosing {
    /// Appends two operations.
    pub(crate) fn encode(self, handle: &[u8], stateid: &Stateid, out: &mut Vec<u8>) {
        let object = FileHandle(handle);
        Args::Putfh { object }.encode(out);
        match self {
            NfsClosing::Unlock => encode_unlock(NfsRange::WHOLE_FOR_WRITING, stateid, out),
            NfsClosing::Close => Args::Close { stateid }.encode(out),
            NfsClosing::Return => Args::Delegreturn { stateid }.encode(out),
        }
    }
}

/// Appends a compound that closes a file or returns its delegation. Returns the slot's offset, like
/// [`super::encode_call`].
pub(crate) fn encode_closing(
    how: NfsClosing,
    handle: &[u8],
    stateid: &Stateid,
    out: &mut Vec<u8>,
) -> usize {
    let slot_at = begin_compound(3, false, out);
    how.encode(handle, stateid, out);
    slot_at
}

/// What the OPEN in a compound returned, from the body of the reply, which may not have arrived completely. `None` if
/// it was not executed or failed, or cannot be read.
pub(crate) fn opened(body: &[u8]) -> Option<NfsOpened> {
    let reply = CompoundResults::parse(&mut Cursor::new(body)).ok()?;
    for result in reply.operations() {
        if let ResultBody::Open {
            stateid,
            delegation,
            ..
        } = result.ok()?.body
        {
            return Some(NfsOpened {
                stateid: newest(stateid),
                delegation: match delegation {
                    Delegation::None(_) => None,
                    Delegation::Read(stateid) | Delegation::Write(stateid) => Some(*stateid),
                },
            });
        }
    }
    None
}

/// The stateid with sequence number 0, which stands for the newest one, because calls on a file run at the same time.
pub(super) fn newest(stateid: &Stateid) -> Stateid {
    let mut newest = *stateid;
    newest[..4].fill(0);
    newest
}

/// Whether a status says that the server no longer knows a stateid (RFC 8881, 8.2.4 and 15.1.5).
pub(crate) fn is_state_lost(status: Status) -> bool {
    matches!(
        status,
        Status::EXPIRED
            | Status::STALE_STATEID
            | Status::OLD_STATEID
            | Status::BAD_STATEID
            | Status::ADMIN_REVOKED
    )
}

#[cfg(test)]
mod tests {
    use brunt_wire::nfs::v4::{Op, OpResult};

    use super::*;

    fn stateid(number: u8) -> Stateid {
        [number; 16]
    }

    #[test]
    fn a_file_is_opened_once_for_each_caller_and_access() {
        let mut opens = NfsOpens::new(4);
        let check = |opens: &mut NfsOpens, owner, access, expected: Option<u8>| {
            let found = opens.enter(owner, b"file", access);
            opens.leave(found.place);
            assert_eq!(found.stateid, expected.map(stateid), "{owner} {access}");
            found.place
        };
        let place = check(&mut opens, 0, ACCESS_READ, None);
        opens.opened(place, ACCESS_READ, stateid(1));
        check(&mut opens, 0, ACCESS_READ, Some(1));
        check(&mut opens, 0, ACCESS_WRITE, None);
        opens.opened(place, ACCESS_WRITE, stateid(1));
        check(&mut opens, 0, ACCESS_READ | ACCESS_WRITE, Some(1));
        // Calls that don't open files use a file only if it is open.
        let joined = |opens: &mut NfsOpens, name: &[u8], access| {
            let found = opens.enter_open(0, name, access);
            found.inspect(|(place, _)| opens.leave(*place))
        };
        let write = Some((place, stateid(1)));
        assert_eq!(joined(&mut opens, b"file", ACCESS_WRITE), write);
        assert_eq!(joined(&mut opens, b"other", ACCESS_WRITE), None);
        let other = opens.owner_of(Some(b"somebody"));
        assert_eq!((other, opens.owner_of(Some(b"somebody"))), (1, 1));
        check(&mut opens, other, ACCESS_READ, None);
        // A new open has only its own access.
        opens.opened(place, ACCESS_READ, stateid(2));
        check(&mut opens, 0, ACCESS_WRITE, None);
        assert_eq!(joined(&mut opens, b"file", ACCESS_WRITE), None);
        opens.forget(place, &stateid(1));
        check(&mut opens, 0, ACCESS_READ, Some(2));
        opens.forget(place, &stateid(2));
        check(&mut opens, 0, ACCESS_READ, None);
    }

    #[test]
    fn the_table_closes_files_that_no_call_uses() {
        let mut opens = NfsOpens::new(2);
        let mut open = |name: &[u8], number| {
            let found = opens.enter(0, name, ACCESS_READ);
            opens.opened(found.place, ACCESS_READ, stateid(number));
            (
                found.place,
                found.evicted.map(|(handle, _)| handle),
                opens.entries.len(),
            )
        };
        let (first, ..) = open(b"a", 1);
        open(b"b", 2);
        // Both are in use: the table grows.
        let (third, evicted, count) = open(b"c", 3);
        assert_eq!((evicted, count), (None, 3));
        opens.leave(first);
        opens.leave(third);
        let found = opens.enter(0, b"d", ACCESS_READ);
        assert_eq!(found.evicted, Some((b"a".to_vec(), stateid(1))));
        assert_eq!((found.place, found.stateid), (first, None));
        let mut names: Vec<_> = opens.list().map(|file| file.handle).collect();
        names.sort();
        assert_eq!(names, [b"b".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn another_session_begins_with_the_files_that_were_reclaimed() {
        let mut opens = NfsOpens::new(2);
        let owner = opens.owner_of(Some(b"somebody"));
        for (owner, number) in [(0, 1), (owner, 2)] {
            let place = opens.enter(owner, b"file", ACCESS_WRITE).place;
            opens.opened(place, ACCESS_WRITE, stateid(number));
        }
        let mut files: Vec<NfsOpenFile> = opens.list().collect();
        assert_eq!(files[1].credentials.as_deref(), Some(&b"somebody"[..]));
        files.remove(0);
        files[0].stateid = stateid(9);
        opens.replace(files);
        assert_eq!(opens.enter(0, b"file", ACCESS_WRITE).stateid, None);
        assert_eq!(
            opens.enter(owner, b"file", ACCESS_WRITE).stateid,
            Some(stateid(9))
        );
    }

    /// A result counts only when it is complete.
    #[test]
    fn opens_in_replies_are_found() {
        let change = brunt_wire::nfs::v4::ChangeInfo {
            atomic: true,
            before: 1,
            after: 2,
        };
        let reply = |delegation: Delegation<'_>| {
            let mut body = Vec::new();
            CompoundResults::begin(&mut body, Status::OK, 2);
            let bodies = [
                (Op::Putfh, ResultBody::Empty),
                (
                    Op::Open,
                    ResultBody::Open {
                        stateid: &[7; 16],
                        directory: change,
                        flags: 0,
                        delegation,
                    },
                ),
            ];
            for (op, result) in bodies {
                OpResult {
                    number: op as u32,
                    status: Status::OK,
                    body: result,
                }
                .encode(&mut body);
            }
            body
        };
        let body = reply(Delegation::None(None));
        let found = opened(&body).unwrap();
        assert_eq!((&found.stateid[..4], found.delegation), (&[0; 4][..], None));
        assert_eq!(found.stateid[4..], [7; 12]);
        for end in 0..body.len() {
            assert_eq!(opened(&body[..end]), None);
        }
        assert!(is_state_lost(Status(10025)) && !is_state_lost(Status(10026)));
    }
}
