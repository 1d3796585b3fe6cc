use brunt_core::random::Random;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{DirOp, Wcc, parse_args};
use brunt_wire::rpc::{
    AuthFlavor, OpaqueAuth, RecordMark, ReplyStatus, RpcMessage, RpcReply, Xid, parse,
};
use brunt_wire::{Cursor, FileData};

use super::*;
use crate::calls::NfsIncoming;
use crate::device_errors::from_error;
use crate::rpc::sys_credentials;

const HANDLE: &[u8] = b"the file";

/// READ and WRITE of a file, and REMOVE of the name whose number is the offset.
#[derive(Clone, Debug)]
struct Plan;

impl NfsPlan for Plan {
    fn call<'a>(&'a self, ask: NfsAsk, names: &'a mut NfsNames) -> Args<'a> {
        let (file, offset, count) = (FileHandle(HANDLE), ask.offset, ask.len);
        match ask.op {
            Op::Read => Args::Read {
                file,
                offset,
                count,
            },
            Op::Write => Args::Write {
                file,
                offset,
                count,
                stable: StableHow::DataSync,
                data: FileData {
                    at: 0,
                    len: count,
                    bytes: &[],
                },
            },
            _ => {
                names.name.clear();
                names.name.extend_from_slice(offset.to_string().as_bytes());
                let object = DirOp {
                    dir: file,
                    name: &names.name,
                };
                Args::Remove { object }
            }
        }
    }
}

struct Bench(NfsOperations<Plan>);

fn config() -> NfsOperationsConfig {
    NfsOperationsConfig {
        depth: 4,
        timeout: Duration::from_secs(30),
        tries: 2,
        credentials: sys_credentials(0, 0),
        read_bytes_max: 8192,
        first_xid: 5,
        client: None,
    }
}

impl Bench {
    fn new() -> Bench {
        let mut session = NfsOperations::new(config(), Plan);
        session.calls().attach(None, Nanos(0));
        Bench(session)
    }

    /// Submits a request; returns its call's xid, and whether its arguments match the plan.
    fn submit(&mut self, tag: u64, op: Op, offset: u64, len: u64) -> Xid {
        let request = Request {
            tag,
            op,
            offset,
            len,
            buf: Buf::zeroed(len as usize),
            force_unit_access: false,
        };
        assert!(self.0.submit(request, Nanos(0)).is_ok());
        let out = self.0.calls().pull().unwrap();
        let head = self.0.calls().head(out.call);
        let Ok(RpcMessage::Call(call)) = parse(&head[4..]) else {
            panic!("a call")
        };
        let procedure = Procedure::from_number(call.procedure).unwrap();
        let mut cur = Cursor::new(&head[4 + call.body_at..]);
        match parse_args(procedure, &mut cur).unwrap() {
            Args::Remove { object } => assert_eq!(object.name, offset.to_string().as_bytes()),
            Args::Read { count, .. } => assert_eq!(u64::from(count), len),
            Args::Write { data, .. } => {
                let whole = NfsPayload::Buf {
                    start: 0,
                    len: len as usize,
                };
                assert_eq!((u64::from(data.len), out.payload), (len, whole));
            }
            other => panic!("{other:?}"),
        }
        call.xid
    }

    fn reply(
        &mut self,
        xid: Xid,
        procedure: Procedure,
        status: Status,
        body: ResultBody<'_>,
    ) -> Result<(), NfsViolation> {
        let record = record(xid, procedure, status, body);
        self.feed(&record)
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), NfsViolation> {
        match self.0.calls().examine(bytes)? {
            NfsIncoming::Reply { call, len } => self.0.on_reply(call, &bytes[4..4 + len], Nanos(1)),
            _ => Ok(()),
        }
    }

    fn ended(&mut self) -> Vec<(u64, Result<(), DeviceError>)> {
        let mut ended = Vec::new();
        while let Some(index) = self.0.next_answered() {
            let Completion { tag, result, .. } = self.0.retire(index);
            ended.push((tag, result));
        }
        ended
    }
}

