//! Every kind of fault on a memory device with a manual clock.

use super::*;
use crate::backends::memory::MemoryBackend;
use crate::{Buf, RefusalDetail, RingConfig, open_url};

struct Bench {
    device: Box<dyn Device>,
    switch: Arc<FaultSwitch>,
    clock: Clock,
    ring: Ring,
}

impl Bench {
    fn new(faults: &[&str]) -> Bench {
        let (switch, clock) = (FaultSwitch::new("fault"), Clock::manual());
        for fault in faults {
            switch.arm(DeviceFault::parse(fault).unwrap()).unwrap();
        }
        let memory = Arc::new(MemoryBackend::new(1 << 20, 512).unwrap());
        let backend = FaultBackend::new(memory, Arc::clone(&switch), clock.clone());
        let ring = Ring::new(RingConfig::default()).unwrap();
        Bench {
            device: backend.open(&ring, 16).unwrap(),
            switch,
            clock,
            ring,
        }
    }

    fn submit(&mut self, tag: u64, op: Op, lba: u64, blocks: u64, fill: u8) {
        let len = blocks * 512;
        let mut buf = if matches!(op, Op::Read | Op::Write) {
            self.ring.pool().take(len as usize)
        } else {
            Buf::empty()
        };
        buf.fill(fill);
        let request = Request {
            tag,
            op,
            offset: lba * 512,
            len,
            buf,
            force_unit_access: false,
        };
        self.device.submit(&mut VecDeque::from([request]));
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        self.device.poll(&mut done);
        done
    }

    /// Runs one request to completion, however long it takes.
    fn one(&mut self, op: Op, lba: u64, blocks: u64, fill: u8) -> Completion {
        self.submit(9, op, lba, blocks, fill);
        for _ in 0..100 {
            if let Some(one) = self.poll().pop() {
                assert_eq!((one.tag, self.device.outstanding()), (9, 0));
                return one;
            }
            let wait = self.device.deadline().since(self.clock.now());
            self.clock.advance(wait);
        }
        panic!("the request hangs");
    }

    /// Indices of the failures among 100 reads.
    fn failures(&mut self) -> Vec<usize> {
        (0..100)
            .filter(|_| self.one(Op::Read, 0, 1, 0).result.is_err())
            .collect()
    }
}

/// An error has the right kind, names the block if it is known, and leaves the medium unchanged.
#[test]
fn errors_have_their_kind_and_location() {
    let check = |fault: &str, op: Op, kind: RefusalKind, detail: RefusalDetail| {
        let mut bench = Bench::new(&[]);
        bench.one(Op::Write, 0, 64, 0x11).result.unwrap();
        let armed = bench
            .switch
            .arm(DeviceFault::parse(fault).unwrap())
            .unwrap();
        let expected = Err(DeviceError::Refused { kind, detail });
        assert_eq!(bench.one(op, 8, 8, 0x22).result, expected, "{fault} {op:?}");
        assert_eq!((armed.injected(), bench.switch.injected()), (1, 1));
        assert!(bench.switch.disarm(armed.id) && !bench.switch.disarm(armed.id));
        let read = bench.one(Op::Read, 0, 64, 0);
        assert!(
            read.result.is_ok() && read.buf.iter().all(|byte| *byte == 0x11),
            "{fault} {op:?}"
        );
        assert_eq!(bench.switch.injected(), 1);
    };
    check(
        "medium-error",
        Op::Read,
        RefusalKind::MediumError,
        RefusalDetail::Block(8),
    );
    check(
        "medium-error,lba=10-20",
        Op::Write,
        RefusalKind::MediumError,
        RefusalDetail::Block(10),
    );
    check(
        "medium-error,op=unmap",
        Op::WriteZeroes,
        RefusalKind::MediumError,
        RefusalDetail::Block(8),
    );
    check(
        "hardware-error",
        Op::Flush,
        RefusalKind::HardwareError,
        RefusalDetail::Nothing,
    );
    check(
        "aborted-command",
        Op::Write,
        RefusalKind::Aborted,
        RefusalDetail::Nothing,
    );
    check("busy", Op::Read, RefusalKind::Busy, RefusalDetail::Nothing);
    check(
        "reservation-conflict",
        Op::Unmap,
        RefusalKind::Conflict,
        RefusalDetail::Nothing,
    );
}

