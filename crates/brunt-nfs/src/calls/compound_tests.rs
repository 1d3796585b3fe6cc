//! NFSv4.1 calls to a server that this file emulates. The server reads each call, and leaves some unanswered.

use std::time::Duration;

use brunt_core::Nanos;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, ResultBody, Results};
use brunt_wire::nfs::v4::{self, CompoundArgs, CompoundResults, Op, OpResult};
use brunt_wire::rpc::{
    AuthFlavor, OpaqueAuth, RecordMark, ReplyStatus, RpcMessage, RpcReply, Xid, parse,
};
use brunt_wire::{Cursor, FileData};

use super::*;
use crate::rpc::{NfsViolation, sys_credentials};
use crate::v41::NfsScratch;

const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const OK: v4::Status = v4::Status::OK;

pub(super) fn grant(session: u8, slots: u32) -> NfsGrant {
    NfsGrant {
        client: 1,
        session: [session; 16],
        slots,
        write_bytes_max: 1 << 20,
        read_bytes_max: 1 << 20,
        operations: 64,
        lease: Duration::from_secs(90),
    }
}

pub(super) struct Client {
    pub(super) calls: NfsCalls,
    pub(super) client: NfsClient,
}

/// How a call identifies itself: its xid and its SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    xid: Xid,
    session: [u8; 16],
    pub(super) sequence: u32,
    slot: u32,
    cache: bool,
}

impl Client {
    /// A client for this many concurrent calls, in a session with this many slots.
    pub(super) fn new(depth: u32, slots: u32) -> Client {
        let client = NfsClient::new(depth, 1);
        let mut calls = NfsCalls::new(NfsCallsConfig {
            depth,
            timeout: TIMEOUT,
            tries: 2,
            credentials: sys_credentials(7, 8),
            data_bytes_max: 64 << 10,
            first_xid: 9,
            client: Some(client.clone()),
        });
        calls.attach(Some(&grant(1, slots)), Nanos(0));
        Client { calls, client }
    }

    pub(super) fn start(&mut self, index: u16, args: &Args<'_>, now: Nanos) {
        self.calls.start(index, args, NfsPayload::None, now);
    }

    /// Sends all calls that can be sent now; returns their indexes.
    pub(super) fn send(&mut self) -> Vec<u16> {
        std::iter::from_fn(|| self.calls.pull().map(|out| out.call)).collect()
    }

    pub(super) fn sent(&self, index: u16) -> Sent {
        let xid = Xid(u32::from_be_bytes(
            self.calls.head(index)[4..8].try_into().unwrap(),
        ));
        let sent = self.operations(index, |args| match args {
            v4::Args::Sequence {
                session,
                sequence,
                slot,
                cache,
                ..
            } => Some(Sent {
                xid,
                session: *session,
                sequence,
                slot,
                cache,
            }),
            _ => None,
        });
        sent[0].expect("SEQUENCE is the first operation")
    }

