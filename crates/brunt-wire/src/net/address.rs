//! An IP address and port as one comparable number.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv6 address, or an IPv4 address in mapped form (RFC 4291, 2.5.5.2), as a single number for hashing and
/// comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpAddress(pub u128);

impl IpAddress {
    /// Converts the four bytes from an IPv4 header.
    #[inline]
    pub fn v4(bytes: [u8; 4]) -> IpAddress {
        IpAddress(0xffff_0000_0000 | u128::from(u32::from_be_bytes(bytes)))
    }

    /// Converts the sixteen bytes from an IPv6 header.
    #[inline]
    pub fn v6(bytes: [u8; 16]) -> IpAddress {
        IpAddress(u128::from_be_bytes(bytes))
    }

    /// The IPv4 address if this is a mapped one.
    pub fn to_v4(self) -> Option<Ipv4Addr> {
        (self.0 >> 32 == 0xffff).then(|| Ipv4Addr::from(self.0 as u32))
    }
}

impl fmt::Display for IpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_v4() {
            Some(v4) => f.pad(&v4.to_string()),
            None => f.pad(&Ipv6Addr::from(self.0).to_string()),
        }
    }
}

/// An address and a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The host.
    pub address: IpAddress,
    /// The TCP or UDP port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.to_v4() {
            Some(v4) => write!(f, "{v4}:{}", self.port),
            None => write!(f, "[{}]:{}", self.address, self.port),
        }
    }
}