#[test]
fn a_recovered_error_is_reported_and_its_request_executed() {
    let mut bench = Bench::new(&["recovered-error"]);
    let write = bench.one(Op::Write, 0, 8, 0x33);
    assert!(write.result.unwrap_err().is_recovered());
    let read = bench.one(Op::Read, 0, 8, 0);
    assert!(read.result.unwrap_err().is_recovered());
    assert!(read.buf.iter().all(|byte| *byte == 0x33));
}

#[test]
fn hits_follow_location_operation_and_count() {
    let check = |fault: &str, op: Op, lba: u64, blocks: u64, hit: bool| {
        let result = Bench::new(&[fault]).one(op, lba, blocks, 0).result;
        assert_eq!(result.is_err(), hit, "{fault}: {op:?} of {blocks} at {lba}");
    };
    check("busy,lba=10-19", Op::Read, 9, 1, false);
    check("busy,lba=10-19", Op::Read, 9, 2, true);
    check("busy,lba=10-19", Op::Read, 19, 5, true);
    check("busy,lba=10-19", Op::Read, 20, 5, false);
    check("busy,lba=10-19", Op::Flush, 0, 0, true);
    check("busy,op=write", Op::Read, 0, 1, false);
    check("busy,op=read+write", Op::Write, 0, 1, true);
    check("busy,op=unmap", Op::WriteZeroes, 0, 1, true);
    check("busy,p=0", Op::Read, 0, 1, false);
    assert_eq!(Bench::new(&["busy,every=30,times=2"]).failures(), [29, 59]);
    assert_eq!(Bench::new(&["busy,times=3"]).failures(), [0, 1, 2]);
    // The older fault applies first, then the other one to the remaining requests.
    assert_eq!(
        Bench::new(&["busy,times=1", "medium-error,times=1"]).failures(),
        [0, 1]
    );
}

/// The same seed hits the same requests, another seed others, and the number matches the probability.
#[test]
fn a_seed_determines_which_requests_are_hit() {
    let hits = |fault: &str| Bench::new(&[fault]).failures();
    let hit = hits("busy,p=0.5,seed=3");
    assert_eq!(hit, hits("busy,p=0.5,seed=3"));
    assert_ne!(hit, hits("busy,p=0.5,seed=4"));
    assert!((30..=70).contains(&hit.len()), "{}", hit.len());
}

/// Slow requests take the specified time, and faults can be changed while requests run.
#[test]
fn slow_requests_take_the_specified_time() {
    let mut bench = Bench::new(&["slow:10ms"]);
    bench.one(Op::Read, 0, 1, 0).result.unwrap();
    assert_eq!(bench.clock.now(), Nanos(10_000_000));
    bench.switch.clear();
    bench.one(Op::Read, 0, 1, 0).result.unwrap();
    assert_eq!(bench.clock.now(), Nanos(10_000_000));
    bench.switch.arm(DeviceFault::parse("slow:x3").unwrap());
    // The lower device takes no time on this clock, so the fault triples only the 2 ms that pass before the poll.
    bench.submit(1, Op::Read, 0, 1, 0);
    bench.clock.advance(Duration::from_millis(2));
    assert!(bench.poll().is_empty());
    assert_eq!(bench.device.deadline(), Nanos(16_000_000));
    bench.clock.advance(Duration::from_millis(4));
    assert_eq!((bench.poll().len(), bench.device.outstanding()), (1, 0));
}

