use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use brunt_core::Nanos;
use brunt_core::random::Random;

use super::*;
use crate::backends::memory::MemoryBackend;
use crate::control::{Arguments, Value};
use crate::{Buf, Completion, DeviceError, Op, Request, RingConfig, turn};

const BYTES: u64 = 4 << 20;
const BLOCK: u64 = 4096;

/// The state of a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Open,
    /// Requests are accepted but not completed.
    Silent,
    /// Requests and opening fail.
    Gone,
}

/// A device that can become unreachable.
struct Gate {
    memory: MemoryBackend,
    stand: Arc<AtomicU8>,
}

struct GateDevice {
    inner: Box<dyn Device>,
    stand: Arc<AtomicU8>,
    held: VecDeque<Request>,
}

fn stand_of(stand: &AtomicU8) -> Stand {
    [Stand::Open, Stand::Silent, Stand::Gone][usize::from(stand.load(Ordering::SeqCst))]
}

impl Gate {
    fn new() -> Arc<Gate> {
        Arc::new(Gate {
            memory: MemoryBackend::new(BYTES, 512).unwrap(),
            stand: Arc::default(),
        })
    }

    fn set(&self, stand: Stand) {
        self.stand.store(stand as u8, Ordering::SeqCst);
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut out = vec![0; len as usize];
        self.memory.memory().read(offset, &mut out);
        out
    }
}

impl Backend for Gate {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if stand_of(&self.stand) == Stand::Gone {
            return Err(OpenError::Refused("out of reach".into()));
        }
        let (inner, stand) = (self.memory.open(ring, depth)?, Arc::clone(&self.stand));
        Ok(Box::new(GateDevice {
            inner,
            stand,
            held: VecDeque::new(),
        }))
    }
}

impl Device for GateDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        self.held.append(batch);
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        match stand_of(&self.stand) {
            Stand::Open => {
                self.inner.submit(&mut self.held);
                self.inner.poll(done);
            }
            Stand::Silent => {}
            Stand::Gone => {
                let fail = |one: Request| Completion {
                    tag: one.tag,
                    buf: one.buf,
                    result: Err(DeviceError::Gone),
                };
                done.extend(self.held.drain(..).map(fail));
            }
        }
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding() + self.held.len() as u32
    }

    fn deadline(&self) -> Nanos {
        match self.held.is_empty() {
            true => self.inner.deadline(),
            false => Clock::Monotonic.now().after(Duration::from_millis(1)),
        }
    }
}

struct Bench {
    // In drop order.
    device: Box<dyn Device>,
    backend: SticsBackend,
    ring: Ring,
}

fn open(far: &Arc<Gate>, log: &Path, more: &str) -> Result<SticsBackend, OpenError> {
    let options = SticsOptions::parse(&format!("{}{more}", log.display()))?;
    SticsBackend::open(Arc::<Gate>::clone(far), &options)
}

