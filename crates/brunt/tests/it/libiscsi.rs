//! libiscsi's conformance suite against Brunt's target: Debian 12's 1.19 and, if installed, Debian 13's 1.20, on LUNs
//! of every shape that the tests need.
//!
//! The suite counts skipped tests as passed, and prints most skips only with `-V`. These tests read each result from
//! the verbose output and compare it with [`ALLOWED`], which gives the reason for each test that doesn't pass. An
//! entry in that table that is no longer needed also fails the test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{CHAP, Target, need, root, run_within, skip};

/// The result of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// The test ended, but skipped some steps.
    Skipped,
    Failed,
}

/// Tests that don't pass: shape of the LUN, test or whole suite, reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    // A removable, thin, writable LUN without CHAP: runs all tests except those that need a LUN without one of these
    // properties.
    (
        "thin",
        "ReadOnly.ReadOnlySBC",
        "wants a read-only LUN: run in the shape 'read-only'",
    ),
    (
        "thin-1.20",
        "ReadOnly.ReadOnlySBC",
        "wants a read-only LUN: run in the shape 'read-only'",
    ),
    (
        "thin-1.20",
        "iSCSICHAP.*",
        "wants CHAP: run in the shape 'chap'",
    ),
    (
        "thin-1.20",
        "iSCSITMF.L*",
        "1.20 logs out for good in the test before: run alone in the shape 'alone'",
    ),
    (
        "chap",
        "ReadOnly.ReadOnlySBC",
        "wants a read-only LUN: run in the shape 'read-only'",
    ),
    (
        "chap",
        "iSCSITMF.L*",
        "1.20 logs out for good in the test before: run alone in the shape 'alone'",
    ),
    (
        "chap",
        "Sanitize.*",
        "erases for minutes; run in the shape 'thin'",
    ),
    // Thick: nothing can be unmapped, and the medium is fixed.
    (
        "thick",
        "ReadOnly.ReadOnlySBC",
        "wants a read-only LUN: run in the shape 'read-only'",
    ),
    (
        "thick",
        "iSCSICHAP.*",
        "wants CHAP: run in the shape 'chap'",
    ),
    (
        "thick",
        "iSCSITMF.L*",
        "1.20 logs out for good in the test before: run alone in the shape 'alone'",
    ),
    (
        "thick",
        "Sanitize.*",
        "erases for minutes; run in the shape 'thin'",
    ),
    (
        "thick",
        "CompareAndWrite.InvalidDataOutSize",
        "1.20 wants a thin LUN for it: run in the shape 'thin'",
    ),
    (
        "thick",
        "Inquiry.BlockLimits",
        "its part on unmapping wants a thin LUN: run in the shape 'thin'",
    ),
    (
        "thick",
        "Unmap.Simple",
        "a thick LUN has no UNMAP: run in the shape 'thin'",
    ),
    (
        "thick",
        "Unmap.VPD",
        "a thick LUN has no UNMAP; the test finds that its VPD pages say so",
    ),
    (
        "thick",
        "Unmap.ZeroBlocks",
        "a thick LUN has no UNMAP: run in the shape 'thin'",
    ),
    (
        "thick",
        "GetLBAStatus.*",
        "a thick LUN has no map to ask for: run in the shape 'thin'",
    ),
    (
        "thick",
        "WriteSame10.Unmap*",
        "a thick LUN does not unmap: run in the shape 'thin'",
    ),
    (
        "thick",
        "WriteSame16.Unmap*",
        "a thick LUN does not unmap: run in the shape 'thin'",
    ),
    (
        "thick",
        "WriteSame10.InvalidDataOutSize",
        "tried with the UNMAP bit: run in the shape 'thin'",
    ),
    (
        "thick",
        "WriteSame16.InvalidDataOutSize",
        "tried with the UNMAP bit: run in the shape 'thin'",
    ),
    (
        "thick",
        "PreventAllow.*",
        "wants a removable medium: run in the shape 'thin'",
    ),
    (
        "thick",
        "NoMedia.NoMediaSBC",
        "wants a removable medium: run in the shape 'thin'",
    ),
    (
        "thick",
        "StartStopUnit.*",
        "wants a removable medium: run in the shape 'thin'",
    ),
];

