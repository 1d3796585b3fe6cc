//! Tests of the memory hog and its helper process, a second instance of this program.

use std::fs;

use brunt_core::Clock;
use brunt_lab::faults::MemoryHog;
use brunt_lab::{Fault, FaultError};

use crate::Test;

/// Below any usual limit of locked memory.
const BYTES: u64 = 4 << 20;

/// `refuses_more_than_the_limit` lowers a limit of the process, so it runs last.
pub const TESTS: [Test; 2] = [
    ("locks_and_gives_back", locks_and_gives_back),
    ("refuses_more_than_the_limit", refuses_more_than_the_limit),
];

/// A field of this process's status, in KiB.
fn own(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Processes started by this one that have not been waited for.
fn children() -> String {
    fs::read_to_string("/proc/thread-self/children").unwrap_or_default()
}

/// The kernel counts the memory as locked, but not by this process, which neither grows nor locks anything; the memory
/// is freed when the helper ends, or when the fault is dropped.
fn locks_and_gives_back() {
    let (clock, locked) = (Clock::default(), own("VmLck:"));
    let mut hog = MemoryHog::new(BYTES);
    let proof = match hog.inject(&clock) {
        Ok(proof) => proof,
        Err(error) => {
            assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
            println!("skipped: {error}");
            return;
        }
    };
    assert!(proof.value.unwrap() >= BYTES as f64, "{proof:?}");
    assert_eq!(
        own("VmLck:"),
        locked,
        "the memory is locked by another process"
    );
    assert!(matches!(hog.inject(&clock), Err(FaultError::Misuse { .. })));
    assert!(hog.remove(&clock).unwrap().value.unwrap() >= BYTES as f64);
    assert!(matches!(hog.remove(&clock), Err(FaultError::Misuse { .. })));
    assert_eq!(children(), "");
    let mut dropped = MemoryHog::new(BYTES);
    dropped.inject(&clock).unwrap();
    drop(dropped);
    assert_eq!(children(), "");
}

/// If the helper may not lock the memory, the fault fails with the kernel's error, and no process is left behind.
fn refuses_more_than_the_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = Rlimit {
        current: Some(64 << 10),
        ..getrlimit(Resource::Memlock)
    };
    if setrlimit(Resource::Memlock, limit).is_err() {
        return;
    }
    match MemoryHog::new(BYTES).inject(&Clock::default()) {
        Err(error) => assert!(
            error
                .to_string()
                .contains("write memory = \"64KiB\" or less"),
            "{error}"
        ),
        // The limit doesn't apply to root.
        Ok(proof) => assert!(proof.value.unwrap() >= BYTES as f64, "{proof:?}"),
    }
    assert_eq!(children(), "");
}
