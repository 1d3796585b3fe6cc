//! Merges the packets of several rings into one sequence. A tap delivers the two directions of a link on two
//! interfaces: a reply must not be processed before its call just because its ring was read first. The one rule: a
//! packet is passed on only when no other ring can still deliver an older packet.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ring::{LiveBlock, ReadBlock};
use crate::parcel::{PacketMemory, Parcel, Router};
use crate::source::PacketRef;

/// Blocks of one ring, oldest first.
#[derive(Debug, Default)]
struct Queue {
    blocks: VecDeque<(Arc<LiveBlock>, VecDeque<PacketRef>)>,
    /// No packet older than this will arrive.
    complete_ns: u64,
}

/// The unprocessed blocks of all rings.
#[derive(Debug)]
pub struct Merge {
    queues: Vec<Queue>,
}

impl Merge {
    /// A merge of `rings` rings.
    pub fn new(rings: usize) -> Merge {
        Merge {
            queues: (0..rings).map(|_| Queue::default()).collect(),
        }
    }

    /// Adds a block from ring `ring`.
    pub fn push(&mut self, ring: usize, read: ReadBlock) {
        let queue = &mut self.queues[ring];
        if let Some(last) = read.packets.last() {
            queue.complete_ns = queue.complete_ns.max(last.time_ns);
            queue
                .blocks
                .push_back((Arc::new(read.block), read.packets.into()));
        }
    }

    /// Records that ring `ring` was found empty, at a time when all packets up to `time_ns` would have been in it.
    pub fn quiet_until(&mut self, ring: usize, time_ns: u64) {
        let queue = &mut self.queues[ring];
        queue.complete_ns = queue.complete_ns.max(time_ns);
    }

    /// Time up to which all rings are complete, in nanoseconds since 1970: no older packet will follow.
    pub fn complete_ns(&self) -> u64 {
        let queues = self.queues.iter().map(|queue| queue.complete_ns);
        queues.min().unwrap_or(0)
    }

    /// Moves all packets that can safely be passed on into a parcel, oldest first. Returns the time of the last
    /// packet moved.
    pub fn drain(&mut self, parcel: &mut Parcel, router: &mut Router) -> Option<u64> {
        let until = self.queues.iter().map(|queue| queue.complete_ns).min()?;
        let mut regions: Vec<Option<u16>> = vec![None; self.queues.len()];
        let mut last = None;
        loop {
            let heads = self.queues.iter().enumerate().filter_map(|(index, queue)| {
                let first = queue.blocks.front()?.1.front()?;
                Some((first.time_ns, index))
            });
            let Some((time_ns, index)) = heads.min().filter(|(time_ns, _)| *time_ns <= until)
            else {
                return last;
            };
            let (block, packets) = self.queues[index]
                .blocks
                .front_mut()
                .expect("a chosen ring has a packet");
            let region = *regions[index]
                .get_or_insert_with(|| parcel.add_region(PacketMemory::Live(block.clone())));
            let mut packet = packets.pop_front().expect("a chosen ring has a packet");
            packet.region = region;
            parcel.route(router, packet, index);
            last = Some(time_ns);
            if packets.is_empty() {
                self.queues[index].blocks.pop_front();
                regions[index] = None;
            }
        }
    }
}
