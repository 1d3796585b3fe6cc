//! `brunt-bench capture`, as a newcomer runs it: its figures for other programs match those programs' own output.

use crate::support;
use std::process::Command;

use crate::support::{need, root, run_within, succeed};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Value {
    let rounds = if arguments.contains(&"--rounds") {
        &[][..]
    } else {
        &["--rounds", "1"]
    };
    bench_of(
        support::bench()
            .args(["capture", "--json"])
            .args(rounds)
            .args(arguments),
    )
}

fn bench_of(command: &mut Command) -> Value {
    let capture = root().join("testdata/nfs3-small.pcap.zst");
    serde_json::from_str(&succeed(command.arg(capture), 120)).expect("one object")
}

fn who<'a>(table: &'a Value, name: &str) -> Option<&'a Value> {
    let programs = table["programs"].as_array().expect("programs");
    programs.iter().find(|program| {
        program["who"]
            .as_str()
            .is_some_and(|who| who.starts_with(name))
    })
}

/// All programs read the same capture to the end; the report has their figures and omits programs that aren't
/// installed.
#[test]
fn every_program_reads_the_whole_capture() {
    let report = bench(&[]);
    let table = &report["captures"][0];
    assert_eq!(table["packets"], 1000);
    for name in ["ours, all", "ours, and the trace"] {
        let ours = who(table, name).unwrap_or_else(|| panic!("{name}: {table}"));
        assert_eq!(ours["calls_found"], table["calls"], "{name}");
        assert!(
            ours["cpu_s"].as_f64() > Some(0.0)
                && ours["resident_bytes_max"].as_u64() > Some(1 << 20)
        );
    }
    let trace_bytes =
        who(table, "ours, and the trace").expect("it is there")["trace_bytes"].as_u64();
    assert!(trace_bytes > Some(0));
    // The parts add up to the whole file, and take up less space than plain values would.
    let extents = table["extents"].as_array().expect("kinds of content");
    let sum = |key: &str| {
        extents
            .iter()
            .map(|extent| extent[key].as_u64().expect("a size"))
            .sum::<u64>()
    };
    // The report counts the bytes of the rows, without the note on the trace's version.
    let note_bytes = sum("file_bytes").checked_sub(trace_bytes.expect("a size"));
    assert!(
        note_bytes.is_some_and(|bytes| bytes < 1024),
        "{trace_bytes:?}: {extents:?}"
    );
    assert!(sum("value_bytes") > sum("packed_bytes"), "{extents:?}");
    let network = extents
        .iter()
        .find(|extent| extent["extent"] == "network headers")
        .expect("the first");
    assert!(
        network["rows"].as_u64() > Some(1000),
        "a row for each packet, and flows: {network}"
    );
    // The capture begins in the middle of connections, where other programs miss a few calls.
    let calls = table["calls"].as_u64().expect("a count");
    for (program, package, least) in [
        ("tshark", "tshark", calls * 8 / 10),
        ("nfstrace", "nfstrace", calls / 4),
    ] {
        let installed = need(program, package).is_some();
        let row = who(table, program);
        assert_eq!(row.is_some(), installed, "{program}: {table}");
        if let Some(row) = row {
            let found = row["calls_found"].as_u64().expect("a count");
            assert!(
                (least..=calls).contains(&found),
                "{program} found {found} of {calls}"
            );
        }
    }
}

/// Traces without the mergeable tables describe the same capture and are smaller; the ratio is reported for each.
#[test]
fn traces_without_mergeable_tables_are_smaller() {
    let report = bench(&["--tables", "--rounds", "2"]);
    let table = &report["captures"][0];
    let lines = table["with_both_of"].as_array().expect("lines");
    let without: Vec<String> = lines
        .iter()
        .map(|line| line["without"].to_string())
        .collect();
    let [both, histograms, sketches] = &lines[..] else {
        panic!("{without:?}")
    };
    assert_eq!(
        both["without"],
        serde_json::json!(["latency_histograms", "sketches"])
    );
    for line in lines {
        assert_eq!(line["calls_found"], table["calls_found"]);
        assert!(line["processor_time"]["low"].as_f64() > Some(0.0), "{line}");
        assert!(
            line["bytes"].as_f64() > Some(1.0) && line["bytes"].as_f64() <= both["bytes"].as_f64(),
            "{line}"
        );
    }
    assert_ne!(histograms["bytes"], sketches["bytes"]);
}

/// With lost packets, most of what can be recovered is recovered, and nothing is invented.
#[test]
fn most_lost_operations_are_recovered_and_none_invented() {
    let report = bench(&["--loss=2,5", "--seed", "3"]);
    let losses = report["captures"][0]["losses"].as_array().expect("lines");
    assert_eq!(losses.len(), 2);
    for loss in losses {
        let count = |name: &str| {
            loss[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name} in {loss}"))
        };
        let (possible, recovered) = (count("possible"), count("recovered"));
        assert!(possible < count("operations") && possible > 200, "{loss}");
        assert!(
            recovered <= possible && recovered * 100 >= possible * 98,
            "{loss}"
        );
        if loss["tshark_recovered"].is_u64() {
            assert!(count("tshark_recovered") <= count("tshark_possible"));
            assert_eq!(
                count("tshark_possible"),
                possible,
                "the part is the whole here"
            );
        }
    }
}

/// Captures with packets removed are written and kept; a second run removes the same packets.
#[test]
fn a_second_run_removes_the_same_packets() {
    let folder = support::TempDir::new("bench-make");
    let make = |name: &str| {
        let into = folder.join(name);
        let command = ["capture", "--json", "--loss=2,5", "--seed", "3", "--make"];
        let made = bench_of(support::bench().args(command).arg(into));
        let files = made["captures"].as_array().expect("files").clone();
        let bytes = files
            .iter()
            .map(|file| std::fs::read(file["path"].as_str().expect("a path")).unwrap());
        let packets = files
            .iter()
            .map(|file| file["packets"].as_u64().expect("a count"));
        (packets.collect::<Vec<_>>(), bytes.collect::<Vec<_>>())
    };
    let (packets, bytes) = make("one");
    assert!(
        packets.len() == 2 && packets[1] < packets[0] && packets[0] < 1000,
        "{packets:?}"
    );
    assert_eq!((packets, bytes), make("other"));
}

/// Mistakes are reported before anything is measured.
#[test]
fn mistakes_are_reported_before_anything_is_measured() {
    let check = |arguments: &[&str], word: &str| {
        let run = run_within(support::bench().arg("capture").args(arguments), 60);
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{said}");
    };
    check(&["--loss=101"], "percent");
    check(&["--replay", "lo"], "single capture file");
    check(&["no-such-file.pcap"], "no-such-file.pcap");
    let page = root().join("README.md");
    check(&[page.to_str().expect("a plain path")], "README.md");
}
