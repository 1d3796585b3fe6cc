//! Ctrl-C at any moment of `brunt run`, and a terminal that closes: the measurements are kept, readable, and marked
//! as incomplete; a second Ctrl-C ends the program at once. Also tests the rate search, from an experiment file to
//! its result.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use brunt_core::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::alone;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// A run in progress in its own folder; dropping this removes both, even if a test fails.
struct Run {
    child: Child,
    folder: TempDir,
}

impl Run {
    fn start(name: &str, experiment: &str) -> Run {
        let folder = tempfile::Builder::new()
            .prefix(name)
            .tempdir()
            .expect("a folder");
        let file = folder.path().join("x.toml");
        std::fs::write(&file, experiment).expect("a file");
        // The tests may run with SIGHUP ignored (`nohup`), which programs inherit.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(env!("CARGO_BIN_EXE_brunt"));
        command
            .arg("run")
            .arg(&file)
            .arg("--out")
            .arg(folder.path().join("results"));
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let run = Run { child, folder };
        // Once the first summary exists, there are results to lose.
        let summary = run.results().join("summary.json");
        wait_for(|| summary.exists().then_some(()));
        run
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    fn interrupt(&self) {
        self.send(Signal::INT);
    }

    fn send(&self, signal: Signal) {
        // The program may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn end(&mut self) -> ExitStatus {
        wait_for(|| self.child.try_wait().expect("a child of ours"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(std::time::Instant::now() < end, "waited in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn summary(results: &Path) -> Value {
    let text = std::fs::read_to_string(results.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("whole")
}

/// An experiment whose workload has the additional keys `more`.
fn experiment(url: &str, repetitions: u32, more: &str) -> String {
    format!(
        "name = \"x\"\nrepetitions = {repetitions}\n[targets.t]\nurl = \"{url}\"\n\
         [workloads.w]\ninterval = \"50ms\"\n{more}\n[probes]\ninterval = \"50ms\"\n"
    )
}

/// The runs of a summary, in execution order.
fn runs(summary: &Value) -> Vec<Value> {
    summary["points"][0]["runs"]
        .as_array()
        .expect("runs")
        .clone()
}

/// Whenever it is interrupted, the program ends with status 1. The summary is well-formed, marked as incomplete, and
/// contains every finished run; only the last run may be cut short.
#[test]
fn an_interrupt_at_any_moment_keeps_every_finished_run() {
    let hour = "stop = { time = \"1h\" }";
    let cases: [(&str, &str, u32, String); 5] = [
        ("ramp-up", "memory:16MiB", 3, format!("ramp_up = {{ time = \"1h\" }}\n{hour}")),
        ("choosing a ring", "memory:16MiB", 1, format!("ring = \"auto\"\n{hour}")),
        ("within", "memory:16MiB?delay=const:1ms", 3, hour.into()),
        ("between", "memory:16MiB?delay=const:2ms", 1000, "stop = { requests = 1 }".into()),
        (
            "search",
            "memory:16MiB?delay=const:1ms,servers=1",
            3,
            "arrival = { kind = \"search\", percentile = 99, limit = \"50ms\", tolerance = 0.001 }\n\
             stop = { time = \"100ms\" }"
                .into(),
        ),
    ];
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..2 {
        for (name, url, repetitions, more) in &cases {
            let mut run = Run::start(
                &format!("{}-{round}", name.replace(' ', "-")),
                &experiment(url, *repetitions, more),
            );
            std::thread::sleep(Duration::from_millis(random.below(250)));
            run.interrupt();
            let status = run.end();
            let summary = summary(&run.results());
            assert_eq!(status.code(), Some(1), "{name}: {summary:#}");
            let said = (&summary["complete"], &summary["trouble"]);
            assert_eq!(said, (&false.into(), &"interrupted".into()), "{name}");
            let runs = runs(&summary);
            assert!(
                runs.len() < *repetitions as usize || *name != "between",
                "{name}"
            );
            for (index, made) in runs.iter().enumerate() {
                assert_eq!(made["order"], index, "{name}");
                let cut = made["stopped"] == "interrupted";
                assert!(
                    !cut || index + 1 == runs.len(),
                    "{name}: a run went on after the interrupt"
                );
                assert!(
                    cut || *name == "between" || *name == "search",
                    "{name}: {made:#}"
                );
                // A search that was cut short has no result; on a busy machine, even a complete search may have none.
                assert!(
                    *name != "search" || !cut || made["rate_found"].is_null(),
                    "{made:#}"
                );
            }
        }
    }
}

/// A SIGKILL at any moment loses no finished run, and every command can read the finished runs.
#[test]
fn a_kill_at_any_moment_keeps_every_finished_run() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..3 {
        // With the delay, 1000 runs take much longer than the pauses of a busy machine.
        let text = experiment(
            "memory:16MiB?delay=const:5ms",
            1000,
            "stop = { requests = 1 }",
        );
        let mut run = Run::start(&format!("kill-{round}"), &text);
        let (log, results) = (run.results().join("runs.jsonl"), run.results());
        // The first line is a header.
        let logged = || {
            let text = std::fs::read(&log).unwrap_or_default();
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            lines.saturating_sub(1)
        };
        wait_for(|| (logged() >= 3).then_some(()));
        std::thread::sleep(Duration::from_millis(random.below(100)));
        run.send(Signal::KILL);
        run.end();
        let finished = logged();
        assert!(runs(&summary(&results)).is_empty(), "written at the end");
        let brunt = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
            command.arg("--json").args(words).arg(&results);
            let output = command.output().expect("the program runs");
            let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
            assert!(output.status.success(), "{words:?}: {answer:#}");
            answer
        };
        let path = results.display().to_string();
        let compared = brunt(&["compare", &path]);
        let lines = compared["lines"].as_array().expect("a list");
        assert!(!lines.is_empty(), "{compared:#}");
        brunt(&["history"]);
        // Do it twice: the second time, the summary already contains the runs.
        for _ in 0..2 {
            assert_eq!(brunt(&["report"])["complete"], false);
            let summary = summary(&results);
            let orders: Vec<u64> = runs(&summary)
                .iter()
                .filter_map(|run| run["order"].as_u64())
                .collect();
            assert_eq!(orders, (0..finished as u64).collect::<Vec<u64>>());
            let mean = &summary["points"][0]["requests_per_second"]["mean"];
            assert!(mean.as_f64().expect("an estimate") > 0.0);
        }
    }
}

/// A second Ctrl-C doesn't wait for a device that doesn't answer, and what was saved before is still readable.
#[test]
fn a_second_interrupt_does_not_wait_for_the_device() {
    let more = "queue_depth = 4\ndrain = \"1h\"\nstop = { time = \"1h\" }";
    // A run that is interrupted before its first request has nothing to wait for and ends at once, with status 1; in
    // that case, try again with a later interrupt.
    for pause_ms in [50, 250, 1000, 5000, 20_000] {
        let mut run = Run::start("twice", &experiment("memory:16MiB?delay=const:1h", 3, more));
        std::thread::sleep(Duration::from_millis(pause_ms));
        let status = wait_for(|| {
            run.interrupt();
            std::thread::sleep(Duration::from_millis(20));
            run.child.try_wait().expect("a child of ours")
        });
        assert_eq!(summary(&run.results())["complete"], false);
        match status.code() {
            Some(130) => return,
            code => assert_eq!(code, Some(1), "after {pause_ms} ms"),
        }
    }
    panic!("no run had a request under way");
}

/// A closing terminal ends a run like Ctrl-C, with its report and without leftovers, however many SIGHUPs it sends.
#[test]
fn a_closing_terminal_ends_a_run_with_its_report() {
    let mut run = Run::start(
        "hangup",
        &experiment("memory:16MiB", 3, "stop = { time = \"1h\" }"),
    );
    assert_ends_by_hangup(&mut run);
}

/// A closing terminal also ends a run in a lab, where the run is the first process in its namespaces.
#[test]
fn a_closing_terminal_ends_a_run_in_a_lab() {
    let text = "name = \"x\"\nrepetitions = 3\n[lab]\nhosts = [\"client\", \"server\"]\n[lab.links.wan]\n\
                between = [\"client\", \"server\"]\npreset = \"four-sites\"\n[targets.t]\nserve = \"null:1GiB\"\n\
                host = \"server\"\n[workloads.w]\nstop = { time = \"1h\" }\n";
    if !labs_are_possible(text) {
        return;
    }
    let mut run = Run::start("hangup-lab", text);
    assert_ends_by_hangup(&mut run);
}

/// Whether namespaces can be created here; if not, prints why.
fn labs_are_possible(text: &str) -> bool {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("x.toml");
    std::fs::write(&file, text.replace("1h", "10ms")).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    let output = command
        .arg("run")
        .arg(&file)
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let forbidden = said.contains("namespaces of a lab") || said.contains("/dev/net/tun");
        assert!(
            forbidden && std::env::var("BRUNT_REQUIRE_ALL").is_err(),
            "{said}"
        );
        println!(
            "skipped: needs user namespaces and /dev/net/tun ({})",
            said.trim()
        );
    }
    output.status.success()
}

/// Sends three SIGHUPs at once: the kernel, the shell and the outer process of a lab each send one.
fn assert_ends_by_hangup(run: &mut Run) {
    (0..3).for_each(|_| run.send(Signal::HUP));
    let status = run.end();
    let found = summary(&run.results());
    assert_eq!(
        (status.code(), &found["trouble"]),
        (Some(1), &"interrupted".into()),
        "{found:#}"
    );
    assert!(run.results().join("report.html").exists());
    let left: Vec<String> = std::fs::read_dir(run.results())
        .expect("results")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name.ends_with(".reserved"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

/// A run that has sent all of its requests and is waiting for the last completions also obeys the first Ctrl-C.
#[test]
fn an_interrupt_ends_the_wait_for_the_last_completions() {
    let more = "queue_depth = 4\ndrain = \"1h\"\nstop = { requests = 8 }";
    // Long enough to reach the drain on most machines; on others, the interrupt comes earlier and still ends the run.
    // If it comes before the run has begun, try again with a later interrupt.
    for pause_ms in [500, 2000, 10_000] {
        let mut run = Run::start("drain", &experiment("memory:16MiB?delay=const:1h", 1, more));
        std::thread::sleep(Duration::from_millis(pause_ms));
        run.interrupt();
        assert_eq!(run.end().code(), Some(1));
        if let Some(made) = runs(&summary(&run.results())).first() {
            assert_eq!(made["stopped"], "interrupted");
            return;
        }
    }
    panic!("no run had begun");
}

/// `--detach` prints the process and the folder, and returns. The experiment continues in its own session, with its
/// output in the results folder. Mistakes are reported at once.
#[test]
fn a_detached_run_continues_in_its_own_session() {
    let folder = TempDir::new().expect("a folder");
    let detached = |text: &str, results: &str| {
        let file = folder.path().join("x.toml");
        std::fs::write(&file, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
        command
            .args(["--json", "run", "--detach"])
            .arg(&file)
            .arg("--out")
            .arg(folder.path().join(results));
        let output = command.output().expect("the program runs");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
        (output.status.code(), answer)
    };
    let hour = experiment("memory:16MiB", 1, "stop = { time = \"1h\" }");
    let (status, answer) = detached(&hour, "results");
    assert_eq!(status, Some(0), "{answer:#}");
    let pid = answer["pid"].as_i64().expect("a process") as i32;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it goes on");
    // The fields after the name: state, parent, group, session (proc_pid_stat(5)).
    let session = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(3));
    assert_eq!(session, Some(pid.to_string().as_str()), "{stat}");
    kill_process(Pid::from_raw(pid).expect("above zero"), Signal::TERM).expect("it goes on");
    let results = folder.path().join("results");
    wait_for(|| {
        let text = std::fs::read_to_string(results.join("summary.json")).ok()?;
        let found: Value = serde_json::from_str(&text).ok()?;
        (found["trouble"] == "interrupted").then_some(())
    });
    let printed = results.join("output.txt");
    wait_for(|| {
        std::fs::read_to_string(&printed)
            .ok()
            .filter(|text| text.contains("\"complete\""))
    });
    let said = std::fs::read_to_string(results.join("progress.txt")).expect("what it said");
    assert!(said.contains("report in"), "{said}");

    let (status, answer) = detached(&hour.replace("memory:16MiB", "/nowhere/x"), "none");
    assert_ne!(status, Some(0));
    assert!(
        answer["error"]
            .as_str()
            .is_some_and(|error| error.contains("/nowhere/x")),
        "{answer:#}"
    );
}

/// The whole program finds the highest rate that meets a latency limit: four servers with 10 ms each do 400 requests
/// a second, and the result is close to that.
#[test]
fn a_rate_search_finds_the_capacity() {
    let _alone = alone(); // Searches for the rate at which latencies grow.
    // A busy machine can miss limits that the device would meet, but can't meet limits that the device would miss. If
    // the rate found is too low, repeat the search with all times longer by this factor.
    let mut seen = Vec::new();
    for slower in [1, 2, 4, 8, 16] {
        let capacity = 400.0 / f64::from(slower);
        let more = format!(
            "queue_depth = 256\nstop = {{ time = \"{}ms\" }}\n\
             arrival = {{ kind = \"search\", percentile = 95, limit = \"{}ms\", rate = {}, \
             process = \"constant\", tolerance = 0.1 }}",
            500 * slower,
            100 * slower,
            0.25 * capacity
        );
        let url = format!("memory:16MiB?delay=const:{}ms,servers=4", 10 * slower);
        let mut run = Run::start(&format!("capacity-{slower}"), &experiment(&url, 1, &more));
        let status = run.end();
        let summary = summary(&run.results());
        assert_eq!(
            (status.code(), &summary["complete"]),
            (Some(0), &true.into()),
            "{summary:#}"
        );
        let made = &runs(&summary)[0];
        let found = made["rate_found"].as_f64().unwrap_or(0.0);
        // After half a second, a rate of r is behind by (r / 400 - 1) * 500 ms: 100 ms at 480 a second.
        assert!(found < 1.3 * capacity, "{found} of {capacity}");
        let rate = made["requests_per_second"].as_f64().unwrap_or(0.0);
        if found >= 0.5 * capacity && (rate / found - 1.0).abs() < 0.25 {
            return;
        }
        seen.push((slower, found, rate));
    }
    panic!("never near to the capacity: {seen:?}");
}
