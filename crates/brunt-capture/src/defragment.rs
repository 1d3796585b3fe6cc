//! Reassembles fragmented IP packets. Called by the pipeline. The one rule: a packet with overlapping or
//! contradictory fragments is dropped (RFC 5722), and so is the oldest packet when there is no room for another.

use brunt_wire::net::{Fragment, FragmentKey, Payload};

/// Maximum number of incomplete packets.
const PACKETS_MAX: usize = 256;
/// Maximum payload of an IP packet.
const PACKET_BYTES_MAX: u32 = 65_535;
/// Maximum fragments per packet: enough for 65,535 bytes in the smallest fragments used in practice.
const FRAGMENTS_MAX: usize = 128;
/// Maximum time that fragments are kept (upper bound in RFC 791).
const WAIT_NS_MAX: u64 = 15_000_000_000;

#[derive(Debug)]
struct Partial {
    key: FragmentKey,
    since_ns: u64,
    bytes: Vec<u8>,
    /// Received ranges (from, to), in order of arrival.
    ranges: Vec<(u32, u32)>,
    total: Option<u32>,
}

/// Packets that wait for further fragments.
#[derive(Debug, Default)]
pub struct Defragmenter {
    partial: Vec<Partial>,
    spare: Vec<u8>,
}

/// The result of adding a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Defragmented {
    /// More fragments are needed. The number of older packets dropped because they waited too long, or to make room.
    Waiting(u64),
    /// The payload is complete.
    Whole(Vec<u8>),
    /// The packet was dropped.
    Lost,
}

impl Defragmenter {
    /// Adds a fragment.
    pub fn add(
        &mut self,
        key: FragmentKey,
        fragment: Fragment,
        payload: Payload<'_>,
        now_ns: u64,
    ) -> Defragmented {
        let mut dropped = self.partial.len() as u64;
        self.partial
            .retain(|p| now_ns.saturating_sub(p.since_ns) <= WAIT_NS_MAX);
        dropped -= self.partial.len() as u64;
        let from = fragment.offset;
        let to = from.saturating_add(payload.wire_len as u32);
        let index = match self.partial.iter().position(|p| p.key == key) {
            Some(index) => index,
            None => {
                if self.partial.len() >= PACKETS_MAX {
                    self.partial.remove(0);
                    dropped += 1;
                }
                let bytes = std::mem::take(&mut self.spare);
                self.partial.push(Partial {
                    key,
                    since_ns: now_ns,
                    bytes,
                    ranges: Vec::new(),
                    total: None,
                });
                self.partial.len() - 1
            }
        };
        let packet = &mut self.partial[index];
        if packet.ranges.contains(&(from, to)) {
            // A duplicate of an earlier fragment.
            return Defragmented::Waiting(dropped);
        }
        let overlaps = packet.ranges.iter().any(|&(f, t)| from < t && f < to);
        let cut = payload.bytes.len() < payload.wire_len;
        let end_moves = !fragment.more && packet.total.is_some_and(|total| total != to);
        let beyond_end = packet.total.is_some_and(|total| to > total);
        if overlaps
            || cut
            || end_moves
            || beyond_end
            || to > PACKET_BYTES_MAX
            || packet.ranges.len() >= FRAGMENTS_MAX
        {
            self.partial.remove(index);
            return Defragmented::Lost;
        }
        if !fragment.more {
            packet.total = Some(to);
        }
        if packet.bytes.len() < to as usize {
            packet.bytes.resize(to as usize, 0);
        }
        packet.bytes[from as usize..to as usize].copy_from_slice(payload.bytes);
        packet.ranges.push((from, to));
        let have: u32 = packet.ranges.iter().map(|(f, t)| t - f).sum();
        if packet.total == Some(have) && packet.bytes.len() == have as usize {
            return Defragmented::Whole(self.partial.remove(index).bytes);
        }
        Defragmented::Waiting(dropped)
    }

    /// Takes a buffer back for reuse.
    pub fn reuse(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare = bytes;
    }

    /// Number of incomplete packets.
    pub fn waiting(&self) -> usize {
        self.partial.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identification: u32) -> FragmentKey {
        FragmentKey {
            source: Default::default(),
            destination: Default::default(),
            identification,
            protocol: 17,
        }
    }

    fn add(d: &mut Defragmenter, id: u32, offset: u32, more: bool, text: &str) -> Defragmented {
        let fragment = Fragment {
            identification: id,
            offset,
            more,
        };
        d.add(
            key(id),
            fragment,
            Payload {
                bytes: text.as_bytes(),
                wire_len: text.len(),
            },
            0,
        )
    }

    /// Fragments in any order yield the packet; duplicates are harmless; an overlap drops the packet.
    #[test]
    fn fragments_in_any_order_give_the_packet_and_overlaps_drop_it() {
        let mut d = Defragmenter::default();
        assert_eq!(
            add(&mut d, 1, 8, true, "ijklmnop"),
            Defragmented::Waiting(0)
        );
        assert_eq!(add(&mut d, 1, 16, false, "q"), Defragmented::Waiting(0));
        assert_eq!(add(&mut d, 1, 16, false, "q"), Defragmented::Waiting(0));
        assert_eq!(
            add(&mut d, 1, 0, true, "abcdefgh"),
            Defragmented::Whole(b"abcdefghijklmnopq".to_vec())
        );
        assert_eq!(
            add(&mut d, 2, 0, true, "abcdefgh"),
            Defragmented::Waiting(0)
        );
        assert_eq!(add(&mut d, 2, 4, true, "xxxxxxxx"), Defragmented::Lost);
        assert_eq!(d.waiting(), 0);
    }

    /// A flood of first fragments doesn't exceed the limit.
    #[test]
    fn a_flood_of_first_fragments_stays_within_the_bound() {
        let mut d = Defragmenter::default();
        for id in 0..10_000 {
            add(&mut d, id, 0, true, "abcdefgh");
        }
        assert_eq!(d.waiting(), PACKETS_MAX);
    }
}
