//! Carries packets from a reader to the parsers, as references into shared memory. All parcels are allocated when a
//! capture starts. When its last user drops it, a parcel returns to its pool, and ring blocks are given back to the
//! kernel. The one rule: no packet's bytes are copied on the way.

use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use brunt_wire::net::{
    Endpoint, Fragment, FragmentKey, Frame, IpPacket, IpPayload, Payload, TUNNELS_MAX,
    TunnelPayload, open_frame, open_ip, open_udp, parse_frame, parse_transport,
};
use brunt_wire::pcap::CapturedPacket;
use foldhash::fast::RandomState;

use crate::clock::{OutOfOrder, TimeOrder};
use crate::flow::FlowKey;
use crate::live::LiveBlock;
use crate::operation::Transport;
use crate::source::PacketRef;

/// Memory that contains packets.
#[derive(Debug)]
pub enum PacketMemory {
    /// A chunk of a file.
    Chunk(Vec<u8>),
    /// Memory of live packets; given back to the kernel when its last user drops it.
    Live(Arc<LiveBlock>),
}

impl PacketMemory {
    #[inline]
    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        match self {
            PacketMemory::Chunk(bytes) => &bytes[at..][..len],
            PacketMemory::Live(block) => block.bytes(at, len),
        }
    }
}

#[derive(Debug, Default)]
struct Parts {
    regions: Vec<PacketMemory>,
    /// One list per parser, in capture order.
    lists: Vec<Vec<PacketRef>>,
    /// For each list, how many of its packets are out of order in the whole capture.
    out_of_order: Vec<OutOfOrder>,
}

/// Packets for all parsers, with the memory that contains them.
#[derive(Debug)]
pub struct Parcel {
    parts: Parts,
    home: SyncSender<Parts>,
}

impl Parcel {
    /// The packets for parser `index`.
    #[inline]
    pub fn packets(&self, index: usize) -> impl Iterator<Item = CapturedPacket<'_>> {
        self.parts.lists[index]
            .iter()
            .map(|packet| self.packet(packet))
    }

    #[inline]
    fn packet(&self, p: &PacketRef) -> CapturedPacket<'_> {
        CapturedPacket {
            time_ns: p.time_ns,
            wire_len: p.wire_len,
            interface: p.interface,
            link: p.link,
            bytes: self.parts.regions[usize::from(p.region)].bytes(p.at as usize, p.len as usize),
        }
    }

    /// All packets, merged by time; those of one parser stay in capture order even if their times are out of order.
    pub fn in_order(&self) -> impl Iterator<Item = CapturedPacket<'_>> {
        let mut lists: Vec<_> = self
            .parts
            .lists
            .iter()
            .map(|list| list.iter().peekable())
            .collect();
        std::iter::from_fn(move || {
            let heads = lists.iter_mut().enumerate();
            let (_, index) = heads
                .filter_map(|(index, list)| Some((list.peek()?.time_ns, index)))
                .min()?;
            lists[index].next().map(|packet| self.packet(packet))
        })
    }

    /// Total number of packets.
    pub fn total(&self) -> usize {
        self.parts.lists.iter().map(Vec::len).sum()
    }

    /// How many of parser `index`'s packets are out of order in the whole capture.
    pub fn out_of_order(&self, index: usize) -> OutOfOrder {
        self.parts.out_of_order[index]
    }

    /// Number of packets for parser `index`.
    pub fn count(&self, index: usize) -> usize {
        self.parts.lists[index].len()
    }

    /// Adds memory; packets refer to it by the returned index.
    pub fn add_region(&mut self, region: PacketMemory) -> u16 {
        self.parts.regions.push(region);
        (self.parts.regions.len() - 1) as u16
    }

    /// The file chunk that this parcel owns, for a reader to fill.
    pub fn chunk(&mut self) -> Option<&mut Vec<u8>> {
        self.parts
            .regions
            .iter_mut()
            .find_map(|region| match region {
                PacketMemory::Chunk(bytes) => Some(bytes),
                PacketMemory::Live(_) => None,
            })
    }

    /// Adds a packet from ring `ring` (0 for a file) to the list of the parser that its connection belongs to.
    #[inline]
    pub fn route(&mut self, router: &mut Router, packet: PacketRef, ring: usize) {
        let Parts {
            regions,
            lists,
            out_of_order,
        } = &mut self.parts;
        let index = match (lists.len(), router.rings) {
            (1, _) => 0,
            (count, Some(rings)) => ring % rings.get() % count,
            (count, None) => {
                let region = &regions[usize::from(packet.region)];
                let bytes = region.bytes(packet.at as usize, packet.len as usize);
                router.index(&packet, bytes, count)
            }
        };
        let found = router.order.on_packet(packet.time_ns, packet.interface);
        out_of_order[index].add(found);
        lists[index].push(packet);
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        parts
            .regions
            .retain(|region| matches!(region, PacketMemory::Chunk(_)));
        parts.lists.iter_mut().for_each(Vec::clear);
        parts.out_of_order.fill(OutOfOrder::default());
        match self.home.try_send(parts) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => unreachable!("more parcels were returned than created"),
        }
    }
}

