//! Merges consecutive packets of a TCP flow into a train for the receiving host, as its NIC would (generic receive
//! offload), so that its stack is called once for many packets. On the link itself they were separate packets, each
//! with its own fate.
//!
//! A train waits a short time for its next packet, but not after a packet with PSH or one that cannot be continued.
//!
//! The rule: packets are merged only if splitting them again yields exactly the same packets; order is preserved.

use std::time::Duration;

use brunt_core::Nanos;

use super::end::LinkEnd;
use super::packet::{
    ETHERNET_BYTES, GSO_NONE, NEEDS_CHECKSUM, TCP_PSH, VNET_HEADER_BYTES, seal_train,
};
use super::write_counts::WriteCounts;

/// Maximum length of a train, given by the maximum length of an IP packet.
const TRAIN_BYTES_MAX: usize = (64 << 10) - 1 + ETHERNET_BYTES;
/// How long a train that can be continued waits for its next packet, as in a NIC with interrupt moderation: at one
/// packet every two microseconds, ten are merged into a single call of the host's stack.
const HOLD: Duration = Duration::from_micros(20);
/// The only flag of a mergeable packet besides PSH.
const TCP_ACK: u8 = 0x10;

/// Outgoing frames for one device.
pub(super) struct Merger {
    to: LinkEnd,
    /// The waiting train; empty if none.
    train: Vec<u8>,
    packets: u32,
    header_bytes: usize,
    segment_bytes: usize,
    next_sequence: u32,
    /// Whether nothing may follow, because the last segment was short or had PSH.
    closed: bool,
    /// When the train was first seen waiting.
    since: Option<Nanos>,
}

/// The layout of a mergeable packet.
struct Segment {
    header_bytes: usize,
    sequence: u32,
    pushed: bool,
}

impl Merger {
    pub(super) fn new(to: LinkEnd) -> Merger {
        Merger {
            to,
            train: Vec::with_capacity(VNET_HEADER_BYTES + TRAIN_BYTES_MAX),
            packets: 0,
            header_bytes: 0,
            segment_bytes: 0,
            next_sequence: 0,
            closed: true,
            since: None,
        }
    }

    /// Adds a frame, virtio-net header first, that represents `packets` packets.
    pub(super) fn push(&mut self, frame: &[u8], packets: u32, written: &mut WriteCounts) {
        // An interface sends frames immediately and unmodified: it doesn't merge anything for its host.
        let segment = if self.to.is_interface() {
            None
        } else {
            Segment::parse(frame)
        };
        let Some(segment) = segment else {
            self.flush(written);
            return written.note(packets, self.to.write(frame).is_err());
        };
        let payload = frame.len() - VNET_HEADER_BYTES - segment.header_bytes;
        if self.takes(frame, &segment, payload) {
            self.train
                .extend_from_slice(&frame[VNET_HEADER_BYTES + segment.header_bytes..]);
            if segment.pushed {
                self.train[VNET_HEADER_BYTES + ETHERNET_BYTES + 20 + 13] |= TCP_PSH;
            }
            self.packets += 1;
        } else {
            self.flush(written);
            self.train.extend_from_slice(frame);
            self.packets = packets;
            self.header_bytes = segment.header_bytes;
            self.segment_bytes = payload;
        }
        self.next_sequence = segment.sequence.wrapping_add(payload as u32);
        self.closed = segment.pushed || payload < self.segment_bytes;
    }

    /// Writes the waiting train, unless it can be continued and has not waited long.
    pub(super) fn settle(&mut self, now: Nanos, written: &mut WriteCounts) {
        if self.train.is_empty() {
            return;
        }
        let since = *self.since.get_or_insert(now);
        if self.closed || now.since(since) >= HOLD {
            self.flush(written);
        }
    }

    /// Whether nothing is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.train.is_empty()
    }

    /// Writes the waiting train.
    pub(super) fn flush(&mut self, written: &mut WriteCounts) {
        if self.train.is_empty() {
            return;
        }
        if self.packets > 1 {
            seal_train(&mut self.train, self.header_bytes, self.segment_bytes);
        }
        written.note(self.packets, self.to.write(&self.train).is_err());
        self.train.clear();
        self.packets = 0;
        self.since = None;
    }

    /// Whether a packet continues the train.
    fn takes(&self, frame: &[u8], segment: &Segment, payload: usize) -> bool {
        if self.train.is_empty()
            || self.closed
            || segment.sequence != self.next_sequence
            || segment.header_bytes != self.header_bytes
            || payload > self.segment_bytes
            || self.train.len() + payload > VNET_HEADER_BYTES + TRAIN_BYTES_MAX
        {
            return false;
        }
        let header = |bytes: &[u8]| -> [u8; 54] {
            let mut header: [u8; 54] = bytes[VNET_HEADER_BYTES..][..54]
                .try_into()
                .expect("long enough");
            // Fields that differ between segments: the length, identification and checksum of IP; the sequence number,
            // PSH and checksum of TCP.
            for range in [16..20, 24..26, 38..42, 50..52] {
                header[range].fill(0);
            }
            header[47] &= !TCP_PSH;
            header
        };
        let options = VNET_HEADER_BYTES + 54..VNET_HEADER_BYTES + self.header_bytes;
        header(&self.train) == header(frame) && self.train[options.clone()] == frame[options]
    }
}

