//! Impairments of TCP connections rather than packets: FINs that are held back ([`slow_close`]) and resets that are
//! sent ([`reset`]). This module parses and builds TCP segments in frames.
//!
//! Called by directions ([`super::lane`]) with such impairments; every call is passed the time.
//! The rule: only packets that passed count towards a connection's state. A connection that cannot be tracked is left
//! alone and counted.

pub(super) mod reset;
pub(super) mod slow_close;

use std::net::{Ipv4Addr, SocketAddrV4};

use super::packet::{self, ETHERNET_BYTES, VNET_HEADER_BYTES};

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;
pub(super) use brunt_result::link::TCP_CONNECTIONS_MAX as CONNECTIONS_MAX;

/// Headers of Ethernet, IPv4 and TCP without options.
const BARE_BYTES: usize = ETHERNET_BYTES + 20 + 20;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
}

impl Flow {
    pub(super) fn reversed(self) -> Flow {
        Flow {
            from: self.to,
            to: self.from,
        }
    }
}

/// Header fields of an IPv4 TCP segment, or of a train of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) flow: Flow,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) flags: u8,
    pub(super) payload_bytes: usize,
    /// Offset of the TCP header in the frame, including the virtio-net header.
    tcp_offset: usize,
}

impl Segment {
    /// Parses a frame, virtio-net header first; `None` for anything but TCP over IPv4, and for fragments.
    pub(super) fn parse(buffer: &[u8]) -> Option<Segment> {
        let frame = buffer.get(VNET_HEADER_BYTES..)?;
        let ip = frame.get(ETHERNET_BYTES..)?;
        if frame[12..14] != packet::ETHERTYPE_IPV4 || *ip.first()? >> 4 != 4 || *ip.get(9)? != 6 {
            return None;
        }
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
        let ip_header_bytes = usize::from(ip[0] & 0xf) * 4;
        let tcp = ip
            .get(ip_header_bytes..)
            .filter(|tcp| tcp.len() >= 20 && ip_header_bytes >= 20)?;
        let header_bytes = ip_header_bytes + usize::from(tcp[12] >> 4) * 4;
        // A short frame may be padded; a train is as long as the frame.
        let stated = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let ip_bytes = if buffer[1] == packet::GSO_NONE {
            stated
        } else {
            ip.len()
        };
        if fragment != 0 || ip_bytes > ip.len() {
            return None;
        }
        let payload_bytes = ip_bytes.checked_sub(header_bytes)?;
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        Some(Segment {
            flow: Flow {
                from: SocketAddrV4::new(address(12), port(0)),
                to: SocketAddrV4::new(address(16), port(2)),
            },
            sequence: word(4),
            acknowledgement: word(8),
            flags: tcp[13],
            payload_bytes,
            tcp_offset: VNET_HEADER_BYTES + ETHERNET_BYTES + ip_header_bytes,
        })
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The sequence number after this segment, which its receiver expects next.
    pub(super) fn end(&self) -> u32 {
        let ends = u32::from(self.is(SYN)) + u32::from(self.is(FIN));
        self.sequence
            .wrapping_add(self.payload_bytes as u32)
            .wrapping_add(ends)
    }

    /// Clears a flag in the frame from which this was parsed; a correct checksum stays correct.
    pub(super) fn clear(&self, buffer: &mut [u8], flag: u8) {
        let left = buffer[0] & packet::NEEDS_CHECKSUM != 0;
        let tcp = &mut buffer[self.tcp_offset..];
        let before = [tcp[12], tcp[13]];
        tcp[13] &= !flag;
        let after = [tcp[12], tcp[13]];
        // A partial checksum only covers the pseudo-header so far.
        if !left {
            packet::move_checksum(&mut tcp[16..18], before, after);
        }
    }
}

/// Whether `first` comes before `second` in the sequence space (RFC 9293, 3.4).
pub(super) fn is_before(first: u32, second: u32) -> bool {
    (first.wrapping_sub(second) as i32) < 0
}

/// Builds a segment without data or options, with complete checksums. The Ethernet addresses are copied from `like`, a
/// frame of the same connection, and swapped if that went in the other direction.
pub(super) fn bare(
    like: &[u8],
    of: Flow,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
) -> Vec<u8> {
    const LIFE: u8 = 64;
    let turned = Segment::parse(like).is_some_and(|segment| segment.flow == of.reversed());
    let addresses = &like[VNET_HEADER_BYTES..VNET_HEADER_BYTES + 12];
    let mut buffer = vec![0; VNET_HEADER_BYTES + BARE_BYTES];
    let frame = &mut buffer[VNET_HEADER_BYTES..];
    frame[..6].copy_from_slice(if turned {
        &addresses[6..]
    } else {
        &addresses[..6]
    });
    frame[6..12].copy_from_slice(if turned {
        &addresses[..6]
    } else {
        &addresses[6..]
    });
    frame[12..14].copy_from_slice(&packet::ETHERTYPE_IPV4);
    let (ip, tcp) = frame[ETHERNET_BYTES..].split_at_mut(20);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&40u16.to_be_bytes());
    ip[6] = 0x40; // never fragmented
    ip[8] = LIFE;
    ip[9] = 6;
    ip[12..16].copy_from_slice(&of.from.ip().octets());
    ip[16..20].copy_from_slice(&of.to.ip().octets());
    tcp[..2].copy_from_slice(&of.from.port().to_be_bytes());
    tcp[2..4].copy_from_slice(&of.to.port().to_be_bytes());
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = flags;
    packet::finish_checksums(ip, tcp);
    buffer
}

