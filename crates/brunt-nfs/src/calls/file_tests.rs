//! Tests how NFSv4.1 calls open and close files, and what happens when a server forgets open files.

use brunt_wire::FileData;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, SetAttributes, StableHow};
use brunt_wire::nfs::v4::{self, ANONYMOUS, ChangeInfo, Delegation, Op, OpResult, Stateid};
use brunt_wire::rpc::RecordMark;

use super::compound_tests::{Client, OK, grant, operations_in, result};
use super::*;
use crate::v41::{NfsFarewell, NfsOpenFile, NfsOpened, OPENS_MAX};

/// The operations of a call, with the stateid of each that has one.
fn operations(client: &Client, index: u16) -> Vec<(Op, Option<Stateid>)> {
    let with = |args: v4::Args<'_>| {
        let stateid = match args {
            v4::Args::Read { stateid, .. }
            | v4::Args::Write { stateid, .. }
            | v4::Args::Setattr { stateid, .. }
            | v4::Args::Close { stateid }
            | v4::Args::Delegreturn { stateid } => Some(*stateid),
            _ => None,
        };
        (args.op().unwrap(), stateid)
    };
    client.operations(index, with)
}

fn read(file: &[u8]) -> Args<'_> {
    Args::Read {
        file: FileHandle(file),
        offset: 0,
        count: 4096,
    }
}

/// A WRITE of zero bytes.
fn write(file: &[u8]) -> Args<'_> {
    Args::Write {
        file: FileHandle(file),
        offset: 0,
        count: 0,
        stable: StableHow::FileSync,
        data: FileData {
            at: 0,
            len: 0,
            bytes: b"",
        },
    }
}

const STATE: Stateid = *b"\0\0\0\x05twelve bytes";
/// `STATE` with sequence number 0, which stands for the newest one.
const NEWEST: Stateid = *b"\0\0\0\0twelve bytes";

fn putfh() -> OpResult<'static> {
    result(Op::Putfh, OK, v4::ResultBody::Empty)
}

fn opened(delegation: Delegation<'static>) -> OpResult<'static> {
    let directory = ChangeInfo {
        atomic: true,
        before: 1,
        after: 1,
    };
    let body = v4::ResultBody::Open {
        stateid: &STATE,
        directory,
        flags: 0,
        delegation,
    };
    result(Op::Open, OK, body)
}

fn data() -> OpResult<'static> {
    let data = FileData {
        at: 0,
        len: 4,
        bytes: b"data",
    };
    result(Op::Read, OK, v4::ResultBody::Read { eof: true, data })
}

fn failed(op: Op, status: u32) -> OpResult<'static> {
    result(op, v4::Status(status), v4::ResultBody::Empty)
}

