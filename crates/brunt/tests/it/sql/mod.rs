//! `brunt sql` with the real DuckDB, as a program and as a module: each analysis gives the same answer as `brunt
//! analyze` on the same trace, and what can't be answered is rejected with advice.

mod answers;
mod checks;
mod sizer;
mod sketches;
mod troubled;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{TempDir, brunt, root, run_within, skip, succeed};
use brunt_capture::trace::questions::QUESTIONS;
use brunt_capture::trace::tables;
use brunt_lake::{TableWriter, WriterOptions};
use checks::{OPERATIONS, Operations, array, check};
use serde_json::Value;
use troubled::troubled_trace;

/// DuckDB's folder; `None` if it isn't installed.
pub fn engine() -> Option<PathBuf> {
    let script = root().join("tools/duckdb.sh");
    if !Command::new(&script)
        .arg("--ready")
        .status()
        .is_ok_and(|status| status.success())
    {
        skip("duckdb (tools/duckdb.sh --prepare)");
        return None;
    }
    let found = Command::new(script)
        .arg("--where")
        .output()
        .expect("the script starts");
    Some(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}

/// `brunt --json sql` with DuckDB's module; the program isn't on the PATH.
fn sql(engine: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = brunt();
    command.args(["--json", "sql"]).arg(folder).args(arguments);
    command
        .env("PATH", folder)
        .env("BRUNT_PYTHON", engine.join("python"))
        .env_remove("BRUNT_DUCKDB");
    command
}

/// `brunt --json sql` with DuckDB's program.
fn sql_program(engine: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = sql(engine, folder, arguments);
    command.env("BRUNT_DUCKDB", engine.join("duckdb"));
    command
}

/// Spark Connect servers started by `tools/sql-engines.sh`, each with the Python that has its client.
fn servers() -> Vec<(String, String)> {
    let named = std::env::var("BRUNT_SQL_SERVERS").unwrap_or_default();
    let servers = named.split_whitespace().map(|server| {
        let (address, python) = server.split_once('=').expect("ADDRESS=PYTHON");
        (address.to_string(), python.to_string())
    });
    servers.collect()
}

/// Two columns of an answer.
fn array_of(rows: &[Value], text: &str, number: &str) -> Vec<(String, u64)> {
    let text = |row: &Value| row[text].as_str().expect("a text").to_string();
    rows.iter()
        .map(|row| (text(row), row[number].as_u64().expect("a number")))
        .collect()
}

/// Queries all servers in parallel.
fn each(servers: &[(String, String)], ask: impl Fn(&(String, String)) + Sync) {
    std::thread::scope(|scope| {
        servers.iter().for_each(|server| {
            scope.spawn(|| ask(server));
        });
    });
}

/// `brunt --json sql` at one of the servers.
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
    record
        .args(["capture", "--json", "-r"])
        .arg(root().join("testdata").join(capture));
    // The exit status for a capture that is cut in two doesn't matter here.
    run_within(record.arg("--out").arg(&trace).args(more), 60);
    let out = run_within(brunt().args(["analyze", "--json"]).arg(&trace), 60);
    (
        trace,
        serde_json::from_slice(&out.stdout).expect("a report"),
    )
}