/// Waits for a condition; the time limit is generous because tests share the machine.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "waited in vain: {what}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Bench {
    fn new(far: &Arc<Gate>, log: &Path, more: &str) -> Bench {
        let backend = open(far, log, more).unwrap();
        let ring = Ring::new(RingConfig {
            arena_bytes: 0,
            ..RingConfig::default()
        })
        .unwrap();
        let device = backend.open(&ring, 16).unwrap();
        Bench {
            device,
            backend,
            ring,
        }
    }

    fn request(&self, tag: u64, op: Op, offset: u64, len: u64) -> Request {
        let data = matches!(op, Op::Read | Op::Write);
        let buf = if data {
            self.ring.pool().take(len as usize)
        } else {
            Buf::empty()
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

    fn one(&mut self, request: Request) -> Completion {
        turn::one(&self.ring, &mut *self.device, request).unwrap()
    }

    fn write(&mut self, offset: u64, len: u64, fill: u8) {
        let mut request = self.request(1, Op::Write, offset, len);
        request.buf.fill(fill);
        self.one(request).result.unwrap();
    }

    fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        let done = self.one(self.request(2, Op::Read, offset, len));
        done.result.unwrap();
        done.buf[..len as usize].to_vec()
    }

    /// Runs the device until its status meets a condition.
    fn turn_until(
        &mut self,
        done: &mut Vec<Completion>,
        what: &str,
        mut holds: impl FnMut(&Bench, &[Completion]) -> bool,
    ) {
        let begin = Instant::now();
        while !holds(self, done) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "waited in vain: {what}"
            );
            let until = Clock::Monotonic.now().after(Duration::from_millis(1));
            turn::turn_until(
                &self.ring,
                &mut *self.device,
                &mut VecDeque::new(),
                done,
                until,
            )
            .unwrap();
        }
    }

    fn count(&self, name: &str) -> u64 {
        let status = self.backend.shared.status();
        match status.iter().find(|(known, _)| *known == name) {
            Some((_, Value::Count(count))) => *count,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn mode(&self) -> Value {
        self.backend.shared.status()[0].1.clone()
    }

    fn command(&self, name: &str) {
        let handles = self.backend.handles();
        handles[0].1.carry_out(name, &Arguments::default()).unwrap();
    }

    fn destage(&self) {
        self.command("destage");
        until("all is destaged", || self.count("log_bytes") == 0);
    }
}

/// Checks the far device's content, read directly.
fn assert_far(far: &Gate, truth: &[u8]) {
    let content = far.read(0, BYTES);
    let differs = content.iter().zip(truth).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the device differs from what was written");
}

/// With any order of writes, zeroing, unmaps, reads and flushes, several at once, and restarts without destaging, reads
/// return the acknowledged data, and so does the device itself once everything is destaged.
#[test]
fn reads_return_acknowledged_data_across_restarts() {
    let stacks = [
        ",size=1MiB,memory=1MiB,destage=always,order=log,merge=8KiB,depth=2",
        ",size=2MiB,memory=1MiB,idle=1h,high=60,low=20,batch=128KiB",
        ",size=8MiB,memory=1MiB,idle=1h,sync=always",
        ",size=4MiB,memory=2MiB,idle=1ms,flush=far",
    ];
    for (seed, more) in stacks.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (far, log) = (Gate::new(), folder.path().join("log"));
        let mut random = Random::new(seed as u64);
        let mut truth = vec![0; BYTES as usize];
        let mut bench = Bench::new(&far, &log, more);
        let mut hits = 0;
        for _ in 0..120 {
            if random.chance(0.06) {
                hits += bench.count("hit_bytes");
                drop(bench);
                bench = Bench::new(&far, &log, more);
            }
            several(&mut bench, &mut random, &mut truth);
        }
        assert!(hits + bench.count("hit_bytes") > 0 && bench.count("logged_bytes") > 0);
        assert!(bench.read(0, 256 << 10) == truth[..256 << 10], "{more}");
        bench.destage();
        assert_eq!(bench.count("dirty_bytes"), 0);
        assert_far(&far, &truth);
    }
}

/// Up to twelve concurrent requests, each in its own range, at arbitrary sectors.
fn several(bench: &mut Bench, random: &mut Random, truth: &mut [u8]) {
    let stretch = BYTES / 12;
    let count = 1 + random.below(12);
    let mut batch = VecDeque::new();
    for tag in 0..count {
        let sectors = stretch / 512;
        // Mostly near the start of the range, to hit earlier writes.
        let reach = if random.chance(0.7) { 64 } else { sectors };
        let within = random.below(reach);
        let len = 512 * (1 + random.below((sectors - within).min(128)));
        let offset = tag * (stretch / 512) * 512 + within * 512;
        let op = [
            Op::Read,
            Op::Write,
            Op::Write,
            Op::Write,
            Op::WriteZeroes,
            Op::Unmap,
            Op::Flush,
        ][random.below(7) as usize];
        let mut request = match op {
            Op::Flush => bench.request(tag, op, 0, 0),
            _ => bench.request(tag, op, offset, len),
        };
        let place = offset as usize..(offset + len) as usize;
        match op {
            Op::Write => {
                random.fill(&mut request.buf);
                truth[place].copy_from_slice(&request.buf);
                request.force_unit_access = random.chance(0.2);
            }
            Op::Unmap | Op::WriteZeroes => truth[place].fill(0),
            Op::Read | Op::Flush => {}
        }
        batch.push_back(request);
    }
    let expected: Vec<(Op, u64, u64)> = batch
        .iter()
        .map(|one| (one.op, one.offset, one.len))
        .collect();
    let mut done = Vec::new();
    while done.len() < expected.len() {
        turn::turn(&bench.ring, &mut *bench.device, &mut batch, &mut done).unwrap();
    }
    for one in done {
        one.result.unwrap();
        let (op, offset, len) = expected[one.tag as usize];
        if op == Op::Read {
            let place = offset as usize..(offset + len) as usize;
            assert!(
                one.buf[..len as usize] == truth[place],
                "{len} bytes at {offset}"
            );
        }
    }
}