impl Client {
    /// Makes a single call, which the server answers with these results. Returns the call's operations and the status
    /// that the owner sees.
    fn make(
        &mut self,
        args: &Args<'_>,
        results: &[OpResult<'_>],
    ) -> (Vec<(Op, Option<Stateid>)>, Option<u32>) {
        self.start(0, args, Nanos(1));
        assert_eq!(self.send().last(), Some(&0));
        let sent = operations(self, 0);
        let reply = self.reply(0, results);
        (sent, self.receive(&reply, Nanos(2)).unwrap())
    }
}

const READ_OPENED: [(Op, Option<Stateid>); 3] = [
    (Op::Sequence, None),
    (Op::Putfh, None),
    (Op::Read, Some(NEWEST)),
];

/// The first call opens the file, and later calls use its stateid; only a call that needs another access opens the
/// file again.
#[test]
fn a_file_is_opened_by_its_first_call() {
    let mut client = Client::new(2, 2);
    let none = Delegation::None(None);
    let opens = |op| {
        vec![
            (Op::Sequence, None),
            (Op::Putfh, None),
            (Op::Open, None),
            (op, Some(*v4::CURRENT_STATEID)),
        ]
    };
    let answer = [putfh(), opened(none), data()];
    assert_eq!(
        client.make(&read(b"file"), &answer),
        (opens(Op::Read), Some(0))
    );
    let answer = [putfh(), data()];
    assert_eq!(
        client.make(&read(b"file"), &answer),
        (READ_OPENED.to_vec(), Some(0))
    );
    let body = v4::ResultBody::Write {
        count: 0,
        committed: StableHow::FileSync,
        verifier: 0,
    };
    let answer = [putfh(), opened(none), result(Op::Write, OK, body)];
    assert_eq!(
        client.make(&write(b"file"), &answer),
        (opens(Op::Write), Some(0))
    );
    // A file that could not be opened is opened by the next call.
    for status in [13, 10015] {
        let answer = [putfh(), failed(Op::Open, status)];
        assert_eq!(
            client.make(&read(b"other"), &answer),
            (opens(Op::Read), Some(status))
        );
    }
    // The READ failed, but the file is open.
    let answer = [putfh(), opened(none), failed(Op::Read, 5)];
    assert_eq!(
        client.make(&read(b"other"), &answer),
        (opens(Op::Read), Some(5))
    );
    assert_eq!(
        client.make(&read(b"other"), &[putfh(), data()]).0,
        READ_OPENED
    );
}

/// Calls that are sent at the same time all open the file; to the server, this is one open, because they have the
/// same owner. A call whose stateid is outdated by another OPEN is repeated.
#[test]
fn calls_at_the_same_time_open_a_file_together() {
    let mut client = Client::new(2, 2);
    for index in 0..2 {
        client.start(index, &read(b"file"), Nanos(0));
    }
    assert_eq!(client.send(), [0, 1]);
    let old = [
        putfh(),
        opened(Delegation::None(None)),
        failed(Op::Read, 10024),
    ];
    let reply = client.reply(1, &old);
    assert_eq!(client.receive(&reply, Nanos(1)), Ok(None));
    assert_eq!(client.send(), [1]);
    assert_eq!(operations(&client, 1), READ_OPENED);
    let reply = client.reply(1, &[putfh(), data()]);
    assert_eq!(client.receive(&reply, Nanos(1)), Ok(Some(0)));
    let reply = client.reply(0, &[putfh(), opened(Delegation::None(None)), data()]);
    assert_eq!(client.receive(&reply, Nanos(1)), Ok(Some(0)));
    assert_eq!(
        client.make(&read(b"file"), &[putfh(), data()]).0,
        READ_OPENED
    );
}

/// If the server no longer knows a stateid, the call is repeated; the caller gets an error only if the repeated call
/// fails in the same way.
#[test]
fn a_file_is_opened_again_when_the_server_has_forgotten_it() {
    for status in [10011, 10023, 10024, 10025, 10047] {
        let mut client = Client::new(1, 1);
        client.make(
            &read(b"file"),
            &[putfh(), opened(Delegation::None(None)), data()],
        );
        let lost = [putfh(), failed(Op::Read, status)];
        assert_eq!(
            client.make(&read(b"file"), &lost),
            (READ_OPENED.to_vec(), None)
        );
        assert_eq!(client.send(), [0]);
        assert_eq!(operations(&client, 0)[2].0, Op::Open);
        assert_eq!(client.sent(0).sequence, 3);
        let lost = [
            putfh(),
            opened(Delegation::None(None)),
            failed(Op::Read, status),
        ];
        let reply = client.reply(0, &lost);
        assert_eq!(client.receive(&reply, Nanos(2)), Ok(Some(status)));
    }
}

/// A file that no call uses is closed to make room for another, and an unrequested delegation is returned.
#[test]
fn files_are_closed_and_delegations_returned_by_calls_without_an_owner() {
    let mut client = Client::new(1, 1);
    let names: Vec<String> = (0..OPENS_MAX + 1)
        .map(|name| format!("{name:04}"))
        .collect();
    let answer = [putfh(), opened(Delegation::None(None)), data()];
    for name in &names {
        assert_eq!(client.make(&read(name.as_bytes()), &answer).1, Some(0));
    }
    assert_eq!(client.send(), [0; 0]);
    client.make(&read(b"more"), &answer);
    assert_eq!(client.send(), [2], "the first call after the renewal");
    let closes = |op| vec![(Op::Sequence, None), (Op::Putfh, None), (op, Some(NEWEST))];
    assert_eq!(operations(&client, 2), closes(Op::Close));
    let body = v4::ResultBody::State { stateid: &STATE };
    let reply = client.reply(2, &[putfh(), result(Op::Close, OK, body)]);
    assert_eq!(client.receive(&reply, Nanos(3)), Ok(None));

    let mut client = Client::new(1, 1);
    client.start(0, &read(b"file"), Nanos(1));
    assert_eq!(client.send(), [0]);
    let found = NfsOpened {
        stateid: NEWEST,
        delegation: Some(NEWEST),
    };
    client.calls.settle_data(0, Some(found), Nanos(2));
    client.calls.end(0);
    assert_eq!(client.send(), [2]);
    assert_eq!(operations(&client, 2), closes(Op::Delegreturn));
    // The server's answer doesn't matter.
    let reply = client.reply(2, &[failed(Op::Putfh, 10008)]);
    assert_eq!(client.receive(&reply, Nanos(3)), Ok(None));
    assert_eq!((client.send(), client.calls.lost()), (vec![], None));
}

/// Open files are left to the thread that connects; files that it reclaims are used, and the others are opened again.
#[test]
fn another_session_goes_on_with_the_reclaimed_files() {
    let mut client = Client::new(1, 1);
    let answer = [putfh(), opened(Delegation::None(None)), data()];
    for name in [b"kept", b"lost"] {
        client.make(&read(name), &answer);
    }
    client.start(0, &read(b"lost"), Nanos(3));
    assert_eq!(client.send(), [0]);
    assert_eq!(operations(&client, 0), READ_OPENED);
    client.calls.detach();
    let mut files: Vec<NfsOpenFile> = client.client.take_opens();
    files.sort_by(|a, b| a.handle.cmp(&b.handle));
    let found = files
        .iter()
        .map(|file| (&file.handle[..], file.access, file.stateid));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [(&b"kept"[..], 1, NEWEST), (&b"lost"[..], 1, NEWEST)]
    );
    files.truncate(1);
    files[0].stateid = [9; 16];
    client.client.keep_opens(files);
    client.calls.attach(Some(&grant(2, 1)), Nanos(4));
    assert_eq!(client.send(), [0]);
    assert_eq!(operations(&client, 0)[2].0, Op::Open, "not the old stateid");
    let reply = client.reply(0, &answer);
    assert_eq!(client.receive(&reply, Nanos(5)), Ok(Some(0)));
    let sent = client.make(&read(b"kept"), &[putfh(), data()]).0;
    assert_eq!(sent[2], (Op::Read, Some([9; 16])));
}

