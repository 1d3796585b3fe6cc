//! Hostile traffic: memory stays bounded, nothing panics, nothing hangs.

use crate::common;
use brunt_capture::{Analysis, Ledger, Limits, Pipeline};
use brunt_core::random::Random;
use brunt_wire::pcap::{CapturedPacket, LinkType};

/// An IPv4 TCP packet from `10.0.0.1:port` to `10.0.0.2:2049`, or in the opposite direction.
fn tcp(port: u32, back: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(((40 + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    // The upper bits of `port` determine the client's address.
    let client = [10, (port >> 24) as u8, (port >> 16) as u8, 1];
    let server = [192, 168, 0, 2];
    let ports = ((port as u16).to_be_bytes(), 2049u16.to_be_bytes());
    let (source, destination) = if back {
        (server, client)
    } else {
        (client, server)
    };
    packet.extend(source);
    packet.extend(destination);
    let (from, to) = if back { (ports.1, ports.0) } else { ports };
    packet.extend(from);
    packet.extend(to);
    packet.extend(seq.to_be_bytes());
    packet.extend(ack.to_be_bytes());
    packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Feeds packets one microsecond apart, and checks that the ledger adds up.
fn run(packets: impl Iterator<Item = Vec<u8>>) -> (Ledger, Pipeline<Analysis>) {
    let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
    for (index, bytes) in packets.enumerate() {
        pipeline.on_packet(&CapturedPacket {
            time_ns: index as u64 * 1000,
            wire_len: bytes.len() as u32,
            interface: 0,
            link: LinkType::Raw,
            bytes: &bytes,
        });
    }
    let ledger = pipeline.ledger().clone();
    ledger.check().unwrap();
    (ledger, pipeline)
}

/// A million half-open connections evict each other, but never a connection that carries data.
#[test]
fn half_open_connections_never_evict_one_with_data() {
    let syns = (0..1_000_000u32).map(|i| tcp(i.wrapping_mul(65_537), false, i, 0, SYN, &[]));
    let (ledger, pipeline) = run(syns);
    assert!(ledger.connections > 900_000);
    assert_eq!(
        ledger.connections - ledger.connections_evicted,
        Limits::default().connections as u64
    );
    assert_eq!(pipeline.kept_bytes(), 0);
}

/// One-byte segments with gaps that are never filled cost only the reorder buffers.
#[test]
fn one_byte_segments_with_gaps_cost_only_the_reorder_buffers() {
    let bytes = (0..300_000u32).map(|i| tcp(i % 64, false, 10 + 2 * (i / 64), 0, ACK, &[0x80]));
    let (ledger, pipeline) = run(bytes);
    assert!(ledger.holes > 0);
    assert!(pipeline.kept_bytes() <= Limits::default().kept_bytes);
}

/// Extreme and random record marks, followed by noise.
#[test]
fn nonsense_record_marks_keep_memory_bounded() {
    let mut random = Random::new(11);
    let mut at = [1u32; 16];
    let packets = (0..20_000).map(|i| {
        let port = i % 16;
        let mut payload = vec![0; 1 + random.below(1400) as usize];
        random.fill(&mut payload);
        if payload.len() > 28 && random.chance(0.5) {
            let mark = [
                0xffff_ffff,
                0x7fff_ffff,
                0x8000_0000,
                0,
                0x8000_0400,
                0x0100_0000,
            ][random.below(6) as usize];
            payload[..4].copy_from_slice(&u32::to_be_bytes(mark));
            // Occasionally, a call that looks valid up to its credentials.
            payload[8..28].copy_from_slice(&[
                0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 7,
            ]);
        }
        let seq = at[port as usize];
        at[port as usize] = seq.wrapping_add(payload.len() as u32);
        tcp(port, random.chance(0.3), seq, seq, ACK, &payload)
    });
    let (_, pipeline) = run(packets.collect::<Vec<_>>().into_iter());
    assert!(pipeline.kept_bytes() <= Limits::default().kept_bytes);
}

/// A real capture with damaged bytes, truncated packets, duplicates and swaps at random.
#[test]
fn a_damaged_capture_keeps_the_ledger_balanced() {
    let packets = common::packets(&common::small_piece());
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
        for _ in 0..packets.len() {
            // Mostly the next packet, sometimes any packet.
            let (time_ns, wire_len, link, bytes) = &packets[if random.chance(0.02) {
                random.below(packets.len() as u64) as usize
            } else {
                (pipeline.ledger().packets as usize).min(packets.len() - 1)
            }];
            let mut bytes = bytes.clone();
            if random.chance(0.2) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            if random.chance(0.1) {
                bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
            }
            pipeline.on_packet(&CapturedPacket {
                time_ns: *time_ns,
                wire_len: *wire_len,
                interface: 0,
                link: *link,
                bytes: &bytes,
            });
        }
        pipeline.ledger().check().unwrap();
        let (analysis, ledger) = pipeline.finish();
        ledger.check().unwrap();
        let text = brunt_capture::analysis::report::text(&analysis.report(&ledger));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "a line is wider than 80 columns:\n{text}"
        );
    }
}

/// The same bytes in different segments give the same operations: with one segment per byte, and with all of a
/// connection's bytes in segments of the largest size.
#[test]
fn operations_do_not_depend_on_segmentation() {
    let packets = common::packets(&common::small_piece());
    let run_with = |segment_bytes: Option<usize>| {
        let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
        for (time_ns, wire_len, link, bytes) in &packets {
            let header = 14 + 20 + usize::from(bytes[46] >> 4) * 4;
            let total = usize::from(u16::from_be_bytes([bytes[16], bytes[17]])) + 14;
            let payload = &bytes[header..total];
            let feed = |pipeline: &mut Pipeline<Analysis>, bytes: &[u8]| {
                let wire_len = bytes.len() as u32;
                pipeline.on_packet(&CapturedPacket {
                    time_ns: *time_ns,
                    wire_len,
                    interface: 0,
                    link: *link,
                    bytes,
                });
            };
            let Some(size) = segment_bytes.filter(|_| !payload.is_empty()) else {
                assert!(*wire_len as usize >= total);
                feed(&mut pipeline, &bytes[..total]);
                continue;
            };
            let seq = u32::from_be_bytes(bytes[38..42].try_into().unwrap());
            for (index, piece) in payload.chunks(size).enumerate() {
                let mut segment = bytes[..header].to_vec();
                segment.extend(piece);
                segment[16..18]
                    .copy_from_slice(&((header - 14 + piece.len()) as u16).to_be_bytes());
                segment[38..42]
                    .copy_from_slice(&seq.wrapping_add((index * size) as u32).to_be_bytes());
                feed(&mut pipeline, &segment);
            }
        }
        let (_, ledger) = pipeline.finish();
        // `replies` is not compared: the capture begins in the middle of connections, and how many replies without
        // calls are skipped before the first record is found depends on the segments.
        [
            ledger.calls,
            ledger.calls_answered,
            ledger.data_bytes,
            ledger.bodies_malformed,
        ]
    };
    let whole = run_with(None);
    for size in [1, 2, 3, 7, 100] {
        assert_eq!(run_with(Some(size)), whole, "segments of {size} bytes");
    }
}
