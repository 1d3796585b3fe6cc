//! The profile for sizing tools is the same from all commands (`brunt trace fit`, `brunt analyze` and `brunt sql`),
//! for the whole trace, by server, and by window. For one capture, it is also computed from tshark's fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::checks::{array, reported_sizer};
use super::{engine, rows, sql, trace};
use crate::support::{TempDir, brunt, need, root, run_within, succeed};

/// Captures with short reads, failed requests, several clients and parsers, WRITE SAME, and SCSI reads from logical
/// units whose block size is unknown.
const CAPTURES: [(&str, &[&str]); 9] = [
    ("nfs3-small.pcap.zst", &[]),
    ("nfs3-stale.pcap.zst", &[]),
    ("nfs4-small.pcap.zst", &[]),
    ("nfs4-small.pcap.zst", &["--workers", "3"]),
    ("iscsi/brunt-aborts.pcapng.zst", &[]),
    ("iscsi/brunt-connections.pcapng.zst", &[]),
    ("iscsi/lio-brunt.pcapng.zst", &[]),
    ("iscsi/lio-libiscsi.pcapng.zst", &[]),
    ("iscsi/tgt-qemu.pcapng.zst", &[]),
];

fn is_near(found: &Value, expected: Option<f64>, allowed: f64) -> bool {
    match (found.as_f64(), expected) {
        (Some(found), Some(expected)) => {
            (found - expected).abs() <= allowed * expected.abs().max(1e-3)
        }
        (found, expected) => found == expected,
    }
}

#[test]
fn all_commands_have_one_profile_for_sizing() {
    let engine = engine();
    for (capture, more) in CAPTURES {
        let folder = TempDir::new("sql-sizer");
        let (trace, report) = trace(&folder, capture, more);
        let out = succeed(brunt().args(["--json", "trace", "fit"]).arg(&trace), 60);
        let mut model: Value = serde_json::from_str(&out).expect("one object");
        let sizer = model["sizer"].take();
        for (name, expected) in reported_sizer(&report) {
            let found = &sizer[name];
            let is_same = is_near(found, expected, 1e-12);
            assert!(is_same, "{capture} {name}: {found}, {expected:?}");
        }
        assert_eq!(report["sizer"], sizer, "{capture}");
        assert_eq!(report["servers"], model["sizer_by_server"], "{capture}");
        assert!(!array(&report, "servers").is_empty(), "{capture}");
        let (profile, name) = (&report["profile"], "random_read_working_set_bytes");
        assert_eq!(sizer[name], profile[name], "{capture}");
        let Some(engine) = &engine else { continue };
        let row = &rows(sql(engine, &trace, &["sizer"]))[0];
        for (name, found) in sizer.as_object().expect("figures") {
            let allowed = match name.as_str() {
                // Some versions of DuckDB read times in microseconds.
                "mean_per_s" => 2e-3,
                // Brunt only estimates the working set.
                "random_read_working_set_bytes" => {
                    let error = profile["working_set_error_percent"].as_f64();
                    4.0 * error.expect("an error") / 100.0
                }
                _ => 1e-12,
            };
            let expected = &row[name];
            let is_same = is_near(found, expected.as_f64(), allowed);
            assert!(is_same, "{capture} {name}: {found}, {expected}");
        }
    }
}

/// Rows for windows, each with the window's start.
type WindowRows = BTreeMap<(u64, String), Value>;

fn by_window(rows: &[Value], from: &str) -> WindowRows {
    let key = |row: &Value| {
        let server = row["server"].as_str().expect("an address");
        (row[from].as_u64().expect("a time"), server.to_string())
    };
    rows.iter().map(|row| (key(row), row.clone())).collect()
}

/// The rows for windows in the reports of `brunt analyze --window`.
fn reported_windows(reports: &Path) -> WindowRows {
    let mut all = WindowRows::new();
    for file in std::fs::read_dir(reports).expect("a folder") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|is| is != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a report");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let from = report["window"]["from_ns"].as_u64().expect("a time");
        for server in array(&report, "servers") {
            let name = server["server"].as_str().expect("an address");
            all.insert((from, name.to_string()), server.clone());
        }
    }
    all
}

fn assert_alike(found: &WindowRows, expected: &WindowRows, what: &str) {
    let keys = |rows: &WindowRows| rows.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(expected), "{what}");
    for (key, row) in expected {
        for (name, expected) in row.as_object().expect("figures") {
            let found = &found[key][name];
            let allowed = match name.as_str() {
                "mean_per_s" => 2e-3,
                _ => 1e-12,
            };
            let is_same = match expected.as_f64() {
                Some(_) => is_near(found, expected.as_f64(), allowed),
                None => found == expected,
            };
            assert!(is_same, "{what} {key:?} {name}: {found}, {expected}");
        }
    }
}