/// The operations in the next messages of a farewell, which a server answers in pieces.
fn answered(farewell: &mut NfsFarewell) -> Option<Vec<Vec<Op>>> {
    let records = farewell.next_calls()?;
    let mut answers = Vec::new();
    for record in &records {
        assert!(farewell.is_waiting());
        let mark = RecordMark { last: true, len: 4 };
        answers.extend_from_slice(&mark.to_bytes());
        answers.extend_from_slice(&record[4..8]);
    }
    let mut unread = Vec::new();
    for byte in answers {
        unread.push(byte);
        let consumed = farewell.receive(&unread).expect("records");
        unread.drain(..consumed);
    }
    assert!(!farewell.is_waiting());
    let operations = records.iter();
    let operations = operations.map(|record| operations_in(record, |args| args.op().unwrap()));
    Some(operations.collect())
}

/// Files are closed in as many compounds as necessary, and the session ends only after the last answer.
#[test]
fn a_goodbye_closes_files_before_it_ends_the_session() {
    let check = |grant: NfsGrant, closes: &[&[&[Op]]]| {
        let mut client = Client::new(1, 1);
        let answer = [putfh(), opened(Delegation::None(None)), data()];
        for name in [b"a", b"b"] {
            client.make(&read(name), &answer);
        }
        let mut farewell = client.calls.farewell(grant, Xid(1));
        let found: Vec<_> = std::iter::from_fn(|| answered(&mut farewell)).collect();
        let last: [&[&[Op]]; 2] = [&[&[Op::DestroySession]], &[&[Op::DestroyClientid]]];
        assert_eq!(found, [closes, &last].concat());
    };
    let (sequence, putfh, close) = (Op::Sequence, Op::Putfh, Op::Close);
    check(grant(1, 1), &[&[&[sequence, putfh, close, putfh, close]]]);
    let few = NfsGrant {
        operations: 4,
        ..grant(1, 1)
    };
    let one: &[&[Op]] = &[&[sequence, putfh, close]];
    check(few, &[one, one]);
    // A server that doesn't answer still gets all messages.
    let mut farewell = Client::new(1, 1).calls.farewell(grant(1, 1), Xid(1));
    assert_eq!(std::iter::from_fn(|| farewell.next_calls()).count(), 2);
    assert_eq!(farewell.receive(&[0xff; 8]), None, "not a record");
}

