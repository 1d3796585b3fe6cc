//! `brunt lake`: whatever happens to a compaction, a reader finds every row of a trace exactly once at any time, and
//! a lake gives the same answers as its traces.

use crate::support;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::support::{TempDir, brunt, root, rounds, run_within, seed, skip, succeed};
use brunt_capture::trace::tables;
use brunt_core::Nanos;
use brunt_core::random::Random;
use brunt_lake::{
    Batch, ColumnKind, LakeSnapshot, Table, TableWriter, WriterLock, WriterOptions, read_table,
};
use serde_json::Value;

/// The first id of the second pipeline.
const SECOND: i64 = 1 << 48;
/// Number of rows that each pipeline writes at once. It is small because readers that decode every row take most of
/// the time of these tests.
const ROWS_AT_ONCE: i64 = 10;
/// Number of rows at which the compactions begin.
const ROWS_BEFORE: i64 = 40 * ROWS_AT_ONCE;
/// Time of the first request: 2026-11-25 15:59:00.
const START_NS: i64 = 1_795_622_340_000_000_000;

/// `brunt --json sql` with DuckDB's module; `None` if it isn't installed.
struct Duckdb(PathBuf);

impl Duckdb {
    fn find() -> Option<Duckdb> {
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
        Some(Duckdb(PathBuf::from(
            String::from_utf8_lossy(&found.stdout).trim(),
        )))
    }

    fn command(&self, folder: &Path, question: &str) -> Command {
        let mut command = brunt();
        command.args(["--json", "sql"]).arg(folder).arg(question);
        command
            .env("BRUNT_PYTHON", self.0.join("python"))
            .env("PATH", root())
            .env_remove("BRUNT_DUCKDB");
        command
    }

    fn ask(&self, folder: &Path, question: &str) -> Value {
        let answer = succeed(&mut self.command(folder, question), 120);
        let mut answer: Value = serde_json::from_str(&answer).expect("one object");
        answer["rows"].take()
    }
}

fn compact(folder: &Path, more: &[&str]) -> Command {
    let mut command = brunt();
    command
        .args(["--json", "lake", "compact"])
        .arg(folder)
        .args(["--part-size", "64KiB"])
        .args(more);
    command
}

/// Adds a row with `id` in the id columns, a time derived from `id`, and plausible values in all other columns.
fn put_row(rows: &mut Batch, table: &'static Table, id: i64) {
    let time = START_NS + (id % SECOND) * 700_000_000;
    let mut row = rows.row();
    for column in table.columns {
        row = match (column.name, column.kind) {
            ("record_id" | "completion_id", _) => row.int(id),
            ("file", _) => row.int(id % 17),
            (_, ColumnKind::Time) => row.int(time),
            (_, ColumnKind::Int) if column.nullable && id % 5 == 0 => row.null(),
            (_, ColumnKind::Int) => row.int(id % 1000),
            (_, ColumnKind::Float) => row.float(id as f64),
            (_, ColumnKind::Bool) => row.bool(id % 2 == 0),
            (_, ColumnKind::Text) => row.text(["GETATTR", "LOOKUP", "WRITE"][id as usize % 3]),
            (_, ColumnKind::Bytes) => row.bytes(&id.to_le_bytes()),
        };
    }
    row.end();
}

