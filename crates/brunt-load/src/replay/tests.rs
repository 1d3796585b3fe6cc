use super::*;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use brunt_block::BufPool;
use brunt_block::backends::join::JoinedBackend;
use brunt_block::backends::memory::MemoryBackend;
use brunt_block::backends::null::NullBackend;
use brunt_core::Clock;
use brunt_result::replay::{ReplayVerdict, UnsentRequests};
use brunt_result::void::VoidReason;
use brunt_result::{Interval, RequestRecord, RequestStatus};
use brunt_trace::{BlockRequest, ContentHash, TraceOp, TraceSink};

use crate::Recorder;
use crate::block::generator::Planned;
use crate::block::worker::Timeline;
use crate::decisions;
use crate::sequence::{Next, Sequence};

mod counts;
mod ends;
mod order;

/// Writes a trace to its own folder; rows are `device,offset,length,R|W,microseconds`.
fn trace(folder: &Path, rows: impl Iterator<Item = (u32, u64, u64, char, u64)>) -> PathBuf {
    let path = folder.join("x.csv");
    let mut text = String::new();
    for (device, offset, len, op, us) in rows {
        text += &format!("{device},{op},{offset},{len},{us}\n");
    }
    std::fs::write(&path, text).unwrap();
    path
}

fn load(path: &Path, keys: &str) -> ReplayLoad {
    let text = format!(
        "trace = {path:?}\nformat = \"alibaba\"\nqueue_depth = 16\nrecord_requests = true\n{keys}"
    );
    let workload: Workload = toml::from_str(&text).unwrap();
    workload.check().unwrap();
    ReplayLoad::new(workload, &[])
}

#[derive(Default)]
struct Keep(Vec<RequestRecord>);
impl Recorder for Keep {
    fn interval(&mut self, _interval: &Interval) {}
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.0.extend_from_slice(batch);
    }
}

/// Runs a load; returns the result and its requests, in the order of the trace.
fn replayed(
    load: &ReplayLoad,
    backend: impl Backend + 'static,
) -> (Outcome, ReplayFidelity, Vec<RequestRecord>) {
    replayed_on(load, &LoadTarget::of(Arc::new(backend)))
}

fn replayed_on(
    load: &ReplayLoad,
    on: &LoadTarget,
) -> (Outcome, ReplayFidelity, Vec<RequestRecord>) {
    load.open(on, &AtomicBool::new(false)).unwrap();
    let mut kept = Keep::default();
    let ran = decisions::run(
        load,
        on,
        &RunOrder::alone(1),
        &AtomicBool::new(false),
        &mut kept,
    )
    .unwrap();
    kept.0.sort_by_key(|request| request.index);
    (ran.outcome, *ran.finished.replay.unwrap(), kept.0)
}

fn memory(bytes: u64) -> MemoryBackend {
    MemoryBackend::new(bytes, 512).unwrap()
}

/// Every request of the trace is sent once, with its operation, address and size, and is due at its time, for any
/// number of workers.
#[test]
fn every_request_is_sent_once_and_at_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |at: u64| {
        (
            0,
            at * 8192 % (1 << 20),
            512 * (1 + at % 9),
            if at.is_multiple_of(3) { 'W' } else { 'R' },
            at * 50,
        )
    };
    let path = trace(folder.path(), (0..5000).map(rows));
    for (workers, repeat) in [(1, 1), (3, 1), (2, 3)] {
        let load = load(
            &path,
            &format!("speed = 10.0\nworkers = {workers}\nloop = {repeat}"),
        );
        let (outcome, fidelity, requests) = replayed(&load, memory(4 << 20));
        assert_eq!(
            (outcome.figures.completed(), fidelity.sent),
            (5000 * repeat, 5000 * repeat)
        );
        assert_eq!(fidelity.digests.planned, fidelity.digests.sent);
        if repeat == 1 {
            assert_eq!(fidelity.digests.trace, fidelity.digests.sent);
        }
        assert_eq!(requests.len() as u64, 5000 * repeat);
        let start = requests[0].intended.0;
        for (place, request) in requests.iter().enumerate() {
            let (_, offset, len, op, us) = rows(place as u64 % 5000);
            assert_eq!(request.index, place as u64);
            assert_eq!(
                (request.offset, request.len, request.op == OpKind::Write),
                (offset, len, op == 'W')
            );
            if place < 5000 {
                assert_eq!(request.intended.0 - start, us * 100);
            }
            assert!(request.sent >= Some(request.intended));
        }
        assert!(
            fidelity
                .over_time
                .iter()
                .map(|moment| moment.requests)
                .sum::<u64>()
                == 5000 * repeat
        );
    }
}

