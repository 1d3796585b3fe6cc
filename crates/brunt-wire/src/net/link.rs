//! Parses the link layer: from the first byte of a frame to the first byte of its network header.

use crate::pcap::LinkType;
use crate::{Cursor, ParseError};

pub(super) const ETHER_TYPE_IPV4: u16 = 0x0800;
pub(super) const ETHER_TYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q, 802.1ad, and the two values that QinQ used before 802.1ad.
const VLAN_TAGS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
/// Maximum number of consecutive tags; more indicate a bridge loop.
const VLAN_DEPTH_MAX: usize = 8;

/// Values up to this one in the EtherType field are lengths.
const LENGTH_MAX: u16 = 1500;
/// SNAP's service access points, unnumbered information, and the organization code that precedes an EtherType.
const LLC_SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
/// All stations, unnumbered information (RFC 1662, 3.1).
const PPP_IN_HDLC: [u8; 2] = [0xff, 3];

pub(super) struct Link<'a> {
    pub(super) macs: Option<&'a [u8; 12]>,
    pub(super) vlan: Option<u16>,
    pub(super) ether_type: u16,
    pub(super) header_len: usize,
}

#[inline]
pub(super) fn parse(link: LinkType, bytes: &[u8]) -> Result<Link<'_>, ParseError> {
    let mut cur = Cursor::new(bytes);
    let mut found = Link {
        macs: None,
        vlan: None,
        ether_type: 0,
        header_len: 0,
    };
    match link {
        LinkType::Ethernet => {
            let macs = cur.take(12)?;
            found.macs = macs.first_chunk();
            found.ether_type = cur.u16()?;
            snap(&mut cur, &mut found)?;
        }
        LinkType::Ppp => {
            if cur.rest().starts_with(&PPP_IN_HDLC) {
                cur.skip(PPP_IN_HDLC.len())?;
            }
            // RFC 1332 and RFC 5072. Other PPP protocols have no EtherType and are reported as EtherType 0.
            found.ether_type = match cur.u16()? {
                0x0021 => ETHER_TYPE_IPV4,
                0x0057 => ETHER_TYPE_IPV6,
                _ => 0,
            };
        }
        LinkType::LinuxSll => {
            cur.skip(14)?;
            found.ether_type = cur.u16()?;
        }
        LinkType::LinuxSll2 => {
            found.ether_type = cur.u16()?;
            cur.skip(18)?;
        }
        LinkType::Raw => found.ether_type = by_version(cur.rest())?,
        LinkType::Null => {
            // The address family is in the byte order of the host that wrote the file, and IPv6's number varies by
            // system, so the version in the IP header is more reliable.
            cur.skip(4)?;
            found.ether_type = by_version(cur.rest())?;
        }
        LinkType::Other(_) => {}
    }
    tags(cur, found)
}

/// An IEEE 802.3 frame has a length instead of the EtherType; with SNAP, the EtherType follows the LLC header (RFC
/// 1042).
#[inline]
fn snap<'a>(cur: &mut Cursor<'a>, found: &mut Link<'a>) -> Result<(), ParseError> {
    if found.ether_type <= LENGTH_MAX && cur.rest().starts_with(&LLC_SNAP) {
        cur.skip(LLC_SNAP.len())?;
        found.ether_type = cur.u16()?;
    }
    Ok(())
}

/// Parses a payload whose EtherType is already known.
pub(super) fn parse_from(ether_type: u16, bytes: &[u8]) -> Result<Link<'_>, ParseError> {
    tags(
        Cursor::new(bytes),
        Link {
            macs: None,
            vlan: None,
            ether_type,
            header_len: 0,
        },
    )
}

#[inline]
fn tags<'a>(mut cur: Cursor<'a>, mut found: Link<'a>) -> Result<Link<'a>, ParseError> {
    let mut depth = 0;
    while VLAN_TAGS.contains(&found.ether_type) {
        depth += 1;
        if depth > VLAN_DEPTH_MAX {
            return Err(cur.malformed(2, "more than 8 VLAN tags"));
        }
        found.vlan = Some(cur.u16()? & 0x0fff);
        found.ether_type = cur.u16()?;
    }
    found.header_len = cur.at();
    Ok(found)
}

pub(super) fn by_version(bytes: &[u8]) -> Result<u16, ParseError> {
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => Ok(ETHER_TYPE_IPV4),
        Some(6) => Ok(ETHER_TYPE_IPV6),
        Some(_) => Ok(0),
        None => Err(ParseError::Incomplete(1)),
    }
}
