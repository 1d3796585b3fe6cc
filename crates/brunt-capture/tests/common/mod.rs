//! Where the captures are: a small piece in the repository, larger ones beside it.
#![allow(dead_code)] // each test uses its part

use std::path::{Path, PathBuf};

use brunt_capture::{Batch, FileSource};
use brunt_wire::pcap::{CapturedPacket, LinkType};

/// Time, length on the wire, link, bytes.
pub type Packet = (u64, u32, LinkType, Vec<u8>);

/// The piece that is always there: a thousand packets out of the middle of `retx-small`.
pub fn small_piece() -> PathBuf {
    repository().join("testdata/nfs3-small.pcap.zst")
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("crates/brunt-capture")
}

/// A shared capture, or `None` with a note when it is not on this machine.
pub fn shared(name: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("BRUNT_SHARED_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => repository().join("../shared/data"),
    };
    let path = folder.join("nfs").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("BRUNT_REQUIRE_ALL").is_none(), "{} is missing", path.display());
    println!("skipped: needs {}; set BRUNT_SHARED_DATA to the folder with the captures", path.display());
    None
}

/// All packets of a capture, for tests that go through it several times.
pub fn packets(path: &Path) -> Vec<Packet> {
    let mut source = FileSource::open(path).unwrap();
    let mut batch = Batch::default();
    let mut all = Vec::new();
    while source.fill(&mut batch).unwrap() {
        all.extend(batch.packets().map(|p| (p.time_ns, p.wire_len, p.link, p.bytes.to_vec())));
    }
    all
}

/// Packet `index` of such a list, with its index as its time: an operation's times then name
/// the packets in which its headers began.
pub fn numbered(index: usize, packet: &Packet) -> CapturedPacket<'_> {
    let (_, wire_len, link, bytes) = packet;
    CapturedPacket { time_ns: index as u64 * 1000, wire_len: *wire_len, interface: 0, link: *link, bytes }
}
