//! Runs the program `brunt-bench` as a user does. The measurements themselves are tested in the `brunt` crate.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt-bench"));
    command
        .args(arguments)
        .output()
        .expect("brunt-bench starts")
}

#[test]
fn a_mistake_exits_with_2_and_is_one_object_with_json() {
    let output = bench(&["--json", "capture", "--loss=101"]);
    assert_eq!(output.status.code(), Some(2));
    let found: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(
        found["error"]
            .as_str()
            .is_some_and(|what| what.contains("percent"))
    );
    assert_eq!(bench(&["nothing"]).status.code(), Some(2));
}

#[test]
fn a_subject_prints_its_figures_as_one_object() {
    let output = bench(&["--json", "load", "--only", "null", "--rounds", "2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice::<Value>(&output.stdout).expect("one object");
}

/// Subjects that take long between checks for Ctrl-C, or that start other programs.
const LONG: &[&[&str]] = &[
    &["iscsi", "--rounds", "50"],
    &["nbd", "--rounds", "50"],
    &["capture", "--quick"],
    &["hosts"],
    &["page"],
    &["load", "--rounds", "50"],
    &["verdicts"],
];

/// Waits until a program catches SIGINT, or has ended.
fn until_it_catches_interrupts(process: &mut Child) {
    let status = format!("/proc/{}/status", process.id());
    let catches = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // Signal 1 is bit 0 (proc_pid_status(5)); SIGINT is signal 2.
        mask.is_some_and(|mask| mask & 2 != 0)
    };
    while !catches() && process.try_wait().expect("a child of ours").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A single SIGINT ends every subject within seconds, at any moment, and nothing is left behind.
#[test]
fn one_interrupt_ends_a_subject_and_leaves_nothing() {
    for (index, arguments) in LONG.iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = Command::new(env!("CARGO_BIN_EXE_brunt-bench"))
            .args(*arguments)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("brunt-bench starts");
        until_it_catches_interrupts(&mut process);
        std::thread::sleep(Duration::from_millis(100 + 300 * index as u64));
        let begin = Instant::now();
        let id = process.id();
        // Fails if the subject has already ended because programs that it needs are missing here.
        let _ = kill_process(Pid::from_child(&process), Signal::INT);
        let output = process.wait_with_output().expect("a child of ours");
        let took = begin.elapsed();
        let said = String::from_utf8_lossy(&output.stderr);
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("it is there")
            .chain(std::fs::read_dir("/dev/shm").expect("Linux"))
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("brunt-bench-") && name.ends_with(&format!("-{id}")))
            .collect();
        assert!(left.is_empty(), "{arguments:?} left {left:?}");
        if matches!(output.status.code(), Some(1 | 2)) {
            assert!(!said.contains("interrupted"), "{arguments:?}: {said}");
            continue;
        }
        assert_eq!(
            output.status.code(),
            Some(130),
            "{arguments:?}: {said} {:?}",
            output.status.signal()
        );
        assert!(said.contains("interrupted"), "{arguments:?}: {said}");
        // Two seconds of patience, plus time for an otherwise busy machine.
        assert!(took < Duration::from_secs(60), "{arguments:?}: {took:?}");
    }
}
