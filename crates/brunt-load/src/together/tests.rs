//! Concurrent jobs: the figures of each, the figures of all, and when each of them ran.

use super::*;
use std::sync::Mutex;

use brunt_block::open_url;
use brunt_result::{Interval, Outcome, RequestRecord, Stopped};

use crate::decisions::{Ran, run};
use crate::load_kind;
use crate::record::Recorder;

/// Keeps everything a recorder receives, for all jobs together and per job.
#[derive(Default)]
struct Told {
    all: Vec<Interval>,
    jobs: Vec<(usize, Interval)>,
    requests: Vec<(usize, RequestRecord)>,
}

impl Recorder for Told {
    fn interval(&mut self, interval: &Interval) {
        self.all.push(interval.clone());
    }
    fn job_interval(&mut self, job: usize, interval: &Interval) {
        self.jobs.push((job, interval.clone()));
    }
    fn job_requests(&mut self, job: usize, batch: &[RequestRecord]) {
        self.requests
            .extend(batch.iter().map(|request| (job, *request)));
    }
    fn requests(&mut self, _batch: &[RequestRecord]) {
        panic!("requests belong to jobs");
    }
}

fn load(text: &str) -> Arc<dyn Load> {
    (load_kind(KIND).unwrap().read)(text, &LoadContext::default())
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .remove(0)
        .1
}

fn ran(text: &str, on: &LoadTarget) -> (Ran, Told) {
    let (load, mut told) = (load(text), Told::default());
    load.open(on, &AtomicBool::new(false)).unwrap();
    let order = RunOrder {
        order: Some(3),
        ..RunOrder::alone(1)
    };
    let ran = run(&*load, on, &order, &AtomicBool::new(false), &mut told).unwrap();
    (ran, told)
}

fn slow() -> LoadTarget {
    LoadTarget::of(open_url("memory:1MiB?delay=const:1ms").unwrap())
}

