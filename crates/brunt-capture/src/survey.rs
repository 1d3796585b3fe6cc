//! For a capture without operations, lists the protocols in it with packets and bytes: recognised by their first
//! bytes or, failing that, by port. Called by `brunt analyze` when it has nothing to report; reads the file a second
//! time.
//!
//! The rule: bytes are evidence for a protocol, a port is only a hint, and the report distinguishes the two.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use brunt_core::units::counted;
use brunt_wire::ParseError;
use brunt_wire::net::{
    Endpoint, Frame, IpPayload, NextHeader, Payload, TUNNELS_MAX, open_frame, open_ip, open_udp,
    parse_frame, parse_transport,
};
use brunt_wire::pcap::CapturedPacket;
use brunt_wire::rpc::{self, MARK_BYTES, RecordMark, RpcCall, RpcMessage};
use serde::Serialize;

use crate::flow::FlowKey;
use crate::operation::Transport;
use crate::source::{FileSource, PacketBatch, SourceError};

/// Maximum connections tracked individually; packets of further connections are named by port alone.
const FLOWS_MAX: usize = 1 << 16;
/// Maximum distinct names; all others are counted together.
const NAMES_MAX: usize = 256;
/// Maximum distinct RPC procedures.
const PROCEDURES_MAX: usize = 256;
/// Largest plausible fragment of an RPC record.
const FRAGMENT_BYTES_MAX: u32 = 16 << 20;
/// A call's header: ten words, and two bodies of up to 400 bytes each (RFC 5531, 8.2 and 9).
const CALL_HEADER_BYTES_MAX: usize = 40 + 2 * 400;

/// How a protocol was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// By the first bytes of its messages.
    Bytes,
    /// By a port on either side, which may be used for something else.
    Port,
    /// By the protocol number in the preceding header.
    Header,
    /// Not recognised.
    None,
}

/// One protocol of a capture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SurveyRow {
    /// The name, such as `SMB 2 or 3` or `TCP port 1234`.
    pub name: String,
    /// How it was recognised.
    pub by: Evidence,
    /// Number of packets that carried it.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// Share of all bytes of the capture, 0 to 1.
    pub share: f64,
}

/// The protocols in a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Survey {
    /// The protocols, the one with the most bytes first.
    pub protocols: Vec<SurveyRow>,
    /// Calls per RPC program, version and procedure, such as `NFSv2 READ`.
    pub rpc_calls: BTreeMap<String, u64>,
}

impl fmt::Display for SurveyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            Evidence::Bytes => " (by its bytes)",
            Evidence::Port => " (by its port)",
            Evidence::Header | Evidence::None => "",
        };
        let share = match self.share * 100.0 {
            share if share > 0.0 && share < 1.0 => "less than 1 %".to_string(),
            share => format!("{share:.0} %"),
        };
        let packets = counted(
            usize::try_from(self.packets).unwrap_or(usize::MAX),
            "packet",
        );
        write!(f, "{share} of the bytes: {}{by}, {packets}", self.name)
    }
}

/// Well-known ports of storage protocols, and of other protocols that are common in captures of storage traffic.
const PORTS: &[(u16, &str)] = &[
    (22, "SSH"),
    (53, "DNS"),
    (80, "HTTP"),
    (111, "rpcbind"),
    (139, "SMB"),
    (443, "HTTPS"),
    (445, "SMB"),
    (548, "AFP"),
    (564, "9P"),
    (860, "iSCSI"),
    (988, "Lustre"),
    (2049, "NFS"),
    (3205, "iSNS"),
    (3260, "iSCSI"),
    (3300, "Ceph"),
    (4420, "NVMe/TCP"),
    (6789, "Ceph"),
    (7000, "sheepdog"),
    (8009, "NVMe/TCP discovery"),
    (10_809, "NBD"),
    (24_007, "GlusterFS"),
];

/// Procedures of NFSv2, by number (RFC 1094, 2.2).
const NFS2: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];

/// A readable name for an RPC call.
fn call_name(program: u32, version: u32, procedure: u32) -> String {
    let program = match program {
        rpc::PROGRAM_NFS if version == 2 => {
            let name = NFS2.get(procedure as usize);
            return match name {
                Some(name) => format!("NFSv2 {name}"),
                None => format!("NFSv2 procedure {procedure}"),
            };
        }
        rpc::PROGRAM_NFS => "NFS",
        rpc::PROGRAM_PORTMAP => "rpcbind",
        rpc::PROGRAM_MOUNT => "MOUNT",
        rpc::PROGRAM_NLM => "NLM",
        rpc::PROGRAM_NSM => "NSM",
        rpc::PROGRAM_NFS_ACL => "NFS ACL",
        other => return format!("RPC program {other} version {version} procedure {procedure}"),
    };
    format!("{program} version {version} procedure {procedure}")
}

