use super::*;
use crate::observe::Observer;
use brunt_block::backends::memory::MemoryBackend;
use brunt_result::void::VoidReason;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

const TEXT: &str = r#"
        name = "small"
        repetitions = 4
        [targets.memory]
        url = "memory:16MiB"
        [workloads.mixed]
        read = 0.5
        stop = { requests = 2000 }
        [sweep]
        queue_depth = [1, 16]
    "#;

/// The study runs a load of an unknown kind like any other.
#[test]
fn any_load_runs() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment::parse("small.toml", TEXT).unwrap();
    let mut plan = experiment.plan();
    let kind = brunt_load::load_kind("nap").unwrap();
    plan.points[0].load = (kind.read)("naps = 5", &brunt_load::LoadContext::default())
        .unwrap()
        .remove(0)
        .1;
    let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
    let targets = BTreeMap::from([("memory".into(), memory)]);
    let study = Study::of_plan(
        plan,
        experiment,
        targets,
        "test",
        folder.path(),
        RunHooks::default(),
    );
    let summary = study.run(&AtomicBool::new(false)).unwrap();
    assert!(summary.complete, "{:?}", summary.trouble);
    assert_eq!(summary.points[0].notes, ["it only sleeps"]);
    assert_eq!(summary.points[0].response.unwrap().max_us, 10.0);
    assert!(summary.points.iter().all(|point| point.runs.len() == 4));
}

/// Counts runs, and stops the experiment after a given number.
struct Count(Arc<AtomicUsize>, Arc<AtomicBool>, usize);
impl Observer for Count {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Event::RunEnds(..) = event {
            let seen = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            self.1.store(seen >= self.2, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn study(folder: &Path, company: RunHooks) -> Study<'_> {
    let experiment = Experiment::parse("small.toml", TEXT).unwrap();
    let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
    Study::new(
        experiment,
        BTreeMap::from([("memory".into(), memory)]),
        "test",
        folder,
        company,
    )
}

/// Every run is executed once, and the file on disk is complete.
#[test]
fn an_experiment_from_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Count(told.clone(), Arc::default(), usize::MAX);
    let company = RunHooks {
        observers: vec![Box::new(count)],
        hooks: Vec::new(),
    };
    let summary = study(folder.path(), company)
        .run(&AtomicBool::new(false))
        .unwrap();
    assert!(summary.complete && summary.trouble.is_none());
    assert_eq!(told.load(Ordering::Relaxed), 8);
    let read = Summary::read(folder.path()).unwrap();
    assert_eq!(read.experiment, summary.experiment);
    assert_eq!((read.complete, read.points.len()), (true, 2));
    for point in &read.points {
        assert_eq!(point.runs.len(), 4);
        assert_eq!(point.requests_per_second.unwrap().runs, 4);
        let all: u64 = point.runs.iter().map(RunSummary::completed).sum();
        assert_eq!(all, 8000);
        let longest = point
            .runs
            .iter()
            .filter_map(|run| run.response)
            .map(|r| r.max_us)
            .fold(0.0, f64::max);
        assert_eq!(point.response.unwrap().max_us, longest);
    }
    assert!(table(&summary).len() > 2);
}

/// A point that is precise enough is not repeated; one that isn't is repeated up to the limit, and the results say
/// so.
#[test]
fn points_are_repeated_until_they_are_precise() {
    let made = |precision: &str, most: u32| {
        let folder = tempfile::tempdir().unwrap();
        let goal =
            format!("repetitions = 4\nprecision = \"{precision}\"\nrepetitions_max = {most}");
        let text = TEXT.replace("repetitions = 4", &goal);
        let experiment = Experiment::parse("small.toml", &text).unwrap();
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        let targets = BTreeMap::from([("memory".into(), memory)]);
        let study = Study::new(
            experiment,
            targets,
            "test",
            folder.path(),
            RunHooks::default(),
        );
        let summary = study.run(&AtomicBool::new(false)).unwrap();
        assert!(summary.complete, "{:?}", summary.trouble);
        summary
    };
    for point in &made("0.000001%", 9).points {
        let precision = point.precision.unwrap();
        assert!(point.runs.len() == 9 && !precision.reached, "{precision:?}");
        assert!(precision.runs_wanted > Some(9), "{precision:?}");
        let repetitions: Vec<u32> = point.runs.iter().map(|run| run.repetition).collect();
        assert_eq!(repetitions, (0..9).collect::<Vec<u32>>());
    }
    let summary = made("100%", 200);
    for point in &summary.points {
        let precision = point.precision.unwrap();
        assert!(
            precision.reached || point.runs.len() == 200,
            "{precision:?}"
        );
    }
    let mut orders: Vec<u32> = summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .map(|run| run.order)
        .collect();
    orders.sort_unstable();
    assert_eq!(orders, (0..orders.len() as u32).collect::<Vec<u32>>());
}

/// Reads the result on disk when a run ends, before that run is recorded.
struct Reads(std::path::PathBuf, Arc<Mutex<Vec<Summary>>>);
impl Observer for Reads {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Event::RunEnds(..) = event {
            let read = Summary::read(&self.0).map_err(io::Error::other)?;
            self.1.lock().unwrap().push(read);
        }
        Ok(())
    }
}