/// Data that doesn't fit in memory is read from the log, even where it wraps around, and never from the device.
#[test]
fn data_beyond_the_memory_is_read_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    let mut bench = Bench::new(&far, &log, ",size=3MiB,memory=1MiB,idle=1h,high=100,low=99");
    for lap in 1..=3 {
        for part in 0..10 {
            bench.write(part * (256 << 10), 256 << 10, lap * 10 + part as u8);
        }
        for part in (0..10).rev() {
            let data = bench.read(part * (256 << 10), 256 << 10);
            assert!(
                data.iter().all(|byte| *byte == lap * 10 + part as u8),
                "lap {lap}, part {part}"
            );
        }
        bench.destage();
        // Destaged data is still cached.
        assert!(
            bench
                .read(5 * (256 << 10), 4096)
                .iter()
                .all(|byte| *byte == lap * 10 + 5)
        );
        assert_eq!(bench.count("miss_bytes"), 0);
    }
}

/// If the remote side is unresponsive or gone, writes are acknowledged while there is room, then wait, which the status
/// shows; when it returns, it receives all of them.
#[test]
fn acknowledged_writes_reach_a_far_side_that_returns() {
    for stand in [Stand::Silent, Stand::Gone] {
        let folder = tempfile::tempdir().unwrap();
        let (far, log) = (Gate::new(), folder.path().join("log"));
        let mut bench = Bench::new(&far, &log, ",size=1MiB,memory=1MiB,destage=always");
        far.set(stand);
        let mut truth = vec![0; BYTES as usize];
        let (mut batch, mut done) = (VecDeque::new(), Vec::new());
        for tag in 0..14 {
            let mut request = bench.request(tag, Op::Write, tag * (100 << 10), 100 << 10);
            request.buf.fill(tag as u8 + 1);
            truth[(tag * (100 << 10)) as usize..][..100 << 10].fill(tag as u8 + 1);
            batch.push_back(request);
        }
        bench.device.submit(&mut batch);
        assert!(batch.is_empty());
        bench.turn_until(&mut done, "what there is room for", |bench, done| {
            done.len() as u64 + bench.count("waiting") == 14 && bench.count("waiting") > 0
        });
        assert!(
            done.len() >= 8 && done.iter().all(|one| one.result.is_ok()),
            "{} were taken",
            done.len()
        );
        let answered: Vec<u64> = done.iter().map(|one| one.tag).collect();
        assert_eq!(
            answered.iter().max(),
            Some(&(answered.len() as u64 - 1)),
            "in order"
        );
        if stand == Stand::Gone {
            until("it tries again", || bench.count("destage_retries") > 1);
        }
        assert!(far.read(0, BYTES).iter().all(|byte| *byte == 0) && bench.count("waits") > 0);
        far.set(Stand::Open);
        bench.turn_until(&mut done, "the rest", |_, done| done.len() == 14);
        assert!(done.iter().all(|one| one.result.is_ok()) && bench.count("waiting") == 0);
        bench.destage();
        assert_far(&far, &truth);
    }
}

