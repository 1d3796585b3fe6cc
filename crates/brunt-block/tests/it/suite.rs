//! A suite for all backends and stacks of layers: the guarantees of [`Device`], checked from outside. A random mix is
//! checked against a model of the medium; the seed is in every message. Crates that define backends include this file
//! in their tests.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use brunt_block::open::BackendEntry;
use brunt_block::turn::turn;
use brunt_block::{
    Backend, Buf, Completion, Device, DeviceError, Op, Request, Ring, RingConfig, open_url_with,
};
use brunt_core::random::Random;
use brunt_core::{Clock, IoEngine, Nanos};

/// The device under test.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// A device of 8 MiB.
    pub url: &'a str,
    /// Backends from other crates.
    pub more: &'a [BackendEntry],
    /// Whether it discards writes, so that its reads return zeros.
    pub zeros: bool,
    /// Whether it supports unmapping, by deallocating blocks or by writing zeros.
    pub unmaps: bool,
    /// Whether its server may still execute requests that a dropped device has sent.
    pub remote: bool,
}

pub const SIZE_BYTES: u64 = 8 << 20;
pub const DEPTH: u32 = 24;

thread_local! {
    /// The engine of a test's rings.
    static ENGINE: Cell<IoEngine> = const { Cell::new(IoEngine::IoUring) };
}

pub fn ring_config() -> RingConfig {
    RingConfig {
        engine: Some(ENGINE.get()),
        ..RingConfig::default()
    }
}

/// A device and its ring.
pub struct Bench {
    // Dropped before the ring.
    pub device: Box<dyn Device>,
    pub ring: Ring,
}

impl Bench {
    pub fn new(backend: &dyn Backend, depth: u32) -> Bench {
        Bench::on(Ring::new(ring_config()).unwrap(), backend, depth)
    }

    pub fn on(ring: Ring, backend: &dyn Backend, depth: u32) -> Bench {
        Bench {
            device: backend.open(&ring, depth).unwrap(),
            ring,
        }
    }

    pub fn request(&self, tag: u64, op: Op, offset: u64, len: u64) -> Request {
        let buf = match op {
            Op::Read | Op::Write => self.ring.pool().take(len as usize),
            _ => Buf::empty(),
        };
        Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access: false,
        }
    }

    /// One iteration of a ring owner's loop.
    fn turn(&mut self, done: &mut Vec<Completion>) {
        turn(&self.ring, &mut *self.device, &mut VecDeque::new(), done).unwrap();
    }

    /// Runs requests to completion; returns their completions in the order of their tags.
    pub fn run(&mut self, requests: Vec<Request>) -> Vec<Completion> {
        let mut batch = VecDeque::from(requests);
        let mut done = Vec::new();
        while !batch.is_empty() || self.device.outstanding() > 0 {
            turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
        }
        done.sort_by_key(|one| one.tag);
        done
    }

    pub fn one(&mut self, op: Op, offset: u64, len: u64, fill: u8) -> Completion {
        let mut request = self.request(1, op, offset, len);
        request.buf.fill(fill);
        self.run(vec![request]).pop().unwrap()
    }
}

/// Runs the whole suite on one stack with each engine, for stacks with files or sockets.
pub fn conforms_by_each_engine(subject: Subject<'_>) {
    for engine in IoEngine::ALL {
        ENGINE.set(engine);
        conforms(subject);
    }
}

/// Runs the whole suite on one stack.
pub fn conforms(subject: Subject<'_>) {
    let Subject { url, more, .. } = subject;
    let backend = open_url_with(url, more, false).unwrap_or_else(|error| panic!("{url}: {error}"));
    let info = backend.info();
    assert_eq!(info.size_bytes, SIZE_BYTES, "{url}");
    println!("{url}: {:?}", info.notes);
    limits(url, &*backend);
    wrong_requests(url, &*backend);
    boundaries(subject, &*backend);
    one_at_a_time(url, &*backend, subject.zeros);
    more_than_the_ring_holds(url, &*backend);
    model(subject, &*backend, 1);
    dropped_in_flight(url, &*backend);
    model(subject, &*backend, 2);
}