/// A hanging request stays until its fault is removed and is then executed; if cancelled, it is aborted.
#[test]
fn a_hanging_request_waits_until_its_fault_is_removed() {
    let mut bench = Bench::new(&["hang,op=write"]);
    bench.submit(1, Op::Write, 0, 8, 0x44);
    bench.submit(2, Op::Write, 8, 8, 0x55);
    bench.submit(3, Op::Read, 0, 1, 0);
    assert_eq!(
        bench.poll().iter().map(|one| one.tag).collect::<Vec<_>>(),
        [3]
    );
    bench.clock.advance(Duration::from_secs(3600));
    assert!(bench.poll().is_empty());
    assert_eq!(bench.device.outstanding(), 2);
    bench.device.cancel(2);
    let aborted = Err(DeviceError::refused(RefusalKind::Cancelled));
    assert_eq!(
        bench
            .poll()
            .iter()
            .map(|one| (one.tag, one.result))
            .collect::<Vec<_>>(),
        [(2, aborted)]
    );
    bench.switch.clear();
    let mut done = bench.poll();
    done.extend(bench.poll());
    assert_eq!(
        done.iter()
            .map(|one| (one.tag, one.result))
            .collect::<Vec<_>>(),
        [(1, Ok(()))]
    );
    let read = bench.one(Op::Read, 0, 16, 0);
    assert!(read.buf[..4096].iter().all(|byte| *byte == 0x44));
    assert!(read.buf[4096..].iter().all(|byte| *byte == 0));
}

/// Silent faults: the request is acknowledged but not executed, partly executed, or executed wrongly; the caller's
/// buffer is returned unchanged.
#[test]
fn silent_faults_acknowledge_what_was_not_done() {
    let lie = |fault: &str| {
        let mut bench = Bench::new(&[]);
        bench.one(Op::Write, 0, 8, 0x11).result.unwrap();
        bench.switch.arm(DeviceFault::parse(fault).unwrap());
        let write = bench.one(Op::Write, 0, 8, 0x22);
        assert!(
            write.result.is_ok() && write.buf.iter().all(|byte| *byte == 0x22),
            "{fault}"
        );
        bench.switch.clear();
        bench.one(Op::Read, 0, 8, 0).buf.to_vec()
    };
    assert!(lie("drop").iter().all(|byte| *byte == 0x11));
    let torn = lie("torn:3");
    assert!(
        torn[..1536].iter().all(|byte| *byte == 0x22)
            && torn[1536..].iter().all(|byte| *byte == 0x11)
    );
    assert!(
        lie("torn:8").iter().all(|byte| *byte == 0x22),
        "eight of eight is whole"
    );
    let wrong_bits = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| (byte ^ 0x22).count_ones())
            .sum::<u32>()
    };
    assert_eq!(wrong_bits(&lie("corrupt,op=write")), 1);
    let mut bench = Bench::new(&["corrupt,op=read"]);
    bench.one(Op::Write, 0, 8, 0x22).result.unwrap();
    assert_eq!(wrong_bits(&bench.one(Op::Read, 0, 8, 0).buf), 1);
    bench.switch.clear();
    assert_eq!(wrong_bits(&bench.one(Op::Read, 0, 8, 0).buf), 0);
}

/// Errors that a controller reports when it is busy, has no medium, or has a condition to report.
#[test]
fn errors_of_a_users_choice_are_returned() {
    let check = |fault: &str, expected: DeviceError| {
        let mut bench = Bench::new(&[fault]);
        assert_eq!(
            bench.one(Op::Write, 8, 8, 0x22).result,
            Err(expected),
            "{fault}"
        );
        bench.switch.clear();
        assert!(
            bench
                .one(Op::Read, 8, 8, 0)
                .buf
                .iter()
                .all(|byte| *byte == 0),
            "{fault} did something"
        );
    };
    check("not-ready", DeviceError::refused(RefusalKind::NotReady));
    check(
        "task-set-full",
        DeviceError::refused(RefusalKind::QueueFull),
    );
    check("errno:ENOSPC", DeviceError::Os(libc::ENOSPC));
    let code = |code: [u8; 3]| RefusalDetail::Code(code);
    check(
        "sense:2/04/01",
        DeviceError::Refused {
            kind: RefusalKind::NotReady,
            detail: code([2, 4, 1]),
        },
    );
    check(
        "sense:b/4b/04",
        DeviceError::Refused {
            kind: RefusalKind::Aborted,
            detail: code([0xb, 0x4b, 4]),
        },
    );
    check(
        "sense:9/80/00",
        DeviceError::Refused {
            kind: RefusalKind::Other,
            detail: code([9, 0x80, 0]),
        },
    );
    // A request hit by a recovered error is executed, whichever way the error is written.
    let mut bench = Bench::new(&["sense:1/17/06"]);
    assert!(
        bench
            .one(Op::Write, 0, 8, 0x33)
            .result
            .unwrap_err()
            .is_recovered()
    );
    bench.switch.clear();
    assert!(
        bench
            .one(Op::Read, 0, 8, 0)
            .buf
            .iter()
            .all(|byte| *byte == 0x33)
    );
}

