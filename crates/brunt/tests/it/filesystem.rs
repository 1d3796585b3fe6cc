//! Load on a mounted directory, as a user runs it: phases appear in the results like any other run, and nothing is
//! left behind, even after Ctrl-C.

use crate::support;
use std::process::{Command, Stdio};

use crate::support::{TempDir, eventually, run_within};
use rustix::process::{Pid, Signal, kill_process};

fn experiment(folder: &TempDir, more: &str) -> Command {
    let place = folder.join("place");
    std::fs::create_dir_all(&place).expect("a folder");
    let text = format!(
        "name = \"x\"\nrepetitions = 2\n[filesystems.here]\ndirectory = \"{}\"\n{more}\n",
        place.display()
    );
    support::experiment(folder, &text)
}

fn left(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.join("place"))
        .expect("the folder")
        .count()
}

/// Every phase is a point with figures, confidence intervals, and the share of requests served by the page cache.
#[test]
fn phases_are_points() {
    let folder = TempDir::new("fs");
    let output = run_within(
        &mut experiment(&folder, "file_size = \"2MiB\"\nfiles = 100\nseeks = 200"),
        60,
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let points = summary["points"].as_array().expect("points");
    assert_eq!(points.len(), 12);
    for point in points {
        assert_eq!(point["runs"].as_array().map(Vec::len), Some(2), "{point}");
        assert!(
            point["requests_per_second"]["mean"].as_f64() > Some(0.0),
            "{point}"
        );
        assert!(point["response"]["p99_us"].as_f64() > Some(0.0), "{point}");
        assert!(
            point["runs"][0]["page_cache"]["flush_s"].is_number(),
            "{point}"
        );
        let notes = point["notes"].to_string();
        assert!(notes.contains("of this machine's memory"), "{notes}");
        let reads = matches!(
            point["workload"].as_str(),
            Some("read-blocks" | "read-characters" | "seeks")
        );
        assert_eq!(
            notes.contains("of the data read came from it"),
            reads,
            "{point}"
        );
    }
    assert_eq!(left(&folder), 0);
}

/// The size of the data file is an axis; all phases with the same size share a file.
#[test]
fn file_sizes_are_an_axis() {
    let folder = TempDir::new("fs-sizes");
    let more = "phases = [\"write-blocks\", \"read-blocks\"]\nblock = \"4KiB\"\n[sweep]\nfile_size = [\"64KiB\", \"1MiB\"]";
    let output = run_within(&mut experiment(&folder, more), 60);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let points = summary["points"].as_array().expect("points");
    let requests: Vec<(&str, &str, u64)> = points
        .iter()
        .map(|point| {
            let run = &point["runs"][0];
            let of = |key: &str| {
                run[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{key}: {point}"))
            };
            let requests = of("requests_per_second") * of("measured_s");
            (
                point["workload"].as_str().expect("a name"),
                point["axes"]["file_size"].as_str().expect("a size"),
                requests.round() as u64,
            )
        })
        .collect();
    let expected = [
        ("write-blocks", "64KiB", 16),
        ("read-blocks", "64KiB", 16),
        ("write-blocks", "1MiB", 256),
        ("read-blocks", "1MiB", 256),
    ];
    assert_eq!(requests, expected);
    assert_eq!(left(&folder), 0);
}

/// Ctrl-C in the middle keeps the measurements and removes the created files; even SIGKILL doesn't leave the data
/// file behind.
#[test]
fn an_interrupt_keeps_measurements_and_removes_created_files() {
    for signal in [Signal::INT, Signal::KILL] {
        let folder = TempDir::new("fs");
        // Creating the files takes long enough to be interrupted.
        let more = "phases = [\"create-random\", \"write-blocks\"]\nfile_size = \"64MiB\"\nfiles = 200000\nfsync = \"none\"";
        let mut run = experiment(&folder, more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        eventually("it works", 20, || left(&folder) > 0);
        std::thread::sleep(std::time::Duration::from_millis(100));
        kill_process(Pid::from_child(&run), signal).expect("it is ours");
        let status = run.wait().expect("it ends");
        assert!(!status.success());
        if signal == Signal::INT {
            assert_eq!(left(&folder), 0);
            let summary =
                std::fs::read_to_string(folder.join("results/summary.json")).expect("a summary");
            assert!(
                summary.contains("\"trouble\": \"interrupted\""),
                "{summary}"
            );
        }
        for entry in std::fs::read_dir(folder.join("place"))
            .expect("the folder")
            .flatten()
        {
            let names = std::fs::read_dir(entry.path())
                .expect("its folder")
                .flatten();
            assert!(
                names
                    .map(|name| name.file_name())
                    .all(|name| name != "data")
            );
        }
    }
}
