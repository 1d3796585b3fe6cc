//! TCP (RFC 9293) and UDP (RFC 768) headers. Checksums are not verified: with checksum offload, they are missing on
//! the sending host, and switches drop damaged frames.

use super::{PROTOCOL_TCP, PROTOCOL_UDP, Payload};
use crate::{Malformed, ParseError};

/// The control bits relevant to an observer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more data.
    pub const fn fin(self) -> bool {
        self.0 & 0x01 != 0
    }
    /// Opens a connection.
    pub const fn syn(self) -> bool {
        self.0 & 0x02 != 0
    }
    /// Resets the connection.
    pub const fn rst(self) -> bool {
        self.0 & 0x04 != 0
    }
    /// The acknowledgement number is valid.
    pub const fn ack(self) -> bool {
        self.0 & 0x10 != 0
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment<'a> {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The sequence number of the first byte (or of the SYN).
    pub seq: u32,
    /// The next sequence number that the sender expects, if [`TcpFlags::ack`].
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// The data.
    pub payload: Payload<'a>,
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDatagram<'a> {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The data.
    pub payload: Payload<'a>,
}

/// The content of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPayload<'a> {
    /// A TCP segment.
    Tcp(TcpSegment<'a>),
    /// A UDP datagram.
    Udp(UdpDatagram<'a>),
    /// Another protocol, by number.
    Other(u8),
}

/// Parses the header of a complete IP payload (unfragmented or reassembled).
///
/// # Errors
/// The header is truncated or inconsistent.
#[inline]
pub fn parse_transport(protocol: u8, payload: Payload<'_>) -> Result<IpPayload<'_>, ParseError> {
    let bytes = payload.bytes;
    match protocol {
        PROTOCOL_TCP => parse_tcp(payload).map(IpPayload::Tcp),
        PROTOCOL_UDP => {
            let Some(h) = bytes.first_chunk::<8>() else {
                return Err(ParseError::Incomplete(8));
            };
            let len = usize::from(u16::from_be_bytes([h[4], h[5]]));
            // Zero means that the length doesn't fit in the field (RFC 2675).
            let len = if len == 0 { payload.wire_len } else { len };
            if len < 8 || len > payload.wire_len {
                return Err(Malformed::new(
                    4,
                    "UDP length is less than its header's or exceeds the packet",
                )
                .into());
            }
            Ok(IpPayload::Udp(UdpDatagram {
                source_port: u16::from_be_bytes([h[0], h[1]]),
                destination_port: u16::from_be_bytes([h[2], h[3]]),
                payload: Payload {
                    bytes: &bytes[8..bytes.len().min(len)],
                    wire_len: len - 8,
                },
            }))
        }
        other => Ok(IpPayload::Other(other)),
    }
}

#[inline(always)]
pub(super) fn parse_tcp(payload: Payload<'_>) -> Result<TcpSegment<'_>, ParseError> {
    let bytes = payload.bytes;
    let Some(h) = bytes.first_chunk::<20>() else {
        return Err(ParseError::Incomplete(20));
    };
    let header_len = usize::from(h[12] >> 4) * 4;
    if header_len < 20 || header_len > payload.wire_len {
        return Err(Malformed::new(
            12,
            "TCP header is shorter than 20 bytes or exceeds the packet",
        )
        .into());
    }
    Ok(TcpSegment {
        source_port: u16::from_be_bytes([h[0], h[1]]),
        destination_port: u16::from_be_bytes([h[2], h[3]]),
        seq: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
        ack: u32::from_be_bytes([h[8], h[9], h[10], h[11]]),
        flags: TcpFlags(h[13]),
        payload: Payload {
            bytes: bytes.get(header_len..).unwrap_or(&[]),
            wire_len: payload.wire_len - header_len,
        },
    })
}