/// When replaying as fast as possible, the queue depth and the trace's order are kept.
#[test]
fn a_fixed_depth_keeps_the_order_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..20_000).map(|at| (0, at * 512, 512, 'R', at * 1_000_000)),
    );
    let (outcome, fidelity, _) = replayed(
        &load(&path, "timing = \"depth\""),
        NullBackend::new(1 << 30, 512),
    );
    assert_eq!(
        (outcome.figures.completed(), fidelity.verdict),
        (20_000, ReplayVerdict::True)
    );
    assert_eq!(
        (fidelity.drift, fidelity.issue_error, fidelity.reordered),
        (None, None, 0)
    );
}

/// Addresses are mapped as configured, and a trace that doesn't fit is rejected with an error that names the key to
/// change.
#[test]
fn addresses_are_mapped_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    let far = 33u64 << 30;
    let rows = [
        (7, 0, 4096, 'W', 0),
        (7, far, 8192, 'R', 10),
        (9, 4096, 512, 'R', 20),
        (7, far, 512, 'W', 30),
    ];
    let path = trace(folder.path(), rows.into_iter());
    let info = memory(1 << 20).info().clone();
    let misfit = load(&path, "").check_trace(&info, &[]).unwrap_err();
    assert!(
        misfit.key == "map" && misfit.what.contains("pack"),
        "{misfit}"
    );
    let (_, fidelity, requests) = replayed(&load(&path, "map = \"pack\""), memory(1 << 20));
    let offsets: Vec<u64> = requests.iter().map(|request| request.offset).collect();
    assert_eq!(offsets, [0, 65536, 65536 * 2 + 4096, 65536]);
    assert_eq!(fidelity.rows["moved: packed"], 3);
    let (_, fidelity, requests) = replayed(
        &load(&path, "map = \"wrap\"\ntiming = \"depth\""),
        memory(1 << 20),
    );
    assert!(
        requests
            .iter()
            .all(|request| request.offset + request.len <= 1 << 20)
    );
    assert_eq!(fidelity.verdict, ReplayVerdict::Degraded);
    let (_, _, requests) = replayed(
        &load(&path, "devices = { \"9\" = \"disk\" }"),
        memory(1 << 20),
    );
    assert_eq!((requests.len(), requests[0].offset), (1, 4096));
    let absent = load(&path, "devices = { \"8\" = \"disk\" }")
        .check_trace(&info, &[])
        .unwrap_err();
    assert!(
        absent.key == "devices" && absent.what.contains("7, 9"),
        "{absent}"
    );
}

/// Only part of a trace's time is replayed, and rows outside of it are counted.
#[test]
fn only_the_configured_part_of_a_trace_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..100).map(|at| (0, at * 512, 512, 'R', 5_000_000 + at * 1000)),
    );
    let part = load(&path, "from = \"20ms\"\nfor = \"10ms\"");
    let (_, fidelity, requests) = replayed(&part, memory(1 << 20));
    assert_eq!(
        (requests.len(), requests[0].offset, requests[9].offset),
        (10, 20 * 512, 29 * 512)
    );
    assert_eq!(fidelity.rows["left out: before `from`"], 20);
    let info = memory(1 << 20).info().clone();
    assert_eq!(
        load(&path, "from = \"1h\"")
            .check_trace(&info, &[])
            .unwrap_err()
            .key,
        "from"
    );
}