#[cfg(test)]
mod tests {
    use super::super::packet::{TCP_PSH as PSH, Train};
    use super::super::test_frames::{CLIENT, SERVER, segment, sums_are_right, train};
    use super::*;

    /// Segments round-trip with correct checksums, and can be reversed.
    #[test]
    fn segments_round_trip() {
        let made = segment(CLIENT, SERVER, [7, 9], PSH | ACK, b"odd");
        assert!(sums_are_right(&made[VNET_HEADER_BYTES..]));
        let read = Segment::parse(&made).unwrap();
        assert_eq!(
            read.flow,
            Flow {
                from: CLIENT,
                to: SERVER
            }
        );
        assert_eq!(
            (
                read.sequence,
                read.acknowledgement,
                read.payload_bytes,
                read.end()
            ),
            (7, 9, 3, 10)
        );
        let back = bare(&made, read.flow.reversed(), 9, 10, RST | ACK);
        assert!(sums_are_right(&back[VNET_HEADER_BYTES..]));
        assert_eq!(
            back[VNET_HEADER_BYTES..][..6],
            made[VNET_HEADER_BYTES + 6..][..6],
            "Ethernet, too"
        );
        assert_eq!(
            Segment::parse(&back).unwrap().flow,
            Flow {
                from: SERVER,
                to: CLIENT
            }
        );
        // Padding is not payload; a train is one long segment.
        let mut padded = bare(&made, read.flow, 1, 2, ACK);
        padded.extend([0; 6]);
        assert_eq!(Segment::parse(&padded).unwrap().payload_bytes, 0);
        assert_eq!(Segment::parse(&train()).unwrap().payload_bytes, 4000);
    }

    /// Clearing a flag keeps the checksum correct, whether it is complete or partial.
    #[test]
    fn clearing_a_flag_keeps_the_checksum_correct() {
        let mut whole = segment(CLIENT, SERVER, [7, 9], FIN | PSH | ACK, b"last words");
        Segment::parse(&whole).unwrap().clear(&mut whole, FIN);
        assert!(sums_are_right(&whole[VNET_HEADER_BYTES..]));
        assert_eq!(Segment::parse(&whole).unwrap().flags, PSH | ACK);
        let mut left = train();
        let tcp = VNET_HEADER_BYTES + 34;
        left[tcp + 13] |= FIN;
        let before = [left[tcp + 16], left[tcp + 17]];
        Segment::parse(&left).unwrap().clear(&mut left, FIN);
        assert_eq!([left[tcp + 16], left[tcp + 17]], before);
        let cut = Train::parse(&left).unwrap();
        let mut last = Vec::new();
        cut.cut(&left, cut.segments - 1, 1, &mut last);
        assert!(!Segment::parse(&last).unwrap().is(FIN));
    }

    /// Truncated frames, fragments, and other protocols are not segments.
    #[test]
    fn other_frames_are_not_segments() {
        let whole = segment(CLIENT, SERVER, [7, 9], ACK, b"");
        for length in 0..whole.len() {
            assert!(Segment::parse(&whole[..length]).is_none(), "{length}");
        }
        for (place, value) in [
            (12, 0x86),
            (14, 0x65),
            (14, 0x44),
            (20, 0x20),
            (21, 1),
            (23, 17),
            (46, 0xf0),
        ] {
            let mut other = whole.clone();
            other[VNET_HEADER_BYTES + place] = value;
            assert!(Segment::parse(&other).is_none(), "{place}");
        }
    }

    /// Sequence numbers wrap around.
    #[test]
    fn sequence_numbers_wrap_around() {
        assert!(is_before(1, 2) && !is_before(2, 1) && !is_before(2, 2));
        assert!(is_before(0xffff_fff0, 5) && !is_before(5, 0xffff_fff0));
    }
}
