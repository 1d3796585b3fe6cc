//! Every request of a trace is either sent, or counted by the reason why it was not.

use std::sync::atomic::{AtomicU32, Ordering};

use brunt_block::{Completion, Device, DeviceError, Op, OpenError, Request, Ring};

use super::super::feeder::{ReplayRow, RowOrigin};
use super::*;

/// A trace reader controlled by the test: supplies the rest of the trace once the worker waits until `at`.
struct LateReader<G> {
    clock: Clock,
    give: Option<G>,
    rest: Vec<ReplayRow>,
    at: Nanos,
    /// Whether to supply the rest in another thread, while the worker continues.
    meanwhile: bool,
    waits: u64,
}

impl<G: Fn(Vec<ReplayRow>) + Send + 'static> Timeline for LateReader<G> {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
    fn wait(&mut self, _count: u32, until: Nanos) -> std::io::Result<()> {
        self.waits += 1;
        assert!(self.waits < 1_000_000, "the worker spins");
        if until >= self.at
            && let Some(give) = self.give.take()
        {
            let rest = std::mem::take(&mut self.rest);
            match self.meanwhile {
                true => _ = std::thread::spawn(move || give(rest)),
                false => give(rest),
            }
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

/// Returns a read of one block at this time in milliseconds.
fn row(ms: u64) -> ReplayRow {
    ReplayRow {
        is_foreign: false,
        time_ns: ms * 1_000_000,
        response_ns: u64::MAX,
        offset: 0,
        len: 512,
        op: Op::Read,
        of: RowOrigin::default(),
        fua: false,
        is_last: true,
        content: None,
    }
}

/// Replays 100 requests in 100 ms, of which the reader supplies ten in time, and five that are due much later. The rest
/// arrives `late` milliseconds after the end. Returns the outcome, the number of requests sent, and those not sent.
fn read_late(late: u64, drain: &str, meanwhile: bool) -> (Outcome, u64, UnsentRequests) {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..100).map(|ms| (0, 0, 512, 'R', ms * 1000)),
    );
    let text = format!(
        "trace = {path:?}\nformat = \"alibaba\"\nqueue_depth = 1\nstop = {{ time = \"100ms\" }}\n\
         drain = \"{drain}\""
    );
    let load = ReplayLoad::new(toml::from_str(&text).unwrap(), &[]);
    let clock = Clock::manual();
    let mut device = SlowDevice::new(&clock, Duration::from_micros(100), 1);
    let (give, feed) = Feed::by_hand(Duration::from_secs(60));
    give((0..10).map(row).collect());
    let meter = Meter::new(ReplayTiming::Trace, false, vec![0], 1);
    let turns = Turns::new(Stream::new(feed, &load.settings, false, 1, meter), 1, 1);
    let id = WorkerId::alone(1);
    let workload = load.engine(&load.survey().unwrap(), &device.info, &RunOrder::alone(1));
    let area = Area {
        start: 0,
        len: 1 << 20,
        align: 512,
        first: 0,
    };
    let content = Blocks::over(&workload, &device.info, area, id, &1.into()).unwrap();
    let worker = Worker::with(turns.sequence(1), content, &workload, id, &BufPool::new(0));
    let start = clock.now();
    let mut time = LateReader {
        clock: clock.clone(),
        give: Some(give),
        rest: (10..100)
            .chain((0..5).map(|row| 3_600_000 + row))
            .map(row)
            .collect(),
        at: start.after(Duration::from_millis(100 + late)),
        meanwhile,
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
    let meter = turns.into_stream().meter;
    (outcome, meter.fates.sent, meter.fates.unsent(105))
}

/// The run waits for a reader that is behind at the end: requests that arrive within the time for late requests are
/// sent, later ones are counted.
#[test]
fn requests_read_late_are_sent_or_counted() {
    let skipped = |outcome: &Outcome| outcome.figures.counts.of(RequestStatus::Skipped);
    let (outcome, sent, unsent) = read_late(20, "1h", false);
    assert_eq!(
        (outcome.figures.completed(), skipped(&outcome), sent),
        (100, 0, 100)
    );
    assert_eq!(
        unsent,
        UnsentRequests {
            after_end: 5,
            ..UnsentRequests::default()
        }
    );
    // The rest arrives when the time for late requests is over, perhaps before the worker has left.
    let (outcome, sent, unsent) = read_late(10, "10ms", true);
    assert!((10..12).contains(&sent), "{sent}");
    assert_eq!(
        (unsent.after_end, unsent.skipped, sent + unsent.total()),
        (5, skipped(&outcome), 105)
    );
}

/// A leaving worker doesn't wait forever for a reader that hangs, and doesn't wait at all if the run was interrupted:
/// requests that were not read count as not due.
#[test]
fn a_worker_does_not_wait_forever_for_a_hanging_reader() {
    let folder = tempfile::tempdir().unwrap();
    let load = load(
        &trace(folder.path(), (0..2).map(|ms| (0, 0, 512, 'R', ms * 1000))),
        "",
    );
    for (may_wait, patience) in [(true, Duration::from_millis(20)), (false, Duration::MAX)] {
        let (give, feed) = Feed::by_hand(patience);
        give(vec![row(0)]);
        let meter = Meter::new(ReplayTiming::Trace, false, vec![0], 1);
        let turns = Turns::new(Stream::new(feed, &load.settings, false, 1, meter), 1, 1);
        let (mut sequence, mut place) = (turns.sequence(1), Planned::NOTHING);
        let now = Clock::Monotonic.now();
        sequence.starts(now);
        assert!(!sequence.leaves(may_wait));
        assert_eq!(sequence.next(now, &mut place), Next::Due(now));
        sequence.completed(place.index, RequestStatus::Skipped, now);
        assert_eq!(sequence.next(now, &mut place), Next::End);
        drop(sequence);
        let meter = turns.into_stream().meter;
        assert_eq!(
            (meter.fates.unsent(2), meter.ended),
            (
                UnsentRequests {
                    skipped: 1,
                    after_end: 1,
                    ..UnsentRequests::default()
                },
                false
            )
        );
        // Until this point, the reader could have supplied more.
        drop(give);
    }
}

/// Accepts a number of requests, then disappears.
struct LostDevice {
    inner: SlowDevice,
    left: u32,
    lost: Vec<Request>,
}

impl Device for LostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }
    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while let Some(request) = batch.pop_front() {
            if self.left == 0 {
                self.lost.push(request);
                continue;
            }
            self.left -= 1;
            let mut one = VecDeque::from([request]);
            self.inner.submit(&mut one);
            assert!(one.is_empty(), "its queue is as deep as the worker's");
        }
    }
    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.inner.poll(done);
        let gone = |Request { tag, buf, .. }: Request| Completion {
            tag,
            buf,
            result: Err(DeviceError::Gone),
        };
        done.extend(self.lost.drain(..).map(gone));
    }
    fn outstanding(&self) -> u32 {
        self.inner.outstanding() + self.lost.len() as u32
    }
    fn deadline(&self) -> Nanos {
        if self.lost.is_empty() {
            self.inner.deadline()
        } else {
            Nanos(0)
        }
    }
}

