//! `brunt sql` in the real DuckDB, as a program and as a module: each analysis answers what `brunt analyze` answers of
//! the same trace, and what cannot be answered is refused with advice.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use brunt_capture::trace::questions::QUESTIONS;
use brunt_capture::trace::tables;
use brunt_core::sketch::spread;
use brunt_lake::{ColumnKind, Table, TableWriter, WriterOptions};
use serde_json::Value;
use support::{TempDir, brunt, root, run_within, skip, succeed};

/// Where DuckDB is; `None` where it is not prepared.
fn engine() -> Option<PathBuf> {
    let script = root().join("tools/duckdb.sh");
    if !Command::new(&script).arg("--ready").status().is_ok_and(|status| status.success()) {
        skip("duckdb (tools/duckdb.sh --prepare)");
        return None;
    }
    let found = Command::new(script).arg("--where").output().expect("the script starts");
    Some(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}

/// `brunt --json sql`, with DuckDB's module: no program is on the PATH.
fn sql(engine: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = brunt();
    command.args(["--json", "sql"]).arg(folder).args(arguments);
    command.env("PATH", folder).env("BRUNT_PYTHON", engine.join("python")).env_remove("BRUNT_DUCKDB");
    command
}

/// The same with its program.
fn sql_program(engine: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = sql(engine, folder, arguments);
    command.env("BRUNT_DUCKDB", engine.join("duckdb"));
    command
}

/// Spark Connect servers that `tools/sql-engines.sh` started, each with the Python that has its client.
fn servers() -> Vec<(String, String)> {
    let named = std::env::var("BRUNT_SQL_SERVERS").unwrap_or_default();
    let servers = named.split_whitespace().map(|server| {
        let (address, python) = server.split_once('=').expect("ADDRESS=PYTHON");
        (address.to_string(), python.to_string())
    });
    servers.collect()
}

/// `brunt --json sql` at one of them.
fn sql_at(server: &(String, String), folder: &Path, arguments: &[&str]) -> Command {
    let mut command = brunt();
    command
        .args(["--json", "sql"])
        .arg(folder)
        .args(arguments)
        .args(["--engine", "spark", "--at", &server.0]);
    command.env("BRUNT_PYTHON", &server.1);
    command
}

fn rows(mut command: Command) -> Vec<Value> {
    let out = succeed(&mut command, 120);
    let mut answer: Value = serde_json::from_str(&out).expect("one object");
    match answer["rows"].take() {
        Value::Array(rows) => rows,
        other => panic!("no rows: {other}"),
    }
}

fn trace(folder: &TempDir, capture: &str, more: &[&str]) -> (PathBuf, Value) {
    let trace = folder.join(&capture.replace('/', "-"));
    let mut record = brunt();
    record.args(["capture", "--json", "-r"]).arg(root().join("testdata").join(capture));
    // What a capture that is cut in two exits with is not the matter here.
    run_within(record.arg("--out").arg(&trace).args(more), 60);
    let out = run_within(brunt().args(["analyze", "--json"]).arg(&trace), 60);
    (trace, serde_json::from_slice(&out.stdout).expect("a report"))
}

fn array<'v>(value: &'v Value, what: &str) -> &'v [Value] {
    value[what].as_array().unwrap_or_else(|| panic!("{what}: {value}"))
}

/// The columns of `names` are the same in both; a name may be a path, and be called otherwise in the second.
fn assert_same(row: &Value, reported: &Value, names: &[(&str, &str)]) {
    for (column, path) in names {
        let expected = reported.pointer(path).unwrap_or_else(|| panic!("{path}: {reported}"));
        assert_eq!(&row[*column], expected, "{column} of {row}, {reported}");
    }
}

const LATENCY: [(&str, &str); 6] = [
    ("mean_ns", "/latency/mean_ns"),
    ("p50_ns", "/latency/p50_ns"),
    ("p90_ns", "/latency/p90_ns"),
    ("p99_ns", "/latency/p99_ns"),
    ("p999_ns", "/latency/p999_ns"),
    ("max_ns", "/latency/max_ns"),
];

