//! Tests of verification itself: a load has to detect a device that corrupts data, and must not blame a good one.

use std::sync::atomic::AtomicBool;

use brunt_block::open_url;
use brunt_load::block::workload::{StopCondition, VerifySettings};
use brunt_load::{NoRecorder, Session, Workload};
use brunt_result::RequestStatus;

/// Runs verified random reads and writes on a device; returns the number of reads with wrong data and of failed
/// requests.
fn verify(url: &str) -> (u64, u64) {
    let workload = Workload {
        read: 0.5,
        queue_depth: 8,
        stop: StopCondition {
            requests: Some(10_000),
            ..StopCondition::default()
        },
        verify: Some(VerifySettings::default()),
        ..Workload::default()
    };
    let session = Session::new(workload, open_url(url).unwrap(), 1);
    let outcome = session
        .run(&AtomicBool::new(false), &mut NoRecorder)
        .unwrap();
    let counts = outcome.figures.counts;
    let wrong = counts.of(RequestStatus::Miscompare);
    (wrong, counts.errors() - wrong)
}

/// Every way of losing or changing data silently is detected.
#[test]
fn every_silent_corruption_is_detected() {
    for lie in [
        "corrupt,op=read",
        "corrupt,op=write",
        "drop",
        "torn:1",
        "misdirect",
        "flaky:1us/1000s/drop",
    ] {
        let (wrong, failed) = verify(&format!("memory:4MiB?fault={lie},p=0.02,seed=3"));
        assert!(wrong > 0, "{lie} went unseen");
        assert_eq!(failed, 0, "{lie}");
    }
}

/// Errors count as errors and delays as delays; neither is mistaken for wrong data.
#[test]
fn errors_and_delays_are_not_mistaken_for_wrong_data() {
    let check = |faults: &str, fails: bool| {
        let (wrong, failed) = verify(&format!("memory:4MiB?fault={faults}"));
        assert_eq!((wrong, failed > 0), (0, fails), "{faults}");
    };
    check("off", false);
    check("medium-error,p=0.02,seed=4", true);
    check("recovered-error,p=0.2", false);
    check("slow:100us,p=0.1", false);
    check("bad-blocks:1%,seed=4", true);
    check("not-ready,p=0.02,seed=4", true);
    check("unit-attention&retry=1", false);
    check("aborted-command,p=0.2&retry=20", false);
}

/// An array that loses a member under load, runs degraded and rebuilds at the same time loses no data.
#[test]
fn a_rebuilding_array_loses_no_data() {
    let dies = "?fault=hardware-error,op=write,every=2000,times=1";
    for (level, others) in [("raid1", 1), ("raid5", 2), ("raid5", 4)] {
        let others = ",[memory:4MiB]".repeat(others);
        let url =
            format!("array:{level},rebuild=20MB,[memory:4MiB{dies}]{others},spare=[memory:4MiB]");
        assert_eq!(verify(&url), (0, 0), "{level}");
    }
}
