//! Removes the tunnel headers that mirror ports, overlay networks and access networks add to packets. The capture
//! pipeline and its router call it for all packets except plain TCP. The one rule: each call removes a single layer,
//! and the caller limits the number of layers ([`TUNNELS_MAX`]), so the work per packet is bounded.

use super::link::{self, ETHER_TYPE_IPV4, ETHER_TYPE_IPV6};
use super::{Frame, NextHeader, Payload, frame_of};
use crate::pcap::LinkType;
use crate::{Cursor, Malformed, ParseError};

/// Maximum number of layers removed from one packet; more indicate a loop or an attack.
pub const TUNNELS_MAX: usize = 8;

/// Ethernet frames in GRE, GENEVE and pseudowires (Transparent Ethernet Bridging).
const ETHER_TYPE_ETHERNET: u16 = 0x6558;
const ETHER_TYPE_MPLS: [u16; 2] = [0x8847, 0x8848];
const ETHER_TYPE_PPPOE_SESSION: u16 = 0x8864;
const ETHER_TYPE_PPP: u16 = 0x880b;
const ETHER_TYPE_ARP: u16 = 0x0806;
/// GRE protocol types for mirrored frames: one for types I and II, one for type III.
const ETHER_TYPE_ERSPAN: u16 = 0x88be;
const ETHER_TYPE_ERSPAN_III: u16 = 0x22eb;

/// Protocol numbers in the IP header.
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const MPLS_IN_IP: u8 = 137;

/// VXLAN's port, and the port that Linux used before that was assigned.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const GENEVE_PORT: u16 = 6081;
/// MPLS in UDP (RFC 7510).
const MPLS_PORT: u16 = 6635;

/// Maximum number of consecutive labels.
const LABELS_MAX: usize = 16;

/// A kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2784 and 2890, and version 1 of PPTP (RFC 2637).
    Gre,
    /// Cisco ERSPAN type I: mirrored frames in GRE, without an ERSPAN header.
    ErspanI,
    /// Cisco ERSPAN type II: mirrored frames with a header (draft-foschiano-erspan).
    ErspanIi,
    /// Cisco ERSPAN type III: mirrored frames with a timestamp in the header.
    ErspanIii,
    /// An IP packet directly after an IP header (RFC 2003, RFC 2473, RFC 4213).
    IpInIp,
    /// RFC 3032; frames with or without a control word (RFC 4448).
    Mpls,
    /// RFC 2516.
    Pppoe,
}

impl Tunnel {
    /// The tunnel's name for display.
    pub const fn name(self) -> &'static str {
        match self {
            Tunnel::Vxlan => "VXLAN",
            Tunnel::Geneve => "GENEVE",
            Tunnel::Gre => "GRE",
            Tunnel::ErspanI => "ERSPAN I",
            Tunnel::ErspanIi => "ERSPAN II",
            Tunnel::ErspanIii => "ERSPAN III",
            Tunnel::IpInIp => "IP in IP",
            Tunnel::Mpls => "MPLS",
            Tunnel::Pppoe => "PPPoE",
        }
    }
}

/// The payload of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPayload<'a> {
    /// The tunnel that was removed.
    pub tunnel: Tunnel,
    next: NextHeader,
    payload: Payload<'a>,
}

impl<'a> TunnelPayload<'a> {
    /// Parses the payload down to its IP payload, to an unknown protocol, or to another tunnel.
    ///
    /// # Errors
    /// As [`super::parse_frame`].
    pub fn parse(&self) -> Result<Frame<'a>, ParseError> {
        let Payload { bytes, wire_len } = self.payload;
        let found = match self.next {
            NextHeader::EtherType(ETHER_TYPE_ETHERNET) => link::parse(LinkType::Ethernet, bytes)?,
            NextHeader::EtherType(ether_type) => link::parse_from(ether_type, bytes)?,
            next => {
                return Ok(Frame::Other {
                    next,
                    payload: self.payload,
                });
            }
        };
        frame_of(&found, bytes, wire_len)
    }
}

/// The part of the payload after a header of `header_len` bytes.
fn after(payload: Payload<'_>, header_len: usize) -> Result<Payload<'_>, ParseError> {
    let Some(wire_len) = payload.wire_len.checked_sub(header_len) else {
        return Err(Malformed::new(0, "header exceeds the packet").into());
    };
    let bytes = payload
        .bytes
        .get(header_len..)
        .ok_or(ParseError::Incomplete(header_len))?;
    Ok(Payload { bytes, wire_len })
}

fn inner<'a>(
    tunnel: Tunnel,
    ether_type: u16,
    payload: Payload<'a>,
    header_len: usize,
) -> Result<TunnelPayload<'a>, ParseError> {
    Ok(TunnelPayload {
        tunnel,
        next: NextHeader::EtherType(ether_type),
        payload: after(payload, header_len)?,
    })
}

