//! The trace that `brunt capture --out` writes, as its readers see it: through `brunt analyze`, through the real
//! DuckDB, after a SIGKILL and on a full disk.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{TempDir, brunt, eventually, root, run_within, skip, succeed};
use serde_json::Value;

fn capture() -> PathBuf {
    root().join("testdata/nfs3-small.pcap.zst")
}

fn record(folder: &Path, more: &[&str]) -> Value {
    record_of(&capture(), folder, more)
}

fn record_of(capture: &Path, folder: &Path, more: &[&str]) -> Value {
    let out = succeed(
        brunt()
            .args(["capture", "--json", "-r"])
            .arg(capture)
            .arg("--out")
            .arg(folder)
            .args(more),
        60,
    );
    serde_json::from_str(&out).expect("a report")
}

fn analyze(what: &Path) -> Value {
    serde_json::from_str(&succeed(brunt().args(["analyze", "--json"]).arg(what), 60))
        .expect("a report")
}

/// The report on a trace equals the report on its packets, and `--pcap` keeps the packets unchanged.
#[test]
fn the_report_on_a_trace_equals_the_one_on_its_packets() {
    let folder = TempDir::new("trace-same");
    let (trace, packets) = (folder.join("trace"), folder.join("packets.pcap"));
    let mut recorded = record(&trace, &["--pcap", packets.to_str().expect("a plain path")]);
    let written = recorded
        .as_object_mut()
        .expect("an object")
        .remove("trace")
        .expect("what was written");
    assert!(
        written["rows"].as_u64() > Some(1000) && written["rows_lost"] == 0,
        "{written}"
    );
    let kept = recorded
        .as_object_mut()
        .expect("an object")
        .remove("pcap")
        .expect("what was written");
    assert_eq!(
        (&kept["packets"], &kept["packets_lost"]),
        (&recorded["ledger"]["packets"], &Value::from(0))
    );
    let from_file = analyze(&capture());
    assert_eq!(recorded, from_file);
    assert_eq!(analyze(&trace), from_file);
    assert_eq!(analyze(&packets), from_file);
    // An existing trace is not overwritten, and an empty folder is not a trace.
    let again = run_within(
        brunt()
            .args(["capture", "-r"])
            .arg(capture())
            .arg("--out")
            .arg(&trace),
        60,
    );
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    let empty = run_within(brunt().arg("analyze").arg(folder.join("trace/packets")), 60);
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
    assert!(
        String::from_utf8_lossy(&empty.stderr).contains("contains no trace"),
        "{empty:?}"
    );
}

/// Several workers write one trace and one packet file, rotated by size, with the same contents.
#[test]
fn several_workers_write_one_trace() {
    let folder = TempDir::new("trace-workers");
    let (trace, packets) = (folder.join("trace"), folder.join("packets.pcap"));
    let packets = packets.to_str().expect("a plain path");
    let report = record(
        &trace,
        &["--workers", "3", "--pcap", packets, "--pcap-size", "64KiB"],
    );
    let names = [
        "packets",
        "calls",
        "calls_answered",
        "data_bytes",
        "blocks_summed",
        "holes",
    ];
    let (alone, stored) = (analyze(&capture()), analyze(&trace));
    for name in names {
        assert_eq!(report["ledger"][name], alone["ledger"][name], "{name}");
        assert_eq!(stored["ledger"][name], alone["ledger"][name], "{name}");
    }
    for part in ["by_operation", "clients", "intervals", "duplicates"] {
        assert_eq!(stored[part], alone[part], "{part}");
    }
    let files = report["pcap"]["files"].as_u64().expect("a count");
    assert!(files > 2, "{}", report["pcap"]);
    let mut sum = 0;
    for number in 0..files {
        let file = folder.join(&format!("packets-{number:06}.pcap"));
        assert!(std::fs::metadata(&file).expect("a file").len() <= 64 << 10);
        sum += analyze(&file)["ledger"]["packets"]
            .as_u64()
            .expect("a count");
    }
    assert_eq!(sum, alone["ledger"]["packets"].as_u64().expect("a count"));
    // Options that need another option are rejected without it: they would have no effect, or delete everything.
    for options in [
        &["--on-full", "wait"][..],
        &["--pcap", "x.pcap", "--pcap-keep", "1MiB"],
    ] {
        let run = run_within(
            brunt().args(["capture", "-r"]).arg(capture()).args(options),
            60,
        );
        assert_eq!(run.status.code(), Some(2), "{run:?}");
    }
}

/// The ```sql blocks on the page: the views, then the queries.
fn queries() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/trace.md")).expect("the page");
    let blocks = page.split("```sql\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap_or_default().to_string())
        .collect()
}