fn check_mix(rows: &[Value], report: &Value) {
    let reported = array(report, "by_operation");
    assert_eq!(rows.len(), reported.len());
    for expected in reported {
        let row = rows.iter().find(|row| row["operation"] == expected["name"]).expect("the operation");
        let counts = ["calls", "replies", "errors", "bytes"].map(|name| (name, format!("/{name}")));
        let counts = counts.iter().map(|(name, path)| (*name, path.as_str()));
        let latency = if expected["replies"] == 0 { &[][..] } else { &LATENCY };
        assert_same(row, expected, &counts.chain(latency.iter().copied()).collect::<Vec<_>>());
    }
}

fn check_clients(rows: &[Value], report: &Value) {
    assert_eq!(report["clients"]["count"], rows.len());
    for expected in array(&report["clients"], "top") {
        let row = rows.iter().find(|row| row["client"] == expected["name"]).expect("the client");
        let replied = expected.pointer("/latency/max_ns").is_some_and(|max| *max != 0);
        let latency = if replied { &LATENCY[..] } else { &[] };
        let sums = [("operations", "/operations"), ("bytes", "/bytes"), ("time_ns", "/time_ns")];
        assert_same(row, expected, &[&sums, latency].concat());
    }
    let mut misaligned: Vec<_> = rows.iter().filter(|row| row["misaligned"] != 0).collect();
    misaligned.sort_by_key(|row| std::cmp::Reverse(row["misaligned"].as_u64()));
    let reported = array(report, "misaligned");
    assert_eq!(reported.len(), misaligned.len().min(25));
    for (row, expected) in misaligned.iter().zip(reported) {
        assert_same(row, expected, &[("misaligned", "/misaligned")]);
    }
}

/// The loads of a ranking, whatever its entries are called.
fn loads(rows: &[Value]) -> Vec<[u64; 3]> {
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    let mut loads: Vec<_> =
        rows.iter().map(|row| ["operations", "bytes", "time_ns"].map(|name| number(row, name))).collect();
    loads.sort_unstable();
    loads
}

fn check_ranking(which: &str, rows: &[Value], report: &Value) {
    let top = array(&report[which], "top");
    assert_eq!(loads(rows), loads(top), "{which}");
    if which != "files" {
        return;
    }
    // The first by operations are in the same order; a name is the end of the path.
    for (row, expected) in rows.iter().zip(top).take(5) {
        assert_eq!(row["operations"], expected["operations"]);
        if let (Some(name), Some(path)) = (row["name"].as_str(), expected["name"].as_str()) {
            assert!(path.ends_with(name.trim_start_matches('/')), "{name}, {path}");
        }
    }
}

fn check_concentration(rows: &[Value], report: &Value) {
    for what in ["clients", "files", "pairs"] {
        let Some(row) = rows.iter().find(|row| row["what"] == what) else {
            assert_eq!(report[what]["count"], 0, "{what}");
            continue;
        };
        let names = ["top25_operations_share", "top25_bytes_share"].map(|name| (name, format!("/{name}")));
        let mut names: Vec<_> = names.iter().map(|(name, path)| (*name, path.as_str())).collect();
        names.push(("entries", "/count"));
        assert_same(row, &report[what], &names);
    }
}

fn check_rates(rows: &[Value], report: &Value) {
    let reported = array(report, "intervals");
    assert_eq!(rows.len(), reported.len());
    let start = report["start_ns"].as_i64().expect("a time");
    for (row, expected) in rows.iter().zip(reported) {
        let names = ["operations", "wire_bytes", "read_bytes", "write_bytes", "errors"];
        names.iter().for_each(|name| assert_eq!(row[*name], expected[*name], "{name} of {row}, {expected}"));
        let (from, until) =
            (row["from_ns"].as_i64().expect("a time"), row["until_ns"].as_i64().expect("a time"));
        assert_eq!((from - start) as f64 / 1e9, expected["from_s"], "{row}");
        assert_eq!((until - from) as f64 / 1e9, expected["width_s"], "{row}");
    }
}

