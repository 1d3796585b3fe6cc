//! iSCSI connections, PDU by PDU: consistent and inconsistent headers, digests, data, gaps and captures that begin in
//! the middle, each cut into segments in two ways. The input is a script: an instruction byte followed by its
//! operands. The findings add up and are bounded; if no search for the next header was needed, they do not depend on
//! the segmentation.
#![no_main]

use brunt_capture::{Analysis, Ledger, Limits, Pipeline};
use brunt_wire::iscsi::digest::digest;
use brunt_wire::iscsi::pdu::{BHS_BYTES, padded};
use brunt_wire::pcap::{CapturedPacket, LinkType};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    connections: 4,
    calls_waiting: 8,
    call_timeout_ns: 1_000_000_000,
    kept_bytes: 64 << 10,
    record_ids: (0, 1),
};
/// Opcodes of both sides: commands, task management, logins, text, data, R2T, responses, and an invalid one.
const OPCODES: [u8; 16] = [
    0x01, 0x41, 0x02, 0x05, 0x43, 0x04, 0x00, 0x06, 0x21, 0x25, 0x31, 0x22, 0x23, 0x24, 0x3f, 0x13,
];

fuzz_target!(|bytes: &[u8]| {
    let whole = run(bytes, usize::MAX);
    let cut = run(bytes, 7);
    let searched = |ledger: &Ledger| ledger.slow_mode_bytes + ledger.bytes_unclaimed + ledger.holes;
    if searched(&whole) + searched(&cut) == 0 {
        let counts = |l: &Ledger| {
            (
                l.calls,
                l.calls_answered,
                l.calls_aborted,
                l.replies,
                l.data_bytes,
            )
        };
        assert_eq!(counts(&whole), counts(&cut), "by how segments are cut");
    }
});

/// The next sequence numbers, by connection and direction.
struct Wire {
    pipeline: Pipeline<Analysis>,
    next: [[u32; 2]; 2],
    time_ns: u64,
    segment_max: usize,
}

impl Wire {
    fn send(&mut self, connection: usize, direction: usize, stream: &[u8]) {
        for payload in stream.chunks(self.segment_max.min(1400)) {
            let seq = self.next[connection][direction];
            self.next[connection][direction] = seq.wrapping_add(payload.len() as u32);
            let ends = [
                ([10, 0, 0, connection as u8], 1000u16),
                ([10, 0, 1, 1], 3260),
            ];
            let (from, to) = (ends[direction], ends[1 - direction]);
            let mut packet = vec![0x45, 0];
            packet.extend(((40 + payload.len()) as u16).to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
            packet.extend(from.0);
            packet.extend(to.0);
            packet.extend(from.1.to_be_bytes());
            packet.extend(to.1.to_be_bytes());
            packet.extend(seq.to_be_bytes());
            packet.extend(self.next[connection][1 - direction].to_be_bytes());
            packet.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
            packet.extend(payload);
            let wire_len = packet.len() as u32;
            let link = LinkType::Raw;
            let seen = CapturedPacket {
                time_ns: self.time_ns,
                wire_len,
                interface: 0,
                link,
                bytes: &packet,
            };
            self.pipeline.on_packet(&seen);
        }
    }
}

fn run(mut script: &[u8], segment_max: usize) -> Ledger {
    let pipeline = Pipeline::new(Analysis::new(), LIMITS);
    let mut wire = Wire {
        pipeline,
        next: [[1; 2]; 2],
        time_ns: 0,
        segment_max,
    };
    while let Some((&[what, tag, flags, len, more], after)) = script.split_first_chunk::<5>() {
        let (own, after) = after.split_at(usize::from(more & 0x3f).min(after.len()));
        script = after;
        wire.time_ns += 1000;
        let (connection, direction) = (usize::from(what >> 7), usize::from(what >> 6 & 1));
        // A gap: bytes that were not captured.
        if what & 0x30 == 0x30 {
            let next = &mut wire.next[connection][direction];
            *next = next.wrapping_add(u32::from(len) * 3 + 1);
            continue;
        }
        let mut header = [0u8; BHS_BYTES];
        (header[0], header[1]) = (OPCODES[usize::from(what & 0x0f)], flags);
        header[19] = tag & 7;
        // The script's own bytes overwrite the rest of the header.
        header[20..][..own.len().min(28)].copy_from_slice(&own[..own.len().min(28)]);
        let data: Vec<u8> = (0..usize::from(len) * 5)
            .map(|at| own.get(at).copied().unwrap_or(at as u8))
            .collect();
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut stream = header.to_vec();
        if more & 0x40 != 0 {
            stream.extend(digest(&header));
        }
        stream.extend(&data);
        stream.resize(stream.len() + padded(data.len()) - data.len(), 0);
        if more & 0x80 != 0 && !data.is_empty() {
            stream.extend(digest(&data));
        }
        wire.send(connection, direction, &stream);
    }
    assert!(
        wire.pipeline.kept_bytes() <= LIMITS.kept_bytes,
        "more kept than allowed"
    );
    if let Err(sum) = wire.pipeline.ledger().check() {
        panic!("before the end: {sum}");
    }
    let (analysis, ledger) = wire.pipeline.finish();
    if let Err(sum) = ledger.check() {
        panic!("at the end: {sum}");
    }
    let _ = brunt_capture::analysis::report::text(&analysis.report(&ledger));
    ledger
}