/// Requests on the same blocks are let through, held back or dropped as configured, and counted in any case.
#[test]
fn conflicts_are_handled_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    // Pairs of writes to one block, both due at the same time.
    let path = trace(
        folder.path(),
        (0..200).map(|at| (0, at / 2 * 4096, 4096, 'W', at / 2 * 100)),
    );
    for rule in ["let-through", "hold-back", "drop"] {
        let (outcome, fidelity, requests) = replayed(
            &load(&path, &format!("conflicts = \"{rule}\"")),
            memory(1 << 20),
        );
        let conflicts = fidelity.conflicts.requests;
        assert_eq!(fidelity.conflicts.rule, rule);
        assert!((1..=100).contains(&conflicts), "{rule}: {conflicts}");
        let sent = if rule == "drop" { 200 - conflicts } else { 200 };
        assert_eq!(
            (fidelity.sent, outcome.figures.completed()),
            (sent, sent),
            "{rule}"
        );
        if rule == "hold-back" {
            assert!(
                requests
                    .chunks(2)
                    .all(|pair| pair[1].sent >= pair[0].completed),
                "{rule}"
            );
        }
        if rule == "drop" {
            assert_ne!(fidelity.verdict, ReplayVerdict::True);
            assert_eq!(
                fidelity.unsent,
                UnsentRequests {
                    dropped: conflicts,
                    ..UnsentRequests::default()
                }
            );
            assert!(fidelity.reasons.iter().any(|reason| {
                reason.ends_with(
                    "dropped because another was in flight on the same blocks; conflicts = \"hold-back\" waits instead",
                )
            }));
        }
    }
}

/// Later reads verify written data; a device that loses data is detected.
#[test]
fn a_replay_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let op = |at: u64| if at.is_multiple_of(2) { 'W' } else { 'R' };
    let path = trace(
        folder.path(),
        (0..4000).map(|at| (0, at / 2 % 64 * 4096, 4096, op(at), at)),
    );
    let load = load(&path, "verify = {}\ntiming = \"depth\"");
    let (outcome, _, _) = replayed(&load, memory(1 << 20));
    assert_eq!(
        (outcome.figures.completed(), outcome.figures.counts.errors()),
        (4000, 0)
    );
    let (outcome, fidelity, _) = replayed(&load, NullBackend::new(1 << 20, 512));
    assert!(outcome.figures.counts.of(RequestStatus::Miscompare) > 1000);
    assert_eq!(fidelity.verdict, ReplayVerdict::NotAReplay);
}

/// With response times, a request waits for those that had completed before it, and keeps its think time.
#[test]
fn dependencies_follow_from_response_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.load");
    let mut text =
        String::from("start ; sector ; length ; op ; replay_delay=0 ; replay_duration=0\n");
    // Two concurrent requests that take 10 ms; the next two follow 2 ms after the second of them.
    for at in 0..20 {
        text += &format!(
            "{:.3} ; {} ; 8 ; R ; 0 ; 0.010\n",
            (at / 2) as f64 * 0.012,
            at * 8
        );
    }
    std::fs::write(&path, text).unwrap();
    let keys = format!(
        "trace = {path:?}\nformat = \"blkreplay\"\ntiming = \"dependency\"\nqueue_depth = 8\nrecord_requests = true"
    );
    let load = ReplayLoad::new(toml::from_str(&keys).unwrap(), &[]);
    let (_, fidelity, requests) = replayed(&load, memory(1 << 20));
    assert_eq!((requests.len(), fidelity.drift), (20, None));
    for pair in requests.chunks(2).collect::<Vec<_>>().windows(2) {
        let done = pair[0]
            .iter()
            .filter_map(|request| request.completed)
            .max()
            .unwrap();
        for request in pair[1] {
            assert_eq!(request.intended.0, done.0 + 2_000_000);
        }
    }
}