/// Writes a trace as a capture does, with two pipelines whose parts grow and are completed, until `stop`. `written`
/// counts the rows of each pipeline that are on disk.
fn write_trace(folder: &Path, written: &[AtomicI64; 2], stop: &AtomicBool) {
    let lock = WriterLock::take(folder).expect("nobody else writes");
    let mut notes =
        TableWriter::create(folder, &tables::NOTES, WriterOptions::default()).expect("a table");
    notes
        .rows()
        .row()
        .int(tables::VERSION)
        .text("a test")
        .bool(false)
        .end();
    notes.finish().expect("written");
    let create = |table, series| {
        let options = WriterOptions {
            rows_max: 16 * ROWS_AT_ONCE as usize,
            age_max: Duration::ZERO,
            series,
            ..WriterOptions::default()
        };
        TableWriter::create(folder, table, options).expect("a table")
    };
    let mut writers = [0, 1]
        .map(|series| [&tables::OPERATIONS, &tables::NAMES].map(|table| create(table, series)));
    lock.name_trace().expect("written");
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        for (pipeline, writers) in writers.iter_mut().enumerate() {
            for number in count..count + ROWS_AT_ONCE {
                for (writer, table) in writers
                    .iter_mut()
                    .zip([&tables::OPERATIONS, &tables::NAMES])
                {
                    put_row(writer.rows(), table, number + pipeline as i64 * SECOND);
                }
            }
            writers
                .iter_mut()
                .for_each(|writer| writer.commit(Nanos(count as u64)).expect("written"));
            written[pipeline].store(count + ROWS_AT_ONCE, Ordering::Release);
        }
        count += ROWS_AT_ONCE;
        std::thread::sleep(Duration::from_millis(30));
    }
    for writer in writers.iter_mut().flatten() {
        writer.finish().expect("written");
    }
}

/// Asserts that the ids of each pipeline start at 0 and are complete and unique; returns the number of ids of each.
fn check_ids(mut ids: Vec<i64>, at_least: [i64; 2], what: &str) -> [i64; 2] {
    ids.sort_unstable();
    let first = ids.partition_point(|id| *id < SECOND);
    let counts = [first as i64, (ids.len() - first) as i64];
    let expected = (0..counts[0]).chain((0..counts[1]).map(|id| id + SECOND));
    assert!(
        ids.iter().copied().eq(expected),
        "{what}: a row is missing or duplicated"
    );
    assert!(
        counts[0] >= at_least[0] && counts[1] >= at_least[1],
        "{what}: {counts:?} of {at_least:?}"
    );
    counts
}

fn look(folder: &Path, table: &'static Table, written: &[AtomicI64; 2], what: &str) {
    let at_least = written
        .each_ref()
        .map(|count| count.load(Ordering::Acquire));
    let mut ids = Vec::new();
    let damaged = read_table(folder, table, |batch| {
        ids.extend_from_slice(batch.ints("record_id"))
    });
    assert!(damaged.expect("readable").is_empty());
    check_ids(ids, at_least, what);
}

/// Like [`look`], but the ids are counted by DuckDB.
fn look_by(duckdb: &Duckdb, folder: &Path, written: &[AtomicI64; 2]) {
    let at_least = written
        .each_ref()
        .map(|count| count.load(Ordering::Acquire));
    let rows = duckdb.ask(
        folder,
        "select record_id // 281474976710656 as pipeline, count(*) as n, count(distinct record_id) as ids, \
         max(record_id) % 281474976710656 as last from operations group by 1 order by 1",
    );
    for (pipeline, at_least) in at_least
        .into_iter()
        .enumerate()
        .filter(|(_, at_least)| *at_least > 0)
    {
        let row = &rows[pipeline];
        let [n, ids, last] = ["n", "ids", "last"].map(|name| row[name].as_i64().expect("a number"));
        assert_eq!((n, last + 1), (ids, n), "{row}");
        assert!(n >= at_least, "{n} of {at_least}");
    }
}

