//! A frame from a TAP device or an interface: a virtio-net header, then Ethernet. A frame longer than the link's MTU is
//! a *train*: consecutive TCP segments (or datagrams of a flow) under one header, which the host left to be split
//! (segmentation offload). This module splits it into packets with complete headers.
//!
//! The rule: the resulting packets are those that the host's own NIC would have sent.

/// `struct virtio_net_hdr_v1` (virtio 1.2, 5.1.6), in the machine's byte order.
pub const VNET_HEADER_BYTES: usize = 12;
pub(super) const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const TCP_CHECKSUM_OFFSET: usize = 16;
const UDP_CHECKSUM_OFFSET: usize = 6;
pub(super) const NEEDS_CHECKSUM: u8 = 1;
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;
const TCP_FIN: u8 = 1;
pub(super) const TCP_PSH: u8 = 8;
pub(super) const TCP_CWR: u8 = 0x80;

/// The layout of a train, for splitting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Header bytes of each segment, including Ethernet.
    pub header_bytes: usize,
    /// Payload bytes of each segment except the last.
    pub segment_bytes: usize,
    /// Number of segments; at least two.
    pub segments: usize,
    /// Frame length without the virtio-net header.
    frame_bytes: usize,
    /// Offsets of the IP header and of the TCP or UDP header.
    ip_at: usize,
    transport_at: usize,
    kind: TrainKind,
}

/// What a train consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrainKind {
    Tcp4,
    Tcp6,
    /// Datagrams of one flow (UDP segmentation offload), over IPv4 or IPv6.
    Udp {
        v6: bool,
    },
}

impl Train {
    /// Length of a segment on the wire, including the Ethernet header.
    pub fn frame_bytes(&self, segment: usize) -> usize {
        let payload = self.frame_bytes - self.header_bytes;
        let here = if segment + 1 < self.segments {
            self.segment_bytes
        } else {
            payload - (self.segments - 1) * self.segment_bytes
        };
        self.header_bytes + here
    }

    /// Parses a frame, virtio-net header first; `None` if it is a single packet rather than a train.
    pub fn parse(buffer: &[u8]) -> Option<Train> {
        let (header, frame) = buffer.split_at_checked(VNET_HEADER_BYTES)?;
        let offload = header[1] & !GSO_ECN;
        if offload == GSO_NONE {
            return None;
        }
        let (ethertype, ip_at) = network(frame)?;
        let v6 = ethertype == ETHERTYPE_IPV6;
        let kind = match (offload, ethertype) {
            (GSO_TCP4, ETHERTYPE_IPV4) => TrainKind::Tcp4,
            (GSO_TCP6, ETHERTYPE_IPV6) => TrainKind::Tcp6,
            (GSO_UDP, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) => TrainKind::Udp { v6 },
            _ => return None,
        };
        let transport_at = match v6 {
            // The checksum starts after any extension headers.
            true => usize::from(u16::from_ne_bytes([header[6], header[7]])),
            false => ip_at + usize::from(frame.get(ip_at)? & 0xf) * 4,
        };
        if transport_at < ip_at + if v6 { IPV6_BYTES } else { 20 } {
            return None;
        }
        let transport_bytes = match kind {
            TrainKind::Udp { .. } => UDP_BYTES,
            _ => usize::from(frame.get(transport_at + 12)? >> 4) * 4,
        };
        let header_bytes = transport_at + transport_bytes;
        let segment_bytes = usize::from(u16::from_ne_bytes([header[4], header[5]]));
        let payload = frame.len().checked_sub(header_bytes)?;
        let is_tcp = !matches!(kind, TrainKind::Udp { .. });
        if segment_bytes == 0 || payload <= segment_bytes || (is_tcp && transport_bytes < 20) {
            return None;
        }
        let segments = payload.div_ceil(segment_bytes);
        let frame_bytes = frame.len();
        Some(Train {
            header_bytes,
            segment_bytes,
            segments,
            frame_bytes,
            ip_at,
            transport_at,
            kind,
        })
    }

