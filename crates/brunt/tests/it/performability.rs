//! Expected figures over years of failures and repairs, from a real experiment, recomputed by hand from its phases.

use crate::support::{self, TempDir, brunt, run_within, succeed};
use serde_json::Value;

/// A target that is slow for a third of each run, modelled as a component that works for 9 hours out of 10.
const EXPERIMENT: &str = r#"
name = "x"
repetitions = 2
[targets.san]
serve = "memory:8MiB"
[workloads.load]
interval = "50ms"
stop = { time = "LONG" }
[[fault]]
name = "slow disk"
target = "san"
storage = "slow:5ms"
at = "SHORT"
for = "SHORT"
[performability]
threshold = "mean below 1ms"
[performability.components.disk]
faults = ["slow disk"]
units = 2
mttf = "9h"
mttr = "1h"
"#;

fn number(of: &Value, key: &str) -> f64 {
    of[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {of}"))
}

fn close(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs(),
        "{found} is not {expected}"
    );
}

/// The summary of the experiment in this folder, with runs as long as needed: on a busy machine, the fault may come too
/// late for a run, or a phase may have no whole interval.
fn measured(folder: &TempDir) -> Value {
    let mut instead = String::new();
    for slower in [1, 2, 4, 8] {
        let text = EXPERIMENT
            .replace("LONG", &format!("{}ms", 1200 * slower))
            .replace("SHORT", &format!("{}ms", 400 * slower));
        let _ = std::fs::remove_dir_all(folder.join("results"));
        let output = run_within(&mut support::experiment(folder, &text), 60);
        instead = String::from_utf8_lossy(&output.stderr).into_owned();
        if !support::was_in_time(output.status.success(), &instead) {
            continue;
        }
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let runs = summary["points"][0]["runs"].as_array().expect("runs");
        let has = |run: &Value, kind: &str| {
            let phases = run["phases"].as_array().into_iter().flatten();
            let mut rates = phases.filter(|phase| phase["kind"] == kind);
            rates.any(|phase| phase["requests_per_second"].is_number())
        };
        if runs
            .iter()
            .all(|run| has(run, "before") && has(run, "during"))
        {
            return summary;
        }
        instead = summary.to_string();
    }
    panic!("{instead}");
}

/// The phase of a run of this kind.
fn phase<'a>(run: &'a Value, kind: &str) -> &'a Value {
    let phases = run["phases"].as_array().expect("phases");
    phases
        .iter()
        .find(|phase| phase["kind"] == kind)
        .unwrap_or_else(|| panic!("no phase {kind} in {run}"))
}

#[test]
fn expected_figures_are_those_of_the_phases() {
    let folder = TempDir::new("performability");
    let summary = measured(&folder);
    let point = &summary["points"][0];
    let found = &point["performability"];
    let states = found["states"].as_array().expect("states");
    // Two units, 0.9 each: 0.81, 0.18 and 0.01.
    let shares: Vec<f64> = states
        .iter()
        .map(|state| number(state, "probability"))
        .collect();
    for (found, expected) in shares.iter().zip([0.81, 0.18, 0.01]) {
        close(*found, expected);
    }
    close(number(found, "not_measured"), 0.01);
    assert_eq!(states[2]["measured"], Value::Null);
    let runs = point["runs"].as_array().expect("runs");
    let by_run = found["by_run"].as_array().expect("a figure for each run");
    assert_eq!((runs.len(), by_run.len()), (2, 2));
    let mut expected = Vec::new();
    for (run, found) in runs.iter().zip(by_run) {
        let rate = |kind| number(phase(run, kind), "requests_per_second");
        expected.push((0.81 * rate("before") + 0.18 * rate("during")) / 0.99);
        close(
            found.as_f64().expect("a number"),
            expected[expected.len() - 1],
        );
    }
    let rate = &found["requests_per_second"];
    close(number(rate, "mean"), (expected[0] + expected[1]) / 2.0);
    // t(0.975, 1) = 12.7062; the deviation of two values is their distance / sqrt(2).
    let half = 12.706_204_736_174_698 * (expected[0] - expected[1]).abs() / 2.0;
    let error = number(rate, "high") - number(rate, "mean") - half;
    assert!(error.abs() <= 1e-6 * half.max(1.0), "{rate}");
    let least = &found["requests_per_second_least"];
    close(number(least, "mean"), number(rate, "mean") * 0.99);
    // Requests of 5 ms miss the threshold, unless the two runs differ too much for a decision.
    let slow = states[1]["service"].as_str().expect("a verdict");
    assert!(["missed", "undecided"].contains(&slow), "{found}");
    let available = &found["available"];
    assert!(number(available, "at_least") <= 0.81 + 1e-9, "{available}");
    assert!(number(available, "at_most") >= 0.01 - 1e-9, "{available}");

    let results = folder.join("results");
    let page = std::fs::read_to_string(results.join("report.html")).expect("a page");
    for part in [
        "Over years of failures and repairs",
        "more failures of disk",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let told = succeed(brunt().arg("compare").arg(&results).arg(&results), 60);
    assert!(
        told.contains("san load, over years") && told.contains("expected-iops"),
        "{told}"
    );
}
