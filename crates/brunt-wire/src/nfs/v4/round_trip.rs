//! `parse(encode(x)) == x` for every operation of NFSv4.1 that is encoded, and for its results.

use super::*;
use crate::nfs::FileHandle;
use crate::nfs::v3::StableHow;
use crate::{Cursor, FileData, ParseError};

const STATE: &Stateid = b"\0\0\0\x07state of fil";
const SESSION: &[u8; 16] = b"session id 12345";
/// A bitmap of two words: attributes 1, 4 and 33.
const MASK: [u8; 8] = bitmap_words(&[1, 4, 33]);

fn channel(seed: u32) -> SessionChannel {
    SessionChannel {
        request_bytes_max: seed,
        response_bytes_max: seed + 1,
        cached_bytes_max: seed + 2,
        operations_max: seed + 3,
        slots: seed + 4,
    }
}

fn list() -> AttributeList {
    let mut list = AttributeList::default();
    list.put(4, |out| out.u64(77));
    list.put(33, |out| out.u32(0o644));
    list.put(54, |out| {
        write_set_time(
            out,
            Some(NfsTime {
                seconds: -1,
                nseconds: 5,
            }),
        );
    });
    list
}

fn data(bytes: &[u8]) -> FileData<'_> {
    FileData {
        at: 0,
        len: bytes.len() as u32,
        bytes,
    }
}

/// Every operation that is encoded, in all of its forms.
fn operations(list: FileAttributes<'_>) -> Vec<Args<'_>> {
    let (name, mask) = (&b"name"[..], Bitmap::of(&MASK));
    let object = FileHandle(b"a handle of more than one word");
    let open = |create, claim| Args::Open {
        access: 0x0402,
        deny: 0,
        client: 9,
        owner: b"owner",
        create,
        claim,
    };
    let lock = |locker| Args::Lock {
        kind: 2,
        reclaim: true,
        offset: 1 << 40,
        length: u64::MAX,
        locker,
    };
    let create = |kind| Args::Create {
        kind,
        name,
        attributes: list,
    };
    let mut all = vec![
        Args::Getfh,
        Args::Lookupp,
        Args::Putpubfh,
        Args::Putrootfh,
        Args::Readlink,
        Args::Restorefh,
        Args::Savefh,
        Args::Putfh { object },
        Args::Access { access: 0x3f },
        Args::Getattr { mask },
        Args::Lookup { name },
        Args::Remove { name: b"" },
        Args::Link { name },
        Args::Secinfo { name },
        Args::Rename {
            from: name,
            to: b"other",
        },
        Args::Verify { attributes: list },
        Args::Setattr {
            stateid: STATE,
            attributes: list,
        },
        Args::Readdir {
            cookie: 3,
            verifier: 4,
            dir_count: 5,
            max_count: 6,
            mask,
        },
        Args::Commit {
            offset: 1,
            count: 2,
        },
        Args::Close { stateid: STATE },
        Args::Delegreturn { stateid: STATE },
        Args::Locku {
            kind: 1,
            stateid: STATE,
            offset: 2,
            length: 3,
        },
        Args::ExchangeId {
            verifier: 1,
            owner: b"client",
            flags: 2,
        },
        Args::CreateSession {
            client: 1,
            sequence: 2,
            flags: 3,
            fore: channel(10),
            back: channel(20),
            callback_program: 4,
        },
        Args::DestroySession { session: SESSION },
        Args::DestroyClientid { client: 5 },
        Args::ReclaimComplete { one_fs: false },
        Args::Sequence {
            session: SESSION,
            sequence: 1,
            slot: 2,
            highest_slot: 3,
            cache: true,
        },
        Args::Read {
            stateid: STATE,
            offset: 1,
            count: 2,
        },
    ];
    all.extend(
        [
            StableHow::Unstable,
            StableHow::DataSync,
            StableHow::FileSync,
        ]
        .map(|stable| Args::Write {
            stateid: ANONYMOUS,
            offset: 7,
            stable,
            data: data(b"odd"),
        }),
    );
    all.extend(
        [
            CreateKind::Link(b"target"),
            CreateKind::Block([1, 2]),
            CreateKind::Character([3, 4]),
            CreateKind::Plain(2),
        ]
        .map(create),
    );
    all.extend(
        [
            OpenCreate::No,
            OpenCreate::Unchecked(list),
            OpenCreate::Guarded(list),
            OpenCreate::Exclusive(8, None),
            OpenCreate::Exclusive(8, Some(FileAttributes::default())),
        ]
        .map(|create| open(create, OpenClaim::Null(name))),
    );
    all.extend(
        [
            OpenClaim::Previous(0),
            OpenClaim::DelegateCur(STATE, name),
            OpenClaim::DelegatePrev(name),
            OpenClaim::Fh,
            OpenClaim::DelegCurFh(STATE),
            OpenClaim::DelegPrevFh,
        ]
        .map(|claim| open(OpenCreate::No, claim)),
    );
    let new = Locker::New {
        open: STATE,
        client: 1,
        owner: b"process",
    };
    let test = Args::Lockt {
        kind: 1,
        offset: 3,
        length: u64::MAX,
        client: 5,
        owner: b"process",
    };
    all.extend([lock(new), lock(Locker::Old(STATE)), test]);
    all
}

/// The operation with its data at position 0, wherever it was in the message.
fn unplaced<'a>(args: Args<'a>) -> Args<'a> {
    match args {
        Args::Write {
            stateid,
            offset,
            stable,
            data,
        } => Args::Write {
            stateid,
            offset,
            stable,
            data: FileData { at: 0, ..data },
        },
        args => args,
    }
}