impl Segment {
    /// Parses an IPv4 TCP packet with data and a partial checksum, which shows that the packet was not modified.
    fn parse(frame: &[u8]) -> Option<Segment> {
        let (vnet, packet) = frame.split_at_checked(VNET_HEADER_BYTES)?;
        let ip = packet.get(ETHERNET_BYTES..)?;
        let tcp = ip.get(20..)?;
        let is_tcp4 = packet.get(12..14)? == [8, 0] && ip[0] == 0x45 && ip[9] == 6;
        if vnet[0] != NEEDS_CHECKSUM
            || vnet[1] != GSO_NONE
            || !is_tcp4
            || ip[6] & 0x3f != 0
            || ip[7] != 0
        {
            return None;
        }
        let header_bytes = ETHERNET_BYTES + 20 + usize::from(tcp.get(12)? >> 4) * 4;
        let flags = tcp[13];
        if header_bytes < 54 || packet.len() <= header_bytes || flags & !TCP_PSH != TCP_ACK {
            return None;
        }
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().expect("four bytes"));
        Some(Segment {
            header_bytes,
            sequence,
            pushed: flags & TCP_PSH != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::AsRawFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::super::packet::Train;
    use super::super::test_frames::train;
    use super::*;

    /// The bytes that a merger writes for these frames.
    fn merged(frames: &[Vec<u8>]) -> (Vec<u8>, WriteCounts) {
        let file = memfd_create("merged", MemfdFlags::CLOEXEC).unwrap();
        let mut merger = Merger::new(LinkEnd::Tap(file.as_raw_fd()));
        let mut written = WriteCounts::default();
        for frame in frames {
            merger.push(frame, 1, &mut written);
        }
        merger.flush(&mut written);
        let mut file = std::fs::File::from(file);
        let mut bytes = Vec::new();
        io::Seek::rewind(&mut file).unwrap();
        io::Read::read_to_end(&mut file, &mut bytes).unwrap();
        (bytes, written)
    }

    fn packets() -> Vec<Vec<u8>> {
        let mut whole = train();
        // Only the first packet of a train has CWR, and a packet with CWR is not merged.
        whole[VNET_HEADER_BYTES + 47] &= 0x7f;
        let cut = Train::parse(&whole).unwrap();
        (0..cut.segments)
            .map(|segment| {
                let mut packet = Vec::new();
                cut.cut(&whole, segment, 1, &mut packet);
                packet
            })
            .collect()
    }

    /// The packets of a train are merged into a train that splits into exactly the same packets.
    #[test]
    fn merging_reverses_splitting() {
        let packets = packets();
        let (bytes, written) = merged(&packets);
        assert_eq!(
            written,
            WriteCounts {
                frames: 1,
                packets: 3,
                refused: 0
            }
        );
        let again = Train::parse(&bytes).unwrap();
        assert_eq!(again.segments, 3);
        for (segment, packet) in packets.iter().enumerate() {
            let mut cut = Vec::new();
            again.cut(&bytes, segment, 1, &mut cut);
            assert_eq!(cut, *packet, "segment {segment}");
        }
    }

    /// A train that can be continued waits, but not for long; after PSH it doesn't wait.
    #[test]
    fn a_train_waits_briefly_unless_pushed() {
        let check = |what: &str, change: &dyn Fn(&mut Vec<u8>), waits: bool| {
            let file = memfd_create("waiting", MemfdFlags::CLOEXEC).unwrap();
            let mut merger = Merger::new(LinkEnd::Tap(file.as_raw_fd()));
            let mut written = WriteCounts::default();
            let mut packet = packets().remove(0);
            change(&mut packet);
            merger.push(&packet, 1, &mut written);
            merger.settle(Nanos(1000), &mut written);
            assert_eq!(!merger.is_empty(), waits, "{what}");
            merger.settle(Nanos(999).after(HOLD), &mut written);
            assert_eq!(!merger.is_empty(), waits, "{what}");
            merger.settle(Nanos(1000).after(HOLD), &mut written);
            assert!(merger.is_empty(), "{what}");
            assert_eq!(
                written,
                WriteCounts {
                    frames: 1,
                    packets: 1,
                    refused: 0
                },
                "{what}"
            );
        };
        check("in the middle of a flow", &|_| {}, true);
        check(
            "pushed",
            &|packet| packet[VNET_HEADER_BYTES + 47] |= TCP_PSH,
            false,
        );
        check(
            "the end of the flow",
            &|packet| packet[VNET_HEADER_BYTES + 47] |= 1,
            false,
        );
    }

    /// Packets that are out of order, of another flow, with other options, or modified are not merged.
    #[test]
    fn only_consecutive_unmodified_packets_of_a_flow_are_merged() {
        let check = |what: &str, change: &dyn Fn(&mut Vec<Vec<u8>>), frames: u64| {
            let mut packets = packets();
            change(&mut packets);
            let all: usize = packets.iter().map(Vec::len).sum();
            let (bytes, written) = merged(&packets);
            assert_eq!(written.frames, frames, "{what}");
            assert_eq!(written.packets, packets.len() as u64, "{what}");
            assert_eq!(frames == packets.len() as u64, bytes.len() == all, "{what}");
        };
        let at = |place: usize| VNET_HEADER_BYTES + place;
        check("as they are", &|_| {}, 1);
        check("out of order", &|packets| packets.swap(0, 1), 3);
        check("one missing", &|packets| drop(packets.remove(1)), 2);
        check("twice", &|packets| packets.insert(1, packets[0].clone()), 2);
        check("another port", &|packets| packets[1][at(35)] ^= 1, 3);
        check("another timestamp", &|packets| packets[1][at(61)] ^= 1, 3);
        check(
            "another acknowledgement",
            &|packets| packets[2][at(45)] ^= 1,
            2,
        );
        check("a finished checksum", &|packets| packets[1][0] = 0, 3);
        check(
            "pushed in the middle",
            &|packets| packets[0][at(47)] |= TCP_PSH,
            2,
        );
        check("the end of the flow", &|packets| packets[2][at(47)] |= 1, 2);
    }
}