/// Tests in which the suite itself is wrong: shape (`*`: every shape with a suitable LUN), test, and reason.
/// `docs/conformance.md` shows the packets for each.
const FAULTY: &[(&str, &str, &str)] = &[
    (
        "*",
        "GetLBAStatus.UnmapSingle",
        "asks one LBA and expects the map of another when LBPPB > 1; run in 'flat'",
    ),
    (
        "*",
        "WriteSame10.UnmapUntilEnd",
        "writes ones with the UNMAP bit and expects zeros although LBPRZ is set",
    ),
    (
        "thin-1.20",
        "CompareAndWrite.InvalidDataOutSize",
        "1.20 bends every PDU but the command: a sound one arrives, and miscompares; 1.19 bends it, and passes",
    ),
    ("chap", "CompareAndWrite.InvalidDataOutSize", "the same"),
    (
        "*",
        "Sanitize.Reset",
        "with two paths the test before leaves a reservation; run in 'alone'",
    ),
];

/// Results by `Suite.Test`.
type Results = BTreeMap<String, Verdict>;

/// Parses CUnit's verbose output. The suite's own lines are indented; CUnit's verdict is the first unindented text, or
/// follows the test's name.
fn parse(output: &str) -> Results {
    let mut results = Results::new();
    let mut suite = "";
    let mut test: Option<(&str, bool)> = None;
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("Suite: ") {
            suite = name.trim();
            continue;
        }
        let rest = match line
            .strip_prefix("  Test: ")
            .and_then(|line| line.split_once(" ..."))
        {
            Some((name, rest)) => {
                test = Some((name, false));
                rest
            }
            None => line,
        };
        let Some((name, skipped)) = &mut test else {
            continue;
        };
        *skipped |= rest.contains("[SKIPPED]");
        let verdict = if rest.starts_with("FAILED") {
            Verdict::Failed
        } else if !rest.starts_with("passed") {
            continue;
        } else if *skipped {
            Verdict::Skipped
        } else {
            Verdict::Passed
        };
        results.insert(format!("{suite}.{name}"), verdict);
        test = None;
    }
    results
}

/// Whether `pattern`, which may end with `*`, matches `test`.
fn covers(pattern: &str, test: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => test.starts_with(start),
        None => pattern == test,
    }
}

/// Lists problems in `results`: tests that failed without a listed reason, and listed reasons that no test in this
/// run needed. `all` means that the run included every test.
fn complaints(shape: &str, results: &Results, all: bool) -> Vec<String> {
    let lines = || ALLOWED.iter().filter(|(of, _, _)| *of == shape);
    let mut complaints = Vec::new();
    for (test, verdict) in results {
        let allowed = lines().any(|(_, pattern, _)| covers(pattern, test));
        let faulty = FAULTY.iter().any(|(of, name, _)| {
            *name == *test && shape != "flat" && shape != "alone" && (*of == "*" || *of == shape)
        });
        if (*verdict == Verdict::Failed && !faulty) || (*verdict == Verdict::Skipped && !allowed) {
            complaints.push(format!("{test}: {verdict:?}"));
        }
        if *verdict == Verdict::Passed && faulty {
            complaints.push(format!(
                "{test} passes, but the table says that the suite is wrong there"
            ));
        }
    }
    for (_, pattern, reason) in lines().filter(|_| all) {
        let mut covered = results
            .iter()
            .filter(|(test, _)| covers(pattern, test))
            .peekable();
        if covered.peek().is_some() && covered.all(|(_, verdict)| *verdict == Verdict::Passed) {
            complaints.push(format!("{pattern} passes, but the table says: {reason}"));
        }
    }
    complaints
}

#[derive(Clone, Copy, Debug)]
enum Release {
    Debian12,
    Debian13,
}