/// All existing parcels.
#[derive(Debug)]
pub struct Pool {
    back: SyncSender<Parts>,
    free: Receiver<Parts>,
    count: usize,
}

impl Pool {
    /// `count` parcels for `parsers` parsers, each with a chunk of `chunk_bytes` unless that is zero.
    pub fn new(count: usize, parsers: usize, chunk_bytes: usize) -> Pool {
        let (back, free) = sync_channel(count);
        for _ in 0..count {
            let regions = match chunk_bytes {
                0 => Vec::new(),
                bytes => vec![PacketMemory::Chunk(vec![0; bytes])],
            };
            let parts = Parts {
                regions,
                lists: vec![Vec::new(); parsers],
                out_of_order: vec![OutOfOrder::default(); parsers],
            };
            back.send(parts)
                .expect("the channel has room for all parcels");
        }
        Pool { back, free, count }
    }

    /// Number of parcels.
    pub fn count(&self) -> usize {
        self.count
    }

    /// An empty parcel; waits while all are in use.
    pub fn take(&self) -> Parcel {
        let parts = self.free.recv().expect("the pool itself holds a sender");
        Parcel {
            parts,
            home: self.back.clone(),
        }
    }

    /// An empty parcel, if one is returned in time.
    pub fn take_within(&self, time: Duration) -> Option<Parcel> {
        let parts = self.free.recv_timeout(time).ok()?;
        Some(Parcel {
            parts,
            home: self.back.clone(),
        })
    }

    /// Waits until all parcels have been returned; `false` if that takes longer than `time` for any of them.
    pub fn wait_for_all(&self, time: Duration) -> bool {
        let parcels: Vec<Parcel> = (0..self.count)
            .map_while(|_| self.take_within(time))
            .collect();
        parcels.len() == self.count
    }
}

/// Maximum fragmented tunnel packets remembered, whose first fragment was seen and whose other fragments may follow.
const FRAGMENTED_MAX: usize = 256;

/// Chooses the parser for a packet: both directions of a connection go to the same parser, inside any tunnels.
#[derive(Clone, Debug)]
pub struct Router {
    hasher: RandomState,
    /// The number of rings per interface, if each ring has a parser.
    rings: Option<NonZeroUsize>,
    order: TimeOrder,
    /// The parser that got the first fragment of a tunnel packet; indexed by a hash of the packet's key.
    fragmented: Box<[Option<(FragmentKey, u16)>]>,
}

impl Default for Router {
    fn default() -> Router {
        Router {
            hasher: RandomState::default(),
            rings: None,
            order: TimeOrder::default(),
            fragmented: vec![None; FRAGMENTED_MAX].into(),
        }
    }
}

impl Router {
    /// Gives parser `i` the packets of the `i`-th of `rings` rings of every interface, without looking into them.
    /// This works because the kernel distributes connections among the rings in the same way on all interfaces, with
    /// both directions of a connection in the same ring.
    pub fn by_ring(&mut self, rings: NonZeroUsize) {
        self.rings = Some(rings);
    }

