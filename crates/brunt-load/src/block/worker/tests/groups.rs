//! Completions that leave the device idle are handled in groups, with requests sent in between.

use super::*;

/// A timeline on which sending takes a microsecond, for a device that benefits from getting requests early.
struct EarlyTime(SimulatedTime);

impl Timeline for EarlyTime {
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()> {
        self.0.wait(count, until)
    }
    fn push(&mut self) -> io::Result<()> {
        self.0.clock.advance(US);
        Ok(())
    }
    fn system_calls(&self) -> u64 {
        self.0.system_calls()
    }
    fn starts_early(&self) -> bool {
        true
    }
}

fn run_early(workload: &Workload, device: &mut Simulated) -> Outcome {
    let id = WorkerId::alone(1);
    let worker = Worker::new(workload, &device.info, id, &1.into(), &BufPool::new(0)).unwrap();
    let mut time = EarlyTime(SimulatedTime {
        clock: device.clock.clone(),
        waits: 0,
    });
    let start = time.now();
    worker
        .run(device, &mut time, start, &Commands::new(), &mut NoRecorder)
        .unwrap()
}

fn deep(stop: StopCondition) -> Workload {
    Workload {
        queue_depth: 32,
        stop,
        ..Workload::default()
    }
}

/// The first requests are sent before most completions are handled, and requests are the same as without groups.
#[test]
fn an_idle_device_gets_requests_before_all_completions_are_handled() {
    let device = || Simulated::new(&Clock::manual(), 32, MS);
    let mut early = device();
    let outcome = run_early(&deep(for_requests(64)), &mut early);
    let sent_at = |micros: u64| {
        let is_then = |seen: &&(Nanos, u64)| seen.0 == Nanos(micros * 1000);
        early.seen.iter().filter(is_then).count()
    };
    assert_eq!(
        [0, 1000, 1001, 1002, 1003].map(sent_at),
        [32, 4, 8, 16, 4],
        "{:?}",
        early.seen
    );
    assert_eq!(outcome.figures.completed(), 64);
    let mut whole = device();
    run(&deep(for_requests(64)), &mut whole);
    let offsets = |device: &Simulated| device.seen.iter().map(|seen| seen.1).collect::<Vec<_>>();
    assert_eq!(offsets(&early), offsets(&whole));
}

/// A completion's time is when it was reaped, although others are handled and requests are sent before it is handled.
#[test]
fn groups_do_not_prolong_service_times() {
    let mut device = Simulated::new(&Clock::manual(), 32, MS);
    let outcome = run_early(&deep(for_requests(32)), &mut device);
    let service = outcome.figures.service();
    assert_eq!(service.max(), Some(Nanos(1_000_000)));
    assert_eq!(service.sum_nanos(), 32_000_000);
    assert!(device.clock.now() > Nanos(1_000_000), "it had groups");
}

/// Requests whose completions were reaped before the drain ended are not hanging, although it ends before they are
/// handled, and none of them times out in the meantime.
#[test]
fn reaped_completions_are_handled_before_the_run_ends() {
    let mut device = Simulated::new(&Clock::manual(), 32, MS);
    let workload = Workload {
        drain: Span::default(),
        timeout: Span(MS),
        ..deep(for_time(MS))
    };
    let outcome = run_early(&workload, &mut device);
    let counts = &outcome.figures.counts;
    assert_eq!(
        (
            outcome.figures.completed(),
            counts.of(RequestStatus::Hanging),
            counts.of(RequestStatus::TimedOut)
        ),
        (32, 0, 0)
    );
}
