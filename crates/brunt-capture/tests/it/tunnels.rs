//! Traffic in tunnels: the operations equal those of the same packets without tunnels, for brunt and for tshark.

use crate::common;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::Packet;
use brunt_capture::{
    Analysis, ChecksumRun, Ledger, Limits, Operation, Pipeline, Sink, run_file, run_file_parallel,
};
use brunt_wire::pcap::{CapturedPacket, LinkType};
use tempfile::{TempDir, tempdir};

/// An operation without addresses: the client's port, the tag and the kind.
type Key = (u16, u32, &'static str);

/// The operations seen, with whether call and reply were complete, and the status.
#[derive(Default)]
struct Seen(BTreeMap<Key, (bool, bool, Option<u32>)>);

impl Sink for Seen {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let key = (
            operation.peers.client.port,
            operation.tag,
            operation.summary.kind.name(),
        );
        let reply = operation.reply.is_some_and(|reply| reply.whole);
        self.0.insert(
            key,
            (operation.request.whole, reply, operation.summary.status),
        );
    }
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
}

/// Both MAC addresses and an EtherType. The first byte can't be the start of an IP packet or of a control word.
fn ethernet(ether_type: u16) -> Vec<u8> {
    let mut frame = vec![0x2a, 0, 0, 0, 0, 1, 0x2a, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn checksum(header: &[u8]) -> [u8; 2] {
    let sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// An IPv4 packet from 192.0.2.1 to 192.0.2.2; `fragment` is the word with the flags and the offset.
fn ipv4_piece(protocol: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(((20 + payload.len()) as u16).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend(payload);
    packet
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_piece(protocol, 0, 0x4000, payload)
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend(payload);
    packet
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = 50_000u16.to_be_bytes().to_vec();
    datagram.extend(port.to_be_bytes());
    datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

/// A frame's IPv4 packet, as an IPv6 packet between the same hosts.
fn as_ipv6(frame: &[u8]) -> Vec<u8> {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let mut packet = ipv6(frame[23], &frame[14 + 20..14 + total]);
    packet[20..24].copy_from_slice(&frame[26..30]);
    packet[36..40].copy_from_slice(&frame[30..34]);
    packet
}

/// A frame's IPv4 packet in two fragments, the first with `at` bytes of its payload.
fn in_pieces(frame: &[u8], at: usize, id: u16) -> Vec<Vec<u8>> {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let payload = &frame[14 + 20..14 + total];
    if payload.len() <= at {
        return vec![frame.to_vec()];
    }
    let piece = |word: u16, part: &[u8]| {
        let mut packet = frame[..34].to_vec();
        packet[16..18].copy_from_slice(&((20 + part.len()) as u16).to_be_bytes());
        packet[18..20].copy_from_slice(&id.to_be_bytes());
        packet[20..22].copy_from_slice(&word.to_be_bytes());
        packet[24..26].copy_from_slice(&[0, 0]);
        let sum = checksum(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum);
        packet.extend(part);
        packet
    };
    vec![
        piece(0x2000, &payload[..at]),
        piece((at / 8) as u16, &payload[at..]),
    ]
}

type Wrap = fn(&[u8], u16) -> Vec<Vec<u8>>;

/// Each tunnel with its name, the counter that must count every packet, and a function that wraps a frame.
const TUNNELS: &[(&str, &str, Wrap)] = &[
    ("vxlan", "tunnels_vxlan", |frame, _| {
        vec![joined(&[
            &ethernet(0x0800),
            &ipv4(17, &udp(4789, &joined(&[&VXLAN, frame]))),
        ])]
    }),
    ("vxlan over IPv6", "tunnels_vxlan", |frame, _| {
        vec![joined(&[
            &ethernet(0x86dd),
            &ipv6(17, &udp(4789, &joined(&[&VXLAN, frame]))),
        ])]
    }),
    (
        "vxlan with tags inside and outside",
        "tunnels_vxlan",
        |frame, _| {
            let tagged = joined(&[
                &frame[..12],
                &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9],
                &frame[12..],
            ]);
            let outer = joined(&[&ethernet(0x8100), &[0, 3, 8, 0]]);
            vec![joined(&[
                &outer,
                &ipv4(17, &udp(4789, &joined(&[&VXLAN, &tagged]))),
            ])]
        },
    ),
    ("vxlan in two fragments", "tunnels_vxlan", |frame, id| {
        let datagram = udp(4789, &joined(&[&VXLAN, frame]));
        let (first, second) = datagram.split_at(72);
        vec![
            joined(&[&ethernet(0x0800), &ipv4_piece(17, id, 0x2000, first)]),
            joined(&[&ethernet(0x0800), &ipv4_piece(17, id, 72 / 8, second)]),
        ]
    }),
    (
        "vxlan with fragments in it",
        "tunnels_vxlan",
        |frame, id| {
            let wrapped = |piece: Vec<u8>| {
                joined(&[
                    &ethernet(0x0800),
                    &ipv4(17, &udp(4789, &joined(&[&VXLAN, &piece]))),
                ])
            };
            in_pieces(frame, 64, id).into_iter().map(wrapped).collect()
        },
    ),
    ("geneve with options", "tunnels_geneve", |frame, _| {
        let header = [2, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 1, 0, 0, 0, 0];
        vec![joined(&[
            &ethernet(0x0800),
            &ipv4(17, &udp(6081, &joined(&[&header, frame]))),
        ])]
    }),
    ("gre with IP", "tunnels_gre", |frame, _| {
        vec![joined(&[
            &ethernet(0x0800),
            &ipv4(47, &joined(&[&[0, 0, 8, 0], &frame[14..]])),
        ])]
    }),
    (
        "gre with checksum, key, sequence and Ethernet",
        "tunnels_gre",
        |frame, _| {
            let mut packet = joined(&[
                &[0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6],
                frame,
            ]);
            packet.resize(packet.len().next_multiple_of(2), 0);
            let words = packet
                .chunks(2)
                .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let mut sum: u32 = words.sum();
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            packet[4..6].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            vec![joined(&[&ethernet(0x0800), &ipv4(47, &packet)])]
        },
    ),
    ("erspan I", "tunnels_erspan_1", |frame, _| {
        vec![joined(&[
            &ethernet(0x0800),
            &ipv4(47, &joined(&[&[0, 0, 0x88, 0xbe], frame])),
        ])]
    }),
    ("erspan II", "tunnels_erspan_2", |frame, _| {
        let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 1, 0, 0, 0, 0];
        vec![joined(&[
            &ethernet(0x0800),
            &ipv4(47, &joined(&[&header, frame])),
        ])]
    }),
    ("erspan III", "tunnels_erspan_3", |frame, _| {
        let header = [
            0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        vec![joined(&[
            &ethernet(0x0800),
            &ipv4(47, &joined(&[&header, frame])),
        ])]
    }),
    (
        "erspan III with a platform's header",
        "tunnels_erspan_3",
        |frame, _| {
            let header = [
                0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1,
            ];
            let platform = [0x04, 0, 0, 0, 0, 0, 0, 0];
            vec![joined(&[
                &ethernet(0x0800),
                &ipv4(47, &joined(&[&header, &platform, frame])),
            ])]
        },
    ),
    ("4in4", "tunnels_ip_in_ip", |frame, _| {
        vec![joined(&[&ethernet(0x0800), &ipv4(4, &frame[14..])])]
    }),
    ("6in4", "tunnels_ip_in_ip", |frame, _| {
        vec![joined(&[&ethernet(0x0800), &ipv4(41, &as_ipv6(frame))])]
    }),
    ("4in6", "tunnels_ip_in_ip", |frame, _| {
        vec![joined(&[&ethernet(0x86dd), &ipv6(4, &frame[14..])])]
    }),
    ("mpls with IP", "tunnels_mpls", |frame, _| {
        vec![joined(&[
            &ethernet(0x8847),
            &[0, 1, 0, 64, 0, 2, 1, 64],
            &frame[14..],
        ])]
    }),
    (
        "mpls with Ethernet and a control word",
        "tunnels_mpls",
        |frame, _| {
            vec![joined(&[
                &ethernet(0x8847),
                &[0, 1, 0, 64, 0, 2, 1, 64],
                &[0; 4],
                frame,
            ])]
        },
    ),
    ("mpls with Ethernet", "tunnels_mpls", |frame, _| {
        vec![joined(&[&ethernet(0x8847), &[0, 2, 1, 64], frame])]
    }),
    ("pppoe", "tunnels_pppoe", |frame, _| {
        let len = (frame.len() - 14 + 2) as u16;
        vec![joined(&[
            &ethernet(0x8864),
            &[0x11, 0, 0, 1],
            &len.to_be_bytes(),
            &[0, 0x21],
            &frame[14..],
        ])]
    }),
    ("vxlan in GRE in MPLS in IP", "tunnels_vxlan", |frame, _| {
        let vxlan = ipv4(17, &udp(4789, &joined(&[&VXLAN, frame])));
        let gre = ipv6(47, &joined(&[&[0x20, 0, 8, 0, 0, 0, 0, 9], &vxlan]));
        vec![joined(&[
            &ethernet(0x8847),
            &[0, 2, 1, 64],
            &ipv4(41, &gre),
        ])]
    }),
];

/// After MPLS labels, tshark expects an Ethernet frame only if there is a control word, unless each label is
/// configured.
const NOT_FOR_TSHARK: [&str; 1] = ["mpls with Ethernet"];

fn wrapped(packets: &[Packet], wrap: Wrap) -> Vec<Packet> {
    let mut all = Vec::new();
    for (index, (time_ns, _, link, bytes)) in packets.iter().enumerate() {
        let frames = wrap(bytes, index as u16);
        all.extend(
            frames
                .into_iter()
                .map(|frame| (*time_ns, frame.len() as u32, *link, frame)),
        );
    }
    all
}

fn seen(packets: &[Packet]) -> (Seen, Ledger) {
    let mut pipeline = Pipeline::new(Seen::default(), Limits::default());
    for (time_ns, wire_len, link, bytes) in packets {
        let packet = CapturedPacket {
            time_ns: *time_ns,
            wire_len: *wire_len,
            interface: 0,
            link: *link,
            bytes,
        };
        pipeline.on_packets(std::iter::once(packet));
    }
    let (seen, ledger) = pipeline.finish();
    ledger.check().unwrap();
    (seen, ledger)
}

/// A pcap file compressed with zstd.
fn file_of(packets: &[Packet], folder: &TempDir) -> PathBuf {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4du32, 2 | 4 << 16, 0, 0, 1 << 18, 1] {
        file.extend(word.to_le_bytes());
    }
    for (time_ns, wire_len, link, bytes) in packets {
        assert_eq!(*link, LinkType::Ethernet);
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        for word in [seconds as u32, rest as u32, bytes.len() as u32, *wire_len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    }
    let path = folder.path().join("tunnels.pcap.zst");
    std::fs::write(&path, zstd::encode_all(&file[..], 1).unwrap()).unwrap();
    path
}

/// The xids and message types of all calls and replies that tshark sees.
fn tshark_sees(path: &Path) -> Option<Vec<String>> {
    let rows = common::tshark(path, "rpc", &["rpc.xid", "rpc.msgtyp"])?;
    let both = |row: &Vec<String>| {
        let pairs = row[0].split('|').zip(row[1].split('|'));
        pairs
            .map(|(xid, kind)| format!("{xid} {kind}"))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<String> = rows.iter().flat_map(both).collect();
    all.sort();
    Some(all)
}

/// Frames that are short enough for tunnels: those captured on the sending host can be longer than any tunnel packet.
fn plain() -> Vec<Packet> {
    let packets = common::packets(&common::small_piece());
    assert!(
        packets
            .iter()
            .all(|(_, _, link, bytes)| *link == LinkType::Ethernet && bytes.len() < 9000)
    );
    packets
}

/// With every tunnel, the operations equal those of the packets without the tunnel, and the tunnel is counted.
#[test]
fn tunnels_do_not_change_the_operations() {
    let plain = plain();
    let (expected, _) = seen(&plain);
    assert!(expected.0.len() > 200);
    for (name, counter, wrap) in TUNNELS {
        let packets = wrapped(&plain, *wrap);
        let (found, ledger) = seen(&packets);
        assert_eq!(found.0, expected.0, "{name}");
        let counted = ledger.named().find(|(of, _)| of == counter).unwrap().1;
        let fragments_inside = name.contains("fragments in it");
        let all = if fragments_inside {
            packets.len()
        } else {
            plain.len()
        };
        assert_eq!(counted, all as u64, "{name}");
        assert_eq!(
            ledger.packets_unreadable + ledger.fragmented_packets_lost,
            0,
            "{name}"
        );
    }
}

/// tshark sees the same calls and replies in the tunnels as without them.
#[test]
fn tshark_sees_the_same_messages_in_tunnels() {
    let plain = plain();
    let folder = tempdir().unwrap();
    let Some(expected) = tshark_sees(&file_of(&plain, &folder)) else {
        return;
    };
    assert!(expected.len() > 400);
    for (name, _, wrap) in TUNNELS
        .iter()
        .filter(|(name, ..)| !NOT_FOR_TSHARK.contains(name))
    {
        let found = tshark_sees(&file_of(&wrapped(&plain, *wrap), &folder)).unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        assert_eq!(found, expected, "{name}");
    }
}

/// Several parsers find the same operations as one: packets are routed by the tunnel's contents, and fragments go
/// where the first fragment went.
#[test]
fn several_parsers_find_the_operations_that_one_finds() {
    let plain = plain();
    let (expected, _) = seen(&plain);
    for (name, _, wrap) in TUNNELS
        .iter()
        .filter(|(name, ..)| !name.contains("fragments in it"))
    {
        let folder = tempdir().unwrap();
        let path = file_of(&wrapped(&plain, *wrap), &folder);
        let sinks = (0..3).map(|_| Seen::default()).collect();
        let outcome = run_file_parallel(&path, sinks, Limits::default(), None, || false).unwrap();
        let mut found = Seen::default();
        outcome
            .shares
            .sinks
            .into_iter()
            .for_each(|sink| found.0.extend(sink.0));
        assert_eq!(found.0, expected.0, "{name}");
    }
}

/// Packets nested deeper than the limit are counted, but not looked into.
#[test]
fn packets_nested_too_deep_are_counted_and_not_dissected() {
    let (_, _, link, frame) = &plain()[0];
    let check = |depth: usize, too_deep: u64| {
        let mut packet = frame[14..].to_vec();
        (0..depth).for_each(|_| packet = ipv4(4, &packet));
        let bytes = joined(&[&ethernet(0x0800), &packet]);
        let (_, ledger) = seen(&[(0, bytes.len() as u32, *link, bytes)]);
        assert_eq!(ledger.packets_tunneled_too_deep, too_deep, "{depth}");
        assert_eq!(ledger.connections, 1 - too_deep, "{depth}");
    };
    check(8, 0);
    check(9, 1);
    check(60, 1);
}

/// Wherever a snap length or damage affects a tunnel's headers, nothing panics, and every packet is counted once.
#[test]
fn packets_with_damaged_tunnel_headers_are_counted_once() {
    let plain = plain();
    for (name, _, wrap) in TUNNELS {
        let packets = wrapped(&plain[..8], *wrap);
        for (_, wire_len, link, bytes) in &packets {
            for at in 0..bytes.len().min(160) {
                let cut = (0, *wire_len, *link, bytes[..at].to_vec());
                let mut damaged = bytes.clone();
                damaged[at] ^= 0xff;
                let damaged = (0, *wire_len, *link, damaged);
                let (_, ledger) = seen(&[cut, damaged]);
                assert_eq!(ledger.packets, 2, "{name}");
            }
        }
    }
}

/// Contents that are not understood are named in the report, at whatever depth, and a stored trace reports the same.
#[test]
fn content_that_is_not_understood_is_named_in_the_report() {
    let (folder, trace) = (tempdir().unwrap(), tempdir().unwrap());
    let vxlan = |frame: &[u8]| {
        joined(&[
            &ethernet(0x0800),
            &ipv4(17, &udp(4789, &joined(&[&VXLAN, frame]))),
        ])
    };
    let mut frames = vec![joined(&[&ethernet(0x88b5), &[0; 40]]); 30];
    frames.extend(vec![vxlan(&joined(&[&ethernet(0x0806), &[0; 28]])); 20]);
    frames.extend(vec![
        vxlan(&joined(&[
            &ethernet(0x0800),
            &ipv4(89, &[0; 24])
        ]));
        10
    ]);
    let packets: Vec<Packet> = frames
        .into_iter()
        .map(|frame| (0, frame.len() as u32, LinkType::Ethernet, frame))
        .collect();
    let path = file_of(&packets, &folder);
    let recorder =
        brunt_capture::trace::TraceRecorder::create(trace.path(), &Default::default()).unwrap();
    let mut outcome = run_file(
        &path,
        (Analysis::new(), recorder),
        Limits::default(),
        || false,
    )
    .unwrap();
    let (analysis, recorder) = outcome.sink;
    recorder.finish(&mut outcome.ledger);
    let report = analysis.report(&outcome.ledger);
    let rows: Vec<_> = report.rows["not_understood"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["packets"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("EtherType 0x88b5", 30),
            ("EtherType 0x0806 (ARP)", 20),
            ("IP protocol 89 (OSPF)", 10)
        ]
    );
    let text = brunt_capture::analysis::report::text(&report);
    for line in [
        "tunnels 30 VXLAN",
        "\nUnsupported protocols\n  protocol                packets   bytes\n",
        "\n  EtherType 0x88b5             30  1.6KiB\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert_eq!(report.findings[0].kind, "not-understood");
    let replayed = brunt_capture::trace::replay(trace.path()).unwrap();
    assert_eq!(
        replayed.analysis.report(&replayed.ledger).rows["not_understood"],
        report.rows["not_understood"]
    );
}