/// A full log makes room, regardless of its thresholds and idle time.
#[test]
fn a_full_log_destages_regardless_of_thresholds() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    let mut bench = Bench::new(&far, &log, ",size=1MiB,memory=1MiB,idle=1h,high=100,low=99");
    for part in 0..16 {
        bench.write(part * (200 << 10), 200 << 10, part as u8 + 1);
    }
    assert!(bench.count("waits") > 0 && bench.count("destaged_bytes") > 0);
}

/// A write waiting for room can be cancelled.
#[test]
fn a_waiting_write_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    far.set(Stand::Silent);
    let mut bench = Bench::new(&far, &log, ",size=1MiB,memory=1MiB,destage=always");
    let mut batch: VecDeque<_> = (0..5)
        .map(|tag| bench.request(tag, Op::Write, 0, 256 << 10))
        .collect();
    bench.device.submit(&mut batch);
    let mut done = Vec::new();
    bench.turn_until(&mut done, "a write waits", |bench, _| {
        bench.count("waiting") > 0
    });
    bench.device.cancel(4);
    bench.turn_until(&mut done, "it is answered", |_, done| {
        done.iter().any(|one| one.tag == 4)
    });
    let cancelled = done.iter().find(|one| one.tag == 4).unwrap();
    assert!(cancelled.result.is_err(), "{:?}", cancelled.result);
    far.set(Stand::Open);
    bench.turn_until(&mut done, "the others", |bench, _| {
        bench.device.outstanding() == 0
    });
}

/// If the log fails, all of its content is destaged, then writes go to the device directly; when the log works again
/// after a restart, nothing old is replayed.
#[test]
fn a_broken_log_is_destaged_and_bypassed() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    let mut bench = Bench::new(&far, &log, ",size=1MiB,memory=1MiB,idle=1h");
    bench.write(0, 64 << 10, 1);
    bench.write(64 << 10, 4096, 2);
    bench.command("break-log");
    assert_eq!(far.read(0, 1), [0], "nothing was destaged");
    bench.write(4096, 4096, 3);
    assert_eq!(
        bench.read(0, 12288),
        [vec![1; 4096], vec![3; 4096], vec![1; 4096]].concat()
    );
    until("writes bypass it", || {
        bench.mode() == Value::Text("bypass".into())
    });
    assert!(bench.device.health().trouble.is_some());
    bench.write(0, 4096, 4);
    assert!(bench.count("bypassed") > 0);
    let flush = bench.request(3, Op::Flush, 0, 0);
    bench.one(flush).result.unwrap();
    assert_eq!(
        (far.read(0, 1), far.read(4096, 1), far.read(8192, 1)),
        (vec![4], vec![3], vec![1])
    );
    drop(bench);
    let mut bench = Bench::new(&far, &log, ",idle=1h");
    assert_eq!(bench.count("replayed_records"), 0);
    assert_eq!(bench.read(0, 1 << 12), vec![4; 4096]);
    bench.write(0, 4096, 5);
    assert_eq!(bench.mode(), Value::Text("logging".into()));
}

#[test]
fn a_flush_reaches_the_far_side_if_configured() {
    for (more, fill) in [("flush=log", 0), ("flush=far", 7)] {
        let folder = tempfile::tempdir().unwrap();
        let (far, log) = (Gate::new(), folder.path().join("log"));
        let mut bench = Bench::new(&far, &log, &format!(",size=1MiB,idle=1h,{more}"));
        bench.write(0, 4096, 7);
        let flush = bench.request(3, Op::Flush, 0, 0);
        bench.one(flush).result.unwrap();
        assert_eq!(far.read(0, 4096), vec![fill; 4096], "{more}");
        assert!(more == "flush=far" || bench.count("log_syncs") > 0);
    }
}

