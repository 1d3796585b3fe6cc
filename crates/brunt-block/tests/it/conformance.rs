//! One suite over every backend and every stack of layers: the guarantees of [`Device`], checked from outside. A random
//! mix is checked against a model of the medium; the seed is in every message.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::backends::tcp::{SinkConfig, TcpSink};
use brunt_block::turn::turn;
use brunt_block::{
    Backend, Buf, Completion, Device, DeviceError, Inline, Op, OpenError, Request, Ring,
    RingConfig, open_url,
};
use brunt_core::random::Random;
use brunt_core::{Clock, IoEngine, Nanos};
use tempfile::{tempdir, tempdir_in};

const SIZE_BYTES: u64 = 8 << 20;
const DEPTH: u32 = 24;

thread_local! {
    /// The engine of a test's rings.
    static ENGINE: Cell<IoEngine> = const { Cell::new(IoEngine::IoUring) };
}

fn ring_config() -> RingConfig {
    RingConfig {
        engine: Some(ENGINE.get()),
        ..RingConfig::default()
    }
}

/// A device and its ring.
struct Bench {
    // Dropped before the ring.
    device: Box<dyn Device>,
    ring: Ring,
}

impl Bench {
    fn new(backend: &dyn Backend, depth: u32) -> Bench {
        Bench::on(Ring::new(ring_config()).unwrap(), backend, depth)
    }

    fn on(ring: Ring, backend: &dyn Backend, depth: u32) -> Bench {
        Bench {
            device: backend.open(&ring, depth).unwrap(),
            ring,
        }
    }

