//! Experiments that take turns (`brunt run --interleave`), and comparisons of runs in pairs.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use brunt_lake::read_table;
use brunt_result::summary::Summary;
use brunt_result::tables::runs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{TempDir, brunt, run_within, succeed};

/// An experiment with two points, on a device whose requests take this long. Tests that expect a verdict compare
/// devices that differ by far more than a busy machine would make them differ.
fn experiment(delay: &str, more: &str) -> String {
    format!(
        "name = \"turns\"\nrepetitions = 4\n{more}\n[targets.disk]\nurl = \"null:64MiB?delay=const:{delay}\"\n\
         [workloads.w]\nread = 1\nstop = {{ requests = 100 }}\n[sweep]\nqueue_depth = [1, 4]\n"
    )
}

fn folder(files: &[(&str, String)]) -> TempDir {
    let folder = TempDir::new("interleave");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
    folder
}

fn summary(folder: &TempDir, name: &str) -> Summary {
    Summary::read(&folder.join(name)).expect("a summary")
}

/// When each run of a result began, with its point and repetition.
fn begun(folder: &TempDir, name: &str) -> Vec<(i64, (i64, i64), String)> {
    let mut all = Vec::new();
    let damaged = read_table(&folder.join(name), &runs::TABLE, |batch| {
        let begun = batch.ints("began_unix_ns").iter();
        let which = batch.ints("point").iter().zip(batch.ints("repetition"));
        let which = which.map(|(point, repetition)| (*point, *repetition));
        all.extend(
            begun
                .zip(which)
                .map(|(at, which)| (*at, which, name.to_string())),
        );
    });
    assert!(damaged.expect("a table").is_empty());
    all
}

/// Results whose folders have the same name are identified by their paths.
#[test]
fn results_with_equal_names_can_be_told_apart() {
    let folder = TempDir::new("interleave");
    for name in ["old", "new"] {
        fs::create_dir(folder.join(name)).expect("a folder");
        let text = experiment("1us", "").replace("repetitions = 4", "repetitions = 1");
        fs::write(folder.join(name).join("x.toml"), text).expect("a file");
    }
    let words = ["run", "--interleave", "old/x.toml", "new/x.toml"];
    let text = succeed(brunt().args(words).current_dir(folder.join("")), 60);
    let first = "new/x.results compared with old/x.results";
    assert!(text.contains(first), "{text}");
}

/// Whether all means in a comparison are worse.
fn is_worse(compared: &Value) -> bool {
    let mut means = compared["lines"].as_array().expect("lines").iter();
    means.all(|line| line["metric"] != "mean" || line["comparison"]["verdict"] == "worse")
}

/// Runs experiments in turns, and compares the first two; returns the folder, the output and the comparison. A pause of
/// the machine during a short run can hide a difference, so this is repeated until the second one is worse.
fn interleaved(files: &[(&str, String)], words: &[&str]) -> (TempDir, String, Value) {
    let run = || {
        let folder = folder(files);
        let text = succeed(brunt().args(words).current_dir(folder.join("")), 120);
        let words = ["--json", "compare", "a.results", "b.results"];
        let later = succeed(brunt().args(words).current_dir(folder.join("")), 60);
        let later: Value = serde_json::from_str(&later).expect("one object");
        (folder, text, later)
    };
    let mut last = run();
    for _ in 0..3 {
        if is_worse(&last.2) {
            break;
        }
        last = run();
    }
    last
}