/// The answer to each query on the page; `None` without DuckDB.
fn ask(folder: &Path) -> Option<Vec<Vec<Value>>> {
    let script = root().join("tools/duckdb.sh");
    if !Command::new(&script)
        .arg("--ready")
        .status()
        .is_ok_and(|status| status.success())
    {
        skip("duckdb (tools/duckdb.sh --prepare)");
        return None;
    }
    let mut duckdb = Command::new(script)
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the script starts");
    let input = serde_json::to_vec(&queries()).expect("texts");
    duckdb
        .stdin
        .take()
        .expect("piped")
        .write_all(&input)
        .expect("it reads");
    let output = duckdb.wait_with_output().expect("it ends");
    assert!(output.status.success(), "duckdb refused a statement");
    serde_json::from_slice(&output.stdout).ok()
}

/// Each query on the page runs as written, and agrees with the report.
#[test]
fn queries_agree_with_the_report() {
    let folder = TempDir::new("trace-queries");
    let trace = folder.join("trace");
    let report = record(&trace, &[]);
    let Some(answers) = ask(&trace) else { return };
    let [
        _,
        operations,
        clients,
        files,
        blocks,
        lost,
        seconds,
        ledger,
        known,
        callers,
        told,
    ] = &answers[..]
    else {
        panic!("the page has {} statements", answers.len())
    };
    let mut calls = 0;
    for row in report["by_operation"].as_array().expect("rows") {
        let found = operations
            .iter()
            .find(|found| found["operation"] == row["name"])
            .expect("an operation");
        assert_eq!(
            (&found["calls"], &found["errors"]),
            (&row["calls"], &row["errors"])
        );
        calls += row["calls"].as_u64().expect("a count");
    }
    let sum = |rows: &[Value], column: &str| {
        rows.iter()
            .filter_map(|row| row[column].as_u64())
            .sum::<u64>()
    };
    assert_eq!(sum(clients, "calls"), calls);
    assert_eq!(
        clients.len() as u64,
        report["clients"]["count"].as_u64().expect("a count")
    );
    let hottest = |key: &str| report["files"]["top"].as_array().expect("files")[0][key].clone();
    assert_eq!(files[0]["calls"], hottest("operations"));
    let name = files[0]["name"].as_str().expect("a name");
    assert!(
        hottest("name").as_str().expect("a path").ends_with(name) || name == "?",
        "{name}"
    );
    assert_eq!(blocks[0]["blocks"], report["ledger"]["blocks_summed"]);
    assert_eq!(
        lost[0]["missing_bytes"],
        report["ledger"]["data_bytes_missing"]
    );
    assert_eq!(
        sum(seconds, "bytes"),
        report["ledger"]["wire_bytes"].as_u64().expect("bytes")
    );
    assert_eq!(
        sum(seconds, "packets"),
        report["ledger"]["packets"].as_u64().expect("packets")
    );
    for column in [
        "calls",
        "calls_answered",
        "replies",
        "replies_unmatched",
        "holes",
    ] {
        assert_eq!(ledger[0][column], report["ledger"][column], "{column}");
    }
    // Each file appears once, with what was known about it at the requested time.
    let mut of: Vec<_> = known
        .iter()
        .map(|row| row["file"].as_i64().expect("a file"))
        .collect();
    assert!(
        known
            .iter()
            .all(|row| row["since_ns"].as_i64() <= row["asked_ns"].as_i64()),
        "{known:?}"
    );
    let rows = of.len();
    of.sort_unstable();
    of.dedup();
    assert!(
        rows > 10 && of.len() == rows,
        "{rows} rows of {} files",
        of.len()
    );
    // All calls in this capture have the credentials of one libnfs client, whose user is root.
    assert_eq!(callers.len(), 1);
    assert_eq!(
        (&callers[0]["machine_name"], callers[0]["uid"].as_u64()),
        (&"libnfs".into(), Some(0))
    );
    assert_eq!((callers[0]["calls"].as_u64(), told.len()), (Some(calls), 0));
}

/// The page's query for NFSv4 attributes finds the created files, with their owner.
#[test]
fn the_attribute_query_finds_created_files_with_their_owner() {
    let folder = TempDir::new("trace-compounds");
    let trace = folder.join("trace");
    record_of(
        &capture().with_file_name("nfs4-small.pcap.zst"),
        &trace,
        &[],
    );
    let Some(answers) = ask(&trace) else { return };
    let (callers, told) = (&answers[answers.len() - 2], &answers[answers.len() - 1]);
    assert_eq!(told.len(), 10);
    // The largest files have 60,894 bytes, and the capture writes one in each minor version.
    assert_eq!(told[0]["size_bytes"], 60_894, "{told:?}");
    assert_eq!(told[0]["owner"], "root@localdomain");
    let machines: Vec<_> = callers
        .iter()
        .filter_map(|caller| caller["machine_name"].as_str())
        .collect();
    assert!(
        machines.contains(&"(none)") && machines.contains(&"libnfs"),
        "{machines:?}"
    );
}