    fn request(&self, tag: u64, op: Op, offset: u64, len: u64) -> Request {
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

    /// One turn of the loop that every ring's owner runs.
    fn turn(&mut self, done: &mut Vec<Completion>) {
        turn(&self.ring, &mut *self.device, &mut VecDeque::new(), done).unwrap();
    }

    /// Runs requests to completion; returns their completions in the order of their tags.
    fn run(&mut self, requests: Vec<Request>) -> Vec<Completion> {
        let mut batch = VecDeque::from(requests);
        let mut done = Vec::new();
        while !batch.is_empty() || self.device.outstanding() > 0 {
            turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
        }
        done.sort_by_key(|one| one.tag);
        done
    }

    fn one(&mut self, op: Op, offset: u64, len: u64, fill: u8) -> Completion {
        let mut request = self.request(1, op, offset, len);
        request.buf.fill(fill);
        self.run(vec![request]).pop().unwrap()
    }
}

/// Reports that a test was skipped because it needs something that no package provides.
fn skip(needs: &str) {
    println!("skipped: needs {needs}");
}

/// The whole suite on one stack with each engine, for stacks with files or sockets.
fn conforms_by_each_engine(url: &str) {
    for engine in IoEngine::ALL {
        ENGINE.set(engine);
        conforms(url);
    }
}

/// The whole suite on one stack.
fn conforms(url: &str) {
    let open = || open_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let backend = open();
    let info = backend.info();
    assert_eq!(info.size_bytes, SIZE_BYTES, "{url}");
    println!("{url}: {:?}", info.notes);
    let zeros = matches!(backend.inline(), Inline::Zeros)
        || url.starts_with("null:")
        || url.starts_with("tcp:");
    limits(url, &*backend);
    wrong_requests(url, &*backend);
    boundaries(url, &*backend, zeros);
    one_at_a_time(url, &*backend, zeros);
    more_than_the_ring_holds(url, &*backend);
    model(url, &*backend, zeros, 1);
    dropped_in_flight(url, &*backend);
    model(url, &*backend, zeros, 2);
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
fn boundaries(url: &str, backend: &dyn Backend, zeros: bool) {
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
        assert_eq!(
            bench.one(op, block, size - 2 * block, 0).result,
            Ok(()),
            "{url}: {op:?}"
        );
        let read = bench.one(Op::Read, 0, size, 0xee);
        let (edge, inner) = (
            block as usize,
            &read.buf[block as usize..(size - block) as usize],
        );
        assert!(inner.iter().all(|&byte| byte == 0), "{url}: {op:?}");
        let kept = if zeros { 0 } else { 0x44 };
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

/// One request at a time, from a client without other requests.
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

/// Whatever the mix, a read returns the data of the completed writes. Overlapping requests are not in flight
/// together unless all are reads.
fn model(url: &str, backend: &dyn Backend, zeros: bool, seed: u64) {
    let mut bench = Bench::new(backend, DEPTH);
    let (block, blocks) = (
        u64::from(backend.info().block_bytes),
        backend.info().size_bytes / u64::from(backend.info().block_bytes),
    );
    let mut random = Random::new(seed);
    let whole = bench.one(Op::Read, 0, SIZE_BYTES, 0);
    let mut medium = whole.buf.to_vec();
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
            assert_eq!(one.result, Ok(()), "{url}, seed {seed}: {op:?} {tag}");
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
    // A dropped device waits only for a limited time for a slow disk. Its writes must not interleave with later
    // requests. The ring itself always has one outstanding call: its wake read.
    let begin = Clock::Monotonic.now();
    while ring.stats().completed + 1 < ring.stats().submitted {
        let now = Clock::Monotonic.now();
        assert!(now.since(begin) < Duration::from_secs(120), "{url}");
        ring.enter(now.after(Duration::from_millis(10))).unwrap();
    }
}

#[test]
fn null() {
    conforms("null:8MiB");
    conforms("null:8MiB?block=4096");
    conforms("null:8MiB?delay=const:5us");
}

#[test]
fn memory() {
    conforms("memory:8MiB");
    conforms("memory:8MiB?block=4096");
}

#[test]
fn memory_delayed() {
    conforms("memory:8MiB?delay=uniform:1us-20us,seed=3");
    conforms("memory:8MiB?delay=exp:5us,servers=2");
}

/// A layer with nothing armed has no effect; faults corrected by upper layers are not visible.
#[test]
fn memory_with_faults() {
    conforms("memory:8MiB?fault=off");
    conforms("memory:8MiB?fault=slow:20us,p=0.3,seed=5");
    conforms("memory:8MiB?fault=slow:x3,p=0.3&delay=const:5us&fault=slow:x2,p=0.1");
    conforms("memory:8MiB?retry=3,off");
    conforms("memory:8MiB?fault=aborted-command,p=0.5,seed=1;medium-error,every=7&retry=200");
    conforms("memory:8MiB?fault=recovered-error,p=0.5&delay=uniform:1us-20us&retry=3,delay=10us");
    conforms(
        "memory:8MiB?fault=not-ready,p=0.2,seed=2;task-set-full,p=0.2,seed=3;unit-attention&retry=200",
    );
    conforms("memory:8MiB?fault=sense:b/4b/04,p=0.3,seed=4;errno:EIO,p=0.1,seed=5&retry=200");
    conforms("memory:8MiB?fault=flaky:2ms/1ms&retry=1000,delay=1ms");
    conforms("memory:8MiB?fault=bad-blocks,lba=99999999;misdirect,p=0&retry=1");
}

/// Arrays conform like other devices: optimal, degraded from the first request on, and rebuilding.
#[test]
fn arrays() {
    let members = |count: u64, size: &str, rest: &str| {
        let one = format!(",[memory:{size}{rest}]");
        one.repeat(count as usize)
    };
    conforms(&format!("array:raid0,chunk=64k{}", members(2, "4MiB", "")));
    conforms(&format!(
        "array:raid1,chunk=64k{}",
        members(2, "8MiB", "?delay=uniform:1us-20us")
    ));
    conforms(&format!("array:raid5,chunk=64k{}", members(5, "2MiB", "")));
    conforms(&format!(
        "array:raid5,chunk=4k{}",
        members(3, "4MiB", "?fault=busy,op=read,p=0.01&retry=20")
    ));
    let dead = "?fault=hardware-error";
    conforms(&format!(
        "array:raid1,chunk=64k{}{}",
        members(1, "8MiB", ""),
        members(1, "8MiB", dead)
    ));
    conforms(&format!(
        "array:raid5,chunk=64k{}{}",
        members(2, "4MiB", ""),
        members(1, "4MiB", dead)
    ));
    let spare = ",spare=[memory:4MiB],rebuild=10MB";
    conforms(&format!(
        "array:raid5,chunk=64k{}{}{spare}",
        members(1, "4MiB", dead),
        members(2, "4MiB", "")
    ));
}

fn file_in(parent: &Path) {
    let folder = tempdir_in(parent).unwrap();
    for (index, options) in [
        "",
        "&block=4096&write_back=no",
        "&direct=no",
        "&direct=no&write_back=no",
        "&write_back=no&delay=lognormal:10us,sigma=0.3",
    ]
    .iter()
    .enumerate()
    {
        conforms_by_each_engine(&format!(
            "file:{}/{index}.img?size=8MiB&create=yes{options}",
            folder.path().display()
        ));
    }
}

#[test]
fn file_on_disk() {
    // The build's own directory: on a disk, even if the temporary directory is in memory.
    file_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn file_in_memory() {
    let shm = Path::new("/dev/shm");
    if std::fs::metadata(shm).is_ok_and(|metadata| metadata.is_dir()) {
        file_in(shm);
    } else {
        skip("/dev/shm");
    }
}

/// The network device conforms like any other, on one connection or several.
#[test]
fn tcp() {
    let sink = TcpSink::start(SinkConfig::default()).unwrap();
    let url = format!("tcp://{}?size=8MiB", sink.address());
    conforms_by_each_engine(&url);
    conforms_by_each_engine(&format!(
        "{url}&connections=3&block=4096&send_buffer=64k&receive_buffer=64k"
    ));
    let stats = sink.shutdown();
    assert_eq!(stats.broken, 0, "{stats:?}");
    assert!(
        stats.requests > 10_000 && stats.received_bytes > 1 << 20 && stats.sent_bytes > 1 << 20
    );
}

/// A read-only file answers writes with an error and everything else as usual.
#[test]
fn read_only() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![7; 65536]).unwrap();
    let backend = open_url(&format!("{}?read_only=yes", path.display())).unwrap();
    assert!(backend.info().read_only);
    let mut bench = Bench::new(&*backend, 4);
    for op in [Op::Write, Op::Unmap, Op::WriteZeroes] {
        assert_eq!(
            bench.one(op, 0, 4096, 1).result,
            Err(DeviceError::Os(libc::EROFS))
        );
    }
    assert!(
        bench
            .one(Op::Read, 0, 65536, 1)
            .buf
            .iter()
            .all(|&byte| byte == 7)
    );
    assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()));
}

