//! Tests with listed requests, some of which depend on others or are shared by workers.

use super::*;

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

/// The measured time includes nothing after the last completion.
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
