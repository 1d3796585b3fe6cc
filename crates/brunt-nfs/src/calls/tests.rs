use std::time::Duration;

use brunt_core::Nanos;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, Attributes, Procedure, ResultBody, Results, Status, parse_args};
use brunt_wire::rpc::{
    AuthFlavor, OpaqueAuth, RecordMark, ReplyStatus, RpcCall, RpcMessage, RpcReply, Xid, parse,
};
use brunt_wire::{Cursor, FileData, Malformed, ParseError};

use super::*;
use crate::rpc::{NfsViolation, REPLY_HEAD_BYTES_MAX, sys_credentials};
use crate::v41::NfsScratch;

const DATA_BYTES_MAX: u32 = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(30);

fn calls(depth: u32, tries: u32) -> NfsCalls {
    let mut calls = NfsCalls::new(NfsCallsConfig {
        depth,
        timeout: TIMEOUT,
        tries,
        credentials: sys_credentials(7, 8),
        data_bytes_max: DATA_BYTES_MAX,
        first_xid: 0x00ab_cdef,
        client: None,
    });
    calls.attach(None, Nanos(0));
    calls
}

fn read(count: u32) -> Args<'static> {
    Args::Read {
        file: FileHandle(b"file"),
        offset: 8192,
        count,
    }
}

fn commit() -> Args<'static> {
    Args::Commit {
        file: FileHandle(b"file"),
        offset: 0,
        count: 0,
    }
}

/// Starts a call and sends it; returns its xid.
fn send(calls: &mut NfsCalls, index: u16, args: &Args<'_>) -> Xid {
    calls.start(index, args, NfsPayload::None, Nanos(0));
    assert_eq!(calls.pull().unwrap().call, index);
    header(calls.head(index)).xid
}

fn header(head: &[u8]) -> RpcCall<'_> {
    match parse(&head[4..]).unwrap() {
        RpcMessage::Call(call) => call,
        RpcMessage::Reply(_) => panic!("a client sends calls"),
    }
}

fn accepted(xid: Xid, status: ReplyStatus) -> Vec<u8> {
    verified(xid, status, AuthFlavor::None, &[])
}

fn verified(xid: Xid, status: ReplyStatus, flavor: AuthFlavor, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    RpcReply {
        xid,
        status,
        verifier: Some(OpaqueAuth { flavor, body }),
        body_at: 0,
    }
    .encode(&mut record);
    record
}

fn success(xid: Xid, procedure: Procedure, results: Results<'_>) -> Vec<u8> {
    let mut record = accepted(xid, ReplyStatus::Success);
    results.encode(procedure, &mut record);
    record
}

fn read_results(data: &[u8], eof: bool) -> Results<'_> {
    let count = data.len() as u32;
    let data = FileData {
        at: 0,
        len: count,
        bytes: data,
    };
    Results {
        status: Status::OK,
        body: ResultBody::Read {
            attributes: None,
            count,
            eof,
            data,
        },
    }
}

fn marked(record: &[u8]) -> Vec<u8> {
    let mark = RecordMark {
        len: record.len() as u32,
        last: true,
    };
    [&mark.to_bytes()[..], record].concat()
}

/// Passes received bytes to the calls, as a driver does.
fn arrive(calls: &NfsCalls, bytes: &[u8]) -> Result<NfsIncoming, NfsViolation> {
    let incoming = calls.examine(bytes)?;
    if let NfsIncoming::Reply { call, len } = incoming {
        calls.results(call, &bytes[4..4 + len], &mut NfsScratch::default())?;
    }
    Ok(incoming)
}

/// Calls have the requested arguments and identity.
#[test]
fn a_call_carries_its_arguments_and_identity() {
    let mut calls = calls(4, 2);
    send(&mut calls, 2, &read(4096));
    let head = calls.head(2);
    let mark = RecordMark::from_bytes(*head.first_chunk().unwrap());
    assert_eq!(
        mark,
        RecordMark {
            len: head.len() as u32 - 4,
            last: true
        }
    );
    let call = header(head);
    assert_eq!(
        (call.program, call.version, call.procedure),
        (100_003, 3, 6)
    );
    let sys = call.credentials.sys().unwrap();
    assert_eq!((sys.uid, sys.gid, sys.groups), (7, 8, &[][..]));
    let args = parse_args(Procedure::Read, &mut Cursor::new(&head[4 + call.body_at..]));
    assert_eq!(args, Ok(read(4096)));
    calls.start(
        1,
        &Args::Write {
            file: FileHandle(b"file"),
            offset: 0,
            count: 5,
            stable: brunt_wire::nfs::v3::StableHow::FileSync,
            data: FileData {
                at: 0,
                len: 5,
                bytes: &[],
            },
        },
        NfsPayload::Buf { start: 0, len: 5 },
        Nanos(0),
    );
    let out = calls.pull().unwrap();
    assert_eq!((out.call, out.padding), (1, 3));
    let mark = RecordMark::from_bytes(*calls.head(1).first_chunk().unwrap());
    assert_eq!(
        mark.len as usize,
        calls.head(1).len() - 4 + 8,
        "data and padding count"
    );
}

