use brunt_wire::nfs::v3::{
    Args, Procedure, ResultBody, Results, StableHow, Status, Wcc, parse_args,
};
use brunt_wire::rpc::{
    AuthFlavor, OpaqueAuth, RecordMark, ReplyStatus, RpcMessage, RpcReply, Xid, parse,
};
use brunt_wire::{Cursor, FileData};

use super::*;
use crate::calls::{NfsIncoming, NfsPayload};
use crate::device_errors::from_error;
use crate::rpc::{NfsViolation, sys_credentials};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A disk and its output.
struct Bench {
    disk: NfsDisk,
    now: Nanos,
}

/// A call as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Read {
        offset: u64,
        count: u32,
    },
    Write {
        offset: u64,
        count: u32,
        stable: StableHow,
        payload: NfsPayload,
    },
    Commit,
}

impl Bench {
    fn new(write_back: bool) -> Bench {
        Bench::sharing(write_back, Arc::default())
    }

    fn sharing(write_back: bool, stability: Arc<NfsStability>) -> Bench {
        let config = NfsDiskConfig {
            depth: 4,
            timeout: TIMEOUT,
            tries: 2,
            write_back,
            credentials: sys_credentials(0, 0),
            first_xid: 5,
            client: None,
        };
        let file = NfsFile {
            handle: b"the file".to_vec(),
            read_bytes_max: 8192,
            write_bytes_max: 4096,
        };
        let mut disk = NfsDisk::new(config, file, stability);
        disk.attach(None, Nanos(0));
        Bench {
            disk,
            now: Nanos(0),
        }
    }

    fn submit(&mut self, tag: u64, op: Op, offset: u64, len: u64, force_unit_access: bool) {
        let buf = match op {
            Op::Read | Op::Write => Buf::zeroed(len as usize),
            _ => Buf::empty(),
        };
        let request = Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access,
        };
        assert!(self.disk.submit(request, self.now).is_ok());
    }

    /// The next call that is sent, and its xid.
    fn sent(&mut self) -> Option<(Seen, Xid)> {
        let out = self.disk.pull()?;
        let head = self.disk.calls().head(out.call);
        let Ok(RpcMessage::Call(call)) = parse(&head[4..]) else {
            panic!("a call")
        };
        let procedure = Procedure::from_number(call.procedure).unwrap();
        let seen = match parse_args(procedure, &mut Cursor::new(&head[4 + call.body_at..])).unwrap()
        {
            Args::Read { offset, count, .. } => Seen::Read { offset, count },
            Args::Write {
                offset,
                count,
                stable,
                data,
                ..
            } => {
                assert_eq!(data.len, count);
                Seen::Write {
                    offset,
                    count,
                    stable,
                    payload: out.payload,
                }
            }
            Args::Commit {
                offset: 0,
                count: 0,
                ..
            } => Seen::Commit,
            other => panic!("{other:?}"),
        };
        Some((seen, call.xid))
    }

    fn reply(
        &mut self,
        xid: Xid,
        procedure: Procedure,
        status: Status,
        body: ResultBody<'_>,
    ) -> Result<(), NfsViolation> {
        let verifier = Some(OpaqueAuth {
            flavor: AuthFlavor::None,
            body: &[],
        });
        let mut record = Vec::new();
        RpcReply {
            xid,
            status: ReplyStatus::Success,
            verifier,
            body_at: 0,
        }
        .encode(&mut record);
        Results { status, body }.encode(procedure, &mut record);
        let mark = RecordMark {
            len: record.len() as u32,
            last: true,
        };
        let bytes = [&mark.to_bytes()[..], &record].concat();
        let NfsIncoming::Reply { call, len } = self.disk.calls().examine(&bytes)? else {
            panic!("a whole record")
        };
        self.disk.on_reply(call, &bytes[4..4 + len], self.now)
    }

    fn data(&mut self, xid: Xid, data: &[u8], eof: bool) -> Result<(), NfsViolation> {
        let count = data.len() as u32;
        let data = FileData {
            at: 0,
            len: count,
            bytes: data,
        };
        self.reply(
            xid,
            Procedure::Read,
            Status::OK,
            ResultBody::Read {
                attributes: None,
                count,
                eof,
                data,
            },
        )
    }

    fn written(
        &mut self,
        xid: Xid,
        count: u32,
        committed: StableHow,
        verifier: u64,
    ) -> Result<(), NfsViolation> {
        let body = ResultBody::Write {
            wcc: Wcc::default(),
            count,
            committed,
            verifier,
        };
        self.reply(xid, Procedure::Write, Status::OK, body)
    }

    fn failed(
        &mut self,
        xid: Xid,
        procedure: Procedure,
        status: Status,
    ) -> Result<(), NfsViolation> {
        self.reply(
            xid,
            procedure,
            status,
            ResultBody::Failed {
                attributes: None,
                wcc: Default::default(),
            },
        )
    }

    /// A flush, from submission to completion.
    fn flush(&mut self, verifier: u64) -> Result<(), DeviceError> {
        self.submit(99, Op::Flush, 0, 0, false);
        let (seen, xid) = self.sent().unwrap();
        assert_eq!(seen, Seen::Commit);
        let body = ResultBody::Commit {
            wcc: Wcc::default(),
            verifier,
        };
        self.reply(xid, Procedure::Commit, Status::OK, body)
            .unwrap();
        self.done().result
    }

    /// An unstable write, from submission to completion.
    fn write(&mut self, verifier: u64) {
        self.submit(98, Op::Write, 0, 512, false);
        let (_, xid) = self.sent().unwrap();
        self.written(xid, 512, StableHow::Unstable, verifier)
            .unwrap();
        assert_eq!(self.done().result, Ok(()));
    }

    fn done(&mut self) -> Completion {
        let index = self.disk.next_answered().expect("a request has ended");
        self.disk.retire(index)
    }
}