/// A compaction is killed at random moments while a capture writes and readers count: no row is ever missing or
/// duplicated. Once it completes, reading the plain files also finds each row once.
#[test]
fn a_killed_compaction_loses_no_row_while_a_capture_writes() {
    let (folder, mut random) = (TempDir::new("lake-killed"), Random::new(seed()));
    let (duckdb, trace) = (Duckdb::find(), folder.join("trace"));
    std::fs::create_dir(&trace).expect("a folder");
    let (written, stop) = (
        [AtomicI64::new(0), AtomicI64::new(0)],
        AtomicBool::new(false),
    );
    let (mut killed, mut round, count) = (0, 0, rounds(12, 20));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_trace(&trace, &written, &stop));
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !stop.load(Ordering::Relaxed) {
                if written[1].load(Ordering::Acquire) > 0 {
                    look(
                        &trace,
                        [&tables::OPERATIONS, &tables::NAMES][looks % 2],
                        &written,
                        "while compacted",
                    );
                    looks += 1;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            looks
        });
        support::eventually("rows", 30, || {
            written[1].load(Ordering::Acquire) > ROWS_BEFORE
        });
        let mut longest_us = 30_000;
        while killed < count && round < 4 * count {
            round += 1;
            killed += usize::from(is_killed(
                &mut compact(&trace, &[]),
                &mut random,
                &mut longest_us,
            ));
            look(&trace, &tables::OPERATIONS, &written, "after a kill");
            if round % 8 == 0
                && let Some(duckdb) = &duckdb
            {
                look_by(duckdb, &trace, &written);
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer came to its end");
        assert!(reader.join().expect("the reader found every row") > 0);
    });
    assert!(killed >= count / 2, "only {killed} of {round} were killed");
    println!("{killed} of {round} compactions were killed");
    succeed(&mut compact(&trace, &[]), 60);
    let snapshot = LakeSnapshot::open(&trace).expect("a lake");
    let parts = snapshot.parts(&tables::OPERATIONS).expect("parts");
    assert!(
        parts.iter().all(|part| part.captured.is_none()),
        "{parts:?}"
    );
    look(&trace, &tables::OPERATIONS, &written, "at the end");
    look(&trace, &tables::NAMES, &written, "at the end");
    let listed: BTreeMap<PathBuf, ()> = parts.into_iter().map(|part| (part.path, ())).collect();
    assert_eq!(
        files_below(&trace.join("operations")),
        listed,
        "a glob finds the live parts and no others"
    );
    if let Some(duckdb) = &duckdb {
        look_by(duckdb, &trace, &written);
    }
}

/// Starts a program and kills it at a random moment within `longest_us`; `false` if it had already ended. That time
/// adapts to the program's duration: it shrinks after an early end, and grows after a kill.
fn is_killed(command: &mut Command, random: &mut Random, longest_us: &mut u64) -> bool {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    std::thread::sleep(Duration::from_micros(random.below(*longest_us)));
    match child.try_wait().expect("known") {
        Some(status) => {
            assert!(status.success(), "{status}");
            *longest_us = *longest_us * 3 / 4 + 2000;
            false
        }
        None => {
            child.kill().expect("killed");
            child.wait().expect("gone");
            *longest_us = *longest_us * 5 / 4;
            true
        }
    }
}

/// A trace is added to a lake repeatedly while its capture writes, with kills at random moments and occasional
/// compactions. At every check, each row exists once, without gaps, and no row has disappeared; in the end, all rows
/// exist.
#[test]
fn killed_additions_of_a_running_capture_lose_no_row() {
    let (folder, mut random) = (TempDir::new("lake-added"), Random::new(seed()));
    let (trace, lake) = (folder.join("trace"), folder.join("lake"));
    std::fs::create_dir(&trace).expect("a folder");
    let (written, stop) = (
        [AtomicI64::new(0), AtomicI64::new(0)],
        AtomicBool::new(false),
    );
    let (mut killed, mut round, count) = (0, 0, rounds(8, 12));
    let add = || {
        let mut add = brunt();
        add.args(["--json", "lake", "add"])
            .arg(&lake)
            .arg(&trace)
            .args(["--tap", "one"]);
        add.args(["--part-size", "64KiB"]);
        add
    };
    let look = |at_least, what: &str| {
        let mut ids = Vec::new();
        let read = read_table(&lake, &tables::OPERATIONS, |batch| {
            ids.extend_from_slice(batch.ints("record_id"))
        });
        assert!(read.expect("readable").is_empty());
        check_ids(ids, at_least, what)
    };
    let mut seen = [0, 0];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_trace(&trace, &written, &stop));
        support::eventually("rows", 30, || {
            written[1].load(Ordering::Acquire) > ROWS_BEFORE
        });
        let mut longest_us = 30_000;
        while killed < count && round < 4 * count {
            round += 1;
            killed += usize::from(is_killed(&mut add(), &mut random, &mut longest_us));
            seen = look(seen, "after a kill");
            if round % 5 == 0 {
                succeed(&mut add(), 60);
                succeed(&mut compact(&lake, &[]), 60);
                seen = look(seen, "after a compaction");
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer came to its end");
    });
    assert!(killed >= count / 2, "only {killed} of {round} were killed");
    assert!(seen[0] > 0, "rows were added meanwhile");
    succeed(&mut add(), 60);
    assert_eq!(
        look(seen, "at the end"),
        written
            .each_ref()
            .map(|count| count.load(Ordering::Acquire))
    );
}