fn check_profile(rows: &[Value], report: &Value) {
    let (row, profile) = (&rows[0], &report["profile"]);
    let mut names = vec![
        ("operations".to_string(), "/operations".to_string()),
        ("metadata_operations".into(), "/profile/metadata_operations".into()),
    ];
    for way in ["read", "write"] {
        for name in ["operations", "bytes", "size_p50_bytes", "size_p95_bytes"] {
            names.push((format!("{way}_{name}"), format!("/profile/{way}/{name}")));
        }
        let (sequential, all) =
            (row[format!("{way}_sequential")].as_f64(), row[format!("{way}_operations")].as_f64());
        let share = sequential.expect("a count") / all.expect("a count").max(1.0);
        assert_eq!(share, profile[way]["sequential_share"].as_f64().expect("a share"), "{row}");
    }
    let names: Vec<_> = names.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
    assert_same(row, report, &names);
    assert_eq!(row["outstanding_max"], profile["outstanding_max"]);
    // The report works with seconds, so its last digits differ.
    let (mean, expected) = (row["outstanding_mean"].as_f64(), profile["outstanding_mean"].as_f64());
    assert!(
        (mean.unwrap_or(0.0) / expected.expect("a mean") - 1.0).abs() < 1e-9 || expected == Some(0.0),
        "{row}"
    );
}

/// The report estimates with a standard error of less than 1 %.
fn assert_close(exact: &Value, estimated: &Value, what: &str) {
    let (exact, estimated) = (exact.as_f64().expect("a number"), estimated.as_f64().expect("a number"));
    assert!((exact - estimated).abs() <= 0.03 * exact.max(estimated), "{what}: {exact}, {estimated}");
}

fn check_working_set(rows: &[Value], report: &Value) {
    for name in ["working_set_bytes", "random_read_working_set_bytes"] {
        assert_close(&rows[0][name], &report["profile"][name], name);
    }
}

fn check_duplicates(rows: &[Value], report: &Value) {
    let duplicates = &report["duplicates"];
    for name in ["blocks_read", "blocks_written", "zero_share"] {
        assert_eq!(rows[0][name], duplicates[name], "{name}");
    }
    let share = |of: &Value| of["duplicate_share"].as_f64().expect("a share");
    assert!((share(&rows[0]) - share(duplicates)).abs() < 0.03, "{} {duplicates}", rows[0]);
}

fn check_sizes(rows: &[Value], report: &Value) {
    for way in ["read", "write"] {
        let (mut transfers, mut bytes) = (0, 0);
        for row in rows.iter().filter(|row| row["direction"] == way) {
            transfers += row["transfers"].as_u64().expect("a count");
            bytes += row["bytes"].as_u64().expect("bytes");
        }
        assert_eq!(report["profile"][way]["operations"], transfers);
        assert_eq!(report["profile"][way]["bytes"], bytes);
    }
}

fn check_latency_over_time(rows: &[Value], report: &Value) {
    for expected in array(report, "by_operation") {
        let of = rows.iter().filter(|row| row["procedure"] == expected["name"]);
        let replies: u64 = of.clone().filter_map(|row| row["replies"].as_u64()).sum();
        assert_eq!(expected["replies"], replies, "{expected}");
        let max = expected["latency"]["max_ns"].as_f64().expect("a time");
        of.for_each(|row| {
            assert!(row["p999_ns"].as_f64().expect("a time") <= 1.0625 * max + 1024.0, "{row}")
        });
    }
}

fn check_errors(rows: &[Value], report: &Value) {
    for expected in array(report, "by_operation") {
        let of = rows.iter().filter(|row| row["operation"] == expected["name"]);
        assert_eq!(
            expected["errors"],
            of.filter_map(|row| row["errors"].as_u64()).sum::<u64>(),
            "{expected}"
        );
    }
    for storm in array(report, "findings").iter().filter(|finding| finding["kind"] == "error-storm") {
        let text = storm["text"].as_str().expect("a text");
        let is_told = |row: &Value| {
            let named =
                format!("{} {}s that failed", row["errors"], row["operation"].as_str().unwrap_or_default());
            let first = row["first_client"].as_str().unwrap_or_default();
            text.contains(&named)
                && text.contains(&format!("{first} alone had {}", row["first_client_errors"]))
        };
        assert!(rows.iter().any(is_told), "{text}");
    }
}

