//! Tests of the loop against simulated devices on a manual clock.

use super::*;
use std::sync::{Arc, Mutex};

use crate::block::generator::{Area, Generator};
use crate::block::workload::{ArrivalProcess, Burst, RampUp, Retry, RetryOn, StopCondition};
use crate::load::RunPart;
use crate::record::NoRecorder;
use crate::sequence::Next;
use brunt_core::{Clock, Span};
use brunt_result::{Interval, OpKind};

/// A device that answers after a fixed time, on a clock that only the test advances.
struct Simulated {
    info: DeviceInfo,
    clock: Clock,
    depth: usize,
    service: Duration,
    /// No request is answered during this period.
    stall: (Nanos, Nanos),
    in_flight: Vec<(Nanos, Request)>,
    /// Results of the first attempts, in order of submission.
    failures: VecDeque<DeviceError>,
    never_answers: bool,
    cancelled: Vec<u64>,
    /// Time and offset of every request.
    seen: Vec<(Nanos, u64)>,
}

impl Simulated {
    fn new(clock: &Clock, depth: usize, service: Duration) -> Simulated {
        let info = DeviceInfo {
            name: "simulated".into(),
            block_bytes: 512,
            size_bytes: 1 << 30,
            physical_block_bytes: 4096,
            buffer_align: 1,
            transfer_bytes_max: 1 << 20,
            read_only: false,
            volatile_cache: false,
            unmap: false,
            facts: Vec::new(),
            notes: Vec::new(),
        };
        Simulated {
            info,
            clock: clock.clone(),
            depth,
            service,
            stall: (Nanos::MAX, Nanos::MAX),
            in_flight: Vec::new(),
            failures: VecDeque::new(),
            never_answers: false,
            cancelled: Vec::new(),
            seen: Vec::new(),
        }
    }
}

impl Device for Simulated {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        let now = self.clock.now();
        while self.in_flight.len() < self.depth {
            let Some(request) = batch.pop_front() else {
                break;
            };
            self.seen.push((now, request.offset));
            let mut due = now.after(self.service);
            if due >= self.stall.0 && due < self.stall.1 {
                due = self.stall.1;
            }
            self.in_flight
                .push((if self.never_answers { Nanos::MAX } else { due }, request));
        }
    }
    fn poll(&mut self, done: &mut Vec<Completion>) {
        let now = self.clock.now();
        let mut index = 0;
        while index < self.in_flight.len() {
            let (due, request) = &self.in_flight[index];
            let cancelled = self.cancelled.contains(&request.tag);
            if *due > now && !cancelled {
                index += 1;
                continue;
            }
            self.cancelled.retain(|tag| *tag != request.tag);
            let (_, request) = self.in_flight.remove(index);
            let result = self.failures.pop_front().map_or(Ok(()), Err);
            done.push(Completion {
                tag: request.tag,
                buf: request.buf,
                result,
            });
        }
    }
    fn outstanding(&self) -> u32 {
        self.in_flight.len() as u32
    }
    fn deadline(&self) -> Nanos {
        if !self.cancelled.is_empty() {
            return Nanos(0);
        }
        self.in_flight
            .iter()
            .map(|(due, _)| *due)
            .min()
            .unwrap_or(Nanos::MAX)
    }
    fn cancel(&mut self, tag: u64) {
        if !self.never_answers {
            self.cancelled.push(tag);
        }
    }
}

/// Waiting advances the clock to the end of the wait.
struct SimulatedTime {
    clock: Clock,
    waits: u64,
}

