//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers, including their fragment information.

use super::{IpAddress, IpPacket};
use crate::{Cursor, Malformed, ParseError};

/// Maximum number of consecutive extension headers.
const EXTENSION_HEADERS_MAX: usize = 16;

/// The captured bytes of a payload, and its length on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The bytes as captured.
    pub bytes: &'a [u8],
    /// The length as sent; `bytes` is shorter if the snap length truncated it.
    pub wire_len: usize,
}

/// Identifies the packet to which a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// The sender.
    pub source: IpAddress,
    /// The receiver.
    pub destination: IpAddress,
    /// The identification that the sender assigned to the packet.
    pub identification: u32,
    /// The transport protocol.
    pub protocol: u8,
}

/// The position of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The identification that the sender assigned to the packet.
    pub identification: u32,
    /// Offset of the fragment in the packet's payload, in bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
}

#[inline]
pub(super) fn parse<'a>(
    bytes: &'a [u8],
    wire_len: usize,
    macs: Option<&'a [u8; 12]>,
    vlan: Option<u16>,
) -> Result<IpPacket<'a>, ParseError> {
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => v4(bytes, wire_len, macs, vlan),
        Some(6) => v6(bytes, wire_len, macs, vlan),
        Some(_) => Err(Malformed::new(0, "IP version is neither 4 nor 6").into()),
        None => Err(ParseError::Incomplete(1)),
    }
}

#[inline]
fn v4<'a>(
    bytes: &'a [u8],
    wire_len: usize,
    macs: Option<&'a [u8; 12]>,
    vlan: Option<u16>,
) -> Result<IpPacket<'a>, ParseError> {
    let Some(h) = bytes.first_chunk::<20>() else {
        return Err(ParseError::Incomplete(20));
    };
    let header_len = usize::from(h[0] & 0x0f) * 4;
    if header_len < 20 {
        return Err(Malformed::new(0, "IPv4 header shorter than 20 bytes").into());
    }
    let total = match usize::from(u16::from_be_bytes([h[2], h[3]])) {
        // With segmentation offload, the field is zero in packets captured on the sending host.
        0 => wire_len,
        total => total,
    };
    if total < header_len {
        return Err(Malformed::new(2, "IPv4 total length is less than the header's").into());
    }
    if bytes.len() < header_len {
        return Err(ParseError::Incomplete(header_len));
    }
    let word = u16::from_be_bytes([h[6], h[7]]);
    let (more, offset) = (word & 0x2000 != 0, u32::from(word & 0x1fff) * 8);
    let fragment = (more || offset > 0).then(|| Fragment {
        identification: u32::from(u16::from_be_bytes([h[4], h[5]])),
        offset,
        more,
    });
    Ok(IpPacket {
        macs,
        vlan,
        source: IpAddress::v4([h[12], h[13], h[14], h[15]]),
        destination: IpAddress::v4([h[16], h[17], h[18], h[19]]),
        protocol: h[9],
        payload: Payload {
            // Bytes beyond the total length are Ethernet padding.
            bytes: &bytes[header_len..bytes.len().min(total)],
            wire_len: total - header_len,
        },
        fragment,
    })
}

fn v6<'a>(
    bytes: &'a [u8],
    wire_len: usize,
    macs: Option<&'a [u8; 12]>,
    vlan: Option<u16>,
) -> Result<IpPacket<'a>, ParseError> {
    let mut cur = Cursor::new(bytes);
    cur.skip(4)?;
    let total = match usize::from(cur.u16()?) {
        // A jumbogram (RFC 2675) or segmentation offload.
        0 => wire_len.max(40),
        payload => 40 + payload,
    };
    let protocol = cur.u8()?;
    cur.skip(1)?;
    let address = |bytes: &[u8]| IpAddress::v6(bytes.try_into().expect("16 bytes were taken"));
    let source = address(cur.take(16)?);
    let destination = address(cur.take(16)?);
    let (protocol, fragment) = skip_extension_headers(protocol, &mut cur)?;
    // An "atomic" fragment is the whole packet (RFC 6946).
    let fragment = fragment.filter(|f| f.more || f.offset > 0);
    let at = cur.at();
    if total < at {
        return Err(
            Malformed::new(4, "IPv6 payload length is less than the extension headers'").into(),
        );
    }
    let payload = Payload {
        bytes: &bytes[at..bytes.len().min(total).max(at)],
        wire_len: total - at,
    };
    Ok(IpPacket {
        macs,
        vlan,
        source,
        destination,
        protocol,
        payload,
        fragment,
    })
}

/// Skips the extension headers, the first of which has type `protocol`. Returns the payload's protocol and, for a
/// fragment, its position in the packet.
#[inline]
fn skip_extension_headers(
    mut protocol: u8,
    cur: &mut Cursor<'_>,
) -> Result<(u8, Option<Fragment>), ParseError> {
    let mut fragment = None;
    for headers in 0.. {
        if headers > EXTENSION_HEADERS_MAX {
            return Err(cur.malformed(0, "more than 16 IPv6 extension headers"));
        }
        match protocol {
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6 (in the form of RFC 6564).
            0 | 43 | 60 | 135 | 139 | 140 => {
                protocol = cur.u8()?;
                let len = usize::from(cur.u8()?);
                cur.skip(len * 8 + 6)?;
            }
            // Authentication (RFC 4302): the length is in 4-byte units, minus two.
            51 => {
                protocol = cur.u8()?;
                let len = usize::from(cur.u8()?);
                cur.skip((len + 2) * 4 - 2)?;
            }
            44 if fragment.is_none() => {
                protocol = cur.u8()?;
                cur.skip(1)?;
                let word = cur.u16()?;
                let identification = cur.u32()?;
                fragment = Some(Fragment {
                    identification,
                    offset: u32::from(word & 0xfff8),
                    more: word & 1 != 0,
                });
                // Only the first fragment contains the headers after this one.
                if word & 0xfff8 != 0 {
                    break;
                }
            }
            _ => break,
        }
    }
    Ok((protocol, fragment))
}
