//! Machines without io_uring: everything that makes or serves requests works there by threads, and what needs a ring says
//! so. The program runs under a seccomp filter that refuses io_uring as sysctl, Docker and Podman do, or kills it.

use std::process::Command;

use crate::support::{Target, TempDir, brunt, need, root, run_within, succeed};
use serde_json::Value;

/// EPERM, ENOSYS, SIGSYS.
const REFUSALS: [&str; 3] = ["1", "38", "kill"];

/// The program, where io_uring is refused in this way.
fn without_io_uring(refusal: &str) -> Command {
    let mut command = Command::new(root().join("tools/without-io-uring.py"));
    command.arg(refusal).arg(brunt().get_program());
    command
}

#[test]
fn without_io_uring_devices_and_targets_work_by_threads() {
    if need("python3", "python3").is_none() {
        return;
    }
    for refusal in REFUSALS {
        let folder = TempDir::new("engines");
        let disk = folder.join("disk.img").display().to_string();
        let lun = format!("{disk}?size=8MiB&create=yes");
        let target = Target::start_by(
            without_io_uring(refusal),
            &["--lun", &lun, "--lun", "memory:8MiB"],
        );
        for (url, length) in [
            (
                format!(
                    "{}?size=4MiB&create=yes",
                    folder.join("other.img").display()
                ),
                "4MiB",
            ),
            (target.url(0), "8MiB"),
            (target.url(1), "8MiB"),
        ] {
            let io = |verb: &str| {
                let mut command = without_io_uring(refusal);
                command.args(["io", verb, &url, "--length", length, "--bs", "64k"]);
                command
            };
            succeed(&mut io("write"), 60);
            succeed(&mut io("verify"), 60);
        }
    }
}

#[test]
fn without_io_uring_experiments_run_by_threads() {
    if need("python3", "python3").is_none() {
        return;
    }
    let folder = TempDir::new("engines");
    let file = folder.join("x.toml");
    let disk = folder.join("disk.img").display().to_string();
    let text = format!(
        r#"
        name = "x"
        [targets.file]
        url = "{disk}?size=8MiB&create=yes"
        [targets.lun]
        serve = "memory:8MiB"
        [workloads.mixed]
        read = 0.5
        queue_depth = 4
        verify = {{}}
        stop = {{ requests = 400 }}
        "#
    );
    std::fs::write(&file, text).unwrap();
    let out = folder.join("results");
    let mut run = without_io_uring("1");
    run.arg("run").arg(&file).arg("--out").arg(&out);
    succeed(&mut run, 120);
    let summary: Value =
        serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["complete"], true);
    for point in summary["points"].as_array().unwrap() {
        let completed = |op: &Value| op["completed"].as_u64().unwrap();
        let ops = point["runs"][0]["ops"].as_array().unwrap();
        assert_eq!(ops.iter().map(completed).sum::<u64>(), 400);
    }
}

#[test]
fn what_needs_io_uring_is_refused_by_name() {
    if need("python3", "python3").is_none() {
        return;
    }
    let check = |arguments: &[&str], said: &str| {
        let output = run_within(without_io_uring("1").args(arguments), 30);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(said),
            "{arguments:?}: {error}"
        );
    };
    let read = ["io", "read", "memory:1MiB"];
    check(
        &[&read[..], &["--engine", "io_uring"]].concat(),
        "kernel.io_uring_disabled",
    );
    check(
        &[&read[..], &["--poll", "thread"]].concat(),
        "--poll thread is a mode of engine io_uring",
    );
    check(
        &[&read[..], &["--poll", "device"]].concat(),
        "--poll device is a mode of engine io_uring",
    );
    check(
        &["target", "--lun", "memory:1MiB", "--engine", "io_uring"],
        "engine io_uring",
    );
    let output = run_within(brunt().args(read).env("BRUNT_ENGINE", "fast"), 30);
    assert_eq!(output.status.code(), Some(2));
    let output = run_within(
        brunt()
            .args(read)
            .args(["--poll", "thread", "--engine", "threads"]),
        30,
    );
    assert_eq!(output.status.code(), Some(2));
}
