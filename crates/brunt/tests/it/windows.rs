//! Windows of captures as scripts use them: reports, tables, quotas, restarts and findings, on a capture of two weeks
//! in compressed time. Counts per day are compared with tshark's, and tables are read with DuckDB.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::live::namespace;
use crate::sql::engine;
use crate::support::{self, TempDir, brunt, need, root, run_within, succeed};
use brunt_capture::trace::tables::HEALTH;
use brunt_lake::read_table;
use serde_json::Value;

const DAYS: usize = 14;
const OPERATIONS: u64 = 7000;

/// Two weeks of small operations: 500 a day, on different files each day.
fn weeks(folder: &TempDir) -> PathBuf {
    let path = folder.join("weeks.pcap");
    let mut make = support::bench();
    make.args(["weeks", "--days", &DAYS.to_string(), "--files", "1000"]);
    make.args(["--operations", &OPERATIONS.to_string(), "--make"]);
    succeed(make.arg(&path), 60);
    path
}

fn capture(file: &Path, more: &[&str]) -> (Value, String) {
    let mut command = brunt();
    command
        .args(["--json", "capture", "-r"])
        .arg(file)
        .args(more);
    let output = run_within(&mut command, 60);
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{notes}");
    (
        serde_json::from_slice(&output.stdout).expect("a report"),
        notes,
    )
}

/// The reports in a folder by name.
fn reports(folder: &Path) -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    let reports = paths.filter(|path| path.extension().is_some_and(|is| is == "json"));
    reports
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a report");
            assert!(path.with_extension("html").exists(), "{}", path.display());
            let name = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, serde_json::from_str(&text).expect("JSON"))
        })
        .collect()
}

fn operations(report: &Value) -> u64 {
    report["operations"].as_u64().expect("a number")
}

/// Replies per day, according to tshark; a packet may contain several.
fn tshark(file: &Path) -> Option<BTreeMap<u64, u64>> {
    let program = need("tshark", "tshark")?;
    let mut command = Command::new(program);
    command
        .arg("-r")
        .arg(file)
        .args(["-Y", "rpc.msgtyp == 1", "-T", "fields"]);
    command.args(["-e", "frame.time_epoch", "-e", "rpc.msgtyp"]);
    let mut days = BTreeMap::new();
    for line in succeed(&mut command, 120).lines() {
        let (time, types) = line.split_once('\t').expect("two fields");
        let seconds: f64 = time.parse().expect("a time");
        let replies = types.split(',').filter(|kind| *kind == "1").count() as u64;
        *days.entry(seconds as u64 / 86_400).or_default() += replies;
    }
    Some(days)
}

/// Each day has a report, a page and rows in tables, whose operations are those that tshark counts; the number of
/// parsers makes no difference; and the days add up to the whole.
#[test]
fn each_day_of_two_weeks_has_a_report_that_tshark_confirms() {
    let folder = TempDir::new("windows");
    let file = weeks(&folder);
    let mut of_one = None;
    for workers in ["1", "3"] {
        let path = folder.join(&format!("reports-{workers}"));
        let name = path.to_str().expect("a name");
        let (whole, notes) = capture(
            &file,
            &["--window", "1d", "--reports", name, "--workers", workers],
        );
        let days = reports(&path);
        assert_eq!(days.len(), DAYS, "{notes}");
        assert_eq!(operations(&whole), OPERATIONS);
        assert_eq!(whole["windows"]["reported"], DAYS);
        assert_eq!(days.values().map(operations).sum::<u64>(), OPERATIONS);
        assert!(days.values().all(|day| day["valid"] == true));
        let by_day: Vec<_> = days
            .values()
            .map(|day| {
                (
                    operations(day),
                    day["files"]["count"].clone(),
                    day["by_operation"].clone(),
                )
            })
            .collect();
        assert_eq!(
            *of_one.get_or_insert(by_day.clone()),
            by_day,
            "{workers} workers"
        );
        if let Some(true_days) = tshark(&file).filter(|_| workers == "1") {
            let from = |day: &Value| {
                day["window"]["from_ns"].as_u64().expect("a time") / 86_400_000_000_000
            };
            let found: BTreeMap<u64, u64> = days
                .values()
                .map(|day| (from(day), operations(day)))
                .collect();
            assert_eq!(found, true_days);
        }
    }
    let Some(engine) = engine() else { return };
    let path = folder.join("reports-1");
    let ask = |question: &str| -> Vec<Value> {
        let mut command = brunt();
        command.args(["--json", "sql"]).arg(&path).arg(question);
        command.env("BRUNT_DUCKDB", engine.join("duckdb"));
        let answer: Value = serde_json::from_str(&succeed(&mut command, 120)).expect("an object");
        answer["rows"].as_array().expect("rows").clone()
    };
    let sum = |rows: &[Value], column: &str| -> u64 {
        rows.iter()
            .map(|row| row[column].as_u64().expect("a number"))
            .sum()
    };
    let days = ask("days");
    assert_eq!((days.len(), sum(&days, "operations")), (DAYS, OPERATIONS));
    assert!(
        days.iter()
            .all(|day| day["p50_ns"].as_u64() <= day["p99_ns"].as_u64())
    );
    assert_eq!(sum(&ask("whole"), "calls"), OPERATIONS);
    assert_eq!(sum(&ask("over_windows"), "operations"), OPERATIONS);
    assert!(!ask("hot_by_day").is_empty());
    ask("findings_by_window");
}

