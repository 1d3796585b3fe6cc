//! The table of connections. The pipeline looks up each packet's connection here. The one rule: the table's capacity
//! is fixed. A new connection replaces one of a few candidates: one that carried no data or, failing that, the one
//! idle longest.

use std::hash::{BuildHasher, Hash, Hasher};

use brunt_wire::net::{Endpoint, IpAddress};
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::dissect::{Conversation, Flow};
use crate::operation::Transport;
use crate::reassembly::Reassembly;

/// Connections considered for eviction.
const EVICTION_SAMPLE: usize = 16;

/// Identifies a connection regardless of direction: the lower endpoint comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    low: Endpoint,
    high: Endpoint,
    transport: Transport,
}

impl FlowKey {
    /// The key, and the direction of a packet from `source`: 0 if it comes from the lower endpoint.
    #[inline]
    pub fn new(source: Endpoint, destination: Endpoint, transport: Transport) -> (FlowKey, u8) {
        if source <= destination {
            (
                FlowKey {
                    low: source,
                    high: destination,
                    transport,
                },
                0,
            )
        } else {
            (
                FlowKey {
                    low: destination,
                    high: source,
                    transport,
                },
                1,
            )
        }
    }

    /// The connection's transport.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Source and destination of packets in `direction`.
    pub fn ends(&self, direction: u8) -> (Endpoint, Endpoint) {
        if direction == 0 {
            (self.low, self.high)
        } else {
            (self.high, self.low)
        }
    }

    /// A hash that is equal for both directions; it selects a connection's pipeline.
    #[inline]
    pub fn symmetric_hash(&self, state: &RandomState) -> u64 {
        state.hash_one(self)
    }
}

impl Hash for FlowKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let word =
            |address: IpAddress| (address.0 as u64) ^ ((address.0 >> 64) as u64).rotate_left(23);
        let ports = u64::from(self.low.port) << 32
            | u64::from(self.high.port) << 8
            | u64::from(self.transport as u8);
        state.write_u64(word(self.low.address));
        state.write_u64(word(self.high.address));
        state.write_u64(ports);
    }
}

/// Number of entries in the small lookup cache in front of the table: 80 KiB.
const HINTS: usize = 1 << 10;

/// A cache entry: the connection of two endpoints, found without ordering them and without a strong hash.
#[derive(Clone, Copy, Debug)]
struct Hint {
    source: Endpoint,
    destination: Endpoint,
    index: u32,
    direction: u8,
}

impl Hint {
    /// An entry that matches no connection.
    const NONE: Hint = Hint {
        source: Endpoint {
            address: IpAddress(0),
            port: 0,
        },
        destination: Endpoint {
            address: IpAddress(0),
            port: 0,
        },
        index: u32::MAX,
        direction: 0,
    };

    #[inline(always)]
    fn place(source: Endpoint, destination: Endpoint) -> usize {
        let ports = u64::from(source.port) << 16 | u64::from(destination.port);
        let addresses = source.address.0 as u64 ^ (destination.address.0 as u64).rotate_left(32);
        // Multiplying by the golden ratio spreads the bits into the upper ones.
        ((addresses ^ ports << 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HINTS.ilog2()))
            as usize
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The connection's two endpoints.
    pub key: FlowKey,
    /// The connection's two directions, first from the lower endpoint, then to it. The connection number in them is
    /// not reused within a pipeline (until 2^31 connections have been seen).
    pub flows: [Flow; 2],
    /// When the connection's last packet was seen.
    pub last_ns: u64,
    /// Whether the connection carried anything but handshakes.
    pub carried_data: bool,
    /// Reassembly of each direction, first from the lower endpoint, then to it.
    pub streams: [Reassembly; 2],
    /// The connection's protocol and its state.
    pub conversation: Conversation,
}

/// All connections.
#[derive(Debug)]
pub struct FlowTable {
    table: HashTable<u32>,
    hasher: RandomState,
    connections: Vec<Connection>,
    max: usize,
    hand: usize,
    next_number: u32,
    hints: Box<[Hint]>,
}

/// The result of [`FlowTable::find`].
pub enum FlowLookup {
    /// The connection was in the table.
    Old(usize),
    /// The connection is new, and there was room.
    New(usize),
    /// The connection is new and replaced this one, which the caller has to finish.
    Evicted(usize, Box<Connection>),
}

impl FlowTable {
    /// A table of at most `max` connections.
    pub fn new(max: usize) -> FlowTable {
        FlowTable {
            table: HashTable::new(),
            hasher: RandomState::default(),
            connections: Vec::new(),
            max: max.max(1),
            hand: 0,
            next_number: 0,
            hints: vec![Hint::NONE; HINTS].into(),
        }
    }

    /// The index of a TCP connection that was looked up with [`FlowTable::find_tcp`] before, if it is still cached,
    /// and the direction from `source` to `destination`.
    #[inline(always)]
    pub fn known_tcp(&self, source: Endpoint, destination: Endpoint) -> Option<(usize, u8)> {
        let hint = &self.hints[Hint::place(source, destination)];
        (hint.source == source && hint.destination == destination && hint.index != u32::MAX)
            .then_some((hint.index as usize, hint.direction))
    }

    /// Looks up a TCP connection and creates it if missing; also returns the direction from `source` to
    /// `destination`.
    pub fn find_tcp(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        now_ns: u64,
    ) -> (FlowLookup, u8) {
        let (key, direction) = FlowKey::new(source, destination, Transport::Tcp);
        let found = self.find(key, now_ns);
        let index = match &found {
            FlowLookup::Old(index) | FlowLookup::New(index) | FlowLookup::Evicted(index, _) => {
                *index as u32
            }
        };
        self.hints[Hint::place(source, destination)] = Hint {
            source,
            destination,
            index,
            direction,
        };
        (found, direction)
    }