/// Each job issues its own requests on its own device, and the total figures are the sum of the jobs'.
#[test]
fn the_figures_of_jobs_add_up_to_the_total() {
    let on = LoadTarget {
        device: None,
        parts: Vec::new(),
        jobs: vec![
            LoadTarget::of(open_url("memory:1MiB").unwrap()),
            LoadTarget::of(open_url("memory:2MiB").unwrap()),
        ],
    };
    let text = "
[[jobs]]
name = \"reader\"
workload = { workers = 2, queue_depth = 4, record_requests = true, stop = { requests = 300 } }
[[jobs]]
name = \"writer\"
workload = { read = 0, blocks = [{ size = \"8k\" }], region = { start = \"1m\" }, record_requests = true, stop = { requests = 100 } }";
    let (ran, told) = ran(text, &on);
    let done = |outcome: &Outcome, kind| outcome.figures.op(kind).map_or(0, |op| op.completed);
    let [reader, writer] = &ran.jobs[..] else {
        panic!("{:?}", ran.jobs)
    };
    assert_eq!(
        (done(reader, OpKind::Read), done(reader, OpKind::Write)),
        (300, 0)
    );
    assert_eq!(
        (done(writer, OpKind::Read), done(writer, OpKind::Write)),
        (0, 100)
    );
    assert_eq!(
        (
            done(&ran.outcome, OpKind::Read),
            done(&ran.outcome, OpKind::Write)
        ),
        (300, 100)
    );
    assert_eq!(ran.outcome.figures.bytes(), 300 * 4096 + 100 * 8192);
    let seconds = ran.outcome.end.since(ran.outcome.start).as_secs_f64();
    assert!((ran.outcome.requests_per_second * seconds - 400.0).abs() < 1e-6);
    let of = |job: usize| {
        told.requests
            .iter()
            .filter(move |(of, _)| *of == job)
            .map(|(_, request)| request)
    };
    assert_eq!((of(0).count(), of(1).count()), (300, 100));
    assert!(of(0).all(|request| request.worker < 2 && request.op == OpKind::Read));
    assert!(of(1).all(|request| request.worker == 0 && request.offset >= 1 << 20));
    let sum = |intervals: &mut dyn Iterator<Item = &Interval>| {
        intervals.map(|i| i.figures.completed()).sum::<u64>()
    };
    assert_eq!(sum(&mut told.all.iter()), 400);
    assert_eq!(
        sum(&mut told
            .jobs
            .iter()
            .filter(|(job, _)| *job == 0)
            .map(|(_, interval)| interval)),
        300
    );
}

/// A job that starts later has no intervals before its start, uses the run's interval numbers, and doesn't delay the
/// others' intervals.
#[test]
fn a_delayed_job_uses_the_runs_interval_numbers() {
    // If the machine pauses, a job may not get to any requests; in that case, try again.
    assert!((0..20).any(|_| both_jobs_of_a_checked_run_had_requests()));
}

fn both_jobs_of_a_checked_run_had_requests() -> bool {
    let text = "
[[jobs]]
name = \"early\"
workload = { interval = \"20ms\", stop = { time = \"200ms\" } }
[[jobs]]
name = \"late\"
start_delay = \"100ms\"
workload = { read = 0, interval = \"20ms\", record_requests = true, stop = { time = \"200ms\" } }";
    let (ran, told) = ran(text, &slow());
    let [early, late] = &ran.jobs[..] else {
        panic!("{:?}", ran.jobs)
    };
    assert_eq!(late.start.since(early.start), Duration::from_millis(100));
    assert_eq!(
        ran.outcome.end.since(ran.outcome.start),
        Duration::from_millis(300)
    );
    assert!(
        told.requests
            .iter()
            .all(|(job, request)| *job == 1 && request.intended >= late.start)
    );
    let numbers = |of: usize| {
        told.jobs
            .iter()
            .filter(move |(job, _)| *job == of)
            .map(|(_, i)| i.index)
    };
    assert!(
        numbers(0).eq(0..10) && numbers(1).eq(5..15),
        "{:?}",
        numbers(1).collect::<Vec<u64>>()
    );
    assert!(told.all.iter().map(|interval| interval.index).eq(0..15));
    for interval in &told.all {
        let at = interval.start.since(ran.outcome.start);
        let did = |kind| interval.figures.op(kind).is_some_and(|op| op.completed > 0);
        assert!(
            !did(OpKind::Write) || at >= Duration::from_millis(100),
            "{at:?}"
        );
        // Requests outstanding at the end of the first job complete a little later.
        assert!(
            !did(OpKind::Read) || at <= Duration::from_millis(200),
            "{at:?}"
        );
    }
    let done = |kind| ran.outcome.figures.op(kind).map_or(0, |op| op.completed);
    done(OpKind::Read) > 0 && done(OpKind::Write) > 0
}

/// With `exit_all`, the first job to end ends the run, and the run is complete.
#[test]
fn the_first_job_to_end_ends_the_run_with_exit_all() {
    let text = "
exit_all = true
[[jobs]]
name = \"short\"
workload = { stop = { requests = 20 } }
[[jobs]]
name = \"long\"
workload = { stop = { time = \"1h\" } }
[[jobs]]
name = \"never\"
start_delay = \"1h\"
workload = { stop = { time = \"1h\" } }";
    let (ran, _) = ran(text, &slow());
    assert!(
        ran.jobs
            .iter()
            .chain([&ran.outcome])
            .all(|outcome| outcome.stopped == Stopped::Done)
    );
    let done: Vec<u64> = ran.jobs.iter().map(|job| job.figures.completed()).collect();
    assert!(done[0] == 20 && done[1] > 0 && done[2] == 0, "{done:?}");
    assert!(ran.outcome.end.since(ran.outcome.start) < Duration::from_secs(60));
}

/// Jobs with `ends_run` end the run, whichever ends first; other jobs don't.
#[test]
fn only_jobs_that_end_the_run_do_so() {
    let text = "
[[jobs]]
name = \"shortest\"
workload = { stop = { requests = 5 } }
[[jobs]]
name = \"short\"
ends_run = true
workload = { stop = { requests = 40 } }
[[jobs]]
name = \"long\"
ends_run = true
workload = { stop = { time = \"1h\" } }";
    let (ran, _) = ran(text, &slow());
    let done: Vec<u64> = ran.jobs.iter().map(|job| job.figures.completed()).collect();
    assert!(done[0] == 5 && done[1] == 40 && done[2] > 5, "{done:?}");
    assert!(ran.outcome.end.since(ran.outcome.start) < Duration::from_secs(60));
    let load = load(text);
    assert!(
        load.describe().ends_with("; ends with short or long"),
        "{}",
        load.describe()
    );
    assert!(!load.info().open_ended && load.info().time_min == Duration::ZERO);
}

/// A job that can't be prepared fails the run, without waiting for those that can.
#[test]
fn a_job_that_cannot_be_prepared_fails_the_run() {
    let text = "
[[jobs]]
name = \"many\"
workload = { workers = 200, stop = { requests = 1000 } }
[[jobs]]
name = \"beyond\"
workload = { region = { start = \"1g\" }, stop = { requests = 1 } }";
    let load = load(text);
    let error = run(
        &*load,
        &slow(),
        &RunOrder::alone(1),
        &AtomicBool::new(false),
        &mut Told::default(),
    );
    assert!(
        matches!(
            error,
            Err(LoadError::Workload(WorkloadError { key: "region", .. }))
        ),
        "{error:?}"
    );
}

/// A load's description and figures include all its jobs.
#[test]
fn its_description_includes_all_jobs() {
    let text = "
[[jobs]]
name = \"a\"
workload = { workers = 2, queue_depth = 3, stop = { time = \"5s\" } }
[[jobs]]
name = \"b\"
start_delay = \"2s\"
workload = { read = 0.5, ramp_up = { time = \"1s\" }, stop = { time = \"9s\" } }";
    let load = load(text);
    let info = load.info();
    assert_eq!(
        (info.workers, info.queue_depth, info.time_min),
        (3, 3, Duration::from_secs(12))
    );
    assert_eq!(
        (info.kinds, info.ramp_up, info.writes),
        (vec![OpKind::Read, OpKind::Write], Duration::ZERO, true)
    );
    let said = load.describe();
    assert!(
        said.contains("a (4KiB") && said.contains("2s after the start"),
        "{said}"
    );
}

#[test]
fn jobs_that_cannot_run_together_are_refused() {
    let first = "[[jobs]]\nname = \"a\"\nworkload = { stop = { time = \"1s\" } }\n";
    let check = |second: &str, key: &str, said: &str| {
        let settings: TogetherSettings = toml::from_str(&format!("{first}{second}")).expect(second);
        let error = settings.load(&LoadContext::default()).expect_err(second);
        assert!(
            error.key == key && error.what.contains(said),
            "{second}: {error}"
        );
    };
    let job = |workload: &str| format!("[[jobs]]\nname = \"b\"\nworkload = {{ {workload} }}");
    check("", "jobs", "1 jobs; write 2");
    check(
        "[[jobs]]\nname = \"a\"\nworkload = { stop = { time = \"1s\" } }",
        "jobs",
        "two jobs are called a",
    );
    check(&job("read = 2"), "read", "not a share");
    check(
        &job("interval = \"2s\", stop = { time = \"1s\" }"),
        "jobs",
        "the same interval",
    );
    check(
        &job("stop = { steady = { round = \"1s\" } }"),
        "jobs",
        "steady",
    );
    check(
        &job("ring = \"auto\", stop = { time = \"1s\" }"),
        "jobs",
        "auto",
    );
    check(
        &job("workers = 256, stop = { time = \"1s\" }"),
        "jobs",
        "257 workers",
    );
    check(
        &job("depth_search = { max = 8 }, stop = { time = \"1s\" }"),
        "jobs",
        "queue depth",
    );
    check(
        &job("ramp_up = { time = \"500ms\" }, stop = { time = \"1s\" }"),
        "start_delay",
        "not a multiple",
    );
    let search = "arrival = { kind = \"search\", percentile = 99, limit = \"1ms\" }, stop = { time = \"1s\" }";
    check(&job(search), "jobs", "many runs");
}

/// Every command except stop is rejected with a typed error.
#[test]
fn only_stop_is_accepted_for_several_jobs() {
    struct Stopped(Arc<Mutex<u32>>);
    impl RunningLoad for Stopped {
        fn start(&mut self, _at: Nanos) {}
        fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
            assert_eq!(command, LoadCommand::Stop);
            *self.0.lock().unwrap() += 1;
            Ok(())
        }
        fn finish(self: Box<Self>) -> Finished {
            Finished::default()
        }
    }
    let count = Arc::new(Mutex::new(0));
    let job = || StartedJob {
        load: Box::new(Stopped(Arc::clone(&count))),
        start_delay: Duration::ZERO,
    };
    let mut jobs = RunningJobs(vec![job(), job()]);
    assert_eq!(
        jobs.command(LoadCommand::Rate(1.0)),
        Err(LoadCommandError::Several)
    );
    assert_eq!(jobs.command(LoadCommand::Stop), Ok(()));
    assert_eq!(*count.lock().unwrap(), 2);
    assert_eq!(Box::new(jobs).finish().jobs.len(), 2);
}