/// Replies come in any order, and each xid is used once.
#[test]
fn replies_are_matched_by_their_xid() {
    let mut calls = calls(8, 2);
    let xids: Vec<Xid> = (0..8)
        .map(|index| send(&mut calls, index, &commit()))
        .collect();
    let body = ResultBody::Commit {
        wcc: Default::default(),
        verifier: 9,
    };
    for index in [3u16, 0, 7, 1, 6, 2, 5, 4] {
        let xid = xids[usize::from(index)];
        let bytes = marked(&success(
            xid,
            Procedure::Commit,
            Results {
                status: Status::OK,
                body,
            },
        ));
        let expected = NfsIncoming::Reply {
            call: index,
            len: bytes.len() - 4,
        };
        assert_eq!(arrive(&calls, &bytes), Ok(expected));
        calls.end(index);
        assert_eq!(
            arrive(&calls, &bytes),
            Err(NfsViolation::Xid(xid.0)),
            "the second reply"
        );
    }
    let again = send(&mut calls, 3, &commit());
    assert!(!xids.contains(&again));
}

/// What a server sends, and how it is understood. All but the first cases are violations.
#[test]
fn hostile_replies_are_violations() {
    let mut calls = calls(4, 2);
    let xid = send(&mut calls, 1, &read(8));
    let commit_xid = send(&mut calls, 2, &commit());
    let ok = success(xid, Procedure::Read, read_results(b"12345678", false));
    let whole = |record: &[u8]| {
        Ok(NfsIncoming::Reply {
            call: 1,
            len: record.len(),
        })
    };
    let check = |what: &str, record: &[u8], expected: Result<NfsIncoming, NfsViolation>| {
        assert_eq!(arrive(&calls, &marked(record)), expected, "{what}");
    };
    let operation = "READ";
    check("a reply", &ok, whole(&ok));
    let failed = Results {
        status: Status::STALE,
        body: ResultBody::Failed {
            attributes: None,
            wcc: Default::default(),
        },
    };
    let stale = success(xid, Procedure::Read, failed);
    check("a status", &stale, whole(&stale));
    let denied = accepted(xid, ReplyStatus::AuthError(5));
    check("a refusal", &denied, whole(&denied));
    let short_verifier = [
        verified(xid, ReplyStatus::Success, AuthFlavor::Short, &[1; 400]),
        ok[24..].to_vec(),
    ]
    .concat();
    check(
        "the longest verifier",
        &short_verifier,
        whole(&short_verifier),
    );

    check(
        "another xid",
        &accepted(Xid(xid.0 ^ 0x4000_0000), ReplyStatus::Success),
        Err(NfsViolation::Xid(xid.0 ^ 0x4000_0000)),
    );
    check(
        "an index beyond the depth",
        &accepted(Xid(4000), ReplyStatus::Success),
        Err(NfsViolation::Xid(4000)),
    );
    check(
        "no xid",
        &[1, 2, 3],
        Err(NfsViolation::NotRpc(ParseError::Incomplete(4))),
    );
    check(
        "no header",
        &ok[..12],
        Err(NfsViolation::NotRpc(ParseError::Incomplete(16))),
    );
    let mut call = ok.clone();
    call[4..8].copy_from_slice(&[0; 4]);
    check("a call", &calls.head(1)[4..], Err(NfsViolation::Call));
    let gss = verified(xid, ReplyStatus::Success, AuthFlavor::Gss, b"token");
    check(
        "a wrong verifier",
        &gss,
        Err(NfsViolation::Verifier {
            operation,
            flavor: 6,
        }),
    );
    let long_verifier = [&ok[..12], &[0, 0, 0, 0, 0, 0, 1, 0x91], &[0; 404]].concat();
    let malformed = Malformed::new(16, "credentials longer than 400 bytes");
    check(
        "a verifier of 401 bytes",
        &long_verifier,
        Err(NfsViolation::NotRpc(malformed.into())),
    );
    for end in 24..ok.len() {
        let cut = arrive(&calls, &marked(&ok[..end]));
        assert!(
            matches!(
                cut,
                Err(NfsViolation::Short {
                    operation: "READ",
                    ..
                })
            ),
            "cut at {end}: {cut:?}"
        );
    }
    check(
        "more than results",
        &[&ok[..], &[0; 4]].concat(),
        Err(NfsViolation::Excess {
            operation,
            bytes: 4,
        }),
    );
    let more = success(xid, Procedure::Read, read_results(b"123456789", false));
    check(
        "too much data",
        &more,
        Err(NfsViolation::Count {
            operation,
            answered: 9,
            asked: 8,
        }),
    );
    let mut lying = ok.clone();
    lying[35] = 7;
    check(
        "a wrong count",
        &lying,
        Err(NfsViolation::Count {
            operation,
            answered: 8,
            asked: 7,
        }),
    );
    let mut maybe = ok.clone();
    maybe[31] = 2;
    let source = Malformed::new(4, "boolean is neither 0 nor 1");
    check(
        "no boolean",
        &maybe,
        Err(NfsViolation::Malformed { operation, source }),
    );
    let long = vec![0; DATA_BYTES_MAX as usize];
    let long = [&commit_xid.0.to_be_bytes()[..], &long].concat();
    let limit = REPLY_HEAD_BYTES_MAX;
    check(
        "a long COMMIT",
        &long,
        Err(NfsViolation::Long {
            bytes: long.len() as u64,
            limit,
        }),
    );
}