/// Where the first packet at or after a given time begins in a nanosecond pcap file.
fn place(bytes: &[u8], from_s: u32) -> usize {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let mut at = 24;
    while at < bytes.len() && word(at) < from_s {
        at += 16 + word(at + 8) as usize;
    }
    at
}

/// A capture that is restarted with the same folders continues reports and trace: counters add up, and the gap is
/// reported.
#[test]
fn a_restart_continues_reports_and_trace_and_counts_the_gap() {
    let folder = TempDir::new("windows-restart");
    let file = weeks(&folder);
    let bytes = std::fs::read(&file).expect("the capture");
    let start = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes")) / 86_400 * 86_400;
    // Days 6 and 7 are not captured.
    let (first_end, second_start) = (
        place(&bytes, start + 5 * 86_400),
        place(&bytes, start + 7 * 86_400),
    );
    let part = |name: &str, packets: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, [&bytes[..24], packets].concat()).expect("a file");
        path
    };
    let parts = [
        part("first.pcap", &bytes[24..first_end]),
        part("second.pcap", &bytes[second_start..]),
    ];
    let (out, to) = (folder.join("trace"), folder.join("reports"));
    let (out, to) = (out.to_str().expect("a name"), to.to_str().expect("a name"));
    let options = [
        "--window",
        "1d",
        "--reports",
        to,
        "--out",
        out,
        "--continue",
    ];
    let seen: Vec<u64> = parts
        .iter()
        .map(|part| operations(&capture(part, &options).0))
        .collect();
    let days = reports(Path::new(to));
    assert_eq!(days.len(), DAYS - 2);
    let gap = |day: &Value| day["window"]["gap_before_ns"].as_u64();
    let gaps: Vec<u64> = days.values().filter_map(gap).collect();
    let two_days = 2 * 86_400_000_000_000;
    assert!(
        matches!(gaps[..], [gap] if gap > two_days && gap < two_days / 2 * 3),
        "{gaps:?}"
    );
    let analyzed = run_within(brunt().args(["--json", "analyze", out]), 60);
    let analyzed: Value = serde_json::from_slice(&analyzed.stdout).expect("a report");
    assert_eq!(operations(&analyzed), seen[0] + seen[1]);
    let ledger = &analyzed["ledger"];
    assert_eq!(ledger["calls"], seen[0] + seen[1]);
    assert_eq!(ledger["restarts"], 1);
    assert!(
        ledger["restart_gap_ns"].as_u64() > Some(two_days),
        "{ledger}"
    );
    assert_eq!(analyzed["valid"], true);
    // Without --continue, a trace is not changed.
    let again = run_within(
        brunt()
            .args(["capture", "-r"])
            .arg(&parts[0])
            .args(["--out", out]),
        60,
    );
    assert_eq!(again.status.code(), Some(2), "{again:?}");
}