/// Each open device gets its unit attention once, on the first request that the fault applies to.
#[test]
fn a_unit_attention_comes_once() {
    let mut bench = Bench::new(&["unit-attention,op=read"]);
    bench.one(Op::Write, 0, 8, 0x11).result.unwrap();
    assert_eq!(bench.failures(), [0]);
    assert_eq!(bench.switch.injected(), 1);
    bench.switch.clear();
    assert!(bench.failures().is_empty());
    bench
        .switch
        .arm(DeviceFault::parse("unit-attention").unwrap());
    assert_eq!(bench.failures(), [0], "armed again it comes again");
}

/// A bad block is bad until it is written, and the cure is counted; unlisted blocks are good.
#[test]
fn writes_cure_bad_blocks() {
    let mut bench = Bench::new(&["bad-blocks,lba=4+10-11"]);
    let bad = |block| {
        Err(DeviceError::Refused {
            kind: RefusalKind::MediumError,
            detail: RefusalDetail::Block(block),
        })
    };
    assert_eq!(bench.one(Op::Read, 0, 16, 0).result, bad(4));
    assert_eq!(bench.one(Op::Read, 5, 5, 0).result, Ok(()));
    bench.one(Op::Write, 3, 2, 0x44).result.unwrap();
    assert_eq!((bench.switch.injected(), bench.switch.cured()), (1, 1));
    assert_eq!(bench.one(Op::Read, 0, 16, 0).result, bad(10));
    bench.one(Op::WriteZeroes, 10, 1, 0).result.unwrap();
    bench.one(Op::Unmap, 11, 1, 0).result.unwrap();
    assert_eq!(bench.one(Op::Read, 10, 2, 0).result, bad(11));
    bench.one(Op::Write, 11, 1, 0x55).result.unwrap();
    bench.one(Op::Write, 11, 1, 0x66).result.unwrap();
    let read = bench.one(Op::Read, 0, 16, 0);
    assert!(read.result.is_ok() && read.buf[4 * 512] == 0x44 && read.buf[11 * 512] == 0x66);
    assert_eq!((bench.switch.injected(), bench.switch.cured()), (3, 3));
    bench.switch.clear();
    assert_eq!(bench.switch.cured(), 3);
}

/// A percentage of blocks is bad, and a seed always selects the same ones.
#[test]
fn a_seed_determines_which_blocks_are_bad() {
    let bad = |fault: &str| {
        let mut bench = Bench::new(&[fault]);
        (0..2048)
            .filter(|block| bench.one(Op::Read, *block, 1, 0).result.is_err())
            .collect::<Vec<_>>()
    };
    let blocks = bad("bad-blocks:10%,seed=1");
    assert!((150..=260).contains(&blocks.len()), "{}", blocks.len());
    assert_eq!(blocks, bad("bad-blocks:10%,seed=1"));
    assert_ne!(blocks, bad("bad-blocks:10%,seed=2"));
    assert!(
        bad("bad-blocks:10%,seed=1,lba=0-99")
            .iter()
            .all(|block| *block < 100 && blocks.contains(block))
    );
}

/// A flaky device goes up and down by the clock; while down, it fails all requests or silently loses writes.
#[test]
fn a_flaky_device_goes_up_and_down_by_the_clock() {
    let mut bench = Bench::new(&["flaky:5s/2s"]);
    let mut ups = Vec::new();
    for _ in 0..16 {
        ups.push(bench.one(Op::Read, 0, 1, 0).result);
        bench.clock.advance(Duration::from_secs(1));
    }
    let (up, down) = (Ok(()), Err(DeviceError::Os(libc::EIO)));
    let cycle = [up, up, up, up, up, down, down];
    assert_eq!(
        ups,
        cycle.iter().cycle().take(16).copied().collect::<Vec<_>>()
    );
    let mut bench = Bench::new(&["flaky:5s/2s/drop"]);
    bench.one(Op::Write, 0, 1, 0x11).result.unwrap();
    bench.clock.advance(Duration::from_secs(6));
    bench.one(Op::Write, 0, 1, 0x22).result.unwrap();
    assert!(
        bench
            .one(Op::Read, 0, 1, 0)
            .buf
            .iter()
            .all(|byte| *byte == 0x11),
        "the write was not lost"
    );
    assert_eq!(bench.switch.injected(), 1);
    bench.clock.advance(Duration::from_secs(1));
    bench.one(Op::Write, 0, 1, 0x33).result.unwrap();
    assert!(
        bench
            .one(Op::Read, 0, 1, 0)
            .buf
            .iter()
            .all(|byte| *byte == 0x33)
    );
}

