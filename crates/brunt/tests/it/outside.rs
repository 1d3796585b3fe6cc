//! Inputs made by other programs (testdata/outside), in rare formats or with misleading contents.

use std::path::PathBuf;
use std::process::Output;

use crate::support::{TempDir, brunt, root, run_within, succeed};
use serde_json::Value;

fn outside(name: &str) -> PathBuf {
    root().join("testdata/outside").join(name)
}

/// The output of `brunt trace info` for a file with these rows.
fn info_of(rows: &str, options: &[&str]) -> Output {
    let folder = TempDir::new("outside");
    let file = folder.join("rows");
    std::fs::write(&file, rows).expect("a file");
    run_within(brunt().args(["trace", "info"]).args(options).arg(&file), 60)
}

/// tshark finds the same number of calls in each: RPC records in fragments of 24 bytes, a header that announces a
/// frame check sequence, PPP, and 802.2 SNAP. (It shows 55 frames with calls in the last two; one has two calls.)
#[test]
fn rare_framings_lose_no_calls() {
    for (name, expected) in [
        ("rpc-fragments-24", 546),
        ("nfs3-fcs-flag", 547),
        ("ppp", 56),
        ("snap", 56),
    ] {
        let file = outside(&format!("{name}.pcap.zst"));
        let report = succeed(brunt().args(["analyze", "--json"]).arg(file), 60);
        let report: Value = serde_json::from_str(&report).expect("a report");
        let operations = report["by_operation"].as_array().expect("operations");
        let calls: u64 = operations
            .iter()
            .map(|operation| operation["calls"].as_u64().expect("a count"))
            .sum();
        assert_eq!(calls, expected, "{name}");
    }
}

/// The rows of a cache trace fit SPC's columns, but run backwards in time.
#[test]
fn a_format_that_fits_badly_is_reported_as_doubtful() {
    let file = outside("cydonia-cp_cache-100.csv");
    let output = run_within(brunt().args(["trace", "info"]).arg(file), 60);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("looks like spc, but 37 % of its rows"),
        "{text}"
    );
    assert!(
        text.contains("--format spc") && text.contains("--columns"),
        "{text}"
    );
}

#[test]
fn an_unknown_format_names_the_closest_one_and_the_row_that_differs() {
    let rows = "0,100,8192,W,0.1\n0,200,8192,R,0.2\n1,300,4096,R,0.3\n0,400,4096,Q,0.4\n";
    let output = info_of(rows, &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("closest is spc: its first 3 rows match, row 4 does not"),
        "{text}"
    );
    assert!(text.contains("--columns"), "{text}");
}

#[test]
fn a_trace_without_a_readable_row_is_a_failure() {
    let rows = "0,100,8192,X,0.1\n0,200,8192,X,0.2\n";
    let output = info_of(rows, &["--format", "spc"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("no requests were read as spc: 2 rows cannot be read"),
        "{text}"
    );
}