/// Each run is followed by its counterparts before the next run, all results refer to each other, and a later
/// comparison gives the same output.
#[test]
fn runs_take_turns_and_are_compared_in_pairs() {
    let texts = [("a.toml", "200us"), ("b.toml", "5ms"), ("c.toml", "200us")];
    let files = texts.map(|(name, delay)| (name, experiment(delay, "")));
    let words = [
        "run",
        "--interleave",
        "a.toml",
        "b.toml",
        "c.toml",
        "--label",
        "v1",
    ];
    let (folder, text, later) = interleaved(&files, &words);
    assert!(
        text.contains("b.results (v1) compared with a.results (v1)"),
        "{text}"
    );
    assert!(
        text.contains("WORSE") && text.contains("results in c.results"),
        "{text}"
    );

    let names = ["a.results", "b.results", "c.results"];
    let mut all: Vec<_> = names.iter().flat_map(|name| begun(&folder, name)).collect();
    all.sort();
    assert_eq!(all.len(), 3 * 2 * 4);
    let mut orders = Vec::new();
    for turn in all.chunks(3) {
        assert!(turn.iter().all(|run| run.1 == turn[0].1), "{turn:?}");
        let mut order: Vec<&str> = turn.iter().map(|run| run.2.as_str()).collect();
        orders.push(order.clone());
        order.sort_unstable();
        assert_eq!(order, names);
    }
    orders.dedup();
    assert!(orders.len() > 2, "the order changes: {orders:?}");

    let results = names.map(|name| summary(&folder, name));
    for (place, result) in results.iter().enumerate() {
        let with = result.interleaved.as_ref().expect("its place");
        assert_eq!(
            (with.place as usize, &with.results[..]),
            (place, &names.map(String::from)[..])
        );
        assert!(result.complete);
    }
    assert_eq!(later["paired"], true);
    let mean = |line: &&Value| line["metric"] == "mean";
    let lines = later["lines"].as_array().expect("lines").iter();
    for line in lines.filter(mean) {
        let comparison = &line["comparison"];
        assert_eq!(comparison["verdict"], "worse", "{line:#}");
        assert_eq!(comparison["effect"]["paired"], true);
        let ratio = comparison["effect"]["value"].as_f64().expect("a ratio");
        assert!(ratio > 2.0, "{ratio}");
    }
    let page = ["report", "a.results", "b.results"];
    succeed(brunt().args(page).current_dir(folder.join("")), 60);
    let page = fs::read_to_string(folder.join("b.results/comparison.html")).expect("a page");
    assert!(page.contains("a paired t-test"));
}