/// Every analysis agrees with the report, for both NFS versions, for iSCSI, and for a trace by several parsers. Any
/// other available engines give the same answers as DuckDB, byte for byte.
#[test]
fn analyses_agree_with_the_report() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-analyses");
    // Servers take seconds for what DuckDB does in milliseconds, so each analysis is queried there for only one
    // trace: the first that has rows for it, or the last.
    let servers = servers();
    let mut unasked: BTreeSet<&str> = QUESTIONS.iter().map(|question| question.name).collect();
    for (capture, more, is_last) in [
        ("nfs3-small.pcap.zst", &[][..], false),
        ("iscsi/lio-libiscsi.pcapng.zst", &[], false),
        ("nfs4-small.pcap.zst", &["--workers", "3"], false),
        ("iscsi/tgt-kernel.pcapng.zst", &[], true),
    ] {
        let for_servers = capture.contains("nfs4") || is_last;
        let (trace, report) = trace(&folder, capture, more);
        let operations = Operations::new(rows(sql(&engine, &trace, &[OPERATIONS])));
        for question in QUESTIONS {
            println!("{capture} {}", question.name);
            let answer = rows(sql(&engine, &trace, &[question.name]));
            check(question.name, &answer, &report, &operations);
            let wanted = for_servers && (is_last || !answer.is_empty());
            if !wanted || !unasked.remove(question.name) {
                continue;
            }
            let bytes = serde_json::to_string(&answer).expect("JSON");
            each(&servers, |server| {
                let answer = rows(sql_at(server, &trace, &[question.name]));
                let same = serde_json::to_string(&answer).expect("JSON") == bytes;
                assert!(
                    same,
                    "{} of {capture} at {server:?}: {answer:?}, {bytes}",
                    question.name
                );
                println!("{capture} {} is the same at {}", question.name, server.0);
            });
        }
    }
    assert!(unasked.is_empty(), "{unasked:?}");
}

/// The analysis of findings agrees with the report for a trace with every kind of finding except packets missing in
/// one direction.
#[test]
fn findings_agree_with_the_report() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-findings");
    let trace = folder.join("trace");
    troubled_trace(&trace);
    let out = run_within(brunt().args(["analyze", "--json"]).arg(&trace), 60);
    let report: Value = serde_json::from_slice(&out.stdout).expect("a report");
    let kinds: Vec<_> = array(&report, "findings")
        .iter()
        .filter_map(|finding| finding["kind"].as_str())
        .collect();
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
    let operations = Operations::new(rows(sql(&engine, &trace, &[OPERATIONS])));
    for question in QUESTIONS
        .iter()
        .filter(|question| question.name != "latency_over_time")
    {
        println!("{}", question.name);
        let answer = rows(sql(&engine, &trace, &[question.name]));
        check(question.name, &answer, &report, &operations);
        each(&servers(), |server| {
            assert_eq!(
                rows(sql_at(server, &trace, &[question.name])),
                answer,
                "{} {server:?}",
                question.name
            );
        });
    }
}

/// A statement may begin with a comment, as the analyses do, and options may precede or follow it.
#[test]
fn statements_may_begin_with_comments() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-comments");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    for question in QUESTIONS
        .iter()
        .filter(|question| ["mix", "ledger"].contains(&question.name))
    {
        let named = rows(sql(&engine, &trace, &[question.name]));
        assert_eq!(rows(sql(&engine, &trace, &[question.sql])), named);
        for arguments in [["--explain", question.sql], [question.sql, "--explain"]] {
            let out = succeed(&mut sql(&engine, &trace, &arguments), 120);
            assert!(out.contains("\"bytes_read\""), "{out}");
        }
    }
}

/// The program and the Python module give the same answers. (The program's times are in microseconds, like those of
/// this trace.)
#[test]
fn program_and_module_agree() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-program");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    for question in QUESTIONS
        .iter()
        .map(|question| question.name)
        .chain(["select version from trace"])
    {
        let (module, program) = (
            sql(&engine, &trace, &[question]),
            sql_program(&engine, &trace, &[question]),
        );
        assert_eq!(rows(program), rows(module), "{question}");
    }
}

/// The answer to a query that takes seconds contains only its rows, without a progress bar between them.
#[test]
fn no_progress_bar_is_among_the_rows() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-progress");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    for how in [sql, sql_program] {
        let shown = rows(how(
            &engine,
            &trace,
            &["select current_setting('enable_progress_bar') as bar from trace"],
        ));
        assert_eq!(shown, [serde_json::json!({ "bar": false })]);
    }
}