impl Release {
    /// The suite's program and its number of tests; `None` if it isn't installed.
    fn find(self) -> Option<(PathBuf, usize)> {
        match self {
            Release::Debian12 => Some((need("iscsi-test-cu", "libiscsi-bin")?, 230)),
            Release::Debian13 => {
                let tool = root().join("tools/libiscsi-suite.sh");
                if !Command::new(&tool)
                    .arg("--ready")
                    .status()
                    .expect("bash")
                    .success()
                {
                    skip("libiscsi 1.20 (run tools/libiscsi-suite.sh --prepare)");
                    return None;
                }
                Some((tool, 238))
            }
        }
    }
}

/// Runs the tests of the suite against a target with one LUN of `shape`, over two portals (for the shape 'alone',
/// over one).
fn conform(release: Release, shape: &str, lun: &str, more: &[&str], suite: &[&str]) {
    let Some((program, count)) = release.find() else {
        return;
    };
    let mut args = vec![
        "--lun",
        lun,
        "--portal",
        "127.0.0.1:0",
        "--portal",
        "127.0.0.1:0",
    ];
    args.extend_from_slice(more);
    let target = Target::start(&args);
    let mut command = Command::new(program);
    command
        .args(["-V", "--dataloss"])
        .args(suite)
        .arg(target.url_at(0, 0));
    if shape != "alone" {
        command.arg(target.url_at(1, 0));
    }
    let output = run_within(&mut command, 420);
    let text = String::from_utf8_lossy(&output.stdout);
    let results = parse(&text);
    let all = suite.contains(&"--test=ALL");
    let saved = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("libiscsi-{shape}-{release:?}.log"));
    std::fs::write(&saved, &*output.stdout).expect("a log");
    assert!(
        !results.is_empty(),
        "no test ran: {text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let by = |wanted| {
        results
            .values()
            .filter(|verdict| **verdict == wanted)
            .count()
    };
    println!(
        "{shape}, {release:?}: {} tests, {} passed, {} skipped, {} failed; log: {}",
        results.len(),
        by(Verdict::Passed),
        by(Verdict::Skipped),
        by(Verdict::Failed),
        saved.display()
    );
    let complaints = complaints(shape, &results, all);
    assert!(
        complaints.is_empty(),
        "{shape}, {release:?}:\n{}\n",
        complaints.join("\n")
    );
    assert!(
        !all || results.len() >= count,
        "{} of {count} tests were seen",
        results.len()
    );
}

/// Large enough for the largest copy, and sanitized slowly enough for resets to interrupt it.
const THIN: &str = "memory:512MiB,thin,removable,sanitize=80MiB";
const EVERYTHING: &[&str] = &["--allow-sanitize", "--test=ALL"];

/// Every test of Debian 12's suite.
#[test]
fn a_thin_removable_lun_passes_the_suite_of_debian_12() {
    conform(Release::Debian12, "thin", THIN, &[], EVERYTHING);
}

/// Every test of the newer suite.
#[test]
fn a_thin_removable_lun_passes_the_suite_of_debian_13() {
    conform(Release::Debian13, "thin-1.20", THIN, &[], EVERYTHING);
}

/// A thick LUN on a fixed medium identifies itself as such, and passes all other tests.
#[test]
fn a_thick_lun_passes_all_but_unmap() {
    conform(
        Release::Debian13,
        "thick",
        "memory:512MiB,thick",
        &[],
        &["--test=ALL"],
    );
}

/// A read-only LUN rejects every write, and can be read.
#[test]
fn a_read_only_lun_refuses_every_write() {
    let tests = "--test=ALL.ReadOnly,ALL.Read6,ALL.Read10,ALL.Read12,ALL.Read16,ALL.Inquiry,ALL.ReadCapacity16";
    conform(
        Release::Debian12,
        "read-only",
        "memory:512MiB,thin,ro",
        &[],
        &[tests],
    );
}