fn files_below(folder: &Path) -> BTreeMap<PathBuf, ()> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.insert(path, ());
        }
    }
    files
}

fn capture(folder: &TempDir, capture: &str, workers: &str) -> PathBuf {
    let trace = folder.join(&capture.replace('/', "-"));
    let mut record = brunt();
    record
        .args(["capture", "--json", "-r"])
        .arg(root().join("testdata").join(capture));
    run_within(
        record
            .arg("--out")
            .arg(&trace)
            .args(["--part-size", "64KiB", "--workers", workers]),
        60,
    );
    trace
}

fn analyzed(folder: &Path) -> Value {
    serde_json::from_str(&succeed(
        brunt().args(["analyze", "--json"]).arg(folder),
        60,
    ))
    .expect("a report")
}

/// A compacted trace gives the same analysis as before; if it is added to a lake under two names, everything appears
/// twice.
#[test]
fn a_lake_gives_the_same_answers_as_its_traces() {
    let folder = TempDir::new("lake-answers");
    let duckdb = Duckdb::find();
    for (name, workers) in [("nfs3-small.pcap.zst", "2"), ("nfs4-small.pcap.zst", "1")] {
        let trace = capture(&folder, name, workers);
        let (before, lake) = (analyzed(&trace), folder.join(&format!("{name}.lake")));
        let questions = [
            "mix",
            "rates",
            "profile",
            "files",
            "clients",
            "directories",
            "ledger",
            "findings",
        ];
        let ask = |of: &Path| {
            duckdb
                .as_ref()
                .map(|duckdb| questions.map(|question| duckdb.ask(of, question)))
        };
        let answers = ask(&trace);
        for tap in ["one", "two"] {
            let mut add = brunt();
            add.args(["lake", "add"]).arg(&lake).arg(&trace).args([
                "--tap",
                tap,
                "--part-size",
                "64KiB",
                "--duplicate",
            ]);
            succeed(&mut add, 60);
        }
        succeed(&mut compact(&lake, &[]), 60);
        let twice = analyzed(&lake);
        let number = |report: &Value, path: &str| {
            report
                .pointer(path)
                .and_then(Value::as_u64)
                .expect("a number")
        };
        for path in [
            "/operations",
            "/ledger/packets",
            "/ledger/calls_answered",
            "/ledger/data_bytes",
        ] {
            assert_eq!(
                number(&twice, path),
                2 * number(&before, path),
                "{path} of {name}"
            );
        }
        assert_eq!(
            twice["files"]["count"], before["files"]["count"],
            "a file is one, whoever saw it"
        );
        if let (Some(duckdb), Some(answers)) = (&duckdb, &answers) {
            let packets = duckdb.ask(&lake, "ledger")[0]["packets"].as_u64();
            assert_eq!(
                packets,
                answers[6][0]["packets"].as_u64().map(|packets| 2 * packets)
            );
            let taps = duckdb.ask(&lake, "select name, tap, pipelines from taps order by tap");
            assert_eq!(
                (&taps[0]["name"], &taps[1]["name"]),
                (&"one".into(), &"two".into())
            );
        }
        succeed(&mut compact(&trace, &[]), 60);
        assert_eq!(analyzed(&trace), before, "{name}");
        assert_eq!(ask(&trace), answers, "{name}");
    }
}

/// Every Parquet file below a folder, with its size in bytes.
fn parquet_files(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(parquet_files(&path));
        } else if path.extension().is_some_and(|e| e == "parquet") {
            files.insert(path.clone(), path.metadata().unwrap().len());
        }
    }
    files
}

