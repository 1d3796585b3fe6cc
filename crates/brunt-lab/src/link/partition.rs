//! Partitions on a link: drops packets from one host to another and passes all others. A partition between two hosts
//! uses this on the first link of each path between them, so other hosts are unaffected.
//!
//! Called by the link's thread for each frame while a partition is active. The rule: it looks only at addresses, and
//! nothing is random.

use std::net::Ipv4Addr;

use super::packet::{ETHERNET_BYTES, ETHERTYPE_IPV4, VNET_HEADER_BYTES};

/// A sender, and a receiver that must not get its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPair {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
}

/// Whether a frame, virtio-net header first, matches one of these pairs.
pub(super) fn stops(pairs: &[HostPair], buffer: &[u8]) -> bool {
    let Some(frame) = buffer
        .get(VNET_HEADER_BYTES..)
        .filter(|frame| frame.len() >= ETHERNET_BYTES + 20)
    else {
        return false;
    };
    if frame[12..14] != ETHERTYPE_IPV4 {
        return false;
    }
    let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let (from, to) = (address(ETHERNET_BYTES + 12), address(ETHERNET_BYTES + 16));
    pairs.iter().any(|pair| (pair.from, pair.to) == (from, to))
}

#[cfg(test)]
mod tests {
    use super::super::test_frames::train;
    use super::*;

    /// Only packets from one host to the other are dropped, both trains and single packets.
    #[test]
    fn only_packets_between_separated_hosts_are_dropped() {
        let host = |last| Ipv4Addr::new(10, 77, 0, last);
        let frame = train();
        let pair = |from, to| HostPair {
            from: host(from),
            to: host(to),
        };
        assert!(stops(&[pair(1, 2)], &frame));
        assert!(stops(&[pair(3, 4), pair(1, 2)], &frame));
        assert!(!stops(&[pair(2, 1), pair(1, 3), pair(3, 2)], &frame));
        assert!(!stops(&[], &frame));
        for length in 0..VNET_HEADER_BYTES + 34 {
            assert!(!stops(&[pair(1, 2)], &frame[..length]));
        }
    }
}