/// Experiments that can't be paired are rejected, with the reason, before anything is opened; `--check` also rejects
/// them.
#[test]
fn experiments_that_cannot_take_turns_are_refused() {
    let folder = folder(&[
        ("a.toml", experiment("1ms", "")),
        ("seed.toml", experiment("1ms", "seed = 7")),
        ("disk.toml", experiment("1ms", "").replace("disk", "ssd")),
        (
            "file.toml",
            experiment("1ms", "")
                .replace("null:64MiB?delay=const:1ms", "x.img?size=64MiB&create=yes")
                .replace("read = 1", "read = 0.5"),
        ),
    ]);
    let check = |files: &[&str], expected: &[&str]| {
        for more in [&["--check"][..], &[]] {
            let mut command = brunt();
            command.args(["run", "--interleave"]).args(files).args(more);
            let out = run_within(command.current_dir(folder.join("")), 60);
            let text = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{files:?} {more:?}: {text}");
            for part in expected {
                assert!(text.contains(part), "{part} is not in {text}");
            }
        }
    };
    check(
        &["a.toml", "seed.toml"],
        &["a.toml and seed.toml cannot take turns", "the second 7"],
    );
    check(
        &["a.toml", "disk.toml"],
        &["only a.toml has the point 'disk w queue_depth=1'"],
    );
    check(
        &["file.toml", "file.toml"],
        &["target 'disk'", "/x.img), and at least one of them"],
    );
    check(&["a.toml"], &["--interleave needs two or more experiments"]);
    let several = run_within(
        brunt()
            .args(["run", "a.toml", "a.toml"])
            .current_dir(folder.join("")),
        60,
    );
    let text = String::from_utf8_lossy(&several.stderr);
    assert!(
        several.status.code() == Some(2) && text.contains("add --interleave"),
        "{text}"
    );
    assert!(!folder.join("a.results").exists() && !folder.join("x.img").exists());

    let words = [
        "run",
        "--interleave",
        "a.toml",
        "a.toml",
        "--check",
        "--out",
        "both",
    ];
    let text = succeed(brunt().args(words).current_dir(folder.join("")), 60);
    for part in [
        "results would go to both/a.results",
        "results would go to both/a.2.results",
        "2 experiments take turns: 8 turns of 2 runs each",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// If one experiment can't begin, the others end, and its message is printed with its name.
#[test]
fn an_experiment_that_cannot_begin_ends_the_others() {
    let folder = folder(&[
        ("a.toml", experiment("1ms", "")),
        (
            "b.toml",
            experiment("1ms", "").replace("null:64MiB?delay=const:1ms", "missing.img"),
        ),
    ]);
    let mut command = brunt();
    command.args(["run", "--interleave", "a.toml", "b.toml"]);
    let out = run_within(command.current_dir(folder.join("")), 60);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(
        text.contains("b.results: ") && text.contains("missing.img"),
        "{text}"
    );
    let first = summary(&folder, "a.results");
    assert!(!first.complete && first.points.iter().all(|point| point.runs.is_empty()));
    assert!(!folder.join("b.results").exists());
}

/// A program that is killed on drop, so also when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ctrl-C keeps the finished runs of all experiments, compares them, and leaves no process behind.
#[test]
fn an_interruption_keeps_what_was_measured_of_all() {
    let long = experiment("1ms", "").replace("repetitions = 4", "repetitions = 1000");
    let folder = folder(&[("a.toml", long.clone()), ("b.toml", long)]);
    let mut command = brunt();
    command.args(["run", "--interleave", "a.toml", "b.toml"]);
    command
        .current_dir(folder.join(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut program = Killed(command.spawn().expect("the program runs"));
    let names = ["a.results", "b.results"];
    let runs = |name: &str| {
        let found = Summary::read(&folder.join(name));
        found.map_or(0, |of| {
            of.points
                .iter()
                .map(|point| point.runs.len())
                .sum::<usize>()
        })
    };
    let patience = 6000;
    let mut waits = 0..patience;
    while !names.iter().all(|name| runs(name) >= 2) {
        waits.next().expect("runs are made");
        std::thread::sleep(Duration::from_millis(100));
    }
    kill_process(Pid::from_child(&program.0), Signal::INT).expect("it runs");
    let stdout = program.0.stdout.take().expect("it is piped");
    let text = std::io::read_to_string(stdout).expect("text");
    let status = program.0.wait().expect("a child of ours");
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("b.results compared with a.results"), "{text}");
    let complete = names.map(|name| {
        let found = summary(&folder, name);
        assert_eq!(found.trouble.as_deref(), Some("interrupted"));
        assert!(folder.join(name).join("report.html").exists(), "{name}");
        let of_points = found.points.iter().flat_map(|point| &point.runs);
        of_points.filter(|run| run.is_complete()).count()
    });
    assert!(
        complete[0].abs_diff(complete[1]) <= 1 && complete[0] >= 2,
        "{complete:?}"
    );
}

/// The targets of a single result are compared in pairs, each with the first.
#[test]
fn targets_of_one_result_are_compared() {
    let text = experiment("200us", "") + "[targets.slow]\nurl = \"null:64MiB?delay=const:5ms\"\n";
    let folder = folder(&[("x.toml", text), ("one.toml", experiment("1ms", ""))]);
    for file in ["x.toml", "one.toml"] {
        succeed(brunt().args(["run", file]).current_dir(folder.join("")), 60);
    }
    let compare = |words: &[&str]| {
        let mut command = brunt();
        command.args(["--json", "compare"]).args(words);
        run_within(command.current_dir(folder.join("")), 60)
    };
    let compared = || -> Value {
        let out = compare(&["x.results"]);
        serde_json::from_slice(&out.stdout).expect("one object")
    };
    let mut found = compared();
    // A pause of the machine during a short run can hide the difference.
    for _ in 0..3 {
        if is_worse(&found) {
            break;
        }
        fs::remove_dir_all(folder.join("x.results")).expect("results");
        succeed(
            brunt().args(["run", "x.toml"]).current_dir(folder.join("")),
            60,
        );
        found = compared();
    }
    assert_eq!(
        (&found["first"], &found["second"]),
        (&"disk".into(), &"slow".into())
    );
    assert_eq!(found["lines"][1]["label"], "w queue_depth=1");
    assert_eq!(found["lines"][1]["comparison"]["verdict"], "worse");
    let out = compare(&["x.results", "--fail-if", "mean worse by 20%"]);
    assert_eq!(out.status.code(), Some(1));
    let out = compare(&["one.results"]);
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("one.results has only one target"), "{text}");
}

/// Percentiles that only one result's experiment chose, or that are only given on the command line, are computed from
/// the histograms.
#[test]
fn percentiles_need_not_be_chosen_before_the_run() {
    let folder = folder(&[
        ("a.toml", experiment("500us", "percentiles = [95]")),
        ("b.toml", experiment("1ms", "")),
    ]);
    for file in ["a.toml", "b.toml"] {
        succeed(brunt().args(["run", file]).current_dir(folder.join("")), 60);
    }
    let words = [
        "compare",
        "a.results",
        "b.results",
        "--percentiles",
        "75,99.9999",
    ];
    let out = run_within(brunt().args(words).current_dir(folder.join("")), 60);
    let (text, notes) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    for percentile in ["p75 us", "p95 us"] {
        assert!(text.contains(percentile), "{percentile} is not in {text}");
    }
    assert!(notes.contains("b.results has no p99.9999: "), "{notes}");
    fs::remove_dir_all(folder.join("b.results/histograms")).expect("a table");
    let out = run_within(brunt().args(words).current_dir(folder.join("")), 60);
    let (text, notes) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(
        !text.contains("p95 us") && notes.contains("b.results has no p95: "),
        "{text} {notes}"
    );
}
