//! Common identifiers: endpoints, files, messages and packets. Used by all stages, analyses and the trace.
//! The one rule: nothing here depends on a protocol.

use brunt_wire::net::{Endpoint, IpAddress, NextHeader};
use brunt_wire::nfs::FileHandle;
use serde::{Deserialize, Serialize};

/// What carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A connection.
    #[default]
    Tcp,
    /// One message, one datagram.
    Udp,
}

/// Who asked whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peers {
    /// Who asked.
    pub client: Endpoint,
    /// Who was asked.
    pub server: Endpoint,
    /// How.
    pub transport: Transport,
}

/// A file of a server, as 64 bits: a hash of the server's address and the handle.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct FileKey(pub u64);

impl FileKey {
    /// The key of `handle` on `server`.
    #[inline]
    pub fn new(server: IpAddress, handle: FileHandle<'_>) -> FileKey {
        // The server is mixed in by SplitMix64's multiplier: a seeded XXH3 costs twice as much.
        let server = (server.0 as u64) ^ ((server.0 >> 64) as u64).rotate_left(32);
        let server = server.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        FileKey(twox_hash::XxHash3_64::oneshot(handle.0) ^ server ^ (server >> 32))
    }
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferDirection {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// A request or its answer, as it went by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// When its first byte was seen: nanoseconds since 1970.
    pub first_ns: u64,
    /// When its last byte was seen; `None` if it was not.
    pub last_ns: Option<u64>,
    /// Whether every byte was seen.
    pub whole: bool,
    /// Where it lay in the packets.
    pub place: MessagePlace,
}

/// Where a message lay in the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagePlace {
    /// Bytes of data in its first packet before its header.
    pub at: u32,
    /// Bytes of the message, file data included, as its framing says.
    pub len: u32,
}

/// A packet as a trace keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it was captured: nanoseconds since 1970.
    pub time_ns: u64,
    /// Which interface of the capture.
    pub interface: u32,
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
    /// Bytes that a snap length cut.
    pub missing: u32,
    /// Destination, then source, when the link has both; in a tunnel those of the innermost frame.
    pub macs: Option<[u8; 12]>,
    /// The innermost VLAN.
    pub vlan: Option<u16>,
    /// Sender and receiver, and the transport's number, when it is IP; in a tunnel those of the innermost
    /// packet. Without ports (zero) when the transport has none, or they are in another fragment.
    pub ends: Option<(Endpoint, Endpoint, u8)>,
    /// Whether it is a fragment.
    pub is_fragment: bool,
    /// Sequence number and control bits, when it is TCP.
    pub tcp: Option<(u32, u8)>,
    /// Bytes of data above TCP or UDP, as sent.
    pub payload_len: Option<u32>,
    /// Whether its data belongs to a message whose header was found.
    pub in_message: bool,
    /// What it carries that is not understood, if so.
    pub not_understood: Option<NextHeader>,
}

/// Whether a name leads on: every directory calls itself and its parent so.
#[inline]
pub(crate) fn leads_on(name: &[u8]) -> bool {
    name != b"." && name != b".."
}

/// How an address is sent and kept: its upper and lower half.
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