/// The protocol name of an RPC program and version.
fn rpc_name(program: u32, version: u32) -> &'static str {
    match (program, version) {
        (rpc::PROGRAM_NFS, 2) => "NFSv2",
        (rpc::PROGRAM_NFS, 3) => "NFSv3",
        (rpc::PROGRAM_NFS, 4) => "NFSv4",
        _ => "RPC",
    }
}

/// Recognises a protocol by the start of a TCP payload.
fn of_stream(bytes: &[u8]) -> Option<&'static str> {
    let at =
        |from: usize, what: &[u8]| bytes.get(from..).is_some_and(|rest| rest.starts_with(what));
    let word = |from: usize| {
        let four = bytes.get(from..from + 4)?;
        Some(u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
    };
    // A NetBIOS session message of less than 16 MiB, then the dialect's magic ([MS-SMB2], 2.1 and 2.2.1).
    if bytes.first() == Some(&0) {
        if at(4, b"\xfeSMB") || at(4, b"\xfcSMB") {
            return Some("SMB 2 or 3");
        }
        if at(4, b"\xfdSMB") {
            return Some("SMB 3, encrypted");
        }
        if at(4, b"\xffSMB") {
            return Some("SMB 1");
        }
    }
    // The server's greeting, a request, and the two kinds of replies (NBD protocol, "Values").
    let nbd: [&[u8]; 4] = [
        b"NBDMAGIC",
        &[0x25, 0x60, 0x95, 0x13],
        &[0x67, 0x44, 0x66, 0x98],
        &[0x66, 0x8e, 0x33, 0xef],
    ];
    if nbd.iter().any(|magic| at(0, magic)) {
        return Some("NBD");
    }
    // ICReq and ICResp have 128 bytes, a command capsule at least 72, a response capsule 24 (NVMe/TCP
    // transport, 3.6.2).
    let nvme = match bytes.get(..3) {
        Some([0 | 1, 0, 128]) => word(4) == Some(128),
        Some([4, flags, 72]) if *flags < 4 => {
            word(4).is_some_and(|len| (72..1 << 24).contains(&len))
        }
        Some([5, flags, 24]) if *flags < 4 => matches!(word(4), Some(24 | 28)),
        _ => false,
    };
    if nvme {
        return Some("NVMe/TCP");
    }
    const STARTS: [(&[u8], &str); 9] = [
        (b"SSH-", "SSH"),
        (b"GET ", "HTTP"),
        (b"PUT ", "HTTP"),
        (b"POST ", "HTTP"),
        (b"HEAD ", "HTTP"),
        (b"HTTP/1.", "HTTP"),
        (b"\x16\x03", "TLS"),
        (b"\x17\x03\x03", "TLS"),
        (b"ceph v", "Ceph"),
    ];
    STARTS
        .iter()
        .find(|(start, _)| at(0, start))
        .map(|(_, name)| *name)
}

#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

/// Tracks the RPC records in one direction of a TCP connection as long as there is no gap. The first segment after a
/// gap is assumed to begin with a record.
#[derive(Debug, Default)]
struct RecordScan {
    /// The sequence number after the last segment; `None` if its bytes weren't records.
    next_seq: Option<u32>,
    /// Bytes until the next record mark.
    skip: usize,
    /// Whether the record continues with another fragment, which has no header.
    is_continued: bool,
    /// The beginning of a record whose header continues in the next segment.
    head: Vec<u8>,
}