impl Timeline for SimulatedTime {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
    fn wait(&mut self, _count: u32, until: Nanos) -> io::Result<()> {
        self.waits += 1;
        assert!(self.waits < 10_000_000, "the loop spins");
        let now = self.clock.now();
        if until > now && until != Nanos::MAX {
            self.clock.advance(until.since(now));
        }
        Ok(())
    }
    fn push(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn system_calls(&self) -> u64 {
        self.waits
    }
}

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

fn run_with(workload: &Workload, device: &mut Simulated, recorder: &mut dyn Recorder) -> Outcome {
    let id = WorkerId::alone(1);
    let worker = Worker::new(workload, &device.info, id, &1.into(), &BufPool::new(0)).unwrap();
    let mut time = SimulatedTime {
        clock: device.clock.clone(),
        waits: 0,
    };
    let start = time.now();
    worker
        .run(device, &mut time, start, &Commands::new(), recorder)
        .unwrap()
}

fn run(workload: &Workload, device: &mut Simulated) -> Outcome {
    run_with(workload, device, &mut NoRecorder)
}

fn for_time(time: Duration) -> StopCondition {
    StopCondition {
        time: Some(Span(time)),
        ..StopCondition::default()
    }
}

fn for_requests(count: u64) -> StopCondition {
    StopCondition {
        requests: Some(count),
        ..StopCondition::default()
    }
}

fn open(rate: f64) -> Arrival {
    Arrival::Open {
        rate,
        process: ArrivalProcess::Constant,
        skip_after: Span(Duration::from_secs(10)),
    }
}

/// A closed loop keeps its depth outstanding, and its rate is the depth divided by the service time.
#[test]
fn a_closed_loop_keeps_its_depth() {
    let mut device = Simulated::new(&Clock::manual(), 8, 100 * US);
    let workload = Workload {
        queue_depth: 8,
        stop: for_time(Duration::from_secs(1)),
        ..Workload::default()
    };
    let outcome = run(&workload, &mut device);
    // The eight requests due exactly at the end still count as in time.
    assert_eq!(outcome.figures.completed_in_time(), 80_000);
    assert_eq!(outcome.requests_per_second, 80_000.0);
    assert_eq!(outcome.figures.service().max(), Some(Nanos(100_000)));
    assert_eq!(outcome.figures.response().min(), Some(Nanos(100_000)));
}

/// An open loop's latencies show a one-second stall as callers would have experienced it; a closed loop's hide it.
#[test]
fn a_stall_shows_only_in_an_open_loop() {
    let stalled = |arrival| {
        let mut device = Simulated::new(&Clock::manual(), 16, 100 * US);
        device.stall = (Nanos(5_000_000_000), Nanos(6_000_000_000));
        let stop = for_time(Duration::from_secs(10));
        let workload = Workload {
            queue_depth: 16,
            arrival,
            stop,
            ..Workload::default()
        };
        run(&workload, &mut device)
    };
    let opened = stalled(open(1000.0));
    assert_eq!(opened.figures.completed(), 10_000);
    // A tenth of all requests arrived during the stall, and waited half of it on average.
    let p95 = opened.figures.response().percentile(95.0).unwrap();
    assert!((p95.0 as f64 - 500e6).abs() < 5e6, "{p95:?}");
    assert!(opened.figures.service().percentile(99.0).unwrap() < Nanos(101_000));
    let closed = stalled(Arrival::Closed {});
    assert!(closed.figures.response().percentile(99.9).unwrap() < Nanos(101_000));
}

/// A worker's recorded start is the actual one, even if the first request of its open loop is later or missing.
#[test]
fn a_worker_begins_at_its_start() {
    let began = |arrival, seconds| {
        let clock = Clock::manual();
        let mut device = Simulated::new(&clock, 1, MS);
        let workload = Workload {
            arrival,
            stop: for_time(seconds),
            ..Workload::default()
        };
        let id = WorkerId::of(RunPart::whole(4), 3, 1);
        let worker = Worker::new(&workload, &device.info, id, &1.into(), &BufPool::new(0)).unwrap();
        let mut time = SimulatedTime { clock, waits: 0 };
        let start = Nanos(7_000_000_000);
        let outcome = worker
            .run(
                &mut device,
                &mut time,
                start,
                &Commands::new(),
                &mut NoRecorder,
            )
            .unwrap();
        (outcome.began, outcome.figures.completed())
    };
    let start = Nanos(7_000_000_000);
    assert_eq!(began(open(4.0), Duration::from_secs(2)), (start, 2));
    assert_eq!(began(open(4.0), Duration::from_millis(500)), (start, 0));
    assert_eq!(began(Arrival::Closed {}, MS), (start, 1));
}

/// Open-loop requests are sent at their due times. Those that are too late are skipped and counted, and do not shift
/// the sequence.
#[test]
fn late_requests_are_skipped_and_counted() {
    let mut device = Simulated::new(&Clock::manual(), 1, 10 * MS);
    let arrival = Arrival::Open {
        rate: 1000.0,
        process: ArrivalProcess::Constant,
        skip_after: Span(5 * MS),
    };
    let workload = Workload {
        arrival,
        stop: for_time(Duration::from_secs(1)),
        drain: Span(Duration::from_secs(1)),
        ..Workload::default()
    };
    let outcome = run(&workload, &mut device);
    let skipped = outcome.figures.counts.of(RequestStatus::Skipped);
    assert_eq!(
        skipped + outcome.figures.completed(),
        1000,
        "every due request is accounted for"
    );
    assert!(skipped > 850, "{skipped}");
    assert!(outcome.figures.response().max().unwrap() <= Nanos(15_000_000));
    let mut sequence = Generator::new(
        &workload,
        Area::of_worker(0, 1 << 30, 4096, 0, 1, false),
        1,
        0,
    );
    let offset = |_| {
        let mut planned = Planned::NOTHING;
        sequence.next_request(&mut planned);
        planned.offset
    };
    let offsets: Vec<u64> = (0..1000).map(offset).collect();
    // Sent at 0, 10 and 20 ms; at 10 ms, requests due since 5 ms are still in time.
    assert_eq!(
        device.seen[..3]
            .iter()
            .map(|seen| seen.1)
            .collect::<Vec<_>>(),
        [offsets[0], offsets[5], offsets[15]]
    );
}

/// A failed request is retried as described in the paper. Its latency includes all attempts; the service time is that
/// of the last attempt only.
#[test]
fn retries_are_part_of_the_latency() {
    let mut device = Simulated::new(&Clock::manual(), 1, MS);
    device.failures = vec![DeviceError::Os(libc::EIO); 2].into();
    let retry = Retry {
        count: 3,
        delay: Span(5 * MS),
        on: RetryOn::Any,
    };
    let workload = Workload {
        retry,
        stop: for_requests(1),
        ..Workload::default()
    };
    let outcome = run(&workload, &mut device);
    assert_eq!(
        (outcome.figures.completed(), outcome.figures.retries()),
        (1, 2)
    );
    assert_eq!(outcome.figures.response().max(), Some(Nanos(13_000_000)));
    assert_eq!(outcome.figures.service().max(), Some(Nanos(1_000_000)));
    // Only transient errors are retried: an I/O error is final.
    device.failures = vec![DeviceError::Os(libc::EIO)].into();
    let workload = Workload {
        retry: Retry {
            on: RetryOn::Transient,
            ..retry
        },
        ..workload
    };
    let outcome = run(&workload, &mut device);
    assert_eq!(
        (
            outcome.figures.completed(),
            outcome.figures.counts.of(RequestStatus::Os)
        ),
        (0, 1)
    );
    let error = outcome.first_error.unwrap();
    assert_eq!((error.status, error.op), (RequestStatus::Os, OpKind::Read));
    assert_eq!(error.text, DeviceError::Os(libc::EIO).to_string());
}

/// A request over its time limit is cancelled and counted, and the run continues.
#[test]
fn late_requests_time_out() {
    let mut device = Simulated::new(&Clock::manual(), 1, Duration::from_secs(100));
    let workload = Workload {
        timeout: Span(10 * MS),
        stop: for_requests(3),
        ..Workload::default()
    };
    let outcome = run(&workload, &mut device);
    assert_eq!(outcome.figures.counts.of(RequestStatus::TimedOut), 3);
    assert_eq!(
        (
            outcome.figures.op(OpKind::Read).unwrap().timeouts,
            outcome.figures.completed()
        ),
        (3, 0)
    );
}

/// A device that never answers does not block the run, and hanging requests are counted.
#[test]
fn hanging_requests_are_counted() {
    let mut device = Simulated::new(&Clock::manual(), 4, MS);
    device.never_answers = true;
    let workload = Workload {
        queue_depth: 4,
        stop: for_time(Duration::from_secs(1)),
        drain: Span(Duration::from_secs(2)),
        ..Workload::default()
    };
    let outcome = run(&workload, &mut device);
    assert_eq!(outcome.figures.counts.of(RequestStatus::Hanging), 4);
    assert!(
        device.clock.now() <= Nanos(3_100_000_000),
        "{:?}",
        device.clock.now()
    );
    // In an open loop, requests that were due but never sent are skipped.
    let clock = Clock::manual();
    let mut device = Simulated {
        never_answers: true,
        ..Simulated::new(&clock, 4, MS)
    };
    let workload = Workload {
        arrival: open(100.0),
        ..workload
    };
    let counts = run(&workload, &mut device).figures.counts;
    assert_eq!(
        (
            counts.of(RequestStatus::Hanging),
            counts.of(RequestStatus::Skipped)
        ),
        (4, 96)
    );
}

/// Ramp-up, whether by count or by time, is neither recorded nor timed.
#[test]
fn ramp_up_is_not_recorded() {
    let check = |ramp: RampUp, first: u64| {
        let mut device = Simulated::new(&Clock::manual(), 1, MS);
        let workload = Workload {
            ramp_up: Some(ramp),
            stop: for_requests(50),
            ..Workload::default()
        };
        let outcome = run(&workload, &mut device);
        assert_eq!(
            (outcome.figures.completed(), device.seen.len() as u64),
            (50, 50 + first)
        );
        assert_eq!(outcome.start, Nanos(first * 1_000_000));
        assert_eq!(outcome.requests_per_second, 1000.0);
    };
    check(
        RampUp {
            requests: 20,
            time: Span::default(),
        },
        20,
    );
    check(
        RampUp {
            requests: 0,
            time: Span(30 * MS),
        },
        30,
    );
    check(
        RampUp {
            requests: 20,
            time: Span(10 * MS),
        },
        20,
    );
}

/// Bursts have the configured length, and the pause begins with the last completion.
#[test]
fn a_burst_pauses_after_its_last_completion() {
    let mut device = Simulated::new(&Clock::manual(), 2, MS);
    let burst = Some(Burst {
        requests: 4,
        interval: Span(10 * MS),
    });
    let workload = Workload {
        burst,
        queue_depth: 2,
        stop: for_requests(8),
        ..Workload::default()
    };
    run(&workload, &mut device);
    let times: Vec<u64> = device
        .seen
        .iter()
        .map(|seen| seen.0.0 / 1_000_000)
        .collect();
    assert_eq!(times, [0, 0, 1, 1, 12, 12, 13, 13]);
}

struct Keep(Vec<Interval>);

impl Recorder for Keep {
    fn interval(&mut self, interval: &Interval) {
        self.0.push(interval.clone());
    }
}

/// Intervals cover the run without gaps, are empty during a stall, and add up to the total.
#[test]
fn intervals_cover_the_run() {
    let mut device = Simulated::new(&Clock::manual(), 1, MS);
    device.stall = (Nanos(2_500_000_000), Nanos(4_500_000_000));
    let mut kept = Keep(Vec::new());
    let workload = Workload {
        stop: for_time(Duration::from_millis(5500)),
        ..Workload::default()
    };
    let outcome = run_with(&workload, &mut device, &mut kept);
    let counts: Vec<u64> = kept
        .0
        .iter()
        .map(|interval| interval.figures.completed())
        .collect();
    assert_eq!(counts.len(), 6);
    assert_eq!(counts[3], 0, "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), outcome.figures.completed());
    assert!(
        kept.0
            .windows(2)
            .all(|pair| pair[0].end == pair[1].start && pair[0].index + 1 == pair[1].index)
    );
    assert_eq!(
        (kept.0[0].start, kept.0[5].end),
        (outcome.start, outcome.end)
    );
    // One request was in flight at all times, even while nothing completed.
    assert_eq!(
        kept.0.iter().map(Interval::in_flight).collect::<Vec<_>>(),
        [1.0; 6]
    );
    assert_eq!(outcome.figures.in_flight_nanos, 5_500_000_000);
}

/// Returns the number of waiting requests at the end of each interval, and their mean and maximum age in milliseconds.
fn waiting(workload: &Workload, device: &mut Simulated) -> Vec<(u64, f64, f64)> {
    let mut kept = Keep(Vec::new());
    run_with(workload, device, &mut kept);
    let ms = |nanos: f64| (nanos / 1e5).round() / 10.0;
    let of = |interval: &Interval| {
        let ages = &interval.waiting;
        let max = ages.max().map_or(0.0, |max| max.0 as f64);
        (ages.count(), ms(ages.mean().unwrap_or(0.0)), ms(max))
    };
    kept.0.iter().map(of).collect()
}

/// The end of each interval records the ages of all due but unanswered requests: those at the device and, in an open
/// loop, those without a free slot. Answered requests no longer wait.
#[test]
fn waiting_requests_are_counted_in_each_interval() {
    let stalled = |depth| Simulated {
        stall: (Nanos(2_500_000_000), Nanos(4_500_000_000)),
        ..Simulated::new(&Clock::manual(), depth, MS)
    };
    let closed = Workload {
        queue_depth: 4,
        stop: for_time(Duration::from_secs(6)),
        ..Workload::default()
    };
    // They were sent one service time before the stall began.
    let counts = waiting(&closed, &mut stalled(4));
    let of_stall = [(4, 501.0, 501.0), (4, 1501.0, 1501.0)];
    assert_eq!(counts[2..4], of_stall, "{counts:?}");
    let others = || counts[..2].iter().chain(&counts[4..]);
    assert!(others().all(|(_, _, oldest)| *oldest <= 1.0), "{counts:?}");
    // Requests that the device has not accepted are waiting, too.
    assert_eq!(waiting(&closed, &mut stalled(2))[3].0, 4);
    let open = Workload {
        arrival: open(100.0),
        ..closed.clone()
    };
    // Due every 10 ms from 2.5 s on, including both ends.
    let of_stall = [(51, 250.0, 500.0), (151, 750.0, 1500.0)];
    assert_eq!(waiting(&open, &mut stalled(4))[2..4], of_stall);
    // Without any answers, requests also wait at the end of the run.
    let mut silent = Simulated {
        never_answers: true,
        ..stalled(4)
    };
    let counts = waiting(&open, &mut silent);
    assert_eq!(counts[0], (101, 500.0, 1000.0));
    assert_eq!(counts[5], (600, 3005.0, 6000.0));
}

/// Returns the mean number of requests in flight in each second of a run, and over the whole run.
fn in_flight(workload: &Workload, device: &mut Simulated) -> (Vec<f64>, f64) {
    let mut kept = Keep(Vec::new());
    let outcome = run_with(workload, device, &mut kept);
    let all =
        outcome.figures.in_flight_nanos as f64 / outcome.end.since(outcome.start).as_nanos() as f64;
    (kept.0.iter().map(Interval::in_flight).collect(), all)
}

/// Requests count as in flight while they are, however and whenever they end: a stalled device shows its full depth.
#[test]
fn requests_count_as_in_flight_before_they_complete() {
    let seconds = Duration::from_secs;
    let device = |depth, service| Simulated::new(&Clock::manual(), depth, service);
    let four = Workload {
        queue_depth: 4,
        stop: for_time(seconds(3)),
        ..Workload::default()
    };
    let always_four = (vec![4.0; 3], 4.0);
    // Requests that never complete, or only after the end.
    let mut silent = Simulated {
        never_answers: true,
        ..device(4, MS)
    };
    assert_eq!(in_flight(&four, &mut silent), always_four);
    assert_eq!(in_flight(&four, &mut device(4, 1900 * MS)), always_four);
    // Requests that the device has not accepted are not in flight.
    let deep = Workload {
        queue_depth: 16,
        ..four.clone()
    };
    assert_eq!(in_flight(&deep, &mut device(4, 700 * MS)), always_four);
    // Requests sent during ramp-up.
    let ramp_up = Some(RampUp {
        requests: 0,
        time: Span(500 * MS),
    });
    assert_eq!(
        in_flight(
            &Workload {
                ramp_up,
                ..four.clone()
            },
            &mut device(4, 1700 * MS)
        ),
        always_four
    );
    // Attempts that time out and are retried immediately.
    let retry = Retry {
        count: 1000,
        delay: Span::default(),
        on: RetryOn::Any,
    };
    let timeout = Span(300 * MS);
    let given_up = Workload {
        retry,
        timeout,
        ..four.clone()
    };
    assert_eq!(
        in_flight(&given_up, &mut device(4, seconds(100))),
        always_four
    );
    // Requests that time out without a retry.
    assert_eq!(
        in_flight(&Workload { timeout, ..four }, &mut device(4, seconds(100))),
        always_four
    );
    // A request is not in flight between two attempts: for 300 ms out of every 500.
    let retry = Retry {
        delay: Span(200 * MS),
        ..retry
    };
    let (_, all) = in_flight(
        &Workload { retry, ..given_up },
        &mut device(4, seconds(100)),
    );
    assert_eq!(all, 4.0 * 0.6);
}

/// The offsets of a run depend only on the generator, not on the device's timing.
#[test]
fn requests_do_not_depend_on_timing() {
    let offsets = |service, depth| {
        let mut device = Simulated::new(&Clock::manual(), depth, service);
        let workload = Workload {
            queue_depth: depth as u32,
            read: 0.5,
            stop: for_requests(500),
            ..Workload::default()
        };
        run(&workload, &mut device);
        device.seen.iter().map(|seen| seen.1).collect::<Vec<_>>()
    };
    assert_eq!(offsets(MS, 1), offsets(3 * US, 32));
}

/// With verification, requests that overlap a write are never in flight at the same time as the write.
#[test]
fn overlapping_requests_wait() {
    let mut device = Simulated::new(&Clock::manual(), 16, MS);
    let region = crate::block::workload::Region {
        start: Default::default(),
        length: Some(brunt_core::Size(8192)),
    };
    let workload = Workload {
        queue_depth: 16,
        read: 0.0,
        region,
        verify: Some(crate::block::workload::VerifySettings::default()),
        stop: for_requests(100),
        ..Workload::default()
    };
    assert_eq!(run(&workload, &mut device).figures.completed(), 100);
    for (index, (at, offset)) in device.seen.iter().enumerate() {
        let clash =
            |other: &&(Nanos, u64)| other.0.after(MS) > *at && other.1.abs_diff(*offset) < 4096;
        assert_eq!(device.seen[..index].iter().find(clash), None);
    }
}

/// A list of requests, each due at its time after the start and, optionally, not before another one has completed.
/// Workers with a clone draw from the same list.
#[derive(Clone, Default)]
struct Listed(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    start: Nanos,
    /// The due time and, optionally, the index of the request that has to complete first.
    requests: Vec<(Duration, Option<u64>)>,
    next: usize,
    ended: Vec<u64>,
    /// Index and due time of the requests handed out, in order.
    given: Vec<(u64, Nanos)>,
}

impl Sequence for Listed {
    type Request = Planned;
    fn starts(&mut self, start: Nanos) {
        self.0.lock().unwrap().start = start;
    }
    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        let list = &mut *self.0.lock().unwrap();
        let Some((after, needs)) = list.requests.get(list.next).copied() else {
            return Next::End;
        };
        if let Some(needs) = needs
            && !list.ended.contains(&needs)
        {
            return Next::WaitFor(needs);
        }
        let (index, due) = (list.next as u64, list.start.after(after));
        if due > now {
            return Next::Later(due);
        }
        list.next += 1;
        list.given.push((index, due));
        *place = Planned::new(index, Op::Read, index * 4096, 4096);
        Next::Due(due)
    }
    fn completed(&mut self, index: u64, _status: RequestStatus, _at: Nanos) {
        self.0.lock().unwrap().ended.push(index);
    }
}

fn listed(requests: &[(u64, Option<u64>)]) -> Listed {
    let requests = requests
        .iter()
        .map(|(ms, needs)| (Duration::from_millis(*ms), *needs))
        .collect();
    Listed(Arc::new(Mutex::new(List {
        requests,
        ..List::default()
    })))
}

fn worker_of<S: Sequence<Request = Planned>>(
    sequence: S,
    depth: u32,
    info: &DeviceInfo,
) -> Worker<S, Blocks> {
    let workload = Workload {
        queue_depth: depth,
        stop: for_time(Duration::from_secs(3600)),
        ..Workload::default()
    };
    let id = WorkerId::alone(1);
    let content = Blocks::new(&workload, info, id, &1.into()).unwrap();
    Worker::with(sequence, content, &workload, id, &BufPool::new(0))
}

/// The time until `run` returns includes nothing after the last request.
#[test]
fn a_run_ends_with_its_last_completion() {
    let clock = Clock::manual();
    let mut device = Simulated::new(&clock, 1, 100 * US);
    let worker = worker_of(listed(&[(0, None), (0, None)]), 1, &device.info);
    let mut time = SimulatedTime {
        clock: clock.clone(),
        waits: 0,
    };
    let (start, commands) = (clock.now(), Commands::new());
    let outcome = worker.run(&mut device, &mut time, start, &commands, &mut NoRecorder);
    assert_eq!(outcome.unwrap().figures.completed(), 2);
    assert_eq!(clock.now().since(start), 200 * US);
}

#[test]
fn a_dependent_request_waits_for_its_completion() {
    let mut device = Simulated::new(&Clock::manual(), 8, 10 * MS);
    let list = listed(&[
        (0, None),
        (1, None),
        (2, Some(0)),
        (3, Some(2)),
        (50, Some(1)),
        (51, None),
    ]);
    let mut time = SimulatedTime {
        clock: device.clock.clone(),
        waits: 0,
    };
    let worker = worker_of(list, 8, &device.info);
    let start = time.now();
    let outcome = worker
        .run(
            &mut device,
            &mut time,
            start,
            &Commands::new(),
            &mut NoRecorder,
        )
        .unwrap();
    let at: Vec<u64> = device
        .seen
        .iter()
        .map(|(at, _)| at.since(start).as_millis() as u64)
        .collect();
    assert_eq!(at, [0, 1, 10, 20, 50, 51]);
    assert_eq!(
        (outcome.figures.completed(), outcome.stopped),
        (6, Stopped::Done)
    );
    // The run ends with the last completion, not an hour after the start.
    assert_eq!(outcome.end.since(start), 61 * MS);
    assert_eq!(
        outcome.figures.response().max(),
        Some(Nanos(27_000_000)),
        "from when it was due"
    );
}

#[test]
fn a_failed_request_releases_its_dependents() {
    let mut device = Simulated::new(&Clock::manual(), 8, 10 * MS);
    device.failures.push_back(DeviceError::Os(libc::EIO));
    let mut time = SimulatedTime {
        clock: device.clock.clone(),
        waits: 0,
    };
    let worker = worker_of(listed(&[(0, None), (0, Some(0))]), 8, &device.info);
    let start = time.now();
    let outcome = worker
        .run(
            &mut device,
            &mut time,
            start,
            &Commands::new(),
            &mut NoRecorder,
        )
        .unwrap();
    assert_eq!(
        (outcome.figures.completed(), outcome.figures.counts.errors()),
        (1, 1)
    );
}

/// Three threads draw from a list in which every third request depends on an earlier one, often another worker's.
#[test]
fn workers_share_a_sequence() {
    let requests: Vec<(u64, Option<u64>)> = (0..300)
        .map(|index: u64| (index / 10, (index % 3 == 2).then(|| index - 2)))
        .collect();
    let list = listed(&requests);
    let start = Clock::Monotonic.now().after(MS);
    let done: Vec<u64> = std::thread::scope(|scope| {
        let work = |list: Listed| {
            let mut device = Simulated::new(&Clock::Monotonic, 2, 200 * US);
            let worker = worker_of(list, 2, &device.info);
            let outcome = worker.run(
                &mut device,
                &mut Spinning,
                start,
                &Commands::new(),
                &mut NoRecorder,
            );
            outcome.unwrap().figures.completed()
        };
        let threads: Vec<_> = (0..3)
            .map(|_| list.clone())
            .map(|list| scope.spawn(move || work(list)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(done.iter().sum::<u64>(), 300, "{done:?}");
    let list = list.0.lock().unwrap();
    let order: Vec<u64> = list.given.iter().map(|(index, _)| *index).collect();
    assert_eq!(
        order,
        (0..300).collect::<Vec<u64>>(),
        "in their order, each once"
    );
    let mut ended = list.ended.clone();
    ended.sort_unstable();
    assert_eq!(ended, order, "and each ends once");
}

/// The monotonic clock, without a ring.
struct Spinning;

impl Timeline for Spinning {
    fn now(&self) -> Nanos {
        Clock::Monotonic.now()
    }
    fn wait(&mut self, _count: u32, _until: Nanos) -> io::Result<()> {
        std::thread::yield_now();
        Ok(())
    }
    fn push(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn system_calls(&self) -> u64 {
        0
    }
}

/// Gives commands when the clock reaches their times.
struct Commanding<'a> {
    time: SimulatedTime,
    commands: &'a Commands,
    at: VecDeque<(Nanos, crate::LoadCommand)>,
}

impl Timeline for Commanding<'_> {
    fn now(&self) -> Nanos {
        self.time.now()
    }
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()> {
        let next = self.at.front().map_or(Nanos::MAX, |(at, _)| *at);
        self.time.wait(count, until.min(next))?;
        while let Some((at, command)) = self.at.front().copied()
            && at <= self.time.now()
        {
            self.commands.give(command);
            self.at.pop_front();
        }
        Ok(())
    }
    fn push(&mut self) -> io::Result<()> {
        self.time.push()
    }
    fn system_calls(&self) -> u64 {
        0
    }
}

fn run_commanded(
    workload: &Workload,
    device: &mut Simulated,
    at: &[(Duration, crate::LoadCommand)],
) -> Outcome {
    let id = WorkerId::alone(1);
    let worker = Worker::new(workload, &device.info, id, &1.into(), &BufPool::new(0)).unwrap();
    let commands = Commands::new();
    let start = device.clock.now();
    let mut time = Commanding {
        time: SimulatedTime {
            clock: device.clock.clone(),
            waits: 0,
        },
        commands: &commands,
        at: at
            .iter()
            .map(|(at, command)| (start.after(*at), *command))
            .collect(),
    };
    worker
        .run(device, &mut time, start, &commands, &mut NoRecorder)
        .unwrap()
}

#[test]
fn an_open_loop_obeys_another_rate() {
    let mut device = Simulated::new(&Clock::manual(), 64, 100 * US);
    let workload = Workload {
        queue_depth: 64,
        arrival: open(10.0),
        stop: for_time(Duration::from_secs(3)),
        ..Workload::default()
    };
    let start = device.clock.now();
    let second = Duration::from_secs(1);
    let faster = [
        (second, crate::LoadCommand::Rate(1000.0)),
        (2 * second, crate::LoadCommand::Rate(100.0)),
    ];
    let outcome = run_commanded(&workload, &mut device, &faster);
    let within = |from: u32, until: u32| {
        let (from, until) = (start.after(from * second), start.after(until * second));
        device
            .seen
            .iter()
            .filter(|(at, _)| (from..until).contains(at))
            .count()
    };
    assert_eq!((within(0, 1), within(1, 2), within(2, 3)), (10, 1000, 100));
    assert_eq!(outcome.stopped, Stopped::Done);
    // The same requests in the same order as at a constant rate.
    let mut same = Simulated::new(&Clock::manual(), 64, 100 * US);
    run(
        &Workload {
            arrival: open(370.0),
            ..workload
        },
        &mut same,
    );
    let offsets = |device: &Simulated| device.seen.iter().map(|(_, at)| *at).collect::<Vec<u64>>();
    assert_eq!(offsets(&device), offsets(&same));
}

#[test]
fn a_closed_loop_obeys_another_depth() {
    let mut device = Simulated::new(&Clock::manual(), 64, MS);
    let second = Duration::from_secs(1);
    let workload = Workload {
        queue_depth: 16,
        stop: for_time(3 * second),
        ..Workload::default()
    };
    let start = device.clock.now();
    let depths = [
        (second, crate::LoadCommand::Depth(4)),
        (2 * second, crate::LoadCommand::Depth(8)),
    ];
    run_commanded(&workload, &mut device, &depths);
    let within = |from: u32, until: u32| {
        let (from, until) = (start.after(from * second), start.after(until * second));
        device
            .seen
            .iter()
            .filter(|(at, _)| (from..until).contains(at))
            .count()
    };
    assert_eq!(
        (within(0, 1), within(1, 2), within(2, 3)),
        (16_000, 4000, 8000)
    );
}

/// A stop ends a draining run as quickly as one that is still issuing requests: within a second.
#[test]
fn a_stop_cuts_the_drain_short() {
    let mut device = Simulated::new(&Clock::manual(), 4, MS);
    device.never_answers = true;
    let hour = Duration::from_secs(3600);
    let workload = Workload {
        queue_depth: 4,
        stop: for_time(100 * MS),
        drain: Span(hour),
        ..Workload::default()
    };
    let start = device.clock.now();
    let stop = [(Duration::from_secs(5), crate::LoadCommand::Stop)];
    let outcome = run_commanded(&workload, &mut device, &stop);
    assert_eq!(outcome.stopped, Stopped::Interrupted);
    assert_eq!(outcome.figures.counts.of(RequestStatus::Hanging), 4);
    let took = device.clock.now().since(start);
    assert!((5_900 * MS..6_200 * MS).contains(&took), "{took:?}");
}

#[test]
fn a_run_done_early_has_its_actual_length() {
    let mut device = Simulated::new(&Clock::manual(), 1, MS);
    let stop = StopCondition {
        requests: Some(100),
        ..for_time(Duration::from_secs(10))
    };
    let outcome = run(
        &Workload {
            stop,
            ..Workload::default()
        },
        &mut device,
    );
    assert_eq!(
        (outcome.figures.completed(), outcome.requests_per_second),
        (100, 1000.0)
    );
}

/// Takes a millisecond to generate a write and half a millisecond to check a request, and records its calls.
struct Slow {
    clock: Clock,
    filled: Vec<u64>,
    ended: Vec<(u64, u64, RequestStatus)>,
    flushed: u64,
}

impl Content for Slow {
    type Request = Planned;
    const TAKES_TIME: bool = true;

    fn fill(&mut self, write: &Planned, carried: &mut Carried) {
        self.clock.advance(MS);
        carried.ticket = write.index + 100;
        self.filled.push(write.index);
    }
    fn completed(
        &mut self,
        request: &Planned,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus {
        assert!(!carried.buf.is_empty(), "the buffer is back");
        self.clock.advance(MS / 2);
        self.ended.push((request.index, carried.ticket, status));
        if request.index == 2 {
            RequestStatus::Miscompare
        } else {
            status
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.flushed += 1;
        Ok(())
    }
}

#[test]
fn a_content_sees_each_request_once_and_its_time_is_excluded() {
    let mut device = Simulated::new(&Clock::manual(), 8, 10 * MS);
    device
        .failures
        .extend([DeviceError::Os(libc::EIO), DeviceError::Os(libc::EIO)]);
    let workload = Workload {
        read: 0.0,
        queue_depth: 2,
        retry: Retry {
            count: 1,
            ..Retry::default()
        },
        stop: for_requests(4),
        ..Workload::default()
    };
    let id = WorkerId::alone(1);
    let sequence = Synthetic::new(&workload, id.area(&workload, &device.info).unwrap(), id);
    let clock = device.clock.clone();
    let mut slow = Slow {
        clock,
        filled: Vec::new(),
        ended: Vec::new(),
        flushed: 0,
    };
    let worker = Worker::with(sequence, &mut slow, &workload, id, &BufPool::new(0));
    let mut time = SimulatedTime {
        clock: device.clock.clone(),
        waits: 0,
    };
    let start = time.now();
    let outcome = worker
        .run(
            &mut device,
            &mut time,
            start,
            &Commands::new(),
            &mut NoRecorder,
        )
        .unwrap();
    assert_eq!(slow.filled, [0, 1, 2, 3], "also those that are sent twice");
    let mut ended = slow.ended.clone();
    ended.sort_by_key(|(index, ..)| *index);
    let good = RequestStatus::Good;
    assert_eq!(
        ended,
        [
            (0, 100, good),
            (1, 101, good),
            (2, 102, good),
            (3, 103, good)
        ]
    );
    assert_eq!(
        outcome.figures.counts.of(RequestStatus::Miscompare),
        1,
        "the content has the last word"
    );
    assert!(slow.flushed > 2);
    let service = outcome
        .figures
        .op(OpKind::Write)
        .expect("writes")
        .service
        .clone();
    assert_eq!(
        service.min(),
        Some(Nanos(10_000_000)),
        "from when the contents were made"
    );
}