/// Requests above the server's limits are split, and short replies are continued.
#[test]
fn reads_are_split_and_continued() {
    let mut bench = Bench::new(true);
    bench.submit(1, Op::Read, 512, 10_240, false);
    let (seen, xid) = bench.sent().unwrap();
    assert_eq!(
        seen,
        Seen::Read {
            offset: 512,
            count: 8192
        }
    );
    bench.data(xid, &[1; 8000], false).unwrap();
    let (seen, xid) = bench.sent().unwrap();
    assert_eq!(
        seen,
        Seen::Read {
            offset: 8512,
            count: 2240
        }
    );
    bench.data(xid, &[2; 2240], true).unwrap();
    let done = bench.done();
    assert_eq!(
        (done.tag, done.result),
        (1, Ok(())),
        "the end of the file may be the end of the device"
    );
    assert!(
        done.buf[..8000].iter().all(|byte| *byte == 1)
            && done.buf[8000..10_240].iter().all(|byte| *byte == 2)
    );
    assert_eq!(bench.disk.outstanding(), 0);
}

#[test]
fn writes_are_as_stable_as_they_have_to_be() {
    let check = |write_back, fua, op, expected| {
        let mut bench = Bench::new(write_back);
        bench.submit(1, op, 4096, 6144, fua);
        let (seen, xid) = bench.sent().unwrap();
        let payload = |start, len| match op {
            Op::Write => NfsPayload::Buf { start, len },
            _ => NfsPayload::Zeros(len),
        };
        assert_eq!(
            seen,
            Seen::Write {
                offset: 4096,
                count: 4096,
                stable: expected,
                payload: payload(0, 4096)
            }
        );
        bench.written(xid, 4096, StableHow::FileSync, 7).unwrap();
        let (seen, xid) = bench.sent().unwrap();
        assert_eq!(
            seen,
            Seen::Write {
                offset: 8192,
                count: 2048,
                stable: expected,
                payload: payload(4096, 2048)
            }
        );
        bench.written(xid, 2048, expected, 7).unwrap();
        assert_eq!(bench.done().result, Ok(()));
        bench.submit(2, op, 0, 512, fua);
        let (_, xid) = bench.sent().unwrap();
        let less = bench.written(xid, 512, StableHow::Unstable, 7);
        let refused = if expected == StableHow::Unstable {
            Ok(())
        } else {
            Err(NfsViolation::Stability)
        };
        assert_eq!(less, refused);
    };
    for op in [Op::Write, Op::WriteZeroes] {
        check(true, false, op, StableHow::Unstable);
        check(true, true, op, StableHow::FileSync);
        check(false, false, op, StableHow::FileSync);
    }
    let mut bench = Bench::new(true);
    bench.submit(1, Op::Unmap, 0, 512, false);
    assert_eq!(bench.done().result, Err(DeviceError::Unsupported));
}

/// Counts of zero, or above the requested ones, are violations that name the operation.
#[test]
fn counts_are_checked() {
    let mut bench = Bench::new(true);
    bench.submit(1, Op::Write, 0, 512, false);
    bench.submit(2, Op::Read, 0, 512, false);
    let ((_, write), (_, read)) = (bench.sent().unwrap(), bench.sent().unwrap());
    let count = |operation, answered| {
        Err(NfsViolation::Count {
            operation,
            answered,
            asked: 512,
        })
    };
    assert_eq!(bench.data(read, &[], false), count("READ", 0));
    assert_eq!(
        bench.written(write, 513, StableHow::FileSync, 1),
        count("WRITE", 513)
    );
    let mut bench = Bench::new(true);
    bench.submit(1, Op::Write, 0, 512, false);
    let (_, write) = bench.sent().unwrap();
    assert_eq!(
        bench.written(write, 0, StableHow::FileSync, 1),
        count("WRITE", 0)
    );
}