/// A device takes as many requests as its depth, leaves the rest in order, and completes each once.
fn limits(url: &str, backend: &dyn Backend) {
    let mut bench = Bench::new(backend, DEPTH);
    let mut batch: VecDeque<_> = (0..u64::from(DEPTH) + 7)
        .map(|tag| bench.request(tag, Op::Read, tag * 4096, 4096))
        .collect();
    assert_eq!(bench.device.outstanding(), 0);
    bench.device.submit(&mut batch);
    assert_eq!(bench.device.outstanding(), DEPTH, "{url}");
    let left: Vec<_> = batch.iter().map(|request| request.tag).collect();
    assert_eq!(
        left,
        (u64::from(DEPTH)..u64::from(DEPTH) + 7).collect::<Vec<_>>(),
        "{url}"
    );
    bench.device.submit(&mut batch);
    assert_eq!(
        (bench.device.outstanding(), batch.len()),
        (DEPTH, 7),
        "{url}"
    );
    let mut done = Vec::new();
    while bench.device.outstanding() > 0 {
        bench.turn(&mut done);
        bench.device.submit(&mut batch);
    }
    let tags: HashSet<_> = done.iter().map(|one| one.tag).collect();
    assert_eq!(
        (done.len(), tags.len()),
        (DEPTH as usize + 7, DEPTH as usize + 7),
        "{url}"
    );
    assert!(
        done.iter()
            .all(|one| one.result.is_ok() && one.buf.len() == 4096),
        "{url}"
    );
}

/// A request that is out of range, unaligned, or without a buffer fails alone; an empty request succeeds anywhere.
fn wrong_requests(url: &str, backend: &dyn Backend) {
    let mut bench = Bench::new(backend, DEPTH);
    let (block, size) = (
        u64::from(backend.info().block_bytes),
        backend.info().size_bytes,
    );
    let ops = [Op::Read, Op::Write, Op::Unmap, Op::WriteZeroes];
    let mut check = |offset: u64, len: u64, expected: Result<(), DeviceError>| {
        let request = |op: Op, tag: usize| bench.request(tag as u64, op, offset, len);
        let requests = ops
            .iter()
            .enumerate()
            .map(|(tag, op)| request(*op, tag))
            .collect();
        for (op, one) in ops.iter().zip(bench.run(requests)) {
            assert_eq!(one.result, expected, "{url}: {op:?} of {len} at {offset}");
        }
    };
    check(size, block, Err(DeviceError::OutOfRange));
    check(size - block, 2 * block, Err(DeviceError::OutOfRange));
    check(u64::MAX - block + 1, block, Err(DeviceError::OutOfRange));
    check(u64::MAX - 1, block, Err(DeviceError::OutOfRange));
    check(1, block, Err(DeviceError::OutOfRange));
    check(0, block + 1, Err(DeviceError::OutOfRange));
    check(0, 0, Ok(()));
    check(size, 0, Ok(()));
    let mut short = bench.request(9, Op::Read, 0, block);
    short.buf = Buf::empty();
    assert_eq!(
        bench.run(vec![short])[0].result,
        Err(DeviceError::OutOfRange),
        "{url}"
    );
    assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()), "{url}");
}

