//! Capture files of all kinds, complete and truncated.

use crate::common;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use brunt_capture::{FileSource, PacketBatch, SourceError};
use tempfile::tempdir;

fn plain_bytes() -> Vec<u8> {
    zstd::decode_all(std::fs::File::open(common::small_piece()).unwrap()).unwrap()
}

/// Reads a file's packets up to its end or the first damage.
fn read(path: &Path) -> (usize, Option<SourceError>) {
    let mut source = match FileSource::open(path) {
        Ok(source) => source,
        Err(error) => return (0, Some(error)),
    };
    let (mut batch, mut packets) = (PacketBatch::default(), 0);
    loop {
        match source.fill(&mut batch) {
            Ok(true) => packets += batch.len(),
            Ok(false) => return (packets, None),
            Err(error) => return (packets + batch.len(), Some(error)),
        }
    }
}

/// A truncated compressed capture is reported as truncated, not as something other than a capture.
#[test]
fn a_truncated_compressed_capture_is_reported_as_truncated() {
    let plain = plain_bytes();
    let folder = tempdir().unwrap();
    let path = folder.path().join("cut.pcap.zst");
    let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for piece in plain.chunks(plain.len() / 10) {
        packed.write_all(piece).unwrap();
        packed.flush().unwrap();
    }
    let packed = packed.finish().unwrap();
    std::fs::write(&path, &packed[..packed.len() * 7 / 10]).unwrap();
    let (packets, error) = read(&path);
    let error = error.expect("it is cut");
    assert!(packets > 300, "{packets}");
    assert!(
        matches!(error, SourceError::Damaged { packets: told, .. } if told == packets as u64),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains(&format!("beyond packet {packets}")) && text.contains("truncated or damaged"),
        "{text}"
    );
    std::fs::write(&path, &packed[..20]).unwrap();
    assert!(matches!(
        read(&path),
        (0, Some(SourceError::NoCapture { .. }))
    ));
}

/// Files that Wireshark's editcap wrote in other formats yield the same packets, or are rejected with an error that
/// names their format.
#[test]
fn formats_of_editcap_give_the_same_packets_or_are_named() {
    let folder = tempdir().unwrap();
    let (plain, other) = (
        folder.path().join("plain.pcap"),
        folder.path().join("other"),
    );
    std::fs::write(&plain, plain_bytes()).unwrap();
    // Most of these formats store times in microseconds.
    let without_nanoseconds = |packets: Vec<common::Packet>| {
        packets
            .into_iter()
            .map(|(time, wire, link, bytes)| (time / 1000, wire, link, bytes))
            .collect::<Vec<_>>()
    };
    let expected = without_nanoseconds(common::packets(&plain));
    for format in [
        "pcap",
        "nsecpcap",
        "pcapng",
        "modpcap",
        "suse6_3pcap",
        "snoop",
        "nokiapcap",
        "rh6_1pcap",
    ] {
        let run = Command::new("editcap")
            .args(["-F", format])
            .arg(&plain)
            .arg(&other)
            .output();
        let Some(run) = run.ok().filter(|run| run.status.success()) else {
            assert!(std::env::var_os("BRUNT_REQUIRE_ALL").is_none(), "editcap");
            println!("skipped: needs editcap (Debian package wireshark-common)");
            return;
        };
        assert!(run.status.success());
        let refused = match format {
            "nokiapcap" => Some("Nokia"),
            "rh6_1pcap" => Some("Red Hat 6.1"),
            _ => None,
        };
        match (refused, read(&other)) {
            (None, (_, None)) => {
                assert!(
                    without_nanoseconds(common::packets(&other)) == expected,
                    "{format}"
                );
            }
            (Some(name), (0, Some(error))) => assert!(error.to_string().contains(name), "{error}"),
            (_, (packets, error)) => panic!("{format}: {packets} packets, {error:?}"),
        }
        std::fs::remove_file(&other).unwrap();
    }
}
