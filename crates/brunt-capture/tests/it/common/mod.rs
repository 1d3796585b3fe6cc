//! Locates the captures: a small one in the repository, larger ones in a shared folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use brunt_capture::{FileSource, PacketBatch};
use brunt_wire::pcap::{CapturedPacket, LinkType};
use tempfile::{NamedTempFile, TempDir, tempdir, tempdir_in};

/// Time, wire length, link type, bytes.
pub type Packet = (u64, u32, LinkType, Vec<u8>);

/// The capture that is always available: a thousand packets from the middle of `retx-small`.
pub fn small_piece() -> PathBuf {
    repository().join("testdata/nfs3-small.pcap.zst")
}

/// NFSv4 in all three minor versions: Linux 6.1 and libnfs 4.0 with nfs-ganesha 4.3.
pub fn small_compounds() -> PathBuf {
    repository().join("testdata/nfs4-small.pcap.zst")
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .expect("crates/brunt-capture")
}

/// One of the larger captures in the shared folder, or `None` with a note if it is missing. Tests must also be
/// conclusive with only the small captures.
pub fn shared(name: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("BRUNT_SHARED_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => repository().join("../shared/data"),
    };
    let path = folder.join("nfs").join(name);
    if path.exists() {
        return Some(path);
    }
    println!(
        "without {}; BRUNT_SHARED_DATA names the folder with the captures",
        path.display()
    );
    None
}

/// A folder in memory if the system has one, for tests that write many small parts, each of which is synced.
pub fn folder_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempdir_in(memory).unwrap()
    } else {
        tempdir().unwrap()
    }
}

/// All packets of a capture, for tests that iterate over it several times.
pub fn packets(path: &Path) -> Vec<Packet> {
    let mut source = FileSource::open(path).unwrap();
    let mut batch = PacketBatch::default();
    let mut all = Vec::new();
    while source.fill(&mut batch).unwrap() {
        all.extend(
            batch
                .packets()
                .map(|p| (p.time_ns, p.wire_len, p.link, p.bytes.to_vec())),
        );
    }
    all
}

/// Packet `index` of a capture, with its index as its time: an operation's times then identify the packets in which
/// its headers began.
pub fn numbered(index: usize, packet: &Packet) -> CapturedPacket<'_> {
    let (_, wire_len, link, bytes) = packet;
    let packet = CapturedPacket {
        time_ns: 0,
        wire_len: *wire_len,
        interface: 0,
        link: *link,
        bytes,
    };
    brunt_capture::recovery::numbered(index as u64, &packet)
}

/// Runs tshark on a capture; returns lines of tab-separated fields.
pub fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut plain = NamedTempFile::new().unwrap();
    let mut input = zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap();
    std::io::copy(&mut input, &mut plain).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(plain.path()).args([
        "-o",
        "tcp.reassemble_out_of_order:TRUE",
        "-Y",
        filter,
    ]);
    command.args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        other => {
            assert!(
                std::env::var_os("BRUNT_REQUIRE_ALL").is_none(),
                "tshark: {other:?}"
            );
            println!("skipped: needs tshark (Debian package tshark)");
            return None;
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .map(|line| line.split('\t').map(str::to_string).collect())
            .collect(),
    )
}
