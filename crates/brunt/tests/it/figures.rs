//! The tools that draw and tabulate the results in `docs/papers.md` accept the program's output at every magnitude.

use crate::support;
use std::path::Path;
use std::process::Command;

use crate::support::{TempDir, bench, busy, experiment, need, root, run_within, succeed};
use serde_json::{Value, json};

/// Draws the figure for a benchmark's JSON.
fn draw(folder: &TempDir, bench: &Value) -> String {
    let file = folder.join("bench.json");
    std::fs::write(&file, bench.to_string()).expect("a file");
    let figure = succeed(
        Command::new("python3")
            .arg(root().join("tools/bench-figure.py"))
            .arg(file),
        20,
    );
    assert!(
        figure.starts_with("<svg") && figure.trim_end().ends_with("</svg>"),
        "{figure}"
    );
    assert!(
        figure.contains("prefers-color-scheme:dark"),
        "it is read on dark pages too"
    );
    figure
}

/// Whatever the largest value, an axis has marks, and everything lies inside the picture.
#[test]
fn axes_have_marks_at_every_magnitude() {
    if need("python3", "python3").is_none() {
        return;
    }
    let folder = TempDir::new("figures-axes");
    for most in [1.0, 1.9, 2.1, 4.4, 7.9, 8.1, 9.99, 12.0, 4500.0] {
        let series = |how: &str, rates: [f64; 3]| json!({ "how": how, "run": 1, "seconds": [1, 2, 3], "requests_per_s": rates });
        let runs = [
            series("page-cache", [0.0, most, most / 3.0]),
            series("below-it", [most / 2.0; 3]),
        ];
        let figure = draw(
            &folder,
            &json!({ "unit": "requests/s over time", "runs": runs }),
        );
        assert_eq!(figure.matches("<polyline").count(), 2);
        let marks = figure.matches(r#"text-anchor="end""#).count();
        assert!((2..=6).contains(&marks), "{marks} marks up to {most}");
        for points in figure.split("points=\"").skip(1) {
            let (points, _) = points.split_once('"').expect("its end");
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').expect("a pair");
                let (x, y): (f64, f64) = (x.parse().expect("x"), y.parse().expect("y"));
                assert!(
                    (0.0..=760.0).contains(&x) && (40.0..=240.0).contains(&y),
                    "{point} up to {most}"
                );
            }
        }
    }
}

/// Messages over threads, and a capture over time with losses, in the benchmarks' output format.
#[test]
fn bench_results_are_drawn() {
    if need("python3", "python3").is_none() {
        return;
    }
    let folder = TempDir::new("figures-benches");
    let actors = succeed(
        bench().args([
            "--json",
            "actors",
            "--runs",
            "2",
            "--messages",
            "100000",
            "--threads",
            "1",
        ]),
        120,
    );
    let figure = draw(&folder, &serde_json::from_str(&actors).expect("JSON"));
    for name in [
        "Brunt, pinned",
        "ring, million messages/s",
        "all-to-all, million messages/s",
        "scheduler threads",
    ] {
        assert!(figure.contains(name), "{name}");
    }
    let capture = root().join("testdata/nfs3-small.pcap.zst");
    let loss = succeed(
        bench()
            .args(["--json", "capture", "--rounds", "1", "--loss=2,5"])
            .arg(capture),
        120,
    );
    let figure = draw(&folder, &serde_json::from_str(&loss).expect("JSON"));
    for name in ["Packets arriving, Gb/s", "Backlog", "2 % lost", "5 % lost"] {
        assert!(figure.contains(name), "{name}");
    }
}

/// The table of transports has the processor time of both sides, and omits the target's where it is unknown.
#[test]
fn transports_are_tabulated() {
    if need("python3", "python3").is_none() {
        return;
    }
    let folder = TempDir::new("figures-transports");
    let text = r#"
        name = "transports"
        repetitions = 2
        probes = { interval = "50ms" }
        [targets.iscsi]
        serve = "null:16MiB"
        [targets.local]
        url = "null:16MiB"
        [workloads.sequential-read]
        sequential = 1.0
        queue_depth = 8
        stop = { time = "2s" }
        [workloads.half-random]
        read = 0.5
        queue_depth = 8
        stop = { time = "2s" }
        [sweep]
        block_size = ["16k"]
    "#;
    succeed(&mut experiment(&folder, text), 120);
    let table = tabulate(&folder.join("results"));
    let row = |name: &str, workload: &str| {
        let start = format!("| {name} | {workload} | 16");
        let row = table.lines().find(|line| line.starts_with(&start));
        row.unwrap_or_else(|| panic!("{start} in {table}"))
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
    };
    for workload in ["sequential-read", "half-random"] {
        let (iscsi, local) = (row("iscsi", workload), row("local", workload));
        for (cells, target) in [(&iscsi, true), (&local, false)] {
            let above_zero = |cell: &str| {
                cell.split(' ')
                    .next()
                    .and_then(|mean| mean.replace(',', "").parse().ok())
                    > Some(0.0)
            };
            assert!(above_zero(cells[4]) && above_zero(cells[5]), "{cells:?}");
            assert_eq!(above_zero(cells[6]), target, "{cells:?}");
            assert!(
                cells[4].contains('±'),
                "two runs have an interval: {cells:?}"
            );
        }
    }
    // A folder without results is reported as such.
    let nothing = folder.join("nothing");
    std::fs::create_dir(&nothing).expect("a folder");
    let refused = run_within(
        Command::new(root().join("tools/transport-costs.py")).arg(nothing),
        20,
    );
    assert!(!refused.status.success());
}

fn tabulate(out: &Path) -> String {
    succeed(
        Command::new(root().join("tools/transport-costs.py")).arg(out),
        20,
    )
}

/// The guest's writes go through its page cache as well as past it, and each run yields its rates over time.
#[test]
fn writes_are_measured_through_the_page_cache_and_past_it() {
    let _busy = busy(); // An emulated guest keeps a core busy.
    if !support::guest::ready()
        || need("python3", "python3").is_none()
        || need("strip", "binutils").is_none()
    {
        return;
    }
    let folder = TempDir::new("figures-page-cache");
    let out = folder.join("out");
    let mut tool = Command::new(root().join("tools/over-page-cache.sh"));
    tool.arg(&out)
        .args(["1", "4", "1"])
        .env("BRUNT", env!("CARGO_BIN_EXE_brunt"))
        .env("BRUNT_GUEST_SECONDS", "1500");
    let table = succeed(&mut tool, 180);
    assert!(
        table.contains("page-cache") && table.contains("below-it"),
        "{table}"
    );
    let text = std::fs::read_to_string(out.join("over-time.json")).expect("rates");
    let series: Value = serde_json::from_str(&text).expect("JSON");
    let runs = series["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let rates = run["requests_per_s"].as_array().expect("rates");
        assert!(
            rates.len() >= 3 && rates.iter().any(|rate| rate.as_f64() > Some(0.0)),
            "{run}"
        );
    }
    // The disk's minimum service time of 6 ms applies: nothing below the cache is faster.
    let below = runs
        .iter()
        .find(|run| run["how"] == "below-it")
        .expect("its run");
    let most = below["requests_per_s"]
        .as_array()
        .expect("rates")
        .iter()
        .filter_map(Value::as_f64)
        .fold(0.0, f64::max);
    assert!((1.0..400.0).contains(&most), "{below}");
    draw(&folder, &series);
}
