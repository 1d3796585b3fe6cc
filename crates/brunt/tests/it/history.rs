//! `brunt history` over results with a known change: terminal, JSON, page and exit status.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{TempDir, brunt, run_within, succeed};
use serde_json::Value;

/// Just enough requests for a p99.9.
const EXPERIMENT: &str = "name = \"few\"\nrepetitions = 2\n[targets.t]\nurl = \"null:1MiB\"\n\
                          [workloads.w]\nstop = { requests = 1000 }\n";

/// Creates a result by running an experiment.
fn measure(folder: &TempDir, name: &str) {
    fs::write(folder.join("few.toml"), EXPERIMENT).expect("a file");
    let run = ["run", "few.toml", "--out", name];
    succeed(brunt().args(run).current_dir(folder.join("")), 60);
}

/// The result of an experiment, as a template for others.
fn template(folder: &TempDir) -> Value {
    measure(folder, "template");
    let text = fs::read_to_string(folder.join("template/summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

/// Writes a result whose requests took this long, measured at this hour. The result has no table of runs.
fn put(folder: &Path, template: &Value, us: f64, hour: u64) {
    let mut summary = template.clone();
    for run in summary["points"][0]["runs"].as_array_mut().expect("runs") {
        run["requests_per_second"] = (1e6 / us).into();
        for (key, factor) in [("mean_us", 1.0), ("p99_us", 2.0), ("p99_9_us", 3.0)] {
            run["response"][key] = (us * factor).into();
        }
    }
    fs::create_dir_all(folder).expect("a folder");
    let file = folder.join("summary.json");
    fs::write(&file, summary.to_string()).expect("a file");
    let file = fs::File::options().write(true).open(file).expect("a file");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(hour * 3600))
        .expect("a time");
}

/// The alphabetical order of the names is not the order of time: "r12" is the oldest. The last four results are
/// slower by a fifth.
fn nightly(folder: &TempDir, template: &Value) {
    for (hour, wobble) in [0.0, 0.9, 0.2, 0.5, 0.7, 0.1, 0.8, 0.4, 0.3, 0.6, 0.15, 0.85]
        .into_iter()
        .enumerate()
    {
        let us = if hour < 8 { 100.0 } else { 120.0 } + wobble;
        let name = format!("nightly/r{:02}", 12 - hour);
        put(&folder.join(&name), template, us, hour as u64);
    }
}

#[test]
fn a_change_is_shown_everywhere_and_fails_a_build() {
    let folder = TempDir::new("history");
    let template = template(&folder);
    nightly(&folder, &template);
    fs::create_dir(folder.join("nightly/broken")).expect("a folder");
    fs::write(folder.join("nightly/broken/summary.json"), "{").expect("a file");
    fs::create_dir(folder.join("nightly/other")).expect("a folder");
    let history = |args: &[&str]| {
        let mut command = brunt();
        command.args(args).current_dir(folder.join(""));
        run_within(&mut command, 60)
    };

    let out = history(&["history", "nightly"]);
    assert_eq!(out.status.code(), Some(0));
    let (text, notes) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(
        text.starts_with("12 results, oldest first: r12 to r01\n"),
        "{text}"
    );
    assert!(text.contains("  mean   121 µs"), "{text}");
    assert!(
        text.contains("|") && text.contains("since r04: WORSE, 99."),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        notes.contains("left out: ") && notes.contains("broken/summary.json"),
        "{notes}"
    );
    assert!(!notes.contains("other"), "{notes}");

    let out = history(&[
        "--json",
        "history",
        "nightly",
        "-o",
        "page.html",
        "--fail-on-change",
    ]);
    assert_eq!(out.status.code(), Some(1));
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(object["results"][0]["name"], "r12");
    assert_eq!(object["skipped"].as_array().expect("a list").len(), 1);
    let series = object["series"].as_array().expect("a list");
    let metrics: Vec<&Value> = series.iter().map(|one| &one["metric"]).collect();
    assert_eq!(metrics, ["iops", "mean", "p99", "p99.9"]);
    for one in series {
        let change = &one["changes"][0];
        assert_eq!(
            (&change["result"], &change["verdict"]),
            (&8.into(), &"worse".into())
        );
        assert!(change["p"].as_f64().expect("a number") <= 0.01);
    }
    assert_eq!(object["newly_worse"].as_array().expect("a list").len(), 4);
    let page = fs::read_to_string(folder.join("page.html")).expect("a page");
    for part in [
        "4 changes for the worse.",
        "9: r04",
        "broken/summary.json",
        "\"marks\":[{\"at\":8.5",
    ] {
        assert!(page.contains(part), "{part}");
    }

    // Changes that are too old, or smaller than the margin, don't fail a build.
    for rest in [["--newest", "3"], ["--margin", "30%"]] {
        let out = history(&[&["history", "nightly", "--fail-on-change"], &rest[..]].concat());
        assert_eq!(out.status.code(), Some(0), "{rest:?}");
    }
}

/// Results can be kept in command-line order; each counts once, and results with the same name are distinguished by
/// their paths.
#[test]
fn results_keep_the_given_order() {
    let folder = TempDir::new("history");
    let template = template(&folder);
    for (name, hour) in [("b/x", 1), ("a/x", 2), ("c", 3)] {
        put(&folder.join(name), &template, 100.0, hour);
    }
    let names = |args: &[&str]| -> Vec<String> {
        let mut command = brunt();
        command.args(["--json", "history"]).args(args);
        let text = succeed(command.current_dir(folder.join("")), 60);
        let object: Value = serde_json::from_str(&text).expect("one object");
        let results = object["results"].as_array().expect("a list");
        let name = |one: &Value| one["name"].as_str().expect("a name").to_string();
        results.iter().map(name).collect()
    };
    assert_eq!(names(&["c", "a", "b", "b/x"]), ["b/x", "a/x", "c"]);
    assert_eq!(
        names(&["c", "a/x", "b", "c", "--order", "given"]),
        ["c", "a/x", "b/x"]
    );
}

/// The table of runs records when a result was measured, regardless of what has happened to its files since.
#[test]
fn results_are_ordered_by_when_they_were_measured() {
    let folder = TempDir::new("history");
    for name in ["z", "a"] {
        measure(&folder, name);
    }
    let touched = fs::File::options()
        .write(true)
        .open(folder.join("z/summary.json"));
    let later = UNIX_EPOCH + Duration::from_secs(1 << 33);
    touched
        .expect("a file")
        .set_modified(later)
        .expect("a time");
    let out = run_within(
        brunt()
            .args(["history", "a", "z"])
            .current_dir(folder.join("")),
        60,
    );
    let (text, notes) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(
        text.starts_with("2 results, oldest first: z to a\n"),
        "{text}"
    );
    assert!(
        notes.contains("fewer than 10 results") && !notes.contains("ordered by"),
        "{notes}"
    );
}

#[test]
fn a_folder_without_results_is_a_mistake() {
    let folder = TempDir::new("history");
    fs::create_dir_all(folder.join("empty/deeper")).expect("a folder");
    fs::create_dir(folder.join("broken")).expect("a folder");
    fs::write(folder.join("broken/summary.json"), "[]").expect("a file");
    for (name, said) in [
        ("empty", "empty holds no results"),
        ("missing", "a folder that contains results folders"),
        ("broken", "none of the results can be read"),
    ] {
        let out = run_within(
            brunt().args(["history", name]).current_dir(folder.join("")),
            60,
        );
        let notes = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{notes}");
        assert!(notes.contains(said), "{notes}");
    }
}

/// Results are named after their labels, and ordered by label or by a list of labels.
#[test]
fn results_are_named_and_ordered_by_label() {
    let folder = TempDir::new("history");
    let template = template(&folder);
    let results = [
        ("d/one", "v1.10", 1),
        ("d/two", "v1.9", 2),
        ("d/three", "v1.9", 3),
        ("d/four", "", 4),
    ];
    for (name, label, hour) in results {
        let mut template = template.clone();
        if !label.is_empty() {
            template["label"] = label.into();
        }
        put(&folder.join(name), &template, 100.0, hour);
    }
    fs::write(folder.join("labels"), "v0\nv1.10\n\nv1.9\n").expect("a file");
    let check = |args: &[&str], expected: &[&str], note: &str| {
        let mut command = brunt();
        command.args(["--json", "history", "d"]).args(args);
        let out = run_within(command.current_dir(folder.join("")), 60);
        let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
        let results = object["results"].as_array().expect("a list");
        let names: Vec<&Value> = results.iter().map(|one| &one["name"]).collect();
        assert_eq!(names, expected);
        let notes = String::from_utf8_lossy(&out.stderr);
        assert!(notes.contains(note), "{notes}");
    };
    let by_label = ["v1.9 (two)", "v1.9 (three)", "v1.10"];
    check(&[], &["v1.10", "v1.9 (two)", "v1.9 (three)", "four"], "");
    let left_out = "left out: 1 result without a label";
    check(&["--order", "label"], &by_label, left_out);
    let left_out = "left out: 1 result whose label is not in the list";
    let listed = ["v1.10", "v1.9 (two)", "v1.9 (three)"];
    check(&["--labels", "labels"], &listed, left_out);
    fs::write(folder.join("labels"), "v2\n").expect("a file");
    let mut command = brunt();
    command.args(["history", "d", "--labels", "labels"]);
    let out = run_within(command.current_dir(folder.join("")), 60);
    assert_eq!(out.status.code(), Some(2));
}
