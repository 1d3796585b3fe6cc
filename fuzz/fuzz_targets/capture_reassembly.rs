//! Packets in any order, cut and overlapping, through reassembly, records, calls and analyses. If the first byte is 0,
//! the rest is a packet file; otherwise the input is a script of TCP segments and UDP datagrams of four connections: an
//! instruction byte, its operands, then the payload.
#![no_main]

use brunt_capture::{Analysis, Limits, Pipeline};
use brunt_wire::pcap::{CapturedPacket, LinkType, PacketFile, PacketStep};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    connections: 4,
    calls_waiting: 8,
    call_timeout_ns: 1_000_000,
    kept_bytes: 64 << 10,
    record_ids: (0, 1),
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    let mut pipeline = Pipeline::new(Analysis::new(), LIMITS);
    if kind == 0 {
        file(rest, &mut pipeline)
    } else {
        script(rest, &mut pipeline)
    }
    assert!(
        pipeline.kept_bytes() <= LIMITS.kept_bytes,
        "more kept than allowed"
    );
    if let Err(sum) = pipeline.ledger().check() {
        panic!("before the end: {sum}");
    }
    let (analysis, ledger) = pipeline.finish();
    if let Err(sum) = ledger.check() {
        panic!("at the end: {sum}");
    }
    let _ = brunt_capture::analysis::report::text(&analysis.report(&ledger));
});

fn file(mut rest: &[u8], pipeline: &mut Pipeline<Analysis>) {
    let mut file = PacketFile::new();
    while let Ok(step) = file.next(rest) {
        let used = match step {
            PacketStep::Packet(used, packet) => {
                pipeline.on_packet(&packet);
                used
            }
            PacketStep::Skip(used) => used,
            PacketStep::Incomplete(_) => return,
        };
        let Some(next) = rest.get(used..) else { return };
        rest = next;
    }
}

fn script(mut rest: &[u8], pipeline: &mut Pipeline<Analysis>) {
    // The next sequence numbers, by connection and direction.
    let mut next = [[1u32; 2]; 4];
    let mut packet = Vec::new();
    for time_ns in (0..).step_by(1000) {
        let Some((&[what, jump, cut, len], after)) = rest.split_first_chunk::<4>() else {
            return;
        };
        let (payload, after) = after.split_at(usize::from(len).min(after.len()));
        rest = after;
        let (connection, direction) = (usize::from(what & 3), usize::from(what >> 2 & 1));
        let udp = what & 8 != 0;
        let seq =
            next[connection][direction].wrapping_add((jump as i8 as i32 as u32).wrapping_mul(7));
        if what & 16 == 0 {
            next[connection][direction] = seq.wrapping_add(payload.len() as u32);
        }
        // Half of the connections are NFS, the other half iSCSI.
        let port = if connection & 1 == 0 { 2049 } else { 3260 };
        let ends = [
            ([10, 0, 0, connection as u8], 1000u16),
            ([10, 0, 1, 1], port),
        ];
        let (from, to) = (ends[direction], ends[1 - direction]);
        let header_len = if udp { 28 } else { 40 };
        packet.clear();
        packet.extend([0x45, 0]);
        packet.extend(((header_len + payload.len()) as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, if udp { 17 } else { 6 }, 0, 0]);
        packet.extend(from.0);
        packet.extend(to.0);
        packet.extend(from.1.to_be_bytes());
        packet.extend(to.1.to_be_bytes());
        if udp {
            packet.extend(((8 + payload.len()) as u16).to_be_bytes());
            packet.extend([0, 0]);
        } else {
            packet.extend(seq.to_be_bytes());
            packet.extend(next[connection][1 - direction].to_be_bytes());
            packet.extend([0x50, what >> 3 & 0x12, 0xff, 0xff, 0, 0, 0, 0]);
        }
        packet.extend(payload);
        let captured = packet.len().saturating_sub(usize::from(cut >> 4));
        pipeline.on_packet(&CapturedPacket {
            time_ns,
            wire_len: packet.len() as u32,
            interface: 0,
            link: LinkType::Raw,
            bytes: &packet[..captured],
        });
    }
}
