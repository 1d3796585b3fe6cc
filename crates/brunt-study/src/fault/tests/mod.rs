//! Experiments with faults on a memory device, from the file's text to the summary.

mod intermittent;
mod words;

use crate::experiment::Experiment;
use crate::hooks::{FaultSchedule, RunHook, RunHooks};
use crate::observe::{Event, FaultRecord, Observer};
use crate::study::{Study, StudyError};
use brunt_block::backends::array::{ArrayControl, ArrayState};
use brunt_block::layers::fault::FaultSwitch;
use brunt_block::{Backend, open_url};
use brunt_result::summary::{RunSummary, Summary};
use brunt_result::void::VoidReason;
use brunt_result::{RequestRecord, RequestStatus};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The events that were observed.
#[derive(Default)]
struct Told {
    faults: Vec<FaultRecord>,
    requests: Vec<RequestRecord>,
}

/// Records events, and sets `stop` when a fault has begun.
struct Watch(Arc<Mutex<Told>>, Option<Arc<AtomicBool>>);

impl Observer for Watch {
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Fault(record) => {
                self.0.lock().unwrap().faults.push((**record).clone());
                if let Some(stop) = &self.1 {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            Event::Requests(records) => self
                .0
                .lock()
                .unwrap()
                .requests
                .extend(records.iter().cloned()),
            _ => {}
        }
        Ok(())
    }
}

struct Ran {
    result: Result<Summary, StudyError>,
    records: Vec<FaultRecord>,
    /// The recorded requests; empty if the load records none.
    requests: Vec<RequestRecord>,
    backend: Arc<dyn Backend>,
}

/// Runs an experiment with one target and these faults; with `stop`, ends it when the first fault shows an effect.
fn run(name: &str, url: &str, workload: &str, faults: &str, stop: bool) -> Ran {
    let text = format!(
        "name = \"{name}\"\nrepetitions = 2\n[targets.disk]\nurl = \"{url}\"\n[workloads.load]\n{workload}\n{faults}"
    );
    let experiment =
        Experiment::parse("x.toml", &text).unwrap_or_else(|error| panic!("{}", error.one_line()));
    let mut targets = BTreeMap::from([("disk".to_string(), open_url(url).unwrap())]);
    let schedule = FaultSchedule::new(
        &experiment,
        &mut targets,
        &BTreeMap::new(),
        &BTreeMap::new(),
        None,
        None,
    )
    .unwrap();
    let backend = Arc::clone(&targets["disk"]);
    let folder = tempfile::tempdir().unwrap();
    let (seen, flag) = (
        Arc::<Mutex<Told>>::default(),
        Arc::new(AtomicBool::new(false)),
    );
    let watch = Watch(Arc::clone(&seen), stop.then(|| Arc::clone(&flag)));
    let hooks: Vec<Box<dyn RunHook>> = vec![Box::new(schedule)];
    let members = RunHooks {
        observers: vec![Box::new(watch)],
        hooks,
    };
    let result = Study::new(experiment, targets, "test", folder.path(), members).run(&flag);
    let Told { faults, requests } = std::mem::take(&mut *seen.lock().unwrap());
    Ran {
        result,
        records: faults,
        requests,
        backend,
    }
}

/// Repeats an attempt with all times multiplied by 1, 2 and so on up to 16 until it succeeds: on a busy machine, a
/// fault may be injected too late to affect any request, and figures are distorted.
fn again<T>(mut attempt: impl FnMut(u32) -> Result<T, String>) -> T {
    let mut instead = String::new();
    for slower in [1, 2, 4, 8, 16] {
        match attempt(slower) {
            Ok(seen) => return seen,
            Err(what) => instead = what,
        }
    }
    panic!("{instead}")
}

/// The result of an attempt in [`again`]: what was seen, if it is as expected.
fn meant<T: std::fmt::Debug>(seen: T, is_meant: impl Fn(&T) -> bool) -> Result<T, String> {
    if is_meant(&seen) {
        Ok(seen)
    } else {
        Err(format!("{seen:#?}"))
    }
}

