//! The answers to statements: every value is exactly the engine's, in every format; memory use stays low; and an
//! interrupt ends the query. Also the ways to pass a statement.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{engine, rows, servers, sql, sql_at, sql_program, trace};
use crate::support::{TempDir, brunt, eventually, processes, run_within, succeed, words_of};

/// NaN, infinities, integers above 64 bits (also within lists), small intervals, bytes, two columns with the same
/// name, and names that aren't in alphabetical order.
const VALUES: &str = "select corr(1.0, 1.0) as z, 'inf'::double as y, '-inf'::float as x, 1.5::decimal(4, 2) as d, \
    12345678901234567890123456789012345678::hugeint as w, [18446744073709551616::hugeint] as l, \
    interval '1 microsecond' as i, 'ab'::blob as b, 1 as a, 2 as a, null as n, \
    timestamp '2026-11-27 08:15:00.5' as t, 'x,\"y' as q";

/// A special value affects no other value, and no value is changed; columns keep the order of the statement.
#[test]
fn values_match_the_engine_exactly() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-values");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    for how in [sql, sql_program] {
        let out = succeed(&mut how(&engine, &trace, &[VALUES]), 120);
        let line = out
            .lines()
            .find(|line| line.contains("\"z\""))
            .expect("a row");
        assert_eq!(
            line.trim(),
            "{\"z\":\"NaN\",\"y\":\"Infinity\",\"x\":\"-Infinity\",\"d\":1.50,\
             \"w\":12345678901234567890123456789012345678,\"l\":[18446744073709551616],\"i\":\"00:00:00.000001\",\
             \"b\":\"6162\",\"a\":1,\"a_1\":2,\"n\":null,\"t\":\"2026-11-27 08:15:00.5\",\"q\":\"x,\\\"y\"}"
        );
        let csv = |statement: &str| {
            let mut command = how(&engine, &trace, &[statement, "--csv"]);
            // `--json` and `--csv` are two formats of the same answer.
            let mut plain = brunt();
            plain.args(command.get_args().skip(1));
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => plain.env(name, value),
                    None => plain.env_remove(name),
                };
            }
            command = plain;
            succeed(&mut command, 120)
        };
        assert_eq!(
            csv(VALUES),
            "z,y,x,d,w,l,i,b,a,a_1,n,t,q\n\
             NaN,Infinity,-Infinity,1.50,12345678901234567890123456789012345678,[18446744073709551616],\
             00:00:00.000001,6162,1,2,,2026-11-27 08:15:00.5,\"x,\"\"y\"\n"
        );
        assert_eq!(csv("select 1 as a where false"), "a\n");
        let none = rows(how(&engine, &trace, &["select 1 as a where false"]));
        assert_eq!(none, Vec::<Value>::new());
    }
    for server in &servers() {
        let statement = "select 1 as z, cast('NaN' as double) as y, 2 as a, 3 as a, \
                         cast('12345678901234567890123456789012345678' as decimal(38, 0)) as w";
        let out = succeed(&mut sql_at(server, &trace, &[statement]), 120);
        assert!(
            out.contains(
                "{\"z\":1,\"y\":\"NaN\",\"a\":2,\"a_1\":3,\"w\":12345678901234567890123456789012345678}"
            ),
            "{server:?}: {out}"
        );
    }
}

/// A file of rows gets its name only once it is complete: a rejected statement leaves the existing file unchanged,
/// and nothing else behind.
#[test]
fn rows_are_kept_as_parquet() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-parquet");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let kept = folder.join("kept");
    std::fs::create_dir(&kept).expect("a folder");
    let file = kept.join("it's.parquet");
    let path = file.to_str().expect("plain");
    for how in [sql, sql_program] {
        let out = succeed(&mut how(&engine, &trace, &["mix", "--parquet", path]), 120);
        let answer: Value = serde_json::from_str(&out).expect("one object");
        let mix = rows(how(&engine, &trace, &["mix"]));
        assert_eq!(answer["rows_count"], mix.len(), "{answer}");
        let from = format!("select * from read_parquet('{}')", path.replace('\'', "''"));
        assert_eq!(rows(how(&engine, &trace, &[&from])), mix);
        let before = std::fs::read(&file).expect("the file");
        let refused = run_within(
            &mut how(&engine, &trace, &["select x", "--parquet", path]),
            120,
        );
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(std::fs::read(&file).expect("the file"), before);
        assert_eq!(std::fs::read_dir(&kept).expect("a folder").count(), 1);
    }
}