impl RecordScan {
    /// Passes on the calls whose headers end in this segment.
    fn segment(&mut self, seq: u32, payload: Payload<'_>, call: impl FnMut(&RpcCall<'_>)) {
        if payload.wire_len == 0 {
            return;
        }
        match self.next_seq {
            Some(next) if next == seq => {}
            // Retransmitted bytes.
            Some(next) if (seq.wrapping_sub(next) as i32) < 0 => return,
            _ => *self = RecordScan::default(),
        }
        let mut head = std::mem::take(&mut self.head);
        let read = if head.is_empty() {
            self.read(payload.bytes, call)
        } else {
            head.extend_from_slice(payload.bytes);
            self.read(&head, call)
        };
        // Bytes cut off by the snap length can be skipped only if they end before the next mark.
        let cut = payload.wire_len.saturating_sub(payload.bytes.len());
        let followed = read && cut <= self.skip;
        self.skip = self.skip.saturating_sub(cut);
        self.next_seq = followed.then_some(seq.wrapping_add(payload.wire_len as u32));
    }

    /// Returns whether these bytes are records.
    fn read(&mut self, bytes: &[u8], mut call: impl FnMut(&RpcCall<'_>)) -> bool {
        let mut at = 0;
        loop {
            at += self.skip;
            self.skip = at.saturating_sub(bytes.len());
            let Some(rest) = bytes.get(at..) else {
                return true;
            };
            let Some(mark) = rest.first_chunk::<MARK_BYTES>() else {
                self.head = rest.to_vec();
                return true;
            };
            let mark = RecordMark::from_bytes(*mark);
            if mark.len > FRAGMENT_BYTES_MAX {
                return false;
            }
            let len = mark.len as usize;
            let message = &rest[MARK_BYTES..];
            let message = &message[..message.len().min(len)];
            match rpc::parse(message) {
                _ if self.is_continued => {}
                Ok(RpcMessage::Call(found)) if found.is_credible(len) => call(&found),
                Ok(RpcMessage::Reply(_)) => {}
                Err(ParseError::Incomplete(_))
                    if message.len() < len.min(CALL_HEADER_BYTES_MAX) =>
                {
                    self.head = rest.to_vec();
                    return true;
                }
                _ => return false,
            }
            self.is_continued = !mark.last;
            self.skip = MARK_BYTES + len;
        }
    }
}

/// A connection.
#[derive(Debug, Default)]
struct SurveyedConnection {
    name: Option<&'static str>,
    traffic: Traffic,
    records: [RecordScan; 2],
}

impl SurveyedConnection {
    fn add(&mut self, found: Option<&'static str>, amount: Traffic) {
        self.name = self.name.or(found);
        self.traffic.packets += amount.packets;
        self.traffic.bytes += amount.bytes;
    }
}

fn count_call(calls: &mut BTreeMap<String, u64>, call: &RpcCall<'_>) {
    let name = call_name(call.program, call.version, call.procedure);
    if calls.len() < PROCEDURES_MAX || calls.contains_key(&name) {
        *calls.entry(name).or_default() += 1;
    }
}

#[derive(Debug, Default)]
struct Surveyor {
    flows: HashMap<FlowKey, SurveyedConnection>,
    names: BTreeMap<(String, Evidence), Traffic>,
    rpc_calls: BTreeMap<String, u64>,
    bytes: u64,
}

impl Surveyor {
    fn count(&mut self, name: String, by: Evidence, amount: Traffic) {
        let mut key = (name, by);
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(&key) {
            key = ("others".into(), Evidence::None);
        }
        let sum = self.names.entry(key).or_default();
        sum.packets += amount.packets;
        sum.bytes += amount.bytes;
    }

    fn packet(&mut self, packet: &CapturedPacket<'_>) {
        let bytes = u64::from(packet.wire_len);
        self.bytes += bytes;
        let amount = Traffic { packets: 1, bytes };
        let other = |next: NextHeader| match next.known_as() {
            Some(known) => known.to_string(),
            None => next.to_string(),
        };
        let mut frame = parse_frame(packet.link, packet.bytes, packet.wire_len);
        for _ in 0..=TUNNELS_MAX {
            let opened = match frame {
                Err(_) => return self.count("unreadable headers".into(), Evidence::None, amount),
                Ok(Frame::Other { next, payload }) => match open_frame(next, payload) {
                    Ok(Some(inner)) => inner,
                    _ => return self.count(other(next), Evidence::Header, amount),
                },
                Ok(Frame::Ip(ip)) if ip.fragment.is_some() => {
                    return self.count("fragments of IP packets".into(), Evidence::None, amount);
                }
                Ok(Frame::Ip(ip)) => {
                    let key = |from: u16, to: u16, transport| {
                        let end = |address, port| Endpoint { address, port };
                        FlowKey::new(end(ip.source, from), end(ip.destination, to), transport)
                    };
                    match parse_transport(ip.protocol, ip.payload) {
                        Err(_) => {
                            return self.count("unreadable headers".into(), Evidence::None, amount);
                        }
                        Ok(IpPayload::Tcp(tcp)) => {
                            let (from, to) = (tcp.source_port, tcp.destination_port);
                            let key = key(from, to, Transport::Tcp);
                            return self.stream(key, tcp.seq, tcp.payload, amount);
                        }
                        Ok(IpPayload::Udp(udp)) => {
                            match open_udp(udp.destination_port, udp.payload) {
                                Some(inner) => inner,
                                None => {
                                    let (from, to) = (udp.source_port, udp.destination_port);
                                    let key = key(from, to, Transport::Udp);
                                    return self.datagram(key.0, udp.payload.bytes, amount);
                                }
                            }
                        }
                        Ok(IpPayload::Other(protocol)) => match open_ip(protocol, ip.payload) {
                            Ok(Some(inner)) => inner,
                            _ => {
                                let name = other(NextHeader::Ip(protocol));
                                return self.count(name, Evidence::Header, amount);
                            }
                        },
                    }
                }
            };
            frame = opened.parse();
        }
        self.count(
            "packets in too many nested tunnels".into(),
            Evidence::None,
            amount,
        );
    }