impl Ran {
    /// The experiment's summary; `Err` if a fault showed no effect. Any other error panics.
    fn summary(self) -> Result<Summary, String> {
        self.result.map_err(|error| {
            let text = error.to_string();
            assert!(text.contains("the run is invalid"), "{text}");
            text
        })
    }

    /// The requests that were sent after a fault had shown its effect and completed before it was removed, so it was
    /// in effect for their whole duration, however late it was injected or removed.
    fn during_faults(&self) -> Vec<RequestRecord> {
        let is_during = |request: &&RequestRecord| {
            let within = |fault: &FaultRecord| {
                request.sent.is_some_and(|sent| sent >= fault.shown)
                    && request
                        .completed
                        .zip(fault.end)
                        .is_some_and(|(completed, end)| completed <= end)
            };
            self.records.iter().any(within)
        };
        self.requests.iter().filter(is_during).cloned().collect()
    }

    fn nothing_is_left(&self) {
        for (name, handle) in self.backend.handles() {
            if let Some(switch) = handle.downcast_ref::<FaultSwitch>() {
                assert!(switch.armed().is_empty(), "{name} still has faults");
            }
        }
    }
}

fn load(slower: u32) -> String {
    format!(
        "interval = \"{}ms\"\nstop = {{ time = \"{}ms\" }}",
        50 * slower,
        1200 * slower
    )
}

/// The keys of [`load`], with each request recorded.
fn recorded(slower: u32) -> String {
    format!("record_requests = true\n{}", load(slower))
}

/// A storage fault of the disk.
fn timed(storage: &str, at_ms: u32, for_ms: u32) -> String {
    format!(
        "[[fault]]\ntarget = \"disk\"\nstorage = \"{storage}\"\nat = \"{at_ms}ms\"\nfor = \"{for_ms}ms\"\n"
    )
}

fn transient_fault(slower: u32) -> String {
    timed("aborted-command,p=0.5", 400 * slower, 300 * slower) + "name = \"burst\"\n"
}

/// A transient fault is in effect only during its time, is reported twice, is in the summary with its cost, and
/// leaves nothing behind.
#[test]
fn a_transient_fault_acts_only_in_its_time() {
    let (summary, records, slower) = again(|slower| {
        let fault = transient_fault(slower);
        let mut ran = run(
            "transient",
            "memory:16MiB?delay=const:100us",
            &recorded(slower),
            &fault,
            false,
        );
        ran.nothing_is_left();
        let during = ran.during_faults();
        let records = std::mem::take(&mut ran.records);
        // With 50 requests, a share of one half differs clearly from none and from all.
        let summary = meant(ran.summary()?, |_| during.len() >= 50)?;
        let failed = during
            .iter()
            .filter(|request| request.status != RequestStatus::Good)
            .count();
        let share = failed as f64 / during.len() as f64;
        assert!((0.2..0.8).contains(&share), "{failed} of {}", during.len());
        Ok((summary, records, f64::from(slower)))
    });
    assert!(summary.complete, "{:?}", summary.trouble);
    assert_eq!(records.len(), 4);
    assert!(records[0].end.is_none() && records[1].end.is_some());
    let point = &summary.points[0];
    for run in &point.runs {
        let [fault] = run.faults.as_slice() else {
            panic!("one fault a run")
        };
        assert_eq!(
            (fault.name.as_str(), fault.kind.as_str()),
            ("burst", "storage")
        );
        assert!(fault.start_s >= 0.4 * slower && fault.shown_s >= fault.start_s);
        assert!(
            fault.shown_by.starts_with("affected "),
            "{}",
            fault.shown_by
        );
        assert!(fault.end_s.unwrap() >= 0.7 * slower && fault.gone_s > fault.end_s);
        assert!(run.losses["scsi"] > 0);
        let cost = fault.cost.as_ref().unwrap();
        assert!(
            cost.baseline.requests_per_second > 0.0
                && cost.response_mean.unwrap().baseline_us > 100.0
        );
        assert!(
            cost.failed_share_before == 0.0 && cost.failed_share > 0.0,
            "{cost:?}"
        );
    }
    assert_eq!((point.degradation.len(), point.degradation[0].runs), (1, 2));
    assert!(
        crate::study::table(&summary)
            .iter()
            .any(|line| line.contains("fault burst"))
    );
}