/// A statement can come from a file, from standard input, or from the command line.
#[test]
fn statements_come_from_files_and_pipes() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-statements");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let statement = "-- how many\nselect count(*) as n\nfrom operations;\n";
    let file = folder.join("question.sql");
    std::fs::write(&file, statement).expect("a file");
    let expected = rows(sql(&engine, &trace, &[statement]));
    let path = file.to_str().expect("plain");
    assert_eq!(rows(sql(&engine, &trace, &["-f", path])), expected);
    for arguments in [&["-"][..], &["-f", "-"]] {
        let mut command = sql(&engine, &trace, arguments);
        let input = std::fs::File::open(&file).expect("the file");
        let out = command.stdin(input).output().expect("it starts");
        let answer: Value = serde_json::from_slice(&out.stdout).expect("one object");
        assert_eq!(answer["rows"], Value::from(expected.clone()), "{out:?}");
    }
    let both = run_within(&mut sql(&engine, &trace, &["mix", "--csv"]), 120);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    std::fs::write(&file, " \n").expect("a file");
    let empty = run_within(&mut sql(&engine, &trace, &["-f", path]), 120);
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
}

/// Tables of traces and of results are listed without any engine, under the names used in statements.
#[test]
fn tables_are_listed() {
    let folder = TempDir::new("sql-tables");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let list = |more: &[&str]| {
        let mut command = brunt();
        command.args(more).arg("sql").arg(&trace).arg("--tables");
        succeed(command.env("PATH", "").env_remove("BRUNT_DUCKDB"), 60)
    };
    let listed: Value = serde_json::from_str(&list(&["--json"])).expect("one object");
    let tables = listed["tables"].as_array().expect("a list");
    let operations = tables
        .iter()
        .find(|table| table["name"] == "operations")
        .expect("operations");
    assert_eq!(operations["parts"], 1);
    let columns = operations["columns"].as_array().expect("a list");
    assert!(
        columns
            .iter()
            .any(|column| column["name"] == "latency_ns" && column["type"] == "BIGINT")
    );
    let lines = list(&[]);
    for table in tables {
        let name = table["name"].as_str().expect("a name");
        assert!(
            lines.lines().any(|line| line.starts_with(name)),
            "{name}: {lines}"
        );
    }
}

/// More rows than should be kept in memory.
const MANY: &str = "select i, i * 2 as j, 'some text ' || i as t from range(300000) as r(i)";

/// Memory does not grow with the number of rows: it is measured while the reader of the answer waits.
#[test]
fn many_rows_take_little_memory() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-memory");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let mut command = sql(&engine, &trace, &[MANY]);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("some text 0")));
    assert!(first.is_some(), "no rows");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.0.id())).expect("it runs");
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    let peak_kib: u64 = peak
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    // The rows alone are 20 MB as JSON text, and ten times as much as parsed JSON.
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB");
    assert_eq!(
        lines
            .filter(|line| line.as_ref().is_ok_and(|line| line.contains("some text")))
            .count(),
        299_999
    );
}

/// Integers of 39 digits, which no number type in the transfer format can represent, neither fail the answer nor lose
/// a digit.
#[test]
fn the_widest_integers_keep_their_digits() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-wide");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let statement = "select 170141183460469231731687303715884105727::hugeint as h, \
                     [-170141183460469231731687303715884105727::hugeint] as l, 1 as a";
    for how in [sql, sql_program] {
        let out = succeed(&mut how(&engine, &trace, &[statement]), 120);
        for expected in [
            "170141183460469231731687303715884105727",
            "-170141183460469231731687303715884105727",
            "\"a\":1",
        ] {
            assert!(out.contains(expected), "{out}");
        }
    }
}

/// A process that is killed even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process is running; a process that has ended may still be in the process table.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !(state.is_empty() || state.starts_with(['Z', 'X']))
}

/// The engine process of a `brunt`, once it runs the engine: a child of the guard, which is a child of `brunt`.
fn engine_of(brunt: u32) -> Option<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(") ").next()?;
        rest.split(' ').nth(1)?.parse().ok()
    };
    processes().find(|pid| {
        let is_engine = std::fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| exe != Path::new(env!("CARGO_BIN_EXE_brunt")));
        is_engine && parent(*pid).and_then(parent) == Some(brunt)
    })
}

/// A query that would run practically forever ends with the program: at once on Ctrl-C, SIGTERM or a closing
/// terminal, and also if the program is killed. The engine's command line in process lists is short.
#[test]
fn an_interrupt_ends_the_engine() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-interrupt");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let scratch = folder.join("scratch");
    std::fs::create_dir(&scratch).expect("a folder");
    let endless = "select count(*) from range(1000000000000000) a, range(1000000000000000) b where a.range = b.range + 1";
    for how in [sql, sql_program] {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
            let asked = how(&engine, &trace, &[endless]);
            // The tests may run with SIGHUP ignored (`nohup`).
            let mut command = Command::new("/usr/bin/env");
            command
                .arg("--default-signal=HUP")
                .arg(asked.get_program())
                .args(asked.get_args());
            for (name, value) in asked.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command
                .env("TMPDIR", &scratch)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = Killed(command.spawn().expect("it starts"));
            let mut found = None;
            eventually("the engine starts", 60, || {
                // The version check may come first.
                found = engine_of(child.0.id()).filter(|pid| {
                    let words = words_of(*pid);
                    words
                        .iter()
                        .any(|word| word == "-bail" || word.ends_with("engine.py"))
                });
                found.is_some()
            });
            let pid = found.expect("it was found");
            let words = words_of(pid).join(" ");
            assert!(words.len() < 300 && !words.contains('\n'), "{words}");
            kill_process(Pid::from_child(&child.0), signal).expect("it runs");
            let status = child.0.wait().expect("a child of ours");
            let expected = (signal != Signal::KILL).then_some(1);
            assert_eq!(status.code(), expected, "{signal:?}");
            eventually("the engine ends", 60, || !is_running(pid));
        }
    }
    // The killed process could not clean up; the others did.
    assert_eq!(std::fs::read_dir(&scratch).expect("a folder").count(), 2);
}