/// During an experiment, the files on disk contain every finished run, with the same figures as at the end.
#[test]
fn finished_runs_are_readable_during_the_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let company = RunHooks {
        observers: vec![Box::new(Reads(folder.path().into(), seen.clone()))],
        hooks: Vec::new(),
    };
    let summary = study(folder.path(), company)
        .run(&AtomicBool::new(false))
        .unwrap();
    let runs = |summary: &Summary| {
        let runs = summary.points.iter().flat_map(|point| point.runs.clone());
        let mut runs: Vec<RunSummary> = runs.collect();
        runs.sort_by_key(|run| run.order);
        runs
    };
    let all = runs(&summary);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), all.len());
    for (count, read) in seen.iter().enumerate() {
        assert!(!read.complete);
        assert_eq!(runs(read), all[..count]);
        for (point, last) in read.points.iter().zip(&summary.points) {
            let is_whole = point.runs.len() == last.runs.len();
            assert!(!is_whole || point.response == last.response);
            assert_eq!(point.requests_per_second.is_some(), !point.runs.is_empty());
        }
    }
    assert!(
        !folder
            .path()
            .join(brunt_result::run_log::FILE_NAME)
            .exists()
    );
}

/// An interrupted experiment is recorded and marked incomplete.
#[test]
fn an_interrupted_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let count = Count(Arc::default(), stop.clone(), 3);
    let company = RunHooks {
        observers: vec![Box::new(count)],
        hooks: Vec::new(),
    };
    let summary = study(folder.path(), company).run(&stop).unwrap();
    assert!(!summary.complete && summary.trouble.is_some());
    let read = Summary::read(folder.path()).unwrap();
    assert_eq!(
        read.points
            .iter()
            .map(|point| point.runs.len())
            .sum::<usize>(),
        3
    );
    assert!(!read.complete);
}

/// Records its calls, and fails in the given one.
struct Along(&'static str, Arc<Mutex<Vec<String>>>, &'static str);

/// A hook whose host is lost in the first run.
struct Lost;
impl RunHook for Lost {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        Ok(())
    }
    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        Err(HookError::new(VoidReason::FaultHostLost, "host b is gone"))
    }
    fn sum_up(&mut self, _run: &mut RunSummary, _outcome: &Outcome) {
        panic!("it did not see the end of the run");
    }
}