/// Parts of a lake, whose time columns have integer counterparts, and parts captured later form one table.
#[test]
fn parts_of_a_lake_and_captured_ones_are_one_table() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-lake");
    let (trace, _) = trace(&folder, "nfs4-small.pcap.zst", &["--workers", "2"]);
    let questions = [
        "select request_first_ns, latency_ns, request_whole, file from operations order by completion_id",
        "select count(*) as n, max(record_id) as last from names",
        "mix",
    ];
    let answers = |lake: &Path| questions.map(|question| rows(sql(&engine, lake, &[question])));
    let before = answers(&trace);
    // Move the other parser's parts away while the lake is made.
    let away = folder.join("away");
    std::fs::create_dir(&away).expect("a folder");
    let of_the_other = |part: &Path| {
        part.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("part-1-"))
    };
    let mut moved = Vec::new();
    for table in std::fs::read_dir(&trace)
        .expect("tables")
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
    {
        for part in std::fs::read_dir(table.path())
            .expect("parts")
            .map(|part| part.expect("a part").path())
        {
            if of_the_other(&part) {
                let place = away.join(moved.len().to_string());
                std::fs::rename(&part, &place).expect("it moves");
                moved.push((part, place));
            }
        }
    }
    assert!(!moved.is_empty());
    succeed(brunt().args(["lake", "compact"]).arg(&trace), 120);
    for (part, place) in moved {
        std::fs::rename(place, part).expect("it moves back");
    }
    assert_eq!(answers(&trace), before);
    for server in &servers() {
        let there = questions.map(|question| rows(sql_at(server, &trace, &[question])));
        assert_eq!(there, before, "{server:?}");
    }
    // Another compaction doesn't change the answers.
    succeed(brunt().args(["lake", "compact"]).arg(&trace), 120);
    assert_eq!(answers(&trace), before);
}

/// Histograms of two traces add up to those of the operations of both, in every bucket.
#[test]
fn histograms_of_two_traces_add_up() {
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
    // docs/trace.md has the rule for the bucket of a latency.
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

/// `--explain` measures: a query for one column of one table reads less than a query for all columns.
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
    let number =
        |of: &Value, name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"));
    assert_eq!(
        (
            number(many, "parts"),
            number(many, "parts_opened"),
            number(many, "scans")
        ),
        (2, 2, 1)
    );
    assert!(
        number(few, "bytes_read") < number(many, "bytes_read"),
        "{few} {many}"
    );
    assert!(
        number(many, "bytes_read") > number(many, "bytes") / 2,
        "{many}"
    );
    assert_eq!(many["tables"], serde_json::json!(["operations"]));
}

/// The message of a command that is rejected with status 2.
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

/// Errors say what to do.
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
    let (path, empty) = (
        trace.to_str().expect("plain"),
        nothing.to_str().expect("plain"),
    );
    let said = refused(&mut plain(&[path, "mixx"]));
    assert!(
        said.contains("unknown analysis \"mixx\"") && said.contains("latency_over_time"),
        "{said}"
    );
    let said = refused(&mut plain(&[empty, "mix"]));
    assert!(said.contains("neither a trace nor results"), "{said}");
    let said = refused(
        plain(&[path, "mix"])
            .env("PATH", &nothing)
            .env_remove("BRUNT_PYTHON")
            .env_remove("BRUNT_DUCKDB"),
    );
    assert!(
        said.contains("duckdb is not installed") && said.contains("pip install duckdb"),
        "{said}"
    );
    let said = refused(plain(&[path, "mix"]).env("BRUNT_DUCKDB", nothing.join("duckdb")));
    assert!(said.contains("BRUNT_DUCKDB names"), "{said}");
    let said = refused(&mut plain(&[path, "mix", "--at", "127.0.0.1:1"]));
    assert!(said.contains("--engine spark"), "{said}");
    let said = refused(&mut plain(&[
        path,
        "mix",
        "--engine",
        "spark",
        "--at",
        "127.0.0.1:1",
        "--explain",
    ]));
    assert!(said.contains("--explain"), "{said}");
    // With a Python that doesn't exist, the module is reported as missing.
    let spark = &[path, "mix", "--engine", "spark", "--at", "127.0.0.1:1"];
    let said = refused(plain(spark).env("BRUNT_PYTHON", nothing.join("python")));
    assert!(said.contains("pip install pyspark-client"), "{said}");
    let Some(engine) = engine() else { return };
    let said = refused(&mut sql(
        &engine,
        &trace,
        &["select nonsense from operations"],
    ));
    assert!(
        said.contains("duckdb rejected the statement") && said.contains("nonsense"),
        "{said}"
    );
}

