//! `brunt analyze` and `brunt capture -r` as scripts use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn capture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nfs3-small.pcap.zst")
}

fn brunt(arguments: &[&str], input: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(arguments)
        .stdin(input)
        .output()
        .unwrap()
}

/// A report for people fits 80 columns and ends with the ledger.
#[test]
fn report_for_people() {
    let path = capture();
    for arguments in [
        ["analyze", path.to_str().unwrap()].as_slice(),
        &["capture", "-r", path.to_str().unwrap()],
    ] {
        let output = brunt(arguments, Stdio::null());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            text.contains("GETATTR") && text.contains("Loss ledger"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}

/// The same as a page, beside the text.
#[test]
fn report_as_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("x.html");
    let (file, html) = (capture(), page.to_str().unwrap().to_string());
    let output = brunt(
        &["analyze", file.to_str().unwrap(), "--html", &html],
        Stdio::null(),
    );
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("<title>nfs3-small.pcap.zst") && text.contains("Latency by operation"));
    let nowhere = brunt(
        &[
            "analyze",
            file.to_str().unwrap(),
            "--html",
            "/nonexistent/x.html",
        ],
        Stdio::null(),
    );
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
}

/// `--json` is one object whose parts add up, also from standard input.
#[test]
fn report_for_programs() {
    let input = std::fs::File::open(capture()).unwrap();
    let output = brunt(&["analyze", "-", "--json"], Stdio::from(input));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["valid"], true);
    let rows = report["by_operation"].as_array().unwrap();
    let calls: u64 = rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum();
    assert_eq!(Some(calls), report["operations"].as_u64());
    assert_eq!(Some(calls), report["ledger"]["calls"].as_u64());
}

/// What is no capture is refused with status 2 and a sentence; a damaged one still
/// gives what came before the damage.
#[test]
fn wrong_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.pcap");
    std::fs::write(&file, "this is no capture, it is a letter").unwrap();
    let output = brunt(&["analyze", file.to_str().unwrap()], Stdio::null());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("neither a pcap, a pcapng nor a snoop"),
        "{output:?}"
    );
    let output = brunt(
        &["analyze", folder.path().join("absent").to_str().unwrap()],
        Stdio::null(),
    );
    assert_eq!(output.status.code(), Some(2));
    let whole = std::fs::read(capture()).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let output = brunt(&["analyze", file.to_str().unwrap()], Stdio::null());
    // Half of a zstd file may end before its first block does: refused, or reported in part.
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