    /// The operations of a call.
    pub(super) fn operations<T>(&self, index: u16, map: impl Fn(v4::Args<'_>) -> T) -> Vec<T> {
        operations_in(self.calls.head(index), map)
    }

    /// A reply with these results after the result of SEQUENCE.
    pub(super) fn reply(&self, index: u16, more: &[OpResult<'_>]) -> Vec<u8> {
        let sent = self.sent(index);
        let body = v4::ResultBody::Sequence {
            session: &sent.session,
            sequence: sent.sequence,
            slot: sent.slot,
            highest_slot: 99,
            target_highest_slot: 99,
            flags: 0,
        };
        let first = result(Op::Sequence, OK, body);
        let results: Vec<OpResult<'_>> = [first].into_iter().chain(more.iter().copied()).collect();
        record(sent.xid, &results)
    }

    /// A reply in which SEQUENCE fails.
    fn refusal(&self, index: u16, status: u32) -> Vec<u8> {
        let failed = result(Op::Sequence, v4::Status(status), v4::ResultBody::Empty);
        record(self.sent(index).xid, &[failed])
    }

    /// Receives a record; if it ends a call, returns the status of that call's results.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        now: Nanos,
    ) -> Result<Option<u32>, NfsViolation> {
        let call = match self.calls.examine(bytes)? {
            NfsIncoming::Reply { call, len } if len + 4 == bytes.len() => call,
            other => panic!("{other:?}"),
        };
        if self.calls.settle(call, &bytes[4..], now)? {
            return Ok(None);
        }
        let mut scratch = NfsScratch::default();
        let status = match self.calls.results(call, &bytes[4..], &mut scratch)? {
            NfsReply::Results(Results { status, .. }) => status.0,
            NfsReply::Refused(_) => u32::MAX,
        };
        self.calls.end(call);
        Ok(Some(status))
    }
}

/// The operations in a whole call.
pub(super) fn operations_in<T>(record: &[u8], map: impl Fn(v4::Args<'_>) -> T) -> Vec<T> {
    let mark = RecordMark::from_bytes(*record.first_chunk().unwrap());
    assert_eq!((mark.last, mark.len as usize), (true, record.len() - 4));
    let RpcMessage::Call(call) = parse(&record[4..]).unwrap() else {
        panic!("a client sends calls")
    };
    assert_eq!((call.version, call.procedure), (4, 1));
    let compound = CompoundArgs::parse(&mut Cursor::new(&record[4 + call.body_at..])).unwrap();
    assert_eq!(compound.minor_version, 1);
    let operations: Vec<T> = compound
        .operations()
        .map(|args| map(args.unwrap()))
        .collect();
    assert_eq!(compound.count as usize, operations.len());
    operations
}

pub(super) fn result(op: Op, status: v4::Status, body: v4::ResultBody<'_>) -> OpResult<'_> {
    OpResult {
        number: op as u32,
        status,
        body,
    }
}

fn record(xid: Xid, results: &[OpResult<'_>]) -> Vec<u8> {
    let mut out = vec![0; 4];
    RpcReply {
        xid,
        status: ReplyStatus::Success,
        verifier: Some(OpaqueAuth {
            flavor: AuthFlavor::None,
            body: &[],
        }),
        body_at: 0,
    }
    .encode(&mut out);
    let status = results.last().map_or(OK, |last| last.status);
    CompoundResults::begin(&mut out, status, results.len() as u32);
    results.iter().for_each(|result| result.encode(&mut out));
    finish_record(&mut out, 0);
    out
}

fn commit() -> Args<'static> {
    Args::Commit {
        file: FileHandle(b"file"),
        offset: 0,
        count: 0,
    }
}

fn committed() -> [OpResult<'static>; 2] {
    [
        result(Op::Putfh, OK, v4::ResultBody::Empty),
        result(Op::Commit, OK, v4::ResultBody::Commit { verifier: 5 }),
    ]
}

fn remove() -> Args<'static> {
    Args::Remove {
        object: brunt_wire::nfs::v3::DirOp {
            dir: FileHandle(b"dir"),
            name: b"name",
        },
    }
}

/// As many calls are outstanding as there are slots; the next call takes the first slot that becomes free.
#[test]
fn each_call_under_way_has_its_slot() {
    let mut client = Client::new(4, 2);
    for index in 0..3 {
        client.start(index, &commit(), Nanos(0));
    }
    assert_eq!(client.send(), [0, 1]);
    let slots = [0, 1]
        .map(|index| client.sent(index))
        .map(|sent| (sent.slot, sent.sequence));
    assert_eq!(slots, [(0, 1), (1, 1)]);
    assert!(!client.sent(0).cache);
    let reply = client.reply(1, &committed());
    assert_eq!(client.receive(&reply, Nanos(1)), Ok(Some(0)));
    assert_eq!(client.send(), [2]);
    let third = client.sent(2);
    assert_eq!((third.slot, third.sequence), (1, 2));
    client.start(1, &remove(), Nanos(2));
    assert_eq!(client.send(), [0; 0], "no slot is free");
    let reply = client.reply(0, &committed());
    assert_eq!(client.receive(&reply, Nanos(3)), Ok(Some(0)));
    assert_eq!(client.send(), [1]);
    assert!(client.sent(1).cache, "REMOVE cannot be executed twice");
}

/// A call doesn't time out while it waits for a slot, and gets its full time limit once it has one.
#[test]
fn waiting_for_a_slot_costs_no_connection() {
    let mut client = Client::new(2, 1);
    client.start(0, &commit(), Nanos(0));
    client.start(1, &commit(), Nanos(0));
    assert_eq!(client.send(), [0]);
    let first = Nanos(TIMEOUT.as_nanos() as u64 - 1);
    let reply = client.reply(0, &committed());
    assert_eq!(client.receive(&reply, first), Ok(Some(0)));
    client.calls.on_time(first);
    assert_eq!(client.send(), [1]);
    client.calls.on_time(Nanos(first.0 + 5));
    assert_eq!(client.calls.lost(), None);
    client.calls.on_time(first.after(TIMEOUT));
    assert_eq!(client.calls.lost(), Some(NfsLoss::Late("COMMIT")));
}

/// On the next connection, a call is resent unchanged if the session still exists, and otherwise as a call in the new
/// session.
#[test]
fn calls_keep_their_slots_across_connections() {
    let mut client = Client::new(2, 2);
    client.start(0, &commit(), Nanos(0));
    client.start(1, &remove(), Nanos(0));
    assert_eq!(client.send(), [0, 1]);
    let before = [0, 1].map(|index| client.calls.head(index).to_vec());
    assert!(client.calls.detach().is_empty());
    client.calls.attach(Some(&grant(1, 2)), Nanos(1));
    assert_eq!(client.send(), [0, 1]);
    assert_eq!(
        [0, 1].map(|index| client.calls.head(index).to_vec()),
        before
    );
    let reply = client.refusal(0, 10052);
    assert_eq!(client.receive(&reply, Nanos(2)), Ok(None));
    let badsession = NfsLoss::Session(v4::Status(10052));
    assert_eq!(client.calls.lost(), Some(badsession));
    assert!(
        badsession
            .to_string()
            .contains("NFS4ERR_BADSESSION (10052)")
    );
    assert!(client.client.is_over() && client.calls.pull().is_none());
    // The calls' second attempt was their last.
    let given_up = client.calls.detach();
    assert_eq!(given_up.len(), 2);
    client.start(0, &commit(), Nanos(3));
    client.calls.attach(Some(&grant(2, 1)), Nanos(3));
    assert_eq!((client.calls.lost(), client.send()), (None, vec![0]));
    let sent = client.sent(0);
    assert_eq!((sent.session, sent.slot, sent.sequence), ([2; 16], 0, 1));
}

/// An abandoned call leaves a slot whose sequence number is unknown, so the session cannot continue.
#[test]
fn a_call_without_an_answer_costs_its_session() {
    let mut client = Client::new(1, 2);
    client.start(0, &commit(), Nanos(0));
    for now in 1..3 {
        client.send();
        assert!(!client.client.is_over());
        let given_up = client.calls.detach();
        assert_eq!(given_up.is_empty(), now == 1);
        client.calls.attach(Some(&grant(1, 2)), Nanos(now));
    }
    assert!(client.client.is_over());
    assert_eq!(client.calls.lost(), Some(NfsLoss::Slot));
    assert!(client.calls.detach().is_empty());
    client.calls.attach(Some(&grant(2, 2)), Nanos(3));
    assert_eq!(client.calls.lost(), None);
}

/// If a server asks to wait, the call is repeated after a pause, as a new message, until its time limit.
#[test]
fn calls_are_made_again_after_a_delay() {
    for status in [10008, 10013] {
        let mut client = Client::new(1, 1);
        client.start(0, &commit(), Nanos(0));
        client.send();
        let first = client.sent(0);
        let putfh = result(Op::Putfh, v4::Status(status), v4::ResultBody::Empty);
        let reply = client.reply(0, &[putfh]);
        assert_eq!(client.receive(&reply, Nanos(5)), Ok(None));
        assert_eq!((client.send(), client.calls.delays()), (vec![], 1));
        let resume = client.calls.deadline();
        assert_eq!(resume, Nanos(5).after(Duration::from_millis(200)));
        client.calls.on_time(resume);
        assert_eq!(client.send(), [0]);
        let second = client.sent(0);
        assert_ne!(second.xid, first.xid);
        assert_eq!(second.sequence, first.sequence + 1, "it was executed");
        // If SEQUENCE itself fails, nothing is executed and the slot's sequence number stays the same.
        let reply = client.refusal(0, 10008);
        assert_eq!(client.receive(&reply, resume), Ok(None));
        client.calls.on_time(client.calls.deadline());
        assert_eq!(client.send(), [0]);
        assert_eq!(client.sent(0).sequence, second.sequence);
        let reply = client.reply(0, &[putfh]);
        let late = Nanos(0).after(TIMEOUT);
        assert_eq!(
            client.receive(&reply, late),
            Ok(Some(status)),
            "its time is over"
        );
        assert!(!client.client.is_over());
    }
}

/// If a server has executed a call but not kept its reply, the call is sent as a new one.
#[test]
fn a_reply_that_was_not_kept_is_asked_for_again() {
    let mut client = Client::new(1, 1);
    client.start(0, &commit(), Nanos(0));
    client.send();
    let reply = client.refusal(0, 10068);
    assert_eq!(client.receive(&reply, Nanos(1)), Ok(None));
    assert_eq!(client.send(), [0]);
    assert_eq!(client.sent(0).sequence, 2);
    let reply = client.refusal(0, 10068);
    assert_eq!(
        client.receive(&reply, Nanos(2)),
        Ok(Some(10068)),
        "not for ever"
    );
}

/// An idle client renews its lease long before it expires; a busy client needs no extra call for that.
#[test]
fn an_idle_client_renews_its_lease() {
    let mut client = Client::new(2, 2);
    let third = Duration::from_secs(30);
    assert_eq!(client.calls.deadline(), Nanos(0).after(third));
    client.start(0, &commit(), Nanos(7));
    client.send();
    let reply = client.reply(0, &committed());
    assert_eq!(client.receive(&reply, Nanos(9)), Ok(Some(0)));
    let due = Nanos(9).after(third);
    client.calls.on_time(Nanos(due.0 - 1));
    assert_eq!(client.send(), [0; 0]);
    client.calls.on_time(due);
    assert_eq!(client.send(), [2], "the call after the owner's");
    let reply = client.reply(2, &[]);
    assert_eq!(
        client.receive(&reply, due),
        Ok(None),
        "the owner doesn't see it"
    );
    assert_eq!(client.calls.deadline(), due.after(third));
    assert!(client.calls.detach().is_empty());
}

/// Each violation ends the connection with an error that names the operation; nothing panics.
#[test]
fn hostile_replies_end_the_connection() {
    let check = |reply: &dyn Fn(&Client) -> Vec<u8>, words: &str| {
        let mut client = Client::new(1, 1);
        client.start(0, &commit(), Nanos(0));
        client.send();
        let reply = reply(&client);
        let error = client
            .receive(&reply, Nanos(1))
            .expect_err(words)
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    let with = |change: fn(&mut Sent)| {
        move |client: &Client| {
            let mut sent = client.sent(0);
            change(&mut sent);
            let body = v4::ResultBody::Sequence {
                session: &sent.session,
                sequence: sent.sequence,
                slot: sent.slot,
                highest_slot: 0,
                target_highest_slot: 0,
                flags: 0,
            };
            let first = result(Op::Sequence, OK, body);
            let [putfh, commit] = committed();
            record(sent.xid, &[first, putfh, commit])
        }
    };
    let slot = "SEQUENCE has another session, slot or sequence number";
    check(&with(|sent| sent.sequence += 1), slot);
    check(&with(|sent| sent.slot = 1 << 31), slot);
    check(&with(|sent| sent.session[3] ^= 1), slot);
    check(&with(|sent| sent.xid.0 ^= 1 << 20), "unknown call");
    let [putfh, done] = committed();
    check(
        &|client| client.reply(0, &[putfh]),
        "fewer results than operations",
    );
    check(
        &|client| client.reply(0, &[putfh, done, putfh]),
        "more results than operations",
    );
    check(
        &|client| client.reply(0, &[done, putfh]),
        "result is for another operation",
    );
    check(&|client| record(client.sent(0).xid, &[]), "no results");
    check(
        &|client| record(client.sent(0).xid, &[putfh, done]),
        "first result is not that of SEQUENCE",
    );
    let cut = |client: &Client| {
        let mut reply = client.reply(0, &committed());
        reply.truncate(reply.len() - 4);
        finish_record(&mut reply, 0);
        reply
    };
    check(&cut, "COMMIT: the reply is truncated");
    let long = |client: &Client| {
        let mut reply = client.reply(0, &committed());
        reply.extend([0; 8]);
        finish_record(&mut reply, 0);
        reply
    };
    check(&long, "COMMIT: the reply has 8 excess bytes");
    let tag = |client: &Client| {
        let mut reply = client.reply(0, &committed());
        // The tag's length follows the record mark, an RPC header of 24 bytes and the status.
        reply[4 + 24 + 4..][..4].fill(0xff);
        reply
    };
    check(&tag, "tag longer than 1024 bytes");
}

/// Damaged replies never panic, and a call ends at most once.
#[test]
fn damaged_compounds_never_panic() {
    let mut random = 11_u64;
    for _ in 0..20_000 {
        let mut client = Client::new(2, 2);
        let args = match random >> 62 {
            0 => remove(),
            1 => commit(),
            2 => Args::Readdirplus {
                dir: FileHandle(b"dir"),
                cookie: 0,
                cookie_verifier: 0,
                dir_count: 1024,
                max_count: 4096,
            },
            _ => Args::Getattr {
                object: FileHandle(b"file"),
            },
        };
        client.start(0, &args, Nanos(0));
        client.send();
        let mut reply = client.reply(0, &committed());
        for _ in 0..3 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = 8 + (random >> 33) as usize % (reply.len() - 8);
            reply[at] = (random >> 20) as u8;
        }
        let _ = client.receive(&reply, Nanos(1));
        client.calls.detach();
    }
}

/// The data of a READ goes to its destination, and the slot is free afterwards.
#[test]
fn data_is_placed_in_compounds_too() {
    let mut client = Client::new(1, 1);
    let read = Args::Read {
        file: FileHandle(b"file"),
        offset: 0,
        count: 4096,
    };
    client.start(0, &read, Nanos(0));
    client.send();
    let data = vec![7; 4095];
    let data = FileData {
        at: 0,
        len: 4095,
        bytes: &data,
    };
    let body = v4::ResultBody::Read { eof: true, data };
    let putfh = result(Op::Putfh, OK, v4::ResultBody::Empty);
    let reply = client.reply(0, &[putfh, result(Op::Read, OK, body)]);
    let found = (0..reply.len()).find_map(|end| match client.calls.examine(&reply[..end]) {
        Ok(NfsIncoming::More) => None,
        other => Some(other.unwrap()),
    });
    let Some(NfsIncoming::Data(placed)) = found else {
        panic!("{found:?}")
    };
    assert_eq!((placed.len, placed.padding, placed.eof), (4095, 1, true));
    assert_eq!(placed.head_len + 4096, reply.len());
    client.calls.settle_data(0, placed.opened, Nanos(1));
    client.calls.end(0);
    assert_eq!(
        (client.calls.lost(), client.client.is_over()),
        (None, false)
    );
    client.start(0, &read, Nanos(2));
    assert_eq!(client.send(), [0]);
    assert_eq!(client.sent(0).sequence, 2);
    // A reply that arrives all at once has the same results.
    let reply = client.reply(0, &[putfh, result(Op::Read, OK, body)]);
    assert!(!client.calls.settle(0, &reply[4..], Nanos(3)).unwrap());
    let mut scratch = NfsScratch::default();
    match client.calls.results(0, &reply[4..], &mut scratch) {
        Ok(NfsReply::Results(Results {
            body: ResultBody::Read { count: 4095, .. },
            ..
        })) => {}
        other => panic!("{other:?}"),
    }
}
