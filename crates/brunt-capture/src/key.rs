//! Common identifiers: endpoints, files, messages and packets. Used by all stages, analyses and the trace. The
//! one rule: nothing here depends on a protocol.

use brunt_wire::net::{Endpoint, IpAddress, NextHeader};
use brunt_wire::nfs::FileHandle;
use serde::{Deserialize, Serialize};

/// The transport that carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Over a TCP connection.
    #[default]
    Tcp,
    /// Over UDP: one message per datagram.
    Udp,
}

/// The two sides of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peers {
    /// Sends requests.
    pub client: Endpoint,
    /// Answers them.
    pub server: Endpoint,
    /// The transport between the two sides.
    pub transport: Transport,
}

/// Identifies a file on a server in 64 bits: a hash of the server's address and the file handle.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct FileKey(pub u64);

impl FileKey {
    /// The key of `handle` on `server`.
    #[inline]
    pub fn new(server: IpAddress, handle: FileHandle<'_>) -> FileKey {
        // SplitMix64's multiplier mixes in the server: a seeded XXH3 costs twice as much.
        let server = (server.0 as u64) ^ ((server.0 >> 64) as u64).rotate_left(32);
        let server = server.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        FileKey(twox_hash::XxHash3_64::oneshot(handle.0) ^ server ^ (server >> 32))
    }
}

/// Direction of a data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferDirection {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// A request or reply as it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// When its first byte was captured, in nanoseconds since 1970.
    pub first_ns: u64,
    /// When its last byte was captured; `None` if that byte was not captured.
    pub last_ns: Option<u64>,
    /// Whether every byte was captured.
    pub whole: bool,
    /// The message's position in the packets.
    pub place: MessagePlace,
}

/// A message's position in the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagePlace {
    /// Bytes of payload before its header in its first packet.
    pub at: u32,
    /// Length of the message in bytes according to its framing, including file data.
    pub len: u32,
}

/// A packet as recorded in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it was captured: nanoseconds since 1970.
    pub time_ns: u64,
    /// Index of the capture interface.
    pub interface: u32,
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// Bytes cut off by the snap length.
    pub missing: u32,
    /// Destination and source MAC, if the link has both. In a tunnel, the addresses of the innermost frame.
    pub macs: Option<[u8; 12]>,
    /// The innermost VLAN ID.
    pub vlan: Option<u16>,
    /// For IP: source, destination, and protocol number of the transport; in a tunnel, those of the innermost packet.
    /// Ports are zero if the transport has none, or if they are in another fragment.
    pub ends: Option<(Endpoint, Endpoint, u8)>,
    /// Whether the packet is an IP fragment.
    pub is_fragment: bool,
    /// For TCP: sequence number and control bits.
    pub tcp: Option<(u32, u8)>,
    /// Bytes of TCP or UDP payload, as sent.
    pub payload_len: Option<u32>,
    /// Whether the payload belongs to a message whose header was found.
    pub in_message: bool,
    /// The payload's type, if it is not understood.
    pub not_understood: Option<NextHeader>,
}

/// Whether a name leads to another file; `.` and `..` don't, since in every directory they name the directory and its
/// parent.
#[inline]
pub(crate) fn leads_on(name: &[u8]) -> bool {
    name != b"." && name != b".."
}

/// Serializes an address as its upper and lower half.
pub(crate) mod address {
    use brunt_wire::net::IpAddress;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(address: &IpAddress, serializer: S) -> Result<S::Ok, S::Error> {
        [(address.0 >> 64) as u64, address.0 as u64].serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddress, D::Error> {
        let [high, low] = <[u64; 2]>::deserialize(deserializer)?;
        Ok(IpAddress(u128::from(high) << 64 | u128::from(low)))
    }
}
