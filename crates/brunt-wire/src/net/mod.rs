//! Parses frames down to TCP segments and UDP datagrams: Ethernet with VLAN tags, Linux cooked captures, IPv4 and
//! IPv6, and tunnels around them. The capture pipeline calls it for every packet, so it makes a single pass and
//! doesn't allocate. The one rule: lengths come from the headers on the wire, so data cut off by the snap length
//! counts as missing and does not shorten a packet.

mod address;
mod ip;
mod link;
mod next;
mod transport;
mod tunnel;

pub use address::{Endpoint, IpAddress};
pub use ip::{Fragment, FragmentKey, Payload};
pub use next::NextHeader;
pub use transport::{IpPayload, TcpFlags, TcpSegment, UdpDatagram, parse_transport};
pub use tunnel::{TUNNELS_MAX, Tunnel, TunnelPayload, open_frame, open_ip, open_udp};

use transport::parse_tcp;

use crate::ParseError;
use crate::pcap::LinkType;

/// TCP's protocol number.
pub const PROTOCOL_TCP: u8 = 6;
/// UDP's protocol number.
pub const PROTOCOL_UDP: u8 = 17;

/// The IP packet inside a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// Destination and source MAC addresses, if the link has both.
    pub macs: Option<&'a [u8; 12]>,
    /// The innermost VLAN id.
    pub vlan: Option<u16>,
    /// The sender.
    pub source: IpAddress,
    /// The receiver.
    pub destination: IpAddress,
    /// The transport's protocol number ([`PROTOCOL_TCP`], ...).
    pub protocol: u8,
    /// The transport's header and payload, as captured.
    pub payload: Payload<'a>,
    /// Set for a fragment, which has to be reassembled first.
    pub fragment: Option<Fragment>,
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An IP packet.
    Ip(IpPacket<'a>),
    /// Another protocol (ARP, LLDP, ...), or a tunnel ([`open_frame`]).
    Other {
        /// The protocol.
        next: NextHeader,
        /// The payload of that protocol, as captured.
        payload: Payload<'a>,
    },
}

/// Parses a frame down to its IP payload. `wire_len` is the frame's length on the wire.
///
/// # Errors
/// The headers are truncated by the snap length, or inconsistent.
#[inline]
pub fn parse_frame(link: LinkType, bytes: &[u8], wire_len: u32) -> Result<Frame<'_>, ParseError> {
    if let LinkType::Other(number) = link {
        let payload = Payload {
            bytes,
            wire_len: wire_len as usize,
        };
        return Ok(Frame::Other {
            next: NextHeader::Link(number),
            payload,
        });
    }
    frame_of(&link::parse(link, bytes)?, bytes, wire_len as usize)
}

/// Parses the content after a link header; `bytes` and `wire_len` include that header.
#[inline]
fn frame_of<'a>(
    found: &link::Link<'a>,
    bytes: &'a [u8],
    wire_len: usize,
) -> Result<Frame<'a>, ParseError> {
    let payload = Payload {
        bytes: &bytes[found.header_len..],
        wire_len: wire_len.saturating_sub(found.header_len),
    };
    match found.ether_type {
        link::ETHER_TYPE_IPV4 | link::ETHER_TYPE_IPV6 => {
            ip::parse(payload.bytes, payload.wire_len, found.macs, found.vlan).map(Frame::Ip)
        }
        // Values up to 1,500 are the frame's length, and EtherTypes start at 1,536.
        1..0x600 => Ok(Frame::Other {
            next: NextHeader::Llc,
            payload,
        }),
        other => Ok(Frame::Other {
            next: NextHeader::EtherType(other),
            payload,
        }),
    }
}

/// A TCP segment in the most common frame format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainTcp<'a> {
    /// Destination and source MAC addresses.
    pub macs: &'a [u8; 12],
    /// The sender.
    pub source: IpAddress,
    /// The receiver.
    pub destination: IpAddress,
    /// The segment.
    pub tcp: TcpSegment<'a>,
}

/// Ethernet header plus IPv4 header without options.
const PLAIN_HEADERS_BYTES: usize = 14 + 20;

/// Fast path for TCP in unfragmented IPv4 without options, in untagged Ethernet. Returns the same result as
/// [`parse_frame`] and [`parse_transport`], or `None` for all other packets.
// Always inlined, so the fields never leave the registers.
#[inline(always)]
pub fn parse_plain_tcp(link: LinkType, bytes: &[u8]) -> Option<PlainTcp<'_>> {
    let h = bytes.first_chunk::<PLAIN_HEADERS_BYTES>()?;
    let short = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let total = usize::from(short(16));
    // Version and header length; not a fragment ("more" flag and offset); the transport.
    let plain = h[14] == 0x45 && short(20) & 0x3fff == 0 && h[23] == PROTOCOL_TCP && total >= 20;
    if link != LinkType::Ethernet || short(12) != link::ETHER_TYPE_IPV4 || !plain {
        return None;
    }
    let end = bytes.len().min(14 + total);
    let payload = Payload {
        bytes: &bytes[PLAIN_HEADERS_BYTES..end],
        wire_len: total - 20,
    };
    Some(PlainTcp {
        macs: h.first_chunk()?,
        source: IpAddress::v4([h[26], h[27], h[28], h[29]]),
        destination: IpAddress::v4([h[30], h[31], h[32], h[33]]),
        tcp: parse_tcp(payload).ok()?,
    })
}

#[cfg(test)]
mod tests;