fn record(xid: Xid, procedure: Procedure, status: Status, body: ResultBody<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    RpcReply {
        xid,
        status: ReplyStatus::Success,
        verifier: Some(OpaqueAuth {
            flavor: AuthFlavor::None,
            body: &[],
        }),
        body_at: 0,
    }
    .encode(&mut record);
    Results { status, body }.encode(procedure, &mut record);
    let mark = RecordMark {
        len: record.len() as u32,
        last: true,
    };
    [&mark.to_bytes()[..], &record].concat()
}

fn read(data: &[u8]) -> ResultBody<'_> {
    ResultBody::Read {
        attributes: None,
        count: data.len() as u32,
        eof: false,
        data: FileData {
            at: 0,
            len: data.len() as u32,
            bytes: data,
        },
    }
}

fn written(count: u32, committed: StableHow) -> ResultBody<'static> {
    ResultBody::Write {
        wcc: Wcc::default(),
        count,
        committed,
        verifier: 1,
    }
}

/// A status other than NFS3_OK ends the request with this status, even JUKEBOX.
#[test]
fn answers_end_their_requests_with_their_status() {
    let mut bench = Bench::new();
    let [good, missing, busy] = [1, 2, 3].map(|tag| bench.submit(tag, Op::Flush, tag, 0));
    let wcc = Wcc::default();
    let changed = ResultBody::Changed { wcc };
    let failed = || ResultBody::Failed {
        attributes: None,
        wcc: Default::default(),
    };
    bench
        .reply(good, Procedure::Remove, Status::OK, changed)
        .unwrap();
    bench
        .reply(missing, Procedure::Remove, Status::NOENT, failed())
        .unwrap();
    bench
        .reply(busy, Procedure::Remove, Status::JUKEBOX, failed())
        .unwrap();
    let ended = bench.ended();
    assert_eq!(ended[0], (1, Ok(())));
    for (at, status) in [(1, Status::NOENT), (2, Status::JUKEBOX)] {
        let refusal = NfsRefusal::Status(Procedure::Remove, status);
        assert_eq!(ended[at].0, at as u64 + 1);
        assert_eq!(from_error(&ended[at].1.unwrap_err()), Some(refusal));
    }
    assert_eq!(bench.0.outstanding(), 0);
}

/// A short transfer is an error, not a success with fewer bytes.
#[test]
fn short_transfers_are_errors() {
    let mut bench = Bench::new();
    let whole = bench.submit(1, Op::Read, 0, 8);
    bench
        .reply(whole, Procedure::Read, Status::OK, read(&[7; 8]))
        .unwrap();
    let short = bench.submit(2, Op::Read, 0, 8);
    bench
        .reply(short, Procedure::Read, Status::OK, read(&[7; 4]))
        .unwrap();
    let write = bench.submit(3, Op::Write, 0, 8);
    let body = written(4, StableHow::FileSync);
    bench
        .reply(write, Procedure::Write, Status::OK, body)
        .unwrap();
    let ended = bench.ended();
    assert_eq!(ended[0], (1, Ok(())));
    for (at, procedure) in [(1, Procedure::Read), (2, Procedure::Write)] {
        let refusal = NfsRefusal::Short(procedure);
        assert_eq!(from_error(&ended[at].1.unwrap_err()), Some(refusal));
    }
}

/// More data than requested, or less stable data, ends the connection; the requests are resent.
#[test]
fn violations_leave_requests_for_the_next_connection() {
    let mut bench = Bench::new();
    let write = bench.submit(1, Op::Write, 0, 8);
    let too_much = written(9, StableHow::FileSync);
    assert!(
        bench
            .reply(write, Procedure::Write, Status::OK, too_much)
            .is_err()
    );
    let mut bench = Bench::new();
    let write = bench.submit(1, Op::Write, 0, 8);
    let unstable = written(8, StableHow::Unstable);
    let found = bench.reply(write, Procedure::Write, Status::OK, unstable);
    assert_eq!(found, Err(NfsViolation::Stability));
    let mut bench = Bench::new();
    bench.submit(1, Op::Flush, 4, 0);
    bench.0.detach();
    bench.0.calls().attach(None, Nanos(2));
    assert!(bench.ended().is_empty() && bench.0.calls().pull().is_some());
    // The second attempt was its last.
    bench.0.detach();
    assert_eq!(bench.ended(), [(1, Err(DeviceError::Gone))]);
}