/// Opens these devices; the first ones disappear.
struct LosingBackend {
    info: DeviceInfo,
    /// Number of devices that disappear, and the number of requests after which each does.
    losing: u32,
    after: u32,
    opened: AtomicU32,
}

impl Backend for LosingBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn open(&self, _ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let inner = SlowDevice::new(&Clock::Monotonic, Duration::from_micros(50), depth as usize);
        let is_lost = self.opened.fetch_add(1, Ordering::Relaxed) < self.losing;
        let left = if is_lost { self.after } else { u32::MAX };
        Ok(Box::new(LostDevice {
            inner,
            left,
            lost: Vec::new(),
        }))
    }
}

/// If one of several workers loses its device, either before the end or while it sends late requests, the others send
/// all of the rest. If all lose theirs, the rest is counted.
#[test]
fn other_workers_send_the_requests_of_a_lost_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..2000).map(|at| (0, at % 1000 * 512, 512, 'R', at * 5)),
    );
    let text = format!(
        "trace = {path:?}\nformat = \"alibaba\"\nworkers = 2\nqueue_depth = 1\nstop = {{ time = \"1ms\" }}\n\
         drain = \"10s\""
    );
    let load = ReplayLoad::new(toml::from_str(&text).unwrap(), &[]);
    let run = |losing: u32, after: u32| {
        let info = memory(1 << 20).info().clone();
        let backend = LosingBackend {
            info,
            losing,
            after,
            opened: AtomicU32::new(0),
        };
        let (outcome, fidelity, _) = replayed(&load, backend);
        let counts = &outcome.figures.counts;
        let [gone, skipped] =
            [RequestStatus::Gone, RequestStatus::Skipped].map(|status| counts.of(status));
        let case = format!(
            "{losing} lost after {after}: {gone} gone, {:?}",
            fidelity.unsent
        );
        assert_eq!(outcome.figures.completed() + gone, fidelity.sent, "{case}");
        assert_eq!(
            (fidelity.sent + fidelity.unsent.total(), fidelity.planned),
            (2000, 2000),
            "{case}"
        );
        let after_end = fidelity.unsent.after_end;
        let unsent = UnsentRequests {
            skipped,
            after_end,
            ..UnsentRequests::default()
        };
        assert_eq!(fidelity.unsent, unsent, "{case}");
        (fidelity, gone, case)
    };
    for after in [5, 30] {
        let mut lost = 0;
        for _ in 0..20 {
            let (fidelity, gone, case) = run(1, after);
            assert!(gone <= 1 && fidelity.sent == 200, "{case}");
            // On a busy machine the other worker may send almost everything.
            lost += gone;
        }
        assert!(lost > 0, "no device was lost in 20 rounds");
        let (fidelity, gone, case) = run(2, after);
        assert_eq!(
            (fidelity.sent, gone),
            (2 * u64::from(after) + 2, 2),
            "{case}"
        );
        assert!(fidelity.unsent.skipped > 0, "{case}");
    }
}

