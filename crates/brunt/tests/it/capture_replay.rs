//! From a capture to a replay, as `docs/capture-replay.md` describes: `tools/capture-replay.sh` with fio, whose own
//! figures give the expected number of requests of each length.

use crate::support;
use std::process::Command;

use crate::support::{TempDir, need, root, run_within, succeed};
use serde_json::Value;

/// Whether fio has the engine that the tool uses, and QEMU has its initiator.
fn can_run() -> bool {
    let (Some(_), Some(_)) = (need("fio", "fio"), need("qemu-nbd", "qemu-utils")) else {
        return false;
    };
    if !succeed(Command::new("fio").arg("--enghelp"), 20).contains("nbd") {
        support::skip("fio with its nbd engine");
        return false;
    }
    if !succeed(Command::new("qemu-img").arg("--help"), 20).contains("iscsi") {
        support::skip("the Debian package qemu-block-extra (iscsi in qemu-img's formats)");
        return false;
    }
    true
}

/// Each of fio's reads and writes is recorded from the network with its length and replayed, as is each flush.
#[test]
fn fios_requests_are_recorded_and_replayed() {
    if !can_run() {
        return;
    }
    let folder = TempDir::new("capture-replay");
    let out = folder.join("out");
    let mut tool = Command::new(root().join("tools/capture-replay.sh"));
    tool.arg("2").arg(&out).arg("--json");
    tool.env("BRUNT", env!("CARGO_BIN_EXE_brunt"))
        .env("XDG_RUNTIME_DIR", folder.join("."));
    let answer = run_within(&mut tool, 120);
    let said = String::from_utf8_lossy(&answer.stderr);
    if said.contains("namespaces of a lab") || said.contains("/dev/net/tun") {
        support::skip(&format!(
            "user namespaces and /dev/net/tun ({})",
            said.trim()
        ));
        return;
    }
    // On a busy machine a replay may be late, which makes it invalid: status 1.
    assert!(matches!(answer.status.code(), Some(0 | 1)), "{answer:?}");
    let replayed: Value =
        serde_json::from_slice(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let text = std::fs::read_to_string(out.join("fio.json")).expect("fio's figures");
    let fio: Value = serde_json::from_str(&text).expect("fio's figures are JSON");
    let of = |kind: &str, key: &str| fio["jobs"][0][kind][key].as_u64().expect("a number");

    let mut command = support::brunt();
    let info = succeed(
        command
            .args(["--json", "trace", "info"])
            .arg(out.join("trace")),
        20,
    );
    let info: Value = serde_json::from_str(&info).expect("figures are JSON");
    assert!(of("read", "total_ios") > 100);
    for kind in ["read", "write"] {
        let recorded = &info["ops"][kind];
        assert_eq!(
            recorded["requests"],
            of(kind, "total_ios"),
            "{kind}: {info}"
        );
        assert_eq!(recorded["bytes"], of(kind, "io_bytes"), "{kind}: {info}");
    }
    // QEMU omits flushes when there is nothing to flush.
    let flushes = info["ops"]["flush"]["requests"].as_u64().expect("flushes");
    assert!((1..=of("sync", "total_ios")).contains(&flushes), "{info}");

    let fidelity = &replayed["fidelity"];
    assert_eq!(
        (
            &replayed["requests"],
            &fidelity["planned"],
            &fidelity["completed"]
        ),
        (&info["requests"], &info["requests"], &info["requests"]),
        "{replayed}"
    );
    assert_eq!(
        fidelity["digests"]["trace"], fidelity["digests"]["sent"],
        "{replayed}"
    );
    // Response times are recorded as well.
    let moments = fidelity["over_time"].as_array().expect("moments");
    assert!(
        moments
            .iter()
            .any(|moment| moment["trace_depth_mean"].as_f64() > Some(0.0)),
        "{replayed}"
    );
}