    /// Writes `count` segments of a train, starting with `first`, as a separate frame: a packet, or a shorter train.
    pub fn cut(&self, buffer: &[u8], first: usize, count: usize, into: &mut Vec<u8>) {
        let frame = &buffer[VNET_HEADER_BYTES..];
        let begin = self.header_bytes + first * self.segment_bytes;
        let end = (begin + count * self.segment_bytes).min(frame.len());
        into.clear();
        into.extend_from_slice(&buffer[..VNET_HEADER_BYTES + self.header_bytes]);
        into.extend_from_slice(&frame[begin..end]);
        // A host sets this to the length of its first buffer, which may exceed this frame if the host forwards a
        // train. The kernel rejects such a frame.
        into[2..4].copy_from_slice(&(self.header_bytes as u16).to_ne_bytes());
        if count == 1 {
            into[1] = GSO_NONE;
            into[4..6].fill(0);
        }
        let frame = &mut into[VNET_HEADER_BYTES..];
        let ip_bytes = frame.len() - self.ip_at;
        let (ip, transport) = frame[self.ip_at..].split_at_mut(self.transport_at - self.ip_at);
        let addresses = if matches!(self.kind, TrainKind::Tcp6 | TrainKind::Udp { v6: true }) {
            ip[4..6].copy_from_slice(&((ip_bytes - IPV6_BYTES) as u16).to_be_bytes());
            add(0, &ip[8..IPV6_BYTES])
        } else {
            ip[2..4].copy_from_slice(&(ip_bytes as u16).to_be_bytes());
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first as u16);
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !fold(add(0, ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            add(0, &ip[12..20])
        };
        if matches!(self.kind, TrainKind::Udp { .. }) {
            let bytes = transport.len() as u16;
            transport[4..6].copy_from_slice(&bytes.to_be_bytes());
            return leave_checksum(addresses, libc::IPPROTO_UDP, UDP_CHECKSUM_OFFSET, transport);
        }
        let tcp = transport;
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = sequence.wrapping_add((first * self.segment_bytes) as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if first + count < self.segments {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
        if first > 0 {
            tcp[13] &= !TCP_CWR;
        }
        leave_checksum(addresses, libc::IPPROTO_TCP, TCP_CHECKSUM_OFFSET, tcp);
    }
}

/// The EtherType of a frame's payload, after any VLAN tags, and the payload's offset.
fn network(frame: &[u8]) -> Option<([u8; 2], usize)> {
    let mut at = ETHERNET_BYTES - 2;
    loop {
        let kind: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
        match kind {
            ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN => at += 4,
            kind => return Some((kind, at + 2)),
        }
    }
}

/// Leaves the checksum partial, as a host does: the field holds the sum over the pseudo-header.
fn leave_checksum(addresses: u64, protocol: libc::c_int, at: usize, transport: &mut [u8]) {
    let sum = fold(addresses + u64::from(protocol as u16) + transport.len() as u64);
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Completes a train that consists of a packet's headers (IPv4 without options, TCP) and the payloads of several
/// packets, each of `segment_bytes` except the last.
pub(super) fn seal_train(buffer: &mut [u8], header_bytes: usize, segment_bytes: usize) {
    let (vnet, frame) = buffer.split_at_mut(VNET_HEADER_BYTES);
    vnet[1] = GSO_TCP4;
    vnet[2..4].copy_from_slice(&(header_bytes as u16).to_ne_bytes());
    vnet[4..6].copy_from_slice(&(segment_bytes as u16).to_ne_bytes());
    let ip_bytes = frame.len() - ETHERNET_BYTES;
    let (ip, tcp) = frame[ETHERNET_BYTES..].split_at_mut(20);
    ip[2..4].copy_from_slice(&(ip_bytes as u16).to_be_bytes());
    ip[10..12].fill(0);
    let sum = !fold(add(0, ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    leave_checksum(
        add(0, &ip[12..20]),
        libc::IPPROTO_TCP,
        TCP_CHECKSUM_OFFSET,
        tcp,
    );
}

/// Completes a partial checksum, and then flips a bit after the Ethernet header, chosen by `pick`, so that the
/// receiver's checksum detects it. Not for trains.
pub fn corrupt(buffer: &mut [u8], pick: u64) {
    complete_checksum(buffer);
    let Some(bytes) = buffer
        .len()
        .checked_sub(VNET_HEADER_BYTES + ETHERNET_BYTES)
        .filter(|bytes| *bytes > 0)
    else {
        return;
    };
    let bit = ((u128::from(pick) * (bytes as u128 * 8)) >> 64) as usize;
    buffer[VNET_HEADER_BYTES + ETHERNET_BYTES + bit / 8] ^= 1 << (bit % 8);
}

/// A packet's explicit congestion notification (RFC 3168, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The packet's sender doesn't support ECN, or it isn't an IP packet.
    NotCapable,
    /// The packet's sender supports ECN (ECT(0) or ECT(1)).
    Capable,
    /// Already marked (CE).
    Marked,
}

/// The two ECN bits in IPv4's TOS byte.
const ECN_BITS: u8 = 0b11;
/// The two ECN bits in the second byte of the IPv6 header, whose traffic class starts in the middle of the first byte.
const ECN_BITS_V6: u8 = 0b11 << 4;
pub(super) const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0];
const ETHERTYPE_SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];

/// The ECN state of a frame, virtio-net header first. Both IP versions store it in the second byte of their header.
pub fn ecn(buffer: &[u8]) -> Ecn {
    let frame = buffer.get(VNET_HEADER_BYTES..).unwrap_or_default();
    let found = network(frame).filter(|(_, ip_at)| frame.len() >= ip_at + 20);
    let bits = match found {
        Some((ETHERTYPE_IPV4, ip_at)) => frame[ip_at + 1] & ECN_BITS,
        Some((ETHERTYPE_IPV6, ip_at)) => (frame[ip_at + 1] & ECN_BITS_V6) >> 4,
        _ => 0,
    };
    match bits {
        0 => Ecn::NotCapable,
        ECN_BITS => Ecn::Marked,
        _ => Ecn::Capable,
    }
}

/// Marks a frame that is ECN-capable. IPv4's checksum is updated incrementally (RFC 1624), so that a wrong one stays
/// wrong; IPv6 has none.
pub fn mark_congestion(buffer: &mut [u8]) {
    debug_assert_eq!(
        ecn(buffer),
        Ecn::Capable,
        "only ECN-capable packets are marked"
    );
    let frame = &mut buffer[VNET_HEADER_BYTES..];
    let Some((ethertype, ip_at)) = network(frame) else {
        return;
    };
    let ip = &mut frame[ip_at..];
    if ethertype == ETHERTYPE_IPV6 {
        ip[1] |= ECN_BITS_V6;
        return;
    }
    let before = [ip[0], ip[1]];
    ip[1] |= ECN_BITS;
    let after = [ip[0], ip[1]];
    move_checksum(&mut ip[10..12], before, after);
}

/// Updates a checksum for one changed word (RFC 1624, 3).
pub(super) fn move_checksum(checksum: &mut [u8], before: [u8; 2], after: [u8; 2]) {
    let word = |bytes: [u8; 2]| u64::from(u16::from_be_bytes(bytes));
    let sum = word([checksum[0], checksum[1]]) ^ 0xffff;
    let moved = !fold(sum + (word(before) ^ 0xffff) + word(after));
    checksum.copy_from_slice(&moved.to_be_bytes());
}

/// Computes the checksums of an IPv4 header without options and of its TCP segment.
pub(super) fn finish_checksums(ip: &mut [u8], tcp: &mut [u8]) {
    ip[10..12].fill(0);
    let sum = !fold(add(0, ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    tcp[TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2].fill(0);
    let pseudo = add(0, &ip[12..20]) + u64::from(libc::IPPROTO_TCP as u16) + tcp.len() as u64;
    let sum = !fold(add(pseudo, tcp));
    tcp[TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Completes the checksum if it is partial.
pub(super) fn complete_checksum(buffer: &mut [u8]) {
    if buffer[0] & NEEDS_CHECKSUM == 0 {
        // Withdraws a claim that the checksum was verified, because it is no longer true.
        buffer[0] = 0;
        return;
    }
    let start = usize::from(u16::from_ne_bytes([buffer[6], buffer[7]]));
    let place = start + usize::from(u16::from_ne_bytes([buffer[8], buffer[9]]));
    let (header, frame) = buffer.split_at_mut(VNET_HEADER_BYTES);
    if place + 2 > frame.len() {
        return;
    }
    // UDP sends a zero checksum as all ones, which is equivalent (RFC 768); TCP accepts both.
    let sum = match !fold(add(0, &frame[start..])) {
        0 => 0xffff,
        sum => sum,
    };
    frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    header[..10].fill(0);
}

/// Adds big-endian 16-bit words (RFC 1071).
pub(super) fn add(mut sum: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    match words.remainder() {
        [last] => sum + (u64::from(*last) << 8),
        _ => sum,
    }
}

pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::super::test_frames::{SEGMENT, sums_are_right, train};
    use super::*;

    /// The segments of a train are packets with correct lengths, sequence numbers, flags and checksums, and with the
    /// train's payload, byte for byte.
    #[test]
    fn a_train_splits_into_correct_packets() {
        let buffer = train();
        let train = Train::parse(&buffer).unwrap();
        assert_eq!((train.header_bytes, train.segments), (66, 3));
        let mut payload = Vec::new();
        for segment in 0..3 {
            let mut packet = Vec::new();
            train.cut(&buffer, segment, 1, &mut packet);
            assert_eq!(Train::parse(&packet), None);
            complete_checksum(&mut packet);
            let frame = &packet[VNET_HEADER_BYTES..];
            assert_eq!(frame.len(), train.frame_bytes(segment));
            assert!(sums_are_right(frame), "segment {segment}");
            assert_eq!(
                usize::from(u16::from_be_bytes([frame[16], frame[17]])),
                frame.len() - 14
            );
            assert_eq!(
                u16::from_be_bytes([frame[18], frame[19]]),
                0x1234 + segment as u16
            );
            let sequence = u32::from_be_bytes(frame[38..42].try_into().unwrap());
            assert_eq!(
                sequence,
                0xffff_fff0u32.wrapping_add((segment * SEGMENT) as u32)
            );
            assert_eq!(
                frame[47] & TCP_PSH != 0,
                segment == 2,
                "only the last pushes"
            );
            assert_eq!(
                frame[47] & TCP_CWR != 0,
                segment == 0,
                "only the first has CWR"
            );
            payload.extend_from_slice(&frame[66..]);
        }
        assert_eq!(payload, buffer[VNET_HEADER_BYTES + 66..]);
    }

    /// Trains of TCP and UDP over both IP versions, with and without VLAN tags, are split into packets with correct
    /// lengths, checksums and payloads.
    #[test]
    fn tcp_and_udp_trains_split_with_and_without_tags() {
        for (tags, v6, udp) in [
            (0, true, false),
            (1, false, false),
            (2, true, false),
            (0, false, true),
            (1, true, true),
        ] {
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
            (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
            frame.extend(if v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 });
            let ip_at = frame.len();
            let protocol = if udp { 17 } else { 6 };
            match v6 {
                true => {
                    frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
                    frame.extend(1..=32);
                }
                false => frame.extend([
                    0x45, 0, 0, 0, 9, 9, 0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
                ]),
            }
            let transport_at = frame.len();
            match udp {
                true => frame.extend([0x9c, 0x40, 0x0c, 0xbc, 0, 0, 0, 0]),
                false => frame.extend([
                    0x9c, 0x40, 0x0c, 0xbc, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
                ]),
            }
            let header_bytes = frame.len();
            let payload: Vec<u8> = (0..3000u32).map(|byte| (byte * 7) as u8).collect();
            frame.extend(&payload);
            let offload = [[GSO_TCP4, GSO_TCP6][usize::from(v6)], GSO_UDP][usize::from(udp)];
            let mut buffer = vec![NEEDS_CHECKSUM, offload];
            let checksum = if udp {
                UDP_CHECKSUM_OFFSET
            } else {
                TCP_CHECKSUM_OFFSET
            };
            for word in [header_bytes, 1200, transport_at, checksum, 0] {
                buffer.extend((word as u16).to_ne_bytes());
            }
            buffer.extend(frame);
            let train = Train::parse(&buffer).unwrap();
            assert_eq!((train.segments, train.header_bytes), (3, header_bytes));
            let mut seen = Vec::new();
            for segment in 0..3 {
                let mut packet = Vec::new();
                train.cut(&buffer, segment, 1, &mut packet);
                complete_checksum(&mut packet);
                let frame = &packet[VNET_HEADER_BYTES..];
                assert_eq!(frame.len(), train.frame_bytes(segment));
                let (ip, transport) = (&frame[ip_at..transport_at], &frame[transport_at..]);
                let addresses = if v6 {
                    add(0, &ip[8..40])
                } else {
                    add(0, &ip[12..20])
                };
                let sum = add(
                    addresses + u64::from(protocol) + transport.len() as u64,
                    transport,
                );
                assert_eq!(
                    fold(sum),
                    0xffff,
                    "{tags} tags, v6 {v6}, udp {udp}, segment {segment}"
                );
                let stated = if v6 { &ip[4..6] } else { &ip[2..4] };
                let bytes = transport.len() + if v6 { 0 } else { 20 };
                assert_eq!(stated, (bytes as u16).to_be_bytes());
                assert!(v6 || fold(add(0, ip)) == 0xffff);
                assert!(!udp || transport[4..6] == (transport.len() as u16).to_be_bytes());
                seen.extend_from_slice(&frame[header_bytes..]);
            }
            assert_eq!(seen, payload);
            for length in 0..buffer.len() {
                if let Some(cut) = Train::parse(&buffer[..length]) {
                    (0..cut.segments).for_each(|segment| {
                        cut.cut(&buffer[..length], segment, 1, &mut Vec::new())
                    });
                }
            }
        }
    }

    /// Whatever header length a train states, a part of it states the correct one.
    #[test]
    fn parts_of_a_train_state_the_correct_header_length() {
        let mut buffer = train();
        buffer[2..4].copy_from_slice(&3000u16.to_ne_bytes());
        let train = Train::parse(&buffer).unwrap();
        for (first, count) in [(0, 1), (train.segments - 1, 1), (1, 2)] {
            let mut part = Vec::new();
            train.cut(&buffer, first, count, &mut part);
            assert_eq!(
                part[2..4],
                (train.header_bytes as u16).to_ne_bytes(),
                "{count} from {first} on"
            );
        }
    }

    /// Part of a train is itself a train, and splits into the same packets.
    #[test]
    fn a_part_of_a_train_is_a_train() {
        let buffer = train();
        let whole = Train::parse(&buffer).unwrap();
        let mut part = Vec::new();
        whole.cut(&buffer, 1, 2, &mut part);
        let cut = Train::parse(&part).unwrap();
        assert_eq!(cut.segments, 2);
        for segment in 0..2 {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            whole.cut(&buffer, segment + 1, 1, &mut one);
            cut.cut(&part, segment, 1, &mut other);
            assert_eq!(one, other);
        }
    }

    /// A mark is set only if the sender supports ECN, and IPv4's checksum stays correct.
    #[test]
    fn only_ecn_capable_packets_are_marked() {
        for (tos, says) in [
            (0b00, Ecn::NotCapable),
            (0b01, Ecn::Capable),
            (0b10, Ecn::Capable),
            (0b11, Ecn::Marked),
        ] {
            for class in [0u8, 0xb8] {
                let buffer = train();
                let mut packet = Vec::new();
                Train::parse(&buffer)
                    .unwrap()
                    .cut(&buffer, 0, 1, &mut packet);
                packet[VNET_HEADER_BYTES + 15] = class | tos;
                let ip = &mut packet[VNET_HEADER_BYTES + 14..VNET_HEADER_BYTES + 34];
                ip[10..12].fill(0);
                let sum = !fold(add(0, ip));
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                complete_checksum(&mut packet);
                assert_eq!(ecn(&packet), says);
                if says == Ecn::Capable {
                    mark_congestion(&mut packet);
                    assert_eq!(ecn(&packet), Ecn::Marked);
                    assert_eq!(packet[VNET_HEADER_BYTES + 15], class | 0b11);
                    assert!(sums_are_right(&packet[VNET_HEADER_BYTES..]), "{tos:#b}");
                }
                // IPv6: version, traffic class across two bytes, flow label.
                let mut packet = vec![0u8; VNET_HEADER_BYTES + 54];
                packet[VNET_HEADER_BYTES + 12..][..2].copy_from_slice(&ETHERTYPE_IPV6);
                let word = (6u32 << 28) | (u32::from(class | tos) << 20) | 0x000a_bcde;
                packet[VNET_HEADER_BYTES + 14..][..4].copy_from_slice(&word.to_be_bytes());
                assert_eq!(ecn(&packet), says);
                if says == Ecn::Capable {
                    mark_congestion(&mut packet);
                    let marked = (6u32 << 28) | (u32::from(class | 0b11) << 20) | 0x000a_bcde;
                    assert_eq!(packet[VNET_HEADER_BYTES + 14..][..4], marked.to_be_bytes());
                }
            }
        }
        for short in 0..VNET_HEADER_BYTES + 34 {
            assert_eq!(ecn(&train()[..short]), Ecn::NotCapable);
        }
        let mut other = train();
        other[VNET_HEADER_BYTES + 12..][..2].copy_from_slice(&[8, 6]);
        other[VNET_HEADER_BYTES + 15] = 0b10;
        assert_eq!(ecn(&other), Ecn::NotCapable, "not IP");
    }

    /// Whichever bit is flipped, one of the receiver's checksums detects it.
    #[test]
    fn checksums_detect_every_flipped_bit() {
        let buffer = train();
        let train = Train::parse(&buffer).unwrap();
        let mut packet = Vec::new();
        train.cut(&buffer, 2, 1, &mut packet);
        let bits = (packet.len() - VNET_HEADER_BYTES - ETHERNET_BYTES) * 8;
        let mut flipped = std::collections::BTreeSet::new();
        for bit in 0..bits as u64 {
            let pick = ((u128::from(bit) << 64) / bits as u128) as u64 + 1;
            let mut corrupted = packet.clone();
            corrupt(&mut corrupted, pick);
            assert_eq!(corrupted[0], 0, "no claim that the checksum was verified");
            assert!(
                !sums_are_right(&corrupted[VNET_HEADER_BYTES..]),
                "bit {bit}"
            );
            flipped.insert(corrupted);
        }
        assert_eq!(flipped.len(), bits);
    }

    /// A frame truncated anywhere, or with any header byte wrong, is either not a train, or one that can be split
    /// within its bounds.
    #[test]
    fn damaged_trains_are_refused_or_split_within_bounds() {
        let buffer = train();
        let mut into = Vec::new();
        let mut check = |buffer: &[u8]| {
            if let Some(train) = Train::parse(buffer) {
                for segment in 0..train.segments {
                    assert!(train.frame_bytes(segment) > train.header_bytes);
                    train.cut(buffer, segment, 1, &mut into);
                }
            }
        };
        for length in 0..buffer.len() {
            check(&buffer[..length]);
        }
        for place in 0..VNET_HEADER_BYTES + 66 {
            for value in [0, 1, 0x0f, 0x45, 0x4f, 0xf0, 0xff] {
                let mut broken = buffer.clone();
                broken[place] = value;
                check(&broken);
            }
        }
    }
}
