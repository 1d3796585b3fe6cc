//! Ctrl-C at any moment of `brunt run`: what was measured is kept, readable, and marked as not all;
//! a second one ends the program at once. And the rate search from a file to its answer.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use brunt_core::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, also on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(600);

/// A run under way, in a folder of its own; both are gone with this, also when a test fails.
struct Run {
    child: Child,
    folder: TempDir,
}

impl Run {
    fn start(name: &str, experiment: &str) -> Run {
        let folder = tempfile::Builder::new().prefix(name).tempdir().expect("a folder");
        let file = folder.path().join("x.toml");
        std::fs::write(&file, experiment).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
        command.arg("run").arg(&file).arg("--out").arg(folder.path().join("results"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs");
        let run = Run { child, folder };
        // From its first summary on there are results to lose.
        let summary = run.results().join("summary.json");
        wait_for(|| summary.exists().then_some(()));
        run
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    fn interrupt(&self) {
        let pid = Pid::from_child(&self.child);
        // It may have ended already.
        let _ = kill_process(pid, Signal::INT);
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

/// An experiment whose workload takes `more`.
fn experiment(url: &str, repetitions: u32, more: &str) -> String {
    format!(
        "name = \"x\"\nrepetitions = {repetitions}\n[targets.t]\nurl = \"{url}\"\n\
         [workloads.w]\ninterval = \"50ms\"\n{more}\n[probes]\ninterval = \"50ms\"\n"
    )
}

/// Runs of a summary, in the order in which they were made.
fn runs(summary: &Value) -> Vec<Value> {
    summary["points"][0]["runs"].as_array().expect("runs").clone()
}

/// At whatever moment, the program ends by itself with status 1, and the summary is whole,
/// says that it is not all, and has every finished run; only the last one may be cut short.
#[test]
fn interrupted_at_any_moment() {
    let hour = "stop = { time = \"1h\" }";
    let cases: [(&str, &str, u32, String); 5] = [
        ("ramp-up", "memory:16MiB", 3, format!("ramp_up = {{ time = \"1h\" }}\n{hour}")),
        ("choosing a ring", "memory:16MiB", 1, format!("ring = \"auto\"\n{hour}")),
        ("within", "memory:16MiB?delay=const:1ms", 3, hour.into()),
        ("between", "memory:16MiB", 1000, "stop = { requests = 1 }".into()),
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
            assert!(runs.len() < *repetitions as usize || *name != "between", "{name}");
            for (index, made) in runs.iter().enumerate() {
                assert_eq!(made["order"], index, "{name}");
                let cut = made["stopped"] == "interrupted";
                assert!(!cut || index + 1 == runs.len(), "{name}: a run went on after the interrupt");
                assert!(cut || *name == "between" || *name == "search", "{name}: {made:#}");
                // One that was cut short has found nothing; on a busy machine one that was not may not have, either.
                assert!(*name != "search" || !cut || made["rate_found"].is_null(), "{made:#}");
            }
        }
    }
}

/// Who presses Ctrl-C again does not wait for a device that does not answer, and what was
/// kept before is readable still.
#[test]
fn interrupted_twice() {
    let more = "queue_depth = 4\ndrain = \"1h\"\nstop = { time = \"1h\" }";
    // A run that is interrupted before its first request was sent has nothing to wait for and ends at once,
    // with status 1: then once more, and later.
    for pause_ms in [50, 250, 1000, 5000] {
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

/// The highest rate under a promise is found through the whole program: four servers of
/// 10 ms do 400 requests a second, and neither much more nor much less is the answer.
#[test]
fn a_rate_search_finds_the_capacity() {
    // A busy machine breaks promises that the device would keep, and cannot make it keep those that it would
    // break: where too little is found, the same is looked for with everything so many times as slow.
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
        assert_eq!((status.code(), &summary["complete"]), (Some(0), &true.into()), "{summary:#}");
        let made = &runs(&summary)[0];
        let found = made["rate_found"].as_f64().unwrap_or(0.0);
        // In half a second a rate r is behind by (r / 400 - 1) * 500 ms at its end: 100 ms at 480 a second.
        assert!(found < 1.3 * capacity, "{found} of {capacity}");
        let rate = made["requests_per_second"].as_f64().unwrap_or(0.0);
        if found >= 0.5 * capacity && (rate / found - 1.0).abs() < 0.25 {
            return;
        }
        seen.push((slower, found, rate));
    }
    panic!("never near to the capacity: {seen:?}");
}
