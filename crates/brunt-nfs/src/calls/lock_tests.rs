//! Tests which stateid each lock operation uses, and what happens to locks that a server forgets.

use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v4::{self, ANONYMOUS, ChangeInfo, Delegation, Op, OpResult, Stateid};

use super::compound_tests::{Client, OK, grant, operations_in, result};
use super::*;
use crate::v41::{NfsLock, NfsLockOp, NfsOpenFile, NfsRange, OPENS_MAX};

/// An operation, its stateid, and whether that is the open's stateid, used by an owner without locks.
type Sent = (Op, Option<Stateid>, bool);

fn sent(args: v4::Args<'_>) -> Sent {
    let op = args.op().unwrap();
    match args {
        v4::Args::Lock { locker, .. } => match locker {
            v4::Locker::New { open, .. } => (op, Some(*open), true),
            v4::Locker::Old(held) => (op, Some(*held), false),
        },
        v4::Args::Locku { stateid, .. } | v4::Args::Close { stateid } => {
            (op, Some(*stateid), false)
        }
        _ => (op, None, false),
    }
}

/// The last operation of a call's compound.
fn last(client: &Client, index: u16) -> Sent {
    let all = client.operations(index, sent);
    assert_eq!(all[0].0, Op::Sequence);
    assert_eq!(all[1].0, Op::Putfh);
    assert_eq!(all.len(), 3, "{all:?}");
    all[2]
}

const RANGE: NfsRange = NfsRange {
    kind: 2,
    offset: 10,
    length: 20,
};
/// Stateids as the server returns them, and with sequence number 0, which means the newest.
const OPEN: [Stateid; 2] = [*b"\0\0\0\x05open by us..", *b"\0\0\0\0open by us.."];
const LOCKS: [Stateid; 2] = [*b"\0\0\0\x07locks of it.", *b"\0\0\0\0locks of it."];

fn putfh() -> OpResult<'static> {
    result(Op::Putfh, OK, v4::ResultBody::Empty)
}

fn opened() -> [OpResult<'static>; 2] {
    let directory = ChangeInfo {
        atomic: true,
        before: 1,
        after: 1,
    };
    let body = v4::ResultBody::Open {
        stateid: &OPEN[0],
        directory,
        flags: 0,
        delegation: Delegation::None(None),
    };
    [putfh(), result(Op::Open, OK, body)]
}

fn granted(op: Op) -> [OpResult<'static>; 2] {
    let stateid = &LOCKS[0];
    [putfh(), result(op, OK, v4::ResultBody::State { stateid })]
}

fn denied(op: Op) -> [OpResult<'static>; 2] {
    let body = v4::ResultBody::Denied {
        offset: 0,
        length: 100,
        kind: 2,
        client: 7,
        owner: b"somebody",
    };
    [putfh(), result(op, v4::Status::DENIED, body)]
}

fn failed(op: Op, status: u32) -> [OpResult<'static>; 2] {
    let status = v4::Status(status);
    [putfh(), result(op, status, v4::ResultBody::Empty)]
}

/// A client whose lock operations are answered.
struct Locker(Client);

impl Locker {
    fn new() -> Locker {
        Locker(Client::new(1, 1))
    }

    fn ask(&mut self, op: NfsLockOp, owner: u32, file: &[u8]) {
        let lock = NfsLock {
            op,
            file: FileHandle(file),
            range: RANGE,
            owner,
        };
        self.0.calls.start_lock(0, &lock, None, Nanos(1));
    }