/// Each request ends once, regardless of the server's answer.
#[test]
fn damaged_replies_never_panic() {
    let mut random = Random::new(34);
    for _ in 0..20_000 {
        let mut bench = Bench::new();
        let (op, procedure) = match random.below(3) {
            0 => (Op::Read, Procedure::Read),
            1 => (Op::Write, Procedure::Write),
            _ => (Op::Flush, Procedure::Remove),
        };
        let xid = bench.submit(9, op, 3, if op == Op::Flush { 0 } else { 8 });
        let data = [1; 8];
        let body = match op {
            Op::Read => read(&data),
            Op::Write => written(8, StableHow::FileSync),
            _ => ResultBody::Changed {
                wcc: Wcc::default(),
            },
        };
        let mut bytes = record(xid, procedure, Status::OK, body);
        for _ in 0..=random.below(3) {
            // The record mark and the xid stay intact, so that the rest is examined.
            let at = 8 + random.below(bytes.len() as u64 - 8) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        let answered = usize::from(bench.feed(&bytes).is_ok());
        let mut ended = bench.ended().len();
        assert!(ended <= answered);
        bench.0.fail_all(DeviceError::Gone);
        ended += bench.ended().len();
        assert_eq!((ended, bench.0.outstanding()), (1, 0));
    }
}

/// A plan that uses different credentials and accepts every answer.
#[derive(Debug)]
struct Judge(std::cell::RefCell<Vec<(Status, u32)>>);

impl NfsPlan for Judge {
    fn call<'a>(&'a self, ask: NfsAsk, names: &'a mut NfsNames) -> Args<'a> {
        static PLAN: Plan = Plan;
        PLAN.call(ask, names)
    }

    fn credentials(&self, _ask: NfsAsk) -> Option<&[u8]> {
        Some(b"someone")
    }

    fn answered(&self, _ask: NfsAsk, answer: &NfsAnswer<'_>) -> bool {
        self.0.borrow_mut().push((answer.status, answer.moved));
        true
    }
}

/// A plan may choose credentials, and accept errors and short transfers.
#[test]
fn a_plan_can_judge_answers() {
    let mut session = NfsOperations::new(config(), Judge(Default::default()));
    session.calls().attach(None, Nanos(0));
    let bytes = [3; 100];
    let data = FileData {
        at: 0,
        len: 100,
        bytes: &bytes,
    };
    let short = ResultBody::Read {
        attributes: None,
        count: 100,
        eof: true,
        data,
    };
    let failed = ResultBody::Failed {
        attributes: None,
        wcc: [Wcc::default(); 2],
    };
    let answers = [
        (Op::Read, 512, Status::OK, short),
        (Op::Flush, 0, Status::NOENT, failed),
    ];
    for (tag, (op, len, status, body)) in (0..).zip(answers) {
        let request = Request {
            tag,
            op,
            offset: 7,
            len,
            buf: Buf::zeroed(len as usize),
            force_unit_access: false,
        };
        assert!(session.submit(request, Nanos(0)).is_ok());
        let out = session.calls().pull().expect("a call");
        let head = session.calls().head(out.call);
        let Ok(RpcMessage::Call(call)) = parse(&head[4..]) else {
            panic!("a call")
        };
        assert_eq!(call.credentials.body, b"someone");
        let procedure = Procedure::from_number(call.procedure).expect("a procedure");
        let reply = record(call.xid, procedure, status, body);
        session
            .on_reply(out.call, &reply[4..], Nanos(1))
            .expect("a reply");
        let index = session.next_answered().expect("it is answered");
        assert_eq!(session.retire(index).result, Ok(()));
    }
    let seen = session.plan.0.into_inner();
    assert_eq!(seen, [(Status::OK, 100), (Status::NOENT, 0)]);
}