/// Removes MPLS labels or a PPPoE header; `None` if the frame has neither.
///
/// # Errors
/// The header is truncated or inconsistent.
pub fn open_frame(
    next: NextHeader,
    payload: Payload<'_>,
) -> Result<Option<TunnelPayload<'_>>, ParseError> {
    match next {
        NextHeader::EtherType(ether_type) if ETHER_TYPE_MPLS.contains(&ether_type) => {
            mpls(payload).map(Some)
        }
        NextHeader::EtherType(ETHER_TYPE_PPPOE_SESSION) => pppoe(payload).map(Some),
        _ => Ok(None),
    }
}

/// Removes a tunnel that directly follows an IP header (GRE and what it carries, IP, MPLS); `None` if the protocol is
/// not a tunnel. The payload must be complete, not a fragment.
///
/// # Errors
/// The header is truncated or inconsistent.
pub fn open_ip(
    protocol: u8,
    payload: Payload<'_>,
) -> Result<Option<TunnelPayload<'_>>, ParseError> {
    match protocol {
        GRE => gre(payload),
        IP_IN_IP => inner(Tunnel::IpInIp, ETHER_TYPE_IPV4, payload, 0).map(Some),
        IPV6_IN_IP => inner(Tunnel::IpInIp, ETHER_TYPE_IPV6, payload, 0).map(Some),
        MPLS_IN_IP => mpls(payload).map(Some),
        _ => Ok(None),
    }
}

