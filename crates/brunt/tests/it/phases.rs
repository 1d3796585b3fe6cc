//! `[[phase]]` as a user runs it: the order of runs, preparation, conditions, and fio's `stonewall`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A target that is filled once, and then read and written.
const EXPERIMENT: &str = r#"
name = "phases"
repetitions = 2
[targets.t]
url = "memory:1MiB"
[workloads.fill]
read = 0.0
sequential = 1.0
stop = { passes = 1 }
[workloads.a]
stop = { requests = 100 }
[workloads.b]
stop = { requests = 100 }
[sweep]
queue_depth = [1, 2]
[[phase]]
workloads = ["fill"]
once = true
[[phase]]
name = "last"
workloads = ["b"]
wait_for = WAIT
[[phase]]
workloads = ["a"]
"#;

fn run(folder: &Path, text: &str, words: &[&str]) -> Output {
    let file = folder.join("x.toml");
    std::fs::write(&file, text).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(["run", "--json"])
        .arg(&file)
        .arg("--out")
        .arg(folder.join("results"))
        .args(words)
        .output()
        .expect("the program runs")
}

/// The workloads of the runs in a summary, in the order in which they were made.
fn order(summary: &Value) -> Vec<String> {
    let mut runs = Vec::new();
    for point in summary["points"].as_array().expect("points") {
        let workload = point["workload"].as_str().expect("a name");
        for run in point["runs"].as_array().expect("runs") {
            runs.push((
                run["order"].as_u64().expect("a number"),
                workload.to_string(),
            ));
        }
    }
    runs.sort();
    runs.into_iter().map(|(_, workload)| workload).collect()
}

#[test]
fn phases_run_in_order_and_wait_for_their_conditions() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let wait = format!(
        "{{ command = [\"sh\", \"-c\", \"echo >>{0}; test $(wc -l <{0}) -gt 1\"], every = \"10ms\" }}",
        log.display()
    );
    let text = EXPERIMENT.replace("WAIT", &wait);
    let planned = run(folder.path(), &text, &["--check"]);
    assert!(planned.status.success() && !log.exists(), "{planned:?}");
    let done = run(folder.path(), &text, &[]);
    assert!(done.status.success(), "{done:?}");
    let summary: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(
        order(&summary),
        ["fill", "b", "b", "a", "a", "b", "b", "a", "a"]
    );
    let waits = summary["waits"].as_array().expect("waits");
    let told = |wait: &Value| {
        (
            wait["phase"].clone(),
            wait["repetition"].clone(),
            wait["outcome"].clone(),
        )
    };
    assert_eq!(
        waits.iter().map(told).collect::<Vec<_>>(),
        [0, 1].map(|repetition| ("last".into(), repetition.into(), "met".into()))
    );
    // A failed attempt is repeated after 10 ms.
    assert!(waits[0]["waited_s"].as_f64() >= Some(0.01), "{waits:?}");
    // Two attempts before the first repetition, one before the second.
    assert_eq!(std::fs::read_to_string(&log).expect("attempts").len(), 3);
}

#[test]
fn a_condition_that_does_not_hold_ends_the_experiment_with_what_was_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let wait = "{ command = [\"false\"], every = \"10ms\", time_max = \"50ms\" }";
    let done = run(folder.path(), &EXPERIMENT.replace("WAIT", wait), &[]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr);
    // On a busy machine, the last attempt may not end in time.
    let ends = ["exit status: 1", "it was still running"];
    let is_reason = |end: &&str| {
        said.contains(&format!(
            "phase last: false did not succeed within 50ms: {end}"
        ))
    };
    assert!(ends.iter().any(is_reason), "{said}");
    let summary = std::fs::read(folder.path().join("results/summary.json")).expect("a summary");
    let summary: Value = serde_json::from_slice(&summary).expect("JSON");
    assert_eq!(
        (order(&summary), &summary["complete"]),
        (vec!["fill".to_string()], &false.into())
    );
    let wait = &summary["waits"][0];
    assert_eq!(
        (&wait["command"], &wait["outcome"]),
        (&"false".into(), &"timed-out".into())
    );
}

/// In every repetition, the fill from a job file is measured before the jobs that read it.
#[test]
fn jobs_behind_a_stonewall_run_after_those_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = folder.path().join("job.fio");
    let text = format!(
        "[global]\nfilename={}\nsize=1m\nioengine=psync\n[z-fill]\nrw=write\nbs=64k\n[b-read]\nstonewall\n\
         rw=randread\nbs=4k\nnumber_ios=50\n[a-write]\nstonewall\nrw=randwrite\nbs=4k\nnumber_ios=50\n",
        folder.path().join("disk.img").display()
    );
    std::fs::write(&job, text).expect("a file");
    let done = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(["run", "--json"])
        .arg(&job)
        .arg("--out")
        .arg(folder.path().join("results"))
        .output()
        .expect("the program runs");
    assert!(done.status.success(), "{done:?}");
    let summary: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let runs = order(&summary);
    assert_eq!(runs.len(), 12);
    for round in runs.chunks(3) {
        assert_eq!(round, ["z-fill", "b-read", "a-write"]);
    }
}