/// Requests that complete during the fault take the requested additional time, and the cost of the fault is reported.
#[test]
fn slow_requests_take_the_added_time() {
    let summary = again(|slower| {
        let fault = timed("slow:5ms", 400 * slower, 300 * slower);
        let ran = run(
            "slower",
            "memory:16MiB?delay=const:1ms",
            &recorded(slower),
            &fault,
            false,
        );
        let during = ran.during_faults();
        for request in &during {
            let took = request.completed.unwrap().since(request.sent.unwrap());
            assert!(took >= Duration::from_millis(5), "{took:?}");
        }
        // The cost itself is tested in the code that computes it, with undisturbed figures.
        meant(ran.summary()?, |summary| {
            let repeats_last_written = |run: &RunSummary| {
                let cost = run.faults[0].cost.as_ref()?;
                let factors = cost.response_mean?.factor.and(cost.response_p99?.factor);
                // The excess wait is unknown if it is unclear when the figures recovered.
                factors.and(cost.excess_wait_s)
            };
            !during.is_empty()
                && summary.points[0]
                    .runs
                    .iter()
                    .all(|run| repeats_last_written(run).is_some())
        })
    });
    for run in &summary.points[0].runs {
        let cost = run.faults[0].cost.as_ref().unwrap();
        let mean = cost.response_mean.unwrap();
        assert!(
            mean.baseline_us >= 1000.0 && mean.high_us > mean.baseline_us,
            "{mean:?}"
        );
        assert!(
            cost.excess_wait_s.is_some() && cost.failed_share == 0.0,
            "{cost:?}"
        );
    }
    let lines = crate::study::table(&summary);
    assert!(
        lines.iter().any(|line| line.contains("of excess wait")),
        "{lines:#?}"
    );
    let (compared, _) = brunt_result::compare::compare_summaries(&summary, &summary, 0.05, &[]);
    let of_fault: Vec<&str> = compared
        .iter()
        .filter(|line| line.label.ends_with("fault slow:5ms"))
        .map(|line| &*line.metric)
        .collect();
    assert!(
        ["drop", "mean-factor", "p99-factor"]
            .iter()
            .all(|name| of_fault.contains(name)),
        "{of_fault:?}"
    );
    assert!(
        !of_fault.contains(&"failed"),
        "nothing failed on either side"
    );
}

/// A sticky fault affects every request, in a layer that the URL names.
#[test]
fn a_sticky_fault_affects_every_request() {
    let fault = "[[fault]]\ntarget = \"disk\"\nlayer = \"low\"\nstorage = \"medium-error,every=2\"";
    let ran = run(
        "sticky",
        "memory:16MiB?fault=off;name=low&fault=off",
        "stop = { requests = 2000 }",
        fault,
        false,
    );
    ran.nothing_is_left();
    for run in &ran.result.unwrap().points[0].runs {
        assert_eq!((run.losses["scsi"], run.completed()), (1000, 1000));
        assert!(run.faults[0].start_s < 0.0 && run.faults[0].cost.is_none());
    }
}