/// A bad record mark is rejected before any of the record has arrived.
#[test]
fn a_mark_of_two_gib_is_refused_at_once() {
    let mut calls = calls(1, 2);
    send(&mut calls, 0, &read(8));
    let limit = DATA_BYTES_MAX + REPLY_HEAD_BYTES_MAX;
    for (mark, bytes) in [
        ([0xff; 4], 0x7fff_ffff),
        ([0x80, 1, 4, 1], u64::from(limit) + 1),
    ] {
        assert_eq!(
            calls.examine(&mark),
            Err(NfsViolation::Long { bytes, limit })
        );
    }
    assert_eq!(calls.examine(&[0x80, 1, 4, 0]), Ok(NfsIncoming::More));
}

/// Handles longer than 64 bytes are malformed, whichever call returns them.
#[test]
fn long_handles_are_malformed() {
    let mut calls = calls(1, 2);
    let args = Args::Lookup {
        what: brunt_wire::nfs::v3::DirOp {
            dir: FileHandle(b"dir"),
            name: b"name",
        },
    };
    let xid = send(&mut calls, 0, &args);
    let handle = [5; 128];
    let check = |len: usize, expected: Result<(), NfsViolation>| {
        let body = ResultBody::Lookup {
            object: FileHandle(&handle[..len]),
            attributes: None,
            dir: None,
        };
        let record = success(
            xid,
            Procedure::Lookup,
            Results {
                status: Status::OK,
                body,
            },
        );
        assert_eq!(
            arrive(&calls, &marked(&record)).map(drop),
            expected,
            "{len}"
        );
    };
    check(64, Ok(()));
    let source = Malformed::new(4, "file handle longer than 64 bytes");
    for len in [65, 128] {
        check(
            len,
            Err(NfsViolation::Malformed {
                operation: "LOOKUP",
                source,
            }),
        );
    }
}

/// The data of a long READ is found as soon as the bytes before it have arrived, regardless of their values.
#[test]
fn data_is_placed_before_it_has_arrived() {
    let mut calls = calls(1, 2);
    let xid = send(&mut calls, 0, &read(50_000));
    let (data, attributes) = (vec![3; 49_999], Attributes::default());
    let len = data.len() as u32;
    for attributes in [None, Some(&attributes)] {
        let data = FileData {
            at: 0,
            len,
            bytes: &data,
        };
        let body = ResultBody::Read {
            attributes,
            count: len,
            eof: true,
            data,
        };
        let bytes = marked(&success(
            xid,
            Procedure::Read,
            Results {
                status: Status::OK,
                body,
            },
        ));
        let head_len = bytes.len() - 50_000;
        for end in 0..bytes.len() {
            let expected = match end < head_len {
                true => NfsIncoming::More,
                false => NfsIncoming::Data(NfsReadData {
                    call: 0,
                    head_len,
                    len,
                    padding: 1,
                    eof: true,
                    opened: None,
                }),
            };
            assert_eq!(calls.examine(&bytes[..end]), Ok(expected), "{end}");
        }
        let mut longer = bytes.clone();
        longer[..4].copy_from_slice(
            &RecordMark {
                len: bytes.len() as u32,
                last: true,
            }
            .to_bytes(),
        );
        assert_eq!(
            calls.examine(&longer[..2000]),
            Err(NfsViolation::Excess {
                operation: "READ",
                bytes: 4
            })
        );
    }
    let mut failed = accepted(xid, ReplyStatus::Success);
    failed.extend_from_slice(&70u32.to_be_bytes());
    failed.resize(40_000, 0);
    let long = NfsViolation::Long {
        bytes: 40_000,
        limit: REPLY_HEAD_BYTES_MAX,
    };
    assert_eq!(
        calls.examine(&marked(&failed)[..2000]),
        Err(long),
        "only data makes a reply long"
    );
}

