//! Reusable buffers for frames in flight: a running link doesn't allocate.
//!
//! The rule: a buffer counts against the limit with its full size, so there are three sizes, and a single packet
//! doesn't occupy a buffer of 64 KiB.

use super::packet::VNET_HEADER_BYTES;

/// Largest frame: 64 KiB of IP, Ethernet with two VLAN tags, and the virtio-net header.
pub(super) const FRAME_BYTES_MAX: usize = (64 << 10) + 14 + 8 + VNET_HEADER_BYTES;
/// A standard Ethernet packet; a jumbo frame or a short train; the longest train.
const SIZES: [usize; 3] = [2048, 10 << 10, FRAME_BYTES_MAX];

/// Buffers by size.
#[derive(Default)]
pub(super) struct Spare {
    kept: [Vec<Vec<u8>>; 3],
}

impl Spare {
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let class = SIZES
            .iter()
            .position(|size| bytes <= *size)
            .expect("frames have a maximum length");
        self.kept[class]
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(SIZES[class]))
    }

    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let class = SIZES
            .iter()
            .position(|size| buffer.capacity() <= *size)
            .unwrap_or(SIZES.len() - 1);
        self.kept[class].push(buffer);
    }
}