    fn stream(
        &mut self,
        (key, direction): (FlowKey, u8),
        seq: u32,
        payload: Payload<'_>,
        amount: Traffic,
    ) {
        let mut untracked = SurveyedConnection::default();
        let is_tracked = self.flows.len() < FLOWS_MAX || self.flows.contains_key(&key);
        let connection = match is_tracked {
            true => self.flows.entry(key).or_default(),
            false => &mut untracked,
        };
        let mut found = None;
        let records = &mut connection.records[usize::from(direction & 1)];
        records.segment(seq, payload, |call| {
            count_call(&mut self.rpc_calls, call);
            found = Some(rpc_name(call.program, call.version));
        });
        let found = found.or_else(|| of_stream(payload.bytes));
        if is_tracked {
            connection.add(found, amount);
        } else {
            let (name, by) = name_of(&key, found);
            self.count(name, by, amount);
        }
    }

    fn datagram(&mut self, key: FlowKey, bytes: &[u8], amount: Traffic) {
        let found = match rpc::parse(bytes) {
            Ok(RpcMessage::Call(call)) if call.is_credible(bytes.len()) => {
                count_call(&mut self.rpc_calls, &call);
                Some(rpc_name(call.program, call.version))
            }
            _ => None,
        };
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&key) {
            let (name, by) = name_of(&key, found);
            return self.count(name, by, amount);
        }
        self.flows.entry(key).or_default().add(found, amount);
    }

    fn finish(mut self) -> Survey {
        for (key, connection) in std::mem::take(&mut self.flows) {
            let (name, by) = name_of(&key, connection.name);
            self.count(name, by, connection.traffic);
        }
        let all = self.bytes.max(1) as f64;
        let row = |((name, by), amount): ((String, Evidence), Traffic)| SurveyRow {
            name,
            by,
            packets: amount.packets,
            bytes: amount.bytes,
            share: amount.bytes as f64 / all,
        };
        let mut protocols: Vec<SurveyRow> = self.names.into_iter().map(row).collect();
        protocols.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        Survey {
            protocols,
            rpc_calls: self.rpc_calls,
        }
    }
}

/// The name of a flow: from its bytes if recognised, otherwise from its well-known port, otherwise from the lower of
/// its ports.
fn name_of(key: &FlowKey, found: Option<&'static str>) -> (String, Evidence) {
    if let Some(name) = found {
        return (name.to_string(), Evidence::Bytes);
    }
    let (one, other) = key.ends(0);
    let ports = [one.port, other.port];
    let known = PORTS.iter().find(|(port, _)| ports.contains(port));
    let transport = match key.transport() {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    };
    match known {
        Some((port, name)) => (format!("{name}, {transport} port {port}"), Evidence::Port),
        None => {
            let port = ports.into_iter().min().unwrap_or_default();
            (format!("{transport} port {port}"), Evidence::None)
        }
    }
}

