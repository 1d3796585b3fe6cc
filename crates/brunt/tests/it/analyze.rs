//! `brunt analyze` and `brunt capture -r`, as scripts use them.

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

/// The text report fits 80 columns and ends with the ledger.
#[test]
fn the_text_report_fits_80_columns_and_ends_with_the_ledger() {
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

/// The page contains the same report as the text.
#[test]
fn the_html_page_has_the_same_report() {
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

/// `--json` prints one object whose parts add up, even for standard input.
#[test]
fn the_json_report_is_one_object_whose_parts_add_up() {
    let input = std::fs::File::open(capture()).unwrap();
    let output = brunt(&["analyze", "-", "--json"], Stdio::from(input));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["valid"], true);
    let rows = report["by_operation"].as_array().unwrap();
    let calls: u64 = rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum();
    assert_eq!(Some(calls), report["operations"].as_u64());
    assert_eq!(Some(calls), report["ledger"]["calls"].as_u64());
}

/// A file that isn't a capture is rejected with status 2 and a message; a damaged capture still yields everything
/// before the damage.
#[test]
fn a_non_capture_is_refused_and_a_damaged_capture_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.pcap");
    std::fs::write(&file, "this is a letter, not a capture").unwrap();
    let output = brunt(&["analyze", file.to_str().unwrap()], Stdio::null());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("not a pcap, pcapng or snoop"),
        "{output:?}"
    );
    std::fs::write(&file, "0,0,4096,R,0.25\n0,8,4096,R,1.25\n".repeat(9)).unwrap();
    let output = brunt(&["analyze", file.to_str().unwrap()], Stdio::null());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("block trace (spc)") && said.contains("brunt trace info"),
        "{said}"
    );
    let output = brunt(
        &["analyze", folder.path().join("absent").to_str().unwrap()],
        Stdio::null(),
    );
    assert_eq!(output.status.code(), Some(2));
    let whole = std::fs::read(capture()).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let output = brunt(&["analyze", file.to_str().unwrap()], Stdio::null());
    // Half of a zstd file may end within its first block, so it is either rejected or reported in part.
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = brunt(&[&["--json"], arguments].concat(), Stdio::null());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Of 1,000 READs that failed and 1,000 that succeeded, only the latter are transfers: in the reports of the capture
/// and of its trace, in the trace's figures and in its replay. tshark: 1,000 × status 0, 1,000 × status 70
/// (NFS3ERR_STALE).
#[test]
fn failed_requests_are_nowhere_counted_as_transfers() {
    let folder = tempfile::tempdir().unwrap();
    let capture = capture().with_file_name("nfs3-stale.pcap.zst");
    let (capture, trace) = (capture.to_str().unwrap(), folder.path().join("trace"));
    let trace = trace.to_str().unwrap();
    let recorded = json(&["capture", "-r", capture, "--out", trace]);
    for report in [
        recorded,
        json(&["analyze", capture]),
        json(&["analyze", trace]),
    ] {
        let profile = &report["profile"];
        assert_eq!(
            (&profile["read"]["operations"], &profile["read"]["bytes"]),
            (&1000.into(), &4_096_000.into())
        );
        // Random blocks are occasionally sequential by chance.
        assert!(profile["read"]["sequential_share"].as_f64().unwrap() < 0.01);
        assert_eq!(profile["read"]["size_p50_bytes"], 4096);
        // There are no writes, so their figures are unknown, not 0.
        assert_eq!(profile["write"]["operations"], 0);
        for name in ["sequential_share", "size_p50_bytes", "size_p95_bytes"] {
            assert!(
                profile["write"].get(name).is_some_and(|it| it.is_null()),
                "{name}"
            );
        }
        assert_eq!(profile["left_out"]["failed"], 1000);
        assert_eq!(profile["metadata_operations"], 0);
    }
    let info = json(&["trace", "info", trace]);
    assert_eq!(info["requests"], 1000, "{info}");
    assert_eq!(info["ops"]["read"]["bytes"], 4_096_000);
    assert_eq!(info["left_out"]["failed"], 1000);
    let replayed = json(&["replay", trace, "null:1TiB", "--as-fast-as-possible"]);
    assert_eq!(replayed["requests"], 1000, "{replayed}");
    assert_eq!(
        replayed["fidelity"]["rows"]["left out: failed"], 1000,
        "{replayed}"
    );
    let text = String::from_utf8(brunt(&["analyze", capture], Stdio::null()).stdout).unwrap();
    assert!(
        text.contains("not counted as reads or writes: 1,000 failed"),
        "{text}"
    );
}