/// Without response times, a request keeps its distance from the last one, and waits for any that it overlaps or
/// continues.
#[test]
fn dependencies_without_response_times_follow_from_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..50).map(|at| (0, at * 4096, 4096, 'W', at)),
    );
    let (_, _, requests) = replayed(&load(&path, "timing = \"dependency\""), memory(1 << 20));
    assert!(
        requests
            .windows(2)
            .all(|pair| pair[1].sent >= pair[0].completed)
    );
}

/// A run that is cut short is reported as such.
#[test]
fn a_run_that_is_cut_short_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..1000).map(|at| (0, at * 512, 512, 'R', at)),
    );
    let (outcome, fidelity, _) = replayed(
        &load(&path, "stop = { requests = 100 }\ntiming = \"depth\""),
        memory(1 << 20),
    );
    assert_eq!(
        (outcome.figures.completed(), fidelity.sent, fidelity.planned),
        (100, 100, 1000)
    );
    assert_eq!(fidelity.verdict, ReplayVerdict::Degraded);
    let said = &fidelity.reasons[0];
    assert!(
        said.contains("100 of 1000") && said.contains("stop = { time = \""),
        "{said}"
    );
    assert!(VoidReason::ReplayUntrue.is_named_in(said), "{said}");
}

/// Answers each request after a fixed time, without a ring.
struct SlowDevice {
    info: DeviceInfo,
    clock: Clock,
    service: Duration,
    depth: usize,
    in_flight: VecDeque<(Nanos, brunt_block::Request)>,
    /// When requests were sent.
    seen: Vec<Nanos>,
}

impl SlowDevice {
    fn new(clock: &Clock, service: Duration, depth: usize) -> SlowDevice {
        let info = memory(1 << 20).info().clone();
        let (clock, in_flight, seen) = (clock.clone(), VecDeque::new(), Vec::new());
        SlowDevice {
            info,
            clock,
            service,
            depth,
            in_flight,
            seen,
        }
    }
}

impl brunt_block::Device for SlowDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn submit(&mut self, batch: &mut VecDeque<brunt_block::Request>) {
        let now = self.clock.now();
        while self.in_flight.len() < self.depth {
            let Some(request) = batch.pop_front() else {
                return;
            };
            self.seen.push(now);
            self.in_flight.push_back((now.after(self.service), request));
        }
    }
    fn poll(&mut self, done: &mut Vec<brunt_block::Completion>) {
        let now = self.clock.now();
        while let Some((_, request)) = self.in_flight.pop_front_if(|(until, _)| *until <= now) {
            done.push(brunt_block::Completion {
                tag: request.tag,
                buf: request.buf,
                result: Ok(()),
            });
        }
    }
    fn outstanding(&self) -> u32 {
        self.in_flight.len() as u32
    }
    fn deadline(&self) -> Nanos {
        self.in_flight
            .front()
            .map_or(Nanos::MAX, |(until, _)| *until)
    }
}

/// Opens slow devices.
struct SlowBackend {
    info: DeviceInfo,
    service: Duration,
}

impl Backend for SlowBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn open(
        &self,
        _ring: &brunt_block::Ring,
        depth: u32,
    ) -> Result<Box<dyn brunt_block::Device>, brunt_block::OpenError> {
        Ok(Box::new(SlowDevice::new(
            &Clock::Monotonic,
            self.service,
            depth as usize,
        )))
    }
}