fn check_findings(rows: &[Value], report: &Value) {
    let reported = array(report, "findings");
    let kinds = |of: &[Value]| of.iter().map(|finding| finding["kind"].to_string()).collect::<Vec<_>>();
    let sorted = |mut kinds: Vec<String>| {
        kinds.sort();
        kinds
    };
    assert_eq!(sorted(kinds(rows)), sorted(kinds(reported)), "{rows:?} {reported:?}");
    // The figures stand in the sentences, where the sentences have them.
    for row in rows {
        let figures = match row["kind"].as_str().expect("a kind") {
            "capture-loss" | "capture-incomplete" | "not-understood" => {
                format!("{} of {}", row["part"], row["whole"])
            }
            "commits" => format!(
                "{} {}s follow {} ",
                row["part"],
                row["what"].as_str().unwrap_or_default(),
                row["whole"]
            ),
            "misaligned" => format!("of its {} READs and WRITEs", row["whole"]),
            "error-storm" => format!("issued {} ", row["part"]),
            _ => continue,
        };
        let told = |finding: &Value| finding["text"].as_str().is_some_and(|text| text.contains(&figures));
        assert!(reported.iter().any(told), "{figures}: {reported:?}");
    }
}

fn check_not_understood(rows: &[Value], report: &Value) {
    let reported = array(report, "not_understood");
    assert_eq!(rows.len(), reported.len());
    for expected in reported {
        let name = expected["name"].as_str().expect("a name");
        let is_it = |row: &&Value| name.starts_with(row["name"].as_str().expect("a name"));
        let row = rows.iter().find(is_it).expect("the protocol");
        assert_same(row, expected, &[("packets", "/packets"), ("bytes", "/bytes")]);
    }
}

fn check_ledger(rows: &[Value], report: &Value) {
    let ledger = report["ledger"].as_object().expect("counters");
    ledger.iter().for_each(|(name, count)| assert_eq!(&rows[0][name], count, "{name}"));
    assert!(ledger.len() > 40);
}

fn check(name: &str, rows: &[Value], report: &Value) {
    match name {
        "mix" => check_mix(rows, report),
        "rates" => check_rates(rows, report),
        "profile" => check_profile(rows, report),
        "sizes" => check_sizes(rows, report),
        "working_set" => check_working_set(rows, report),
        "duplicates" => check_duplicates(rows, report),
        "latency_over_time" => check_latency_over_time(rows, report),
        "files" | "directories" | "pairs" => check_ranking(name, rows, report),
        "clients" => check_clients(rows, report),
        "concentration" => check_concentration(rows, report),
        "errors" => check_errors(rows, report),
        "findings" => check_findings(rows, report),
        "not_understood" => check_not_understood(rows, report),
        "ledger" => check_ledger(rows, report),
        name => panic!("{name} is held against nothing"),
    }
}

/// Every analysis, of NFS of both versions, of iSCSI, and of a trace of several parsers. Other engines, where there are
/// some, answer the same as DuckDB, byte for byte.
#[test]
fn analyses_agree_with_the_report() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-analyses");
    // Servers take seconds for what DuckDB does in milliseconds: two traces show them all that there is.
    let (all, none) = (servers(), Vec::new());
    for (capture, more, servers) in [
        ("nfs3-small.pcap.zst", &[][..], &none),
        ("nfs4-small.pcap.zst", &["--workers", "3"], &all),
        ("iscsi/tgt-kernel.pcapng.zst", &[], &all),
        ("iscsi/lio-libiscsi.pcapng.zst", &[], &none),
    ] {
        let (trace, report) = trace(&folder, capture, more);
        for question in QUESTIONS {
            println!("{capture} {}", question.name);
            let answer = rows(sql(&engine, &trace, &[question.name]));
            check(question.name, &answer, &report);
            let bytes = serde_json::to_string(&answer).expect("JSON");
            for server in servers {
                let answer = rows(sql_at(server, &trace, &[question.name]));
                let same = serde_json::to_string(&answer).expect("JSON") == bytes;
                assert!(same, "{} of {capture} at {server:?}: {answer:?}, {bytes}", question.name);
                println!("{capture} {} is the same at {}", question.name, server.0);
            }
        }
    }
}