/// The report printed while writing an anonymized trace equals the trace's report, so it hides what the trace hides.
#[test]
fn a_report_hides_what_its_anonymized_trace_hides() {
    let folder = tempfile::tempdir().unwrap();
    let (key, trace) = (folder.path().join("key"), folder.path().join("trace"));
    std::fs::write(&key, "a key that is long enough").unwrap();
    let (key, trace) = (key.to_str().unwrap(), trace.to_str().unwrap());
    for capture in ["nfs3-small.pcap.zst", "iscsi/tgt-kernel.pcapng.zst"] {
        let capture = self::capture().with_file_name(capture);
        let capture = capture.to_str().unwrap();
        let plain = json(&["analyze", capture]);
        let _ = std::fs::remove_dir_all(trace);
        let mut hidden = json(&["capture", "-r", capture, "--out", trace, "--anonymize", key]);
        hidden.as_object_mut().unwrap().remove("trace");
        assert_eq!(hidden, json(&["analyze", trace]));
        let text = hidden.to_string();
        for ranking in ["clients", "files", "directories", "pairs"] {
            for row in plain[ranking]["top"].as_array().unwrap() {
                let name = row["name"].as_str().unwrap();
                assert!(!text.contains(name), "{name} is in {text}");
            }
        }
    }
}

/// A capture of these TCP segments from one client to one port, with this link type.
fn segments(link: u32, port: u16, payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0]);
    for word in [0, 0, 65_535, link] {
        file.extend(word.to_le_bytes());
    }
    let mut seq = 1_u32;
    for (nth, payload) in payloads.iter().enumerate() {
        let mut frame = [[2_u8; 6], [4; 6]].concat();
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(40_000_u16.to_be_bytes());
        frame.extend(port.to_be_bytes());
        frame.extend(seq.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(*payload);
        seq += payload.len() as u32;
        let len = frame.len() as u32;
        for word in [1_700_000_000, nth as u32, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// An NFSv2 READ call with its record mark.
fn nfs2_read(xid: u32) -> Vec<u8> {
    let words = [xid, 0, 2, 100_003, 2, 6, 0, 0, 0, 0];
    let mut message: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    message.extend([7; 44]);
    let mark = 0x8000_0000 | message.len() as u32;
    [mark.to_be_bytes().to_vec(), message].concat()
}

#[test]
fn a_capture_without_operations_exits_with_1_and_describes_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.pcap");
    let name = file.to_str().unwrap();
    let smb: &[u8] = b"\x00\x00\x00\x60\xfeSMB\x40\x00 and more of it";
    let nvme: &[u8] = &[&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat();
    let read = nfs2_read(1);
    let check = |bytes: Vec<u8>, name_of: &str, by: &str| {
        std::fs::write(&file, bytes).unwrap();
        let output = brunt(&["--json", "analyze", name], Stdio::null());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name_of}");
        let most = &report["contents"]["protocols"][0];
        assert_eq!(
            (most["name"].as_str(), most["by"].as_str()),
            (Some(name_of), Some(by))
        );
        assert!(most["share"].as_f64() > Some(0.9), "{most}");
        report
    };
    check(segments(1, 445, &[smb, smb]), "SMB 2 or 3", "bytes");
    check(segments(1, 445, &[b"\x01"]), "SMB, TCP port 445", "port");
    check(
        segments(1, 4000, &[b"NBDMAGICIHAVEOPT\x00\x03"]),
        "NBD",
        "bytes",
    );
    check(segments(1, 4420, &[nvme]), "NVMe/TCP", "bytes");
    check(segments(1, 4711, &[b"hello"]), "TCP port 4711", "none");
    check(segments(189, 1, &[b"hello"]), "USB", "header");
    let report = check(segments(1, 2049, &[&read, &nfs2_read(2)]), "NFSv2", "bytes");
    assert_eq!(report["contents"]["rpc_calls"]["NFSv2 READ"], 2);
    let output = brunt(&["analyze", name], Stdio::null());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("100 % of the bytes: NFSv2 (by its bytes), 2 packets"),
        "{text}"
    );
    assert!(text.contains("2 RPC calls of NFSv2 READ"), "{text}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("no NFSv3, NFSv4 or iSCSI operations"),
        "{error}"
    );
}

/// The latency of an unanswered request is unknown.
#[test]
fn an_operation_without_a_reply_has_no_latency() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.pcap");
    // An NFSv3 GETATTR call with a handle of eight bytes.
    let words = [1, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 8, 7, 7];
    let message: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    let mark = 0x8000_0000 | message.len() as u32;
    let call = [mark.to_be_bytes().to_vec(), message].concat();
    std::fs::write(&file, segments(1, 2049, &[&call])).unwrap();
    let output = brunt(
        &["--json", "analyze", file.to_str().unwrap()],
        Stdio::null(),
    );
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &report["by_operation"][0];
    assert_eq!(
        (&row["name"], &row["calls"]),
        (&"GETATTR".into(), &1.into())
    );
    assert_eq!(row["latency"], serde_json::Value::Null);
}