/// With any number of workers, a device that falls behind the trace gets everything that was due before the end.
/// Requests that are not sent before the drain ends are counted as skipped: each request is either sent or counted.
#[test]
fn what_was_due_before_the_end_is_sent_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..2000).map(|at| (0, at % 1000 * 512, 512, 'R', at * 5)),
    );
    let run = |workers: u32, depth: u32, service: Duration, drain: &str| {
        let text = format!(
            "trace = {path:?}\nformat = \"alibaba\"\nrecord_requests = true\nworkers = {workers}\n\
             queue_depth = {depth}\nstop = {{ time = \"1ms\" }}\ndrain = \"{drain}\""
        );
        let load = ReplayLoad::new(toml::from_str(&text).unwrap(), &[]);
        let (outcome, fidelity, requests) = replayed(
            &load,
            SlowBackend {
                info: memory(1 << 20).info().clone(),
                service,
            },
        );
        let indices: Vec<u64> = requests.iter().map(|request| request.index).collect();
        let case = format!("{workers} workers, depth {depth}, drain {drain}");
        // One every 5 µs, the first at the start.
        assert_eq!(indices, (0..200).collect::<Vec<u64>>(), "{case}");
        let skipped = outcome.figures.counts.of(RequestStatus::Skipped);
        let sent = requests
            .iter()
            .filter(|request| request.sent.is_some())
            .count() as u64;
        assert_eq!((sent + skipped, fidelity.sent), (200, sent), "{case}");
        assert!(
            requests[..sent as usize]
                .iter()
                .all(|request| request.sent.is_some()),
            "{case}"
        );
        skipped
    };
    let us = Duration::from_micros;
    for round in 0..20 {
        for (workers, depth) in [(2, 1), (3, 2), (4, 1), (4, 4)] {
            assert_eq!(
                run(workers, depth, us(50), "10s"),
                0,
                "round {round}, {workers} workers"
            );
        }
    }
    for workers in 1..=4 {
        // Ten times too slow for the drain.
        assert!(run(workers, 1, us(20_000), "100ms") > 0);
    }
}

/// Another worker's access to the stream, in the same thread as the worker under test. Takes its turn at `from` and
/// gives it up at `until`, without notifying that worker.
struct OthersTurn {
    clock: Clock,
    other: turn::ReplaySequence,
    from: Nanos,
    until: Nanos,
    given: Option<Planned>,
    waits: u64,
}

impl OthersTurn {
    fn take(&mut self) {
        let mut place = Planned::NOTHING;
        assert!(
            matches!(self.other.next(self.from, &mut place), Next::Due(_)),
            "it is nobody's turn"
        );
        self.given = Some(place);
        self.other.pause(1);
        self.from = Nanos::MAX;
    }

    fn give_up(&mut self) {
        self.other.sent(&self.given.unwrap(), self.until);
        self.other.pause(0);
        self.until = Nanos::MAX;
    }
}

impl Timeline for OthersTurn {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
    fn wait(&mut self, _count: u32, until: Nanos) -> std::io::Result<()> {
        self.waits += 1;
        assert!(self.waits < 1_000_000, "the worker spins");
        if self.from <= until {
            self.take();
        }
        if self.until <= until {
            self.give_up();
        }
        self.clock.advance(Duration::from_nanos(
            until.0.saturating_sub(self.clock.now().0),
        ));
        Ok(())
    }
    fn push(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    fn system_calls(&self) -> u64 {
        0
    }
}

/// Returns the turns of two workers with a queue depth of one.
fn turns_of_two(load: &ReplayLoad, info: &DeviceInfo) -> Turns {
    let feed = Feed::start(FeederPlan {
        share: Share::ALL,
        settings: load.settings.clone(),
        routes: load.routes.clone(),
        survey: load.survey().unwrap(),
        parts: rooms(&[], info.size_bytes),
        block: 512,
        piece_max: PIECE_BYTES_MAX,
    });
    let meter = Meter::new(ReplayTiming::Trace, false, vec![0], 1);
    Turns::new(
        Stream::new(feed.unwrap(), &load.settings, false, 2, meter),
        2,
        1,
    )
}

/// Runs one of two workers, on a device with a queue depth of one, for 900 ms of a trace with these times in
/// microseconds. With `turn`, the other worker has its turn from 1 ms before the end until 20 ms after it. Returns the
/// outcome, and when the last request was sent and when the worker left, relative to the start.
fn one_of_two(
    us: impl Iterator<Item = u64>,
    service: Duration,
    turn: bool,
) -> (Outcome, Duration, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), us.map(|us| (0, 0, 512, 'R', us)));
    let text = format!(
        "trace = {path:?}\nformat = \"alibaba\"\nworkers = 2\nqueue_depth = 1\n\
         stop = {{ time = \"900ms\" }}\ndrain = \"1h\""
    );
    let load = ReplayLoad::new(toml::from_str(&text).unwrap(), &[]);
    let survey = load.survey().unwrap();
    let clock = Clock::manual();
    let mut device = SlowDevice::new(&clock, service, 1);
    let turns = turns_of_two(&load, &device.info);
    let id = WorkerId::of(RunPart::whole(2), 0, 1);
    let workload = load.engine(&survey, &device.info, &RunOrder::alone(1));
    let area = Area {
        start: 0,
        len: 1 << 20,
        align: 512,
        first: 0,
    };
    let content = Blocks::over(&workload, &device.info, area, id, &1.into()).unwrap();
    let worker = Worker::with(turns.sequence(1), content, &workload, id, &BufPool::new(0));
    let start = clock.now();
    let other = turns.sequence(1);
    let at = |ms| {
        if turn {
            start.after(Duration::from_millis(ms))
        } else {
            Nanos::MAX
        }
    };
    let mut time = OthersTurn {
        clock: clock.clone(),
        other,
        from: at(899),
        until: at(920),
        given: None,
        waits: 0,
    };
    let outcome = worker
        .run(
            &mut device,
            &mut time,
            start,
            &Commands::new(),
            &mut Keep::default(),
        )
        .unwrap();
    if let Some(given) = time.given {
        time.other
            .completed(given.index, RequestStatus::Good, clock.now());
    }
    let last = device.seen.last().unwrap().since(start);
    (outcome, last, clock.now().since(start))
}