/// Some value of a column.
#[derive(Clone)]
enum Cell {
    Int(i64),
    Text(String),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Int(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.into())
    }
}

/// Writes a table whose rows have these columns; others are null, zero, empty or true.
fn write(folder: &Path, table: &'static Table, rows: &[Vec<(&str, Cell)>]) {
    let mut writer = TableWriter::create(folder, table, WriterOptions::default()).expect("a table");
    for values in rows {
        let row = table.columns.iter().fold(writer.rows().row(), |row, column| {
            let value = values.iter().find(|(name, _)| *name == column.name).map(|(_, value)| value.clone());
            match (column.kind, value) {
                (ColumnKind::Int | ColumnKind::Time, Some(Cell::Int(value))) => row.int(value),
                (ColumnKind::Bool, Some(Cell::Int(value))) => row.bool(value != 0),
                (ColumnKind::Text, Some(Cell::Text(value))) => row.text(&value),
                (kind, Some(_)) => panic!("{} is {kind:?}", column.name),
                (_, None) if column.nullable => row.null(),
                (ColumnKind::Int | ColumnKind::Time, None) => row.int(0),
                (ColumnKind::Bool, None) => row.bool(true),
                (ColumnKind::Text, None) => row.text(""),
                (ColumnKind::Float, None) => row.float(0.0),
            }
        });
        row.end();
    }
    writer.finish().expect("a part");
}

/// A trace in which everything is to be found: storms, slow tails, flushes, duplicates, loss.
/// Long because each kind of row is a list of its columns.
fn troubled_trace(folder: &Path) {
    const START_NS: i64 = 1_795_000_000_123_456_789;
    write(folder, &tables::NOTES, &[vec![("version", tables::VERSION.into()), ("program", "test".into())]]);
    let flow = |flow: i64, client: &str| {
        vec![
            ("flow", flow.into()),
            ("protocol", 6.into()),
            ("source", client.into()),
            ("destination", "10.0.0.1".into()),
        ]
    };
    write(folder, &tables::FLOWS, &[flow(1, "10.0.0.2"), flow(2, "10.0.0.3"), flow(3, "2001:db8::7")]);
    let mut operations = Vec::new();
    // Kind, how many, direction, bytes; reads begin anywhere, writes one behind the other.
    for (name, count, direction, bytes) in [
        ("GETATTR", 3000i64, None, 0),
        ("READ", 2500, Some(0), 4096),
        ("WRITE", 400, Some(1), 1000),
        ("COMMIT", 250, None, 0),
        ("LOOKUP", 300, None, 0),
    ] {
        for number in 0..count {
            let id = operations.len() as i64;
            let slow = if number % 40 == 0 { 50_000_000 } else { 100_000 + 37 * (number % 991) };
            let file = if number % 3 == 0 { number % 20 } else { number % 700 };
            let mut row: Vec<(&str, Cell)> = vec![
                ("record_id", (3 * id).into()),
                ("completion_id", id.into()),
                ("protocol", "NFSv3".into()),
                ("operation", name.into()),
                ("flow", (1 + number % 3).into()),
                ("request_first", (START_NS + id * 777_777).into()),
                ("status", i64::from(13 * u8::from(name == "LOOKUP" && number % 2 == 0)).into()),
                ("file", (if name == "GETATTR" { 7 } else { spread(file as u64) as i64 }).into()),
                ("moved_bytes", bytes.into()),
                ("outstanding", (1 + number % 5).into()),
            ];
            row.extend((number % 50 != 3).then_some(("latency_ns", slow.into())));
            row.extend(direction.map(|direction: i64| ("direction", direction.into())));
            row.extend(direction.map(|_| ("offset_bytes", (number / 700 * bytes + number % 2 * 512).into())));
            operations.push(row);
        }
    }
    write(folder, &tables::OPERATIONS, &operations);
    let packets: Vec<_> = (0..100)
        .map(|number: i64| {
            let mut row =
                vec![("time", (START_NS + number * 50_000_000).into()), ("wire_bytes", (64 + number).into())];
            row.extend((number % 4 == 0).then_some(("not_understood", Cell::from("EtherType 0x88b5"))));
            row
        })
        .collect();
    write(folder, &tables::PACKETS, &packets);
    let checksums: Vec<_> = (0..4000)
        .map(|number: i64| {
            let sum = if number % 3 == 0 { 99 } else { spread(number as u64) as i64 };
            vec![
                ("file", 7.into()),
                ("offset_bytes", (512 * number).into()),
                ("sum", sum.into()),
                ("write", (number % 2).into()),
            ]
        })
        .collect();
    write(folder, &tables::CHECKSUMS, &checksums);
    let ledger = |time: i64, packets: i64| {
        let counts = [
            ("packets", packets),
            ("packets_dropped", 5),
            ("calls", 6450),
            ("replies", 6400),
            ("replies_unmatched", 40),
        ];
        let counts = counts.into_iter().map(|(name, count)| (name, count.into()));
        counts.chain([("time", (START_NS + time).into())]).collect::<Vec<_>>()
    };
    write(
        folder,
        &tables::STATISTICS,
        &[ledger(0, 0), ledger(5_000_000_000, 100), ledger(5_000_000_000, 90)],
    );
}

