use super::*;

/// Time, length on the wire, link and bytes of a packet.
type Seen = (u64, u32, LinkType, Vec<u8>);

/// Walks a whole file the way a reader does; gives the packets and how it ended.
fn walk(file: &[u8]) -> (Vec<Seen>, Result<usize, Malformed>) {
    let mut state = PacketFile::new();
    let mut packets = Vec::new();
    let mut at = 0;
    loop {
        match state.next(&file[at..]) {
            Ok(PacketStep::Packet(used, p)) => {
                packets.push((p.time_ns, p.wire_len, p.link, p.bytes.to_vec()));
                at += used;
            }
            Ok(PacketStep::Skip(used)) => at += used,
            Ok(PacketStep::Incomplete(need)) => {
                assert!(need > file.len() - at, "asks for {need} and has {}", file.len() - at);
                return (packets, Ok(file.len() - at));
            }
            Err(malformed) => return (packets, Err(malformed)),
        }
    }
}

fn words(big: bool, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
}

fn classic(big: bool, magic: u32) -> Vec<u8> {
    let mut file = words(big, &[magic, if big { 0x0002_0004 } else { 0x0004_0002 }, 0, 0, 65535, 1]);
    file.extend(words(big, &[10, 7, 3, 60]));
    file.extend([1, 2, 3]);
    file
}

/// Classic files in both orders and both resolutions.
#[test]
fn classic_files() {
    let check = |file: Vec<u8>, time_ns| {
        let (packets, end) = walk(&file);
        assert_eq!(packets, [(time_ns, 60, LinkType::Ethernet, vec![1, 2, 3])]);
        assert_eq!(end, Ok(0));
    };
    check(classic(false, 0xa1b2_c3d4), 10_000_007_000);
    check(classic(true, 0xa1b2_c3d4), 10_000_007_000);
    check(classic(false, 0xa1b2_3c4d), 10_000_000_007);
    check(classic(true, 0xa1b2_3c4d), 10_000_000_007);
}

fn ng(big: bool) -> Vec<u8> {
    let version = if big { 1 << 16 } else { 1 };
    let mut file = words(big, &[SECTION, 28, 0x1a2b_3c4d, version, u32::MAX, u32::MAX, 28]);
    const SECTION: u32 = ng::SECTION_HEADER_BLOCK;
    // Interface 0: raw IP, nanoseconds.
    let link_type = if big { 101 << 16 } else { 101 };
    file.extend(words(big, &[1, 32, link_type, 0]));
    file.extend(if big { [0, 9, 0, 1, 9, 0, 0, 0] } else { [9, 0, 1, 0, 9, 0, 0, 0] });
    file.extend(words(big, &[0, 32]));
    // A name resolution block, to be skipped.
    file.extend(words(big, &[4, 16, 0, 16]));
    // An enhanced packet of 5 bytes at 2^32 + 5 ns.
    file.extend(words(big, &[6, 40, 0, 1, 5, 5, 1500]));
    file.extend([1, 2, 3, 4, 5, 0, 0, 0]);
    file.extend(words(big, &[40]));
    // A simple packet.
    file.extend(words(big, &[3, 20, 4, 0x0707_0707, 20]));
    file
}

/// Pcapng in both orders, with options, skipped blocks and simple packets.
#[test]
fn pcapng_files() {
    for big in [false, true] {
        let (packets, end) = walk(&ng(big));
        assert_eq!(end, Ok(0));
        assert_eq!(packets.len(), 2);
        assert_eq!(packets[0], ((1 << 32) + 5, 1500, LinkType::Raw, vec![1, 2, 3, 4, 5]));
        assert_eq!(packets[1], (0, 4, LinkType::Raw, vec![7, 7, 7, 7]));
    }
}

/// A file cut at any byte gives the packets before the cut and asks for more.
#[test]
fn cut_anywhere() {
    for file in [classic(false, 0xa1b2_c3d4), ng(true), ng(false)] {
        for end in 0..file.len() {
            let (_, result) = walk(&file[..end]);
            assert!(result.is_ok(), "cut at {end}: {result:?}");
        }
    }
}

/// Nonsense ends the walk with its place and never hangs or panics.
#[test]
fn nonsense() {
    assert_eq!(walk(&[0; 64]).1.unwrap_err().offset, 0);
    let mut file = classic(false, 0xa1b2_c3d4);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(walk(&file).1.unwrap_err().offset, 32);
    let good = ng(false);
    let mut random = 12345u64;
    for _ in 0..20_000 {
        let mut file = good.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (random >> 33) as usize % file.len();
            file[at] = (random >> 20) as u8;
        }
        let _ = walk(&file);
    }
}

/// A file of another version is refused, not read as if it were of this one.
#[test]
fn versions() {
    for big in [false, true] {
        for (good, at) in [(classic(big, 0xa1b2_c3d4), 4), (ng(big), 12)] {
            let mut file = good;
            let major = at + usize::from(big);
            for other in [0, 3, 255] {
                file[major] = other;
                let (packets, end) = walk(&file);
                assert!(packets.is_empty() && end.is_err_and(|malformed| malformed.offset == at));
            }
        }
    }
}
