//! Tests of commands during a run, of the end of a run, and of content that takes time to generate and check.

use super::*;

/// Gives commands when the clock reaches given times.
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
    // The requests and their order are the same as at a constant rate.
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
