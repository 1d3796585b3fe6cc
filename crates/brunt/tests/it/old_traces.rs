//! Sample traces in each format version, as they were originally written: the tests record how this program handles
//! them and ensure that this doesn't change. The expected figures come from DuckDB and pyarrow, not from the program
//! under test.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{brunt, root, run_within, skip, succeed};
use brunt_capture::trace::tables;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The sample in `testdata/traces/vN` is read.
    Read,
    /// Rejected with the version in the message, whether or not a sample exists.
    Refused,
}

/// Every version that ever existed. A new version needs a sample, and a decision about the versions before it.
const VERSIONS: [(i64, Fate); 4] = [
    (1, Fate::Refused),
    (2, Fate::Refused),
    (3, Fate::Refused),
    (4, Fate::Read),
];

/// Tables added to a version after its sample was written: the sample is read as if these tables were empty.
const LATER: [(i64, &str); 2] = [(4, "sketches"), (4, "capture_health")];

fn sample(version: i64) -> PathBuf {
    root().join(format!("testdata/traces/v{version}"))
}

#[test]
fn every_version_is_read_or_refused_by_name() {
    let known: Vec<_> = VERSIONS.iter().map(|(version, _)| *version).collect();
    let all: Vec<_> = (1..=tables::VERSION).collect();
    assert_eq!(
        known, all,
        "say here what becomes of traces of each version, and keep a sample of the new one"
    );
    assert_eq!(VERSIONS.last(), Some(&(tables::VERSION, Fate::Read)));
    for (version, fate) in VERSIONS {
        let folder = sample(version);
        match fate {
            Fate::Read => tables::all().iter().for_each(|table| {
                let part = folder.join(table.name).join("part-000000.parquet");
                let is_later = LATER.contains(&(version, table.name));
                assert!(
                    part.exists() != is_later,
                    "version {version} is read, so it needs a sample: {}",
                    part.display()
                );
            }),
            Fate::Refused if folder.exists() => {
                let out = run_within(brunt().arg("analyze").arg(&folder), 60);
                let told = String::from_utf8_lossy(&out.stderr).into_owned();
                assert_eq!(out.status.code(), Some(2), "{told}");
                assert!(told.contains(&format!("version {version}")), "{told}");
            }
            Fate::Refused => {}
        }
    }
}

#[test]
fn a_sample_of_version_4_is_analyzed() {
    let out = succeed(brunt().args(["analyze", "--json"]).arg(sample(4)), 60);
    let report: Value = serde_json::from_str(&out).expect("a report");
    for (path, expected) in [
        ("/operations", 205_u64),
        ("/ledger/calls_answered", 165),
        ("/ledger/packets", 581),
        ("/files/count", 126),
        ("/clients/count", 2),
        ("/duplicates/blocks_read", 201),
        ("/duplicates/blocks_written", 94),
        ("/start_ns", 1_795_291_021_806_525_000),
    ] {
        assert_eq!(report.pointer(path), Some(&Value::from(expected)), "{path}");
    }
    // Four READs begin where the previously sent one ended; replies overtook one another, so three don't look
    // sequential.
    for (way, operations, bytes, sequential) in
        [("read", 39, 126_440, 4.0), ("write", 29, 69_659, 0.0)]
    {
        let found = &report["profile"][way];
        let expected = (
            Value::from(operations),
            Value::from(bytes),
            Some(sequential / f64::from(operations)),
        );
        assert_eq!(
            (&found["operations"], &found["bytes"]),
            (&expected.0, &expected.1),
            "{way}"
        );
        assert_eq!(found["sequential_share"].as_f64(), expected.2, "{way}");
    }
}

#[test]
fn a_sample_of_version_4_is_queried_with_sql() {
    let script = root().join("tools/duckdb.sh");
    if !Command::new(&script)
        .arg("--ready")
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("duckdb (tools/duckdb.sh --prepare)");
    }
    let found = Command::new(script)
        .arg("--where")
        .output()
        .expect("the script starts");
    let engine = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let ask = |question: &str| {
        let mut command = brunt();
        command.args(["--json", "sql"]).arg(sample(4)).arg(question);
        command
            .env("BRUNT_PYTHON", engine.join("python"))
            .env("PATH", root())
            .env_remove("BRUNT_DUCKDB");
        let mut answer: Value =
            serde_json::from_str(&succeed(&mut command, 120)).expect("one object");
        answer["rows"].take()
    };
    let mix = ask("mix");
    let row = |name: &str| {
        mix.as_array()
            .and_then(|rows| rows.iter().find(|row| row["operation"] == name))
    };
    let write = row("WRITE").expect("WRITEs");
    assert_eq!(
        [&write["calls"], &write["replies"], &write["max_ns"]],
        [32, 27, 2_566_000]
    );
    assert_eq!(ask("profile")[0]["read_sequential"], 4);
    for (table, rows) in [
        ("entries", 173),
        ("compound_attributes", 4),
        ("scsi_extents", 1),
        ("checksums", 295),
    ] {
        assert_eq!(
            ask(&format!("select count(*) as n from {table}"))[0]["n"],
            rows,
            "{table}"
        );
    }
}