/// All operations survive a round trip in one compound, and a compound truncated at any byte is incomplete.
#[test]
fn operations_survive() {
    let list = list();
    let sent = operations(list.as_attributes());
    let mut bytes = Vec::new();
    CompoundArgs::begin(&mut bytes, 1, sent.len() as u32);
    sent.iter().for_each(|args| args.encode(&mut bytes));
    let call = CompoundArgs::parse(&mut Cursor::new(&bytes)).unwrap();
    assert_eq!((call.tag, call.minor_version), (&b""[..], 1));
    let mut operations = call.operations();
    let got: Vec<Args<'_>> = operations
        .by_ref()
        .map(|args| unplaced(args.unwrap()))
        .collect();
    assert_eq!((got, operations.rest()), (sent, &[][..]));
    for end in 0..bytes.len() {
        let error = match CompoundArgs::parse(&mut Cursor::new(&bytes[..end])) {
            Ok(call) => call.operations().find_map(Result::err),
            Err(error) => Some(error),
        };
        assert!(
            matches!(error, Some(ParseError::Incomplete(need)) if need > end),
            "{end}: {error:?}"
        );
    }
}

/// The results of all operations, including those without any.
fn results<'a>(attributes: FileAttributes<'a>, entries: Entries<'a>) -> Vec<OpResult<'a>> {
    let directory = ChangeInfo {
        atomic: true,
        before: 1,
        after: 2,
    };
    let ok = |op: Op, body| OpResult {
        number: op as u32,
        status: Status::OK,
        body,
    };
    vec![
        ok(
            Op::Sequence,
            ResultBody::Sequence {
                session: SESSION,
                sequence: 1,
                slot: 2,
                highest_slot: 3,
                target_highest_slot: 4,
                flags: 5,
            },
        ),
        ok(Op::Putfh, ResultBody::Empty),
        ok(Op::Setattr, ResultBody::Empty),
        ok(
            Op::Access,
            ResultBody::Access {
                supported: 1,
                access: 2,
            },
        ),
        ok(Op::Getattr, ResultBody::Getattr { attributes }),
        ok(
            Op::Getfh,
            ResultBody::Getfh {
                object: FileHandle(b"handle"),
            },
        ),
        ok(Op::Create, ResultBody::Changed { directory }),
        ok(Op::Remove, ResultBody::Changed { directory }),
        ok(
            Op::Rename,
            ResultBody::Rename {
                from: directory,
                to: directory,
            },
        ),
        ok(Op::Close, ResultBody::State { stateid: STATE }),
        ok(
            Op::Readdir,
            ResultBody::Readdir {
                verifier: 1,
                entries,
                eof: true,
            },
        ),
        ok(Op::Readlink, ResultBody::Readlink { target: b"path" }),
        ok(
            Op::Write,
            ResultBody::Write {
                count: 1,
                committed: StableHow::DataSync,
                verifier: 2,
            },
        ),
        ok(Op::Commit, ResultBody::Commit { verifier: 3 }),
        ok(
            Op::Open,
            ResultBody::Open {
                stateid: STATE,
                directory,
                flags: 6,
                delegation: Delegation::None(None),
            },
        ),
        ok(
            Op::ExchangeId,
            ResultBody::ExchangeId {
                client: 1,
                sequence: 2,
                flags: 3,
            },
        ),
        ok(
            Op::CreateSession,
            ResultBody::CreateSession {
                session: SESSION,
                sequence: 1,
                flags: 2,
                fore: channel(30),
                back: channel(40),
            },
        ),
        ok(Op::Lock, ResultBody::State { stateid: STATE }),
        ok(Op::Lockt, ResultBody::Empty),
        OpResult {
            number: Op::Lockt as u32,
            status: Status::DENIED,
            body: ResultBody::Denied {
                offset: 1,
                length: u64::MAX,
                kind: 2,
                client: 3,
                owner: b"process",
            },
        },
        OpResult {
            number: Op::Lookup as u32,
            status: Status(2),
            body: ResultBody::Empty,
        },
    ]
}

#[test]
fn results_survive() {
    let list = list();
    let mut memory = Vec::new();
    let entry = |cookie, name| Entry {
        cookie,
        name,
        attributes: list.as_attributes(),
    };
    let entries = [entry(3, &b"one"[..]), entry(9, b"another")];
    let entries = Entries::of(&entries, &mut memory).unwrap();
    assert_eq!(entries.count(), 2);
    let sent = results(list.as_attributes(), entries);
    let mut bytes = Vec::new();
    CompoundResults::begin(&mut bytes, Status(2), sent.len() as u32);
    sent.iter().for_each(|result| result.encode(&mut bytes));
    let reply = CompoundResults::parse(&mut Cursor::new(&bytes)).unwrap();
    assert_eq!((reply.status, reply.tag), (Status(2), &b""[..]));
    let mut results = reply.operations();
    let got: Vec<OpResult<'_>> = results.by_ref().map(Result::unwrap).collect();
    assert_eq!((got, results.rest()), (sent, &[][..]));
}

/// [`FileAttributes::parse`] reads what [`AttributeList`] writes.
#[test]
fn attributes_survive() {
    let list = list();
    let found = list.as_attributes().parse();
    assert_eq!((found.size, found.mode), (Some(77), Some(0o644)));
    let time = NfsTime {
        seconds: -1,
        nseconds: 5,
    };
    assert_eq!(found.time_modify_set, Some(SetTime::ClientTime(time)));
    assert_eq!(found.unparsed, None);
    let mode = list.as_attributes().find(33).map(|mut cur| cur.u32());
    assert_eq!(mode, Some(Ok(0o644)));
    assert!(list.as_attributes().find(20).is_none());
    let mask = Bitmap::of(&MASK);
    assert_eq!(mask.iter().collect::<Vec<_>>(), [1, 4, 33]);
}