#[test]
fn data_written_by_one_thread_is_read_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    let mut bench = Bench::new(&far, &log, ",size=1MiB,memory=1MiB,destage=always");
    for round in 1..40u8 {
        bench.write(u64::from(round) * BLOCK, BLOCK, round);
        let backend = &bench.backend;
        let data = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let ring = Ring::new(RingConfig {
                    arena_bytes: 0,
                    ..RingConfig::default()
                })
                .unwrap();
                let mut device = backend.open(&ring, 1).unwrap();
                let (op, offset, len) = (Op::Read, u64::from(round) * BLOCK, BLOCK);
                let buf = ring.pool().take(BLOCK as usize);
                let request = Request {
                    tag: 1,
                    op,
                    offset,
                    len,
                    buf,
                    force_unit_access: false,
                };
                turn::one(&ring, &mut *device, request).unwrap().buf[..BLOCK as usize].to_vec()
            });
            reader.join().unwrap()
        });
        assert!(data.iter().all(|byte| *byte == round), "round {round}");
    }
}

fn refused(far: &Arc<Gate>, log: &Path, more: &str) -> LogError {
    match open(far, log, more) {
        Err(OpenError::Failed(error)) => {
            *error.downcast::<LogError>().expect("the log's own error")
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}

/// Creates a log with three records of one block each, for blocks 0, 1 and 2.
fn three_records(far: &Arc<Gate>, log: &Path) {
    let mut bench = Bench::new(far, log, ",size=1MiB,memory=1MiB,idle=1h");
    for block in 0..3 {
        bench.write(block * BLOCK, BLOCK, block as u8 + 1);
    }
    assert_eq!(bench.count("log_writes"), 3);
}

fn change(log: &Path, at: u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(log)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// File offset of a record of [`three_records`].
fn record_at(index: u64) -> u64 {
    format::DATA_BEGIN + index * 2 * BLOCK
}

/// A torn end is dropped and reported, wherever it is torn; earlier data remains, and later writes survive the next
/// start.
#[test]
fn a_torn_end_is_dropped_and_reported() {
    for at in [0, 100, BLOCK - 1, BLOCK, 2 * BLOCK - 1] {
        let folder = tempfile::tempdir().unwrap();
        let (far, log) = (Gate::new(), folder.path().join("log"));
        three_records(&far, &log);
        change(&log, record_at(2) + at);
        let mut bench = Bench::new(&far, &log, ",idle=1h");
        // A record without its first byte isn't recognized as a record.
        let said = bench
            .device
            .info()
            .notes
            .iter()
            .any(|note| note.contains("number 3, is torn"));
        assert_eq!(said, at > 0, "{:?}", bench.device.info().notes);
        assert_eq!(bench.count("replayed_records"), 2);
        assert_eq!(
            bench.read(0, 3 * BLOCK),
            [vec![1; 4096], vec![2; 4096], vec![0; 4096]].concat()
        );
        bench.write(BLOCK, BLOCK, 9);
        drop(bench);
        let mut bench = Bench::new(&far, &log, ",idle=1h");
        assert_eq!(
            (bench.count("replayed_records"), bench.read(BLOCK, 1 << 9)),
            (3, vec![9; 512])
        );
    }
}

/// Damage before valid records is never ignored silently; `damaged=drop` accepts the loss permanently.
#[test]
fn damage_before_valid_records_is_rejected() {
    for at in [0, 30, BLOCK + 5] {
        let folder = tempfile::tempdir().unwrap();
        let (far, log) = (Gate::new(), folder.path().join("log"));
        three_records(&far, &log);
        change(&log, record_at(1) + at);
        let error = refused(&far, &log, ",idle=1h");
        assert!(
            matches!(
                error,
                LogError::Damaged {
                    sequence: 2,
                    later: 3,
                    ..
                }
            ),
            "{error}"
        );
        let mut bench = Bench::new(&far, &log, ",idle=1h,damaged=drop");
        assert_eq!(
            bench.read(0, 3 * BLOCK),
            [vec![1; 4096], vec![0; 8192]].concat()
        );
        bench.write(BLOCK, BLOCK, 9);
        drop(bench);
        let mut bench = Bench::new(&far, &log, ",idle=1h");
        assert_eq!(
            bench.read(0, 3 * BLOCK),
            [vec![1; 4096], vec![9; 4096], vec![0; 4096]].concat()
        );
    }
}

/// A temporary log leaves nothing behind, and several can use the same name.
#[test]
fn a_temporary_log_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    let more = ",size=2MiB,memory=1MiB,idle=1h,temporary=yes";
    let (mut bench, mut other) = (
        Bench::new(&far, &log, more),
        Bench::new(&Gate::new(), &log, more),
    );
    for part in 0..6 {
        bench.write(part * (256 << 10), 256 << 10, 7);
        other.write(part * (256 << 10), 256 << 10, 8);
    }
    assert_eq!(
        (bench.read(0, 512), other.read(0, 512)),
        (vec![7; 512], vec![8; 512])
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    drop(bench);
    assert_eq!(Bench::new(&far, &log, more).count("replayed_records"), 0);
}

/// Any other log is rejected with a message that names it, and left unchanged.
#[test]
fn other_logs_are_rejected_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (far, log) = (Gate::new(), folder.path().join("log"));
    three_records(&far, &log);
    let whole = std::fs::read(&log).unwrap();
    let other = Arc::new(Gate {
        memory: MemoryBackend::new(BYTES / 2, 512).unwrap(),
        stand: Arc::default(),
    });
    assert!(matches!(
        refused(&other, &log, ""),
        LogError::AnotherDevice { .. }
    ));
    assert!(matches!(
        refused(&far, &log, ",identity=other"),
        LogError::AnotherDevice { .. }
    ));
    assert!(matches!(
        refused(&far, &log, ",size=2MiB"),
        LogError::Size { .. }
    ));
    assert!(matches!(
        refused(&far, folder.path(), ""),
        LogError::Io { .. }
    ));
    let bench = Bench::new(&far, &log, ",idle=1h");
    assert!(matches!(refused(&far, &log, ""), LogError::InUse { .. }));
    drop(bench);
    let check = |content: &[u8], fault: SuperblockFault| {
        let path = folder.path().join("changed");
        std::fs::write(&path, content).unwrap();
        match refused(&far, &path, "") {
            LogError::Superblock { fault: found, .. } => assert_eq!(found, fault),
            other => panic!("{other}"),
        }
        assert!(std::fs::read(&path).unwrap() == content, "it was changed");
    };
    check(b"somebody's letters", SuperblockFault::Foreign);
    let mut version = whole.clone();
    (version[8], version[BLOCK as usize + 8]) = (2, 2);
    check(&version, SuperblockFault::Version(2));
    check(&whole[..whole.len() / 2], SuperblockFault::Damaged);
    let mut damaged = whole.clone();
    (damaged[50], damaged[BLOCK as usize + 50]) = (0xff, 0xff);
    check(&damaged, SuperblockFault::Damaged);
    // A log that no device needs can be reused.
    let bench = Bench::new(&far, &log, ",idle=1h");
    bench.destage();
    drop(bench);
    drop(open(&other, &log, "").unwrap());
}

#[test]
fn invalid_options_are_rejected() {
    for text in [
        "",
        "size=1MiB",
        "log,",
        "log,size=1KiB",
        "log,memory=1KiB",
        "log,destage=never",
        "log,high=40,low=50",
        "log,high=101",
        "log,depth=0",
        "log,order=random",
        "log,flush=near",
        "log,idle=1",
        "log,speed=9",
        "log,name=a/b",
        "log,merge=1",
    ] {
        assert!(SticsOptions::parse(text).is_err(), "'{text}' was taken");
    }
    let options =
        SticsOptions::parse("a/log,high=90,low=10,memory=2MiB,destage=always,order=log,flush=far")
            .unwrap();
    assert_eq!(
        (
            options.high_percent,
            options.low_percent,
            options.memory_bytes
        ),
        (90, 10, 2 << 20)
    );
    assert!(options.always && options.batch.flush && !options.batch.by_offset);
}