#[test]
fn a_run_that_lost_the_host_of_its_target_is_kept_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    // The hook of the target that the lost host served fails too.
    let along = |name, fails| Box::new(Along(name, said.clone(), fails)) as Box<dyn RunHook>;
    let company = RunHooks {
        observers: Vec::new(),
        hooks: vec![along("a", "end"), Box::new(Lost), along("c", "end")],
    };
    let summary = study(folder.path(), company)
        .run(&AtomicBool::new(false))
        .unwrap();
    let trouble = summary.trouble.as_deref().unwrap();
    assert!(trouble.contains("host b is gone"), "{trouble}");
    let read = Summary::read(folder.path()).unwrap();
    assert!(!read.complete && read.trouble == summary.trouble);
    let runs: Vec<&RunSummary> = summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .collect();
    let [run] = runs.as_slice() else {
        panic!("the experiment ends with it: {runs:?}");
    };
    assert_eq!((run.stopped, run.completed()), (Stopped::HostLost, 2000));
    assert!(
        run.doubts[0].starts_with("host b is gone"),
        "{:?}",
        run.doubts
    );
    assert!(
        summary
            .points
            .iter()
            .all(|point| point.requests_per_second.is_none())
    );
}

impl Along {
    fn say(&self, what: &str) -> Result<(), HookError> {
        self.1.lock().unwrap().push(format!("{} {what}", self.0));
        let failed = || HookError::new(VoidReason::RoleDied, format!("{} cannot {what}", self.0));
        if self.2 == what {
            Err(failed())
        } else {
            Ok(())
        }
    }
}
impl RunHook for Along {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.say("begin")
    }
    fn starts(&mut self, _start: Nanos, _ramp_up: Duration) {
        let _ = self.say("start");
    }
    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.say("end")
    }
}

/// Hooks begin before each run and end after it in reverse order. A hook that fails invalidates the run and ends the
/// experiment, and the hooks that had begun are still ended.
#[test]
fn hooks_are_always_ended() {
    let check = |fails: &'static str, expected: &[&str], trouble: &str| {
        let folder = tempfile::tempdir().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let along = |name, fails| Box::new(Along(name, said.clone(), fails)) as Box<dyn RunHook>;
        let company = RunHooks {
            observers: Vec::new(),
            hooks: vec![along("a", ""), along("b", fails), along("c", "")],
        };
        let error = study(folder.path(), company)
            .run(&AtomicBool::new(false))
            .unwrap_err();
        assert!(error.to_string().ends_with(trouble), "{error}");
        assert_eq!(*said.lock().unwrap(), expected);
        let read = Summary::read(folder.path()).unwrap();
        assert!(!read.complete && read.trouble.unwrap().ends_with(trouble));
        assert!(read.points.iter().all(|point| point.runs.is_empty()));
    };
    check(
        "begin",
        &["a begin", "b begin", "b end", "a end"],
        "b cannot begin",
    );
    let all = [
        "a begin", "b begin", "c begin", "a start", "b start", "c start", "c end", "b end", "a end",
    ];
    check("end", &all, "b cannot end");
}

/// An observer that can store nothing more ends the experiment at once, and the summary says why.
#[test]
fn a_full_disk_ends_the_experiment() {
    struct Full;
    impl Observer for Full {
        fn event(&mut self, event: &Event) -> io::Result<()> {
            match event {
                Event::RunStarts(_) => Err(io::Error::other("intervals: no space left")),
                _ => Ok(()),
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let text = TEXT.replace("stop = { requests = 2000 }", "stop = { time = \"1h\" }");
    let experiment = Experiment::parse("small.toml", &text).unwrap();
    let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
    let targets = BTreeMap::from([("memory".into(), memory)]);
    let company = RunHooks {
        observers: vec![Box::new(Full)],
        hooks: Vec::new(),
    };
    let study = Study::new(experiment, targets, "test", folder.path(), company);
    let summary = study.run(&AtomicBool::new(false)).unwrap();
    assert_eq!(summary.trouble.as_deref(), Some("intervals: no space left"));
    assert!(!Summary::read(folder.path()).unwrap().complete);
}