/// For each window of a second, each server has the same profile in the reports of `brunt analyze`, from the stored
/// trace, and in the tables of windows queried with SQL.
#[test]
fn all_commands_have_one_profile_of_each_server_and_window() {
    let engine = engine();
    for (capture, more) in [
        ("nfs3-stale.pcap.zst", &[][..]),
        ("nfs4-small.pcap.zst", &[]),
        ("nfs4-small.pcap.zst", &["--workers", "3"]),
        ("iscsi/lio-libiscsi.pcapng.zst", &[]),
    ] {
        let folder = TempDir::new("sql-sizer-windows");
        let reports = folder.join("reports");
        let mut analyze = brunt();
        analyze.args(["analyze", "--window", "1s", "--reports"]);
        let file = root().join("testdata").join(capture);
        // The exit status for a capture that is cut in two doesn't matter here.
        run_within(analyze.arg(&reports).arg(file).args(more), 60);
        let reported = reported_windows(&reports);
        assert!(!reported.is_empty(), "{capture}");
        let (trace, _) = trace(&folder, capture, more);
        let mut fit = brunt();
        fit.args(["--json", "trace", "fit", "--window", "1s"]);
        let out = succeed(fit.arg(&trace), 60);
        let model: Value = serde_json::from_str(&out).expect("one object");
        let fitted = by_window(array(&model, "sizer_by_window"), "window_from_ns");
        assert_alike(&fitted, &reported, capture);
        if capture.starts_with("nfs3-stale") {
            check_with_tshark(&reported);
        }
        let Some(engine) = &engine else { continue };
        let answer = rows(sql(engine, &reports, &["sizer_by_window"]));
        assert_alike(&by_window(&answer, "window_from_ns"), &reported, capture);
    }
}

/// A READ that succeeded, from tshark's fields.
struct SeenRead {
    client: String,
    file: String,
    offset: u64,
    asked_ns: u64,
    moved: u64,
}

/// A capture with one RPC message per packet and only READs: its profile computed from the fields that tshark prints.
fn check_with_tshark(reported: &WindowRows) {
    let Some(program) = need("tshark", "tshark") else {
        return;
    };
    let folder = TempDir::new("sql-sizer-tshark");
    let plain = folder.join("stale.pcap");
    let packed = root().join("testdata/nfs3-stale.pcap.zst");
    let packed = std::fs::File::open(packed).expect("a capture");
    let mut reader = brunt_unpack::unpacked(Box::new(packed)).expect("zstd");
    let mut file = std::fs::File::create(&plain).expect("a file");
    std::io::copy(&mut reader, &mut file).expect("unpacked");
    let mut command = Command::new(program);
    command
        .arg("-r")
        .arg(&plain)
        .args(["-Y", "rpc", "-T", "fields"]);
    for field in [
        "frame.time_epoch",
        "ip.src",
        "ip.dst",
        "rpc.msgtyp",
        "rpc.xid",
        "nfs.fh.hash",
        "nfs.offset3",
        "nfs.count3",
        "nfs.status3",
    ] {
        command.args(["-e", field]);
    }
    let mut calls = BTreeMap::new();
    let mut windows: BTreeMap<(u64, String), (u64, Vec<SeenRead>)> = BTreeMap::new();
    for line in succeed(&mut command, 120).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (seconds, nanos) = fields[0].split_once('.').expect("a time");
        let second: u64 = seconds.parse().expect("seconds");
        let time_ns = second * 1_000_000_000 + nanos.parse::<u64>().expect("nanoseconds");
        if fields[3] == "0" {
            let key = (fields[1].to_string(), fields[4].to_string());
            let offset: u64 = fields[6].parse().expect("an offset");
            calls.insert(key, (time_ns, fields[5].to_string(), offset));
            continue;
        }
        let client = fields[2].to_string();
        let (asked_ns, file, offset) = calls
            .remove(&(client.clone(), fields[4].to_string()))
            .expect("a call");
        let window = windows
            .entry((second * 1_000_000_000, fields[1].to_string()))
            .or_default();
        window.0 += 1;
        if fields[8] == "0" {
            let moved = fields[7].parse().expect("a count");
            window.1.push(SeenRead {
                client,
                file,
                offset,
                asked_ns,
                moved,
            });
        }
    }
    assert_eq!(
        windows.keys().collect::<Vec<_>>(),
        reported.keys().collect::<Vec<_>>()
    );
    for (key, (operations, reads)) in &windows {
        check_window(&reported[key], *operations, reads);
    }
}

fn check_window(row: &Value, operations: u64, reads: &[SeenRead]) {
    let (mut ends, mut blocks, mut seconds) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut sequential = 0;
    for read in reads {
        let end = ends.insert((&read.client, &read.file), read.offset + read.moved);
        *seconds
            .entry(read.asked_ns / 1_000_000_000)
            .or_insert(0_u64) += 1;
        if end == Some(read.offset) {
            sequential += 1;
        } else {
            let last = read.offset + read.moved - 1;
            blocks.extend((read.offset / 4096..=last / 4096).map(|block| (&read.file, block)));
        }
    }
    let times = reads.iter().map(|read| read.asked_ns);
    let span_ns = times
        .clone()
        .max()
        .zip(times.min())
        .map_or(0, |(last, first)| last - first);
    let count = reads.len() as f64;
    let moved: u64 = reads.iter().map(|read| read.moved).sum();
    let known = |value: f64, is_known: bool| is_known.then_some(value);
    let has_any = !reads.is_empty();
    for (name, expected, allowed) in [
        ("operations", Some(operations as f64), 0.0),
        ("metadata", Some(0.0), 0.0),
        (
            "mean_per_s",
            known(count * 1e9 / span_ns as f64, span_ns > 0),
            1e-9,
        ),
        (
            "peak_per_s",
            Some(seconds.into_values().max().unwrap_or(0) as f64),
            0.0,
        ),
        (
            "random_read",
            known(1.0 - f64::from(sequential) / count, has_any),
            1e-9,
        ),
        (
            "sequential_read",
            known(f64::from(sequential) / count, has_any),
            1e-9,
        ),
        ("read_bytes", known(moved as f64 / count, has_any), 1e-9),
        ("write_bytes", None, 0.0),
        (
            "random_read_working_set_bytes",
            Some(4096.0 * blocks.len() as f64),
            4.0 * 0.008,
        ),
    ] {
        assert!(
            is_near(&row[name], expected, allowed),
            "{name}: {row}, {expected:?}"
        );
    }
}