/// CPU time is taken during a run as requested, is proven by the time actually taken, and is given back; if the
/// machine lacks the resources, the experiment fails with advice. Memory is taken by a separate process, so it is
/// tested with the whole program.
#[test]
fn the_controller_in_trouble() {
    let load = "interval = \"50ms\"\nstop = { time = \"2s\" }";
    let core = std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
    let cpu = |share: f64, core: usize| {
        format!("[[fault]]\ncpu = {share}\ncores = [{core}]\nat = \"300ms\"\nfor = \"1200ms\"\n")
    };
    let memory =
        |size: &str| format!("[[fault]]\nmemory = \"{size}\"\nat = \"400ms\"\nfor = \"300ms\"\n");
    let ran = run(
        "controller",
        "memory:16MiB?delay=const:1ms",
        load,
        &cpu(0.2, core),
        false,
    );
    let summary = match ran.result {
        Ok(summary) => summary,
        // The core is fully used by other processes' real-time work.
        Err(error) => {
            let text = error.to_string();
            let wanted = [
                "other processes compete",
                "had no visible effect: received ",
            ];
            assert!(wanted.iter().any(|wanted| text.contains(wanted)), "{text}");
            return;
        }
    };
    for run in &summary.points[0].runs {
        let [cpu] = run.faults.as_slice() else {
            panic!("{:?}", run.faults)
        };
        assert_eq!(cpu.kind, "cpu");
        assert!(
            cpu.shown_by.contains("% of the CPU") && cpu.gone_by.starts_with("received "),
            "{cpu:?}"
        );
        assert!(cpu.end_s.unwrap() >= 1.5 && cpu.cost.is_some());
    }
    let check = |name: &str, faults: String, wanted: &str| {
        let ran = run(name, "memory:16MiB?delay=const:1ms", load, &faults, false);
        let text = ran
            .result
            .err()
            .unwrap_or_else(|| panic!("{name} went through"))
            .to_string();
        assert!(text.contains(wanted), "{name}: {text}");
    };
    check(
        "no such core",
        cpu(0.2, 1000),
        "this process may not use other cores",
    );
    check("too much", memory("1PiB"), "must stay available");
}

/// Two simultaneous faults have separate records.
#[test]
fn simultaneous_faults_have_separate_records() {
    let summary = again(|slower| {
        let faults = transient_fault(slower) + &timed("slow:1ms", 500 * slower, 400 * slower);
        let ran = run(
            "several",
            "memory:16MiB?delay=const:100us",
            &load(slower),
            &faults,
            false,
        );
        ran.nothing_is_left();
        ran.summary()
    });
    let names: Vec<_> = summary.points[0].runs[0]
        .faults
        .iter()
        .map(|fault| fault.name.clone())
        .collect();
    assert_eq!(names, ["burst", "slow:1ms"]);
}

/// The canary: a fault without effect makes the experiment fail, regardless of the cause.
#[test]
fn what_does_not_show_fails() {
    let check = |name: &str, workload: &str, fault: &dyn Fn(u32) -> String, wanted: &str| {
        again(|slower| {
            let workload = workload.replace(
                "TIME",
                &format!("stop = {{ time = \"{}ms\" }}", 500 * slower),
            );
            let ran = run(
                name,
                "memory:16MiB?delay=const:100us",
                &workload,
                &fault(slower),
                false,
            );
            ran.nothing_is_left();
            let text = ran
                .result
                .err()
                .unwrap_or_else(|| panic!("{name} went through"))
                .to_string();
            // On a busy machine, the fault may also be too late for its run.
            assert!(
                text.contains(wanted) || text.contains("before the fault started"),
                "{name}: {text}"
            );
            meant(text, |text| text.contains(wanted))
        });
    };
    let timed =
        |storage: &'static str| move |slower: u32| timed(storage, 100 * slower, 200 * slower);
    let reads = "read = 1.0\nTIME";
    check(
        "flush",
        reads,
        &timed("medium-error,op=flush"),
        "affected none",
    );
    check(
        "write",
        reads,
        &timed("drop"),
        "none of 0 matching requests",
    );
    check(
        "never",
        reads,
        &timed("busy,p=0.000000001"),
        "had no visible effect",
    );
    check(
        "elsewhere",
        "region = { length = \"1MiB\" }\nTIME",
        &timed("busy,lba=30000-30001"),
        "had no visible effect",
    );
    let late = |_| self::timed("busy", 3_600_000, 200);
    check(
        "late",
        "stop = { requests = 10 }",
        &late,
        "before the fault started",
    );
    let sticky = |_| "[[fault]]\ntarget = \"disk\"\nstorage = \"drop\"".to_string();
    check("sticky", reads, &sticky, "had no visible effect");
}