/// The same of a trace in which every kind of finding is made but those of missing packets of one side.
#[test]
fn findings_agree_with_the_report() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-findings");
    let trace = folder.join("trace");
    troubled_trace(&trace);
    let out = run_within(brunt().args(["analyze", "--json"]).arg(&trace), 60);
    let report: Value = serde_json::from_slice(&out.stdout).expect("a report");
    let kinds: Vec<_> =
        array(&report, "findings").iter().filter_map(|finding| finding["kind"].as_str()).collect();
    for kind in [
        "capture-loss",
        "not-understood",
        "error-storm",
        "getattr-storm",
        "misaligned",
        "hot-files",
        "slow-tail",
        "duplicates",
        "commits",
    ] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    for question in QUESTIONS.iter().filter(|question| question.name != "latency_over_time") {
        println!("{}", question.name);
        let answer = rows(sql(&engine, &trace, &[question.name]));
        check(question.name, &answer, &report);
        for server in &servers() {
            assert_eq!(
                rows(sql_at(server, &trace, &[question.name])),
                answer,
                "{} {server:?}",
                question.name
            );
        }
    }
}

/// A statement may begin with a comment, as the analyses do, and options stand on either side of it.
#[test]
fn statements_begin_with_comments() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-comments");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    for question in QUESTIONS.iter().filter(|question| ["mix", "ledger"].contains(&question.name)) {
        let named = rows(sql(&engine, &trace, &[question.name]));
        assert_eq!(rows(sql(&engine, &trace, &[question.sql])), named);
        for arguments in [["--explain", question.sql], [question.sql, "--explain"]] {
            let out = succeed(&mut sql(&engine, &trace, &arguments), 120);
            assert!(out.contains("\"bytes_read\""), "{out}");
        }
    }
}

/// The program and the Python module answer the same. (The program's times are microseconds, like this trace's.)
#[test]
fn program_and_module_agree() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-program");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    for question in QUESTIONS.iter().map(|question| question.name).chain(["select version from trace"]) {
        let (module, program) =
            (sql(&engine, &trace, &[question]), sql_program(&engine, &trace, &[question]));
        assert_eq!(rows(program), rows(module), "{question}");
    }
}

