//! Frames for tests of links.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::packet::{
    self, ETHERNET_BYTES, GSO_TCP4, NEEDS_CHECKSUM, TCP_CWR, TCP_PSH, VNET_HEADER_BYTES, add, fold,
};
use super::tcp::{Flow, bare};

/// Payload of [`train`], in bytes.
const PAYLOAD: usize = 4000;
/// Payload of the segments of [`train`] except the last, in bytes.
pub(super) const SEGMENT: usize = 1448;
/// The endpoints of [`segment`]'s connections.
pub(super) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 40_000);
pub(super) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 3260);

/// A train as a host sends it: IPv4, TCP with a timestamp option, partial checksum.
pub(super) fn train() -> Vec<u8> {
    let mut buffer = vec![NEEDS_CHECKSUM, GSO_TCP4, 66, 0];
    buffer.extend((SEGMENT as u16).to_ne_bytes());
    buffer.extend(34u16.to_ne_bytes());
    buffer.extend(16u16.to_ne_bytes());
    buffer.extend([0, 0]);
    buffer.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    buffer.extend([
        0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
    ]);
    buffer.extend([0x9c, 0x40, 0x0c, 0xbc, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9]);
    buffer.extend([0x80, TCP_PSH | 0x10 | TCP_CWR, 1, 0, 0, 0, 0, 0]);
    buffer.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    buffer.extend((0..PAYLOAD).map(|byte| byte as u8));
    buffer
}

/// Verifies checksums as a receiver does: IP's, and TCP's over the pseudo-header.
pub(super) fn sums_are_right(frame: &[u8]) -> bool {
    let ip = &frame[14..34];
    let tcp = &frame[34..];
    let pseudo = add(0, &ip[12..20]) + 6 + tcp.len() as u64;
    fold(add(0, ip)) == 0xffff && fold(add(pseudo, tcp)) == 0xffff
}

/// A segment with this payload and these flags, and complete checksums.
pub(super) fn segment(
    from: SocketAddrV4,
    to: SocketAddrV4,
    [sequence, acknowledgement]: [u32; 2],
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let like = train();
    let mut buffer = bare(&like, Flow { from, to }, sequence, acknowledgement, flags);
    buffer.extend_from_slice(payload);
    let bytes = 40 + payload.len() as u16;
    let (ip, tcp) = buffer[VNET_HEADER_BYTES + ETHERNET_BYTES..].split_at_mut(20);
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    packet::finish_checksums(ip, tcp);
    buffer
}
