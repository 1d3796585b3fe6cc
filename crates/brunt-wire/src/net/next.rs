//! Identifies the next protocol in a packet if it is not parsed. The capture pipeline uses it to count skipped
//! packets, and reports to name their protocols. The one rule: the printed form can be parsed back.

use std::fmt;
use std::str::FromStr;

use crate::Malformed;

/// The next protocol in a packet, by its number in the preceding header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHeader {
    /// In an Ethernet frame, or in a tunnel that uses EtherTypes.
    EtherType(u16),
    /// In an IEEE 802.3 frame, with a length instead of an EtherType (for example, spanning tree).
    Llc,
    /// In PPP.
    Ppp(u16),
    /// In an IP packet.
    Ip(u8),
    /// At the start of a packet: the link type of the capture file.
    Link(u32),
}

impl NextHeader {
    /// The name, for common protocols that are not parsed.
    pub const fn known_as(self) -> Option<&'static str> {
        Some(match self {
            NextHeader::EtherType(0x0806) => "ARP",
            NextHeader::EtherType(0x8863) => "PPPoE discovery",
            NextHeader::EtherType(0x8809) => "LACP",
            NextHeader::EtherType(0x8808) => "pause frames",
            NextHeader::EtherType(0x88cc) => "LLDP",
            NextHeader::EtherType(0x88e5) => "MACsec, encrypted",
            NextHeader::EtherType(0x88f7) => "PTP",
            NextHeader::EtherType(0x8906) => "FCoE",
            NextHeader::EtherType(0x8914) => "FIP",
            NextHeader::EtherType(0x8915) => "RoCE",
            NextHeader::EtherType(0x88a2) => "ATA over Ethernet",
            NextHeader::Ppp(0xc021) => "LCP",
            NextHeader::Ip(1) => "ICMP",
            NextHeader::Ip(2) => "IGMP",
            NextHeader::Ip(50) => "ESP, encrypted",
            NextHeader::Ip(51) => "AH",
            NextHeader::Ip(58) => "ICMPv6",
            NextHeader::Ip(89) => "OSPF",
            NextHeader::Ip(112) => "VRRP",
            NextHeader::Ip(115) => "L2TP",
            NextHeader::Ip(132) => "SCTP",
            NextHeader::Link(105 | 119 | 127 | 163) => "IEEE 802.11",
            NextHeader::Link(189 | 220) => "USB",
            _ => return None,
        })
    }
}

/// The printed form, which can be parsed back.
impl fmt::Display for NextHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHeader::EtherType(number) => write!(f, "EtherType {number:#06x}"),
            NextHeader::Llc => f.write_str("IEEE 802.2 LLC"),
            NextHeader::Ppp(number) => write!(f, "PPP protocol {number:#06x}"),
            NextHeader::Ip(number) => write!(f, "IP protocol {number}"),
            NextHeader::Link(number) => write!(f, "link type {number}"),
        }
    }
}

impl FromStr for NextHeader {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<NextHeader, Malformed> {
        let fail = Malformed::new(
            0,
            "not an EtherType, PPP protocol, IP protocol or link type",
        );
        let Some((kind, number)) = text.rsplit_once(' ') else {
            return Err(fail);
        };
        let hex = || {
            number
                .strip_prefix("0x")
                .and_then(|hex| u16::from_str_radix(hex, 16).ok())
        };
        let next = match kind {
            "EtherType" => hex().map(NextHeader::EtherType),
            "PPP protocol" => hex().map(NextHeader::Ppp),
            "IP protocol" => number.parse().ok().map(NextHeader::Ip),
            "link type" => number.parse().ok().map(NextHeader::Link),
            "IEEE 802.2" if number == "LLC" => Some(NextHeader::Llc),
            _ => None,
        };
        next.ok_or(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_protocols_parse_back() {
        use NextHeader::{EtherType, Ip, Link, Llc, Ppp};
        for next in [
            EtherType(0x88b5),
            EtherType(0),
            Ppp(0xc021),
            Ip(89),
            Link(147),
            Llc,
        ] {
            assert_eq!(next.to_string().parse(), Ok(next));
        }
        for text in [
            "",
            " ",
            "EtherType",
            "EtherType 88b5",
            "IP protocol 256",
            "LLC",
        ] {
            assert!(text.parse::<NextHeader>().is_err(), "{text}");
        }
    }
}