/// Histograms of two traces add up to those of the operations of both, in every bucket.
#[test]
fn histograms_add_up() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-histograms");
    let (one, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let (other, _) = trace(&folder, "nfs4-small.pcap.zst", &["--workers", "2"]);
    let of = |table: &str| {
        format!(
            "read_parquet(['{0}/{2}/*.parquet', '{1}/{2}/*.parquet'])",
            one.display(),
            other.display(),
            table
        )
    };
    // The rule of docs/trace.md, from a latency to its bucket.
    let merged = format!(
        "WITH stored AS (SELECT procedure, bucket, sum(count)::BIGINT AS n FROM {} GROUP BY ALL),
         units AS (SELECT operation, latency_ns // 1024 AS u FROM {} WHERE latency_ns IS NOT NULL),
         octaves AS (SELECT operation, u, length(bin(greatest(u, 8))) - 4 AS o FROM units),
         counted AS (SELECT operation, CASE WHEN u < 8 THEN u ELSE (o + 1) * 8 + (u >> o) % 8 END AS bucket,
                            count(*) AS n FROM octaves GROUP BY ALL)
         SELECT count(*) AS rows, count(stored.n) AS stored, count(counted.n) AS counted,
                count(CASE WHEN stored.n = counted.n THEN 1 END) AS same
         FROM stored FULL JOIN counted ON procedure = operation AND stored.bucket = counted.bucket",
        of("latency_histograms"),
        of("operations"),
    );
    let rows = rows(sql(&engine, &one, &[&merged]));
    let count = |name: &str| rows[0][name].as_u64().expect("a count");
    assert!(count("rows") > 50, "{rows:?}");
    for name in ["stored", "counted", "same"] {
        assert_eq!(count(name), count("rows"), "{rows:?}");
    }
}

/// `--explain` measures: a question to one column of one table reads less than one to all.
#[test]
fn explain_counts_parts_and_bytes() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-explain");
    let (trace, _) = trace(&folder, "nfs4-small.pcap.zst", &["--workers", "2"]);
    for how in [sql, sql_program] {
        let explain = |question: &str| -> Value {
            let out = succeed(&mut how(&engine, &trace, &[question, "--explain"]), 120);
            serde_json::from_str(&out).expect("one object")
        };
        assert_explained(
            &explain("select max(latency_ns) from operations"),
            &explain("select * from operations"),
        );
    }
}

fn assert_explained(few: &Value, many: &Value) {
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"));
    assert_eq!((number(many, "parts"), number(many, "parts_opened"), number(many, "scans")), (2, 2, 1));
    assert!(number(few, "bytes_read") < number(many, "bytes_read"), "{few} {many}");
    assert!(number(many, "bytes_read") > number(many, "bytes") / 2, "{many}");
    assert_eq!(many["tables"], serde_json::json!(["operations"]));
}

/// A command that is refused with status 2: what it says.
fn refused(command: &mut Command) -> String {
    let run = run_within(command, 120);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    let answer: Value = serde_json::from_slice(&run.stdout).expect("one object");
    format!(
        "{} {}",
        answer["error"].as_str().expect("an error"),
        answer["advice"].as_str().unwrap_or_default()
    )
}

/// What is wrong is said, with what to do about it.
#[test]
fn mistakes_are_answered_with_advice() {
    let folder = TempDir::new("sql-mistakes");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let (nothing, plain) = (folder.join("nothing"), |arguments: &[&str]| {
        let mut command = brunt();
        command.args(["--json", "sql"]).args(arguments);
        command
    });
    std::fs::create_dir(&nothing).expect("a folder");
    let (path, empty) = (trace.to_str().expect("plain"), nothing.to_str().expect("plain"));
    let said = refused(&mut plain(&[path, "mixx"]));
    assert!(said.contains("no analysis \"mixx\"") && said.contains("latency_over_time"), "{said}");
    let said = refused(&mut plain(&[empty, "mix"]));
    assert!(said.contains("neither a trace nor results"), "{said}");
    let said = refused(
        plain(&[path, "mix"]).env("PATH", &nothing).env_remove("BRUNT_PYTHON").env_remove("BRUNT_DUCKDB"),
    );
    assert!(said.contains("duckdb is not installed") && said.contains("pip install duckdb"), "{said}");
    let said = refused(plain(&[path, "mix"]).env("BRUNT_DUCKDB", nothing.join("duckdb")));
    assert!(said.contains("BRUNT_DUCKDB names"), "{said}");
    let said = refused(&mut plain(&[path, "mix", "--at", "127.0.0.1:1"]));
    assert!(said.contains("--engine spark"), "{said}");
    let said = refused(&mut plain(&[path, "mix", "--engine", "spark", "--at", "127.0.0.1:1", "--explain"]));
    assert!(said.contains("--explain"), "{said}");
    // No Python has a module of this name where none is looked for.
    let spark = &[path, "mix", "--engine", "spark", "--at", "127.0.0.1:1"];
    let said = refused(plain(spark).env("BRUNT_PYTHON", nothing.join("python")));
    assert!(said.contains("pip install pyspark-client"), "{said}");
    let Some(engine) = engine() else { return };
    let said = refused(&mut sql(&engine, &trace, &["select nonsense from operations"]));
    assert!(said.contains("duckdb refuses the statement") && said.contains("nonsense"), "{said}");
}

