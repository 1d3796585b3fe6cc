//! Requests experience the effect of each storage fault in an experiment, and the run records it; if the fault can
//! affect no request, the run is invalid.

use super::*;

/// The keys of a load for a run in which the fault lasts, in the first attempt, from 100 to 300 ms.
fn load(more: &str, slower: u32) -> String {
    format!(
        "{more}\ninterval = \"20ms\"\nstop = {{ time = \"{}ms\" }}",
        400 * slower
    )
}

const DEVICE: &str = "memory:4MiB?delay=const:100us";

/// Lost requests have the right cause, both in each run and in the results.
#[test]
fn words_are_met() {
    let mixed = "read = 0.5";
    let verified = "read = 0.5\nverify = {}\nregion = { length = \"64KiB\" }";
    for (word, more, lost_as) in [
        ("not-ready,p=0.5", "", "scsi"),
        ("unit-attention", "", "scsi"),
        ("task-set-full,p=0.5", "", "scsi"),
        ("sense:3/14/01,p=0.5", "", "scsi"),
        ("errno:ENOSPC,op=write", mixed, "os"),
        ("bad-blocks:50%", mixed, "scsi"),
        ("flaky:10ms/10ms", "", "os"),
        ("flaky:10ms/10ms/drop", verified, "miscompare"),
        ("misdirect:8", verified, "miscompare"),
    ] {
        let summary = again(|slower| {
            let fault = timed(word, 100 * slower, 200 * slower);
            let ran = run("words", DEVICE, &load(more, slower), &fault, false);
            ran.nothing_is_left();
            // A fault that came late and affected only a few requests may have changed no data that is read again.
            meant(ran.summary()?, |summary| {
                summary.points[0]
                    .runs
                    .iter()
                    .all(|run| run.losses.contains_key(lost_as))
            })
        });
        for run in &summary.points[0].runs {
            let [fault] = run.faults.as_slice() else {
                panic!("{word}: {:?}", run.faults)
            };
            assert!(
                run.losses.keys().all(|name| name == lost_as),
                "{word}: {:?}",
                run.losses
            );
            assert_eq!(fault.kind, "storage", "{word}");
            assert!(
                fault.shown_by.starts_with("affected "),
                "{word}: {}",
                fault.shown_by
            );
            assert!(
                fault.gone_by.ends_with("it is disarmed"),
                "{word}: {}",
                fault.gone_by
            );
            assert!(
                fault.start_s >= 0.1 && fault.end_s >= Some(0.3),
                "{word}: {fault:?}"
            );
            if word == "unit-attention" {
                assert_eq!(
                    run.losses[lost_as], 1,
                    "the one worker's device says it once"
                );
            }
        }
    }
}

/// The canary: the fault could affect no request of the run.
#[test]
fn words_that_cannot_be_met() {
    let reads = "read = 1.0\nregion = { length = \"1MiB\" }";
    for word in [
        "not-ready,op=flush",
        "unit-attention,op=unmap",
        "task-set-full,p=0.000000001",
        "sense:3/14/01,lba=8000-8001",
        "errno:ENOSPC,op=write",
        "bad-blocks,lba=8000-8001",
        "flaky:1h/1ms",
        "flaky:10ms/10ms/drop",
        "misdirect",
    ] {
        again(|slower| {
            let fault = timed(word, 100 * slower, 200 * slower);
            let ran = run("not met", DEVICE, &load(reads, slower), &fault, false);
            ran.nothing_is_left();
            let error = ran
                .result
                .err()
                .unwrap_or_else(|| panic!("{word} went through"));
            let StudyError::Hook { source, .. } = &error else {
                panic!("{word}: {error}")
            };
            assert_eq!(source.reason, VoidReason::FaultUnseen, "{word}: {error}");
            // On a busy machine, the fault may also be too late for its run.
            meant(error.to_string(), |text| {
                text.contains("had no visible effect")
            })
        });
    }
}
