//! `brunt lake repeat` and `brunt lake manifest`: a lake made of copies of a trace has each row once per copy, and
//! each table's log lists the files in the catalog.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{TempDir, brunt, root, run_within, succeed};
use brunt_capture::trace::tables;
use brunt_lake::read_table;
use serde_json::Value;

fn lake(what: &str, folder: &Path, more: &[&str]) -> Value {
    let mut command = brunt();
    command
        .args(["--json", "lake", what])
        .arg(folder)
        .args(more);
    serde_json::from_str(&succeed(&mut command, 120)).expect("one object")
}

/// The count of each operation, and all ids and times.
fn operations(folder: &Path) -> (BTreeMap<String, u64>, Vec<i64>, Vec<i64>) {
    let (mut counts, mut ids, mut times) = (BTreeMap::new(), Vec::new(), Vec::new());
    let damaged = read_table(folder, &tables::OPERATIONS, |rows| {
        for name in rows.texts("operation") {
            *counts.entry(name.to_string()).or_insert(0) += 1;
        }
        ids.extend_from_slice(rows.ints("record_id"));
        times.extend_from_slice(rows.ints("request_first"));
    });
    assert!(damaged.expect("a lake").is_empty());
    ids.sort_unstable();
    (counts, ids, times)
}

/// Each of three copies contains all operations, with separate ids; only times and ids differ.
#[test]
fn each_copy_has_all_operations_and_the_log_lists_its_files() {
    let folder = TempDir::new("lake-copies");
    let (trace, copies) = (folder.join("trace"), folder.join("copies"));
    let capture = root().join("testdata/nfs3-small.pcap.zst");
    succeed(
        brunt()
            .args(["capture", "--read"])
            .arg(capture)
            .arg("--out")
            .arg(&trace),
        120,
    );
    let (once, ids, times) = operations(&trace);

    let refused = run_within(brunt().args(["lake", "manifest"]).arg(&trace), 60);
    assert_eq!(
        refused.status.code(),
        Some(2),
        "a trace that was not compacted has no log"
    );

    let mut rows = 0;
    for table in tables::all() {
        read_table(&trace, table, |batch| rows += batch.rows()).expect("a trace");
    }
    let out = copies.to_str().expect("a plain path");
    let made = lake(
        "repeat",
        &trace,
        &["--rows", &(rows * 5 / 2).to_string(), "--out", out],
    );
    assert_eq!(made["copies"], 3, "{made}");
    let (thrice, all_ids, all_times) = operations(&copies);
    assert!(
        thrice
            .iter()
            .map(|(name, count)| (name, count / 3))
            .eq(once.iter().map(|(name, count)| (name, *count)))
    );
    assert!(
        all_ids.windows(2).all(|pair| pair[0] < pair[1]),
        "no id appears twice"
    );
    assert_eq!(
        (all_ids.len(), all_times.len()),
        (3 * ids.len(), 3 * times.len())
    );
    let period = made["period_seconds"].as_i64().expect("a number") * 1_000_000_000;
    let least = |times: &[i64]| times.iter().copied().min().expect("operations");
    let shift = least(&all_times) - least(&times);
    assert_eq!(shift % 1_000_000_000, 0, "whole seconds");
    let mut expected: Vec<_> = (0..3)
        .flat_map(|copy| times.iter().map(move |time| time + shift + copy * period))
        .collect();
    let mut found = all_times;
    expected.sort_unstable();
    found.sort_unstable();
    assert!(found == expected);

    let published = lake("manifest", &copies, &[]);
    let tables = published["tables"].as_array().expect("a list");
    let about = tables
        .iter()
        .find(|table| table["table"] == "operations")
        .expect("operations");
    assert_eq!(
        (&about["version"], about["rows"].as_u64()),
        (&0.into(), Some(3 * ids.len() as u64))
    );
    let log =
        std::fs::read_to_string(copies.join("operations/_delta_log/00000000000000000000.json"));
    let log = log.expect("a log");
    assert_eq!(
        log.matches("\"add\"").count() as u64,
        about["parts"].as_u64().expect("a number")
    );
    assert!(log.contains("request_first_ns"), "times have twins");
    let again = lake("manifest", &copies, &[]);
    assert!(
        again["tables"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|table| table["version"].is_null())
    );

    let taken = run_within(
        brunt()
            .args(["lake", "repeat"])
            .arg(&trace)
            .args(["--rows", "1", "--out", out]),
        60,
    );
    assert_eq!(taken.status.code(), Some(2), "a lake is not written over");
}
