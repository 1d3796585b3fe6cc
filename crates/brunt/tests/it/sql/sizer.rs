//! The profile for sizing tools is the same from all commands: `brunt trace fit`, `brunt analyze` and `brunt sql`.

use serde_json::Value;

use super::checks::reported_sizer;
use super::{engine, rows, sql, trace};
use crate::support::{TempDir, brunt, succeed};

/// Captures with short reads, failed requests, several clients and parsers, WRITE SAME, and SCSI reads of logical units
/// whose block size is unknown.
const CAPTURES: [(&str, &[&str]); 9] = [
    ("nfs3-small.pcap.zst", &[]),
    ("nfs3-stale.pcap.zst", &[]),
    ("nfs4-small.pcap.zst", &[]),
    ("nfs4-small.pcap.zst", &["--workers", "3"]),
    ("iscsi/brunt-aborts.pcapng.zst", &[]),
    ("iscsi/brunt-connections.pcapng.zst", &[]),
    ("iscsi/lio-brunt.pcapng.zst", &[]),
    ("iscsi/lio-libiscsi.pcapng.zst", &[]),
    ("iscsi/tgt-qemu.pcapng.zst", &[]),
];

fn is_near(found: &Value, expected: Option<f64>, allowed: f64) -> bool {
    match (found.as_f64(), expected) {
        (Some(found), Some(expected)) => {
            (found - expected).abs() <= allowed * expected.abs().max(1e-3)
        }
        (found, expected) => found == expected,
    }
}

#[test]
fn all_commands_have_one_profile_for_sizing() {
    let engine = engine();
    for (capture, more) in CAPTURES {
        let folder = TempDir::new("sql-sizer");
        let (trace, report) = trace(&folder, capture, more);
        let out = succeed(brunt().args(["--json", "trace", "fit"]).arg(&trace), 60);
        let mut model: Value = serde_json::from_str(&out).expect("one object");
        let sizer = model["sizer"].take();
        for (name, expected) in reported_sizer(&report) {
            let found = &sizer[name];
            let is_same = is_near(found, expected, 1e-12);
            assert!(is_same, "{capture} {name}: {found}, {expected:?}");
        }
        let (profile, name) = (&report["profile"], "random_read_working_set_bytes");
        assert_eq!(sizer[name], profile[name], "{capture}");
        let Some(engine) = &engine else { continue };
        let row = &rows(sql(engine, &trace, &["sizer"]))[0];
        for (name, found) in sizer.as_object().expect("figures") {
            let allowed = match name.as_str() {
                // Some versions of DuckDB read times in microseconds.
                "mean_per_s" => 2e-3,
                // The program estimates it.
                "random_read_working_set_bytes" => {
                    let error = profile["working_set_error_percent"].as_f64();
                    4.0 * error.expect("an error") / 100.0
                }
                _ => 1e-12,
            };
            let expected = &row[name];
            let is_same = is_near(found, expected.as_f64(), allowed);
            assert!(is_same, "{capture} {name}: {found}, {expected}");
        }
    }
}