/// A request that is sent in pieces counts once, when its last piece does.
#[test]
fn requests_in_pieces_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..20).map(|at| (0, at % 4 * (200 << 10), 200 << 10, 'R', at)),
    );
    let small = || {
        let info = DeviceInfo {
            transfer_bytes_max: 64 << 10,
            ..memory(1 << 20).info().clone()
        };
        SlowBackend {
            info,
            service: Duration::from_micros(10),
        }
    };
    let (outcome, fidelity, _) = replayed(&load(&path, "timing = \"depth\""), small());
    assert_eq!(
        (
            fidelity.planned,
            fidelity.sent,
            fidelity.pieces,
            fidelity.completed
        ),
        (20, 20, 80, 80)
    );
    assert_eq!(
        (outcome.figures.completed(), fidelity.unsent.total()),
        (80, 0)
    );
    assert_eq!(
        (&fidelity.digests.planned, fidelity.verdict),
        (&fidelity.digests.sent, ReplayVerdict::True)
    );
    let cut = load(&path, "timing = \"depth\"\nstop = { requests = 10 }");
    let (_, fidelity, _) = replayed(&cut, small());
    assert_eq!(
        (fidelity.sent, fidelity.pieces, fidelity.unsent.after_end),
        (2, 10, 18)
    );
    assert_eq!(
        (fidelity.unsent.total(), &fidelity.digests.planned),
        (18, &fidelity.digests.sent)
    );
}

/// As fast as possible, with a time limit: requests not sent by then are not lost, because they were not due.
#[test]
fn nothing_is_lost_at_the_end_of_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(
        folder.path(),
        (0..100_000).map(|at| (0, at % 1000 * 512, 512, 'R', at)),
    );
    for workers in [1, 2] {
        let load = load(
            &path,
            &format!("timing = \"depth\"\nworkers = {workers}\nstop = {{ time = \"5ms\" }}"),
        );
        let slow = SlowBackend {
            info: memory(1 << 20).info().clone(),
            service: Duration::from_micros(50),
        };
        let (_, fidelity, _) = replayed(&load, slow);
        let after_end = 100_000 - fidelity.sent;
        let over_time: u64 = fidelity
            .over_time
            .iter()
            .map(|moment| moment.requests)
            .sum();
        assert_eq!(over_time, fidelity.sent);
        assert_eq!(
            fidelity.unsent,
            UnsentRequests {
                after_end,
                ..UnsentRequests::default()
            }
        );
        assert_eq!(fidelity.digests.planned, fidelity.digests.sent);
        assert!(
            fidelity.reasons.len() == 1 && fidelity.verdict == ReplayVerdict::Degraded,
            "{fidelity:?}"
        );
    }
}