/// After a SIGKILL in the middle of a capture, every part is readable by Brunt and by DuckDB.
#[test]
fn every_part_is_readable_after_a_sigkill() {
    let folder = TempDir::new("trace-kill");
    let trace = folder.join("trace");
    let mut running = brunt()
        .args(["capture", "-r", "-", "--part-age", "10ms", "--out"])
        .arg(&trace)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let plain = folder.join("plain.pcap");
    succeed(
        brunt()
            .args(["capture", "-r"])
            .arg(capture())
            .arg("--pcap")
            .arg(&plain),
        60,
    );
    let packets = std::fs::read(plain).expect("packets");
    let mut input = running.stdin.take().expect("piped");
    input.write_all(&packets).expect("it reads");
    let operations = |report: &Value| report["operations"].as_u64().unwrap_or(0);
    eventually("rows on disk", 60, || {
        // Send the same packets again, as retransmissions, to keep the capture busy.
        input.write_all(&packets[24..]).expect("it reads");
        trace.join("trace").exists() && operations(&analyze(&trace)) > 100
    });
    running.kill().expect("it runs");
    running.wait().expect("it is gone");
    drop(input);
    let report = analyze(&trace);
    assert!(operations(&report) > 100, "{report}");
    if let Some(answers) = ask(&trace) {
        let calls: u64 = answers[1]
            .iter()
            .filter_map(|row| row["calls"].as_u64())
            .sum();
        assert_eq!(calls, operations(&report));
    }
}

/// Runs a capture whose trace is on a tmpfs of 400 KiB that is partly filled; `None` if there are no namespaces. With
/// `relief`, the ballast is removed when the capture waits for space.
fn on_a_full_disk(folder: &TempDir, on_full: &str, relief: bool) -> Option<std::process::Output> {
    let script = r#"
        mount -t tmpfs -o size=400k none "$1" || exit 77
        head -c 292000 /dev/zero > "$1/ballast"
        : >"$4.said"
        if [ "$5" = goes ]; then
            (for i in $(seq 6000); do grep -q 'waiting for space' "$4.said" && break; sleep .05; done
            rm "$1/ballast") &
        fi
        "$2" capture --json -r "$3" --out "$1/out" --on-full "$6" 2>"$4.said"; status=$?
        cat "$4.said" >&2
        cp -r "$1/out" "$4" || exit 78
        exit $status"#;
    let disk = folder.join("disk");
    std::fs::create_dir_all(&disk).expect("a folder");
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    unshare
        .arg(disk)
        .arg(env!("CARGO_BIN_EXE_brunt"))
        .arg(capture())
        .arg(folder.join("kept"));
    let run = run_within(
        unshare.args([if relief { "goes" } else { "stays" }, on_full]),
        60,
    );
    let said = String::from_utf8_lossy(&run.stderr);
    if run.status.code() == Some(77) || said.contains("unshare failed") {
        skip("user and mount namespaces with a tmpfs");
        return None;
    }
    Some(run)
}

/// On a full disk, a capture stops with a clear message, keeps what it has and counts the rest.
#[test]
fn a_full_disk_stops_the_capture() {
    let folder = TempDir::new("trace-full");
    let Some(run) = on_a_full_disk(&folder, "stop", false) else {
        return;
    };
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no space for") && said.contains("everything written so far is kept"),
        "{said}"
    );
    assert!(said.contains("rows are missing"), "{said}");
    let report: Value = serde_json::from_slice(&run.stdout).expect("a report all the same");
    assert!(
        report["ledger"]["trace_rows_lost"].as_u64() > Some(0),
        "{said}"
    );
    analyze(&folder.join("kept"));
}

/// With `--on-full wait`, it waits for space, says so, continues, and loses nothing.
#[test]
fn a_capture_can_wait_for_room_on_a_full_disk() {
    let folder = TempDir::new("trace-wait");
    let Some(run) = on_a_full_disk(&folder, "wait", true) else {
        return;
    };
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{said}");
    assert!(
        said.contains("waiting for space") && said.contains("space is available again"),
        "{said}"
    );
    assert_eq!(analyze(&folder.join("kept")), analyze(&capture()));
}

/// A trace whose only part with operations is damaged doesn't look like a trace of an idle server.
#[test]
fn a_trace_without_a_readable_operation_is_a_failure() {
    let folder = TempDir::new("trace-damaged");
    let trace = folder.join("trace");
    record(&trace, &[]);
    let table = trace.join("operations");
    let parts = std::fs::read_dir(&table).expect("a table").flatten();
    let parts = parts.filter(|entry| entry.file_name().to_string_lossy().ends_with(".parquet"));
    for part in parts {
        let length = part.metadata().expect("a file").len();
        let file = std::fs::OpenOptions::new().write(true).open(part.path());
        file.and_then(|file| file.set_len(length / 2))
            .expect("a shorter file");
    }
    let output = run_within(brunt().arg("analyze").arg(&trace), 60);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("no operations could be read") && text.contains(".parquet"),
        "{text}"
    );
}
