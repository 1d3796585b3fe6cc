//! `brunt measure` as a user runs it: its results are those of the experiment that it prints.

use serde_json::Value;

use crate::support::{TempDir, brunt, succeed};

/// The summary of a search, from a results folder.
fn summary(folder: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(folder.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

/// `measure` finds the same highest rate within a limit as the experiment file, and the table shows it.
#[test]
fn a_search_is_that_of_the_printed_experiment() {
    let folder = TempDir::new("measure-search");
    let measure = || {
        let mut command = brunt();
        command.current_dir(folder.join(".")).args([
            "measure",
            "memory:1MiB?delay=const:1ms,servers=4",
            "--search",
            "p99 below 20ms",
            "--tolerance",
            "0.3",
            "--time",
            "100ms",
            "--reps",
            "1",
        ]);
        command
    };
    let experiment = succeed(measure().arg("--print"), 20);
    std::fs::write(folder.join("printed.toml"), &experiment).expect("a file");
    let table = succeed(measure().args(["--out", "measured"]), 60);
    let mut run = brunt();
    run.current_dir(folder.join("."))
        .args(["run", "printed.toml", "--out", "run"]);
    succeed(&mut run, 60);
    let [measured, run] = ["measured", "run"].map(|name| summary(&folder.join(name)));
    assert_eq!(measured["experiment"], run["experiment"]);
    for found in [&measured, &run] {
        let point = &found["points"][0];
        let rate = point["requests_per_second"]["mean"].as_f64();
        assert!(rate.is_some_and(|rate| rate > 0.0), "{found}");
        assert_eq!(
            found["experiment"]["workloads"]["randread"]["arrival"],
            "search"
        );
    }
    assert!(
        table.contains("the highest rate within the limit"),
        "{table}"
    );
}