    /// Sends the call, which the server answers with these results. Returns the operation, and the call's status if
    /// it ends.
    fn answer(&mut self, results: &[OpResult<'_>]) -> (Sent, Option<u32>) {
        assert_eq!(self.0.send().last(), Some(&0));
        let sent = last(&self.0, 0);
        let reply = self.0.reply(0, results);
        (sent, self.0.receive(&reply, Nanos(2)).unwrap())
    }

    fn make(
        &mut self,
        (op, owner): (NfsLockOp, u32),
        results: &[OpResult<'_>],
    ) -> (Sent, Option<u32>) {
        self.ask(op, owner, b"file");
        self.answer(results)
    }

    /// A client whose first owner holds a lock.
    fn locked() -> Locker {
        let mut locker = Locker::new();
        locker.make((NfsLockOp::Lock, 0), &opened());
        locker.answer(&granted(Op::Lock));
        locker
    }
}

const OPENS: Sent = (Op::Open, None, false);
const FIRST: Sent = (Op::Lock, Some(OPEN[1]), true);

#[test]
fn an_owner_begins_with_the_open_and_goes_on_with_its_locks() {
    let mut locker = Locker::new();
    let first = (NfsLockOp::Lock, 0);
    assert_eq!(locker.make(first, &opened()), (OPENS, None));
    assert_eq!(locker.answer(&granted(Op::Lock)), (FIRST, Some(0)));
    let held = Some(LOCKS[1]);
    let more = (Op::Lock, held, false);
    assert_eq!(locker.make(first, &granted(Op::Lock)), (more, Some(0)));
    // Another owner is denied the lock, and still has no locks.
    for _ in 0..2 {
        let second = (NfsLockOp::Lock, 1);
        let answer = denied(Op::Lock);
        assert_eq!(locker.make(second, &answer), (FIRST, Some(10010)));
    }
    let test = (Op::Lockt, None, false);
    let asked = locker.make((NfsLockOp::Test, 1), &denied(Op::Lockt));
    assert_eq!(asked, (test, Some(10010)));
    let unlock = (NfsLockOp::Unlock, 0);
    let unlocks = (Op::Locku, held, false);
    assert_eq!(locker.make(unlock, &granted(Op::Locku)), (unlocks, Some(0)));
    // The server rejects an unlock by an owner without locks.
    let unlocks = (Op::Locku, Some(*ANONYMOUS), false);
    let answer = failed(Op::Locku, 10025);
    let asked = locker.make((NfsLockOp::Unlock, 1), &answer);
    assert_eq!(asked, (unlocks, Some(10025)));
}

#[test]
fn a_file_that_cannot_be_opened_is_not_locked() {
    let mut locker = Locker::new();
    let lock = (NfsLockOp::Lock, 0);
    let answer = failed(Op::Open, 13);
    assert_eq!(locker.make(lock, &answer), (OPENS, Some(13)));
    assert_eq!(locker.make(lock, &opened()), (OPENS, None));
}

/// If a server has forgotten a lock, the file is opened again and the lock requested again, but not forever.
#[test]
fn a_lock_that_the_server_has_forgotten_is_made_again() {
    let mut locker = Locker::locked();
    let lost = failed(Op::Lock, 10025);
    let held = (Op::Lock, Some(LOCKS[1]), false);
    assert_eq!(locker.make((NfsLockOp::Lock, 0), &lost), (held, None));
    assert_eq!(locker.answer(&opened()), (OPENS, None));
    assert_eq!(locker.answer(&lost), (FIRST, Some(10025)));
    // An unlock of lost locks isn't repeated.
    let mut locker = Locker::locked();
    let unlock = (NfsLockOp::Unlock, 0);
    let unlocks = |stateid| (Op::Locku, Some(stateid), false);
    let lost = failed(Op::Locku, 10011);
    assert_eq!(locker.make(unlock, &lost), (unlocks(LOCKS[1]), Some(10011)));
    let again = locker.make(unlock, &lost).0;
    assert_eq!(again, unlocks(*ANONYMOUS));
}

/// A file with locks isn't closed to make room, because closing would release its locks.
#[test]
fn a_file_with_locks_stays_open() {
    let check = |unlocks: bool, next: &[u16]| {
        let mut locker = Locker::locked();
        if unlocks {
            locker.make((NfsLockOp::Unlock, 0), &granted(Op::Locku));
        }
        for name in 0..OPENS_MAX {
            locker.ask(NfsLockOp::Lock, 0, format!("{name:04}").as_bytes());
            locker.answer(&opened());
            locker.answer(&granted(Op::Lock));
        }
        locker.ask(NfsLockOp::Lock, 0, b"more");
        assert_eq!(locker.answer(&opened()).0, OPENS);
        assert_eq!(locker.0.send(), next);
    };
    check(false, &[0]);
    // The first call after the renewal closes the file.
    check(true, &[2]);
}

/// Locks and their ranges are left to the thread that connects, and locks that it reclaims still belong to their
/// owner.
#[test]
fn another_session_goes_on_with_the_reclaimed_locks() {
    let mut locker = Locker::locked();
    locker.0.calls.detach();
    let mut files: Vec<NfsOpenFile> = locker.0.client.take_opens();
    assert_eq!(files[0].locks[0].ranges, [RANGE]);
    assert_eq!(files[0].locks[0].stateid, LOCKS[1]);
    files[0].locks[0].stateid = [9; 16];
    locker.0.client.keep_opens(files);
    locker.0.calls.attach(Some(&grant(2, 1)), Nanos(4));
    let unlock = (Op::Locku, Some([9; 16]), false);
    let made = locker.make((NfsLockOp::Unlock, 0), &granted(Op::Locku));
    assert_eq!(made, (unlock, Some(0)));
}

/// Servers don't close files with locks (NFS4ERR_LOCKS_HELD).
#[test]
fn a_goodbye_releases_locks_before_it_closes_files() {
    let mut locker = Locker::locked();
    let mut farewell = locker.0.calls.farewell(grant(1, 1), Xid(1));
    let calls = std::iter::from_fn(|| farewell.next_calls());
    let calls: Vec<Vec<Sent>> = calls
        .map(|records| operations_in(&records[0], sent))
        .collect();
    let with = |op, stateid| {
        let [sequence, putfh] = [Op::Sequence, Op::Putfh].map(|op| (op, None, false));
        vec![sequence, putfh, (op, Some(stateid), false)]
    };
    assert_eq!(calls[0], with(Op::Locku, LOCKS[1]));
    assert_eq!(calls[1], with(Op::Close, OPEN[1]));
    assert_eq!(calls.len(), 4);
}