/// Processes that an engine starts also end with the program: an engine may be a script around the real one.
#[test]
fn an_engine_behind_a_script_ends_with_the_program() {
    let folder = TempDir::new("sql-script");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let script = folder.join("engine");
    let real = folder.join("pid");
    // Not `exec`: the real engine must be a child of the script.
    let text = format!(
        "#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n",
        real.display()
    );
    std::fs::write(&script, text).expect("a file");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("its owner");
    for signal in [Signal::INT, Signal::KILL] {
        let _ = std::fs::remove_file(&real);
        let child = brunt()
            .arg("sql")
            .arg(&trace)
            .arg("select 1")
            .env("BRUNT_DUCKDB", &script)
            .stderr(Stdio::null())
            .spawn();
        let mut child = Killed(child.expect("it starts"));
        let mut pid = None;
        eventually("the engine starts", 60, || {
            let text = std::fs::read_to_string(&real).unwrap_or_default();
            pid = text.trim().parse().ok();
            pid.is_some()
        });
        let pid = pid.expect("it was found");
        assert!(is_running(pid));
        kill_process(Pid::from_child(&child.0), signal).expect("it runs");
        child.0.wait().expect("a child of ours");
        eventually("the engine ends", 60, || !is_running(pid));
    }
}

/// Whether SIGINT was sent to a process, but not delivered yet.
fn has_pending_interrupt(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGINT is signal 2, and bit 0 is signal 1.
    mask.is_some_and(|mask| mask & 0b10 != 0)
}

/// An interrupt also ends the printing of an answer, and the wait for a statement.
#[test]
fn an_interrupt_ends_printing() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-interrupt-printing");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let many = MANY.replace("300000", "1000000");
    let mut command = sql(&engine, &trace, &[&many]);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("some text 0")));
    kill_process(Pid::from_child(&child.0), Signal::INT).expect("it runs");
    // Until the signal is delivered, nobody reads, so that printing doesn't progress.
    eventually("the signal is delivered", 60, || {
        !has_pending_interrupt(child.0.id())
    });
    let more = lines.count();
    assert!(more < 950_000, "{more}");
    assert_eq!(child.0.wait().expect("a child of ours").code(), Some(1));
}

/// A reader that closes early ends the program, which leaves nothing behind.
#[test]
fn a_reader_that_goes_away_leaves_no_files() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-head");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let scratch = folder.join("scratch");
    std::fs::create_dir(&scratch).expect("a folder");
    for more in [&[MANY][..], &["select * from range(100000)", "--csv"]] {
        let mut command = sql(&engine, &trace, &[]);
        if more.contains(&"--csv") {
            command = brunt();
            command.arg("sql").arg(&trace);
            command
                .env("BRUNT_PYTHON", engine.join("python"))
                .env("PATH", &trace);
        }
        command
            .args(more)
            .env("TMPDIR", &scratch)
            .stdout(Stdio::piped());
        let mut child = Killed(command.spawn().expect("it starts"));
        let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
        assert!(lines.next().is_some_and(|line| line.is_ok()));
        drop(lines);
        assert_eq!(child.0.wait().expect("a child of ours").code(), Some(1));
        assert_eq!(std::fs::read_dir(&scratch).expect("a folder").count(), 0);
    }
}

/// The values are JSON numbers, for readers that need numbers.
#[test]
fn an_answer_is_one_object() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-object");
    let (trace, _) = trace(&folder, "nfs3-small.pcap.zst", &[]);
    let answer = rows(sql(
        &engine,
        &trace,
        &["select 1 as b, 0.1::double as a union all select 2, 1e300"],
    ));
    assert_eq!(
        answer,
        [json!({ "b": 1, "a": 0.1 }), json!({ "b": 2, "a": 1e300 })]
    );
    let mut child = sql(&engine, &trace, &["-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Killed)
        .expect("it starts");
    let mut stdin = child.0.stdin.take().expect("piped");
    stdin.write_all(b"select 'a' as x").expect("it reads");
    drop(stdin);
    let out = std::io::read_to_string(child.0.stdout.take().expect("piped")).expect("text");
    assert!(out.contains("{\"x\":\"a\"}"), "{out}");
}