/// Removes VXLAN, GENEVE or MPLS from a datagram to `port`; `None` if the datagram contains none of them, because
/// other applications may use these ports.
pub fn open_udp(port: u16, payload: Payload<'_>) -> Option<TunnelPayload<'_>> {
    match port {
        GENEVE_PORT => geneve(payload).ok().flatten(),
        MPLS_PORT => mpls(payload).ok(),
        port if VXLAN_PORTS.contains(&port) => vxlan(payload).ok().flatten(),
        _ => None,
    }
}

fn vxlan(payload: Payload<'_>) -> Result<Option<TunnelPayload<'_>>, ParseError> {
    let Some(h) = payload.bytes.first_chunk::<8>() else {
        return Err(ParseError::Incomplete(8));
    };
    // The flag for a valid network identifier. Other flags belong to extensions with the same layout.
    if h[0] & 0x08 == 0 {
        return Ok(None);
    }
    inner(Tunnel::Vxlan, ETHER_TYPE_ETHERNET, payload, 8).map(Some)
}

fn geneve(payload: Payload<'_>) -> Result<Option<TunnelPayload<'_>>, ParseError> {
    let Some(h) = payload.bytes.first_chunk::<8>() else {
        return Err(ParseError::Incomplete(8));
    };
    // The version must be 0; the length of the options is in 4-byte units.
    if h[0] >> 6 != 0 {
        return Ok(None);
    }
    let header_len = 8 + usize::from(h[0] & 0x3f) * 4;
    inner(
        Tunnel::Geneve,
        u16::from_be_bytes([h[2], h[3]]),
        payload,
        header_len,
    )
    .map(Some)
}

fn gre(payload: Payload<'_>) -> Result<Option<TunnelPayload<'_>>, ParseError> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGEMENT: u16 = 0x0080;
    let Some(h) = payload.bytes.first_chunk::<4>() else {
        return Err(ParseError::Incomplete(4));
    };
    let flags = u16::from_be_bytes([h[0], h[1]]);
    let protocol = u16::from_be_bytes([h[2], h[3]]);
    if flags & ROUTING != 0 {
        return Err(Malformed::new(0, "GRE with source routing, which RFC 2784 removed").into());
    }
    let field = |flag| if flags & flag != 0 { 4 } else { 0 };
    let mut header_len = 4 + field(CHECKSUM) + field(KEY) + field(SEQUENCE);
    match flags & 0x0007 {
        0 => {}
        // PPTP acknowledgements have no payload and therefore no sequence number (RFC 2637, 4.1).
        1 if flags & SEQUENCE == 0 => return Ok(None),
        1 => header_len += field(ACKNOWLEDGEMENT),
        _ => return Err(Malformed::new(1, "GRE version is neither 0 nor 1").into()),
    }
    let opened = match protocol {
        ETHER_TYPE_PPP => ppp(Tunnel::Gre, after(payload, header_len)?),
        // Type I has no header and, unlike type II, no sequence number.
        ETHER_TYPE_ERSPAN if flags & SEQUENCE == 0 => {
            inner(Tunnel::ErspanI, ETHER_TYPE_ETHERNET, payload, header_len)
        }
        ETHER_TYPE_ERSPAN => inner(
            Tunnel::ErspanIi,
            ETHER_TYPE_ETHERNET,
            payload,
            header_len + 8,
        ),
        ETHER_TYPE_ERSPAN_III => erspan_iii(after(payload, header_len)?),
        protocol => inner(Tunnel::Gre, protocol, payload, header_len),
    };
    opened.map(Some)
}

fn erspan_iii(payload: Payload<'_>) -> Result<TunnelPayload<'_>, ParseError> {
    let Some(h) = payload.bytes.first_chunk::<12>() else {
        return Err(ParseError::Incomplete(12));
    };
    // The last bit indicates whether a platform-specific subheader of 8 bytes follows.
    let header_len = 12 + usize::from(h[11] & 1) * 8;
    // The frame type: 0 Ethernet, 2 IP.
    match (h[10] >> 2) & 0x1f {
        0 => inner(Tunnel::ErspanIii, ETHER_TYPE_ETHERNET, payload, header_len),
        2 => {
            let rest = after(payload, header_len)?;
            inner(Tunnel::ErspanIii, link::by_version(rest.bytes)?, rest, 0)
        }
        _ => Err(Malformed::new(10, "ERSPAN III carries neither Ethernet nor IP").into()),
    }
}

fn pppoe(payload: Payload<'_>) -> Result<TunnelPayload<'_>, ParseError> {
    let Some(h) = payload.bytes.first_chunk::<6>() else {
        return Err(ParseError::Incomplete(6));
    };
    if h[..2] != [0x11, 0] {
        return Err(Malformed::new(0, "PPPoE session without version 1, type 1 and code 0").into());
    }
    let len = usize::from(u16::from_be_bytes([h[4], h[5]]));
    let rest = after(payload, 6)?;
    // Bytes beyond the length are Ethernet padding.
    let rest = Payload {
        bytes: &rest.bytes[..rest.bytes.len().min(len)],
        wire_len: len.min(rest.wire_len),
    };
    ppp(Tunnel::Pppoe, rest)
}

fn ppp(tunnel: Tunnel, payload: Payload<'_>) -> Result<TunnelPayload<'_>, ParseError> {
    let mut cur = Cursor::new(payload.bytes);
    if payload.bytes.starts_with(&[0xff, 0x03]) {
        cur.skip(2)?;
    }
    // An odd first byte is a complete compressed protocol number (RFC 1661, 6.5).
    let first = u16::from(cur.u8()?);
    let protocol = if first & 1 == 1 {
        first
    } else {
        first << 8 | u16::from(cur.u8()?)
    };
    let next = match protocol {
        0x0021 => NextHeader::EtherType(ETHER_TYPE_IPV4),
        0x0057 => NextHeader::EtherType(ETHER_TYPE_IPV6),
        0x0281 | 0x0283 => NextHeader::EtherType(ETHER_TYPE_MPLS[0]),
        other => NextHeader::Ppp(other),
    };
    Ok(TunnelPayload {
        tunnel,
        next,
        payload: after(payload, cur.at())?,
    })
}

fn mpls(payload: Payload<'_>) -> Result<TunnelPayload<'_>, ParseError> {
    let mut cur = Cursor::new(payload.bytes);
    let mut labels = 0;
    // Bit 24 of an entry marks the bottom of the label stack.
    while cur.u32()? & 0x100 == 0 {
        labels += 1;
        if labels >= LABELS_MAX {
            return Err(cur.malformed(4, "more than 16 MPLS labels"));
        }
    }
    let rest = after(payload, cur.at())?;
    let (ether_type, header_len) = below_labels(rest)?;
    inner(Tunnel::Mpls, ether_type, rest, header_len)
}

/// Guesses the content below MPLS labels, which do not identify it; returns its EtherType and the length of the
/// control word before it. IP packets begin with their version, control words with zero, associated channels with one
/// (RFC 4928), and frames with any MAC address. Content that looks like a frame is treated as a frame, unless there
/// is stronger evidence for something else.
fn below_labels(payload: Payload<'_>) -> Result<(u16, usize), ParseError> {
    let bytes = payload.bytes;
    let frame = is_ethernet(bytes);
    Ok(match bytes.first().ok_or(ParseError::Incomplete(1))? >> 4 {
        4 if !frame || is_ipv4(bytes) => (ETHER_TYPE_IPV4, 0),
        6 if !frame => (ETHER_TYPE_IPV6, 0),
        0 if bytes.get(4..).is_some_and(is_ethernet) || !frame => (ETHER_TYPE_ETHERNET, 4),
        _ => (ETHER_TYPE_ETHERNET, 0),
    })
}

/// Whether this is an IPv4 header with a correct checksum.
fn is_ipv4(bytes: &[u8]) -> bool {
    let Some(header) = bytes
        .first()
        .and_then(|first| bytes.get(..usize::from(first & 0x0f) * 4))
    else {
        return false;
    };
    let words = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    header.len() >= 20 && (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Whether this is an Ethernet frame that carries a known protocol.
fn is_ethernet(bytes: &[u8]) -> bool {
    let Ok(found) = link::parse(LinkType::Ethernet, bytes) else {
        return false;
    };
    let version = bytes.get(found.header_len).map(|byte| byte >> 4);
    match found.ether_type {
        ETHER_TYPE_IPV4 => version == Some(4),
        ETHER_TYPE_IPV6 => version == Some(6),
        other => {
            other == ETHER_TYPE_ARP
                || other == ETHER_TYPE_PPPOE_SESSION
                || ETHER_TYPE_MPLS.contains(&other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content below labels is recognized by its first bytes, whatever the frame's destination MAC address.
    #[test]
    fn content_below_labels_is_recognized() {
        let frame = |first: u8, ether_type: u16, rest: &[u8]| {
            let mut bytes = vec![first, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
            bytes.extend(ether_type.to_be_bytes());
            bytes.extend(rest);
            bytes
        };
        let check = |bytes: &[u8], expected| {
            let payload = Payload {
                bytes,
                wire_len: bytes.len(),
            };
            assert_eq!(super::below_labels(payload), Ok(expected), "{bytes:02x?}");
        };
        let ipv4 = [
            0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 6, 0xb6, 0xe0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 0,
            0,
        ];
        assert!(is_ipv4(&ipv4));
        for first in [0x00, 0x02, 0x10, 0x45, 0x4a, 0x60, 0xfe] {
            check(
                &frame(first, ETHER_TYPE_IPV4, &ipv4),
                (ETHER_TYPE_ETHERNET, 0),
            );
            check(
                &frame(first, ETHER_TYPE_ARP, &ipv4),
                (ETHER_TYPE_ETHERNET, 0),
            );
            let with_word = [&[0; 4][..], &frame(first, ETHER_TYPE_IPV4, &ipv4)].concat();
            check(&with_word, (ETHER_TYPE_ETHERNET, 4));
        }
        check(&ipv4, (ETHER_TYPE_IPV4, 0));
        check(&[0x60; 60], (ETHER_TYPE_IPV6, 0));
    }

    /// Labels, options and lengths that exceed the packet are errors, and truncated headers are never parsed.
    #[test]
    fn inconsistent_headers_are_errors() {
        let whole = |bytes: &'static [u8]| Payload {
            bytes,
            wire_len: bytes.len(),
        };
        let mpls = NextHeader::EtherType(0x8847);
        assert!(matches!(
            open_frame(mpls, whole(&[0; 100])),
            Err(ParseError::Malformed(_))
        ));
        assert!(matches!(
            open_frame(mpls, whole(&[0; 8])),
            Err(ParseError::Incomplete(_))
        ));
        assert!(matches!(
            open_ip(47, whole(&[0x40, 0, 8, 0])),
            Err(ParseError::Malformed(_))
        ));
        assert!(matches!(
            open_ip(47, whole(&[0, 2, 8, 0])),
            Err(ParseError::Malformed(_))
        ));
        assert!(matches!(
            open_ip(47, whole(&[0x30, 0, 8, 0, 0, 0])),
            Err(ParseError::Malformed(_))
        ));
        assert_eq!(open_ip(6, whole(&[])), Ok(None));
        // A PPTP acknowledgement without a payload, and one with a packet.
        let ack: &[u8] = &[0x20, 0x81, 0x88, 0x0b, 0, 0, 0, 0x18, 0, 0, 0, 6];
        assert_eq!(open_ip(47, whole(ack)), Ok(None));
        let packet = &[
            0x30, 0x81, 0x88, 0x0b, 0, 4, 0, 0x18, 0, 0, 0, 1, 0, 0, 0, 6, 0xff, 3, 0, 0x21,
        ];
        assert!(matches!(open_ip(47, whole(packet)), Ok(Some(_))));
        // 252 bytes of options in a datagram of 8 bytes; a datagram that is not VXLAN.
        assert_eq!(
            open_udp(6081, whole(&[0x3f, 0, 0x65, 0x58, 0, 0, 0, 0])),
            None
        );
        assert_eq!(open_udp(4789, whole(&[0; 64])), None);
        assert_eq!(open_udp(2049, whole(&[8; 64])), None);
    }
}