/// An experiment that is interrupted during a fault says so, and removes the fault.
#[test]
fn an_interrupted_experiment_removes_and_reports_its_fault() {
    let (summary, records) = again(|slower| {
        let ran = run(
            "interrupted",
            "memory:16MiB",
            &load(slower),
            &transient_fault(slower),
            true,
        );
        ran.nothing_is_left();
        let records = ran.records.clone();
        Ok((ran.summary()?, records))
    });
    assert_eq!(summary.trouble.as_deref(), Some("interrupted"));
    assert!(records[1].end.is_some());
}

/// An unknown or ambiguous layer is a mistake; the message says what would be correct.
#[test]
fn layers_are_found() {
    let check = |url: &str, layer: &str, wanted: Option<&str>| {
        let text = format!(
            "name = \"x\"\n[targets.disk]\nurl = \"{url}\"\n[workloads.load]\nstop = {{ requests = 1 }}\n[[fault]]\ntarget = \"disk\"\n{layer}\nstorage = \"busy\""
        );
        let experiment = Experiment::parse("x.toml", &text).unwrap();
        let mut targets = BTreeMap::from([("disk".to_string(), open_url(url).unwrap())]);
        match (
            FaultSchedule::new(
                &experiment,
                &mut targets,
                &BTreeMap::new(),
                &BTreeMap::new(),
                None,
                None,
            ),
            wanted,
        ) {
            (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            (result, wanted) => assert!(result.is_ok() && wanted.is_none(), "{url} {layer}"),
        }
    };
    check("null:1MiB", "", None);
    check("null:1MiB?fault=off", "", None);
    check(
        "null:1MiB?fault=off;name=a&fault=off;name=b",
        "layer = \"b\"",
        None,
    );
    check(
        "null:1MiB?fault=off;name=a&fault=off;name=b",
        "",
        Some("layer = b, a"),
    );
    check(
        "null:1MiB?fault=off;name=a",
        "layer = \"b\"",
        Some("the layers are a"),
    );
    check("null:1MiB", "layer = \"b\"", Some("?fault=off"));
}

/// A member fails under load, and the array reports it. The rebuild or the end of the run ends the fault, and the
/// next run begins with an intact array.
#[test]
fn failed_members_are_replaced_and_rebuilt() {
    let member = "[memory:4MiB]";
    let check = |name: &str, rate: &str, by_itself: bool| {
        let url = format!(
            "array:raid5,rebuild={rate},{member},{member},{member},spare={member}?delay=const:100us"
        );
        let ends = if by_itself { "by itself (4MiB in " } else { "" };
        let (summary, backend) = again(|slower| {
            let fault = format!(
                "[[fault]]\ntarget = \"disk\"\nmember = 1\nat = \"{}ms\"",
                300 * slower
            );
            let load = format!(
                "read = 0.5\nverify = {{}}\ninterval = \"50ms\"\nstop = {{ time = \"{}ms\" }}",
                1500 * slower
            );
            let ran = run(name, &url, &load, &fault, false);
            let backend = Arc::clone(&ran.backend);
            // On a busy machine, a rebuild may take longer than the run.
            let summary = meant(ran.summary()?, |summary| {
                summary.points[0]
                    .runs
                    .iter()
                    .all(|run| run.faults[0].gone_by.contains(ends))
            })?;
            Ok((summary, backend))
        });
        for run in &summary.points[0].runs {
            assert!(run.losses.is_empty(), "{:?}", run.losses);
            let fault = &run.faults[0];
            assert!(fault.shown_by.contains("member 1 is"), "{}", fault.shown_by);
            assert_eq!(
                fault.gone_by.contains("by itself (4MiB in "),
                by_itself,
                "{}",
                fault.gone_by
            );
        }
        for (_, handle) in backend.handles() {
            let Some(control) = handle.downcast_ref::<ArrayControl>() else {
                continue;
            };
            assert_eq!(
                (control.status().state, control.status().spares.len()),
                (ArrayState::Optimal, 1)
            );
        }
    };
    check("rebuilt", "40MB", true);
    check("not rebuilt", "100kB", false);
}

/// If the array's level tolerates it, a second member that fails while the first is missing is a separate fault; both
/// faults end when the array is intact.
#[test]
fn two_members_fail() {
    let member = "[memory:2MiB]";
    let url = format!(
        "array:raid1,rebuild_rate=2MB,{member},{member},{member},spare={member},spare={member}?delay=const:100us"
    );
    let fault = |member: u32, at: u32| {
        format!("[[fault]]\ntarget = \"disk\"\nmember = {member}\nat = \"{at}ms\"\n")
    };
    let summary = again(|slower| {
        let faults = fault(0, 300 * slower) + &fault(2, 400 * slower);
        let load = format!(
            "read = 0.5\nverify = {{}}\nstop = {{ time = \"{}ms\" }}",
            800 * slower
        );
        run("two members", &url, &load, &faults, false).summary()
    });
    for run in &summary.points[0].runs {
        assert!(
            run.losses.is_empty() && run.faults.len() == 2,
            "{:?}",
            run.losses
        );
        assert!(
            run.faults
                .iter()
                .all(|fault| fault.gone_by.contains("the array is intact")),
            "{:?}",
            run.faults
        );
    }
}

/// A member that a storage fault has removed from its array is replaced before the next run.
#[test]
fn every_run_begins_whole() {
    let url = "array:raid1,[memory:4MiB?fault=off;name=bad],[memory:4MiB]?delay=const:100us";
    let summary = again(|slower| {
        let fault = format!(
            "[[fault]]\ntarget = \"disk\"\nlayer = \"bad\"\nstorage = \"medium-error\"\nat = \"{}ms\"",
            200 * slower
        );
        run(
            "whole",
            url,
            &format!("stop = {{ time = \"{}ms\" }}", 500 * slower),
            &fault,
            false,
        )
        .summary()
    });
    assert_eq!(summary.points[0].runs.len(), 2);
    assert!(
        summary.points[0]
            .runs
            .iter()
            .all(|run| run.losses.is_empty())
    );
}

/// A kind that consists of one file and one line in the table works everywhere: its fault is read, injected, proven,
/// recorded and removed, and invalidates its run if it shows no effect.
#[test]
fn a_kind_of_a_file_and_a_line() {
    let attempt = |name: &str, more: &str, slower: u32| {
        let load = format!(
            "interval = \"50ms\"\nstop = {{ time = \"{}ms\" }}",
            400 * slower
        );
        let times = format!("at = \"{0}ms\"\nfor = \"{0}ms\"\n", 100 * slower);
        let fault = format!("[[fault]]\nname = \"told\"\ntest_only = true\n{more}{times}");
        run(name, "memory:1MiB", &load, &fault, false)
    };
    let summary = again(|slower| attempt("a kind", "", slower).summary());
    for run in &summary.points[0].runs {
        let [fault] = run.faults.as_slice() else {
            panic!("{:?}", run.faults)
        };
        assert_eq!(
            (fault.name.as_str(), fault.kind.as_str()),
            ("told", "test_only")
        );
        assert_eq!(
            (fault.shown_by.as_str(), fault.gone_by.as_str()),
            ("it is there", "it is gone")
        );
    }
    again(|slower| {
        let error = attempt("hidden", "hidden = true\n", slower)
            .result
            .unwrap_err();
        let StudyError::Hook { source, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(source.reason, VoidReason::FaultUnseen, "{error}");
        // On a busy machine, the fault may also be too late for its run.
        meant(error.to_string(), |text| {
            text.contains("fault 'told': it had no visible effect: nothing")
        })
    });
}