/// A worker that is behind at the end stays while another has its turn, and then sends the due requests one by one, as
/// fast as the device answers.
#[test]
fn a_worker_that_is_behind_waits_for_its_turn() {
    let service = Duration::from_micros(1500);
    let (outcome, last, _) = one_of_two((0..1000).map(|at| at * 1000), service, true);
    // The other worker has one of the requests due before the end.
    assert_eq!(
        (
            outcome.figures.completed(),
            outcome.figures.counts.of(RequestStatus::Skipped)
        ),
        (899, 0)
    );
    // Nothing was sent during the other's turn of 21 ms.
    let expected = 898 * service + Duration::from_millis(21);
    assert!(
        (expected - service..expected + service).contains(&last),
        "{last:?} for {expected:?}"
    );
}

/// The last worker knows that it is the last, and finds the turn free; it doesn't wait for a worker that failed.
#[test]
fn the_last_worker_to_leave_has_the_turn() {
    let folder = tempfile::tempdir().unwrap();
    let load = load(
        &trace(folder.path(), (0..10).map(|at| (0, 0, 512, 'R', at))),
        "",
    );
    let info = memory(1 << 20).info().clone();
    let now = Clock::Monotonic.now();
    for fails in [false, true] {
        let turns = turns_of_two(&load, &info);
        let (mut first, mut last) = (turns.sequence(1), turns.sequence(1));
        let mut place = Planned::NOTHING;
        assert!(matches!(first.next(now, &mut place), Next::Due(_)));
        // One request of this turn has not been submitted to the device.
        first.pause(1);
        assert!(matches!(last.next(now, &mut place), Next::Later(_)) && last.is_undecided());
        if fails {
            drop(first);
        } else {
            assert!(
                first.leaves(true) && first.leaves(true),
                "it leaves once, and the other goes on"
            );
        }
        assert!(matches!(last.next(now, &mut place), Next::Due(_)) && !last.is_undecided());
        assert!(!last.leaves(true), "nobody else is left");
    }
}

/// A worker that is not behind stays neither for requests due after the end, nor while others continue.
#[test]
fn a_worker_that_is_not_behind_leaves() {
    let late = std::iter::once(3_600_000_000);
    let (outcome, _, left) = one_of_two(
        (0..800).map(|at| at * 1000).chain(late),
        Duration::from_micros(100),
        false,
    );
    assert_eq!(
        (
            outcome.figures.completed(),
            outcome.figures.counts.of(RequestStatus::Skipped)
        ),
        (800, 0)
    );
    assert_eq!(left, Duration::from_millis(900));
}