    #[inline]
    fn index(&mut self, packet: &PacketRef, bytes: &[u8], count: usize) -> usize {
        match parse_frame(packet.link, bytes, packet.wire_len) {
            Ok(Frame::Ip(ip)) => self.of_ip(&ip, 0, count),
            Ok(Frame::Other { next, payload }) => match open_frame(next, payload) {
                Ok(Some(inner)) => self.of_inner(&inner, 0, count).unwrap_or(0),
                _ => 0,
            },
            Err(_) => 0,
        }
    }

    /// The parser for an IP packet inside `depth` tunnels.
    #[inline]
    fn of_ip(&mut self, ip: &IpPacket<'_>, depth: usize, count: usize) -> usize {
        // Only the first fragment has ports, and mainly UDP packets are fragmented. So UDP packets and fragments are
        // routed by addresses alone, and fragments reach the same parser as unfragmented datagrams.
        let ports = match (&ip.fragment, parse_transport(ip.protocol, ip.payload)) {
            (None, Ok(IpPayload::Tcp(tcp))) => [tcp.source_port, tcp.destination_port],
            (None, Ok(IpPayload::Udp(udp))) => match open_udp(udp.destination_port, udp.payload) {
                Some(inner) => return self.of_inner(&inner, depth, count).unwrap_or(0),
                None => [0, 0],
            },
            (None, Ok(IpPayload::Other(protocol))) => match open_ip(protocol, ip.payload) {
                Ok(Some(inner)) => return self.of_inner(&inner, depth, count).unwrap_or(0),
                _ => [0, 0],
            },
            (Some(fragment), _) => match self.of_fragment(ip, *fragment, depth, count) {
                Some(index) => return index,
                None => [0, 0],
            },
            _ => [0, 0],
        };
        let source = Endpoint {
            address: ip.source,
            port: ports[0],
        };
        let destination = Endpoint {
            address: ip.destination,
            port: ports[1],
        };
        let (key, _) = FlowKey::new(source, destination, Transport::Tcp);
        // Scales the upper half of the hash to the number of parsers.
        let hash = key.symmetric_hash(&self.hasher);
        (((hash >> 32) * count as u64) >> 32) as usize
    }

    /// The parser for the contents of a tunnel, if they are IP.
    #[cold]
    fn of_inner(&mut self, inner: &TunnelPayload<'_>, depth: usize, count: usize) -> Option<usize> {
        if depth >= TUNNELS_MAX {
            return None;
        }
        match inner.parse().ok()? {
            Frame::Ip(ip) => Some(self.of_ip(&ip, depth + 1, count)),
            Frame::Other { next, payload } => {
                self.of_inner(&open_frame(next, payload).ok()??, depth + 1, count)
            }
        }
    }

    /// The parser for a fragment of a tunnel packet, determined by the first fragment.
    #[cold]
    fn of_fragment(
        &mut self,
        ip: &IpPacket<'_>,
        fragment: Fragment,
        depth: usize,
        count: usize,
    ) -> Option<usize> {
        let key = FragmentKey {
            source: ip.source,
            destination: ip.destination,
            identification: fragment.identification,
            protocol: ip.protocol,
        };
        let place = (self.hasher.hash_one(key) % FRAGMENTED_MAX as u64) as usize;
        if fragment.offset > 0 {
            let (known, index) = self.fragmented[place]?;
            return (known == key).then_some(usize::from(index));
        }
        // The headers in the first fragment contain lengths of the whole packet.
        let payload = Payload {
            bytes: ip.payload.bytes,
            wire_len: usize::from(u16::MAX),
        };
        let inner = match parse_transport(ip.protocol, payload).ok()? {
            IpPayload::Udp(udp) => open_udp(udp.destination_port, udp.payload)?,
            IpPayload::Other(protocol) => open_ip(protocol, payload).ok()??,
            IpPayload::Tcp(_) => return None,
        };
        let index = self.of_inner(&inner, depth, count)?;
        self.fragmented[place] = Some((key, index as u16));
        Some(index)
    }
}
