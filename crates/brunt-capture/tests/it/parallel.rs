//! Several parsers find the same operations as a single one.

use crate::common;
use std::path::Path;

use brunt_capture::{Analysis, Limits, Parsers, Placement, run_file, run_file_parallel};
use serde_json::Value;

/// The merged report of all parsers, as programs see it.
fn report(path: &Path, parsers: usize) -> Value {
    let sinks = (0..parsers).map(|_| Analysis::new()).collect();
    let outcome = run_file_parallel(path, sinks, Limits::default(), None, || false).unwrap();
    assert!(outcome.damage.is_none());
    outcome.shares.ledger.check().unwrap();
    let mut sinks = outcome.shares.sinks.into_iter();
    let mut all = sinks.next().unwrap();
    sinks.for_each(|sink| all.merge(sink));
    serde_json::to_value(all.report(&outcome.shares.ledger)).unwrap()
}

/// Removes what depends on which connections were analysed together: the peak of outstanding calls, and a file's
/// latencies, which each parser records from the file's 32nd operation on.
fn without_concurrency(mut report: Value) -> Value {
    let profile = report["profile"].as_object_mut().unwrap();
    profile.remove("outstanding_max").unwrap();
    for row in report["files"]["top"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("latency").unwrap();
    }
    report
}

fn check(path: &Path) {
    let outcome = run_file(path, Analysis::new(), Limits::default(), || false).unwrap();
    let alone = serde_json::to_value(outcome.sink.report(&outcome.ledger)).unwrap();
    let alone = without_concurrency(alone);
    for parsers in [1, 2, 5] {
        let together = without_concurrency(report(path, parsers));
        for (key, value) in alone.as_object().unwrap() {
            assert_eq!(
                &together[key],
                value,
                "{key} of {} by {parsers}",
                path.display()
            );
        }
    }
}

/// Reports are equal, figure by figure, for any number of parsers.
#[test]
fn reports_are_equal_for_any_number_of_parsers() {
    check(&common::small_piece());
    check(&common::small_compounds());
}

/// Reports of tens of thousands of operations, with losses and retransmissions, are equal for any number of parsers.
#[test]
fn reports_of_larger_captures_are_equal() {
    for name in ["retx-small.pcap.zst", "retx-tput.pcap.zst"] {
        if let Some(path) = common::shared(name) {
            check(&path);
        }
    }
}

/// After a stop, everything read so far is processed, and the counters add up.
#[test]
fn a_stopped_run_processes_everything_that_was_read() {
    let path = common::small_compounds();
    let mut rounds = 0;
    let sinks = vec![Analysis::new(), Analysis::new()];
    let outcome = run_file_parallel(&path, sinks, Limits::default(), None, || {
        rounds += 1;
        rounds > 1
    });
    let ledger = outcome.unwrap().shares.ledger;
    ledger.check().unwrap();
    assert!(
        ledger.packets > 0 && ledger.packets < 2000,
        "{}",
        ledger.packets
    );
}

/// Parsers placed on cores have one CPU each; otherwise, the kernel may move them.
#[test]
fn parsers_run_where_they_are_placed() {
    for (placement, cpus) in [(Placement::Core, 1), (Placement::Anywhere, 0)] {
        let sinks = vec![Analysis::new(), Analysis::new()];
        let parsers = Parsers::start(sinks, Limits::default(), 4, placement);
        let counts = parsers.snapshot().schedulers;
        let counts: Vec<_> = counts.iter().map(|one| one.cpus.len()).collect();
        assert_eq!(counts, [cpus; 2], "{placement:?}");
        assert_eq!(parsers.finish().unwrap().sinks.len(), 2);
    }
}