/// The first and the last block work like others, and one request may be long.
fn boundaries(subject: Subject<'_>, backend: &dyn Backend) {
    let Subject { url, zeros, .. } = subject;
    let mut bench = Bench::new(backend, DEPTH);
    let (block, size) = (
        u64::from(backend.info().block_bytes),
        backend.info().size_bytes,
    );
    for (offset, len, fill) in [
        (0, size, 0x11),
        (0, block, 0x22),
        (size - block, block, 0x33),
    ] {
        assert_eq!(
            bench.one(Op::Write, offset, len, fill).result,
            Ok(()),
            "{url}"
        );
        assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()), "{url}");
        let read = bench.one(Op::Read, offset, len, 0xee);
        assert_eq!(read.result, Ok(()), "{url}");
        let expected = if zeros { 0 } else { fill };
        assert!(
            read.buf.iter().all(|&byte| byte == expected),
            "{url}: {len} at {offset}"
        );
    }
    for op in [Op::Unmap, Op::WriteZeroes] {
        assert_eq!(bench.one(Op::Write, 0, size, 0x44).result, Ok(()), "{url}");
        let expected = expected_result(subject, op);
        assert_eq!(
            bench.one(op, block, size - 2 * block, 0).result,
            expected,
            "{url}: {op:?}"
        );
        let read = bench.one(Op::Read, 0, size, 0xee);
        let kept = if zeros { 0 } else { 0x44 };
        if expected.is_err() {
            assert!(read.buf.iter().all(|&byte| byte == kept), "{url}: {op:?}");
            continue;
        }
        let (edge, inner) = (
            block as usize,
            &read.buf[block as usize..(size - block) as usize],
        );
        assert!(inner.iter().all(|&byte| byte == 0), "{url}: {op:?}");
        assert!(
            read.buf[..edge].iter().all(|&byte| byte == kept),
            "{url}: {op:?}"
        );
        assert!(
            read.buf[size as usize - edge..]
                .iter()
                .all(|&byte| byte == kept),
            "{url}: {op:?}"
        );
    }
}

/// The expected result of valid requests.
fn expected_result(subject: Subject<'_>, op: Op) -> Result<(), DeviceError> {
    match op {
        Op::Unmap if !subject.unmaps => Err(DeviceError::Unsupported),
        _ => Ok(()),
    }
}

/// Runs one request at a time, as a client without other outstanding requests.
fn one_at_a_time(url: &str, backend: &dyn Backend, zeros: bool) {
    let mut bench = Bench::new(backend, 1);
    let block = u64::from(backend.info().block_bytes);
    for tag in 0..40_u8 {
        let offset = u64::from(tag % 7) * block;
        assert_eq!(
            bench.one(Op::Write, offset, block, tag).result,
            Ok(()),
            "{url}"
        );
        let read = bench.one(Op::Read, offset, block, 0xee);
        assert_eq!(read.result, Ok(()), "{url}");
        let expected = if zeros { 0 } else { tag };
        assert!(
            read.buf.iter().all(|&byte| byte == expected),
            "{url}: {tag}"
        );
    }
    assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()), "{url}");
}

/// A depth far above the ring's queue works.
fn more_than_the_ring_holds(url: &str, backend: &dyn Backend) {
    let ring = Ring::new(RingConfig {
        entries: 16,
        ..ring_config()
    })
    .unwrap();
    let mut bench = Bench::on(ring, backend, 2048);
    let requests = (0..5000)
        .map(|tag| bench.request(tag, Op::Read, tag % 2048 * 4096, 4096))
        .collect();
    let done = bench.run(requests);
    assert!(
        done.iter()
            .enumerate()
            .all(|(tag, one)| one.tag == tag as u64 && one.result.is_ok()),
        "{url}"
    );
    assert_eq!(done.len(), 5000, "{url}");
}

/// The content of the medium once the server has executed everything that earlier devices sent.
fn settled(bench: &mut Bench, remote: bool) -> Vec<u8> {
    let mut medium = bench.one(Op::Read, 0, SIZE_BYTES, 0).buf.to_vec();
    if remote {
        loop {
            // Longer than a busy machine pauses the server.
            std::thread::sleep(Duration::from_secs(2));
            let now = bench.one(Op::Read, 0, SIZE_BYTES, 0).buf.to_vec();
            if now == medium {
                break;
            }
            medium = now;
        }
    }
    medium
}