/// A status ends its request, and reports what failed; the connection continues.
#[test]
fn a_status_ends_its_request() {
    let mut bench = Bench::new(true);
    for number in [1, 5, 13, 28, 70, 10001, 4711] {
        bench.submit(1, Op::Write, 0, 512, false);
        let (_, xid) = bench.sent().unwrap();
        bench.failed(xid, Procedure::Write, Status(number)).unwrap();
        let error = bench.done().result.unwrap_err();
        assert_eq!(
            from_error(&error),
            Some(NfsRefusal::Status(Procedure::Write, Status(number)))
        );
    }
    assert_eq!(
        bench.disk.events().words.unwrap(),
        "WRITE: the server returned unknown status 4711"
    );
    bench.submit(1, Op::Read, 0, 1024, false);
    let (_, xid) = bench.sent().unwrap();
    bench.data(xid, &[1; 100], true).unwrap();
    assert_eq!(
        from_error(&bench.done().result.unwrap_err()),
        Some(NfsRefusal::EndOfFile),
        "the file was truncated"
    );
    assert_eq!(bench.disk.lost(), None);
}

/// Calls are repeated after NFS3ERR_JUKEBOX, with new xids, but not forever.
#[test]
fn a_storm_of_jukebox_ends() {
    let mut bench = Bench::new(true);
    bench.submit(1, Op::Read, 0, 512, false);
    let mut xids = Vec::new();
    let error = loop {
        if let Some((_, xid)) = bench.sent() {
            assert!(!xids.contains(&xid), "a new attempt has a new xid");
            xids.push(xid);
            bench.failed(xid, Procedure::Read, Status::JUKEBOX).unwrap();
        }
        if let Some(index) = bench.disk.next_answered() {
            break bench.disk.retire(index).result.unwrap_err();
        }
        bench.now = bench.disk.deadline();
        assert!(
            bench.now <= Nanos(0).after(TIMEOUT),
            "the request's time bounds the storm"
        );
        bench.disk.on_time(bench.now);
    };
    assert_eq!(
        from_error(&error),
        Some(NfsRefusal::Status(Procedure::Read, Status::JUKEBOX))
    );
    assert!(
        (149..=151).contains(&xids.len()),
        "every 200 ms for 30 s: {}",
        xids.len()
    );
    assert_eq!(bench.disk.events().replays as usize, xids.len() - 1);
}

/// A restart of the server fails the next flush of every session, if it may have lost writes. A flush in flight at that
/// time fails too.
#[test]
fn lost_writes_fail_the_next_flush_of_each_session() {
    let stability = Arc::new(NfsStability::default());
    let mut bench = Bench::sharing(true, Arc::clone(&stability));
    let mut other = Bench::sharing(true, stability);
    let lost = |result: Result<(), DeviceError>| {
        from_error(&result.unwrap_err()) == Some(NfsRefusal::LostWrites)
    };
    bench.write(1);
    assert_eq!(bench.flush(1), Ok(()));
    assert_eq!(other.flush(2), Ok(()), "everything was committed");
    bench.write(2);
    assert!(lost(bench.flush(3)));
    assert_eq!(bench.flush(3), Ok(()), "reported once");
    assert!(lost(other.flush(3)), "another session is told, too");
    bench.write(3);
    other.write(4);
    assert!(lost(bench.flush(4)), "a write has seen the restart");
    assert!(lost(other.flush(4)));
}

/// After a loss, everything is resent; after too many losses, requests end, each once.
#[test]
fn requests_survive_a_lost_connection() {
    let mut bench = Bench::new(true);
    for tag in 0..4 {
        bench.submit(tag, Op::Write, tag * 512, 512, false);
    }
    let first: Vec<_> = std::iter::from_fn(|| bench.sent()).collect();
    bench
        .written(first[0].1, 512, StableHow::Unstable, 1)
        .unwrap();
    assert_eq!(bench.done().tag, 0);
    bench.disk.detach();
    bench.disk.attach(None, Nanos(1));
    let again: Vec<_> = std::iter::from_fn(|| bench.sent()).collect();
    assert_eq!(again, first[1..], "the same calls with the same xids");
    bench.disk.detach();
    let results: Vec<_> = (0..3).map(|_| bench.done().result).collect();
    assert_eq!(results, [Err(DeviceError::Gone); 3], "two attempts each");
    bench.submit(7, Op::Read, 0, 512, false);
    bench.submit(8, Op::Read, 0, 512, false);
    bench.disk.cancel(8);
    assert_eq!(
        bench.done().result,
        Err(DeviceError::refused(RefusalKind::Cancelled))
    );
    bench.disk.fail_all(DeviceError::Gone);
    assert_eq!((bench.done().tag, bench.disk.outstanding()), (7, 0));
}