/// A trace of another version is refused by name, and so is a folder with parts of two; a damaged part is left out and
/// said to be.
#[test]
fn versions_are_not_mixed() {
    let folder = TempDir::new("sql-versions");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let note = |folder: &Path, series: u16| {
        let options = WriterOptions { series, ..WriterOptions::default() };
        let mut note = TableWriter::create(folder, &tables::NOTES, options).expect("a table");
        note.rows().row().int(3).text("brunt 0.0.9").bool(false).end();
        note.finish().expect("a part");
    };
    let older = folder.join("older");
    note(&older, 0);
    let said = refused(brunt().args(["--json", "sql"]).arg(&older).arg("mix"));
    assert!(said.contains("version 3") && said.contains("brunt 0.0.9"), "{said}");
    note(&trace, 1);
    for command in [&["sql"][..], &["analyze"]] {
        let mut mixed = brunt();
        mixed.arg("--json").args(command).arg(&trace).args(command.contains(&"sql").then_some("mix"));
        let run = run_within(&mut mixed, 60);
        let said = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.code(), Some(2), "{run:?}");
        assert!(said.contains("version 3 (by brunt 0.0.9) and of version 4"), "{said}");
    }
}

/// Times keep their nanoseconds, and tables without parts have no rows, in other engines as in DuckDB; their mistakes
/// are the user's, too.
#[test]
fn other_engines_see_the_same_tables() {
    let servers = servers();
    if servers.is_empty() {
        println!("not asked for: tools/sql-engines.sh starts Sail and Spark and runs this");
        return;
    }
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-servers");
    let (trace, _) = trace(&folder, "iscsi/tgt-kernel.pcapng.zst", &[]);
    std::fs::remove_dir_all(trace.join("names")).expect("a table");
    let questions = [
        "select request_first_ns, latency_ns, request_whole from operations order by completion_id limit 20",
        "select count(*) as n, max(record_id) as last from names",
    ];
    for server in &servers {
        for question in questions {
            assert_eq!(rows(sql_at(server, &trace, &[question])), rows(sql(&engine, &trace, &[question])));
        }
        let said = refused(&mut sql_at(server, &trace, &["select nonsense from operations"]));
        assert!(said.contains("spark refuses the statement") && said.contains("nonsense"), "{said}");
        let nobody = ("127.0.0.1:1".to_string(), server.1.clone());
        let said = refused(&mut sql_at(&nobody, &trace, &["mix"]));
        assert!(said.contains("no Spark Connect server answers"), "{said}");
    }
}

/// Parts that are damaged are left out, and each is named.
#[test]
fn damaged_parts_are_left_out() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-damage");
    let (trace, report) = trace(&folder, "nfs3-small.pcap.zst", &["--workers", "2"]);
    std::fs::remove_dir_all(trace.join("names")).expect("a table");
    let none = rows(sql(&engine, &trace, &["select count(*) as n, max(name) as last from names"]));
    assert_eq!(none, [serde_json::json!({ "n": 0, "last": null })]);
    // Which worker has how much is chance, and one may have no operation: the larger part is the one to lose.
    let parts =
        ["part-000000.parquet", "part-1-000000.parquet"].map(|part| trace.join("operations").join(part));
    let size = |part: &&PathBuf| part.metadata().map_or(0, |facts| facts.len());
    let lost = parts.iter().max_by_key(size).expect("there are two");
    std::fs::write(lost, "PAR1").expect("it is written");
    let run = run_within(&mut sql(&engine, &trace, &["select count(*) as n from operations"]), 120);
    let answer: Value = serde_json::from_slice(&run.stdout).expect("one object");
    assert!(answer["rows"][0]["n"].as_u64() < report["operations"].as_u64(), "{answer}");
    let said = String::from_utf8_lossy(&run.stderr);
    let name = lost.file_name().and_then(|name| name.to_str()).expect("plain");
    assert!(said.contains("left out: ") && said.contains(name), "{said}");
}