    /// Looks up a connection; creates it if missing.
    pub fn find(&mut self, key: FlowKey, now_ns: u64) -> FlowLookup {
        let hash = self.hasher.hash_one(key);
        if let Some(&index) = self
            .table
            .find(hash, |&i| self.connections[i as usize].key == key)
        {
            return FlowLookup::Old(index as usize);
        }
        self.insert(key, hash, now_ns)
    }

    #[cold]
    fn insert(&mut self, key: FlowKey, hash: u64, now_ns: u64) -> FlowLookup {
        let connection = Connection {
            key,
            flows: [0, 1].map(|direction| {
                let (source, destination) = key.ends(direction);
                Flow::new(
                    source,
                    destination,
                    key.transport,
                    self.next_number,
                    direction,
                )
            }),
            last_ns: now_ns,
            carried_data: false,
            streams: Default::default(),
            conversation: Conversation::default(),
        };
        self.next_number = self.next_number.wrapping_add(1) & 0x7fff_ffff;
        let (index, evicted) = if self.connections.len() < self.max {
            self.connections.push(connection);
            (self.connections.len() - 1, None)
        } else {
            let index = self.victim();
            let old = std::mem::replace(&mut self.connections[index], connection);
            let old_hash = self.hasher.hash_one(old.key);
            if let Ok(entry) = self.table.find_entry(old_hash, |&i| i as usize == index) {
                entry.remove();
            }
            let (low, high) = (old.key.low, old.key.high);
            for (source, destination) in [(low, high), (high, low)] {
                let hint = &mut self.hints[Hint::place(source, destination)];
                if hint.index as usize == index {
                    *hint = Hint::NONE;
                }
            }
            (index, Some(old))
        };
        let (connections, hasher) = (&self.connections, &self.hasher);
        self.table.insert_unique(hash, index as u32, |&i| {
            hasher.hash_one(connections[i as usize].key)
        });
        match evicted {
            None => FlowLookup::New(index),
            Some(old) => FlowLookup::Evicted(index, Box::new(old)),
        }
    }

    fn victim(&mut self) -> usize {
        let count = self.connections.len();
        let sample = (0..EVICTION_SAMPLE.min(count)).map(|i| (self.hand + i) % count);
        let victim = sample.min_by_key(|&i| {
            (
                self.connections[i].carried_data,
                self.connections[i].last_ns,
            )
        });
        self.hand = (self.hand + EVICTION_SAMPLE) % count;
        victim.expect("the table is not empty")
    }

    /// The connection at an index.
    #[inline]
    pub fn at(&mut self, index: usize) -> &mut Connection {
        &mut self.connections[index]
    }

    /// All connections.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut()
    }

    /// Gives a connection a new number, because its ports have been reused.
    pub fn renumber(&mut self, index: usize) {
        self.connections[index]
            .flows
            .iter_mut()
            .for_each(|flow| flow.connection = self.next_number);
        self.next_number = self.next_number.wrapping_add(1) & 0x7fff_ffff;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> (FlowKey, u8) {
        let end = |last, port| Endpoint {
            address: IpAddress::v4([10, 0, 0, last]),
            port,
        };
        FlowKey::new(end(2, port), end(1, 2049), Transport::Tcp)
    }

    /// Both directions find the same connection; a full table keeps connections that carried data.
    #[test]
    fn both_directions_share_a_connection_and_a_full_table_keeps_data() {
        let mut flows = FlowTable::new(4);
        let FlowLookup::New(first) = flows.find(key(1).0, 0) else {
            panic!()
        };
        flows.at(first).carried_data = true;
        assert!(matches!(flows.find(key(1).0, 1), FlowLookup::Old(i) if i == first));
        let (low_high, direction) = key(1);
        assert_eq!(direction, 1);
        assert_eq!(low_high.ends(1).1.port, 2049);
        for port in 2..1000 {
            match flows.find(key(port).0, u64::from(port)) {
                FlowLookup::New(_) => assert!(port <= 4),
                FlowLookup::Evicted(_, old) => assert!(!old.carried_data),
                FlowLookup::Old(_) => panic!("{port}"),
            }
        }
        assert!(matches!(flows.find(key(1).0, 2000), FlowLookup::Old(i) if i == first));
    }

    /// Cached lookups agree with the table, and no cache entry outlives its connection.
    #[test]
    fn cached_lookups_agree_with_the_table() {
        let mut flows = FlowTable::new(64);
        for round in 0..20_000u64 {
            // The table has room for 64 connections, and there are 100.
            let client = Endpoint {
                address: IpAddress::v4([10, 0, 0, 2]),
                port: (round * 37 % 100) as u16,
            };
            let server = Endpoint {
                address: IpAddress::v4([10, 0, 0, 1]),
                port: 2049,
            };
            let ends = if round % 3 == 0 {
                (server, client)
            } else {
                (client, server)
            };
            let known = flows.known_tcp(ends.0, ends.1);
            let (found, direction) = flows.find_tcp(ends.0, ends.1, round);
            if let Some(known) = known {
                assert!(matches!(found, FlowLookup::Old(index) if (index, direction) == known));
            }
            let known = flows.known_tcp(ends.0, ends.1).unwrap();
            assert_eq!(flows.at(known.0).key.ends(known.1), ends);
        }
    }
}