/// Surveys a capture file until it ends, turns out to be damaged, or `stop` returns true.
///
/// # Errors
/// The file cannot be opened.
pub fn survey(path: &Path, mut stop: impl FnMut() -> bool) -> Result<Survey, SourceError> {
    let mut source = FileSource::open(path)?;
    let (mut batch, mut surveyor) = (PacketBatch::default(), Surveyor::default());
    while !stop() {
        // The first pass has already reported the damage.
        let more = source.fill(&mut batch).unwrap_or(false);
        for packet in batch.packets() {
            surveyor.packet(&packet);
        }
        if !more {
            break;
        }
    }
    Ok(surveyor.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls are counted wherever records begin: two in one segment, a header that spans two segments, and after bytes
    /// cut off by the snap length. Retransmitted bytes aren't counted again.
    #[test]
    fn records_are_counted_across_segments() {
        // A GETPORT call to rpcbind: the record mark, the header and four words.
        let mut record = 0x8000_0038_u32.to_be_bytes().to_vec();
        let words = [7, 0, 2, 100_000, 2, 3, 0, 0, 0, 0, 100_003, 3, 6, 0];
        record.extend(words.iter().flat_map(|word: &u32| word.to_be_bytes()));
        let stream = record.repeat(5);
        let count = |segments: &[(usize, usize, usize)]| {
            let (mut records, mut calls) = (RecordScan::default(), 0);
            for &(from, captured, wire_len) in segments {
                let bytes = &stream[from..from + captured];
                let payload = Payload { bytes, wire_len };
                // Sequence numbers wrap around.
                let seq = u32::MAX.wrapping_add(from as u32);
                records.segment(seq, payload, |_| calls += 1);
            }
            calls
        };
        assert_eq!((record.len(), count(&[(0, 300, 300)])), (60, 5));
        for cut in 1..300 {
            assert_eq!(
                count(&[(0, cut, cut), (cut, 300 - cut, 300 - cut)]),
                5,
                "{cut}"
            );
        }
        assert_eq!(count(&[(0, 60, 60), (0, 60, 60), (60, 240, 240)]), 5);
        // Only the header of the first record was captured.
        assert_eq!(count(&[(0, 44, 60), (60, 240, 240)]), 5);
        // Not even the header of the second record was captured: the segment after it begins with a record.
        assert_eq!(count(&[(0, 80, 120), (120, 180, 180)]), 4);
        assert_eq!(count(&[(0, 60, 60), (90, 30, 30), (120, 180, 180)]), 4);
    }

    #[test]
    fn streams_are_recognised_by_their_first_bytes() {
        let check = |bytes: &[u8], expected: Option<&str>| {
            assert_eq!(of_stream(bytes), expected, "{bytes:02x?}");
        };
        check(b"\x00\x00\x00\x60\xfeSMB\x40\x00", Some("SMB 2 or 3"));
        check(b"\x00\x00\x00\x60\xfdSMB\x40\x00", Some("SMB 3, encrypted"));
        check(b"\x00\x00\x00\x2f\xffSMB\x72\x00", Some("SMB 1"));
        check(b"NBDMAGICIHAVEOPT\x00\x03", Some("NBD"));
        check(b"\x25\x60\x95\x13\x00\x00\x00\x00", Some("NBD"));
        check(b"\x00\x00\x80\x00\x80\x00\x00\x00", Some("NVMe/TCP"));
        check(b"\x04\x00\x48\x00\x48\x00\x00\x00\x01", Some("NVMe/TCP"));
        check(b"\x05\x00\x18\x00\x18\x00\x00\x00\x01", Some("NVMe/TCP"));
        check(b"GET / HTTP/1.1\r\n", Some("HTTP"));
        check(b"\x00\x00\x00\x60", None);
        check(b"", None);
        check(b"SSH-2.0-x", Some("SSH"));
    }

    #[test]
    fn procedures_of_nfs_2_have_names() {
        assert_eq!(call_name(100_003, 2, 6), "NFSv2 READ");
        assert_eq!(call_name(100_003, 2, 99), "NFSv2 procedure 99");
        assert_eq!(call_name(100_021, 4, 2), "NLM version 4 procedure 2");
    }

    #[test]
    fn a_name_by_port_is_no_evidence() {
        let address = brunt_wire::net::IpAddress::v4([10, 0, 0, 1]);
        let ends = |one, other| {
            let end = |port| Endpoint { address, port };
            FlowKey::new(end(one), end(other), Transport::Tcp).0
        };
        let check = |key, found, expected: (&str, Evidence)| {
            let (name, by) = name_of(&key, found);
            assert_eq!((name.as_str(), by), expected);
        };
        check(
            ends(40_000, 445),
            None,
            ("SMB, TCP port 445", Evidence::Port),
        );
        check(ends(40_000, 445), Some("HTTP"), ("HTTP", Evidence::Bytes));
        check(ends(40_000, 4711), None, ("TCP port 4711", Evidence::None));
    }
}