/// A lake whose catalog is missing, has lost an entry, or lacks a part is rejected by every command, and no command
/// deletes anything.
#[test]
fn a_lake_without_its_catalog_is_left_alone() {
    let folder = TempDir::new("lake-lost");
    let trace = capture(&folder, "nfs3-small.pcap.zst", "1");
    let lake = folder.join("lake");
    let arguments = |command: &str| -> Vec<OsString> {
        let (lake, trace) = (
            lake.clone().into_os_string(),
            trace.clone().into_os_string(),
        );
        match command {
            "add" => vec![
                "lake".into(),
                "add".into(),
                lake,
                trace,
                "--tap".into(),
                "one".into(),
            ],
            "analyze" => vec!["analyze".into(), lake],
            command => vec!["lake".into(), command.into(), lake],
        }
    };
    succeed(brunt().args(arguments("add")), 60);
    let refused = |commands: &[&str], expected: &str| {
        let before = parquet_files(&lake);
        for command in commands {
            let out = run_within(brunt().args(arguments(command)), 60);
            let told = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(
                !out.status.success() && told.contains(expected),
                "{command}: {told}"
            );
            assert_eq!(parquet_files(&lake), before, "{command}");
        }
    };
    let (catalog, away) = (lake.join("_catalog"), folder.join("away"));
    std::fs::rename(&catalog, &away).unwrap();
    refused(
        &["add", "compact", "manifest", "analyze"],
        "catalog is missing",
    );
    let _ = std::fs::remove_dir_all(&catalog);
    std::fs::rename(&away, &catalog).unwrap();

    let version = catalog.join("v00000001.json");
    let whole = std::fs::read(&version).unwrap();
    let mut value: Value = serde_json::from_slice(&whole).unwrap();
    value["parts"]["operations"].as_array_mut().unwrap().pop();
    std::fs::write(&version, serde_json::to_vec(&value).unwrap()).unwrap();
    refused(&["add", "compact", "manifest", "analyze"], "checksum");
    std::fs::write(&version, &whole).unwrap();

    let (part, _) = parquet_files(&lake.join("operations")).pop_first().unwrap();
    std::fs::rename(&part, &away).unwrap();
    let name = part.file_name().unwrap().to_str().unwrap();
    refused(&["add", "compact", "manifest", "analyze"], name);
    std::fs::rename(&away, &part).unwrap();
    succeed(brunt().args(arguments("compact")), 60);
}

/// An engine wouldn't notice changed bytes in a part, so it isn't given that part, and a message names the part.
#[test]
fn changed_bytes_do_not_change_answers() {
    let Some(duckdb) = Duckdb::find() else {
        return;
    };
    let folder = TempDir::new("lake-bytes");
    let trace = capture(&folder, "nfs3-small.pcap.zst", "1");
    let ask = || {
        let question = "select count(*) as n, sum(hash(o)::hugeint)::text as h from operations o";
        run_within(&mut duckdb.command(&trace, question), 120)
    };
    let right = ask();
    assert!(right.status.success());
    let (part, _) = parquet_files(&trace.join("operations"))
        .pop_first()
        .unwrap();
    let whole = std::fs::read(&part).unwrap();
    for at in (0..10).map(|tenth| 4 + tenth * whole.len() / 12) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&part, changed).unwrap();
        let told = String::from_utf8_lossy(&ask().stderr).into_owned();
        let name = part.file_name().unwrap().to_str().unwrap();
        assert!(told.contains(name), "byte {at}: {told}");
    }
    std::fs::write(&part, &whole).unwrap();
    assert_eq!(ask().stdout, right.stdout);
}