/// The tests that 1.20 skips after a test that ends their shared session, the test disturbed by a leftover
/// reservation, and the test that ALL omits.
#[test]
fn tests_that_need_their_own_session_pass_alone() {
    for test in ["LUNResetSimpleAsync", "LogoutDuringIOAsync"] {
        let test = format!("--test=ALL.iSCSITMF.{test}");
        conform(
            Release::Debian13,
            "alone",
            "memory:64MiB,thin",
            &[],
            &[&test],
        );
    }
    // These tests are in 1.20, but not included in ALL.
    conform(
        Release::Debian13,
        "alone",
        "memory:64MiB,thin",
        &[],
        &["--test=SCSI.ReportLUNs"],
    );
    // Sanitizing takes 16 seconds, so that resets can interrupt it; afterwards, the suite sleeps for 60.
    let lun = "memory:64MiB,thin,removable,sanitize=4MiB";
    conform(
        Release::Debian12,
        "alone",
        lun,
        &[],
        &["--allow-sanitize", "--test=ALL.Sanitize.Reset"],
    );
}

/// Checks the allocation map with physical blocks as large as logical ones (`docs/conformance.md` says why).
#[test]
fn the_allocation_map_is_right_with_equal_block_sizes() {
    let lun = "memory:512MiB,thin,block=4096";
    conform(
        Release::Debian12,
        "flat",
        lun,
        &[],
        &["--test=ALL.GetLBAStatus,ALL.Unmap"],
    );
}

/// All tests with CHAP, and the negotiation of CHAP itself.
#[test]
fn the_suite_passes_behind_chap() {
    let secret = format!("{}:{}", CHAP.0, CHAP.1);
    let lun = "memory:512MiB,thin,removable";
    conform(
        Release::Debian13,
        "chap",
        lun,
        &["--chap", &secret],
        &["--test=ALL"],
    );
}

/// Verdicts are parsed from real output, wherever CUnit prints them.
#[test]
fn verdicts_are_parsed_from_real_output() {
    let output = "\
Suite: Read10
  Test: Simple ...
    
    Test READ10
    [OK] READ10 returned SUCCESS
passed
  Test: DpoFua ...    [SKIPPED] not implemented
passed
Suite: ModeSense6
  Test: Residuals ...passed    [FAILED] PRIN command: failed with sense.
  Test: Control ...    [FAILED] wrong sense
FAILED
    1. test_x.c:30  - CU_FAIL(\"[FAILED] x\")
Run Summary:    Type  Total    Ran Passed Failed Inactive
";
    let expected = [
        ("ModeSense6.Control", Verdict::Failed),
        ("ModeSense6.Residuals", Verdict::Passed),
        ("Read10.DpoFua", Verdict::Skipped),
        ("Read10.Simple", Verdict::Passed),
    ];
    let expected: Results = expected
        .map(|(test, verdict)| (test.to_string(), verdict))
        .into();
    assert_eq!(parse(output), expected);
}

/// A failure is allowed only while the suite is wrong about it, a skip only with a reason, and a reason only while a
/// test needs it.
#[test]
fn unexplained_results_and_unused_reasons_are_complaints() {
    let check = |test: &str, verdict, count| {
        let results = Results::from([(test.to_string(), verdict)]);
        assert_eq!(
            complaints("thin", &results, true).len(),
            count,
            "{test} {verdict:?}"
        );
    };
    check("Read10.Simple", Verdict::Passed, 0);
    check("Read10.Simple", Verdict::Skipped, 1);
    check("Read10.Simple", Verdict::Failed, 1);
    check("ReadOnly.ReadOnlySBC", Verdict::Skipped, 0);
    check("ReadOnly.ReadOnlySBC", Verdict::Failed, 1);
    check("ReadOnly.ReadOnlySBC", Verdict::Passed, 1);
    check("Sanitize.Reset", Verdict::Failed, 0);
    check("Sanitize.Reset", Verdict::Passed, 1);
    let alone = Results::from([("Sanitize.Reset".to_string(), Verdict::Failed)]);
    assert_eq!(complaints("alone", &alone, false).len(), 1);
}