/// Every finding in every window is passed to the command as an object; a command that is too slow misses findings,
/// which are counted.
#[test]
fn findings_are_passed_to_a_command() {
    let folder = TempDir::new("windows-hook");
    let file = root().join("testdata/nfs3-stale.pcap.zst");
    let found = folder.join("found");
    let command = format!("cat >>'{}'", found.display());
    let (whole, notes) = capture(&file, &["--window", "1s", "--on-finding", &command]);
    let text = std::fs::read_to_string(&found).unwrap_or_default();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert!(!lines.is_empty(), "{notes}");
    let hook = &whole["hook"];
    let (runs, skipped) = (
        hook["runs"].as_u64(),
        hook["skipped"].as_u64().expect("a number"),
    );
    assert_eq!(runs, Some(lines.len() as u64), "{hook}");
    assert_eq!(
        notes.matches("finding at").count() as u64,
        lines.len() as u64 + skipped,
        "{notes}"
    );
    for line in &lines {
        assert!(
            line["kind"].is_string() && line["text"].is_string(),
            "{line}"
        );
        assert!(
            line["window_ns"].as_u64() <= line["time_ns"].as_u64(),
            "{line}"
        );
    }
}

/// A live capture whose hours last a second: windows end even without packets, and findings and the capture's own
/// health are in the metrics, on the page and in the trace.
#[test]
fn a_live_capture_shows_windows_findings_and_its_own_health() {
    let folder = TempDir::new("windows-live");
    let file = weeks(&folder);
    let script = format!(
        r#"
        cd {}
        "$BRUNT" --json capture -i v1 --plain --faster 3600 --window 1h --reports reports --out trace --workers 2 \
            --metrics 127.0.0.1:0 --serve 127.0.0.1:0 --on-finding 'cat >>found' >report 2>notes & capture=$!
        for i in $(seq 2400); do grep -q ^'brunt: capturing' notes && break; sleep .05; done
        "$BENCH" capture {} --replay v0 >/dev/null
        metrics=$(sed -n 's/^brunt: metrics at //p' notes) page=$(sed -n 's/^brunt: live page at //p' notes)
        for i in $(seq 1200); do
            [ $(ls reports/*.json 2>/dev/null | wc -l) -ge 3 ] && curl -sf $metrics >metrics &&
                grep -q '^brunt_capture_findings_total{{' metrics && break
            sleep .1
        done
        curl -sf $page >page; curl -sf ${{page}}state.json >state
        kill -INT $capture; wait $capture || {{ cat notes >&2; exit 1; }}
        "#,
        folder.join("").display(),
        file.display()
    );
    if namespace(&script).is_none() {
        return;
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let (metrics, page, notes) = (read("metrics"), read("page"), read("notes"));
    for name in [
        "brunt_capture_cpu_seconds_total{stage=\"parsers\"}",
        "brunt_capture_memory_bytes",
        "brunt_capture_ring_bytes",
        "brunt_capture_compression_seconds_total",
    ] {
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("{name}: {metrics}"));
        assert!(
            value.parse::<f64>().is_ok_and(|value| value >= 0.0),
            "{name} {value}"
        );
    }
    for text in [
        "The capture itself",
        "CPU, parsers",
        "Findings",
        "http-equiv=\"refresh\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let state: Value = serde_json::from_str(&read("state")).expect("an object");
    assert!(
        state["health"]["memory_bytes"].as_u64() > Some(0),
        "{state}"
    );
    let found: Value = read("found")
        .lines()
        .next()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .expect("a finding");
    assert!(
        notes.contains(found["text"].as_str().expect("a text")),
        "{notes}"
    );
    let whole: Value = serde_json::from_str(&read("report")).expect("a report");
    let windows = reports(&folder.join("reports"));
    assert!(windows.len() >= 3, "{notes}");
    assert_eq!(
        windows.values().map(operations).sum::<u64>(),
        operations(&whole)
    );
    assert_eq!(operations(&whole), OPERATIONS);
    let mut rows = 0;
    read_table(&folder.join("trace"), &HEALTH, |batch| {
        rows += batch
            .ints("ring_bytes")
            .iter()
            .filter(|bytes| **bytes > 0)
            .count();
    })
    .expect("the table");
    assert!(rows > 0);
}
