//! Tests of the loop against simulated devices on a manual clock.

use super::*;
use std::sync::{Arc, Mutex};

use crate::block::generator::{Area, Generator};
use crate::block::processes::ArrivalProcess;
use crate::block::workload::{Burst, RampUp, Retry, RetryOn, StopCondition};
use crate::load::RunPart;
use crate::record::NoRecorder;
use crate::sequence::Next;
use brunt_block::DeviceError;
use brunt_core::{Clock, Span};
use brunt_result::{Interval, OpKind};

mod commands;
mod end_flush;
mod groups;
mod sequences;

/// A device that answers after a fixed time, on a clock that only the test advances.
struct Simulated {
    info: DeviceInfo,
    clock: Clock,
    depth: usize,
    service: Duration,
    /// How long a flush takes.
    flush: Duration,
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
            flush: service,
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
            let mut due = now.after(match request.op {
                Op::Flush => self.flush,
                _ => self.service,
            });
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
    // The eight requests that complete exactly at the end still count as in time.
    assert_eq!(outcome.figures.completed_in_time(), 80_000);
    assert_eq!(outcome.requests_per_second, 80_000.0);
    assert_eq!(outcome.figures.service().max(), Some(Nanos(100_000)));
    assert_eq!(outcome.figures.response().min(), Some(Nanos(100_000)));
}

/// An open loop's latencies show a one-second stall as callers would have experienced it; a closed loop's latencies
/// hide it.
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

/// Open-loop requests are sent at their due times. Requests that are too late are skipped and counted, and do not
/// shift the sequence.
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
    // Requests are sent at 0, 10 and 20 ms; at 10 ms, number 5, due at 5 ms, is the oldest that is still in time.
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
    // The waiting requests were sent one service time (1 ms) before the stall began at 2.5 s, so they are 501 ms old at
    // the end of that second, and 1501 ms a second later.
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
    // From 2.5 s on, one request is due every 10 ms: 51 by the end of that second, counting both ends.
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