/// Traces that can't be added are rejected by name, and damaged files are left in place.
#[test]
fn traces_that_cannot_be_added_are_refused_by_name() {
    let folder = TempDir::new("lake-refusals");
    let trace = capture(&folder, "nfs3-small.pcap.zst", "1");
    let lake = folder.join("lake");
    let add = |tap: &str, of: &Path| {
        let mut add = brunt();
        run_within(
            add.args(["lake", "add"])
                .arg(&lake)
                .arg(of)
                .args(["--tap", tap]),
            60,
        )
    };
    assert!(add("one", &trace).status.success());
    for (tap, of, expected) in [
        (
            "other",
            trace.as_path(),
            "is already in the lake, as tap one",
        ),
        ("two", lake.as_path(), "cannot be added to itself"),
        ("two", folder.join("nothing").as_path(), "contains no trace"),
    ] {
        let out = add(tap, of);
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
    }
    // Adding without new data succeeds.
    assert!(add("one", &trace).status.success());
    // A capture can't write into a lake, which assigns numbers to taps.
    let mut record = brunt();
    record
        .args(["capture", "-r"])
        .arg(root().join("testdata/nfs3-small.pcap.zst"));
    let out = run_within(record.arg("--out").arg(&lake), 60);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && told.contains("already contains a table"),
        "{told}"
    );
    // Corrupts a byte in the middle of a part.
    let part = trace.join("names/part-000000.parquet");
    let mut bytes = std::fs::read(&part).expect("a part");
    bytes[100] ^= 1;
    std::fs::write(&part, bytes).expect("written");
    let report: Value =
        serde_json::from_str(&succeed(&mut compact(&trace, &[]), 60)).expect("an object");
    let damaged = report["damaged"].as_array().expect("a list");
    assert!(
        damaged.len() == 1
            && damaged[0]
                .as_str()
                .is_some_and(|told| told.contains("names")),
        "{report}"
    );
    assert!(part.exists());
    let report = analyzed(&trace).to_string();
    assert!(report.contains("names/part-000000.parquet"), "{report}");
    // A catalog written by a newer program.
    let newest = std::fs::read_dir(lake.join("_catalog"))
        .expect("a folder")
        .map(|entry| entry.expect("one").path());
    let newest = newest
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .max();
    let newest = newest.expect("a version");
    let text = std::fs::read_to_string(&newest)
        .expect("read")
        .replace("\"format\":1", "\"format\":2");
    std::fs::write(&newest, text).expect("written");
    let out = run_within(brunt().arg("analyze").arg(&lake), 60);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() != Some(0) && told.contains("catalog has format 2"),
        "{told}"
    );
}

/// Files that a reader uses stay on disk until the reader is done, however often the trace is compacted; only one
/// compaction runs at a time.
#[test]
fn parts_stay_for_readers() {
    let folder = TempDir::new("lake-readers");
    let trace = capture(&folder, "nfs3-small.pcap.zst", "1");
    let held = LakeSnapshot::open(&trace).expect("a trace");
    let parts = held.parts(&tables::OPERATIONS).expect("parts");
    succeed(&mut compact(&trace, &[]), 60);
    succeed(&mut compact(&trace, &[]), 60);
    assert!(parts.iter().all(|part| part.path.exists()), "{parts:?}");
    let lock = std::fs::File::open(trace.join("_catalog/lock")).expect("a lock");
    lock.lock().expect("nobody has it");
    let out = run_within(&mut compact(&trace, &[]), 60);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() == Some(1) && told.contains("another process is compacting"),
        "{told}"
    );
    drop((lock, held));
    succeed(&mut compact(&trace, &[]), 60);
    assert!(parts.iter().all(|part| !part.path.exists()), "{parts:?}");
}

/// Commands that leave a part alone still report it if it has changed.
#[test]
fn every_command_names_a_part_with_a_changed_byte() {
    let folder = TempDir::new("lake-changed");
    let (trace, lake) = (
        capture(&folder, "nfs3-small.pcap.zst", "1"),
        folder.join("lake"),
    );
    let add = |tap: &str| {
        let mut command = brunt();
        command.args(["lake", "add"]).arg(&lake).arg(&trace);
        command.args(["--tap", tap, "--duplicate"]);
        command
    };
    succeed(&mut add("a"), 120);
    let parts = parquet_files(&lake.join("operations"));
    let part = parts.keys().next().expect("a part");
    let mut bytes = std::fs::read(part).expect("a part");
    bytes[200] ^= 1;
    std::fs::write(part, bytes).expect("it is written");
    let named = part.file_name().and_then(|name| name.to_str());
    let named = named.expect("a plain name");
    for what in ["manifest", "compact"] {
        let output = run_within(brunt().args(["lake", what]).arg(&lake), 120);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(named), "{what}: {text}");
    }
    let output = run_within(&mut add("b"), 120);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(named), "add: {text}");
}