/// For any mix of requests, a read returns the data of completed writes. Overlapping requests are in flight together
/// only if all are reads.
fn model(subject: Subject<'_>, backend: &dyn Backend, seed: u64) {
    let Subject {
        url, zeros, unmaps, ..
    } = subject;
    let mut bench = Bench::new(backend, DEPTH);
    let (block, blocks) = (
        u64::from(backend.info().block_bytes),
        backend.info().size_bytes / u64::from(backend.info().block_bytes),
    );
    let mut random = Random::new(seed);
    let mut medium = settled(&mut bench, subject.remote && !zeros);
    let mut flying: Vec<(u64, Op, Range<u64>)> = Vec::new();
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let (mut tag, mut ended, mut skipped) = (0, 0, 0);
    while ended < 1500 {
        while tag < 1500 && flying.len() < DEPTH as usize && skipped < 50 {
            let op = match random.below(16) {
                0..7 => Op::Read,
                7..13 => Op::Write,
                13 => Op::Unmap,
                14 => Op::WriteZeroes,
                _ => Op::Flush,
            };
            let count = if random.chance(0.1) {
                1 + random.below(256)
            } else {
                1 + random.below(16)
            };
            let first = random.below(blocks);
            let range = first * block..(first + count).min(blocks) * block;
            let clash = |(_, other, taken): &(u64, Op, Range<u64>)| {
                taken.start < range.end
                    && range.start < taken.end
                    && (op != Op::Read || *other != Op::Read)
            };
            if op != Op::Flush && flying.iter().any(clash) {
                skipped += 1;
                continue;
            }
            let (offset, len) = if op == Op::Flush {
                (0, 0)
            } else {
                (range.start, range.end - range.start)
            };
            let mut request = bench.request(tag, op, offset, len);
            request.force_unit_access = random.chance(0.2);
            let there = &mut medium[range.start as usize..range.end as usize];
            match op {
                Op::Write => {
                    random.fill(&mut request.buf);
                    if !zeros {
                        there.copy_from_slice(&request.buf);
                    }
                }
                Op::Unmap if !unmaps => {}
                Op::Unmap | Op::WriteZeroes => there.fill(0),
                Op::Read | Op::Flush => {}
            }
            flying.push((tag, op, offset..offset + len));
            batch.push_back(request);
            tag += 1;
        }
        skipped = 0;
        bench.device.submit(&mut batch);
        bench.turn(&mut done);
        for one in done.drain(..) {
            let index = flying.iter().position(|(tag, ..)| *tag == one.tag);
            let (tag, op, range) = flying.swap_remove(index.expect("a tag comes back once"));
            let expected = expected_result(subject, op);
            assert_eq!(one.result, expected, "{url}, seed {seed}: {op:?} {tag}");
            if op == Op::Read {
                let expected = &medium[range.start as usize..range.end as usize];
                assert!(
                    one.buf[..] == *expected,
                    "{url}, seed {seed}: request {tag} at {range:?}"
                );
            }
            ended += 1;
        }
    }
    assert_eq!(bench.device.outstanding(), 0);
    let whole = bench.one(Op::Read, 0, SIZE_BYTES, 0);
    assert!(whole.buf[..] == medium[..], "{url}, seed {seed}");
}

/// A device dropped with requests in flight leaves nothing behind, not even for the next device on the ring.
fn dropped_in_flight(url: &str, backend: &dyn Backend) {
    let ring = Ring::new(ring_config()).unwrap();
    for round in 0..30 {
        let mut bench = Bench::on(ring.clone(), backend, DEPTH);
        let op = if round % 3 == 0 { Op::Write } else { Op::Read };
        let mut batch: VecDeque<_> = (0..u64::from(DEPTH))
            .map(|tag| bench.request(1000 + tag, op, tag * 65536, 65536))
            .collect();
        bench.device.submit(&mut batch);
        if round % 2 == 0 {
            ring.enter(Nanos(0)).unwrap();
        }
        drop(bench);
        let mut next = Bench::on(ring.clone(), backend, DEPTH);
        let done = next.one(Op::Read, 0, 4096, 0);
        assert_eq!((done.tag, done.result), (1, Ok(())), "{url}");
    }
    // A dropped device waits for a slow disk only for a limited time. Its writes must not interleave with later
    // requests. The ring itself always has one outstanding call: its wake read.
    let begin = Clock::Monotonic.now();
    while ring.stats().completed + 1 < ring.stats().submitted {
        let now = Clock::Monotonic.now();
        assert!(now.since(begin) < Duration::from_secs(120), "{url}");
        ring.enter(now.after(Duration::from_millis(10))).unwrap();
    }
}