/// Files and delegations that the client is already closing or returning come first, on other slots.
#[test]
fn a_goodbye_waits_for_calls_without_an_owner() {
    let mut client = Client::new(1, 2);
    for name in [b"a", b"b"] {
        client.start(0, &read(name), Nanos(1));
        client.send();
        let found = NfsOpened {
            stateid: NEWEST,
            delegation: Some(NEWEST),
        };
        client.calls.settle_data(0, Some(found), Nanos(2));
        client.calls.end(0);
        if name == b"a" {
            assert_eq!(client.send(), [2]);
            let reply = client.reply(2, &[failed(Op::Putfh, 70)]);
            assert_eq!(client.receive(&reply, Nanos(3)), Ok(None));
        }
    }
    let mut farewell = client.calls.farewell(grant(1, 2), Xid(1));
    let (sequence, putfh, close) = (Op::Sequence, Op::Putfh, Op::Close);
    let mut next = || answered(&mut farewell).unwrap();
    assert_eq!(next(), [[sequence, putfh, Op::Delegreturn]]);
    assert_eq!(next(), [[sequence, putfh, close, putfh, close]]);
    assert_eq!(next(), [[Op::DestroySession]]);
}

/// The length of a file is set with the stateid of an open for writing, if there is one.
#[test]
fn a_length_is_set_with_the_stateid_of_an_open() {
    let set = |size| Args::Setattr {
        object: FileHandle(b"file"),
        attributes: SetAttributes {
            size,
            mode: Some(0o600),
            ..SetAttributes::default()
        },
        guard: None,
    };
    let with = |stateid: &Stateid| {
        let setattr = (Op::Setattr, Some(*stateid));
        vec![(Op::Sequence, None), (Op::Putfh, None), setattr]
    };
    let done = [putfh(), result(Op::Setattr, OK, v4::ResultBody::Empty)];
    let mut client = Client::new(1, 1);
    let none = Delegation::None(None);
    assert_eq!(
        client.make(&set(Some(5)), &done),
        (with(ANONYMOUS), Some(0))
    );
    client.make(&read(b"file"), &[putfh(), opened(none), data()]);
    let sent = client.make(&set(Some(5)), &done).0;
    assert_eq!(sent, with(ANONYMOUS), "it is open for reading");
    let body = v4::ResultBody::Write {
        count: 0,
        committed: StableHow::FileSync,
        verifier: 0,
    };
    let written = [putfh(), opened(none), result(Op::Write, OK, body)];
    client.make(&write(b"file"), &written);
    assert_eq!(client.make(&set(Some(5)), &done).0, with(&NEWEST));
    assert_eq!(client.make(&set(None), &done).0, with(ANONYMOUS));
    // If the server has forgotten the open, the call is repeated with the anonymous stateid.
    let lost = [putfh(), failed(Op::Setattr, 10025)];
    assert_eq!(client.make(&set(Some(5)), &lost), (with(&NEWEST), None));
    assert_eq!(client.send(), [0]);
    assert_eq!(operations(&client, 0), with(ANONYMOUS));
    let reply = client.reply(0, &done);
    assert_eq!(client.receive(&reply, Nanos(3)), Ok(Some(0)));
}