/// A misdirected write lands completely in one other location, and the intended location keeps its old data.
#[test]
fn misdirected_writes_land_at_another_offset() {
    let check = |fault: &str, lands: Option<u64>| {
        let mut bench = Bench::new(&[fault]);
        let write = bench.one(Op::Write, 100, 8, 0x22);
        assert!(
            write.result.is_ok() && write.buf.iter().all(|byte| *byte == 0x22),
            "{fault}"
        );
        bench.switch.clear();
        let medium = bench.one(Op::Read, 0, 2048, 0).buf;
        let hit: Vec<u64> = (0..2048)
            .filter(|block| medium[*block as usize * 512] != 0)
            .collect();
        assert_eq!(hit.len(), 8, "{fault}: {hit:?}");
        assert_eq!(hit[7] - hit[0], 7, "{fault}: {hit:?}");
        assert!(
            lands.is_none_or(|first| hit[0] == first) && hit[0] != 100,
            "{fault}: {hit:?}"
        );
        hit
    };
    check("misdirect:8", Some(108));
    check("misdirect:1950", Some((100 + 1950) % 2041));
    assert_eq!(
        check("misdirect,seed=5", None),
        check("misdirect,seed=5", None)
    );
    // If no other location exists, the write is not affected.
    let mut bench = Bench::new(&["misdirect"]);
    bench.one(Op::Write, 0, 2048, 0x77).result.unwrap();
    assert_eq!(bench.switch.injected(), 0);
}

/// Invalid requests get their usual error, and a device never takes more requests than its depth.
#[test]
fn a_device_never_takes_more_than_its_depth() {
    let mut bench = Bench::new(&["hang"]);
    assert_eq!(
        bench.one(Op::Read, 5000, 1, 0).result,
        Err(DeviceError::OutOfRange)
    );
    let request = |tag| Request {
        tag,
        op: Op::Flush,
        offset: 0,
        len: 0,
        buf: Buf::empty(),
        force_unit_access: false,
    };
    let mut batch: VecDeque<_> = (0..20).map(request).collect();
    bench.device.submit(&mut batch);
    assert_eq!((bench.device.outstanding(), batch.len()), (16, 4));
    bench.switch.clear();
    bench.device.submit(&mut batch);
    assert_eq!((bench.device.outstanding(), batch.len()), (16, 4));
    let mut done = bench.poll();
    while bench.device.outstanding() > 0 || !batch.is_empty() {
        bench.device.submit(&mut batch);
        done.extend(bench.poll());
    }
    assert_eq!(done.len(), 20);
}

/// Names, several faults, and several layers are parsed from a URL; invalid ones are rejected.
#[test]
fn faults_and_layers_are_parsed_from_a_url() {
    let backend =
        open_url("null:1MiB?fault=busy,p=0.1;slow:1ms;name=low&retry=3&fault=off").unwrap();
    let handles = backend.handles();
    let names: Vec<_> = handles.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fault", "retry", "low"]);
    let low = crate::control::find(&handles, "low")
        .unwrap()
        .downcast_ref::<FaultSwitch>()
        .unwrap();
    assert_eq!(low.armed().len(), 2);
    assert!(
        backend
            .info()
            .notes
            .iter()
            .any(|note| note.contains("slow:1ms"))
    );
    for text in [
        "",
        "off;busy",
        "name=x",
        "busy;name=",
        "busy;name=a/b",
        "nonsense",
    ] {
        assert!(
            open_url(&format!("null:1MiB?fault={text}")).is_err(),
            "'{text}' was taken"
        );
    }
}