/// A record in fragments is collected, with the same limits.
#[test]
fn fragments_are_collected() {
    let mut calls = calls(1, 2);
    let xid = send(&mut calls, 0, &read(8));
    let record = success(xid, Procedure::Read, read_results(b"12345678", false));
    let fragment = |bytes: &[u8], last| {
        let mark = RecordMark {
            len: bytes.len() as u32,
            last,
        };
        [&mark.to_bytes()[..], bytes].concat()
    };
    let bytes = [
        fragment(&record[..5], false),
        fragment(&record[5..], true),
        vec![9],
    ]
    .concat();
    let mut at = 0;
    for byte in 0..bytes.len() - 1 {
        assert_eq!(
            calls.examine(&bytes[at..byte + 1]),
            if byte < 3 {
                Ok(NfsIncoming::More)
            } else {
                Ok(NfsIncoming::Fragments)
            }
        );
        if byte < 3 {
            continue;
        }
        let NfsCollected {
            consumed,
            reply: complete,
        } = calls.collect(&bytes[at..byte + 1]).unwrap();
        at += consumed;
        assert_eq!(complete.is_some(), byte == bytes.len() - 2);
        if let Some((call, collected)) = complete {
            assert_eq!((call, &collected), (0, &record));
            assert!(matches!(
                calls.results(call, &collected, &mut NfsScratch::default()),
                Ok(NfsReply::Results(_))
            ));
        }
    }
    let long = fragment(&vec![0; 70_000], false);
    assert!(matches!(
        calls.collect(&long),
        Err(NfsViolation::Long { bytes: 70_000, .. })
    ));
}

/// After a loss, calls are resent in order with the same bytes; each has a limited number of attempts.
#[test]
fn calls_are_sent_again_with_the_same_xid() {
    let mut calls = calls(4, 3);
    for index in [2, 0, 1] {
        calls.start(index, &commit(), NfsPayload::None, Nanos(0));
    }
    let heads: Vec<Vec<u8>> = (0..3).map(|index| calls.head(index).to_vec()).collect();
    assert_eq!(calls.pull().unwrap().call, 2);
    assert_eq!(calls.pull().unwrap().call, 0);
    assert_eq!((calls.is_waiting(0), calls.is_waiting(1)), (false, true));
    for round in 0..2 {
        assert_eq!(calls.detach(), []);
        assert!(
            calls.pull().is_none(),
            "without a connection nothing is sent"
        );
        calls.attach(None, Nanos(1));
        let order: Vec<u16> = std::iter::from_fn(|| calls.pull())
            .map(|out| out.call)
            .collect();
        assert_eq!(order, [2, 0, 1], "round {round}");
        assert!((0..3).all(|index| calls.head(index) == heads[usize::from(index)]));
    }
    assert_eq!(calls.replays(), 5);
    let gone = calls.detach();
    assert_eq!(
        gone,
        [(0, NfsUnanswered::Lost), (2, NfsUnanswered::Lost)],
        "three attempts each"
    );
}

/// A call without an answer ends the connection once its time limit has passed, and not before.
#[test]
fn a_late_call_costs_the_connection() {
    let mut calls = calls(2, 1);
    let end = Nanos(0).after(TIMEOUT);
    calls.start(0, &commit(), NfsPayload::None, Nanos(5));
    calls.pull().unwrap();
    assert_eq!(calls.deadline(), end, "the first look is early");
    calls.on_time(end);
    assert_eq!(
        (calls.lost(), calls.deadline()),
        (None, Nanos(5).after(TIMEOUT))
    );
    calls.on_time(Nanos(5).after(TIMEOUT));
    assert_eq!(
        (calls.lost(), calls.timeouts()),
        (Some(NfsLoss::Late("COMMIT")), 1)
    );
    assert!(calls.pull().is_none());
    assert_eq!(calls.detach(), [(0, NfsUnanswered::TimedOut)]);
    assert_eq!(calls.deadline(), Nanos::MAX);
}