/// Two threads on one backend don't affect each other.
#[test]
fn two_threads() {
    let folder = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = format!(
        "file:{}/disk.img?size=8MiB&create=yes&write_back=yes",
        folder.path().display()
    );
    for url in ["memory:8MiB", &file] {
        let backend = open_url(url).unwrap();
        let threads: Vec<_> = (0..2u64)
            .map(|half| {
                let backend = Arc::clone(&backend);
                std::thread::spawn(move || {
                    let mut bench = Bench::new(&*backend, DEPTH);
                    for round in 0..50u8 {
                        let offset = half * (SIZE_BYTES / 2) + u64::from(round) * 16384;
                        assert_eq!(
                            bench.one(Op::Write, offset, 16384, round + 1).result,
                            Ok(())
                        );
                        let read = bench.one(Op::Read, offset, 16384, 0);
                        assert!(read.buf.iter().all(|&byte| byte == round + 1));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// A ring with a kernel thread, and one that polls the device, give the same results.
#[test]
fn other_rings() {
    let folder = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!(
        "file:{}/disk.img?size=8MiB&create=yes&write_back=yes",
        folder.path().display()
    );
    let backend = open_url(&url).unwrap();
    let sqpoll = RingConfig {
        sqpoll_idle_ms: Some(2),
        ..RingConfig::default()
    };
    let iopoll = RingConfig {
        iopoll: true,
        ..RingConfig::default()
    };
    for config in [sqpoll, iopoll] {
        let mut bench = Bench::on(Ring::new(config.clone()).unwrap(), &*backend, DEPTH);
        let probe = bench.one(Op::Read, 0, 4096, 0);
        if config.iopoll && probe.result == Err(DeviceError::Os(libc::EOPNOTSUPP)) {
            return skip("a file system with polled I/O");
        }
        let mut writes: Vec<_> = (0..200)
            .map(|tag| bench.request(tag, Op::Write, tag * 8192, 8192))
            .collect();
        for write in &mut writes {
            write.buf.fill(write.tag as u8);
        }
        assert!(
            bench.run(writes).iter().all(|one| one.result.is_ok()),
            "{config:?}"
        );
        // Long enough for the kernel's thread to fall asleep.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let reads = (0..200)
            .map(|tag| bench.request(tag, Op::Read, tag * 8192, 8192))
            .collect();
        for one in bench.run(reads) {
            assert!(
                one.result.is_ok() && one.buf.iter().all(|&byte| byte == one.tag as u8),
                "{config:?}"
            );
        }
        let flush = bench.one(Op::Flush, 0, 0, 0).result;
        let expected = if config.iopoll {
            Err(DeviceError::Unsupported)
        } else {
            Ok(())
        };
        assert_eq!(flush, expected, "{config:?}");
    }
}

/// Runs a program and returns its output if it succeeded.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A loop device, detached on drop.
struct Loop(String);

impl Loop {
    fn new(file: &Path, block_bytes: &str) -> Option<Loop> {
        run(
            "losetup",
            &[
                "--find",
                "--show",
                "--sector-size",
                block_bytes,
                file.to_str()?,
            ],
        )
        .map(Loop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

/// Block devices of either block size conform, and one in use is rejected.
#[test]
fn block_device() {
    // In memory: a busy disk behind the loop device would only make it slow.
    let folder = tempdir_in("/dev/shm")
        .or_else(|_| tempdir_in(env!("CARGO_TARGET_TMPDIR")))
        .unwrap();
    for block in ["512", "4096"] {
        let file = folder.path().join(format!("{block}.img"));
        std::fs::File::create(&file)
            .unwrap()
            .set_len(SIZE_BYTES)
            .unwrap();
        let Some(device) = Loop::new(&file, block) else {
            return skip("root and loop devices");
        };
        let backend = open_url(&device.0).unwrap();
        assert_eq!(backend.info().block_bytes.to_string(), block);
        assert!(backend.info().unmap);
        let error = open_url(&device.0)
            .err()
            .expect("the second writer is refused");
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        open_url(&format!("{}?read_only=yes", device.0)).unwrap();
        open_url(&format!("{}?force=yes", device.0)).unwrap();
        drop(backend);
        if block == "4096" {
            let error = open_url(&format!("{}?block=512", device.0))
                .err()
                .expect("blocks are too small");
            assert!(error.to_string().contains("use block=4096"), "{error}");
        }
        // `conforms` opens the device itself.
        conforms(&device.0);
    }
}

/// A mounted directory, unmounted on drop.
struct Mounted<'a>(&'a str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        run("umount", &[self.0]);
    }
}

/// On a full file system a request fails with its errno; requests that need no space still work.
#[test]
fn no_space() {
    let folder = tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    if run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", path]).is_none() {
        return skip("root, to mount a small file system");
    }
    // Dropped after the backend and before the directory.
    let _mounted = Mounted(path);
    let backend = open_url(&format!("file:{path}/disk.img?size=8MiB&create=yes")).unwrap();
    let mut bench = Bench::new(&*backend, 4);
    assert_eq!(bench.one(Op::Write, 0, 65536, 1).result, Ok(()));
    assert_eq!(
        bench.one(Op::Write, 1 << 20, 4 << 20, 1).result,
        Err(DeviceError::Os(libc::ENOSPC))
    );
    assert!(
        bench
            .one(Op::Read, 0, 65536, 0)
            .buf
            .iter()
            .all(|&byte| byte == 1)
    );
}
