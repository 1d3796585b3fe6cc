use super::*;

/// A packet's time, length on the wire, link type and bytes.
type Seen = (u64, u32, LinkType, Vec<u8>);

/// Walks through a whole file like a reader; returns the packets and how the walk ended.
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
                assert!(
                    need > file.len() - at,
                    "asks for {need} and has {}",
                    file.len() - at
                );
                return (packets, Ok(file.len() - at));
            }
            Err(malformed) => return (packets, Err(malformed)),
        }
    }
}

fn words(big: bool, words: &[u32]) -> Vec<u8> {
    words
        .iter()
        .flat_map(|w| {
            if big {
                w.to_be_bytes()
            } else {
                w.to_le_bytes()
            }
        })
        .collect()
}

fn classic(big: bool, magic: u32) -> Vec<u8> {
    let mut file = words(
        big,
        &[
            magic,
            if big { 0x0002_0004 } else { 0x0004_0002 },
            0,
            0,
            65535,
            1,
        ],
    );
    file.extend(words(big, &[10, 7, 3, 60]));
    file.extend([1, 2, 3]);
    file
}

/// Classic files in both byte orders and both resolutions.
#[test]
fn classic_files_are_parsed_in_both_byte_orders() {
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

/// A classic file of three packets whose headers are `extra` bytes longer than usual.
fn with_longer_headers(big: bool, magic: u32, extra: usize) -> Vec<u8> {
    let mut file = words(
        big,
        &[
            magic,
            if big { 0x0002_0004 } else { 0x0004_0002 },
            0,
            0,
            65535,
            1,
        ],
    );
    for second in 0..3 {
        file.extend(words(big, &[1_627_318_357 + second, 999_999, 60, 60]));
        file.extend(vec![0xee; extra]);
        file.extend([second as u8; 60]);
    }
    file
}

/// Both revisions of the modified format are read. Variants with the usual magic number are rejected by name, before
/// a packet is misread or, if the buffer contained only one packet, right after it.
#[test]
fn longer_headers_are_parsed_or_rejected_by_name() {
    for big in [false, true] {
        for extra in [8, 12] {
            let file = with_longer_headers(big, 0xa1b2_cd34, extra);
            let (packets, end) = walk(&file);
            assert_eq!((packets.len(), end), (3, Ok(0)), "{extra}");
            for (index, (time_ns, _, _, bytes)) in packets.iter().enumerate() {
                assert_eq!(bytes, &[index as u8; 60]);
                assert_eq!(
                    *time_ns,
                    (1_627_318_357 + index as u64) * 1_000_000_000 + 999_999_000
                );
            }
        }
        for (extra, name) in [(4, "Nokia"), (8, "Red Hat 6.1")] {
            let file = with_longer_headers(big, 0xa1b2_c3d4, extra);
            let (packets, end) = walk(&file);
            assert!(packets.is_empty() && end.unwrap_err().what.contains(name));
            let mut slow = PacketFile::new();
            assert_eq!(slow.next(&file), Ok(PacketStep::Skip(24)));
            let Ok(PacketStep::Packet(used, _)) = slow.next(&file[24..100]) else {
                panic!()
            };
            assert!(
                slow.next(&file[24 + used..])
                    .unwrap_err()
                    .what
                    .contains(name)
            );
        }
        // An implausible time alone doesn't cause a file to be rejected.
        let mut file = with_longer_headers(big, 0xa1b2_c3d4, 0);
        file[24 + 76..][..8].copy_from_slice(&[0xff; 8]);
        assert_eq!(walk(&file).0.len(), 3);
    }
}

fn snoop() -> Vec<u8> {
    let mut file = b"snoop\0\0\0".to_vec();
    file.extend(words(true, &[2, 4]));
    for second in 0..2 {
        file.extend(words(true, &[1500, 5, 24 + 8, 0, 1000 + second, 7]));
        file.extend([1, 2, 3, 4, 5, 0, 0, 0]);
    }
    file
}

/// Snoop files are read; other link types and versions are rejected.
#[test]
fn snoop_files_are_parsed_and_other_links_rejected() {
    let (packets, end) = walk(&snoop());
    assert_eq!((packets.len(), end), (2, Ok(0)));
    assert_eq!(
        packets[1],
        (
            1_001_000_007_000,
            1500,
            LinkType::Ethernet,
            vec![1, 2, 3, 4, 5]
        )
    );
    for (at, offset) in [(11, 8), (15, 12), (7, 0), (16 + 11, 16 + 8)] {
        let mut file = snoop();
        file[at] = 5;
        assert_eq!(walk(&file).1.unwrap_err().offset, offset);
    }
}

fn ng(big: bool) -> Vec<u8> {
    let version = if big { 1 << 16 } else { 1 };
    let mut file = words(
        big,
        &[SECTION, 28, 0x1a2b_3c4d, version, u32::MAX, u32::MAX, 28],
    );
    const SECTION: u32 = ng::SECTION_HEADER_BLOCK;
    // Interface 0: raw IP, nanoseconds.
    let link_type = if big { 101 << 16 } else { 101 };
    file.extend(words(big, &[1, 32, link_type, 0]));
    file.extend(if big {
        [0, 9, 0, 1, 9, 0, 0, 0]
    } else {
        [9, 0, 1, 0, 9, 0, 0, 0]
    });
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

/// pcapng in both byte orders, with options, skipped blocks and simple packets.
#[test]
fn pcapng_files_are_parsed_in_both_byte_orders() {
    for big in [false, true] {
        let (packets, end) = walk(&ng(big));
        assert_eq!(end, Ok(0));
        assert_eq!(packets.len(), 2);
        assert_eq!(
            packets[0],
            ((1 << 32) + 5, 1500, LinkType::Raw, vec![1, 2, 3, 4, 5])
        );
        assert_eq!(packets[1], (0, 4, LinkType::Raw, vec![7, 7, 7, 7]));
    }
}

/// Times outside 1970 to 2262 are clamped, with any resolution and any offset.
#[test]
fn impossible_times_are_clamped() {
    // The interface options: a resolution and an offset in seconds; then a packet at `units`.
    let check = |resolution: u8, offset_s: i64, units: u64, expected: u64| {
        let mut file = words(false, &[ng::SECTION_HEADER_BLOCK, 28, 0x1a2b_3c4d, 1]);
        file.extend(words(false, &[u32::MAX, u32::MAX, 28]));
        file.extend(words(
            false,
            &[1, 40, 101, 0, 0x0001_0009, u32::from(resolution)],
        ));
        file.extend(words(false, &[0x0008_000e]));
        file.extend(offset_s.to_le_bytes());
        file.extend(words(false, &[40]));
        let (high, low) = ((units >> 32) as u32, units as u32);
        file.extend(words(false, &[6, 32, 0, high, low, 0, 60, 32]));
        let (packets, end) = walk(&file);
        assert_eq!((packets.len(), end), (1, Ok(0)));
        assert_eq!(packets[0].0, expected, "{resolution} {offset_s} {units}");
    };
    const LAST: u64 = i64::MAX as u64;
    check(9, 0, 5, 5);
    check(9, 2, 5, 2_000_000_005);
    check(6, -1, 1_000_001, 1000);
    for resolution in [0, 3, 6, 9, 0x80, 0x8a] {
        check(resolution, 0, u64::MAX, LAST);
        check(resolution, i64::MAX, 0, LAST);
        check(resolution, i64::MIN, 0, 0);
    }
    check(6, 0, 18_446_744_073_204_277_451, LAST);
}

/// A file truncated at any byte yields the packets before that byte and asks for more.
#[test]
fn a_truncated_capture_keeps_its_first_packets() {
    let modified = with_longer_headers(true, 0xa1b2_cd34, 12);
    for file in [
        classic(false, 0xa1b2_c3d4),
        ng(true),
        ng(false),
        snoop(),
        modified,
    ] {
        for end in 0..file.len() {
            let (_, result) = walk(&file[..end]);
            assert!(result.is_ok(), "cut at {end}: {result:?}");
        }
    }
}

/// Invalid data ends the walk with its position and never hangs or panics.
#[test]
fn invalid_data_ends_the_walk_with_its_position() {
    assert_eq!(walk(&[0; 64]).1.unwrap_err().offset, 0);
    let mut file = classic(false, 0xa1b2_c3d4);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(walk(&file).1.unwrap_err().offset, 32);
    let good = ng(false);
    let mut random = 12345u64;
    for _ in 0..20_000 {
        let mut file = good.clone();
        for _ in 0..3 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (random >> 33) as usize % file.len();
            file[at] = (random >> 20) as u8;
        }
        let _ = walk(&file);
    }
}

/// A file of another version is rejected instead of being misread.
#[test]
fn files_of_other_versions_are_rejected() {
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