/// A trace in another version is rejected with the version in the message, as is a folder with parts in two versions;
/// a damaged part is left out and reported.
#[test]
fn versions_are_not_mixed() {
    let folder = TempDir::new("sql-versions");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let note = |folder: &Path, series: u16| {
        let options = WriterOptions {
            series,
            ..WriterOptions::default()
        };
        let mut note = TableWriter::create(folder, &tables::NOTES, options).expect("a table");
        note.rows()
            .row()
            .int(3)
            .text("brunt 0.0.9")
            .bool(false)
            .end();
        note.finish().expect("a part");
    };
    let older = folder.join("older");
    note(&older, 0);
    let said = refused(brunt().args(["--json", "sql"]).arg(&older).arg("mix"));
    assert!(
        said.contains("version 3") && said.contains("brunt 0.0.9"),
        "{said}"
    );
    note(&trace, 1);
    for command in [&["sql"][..], &["analyze"]] {
        let mut mixed = brunt();
        mixed
            .arg("--json")
            .args(command)
            .arg(&trace)
            .args(command.contains(&"sql").then_some("mix"));
        let run = run_within(&mut mixed, 60);
        let said = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.code(), Some(2), "{run:?}");
        assert!(
            said.contains("version 3 (by brunt 0.0.9) and of version 4"),
            "{said}"
        );
    }
}

/// In other engines as in DuckDB, times keep their nanoseconds, and tables without parts have no rows; errors from
/// the engines are also reported as the user's mistakes.
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
            assert_eq!(
                rows(sql_at(server, &trace, &[question])),
                rows(sql(&engine, &trace, &[question]))
            );
        }
        let said = refused(&mut sql_at(
            server,
            &trace,
            &["select nonsense from operations"],
        ));
        assert!(
            said.contains("spark rejected the statement") && said.contains("nonsense"),
            "{said}"
        );
        let nobody = ("127.0.0.1:1".to_string(), server.1.clone());
        let said = refused(&mut sql_at(&nobody, &trace, &["mix"]));
        assert!(said.contains("no Spark Connect server responds"), "{said}");
    }
}

/// Damaged parts are left out, and each one is named.
#[test]
fn damaged_parts_are_left_out() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-damage");
    let (trace, report) = trace(&folder, "nfs3-small.pcap.zst", &["--workers", "2"]);
    std::fs::remove_dir_all(trace.join("names")).expect("a table");
    let none = rows(sql(
        &engine,
        &trace,
        &["select count(*) as n, max(name) as last from names"],
    ));
    assert_eq!(none, [serde_json::json!({ "n": 0, "last": null })]);
    // The distribution of operations to workers is random, and one may have none: damage the larger part.
    let parts = ["part-000000.parquet", "part-1-000000.parquet"]
        .map(|part| trace.join("operations").join(part));
    let size = |part: &&PathBuf| part.metadata().map_or(0, |facts| facts.len());
    let lost = parts.iter().max_by_key(size).expect("there are two");
    std::fs::write(lost, "PAR1").expect("it is written");
    let run = run_within(
        &mut sql(&engine, &trace, &["select count(*) as n from operations"]),
        120,
    );
    let answer: Value = serde_json::from_slice(&run.stdout).expect("one object");
    assert!(
        answer["rows"][0]["n"].as_u64() < report["operations"].as_u64(),
        "{answer}"
    );
    let said = String::from_utf8_lossy(&run.stderr);
    let name = lost
        .file_name()
        .and_then(|name| name.to_str())
        .expect("plain");
    assert!(said.contains("left out: ") && said.contains(name), "{said}");
}
