//! Runs that must not pass for successes: data that was lost, and requests that all failed. Every output reports the
//! failure and its cause.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn brunt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Runs a workload on a device; returns the output, the summary, and the folder.
fn run(
    folder: &Path,
    name: &str,
    url: &str,
    workload: &str,
) -> (Output, serde_json::Value, PathBuf) {
    let file = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\nrepetitions = 1\n[targets.t]\nurl = \"{url}\"\n\
         [workloads.w]\nalign = \"4k\"\nqueue_depth = 4\nstop = {{ requests = 2000 }}\n{workload}\n"
    );
    std::fs::write(&file, text).expect("a file");
    let out = folder.join(name);
    let plain = |path: &Path| path.to_str().expect("a plain path").to_string();
    let output = brunt(&["run", &plain(&file), "--out", &plain(&out)]);
    let summary = std::fs::read(out.join("summary.json")).expect("a summary");
    let summary = serde_json::from_slice(&summary).expect("JSON");
    (output, summary, out)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// With a device that forgets writes, the exit status is 1, and every output reports the wrong data.
#[test]
fn wrong_data_fails_the_run_and_is_located_in_every_output() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (output, summary, out) = run(
        scratch.path(),
        "forgets",
        "null:1MiB",
        "read = 0.5\nverify = {}",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let verified = &summary["points"][0]["runs"][0]["verified"];
    let number = |key: &str| verified[key].as_u64().expect("a number");
    assert!(number("checked_bytes") > 0 && number("wrong_bytes") == number("checked_bytes"));
    let first = &verified["extents"][0];
    assert_eq!(first["found"], "zeros");
    let place = format!("{} bytes at {}: zeros", first["bytes"], first["offset"]);
    let (said, table) = (text(&output.stderr), text(&output.stdout));
    assert!(
        said.contains("wrong data: ") && said.contains(&place),
        "{said}"
    );
    assert!(
        table.contains("verified: ") && table.contains(&place),
        "{table}"
    );
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("wrong data: ") && page.contains("The first ranges of wrong data"));
    let out = out.to_str().expect("plain");
    let compared = text(&brunt(&["compare", out, out]).stderr);
    assert!(compared.contains("wrong data: "), "{compared}");
    let sql = brunt(&[
        "--json",
        "sql",
        out,
        "select wrong_bytes, first_wrong_offset from runs",
    ]);
    if sql.status.success() {
        let told = text(&sql.stdout);
        assert!(told.contains(&first["offset"].to_string()), "{told}");
    }
}

/// Written zeros and trimmed blocks don't disturb verification on a correct device; a device that forgets zeros is
/// detected.
#[test]
fn zeroes_and_trims_do_not_disturb_verification() {
    let scratch = tempfile::tempdir().expect("a folder");
    let mixed = "read = 0.4\ntrim = 0.2\nwrite_zeroes = 0.2\nverify = {}";
    let (output, summary, _) = run(scratch.path(), "honest", "memory:1MiB", mixed);
    assert!(output.status.success(), "{output:?}");
    let verified = &summary["points"][0]["runs"][0]["verified"];
    assert!(
        verified["checked_bytes"].as_u64() > Some(100 << 12),
        "{verified}"
    );
    assert_eq!(verified["wrong_bytes"], 0);
    let (output, ..) = run(
        scratch.path(),
        "forgets",
        "memory:1MiB?fault=drop,op=unmap",
        mixed,
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (output, _, _) = run(
        scratch.path(),
        "journal",
        "memory:1MiB",
        "read = 0.4\nverify = {}",
    );
    assert!(output.status.success(), "{output:?}");
}

/// A run whose writes all fail doesn't exit with 0, even though its reads succeed, and says why the writes failed.
#[test]
fn requests_that_all_fail_fail_the_run_with_their_cause() {
    let scratch = tempfile::tempdir().expect("a folder");
    let url = "memory:1MiB?fault=errno:ENOSPC,op=write";
    let (output, summary, out) = run(scratch.path(), "full", url, "read = 0.5");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cause = &summary["points"][0]["runs"][0]["causes"][0];
    assert_eq!(
        (&cause["op"], &cause["status"]),
        (&"write".into(), &"os".into())
    );
    let words = "ENOSPC: No space left on device";
    assert_eq!(cause["cause"], words);
    let said = text(&output.stderr);
    assert!(
        said.contains("every write failed in 1 of 1 runs (os: ENOSPC"),
        "{said}"
    );
    let table = text(&output.stdout);
    assert!(table.contains(words), "{table}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("Failed requests by cause") && page.contains(words));
    // A few failed requests are reported, but don't fail the run.
    let some = "memory:1MiB?fault=errno:EIO,op=write,p=0.1,seed=1";
    let (output, ..) = run(scratch.path(), "some", some, "read = 0.5");
    assert!(output.status.success(), "{output:?}");
}

/// A missed requirement fails the run, and every output reports it; a requirement that a single run can't decide
/// fails the run only on request.
#[test]
fn a_missed_requirement_fails_the_run() {
    let scratch = tempfile::tempdir().expect("a folder");
    let run = |name: &str, more: &[&str]| {
        let out = scratch.path().join(name);
        let measure = ["measure", "null:1MiB", "--time", "250ms", "--out"];
        let mut words = measure.to_vec();
        words.push(out.to_str().expect("a plain path"));
        words.extend(more);
        (brunt(&words), out)
    };
    // The interval of the mean is within this bound even if the rates of the runs differ widely.
    let rate = "iops below 1000000000000";
    let (output, _) = run("met", &["--require", "max below 1h", "--require", rate]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let met = format!("required: null-1MiB randread: {rate}: met (");
    assert!(text(&output.stdout).contains(&met), "{output:?}");
    let (output, out) = run("missed", &["--require", "read max below 1ns"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("required of null-1MiB randread: read max below 1ns: missed ("),
        "{said}"
    );
    let summary = std::fs::read(out.join("summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    assert_eq!(summary["requirements"][0]["verdict"], "missed");
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("Thresholds of the experiment"));
    let single = ["--reps", "1", "--require", "mean below 1h"];
    let (output, _) = run("open", &single);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("undecided ("), "{output:?}");
    let (output, _) = run("strict", &[&single[..], &["--fail-undecided"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
