//! Frames in, operations out: the stages in a row, for the connections that belong to this
//! pipeline. Driven with batches by one thread or one actor. The one rule: no packet's payload
//! is copied on the way unless it has to wait for others.

use brunt_wire::net::{
    Endpoint, FragmentKey, Frame, IpPacket, PROTOCOL_TCP, Payload, PlainTcp, Tcp, Transport, Udp,
    parse_frame, parse_plain_tcp, parse_transport,
};
use brunt_wire::pcap::CapturedPacket;

use crate::calls::{Context, Matcher, MessageEnd};
use crate::defragment::{Defragmenter, Outcome};
use crate::flow::{Connection, FlowKey, Flows, Found};
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::operation::{Packet, Peers, Place, Protocol, Sink};
use crate::reassembly::{Piece, Stream};
use crate::records::{Records, Shared};
use crate::source::Batch;

/// What a pipeline may use. The defaults stay below 200 MB under any traffic.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are followed at a time.
    pub connections: usize,
    /// Calls that wait for their replies.
    pub calls_waiting: usize,
    /// How long they wait, in nanoseconds of the capture's time.
    pub call_timeout_ns: u64,
    /// Bytes kept of what is incomplete: segments out of order, heads of messages.
    pub kept_bytes: usize,
    /// The first record's number and the distance to the next: pipelines that work side by side give
    /// out different ones.
    pub record_ids: (u64, u64),
}

impl Limits {
    /// What pipeline `index` of `count` may use, so that all together keep to these limits.
    pub fn share(&self, index: usize, count: usize) -> Limits {
        let (first, step) = self.record_ids;
        Limits {
            connections: self.connections.div_ceil(count),
            calls_waiting: self.calls_waiting.div_ceil(count),
            kept_bytes: self.kept_bytes / count,
            record_ids: (first + index as u64 * step, step * count as u64),
            ..*self
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16 << 10,
            calls_waiting: 64 << 10,
            call_timeout_ns: 60_000_000_000,
            kept_bytes: 48 << 20,
            record_ids: (0, 1),
        }
    }
}

/// The stages and what they share.
#[derive(Debug)]
pub struct Pipeline<S> {
    flows: Flows,
    defragmenter: Defragmenter,
    stages: Stages<S>,
    now_ns: u64,
}

#[derive(Debug)]
struct Stages<S> {
    matcher: Matcher<S>,
    ledger: Ledger,
    memory: Memory,
}

/// What an IP packet carried, for [`Packet`].
#[derive(Clone, Copy, Default)]
struct Carried {
    ports: [u16; 2],
    tcp: Option<(u32, u8)>,
    payload_len: Option<u32>,
    in_rpc: bool,
}

struct DirectionStream<'a, S> {
    records: &'a mut Records,
    matcher: &'a mut Matcher<S>,
    context: Context,
}

impl<S: Sink> Stream for DirectionStream<'_, S> {
    #[inline]
    fn piece(&mut self, piece: Piece<'_>, time_ns: u64, ledger: &mut Ledger, memory: &mut Memory) {
        let mut shared = Shared { matcher: self.matcher, context: &self.context, ledger, memory };
        self.records.on_piece(piece, time_ns, &mut shared);
    }
}

impl<S: Sink> Pipeline<S> {
    /// A pipeline that hands operations to `sink`.
    pub fn new(sink: S, limits: Limits) -> Pipeline<S> {
        Pipeline {
            flows: Flows::new(limits.connections),
            defragmenter: Defragmenter::default(),
            stages: Stages {
                matcher: Matcher::new(sink, limits.calls_waiting, limits.call_timeout_ns, limits.record_ids),
                ledger: Ledger::default(),
                memory: Memory::new(limits.kept_bytes),
            },
            now_ns: 0,
        }
    }

    /// The counters so far.
    pub fn ledger(&self) -> &Ledger {
        &self.stages.ledger
    }

    /// Bytes kept of what is incomplete now; never above [`Limits::kept_bytes`].
    pub fn kept_bytes(&self) -> usize {
        self.stages.memory.used()
    }

    /// Who takes the operations.
    pub fn sink(&self) -> &S {
        &self.stages.matcher.sink
    }

    /// Works on a batch.
    pub fn on_batch(&mut self, batch: &Batch) {
        self.on_packets(batch.packets());
    }

    /// Works on packets that were captured together.
    pub fn on_packets<'p>(&mut self, packets: impl Iterator<Item = CapturedPacket<'p>>) {
        for packet in packets {
            self.on_packet(&packet);
        }
        let stages = &mut self.stages;
        stages.matcher.expire(self.now_ns, &mut stages.ledger);
        stages.matcher.sink.on_batch_end(self.now_ns, &stages.ledger);
    }

    /// The capture is over: gives up what waits; hands back the sink and the counters.
    pub fn finish(mut self) -> (S, Ledger) {
        for connection in self.flows.iter_mut() {
            self.stages.finish_connection(connection);
        }
        let stages = &mut self.stages;
        stages.ledger.fragmented_packets_lost += self.defragmenter.waiting() as u64;
        stages.matcher.finish(&mut stages.ledger);
        stages.matcher.sink.on_batch_end(self.now_ns, &stages.ledger);
        (self.stages.matcher.sink, self.stages.ledger)
    }

    /// Works on one packet.
    #[inline]
    pub fn on_packet(&mut self, packet: &CapturedPacket<'_>) {
        self.now_ns = self.now_ns.max(packet.time_ns);
        let ledger = &mut self.stages.ledger;
        ledger.packets += 1;
        ledger.wire_bytes += u64::from(packet.wire_len);
        ledger.packets_cut += u64::from((packet.bytes.len() as u32) < packet.wire_len);
        self.stages.matcher.sink.on_packet(packet.time_ns, packet.wire_len);
        match parse_plain_tcp(packet.link, packet.bytes) {
            Some(plain) => self.on_plain_tcp(packet, &plain),
            None => self.on_other_packet(packet),
        }
    }

    /// Works on what almost all packets are.
    #[inline(always)]
    fn on_plain_tcp(&mut self, packet: &CapturedPacket<'_>, plain: &PlainTcp<'_>) {
        let tcp = &plain.tcp;
        let source = Endpoint { address: plain.source, port: tcp.source_port };
        let destination = Endpoint { address: plain.destination, port: tcp.destination_port };
        let in_rpc = self.on_tcp(source, destination, tcp, packet.time_ns);
        if S::PACKETS {
            self.stages.matcher.sink.on_packet_parsed(&Packet {
                time_ns: packet.time_ns,
                interface: packet.interface,
                wire_len: packet.wire_len,
                missing: packet.wire_len.saturating_sub(packet.bytes.len() as u32),
                macs: Some(*plain.macs),
                vlan: None,
                ends: Some((source, destination, PROTOCOL_TCP)),
                is_fragment: false,
                tcp: Some((tcp.seq, tcp.flags.0)),
                payload_len: Some(tcp.payload.wire_len as u32),
                in_rpc,
            });
        }
    }

    #[cold]
    fn on_other_packet(&mut self, packet: &CapturedPacket<'_>) {
        let frame = parse_frame(packet.link, packet.bytes, packet.wire_len);
        let mut carried = Carried::default();
        let ledger = &mut self.stages.ledger;
        match &frame {
            Ok(Frame::Ip(ip)) if ip.fragment.is_none() => {
                carried = self.on_transport(ip, ip.payload, packet.time_ns);
            }
            Ok(Frame::Ip(ip)) => self.on_fragment(ip, packet.time_ns),
            Ok(Frame::Other(_)) => ledger.packets_not_ip += 1,
            Err(_) => ledger.packets_unreadable += 1,
        }
        if S::PACKETS {
            let ip = match &frame {
                Ok(Frame::Ip(ip)) => Some(ip),
                _ => None,
            };
            let end = |address, port| Endpoint { address, port };
            let [source_port, destination_port] = carried.ports;
            self.stages.matcher.sink.on_packet_parsed(&Packet {
                time_ns: packet.time_ns,
                interface: packet.interface,
                wire_len: packet.wire_len,
                missing: packet.wire_len.saturating_sub(packet.bytes.len() as u32),
                macs: ip.and_then(|ip| ip.macs.copied()),
                vlan: ip.and_then(|ip| ip.vlan),
                ends: ip.map(|ip| {
                    (end(ip.source, source_port), end(ip.destination, destination_port), ip.protocol)
                }),
                is_fragment: ip.is_some_and(|ip| ip.fragment.is_some()),
                tcp: carried.tcp,
                payload_len: carried.payload_len,
                in_rpc: carried.in_rpc,
            });
        }
    }

    #[cold]
    fn on_fragment(&mut self, ip: &IpPacket<'_>, time_ns: u64) {
        let ledger = &mut self.stages.ledger;
        ledger.fragments += 1;
        let Some(fragment) = ip.fragment else { return };
        let key = FragmentKey {
            source: ip.source,
            destination: ip.destination,
            identification: fragment.identification,
            protocol: ip.protocol,
        };
        match self.defragmenter.add(key, fragment, ip.payload, time_ns) {
            Outcome::Waiting(dropped) => ledger.fragmented_packets_lost += dropped,
            Outcome::Lost => ledger.fragmented_packets_lost += 1,
            Outcome::Whole(bytes) => {
                let payload = Payload { bytes: &bytes, wire_len: bytes.len() };
                let _ = self.on_transport(ip, payload, time_ns);
                self.defragmenter.reuse(bytes);
            }
        }
    }

    #[inline]
    fn on_transport(&mut self, ip: &IpPacket<'_>, payload: Payload<'_>, time_ns: u64) -> Carried {
        match parse_transport(ip.protocol, payload) {
            Ok(Transport::Tcp(tcp)) => {
                let source = Endpoint { address: ip.source, port: tcp.source_port };
                let destination = Endpoint { address: ip.destination, port: tcp.destination_port };
                Carried {
                    ports: [tcp.source_port, tcp.destination_port],
                    tcp: Some((tcp.seq, tcp.flags.0)),
                    payload_len: Some(tcp.payload.wire_len as u32),
                    in_rpc: self.on_tcp(source, destination, &tcp, time_ns),
                }
            }
            Ok(Transport::Udp(udp)) => Carried {
                ports: [udp.source_port, udp.destination_port],
                tcp: None,
                payload_len: Some(udp.payload.wire_len as u32),
                in_rpc: self.on_udp(ip, &udp, time_ns),
            },
            Ok(Transport::Other(_)) => {
                self.stages.ledger.packets_other_transport += 1;
                Carried::default()
            }
            Err(_) => {
                self.stages.ledger.packets_unreadable += 1;
                Carried::default()
            }
        }
    }

    fn place(&mut self, found: Found) -> usize {
        match found {
            Found::Old(index) => index,
            Found::New(index) => {
                self.stages.ledger.connections += 1;
                index
            }
            Found::Evicted(index, mut old) => {
                self.stages.ledger.connections += 1;
                self.stages.ledger.connections_evicted += 1;
                self.stages.finish_connection(&mut old);
                index
            }
        }
    }

    #[cold]
    fn unknown_tcp(&mut self, source: Endpoint, destination: Endpoint, time_ns: u64) -> (usize, u8) {
        let (found, direction) = self.flows.find_tcp(source, destination, time_ns);
        (self.place(found), direction)
    }

    #[inline]
    fn on_tcp(&mut self, source: Endpoint, destination: Endpoint, tcp: &Tcp<'_>, time_ns: u64) -> bool {
        let known = self.flows.known_tcp(source, destination);
        let (mut index, direction) = known.unwrap_or_else(|| self.unknown_tcp(source, destination, time_ns));
        let mut seq = tcp.seq;
        if tcp.flags.syn() {
            index = self.on_syn(index, direction, tcp);
            seq = seq.wrapping_add(1);
        }
        let Stages { matcher, ledger, memory } = &mut self.stages;
        let connection = self.flows.at(index);
        connection.last_ns = time_ns;
        let number = connection.number;
        let (low, high) = connection.directions.split_at_mut(1);
        let (mine, other) =
            if direction == 0 { (&mut low[0], &mut high[0]) } else { (&mut high[0], &mut low[0]) };
        let context = |client, server, direction| Context {
            forward: Peers { client, server, protocol: Protocol::Tcp },
            connection: number,
            direction,
        };
        if tcp.flags.ack() && other.reassembly.on_ack(tcp.ack) {
            let mut stream = DirectionStream {
                records: &mut other.records,
                matcher: &mut *matcher,
                context: context(destination, source, direction ^ 1),
            };
            other.reassembly.settle(&mut stream, ledger, memory);
        }
        if tcp.payload.wire_len > 0 {
            connection.carried_data = true;
            let mut stream = DirectionStream {
                records: &mut mine.records,
                matcher,
                context: context(source, destination, direction),
            };
            mine.reassembly.on_segment(seq, tcp.payload, time_ns, &mut stream, ledger, memory);
            return mine.records.in_fast_mode();
        }
        false
    }

    #[cold]
    fn on_syn(&mut self, index: usize, direction: u8, tcp: &Tcp<'_>) -> usize {
        let connection = self.flows.at(index);
        let mine = usize::from(direction);
        if !connection.directions[mine].reassembly.is_new_syn(tcp.seq) {
            return index;
        }
        // A SYN without ACK opens; what was on these ports before is over. A SYN-ACK answers.
        if !tcp.flags.ack() && connection.carried_data {
            self.stages.finish_connection(connection);
            connection.directions = Default::default();
            connection.carried_data = false;
            self.stages.ledger.connections += 1;
            self.flows.renumber(index);
        }
        self.flows.at(index).directions[mine].reassembly.on_syn(tcp.seq, &mut self.stages.memory);
        index
    }

    fn on_udp(&mut self, ip: &IpPacket<'_>, udp: &Udp<'_>, time_ns: u64) -> bool {
        let source = Endpoint { address: ip.source, port: udp.source_port };
        let destination = Endpoint { address: ip.destination, port: udp.destination_port };
        let (key, direction) = FlowKey::new(source, destination, Protocol::Udp);
        // Not worth a place in the table: DNS and the like.
        if brunt_wire::rpc::parse(udp.payload.bytes).is_err() {
            self.stages.ledger.not_rpc_bytes += udp.payload.wire_len as u64;
            return false;
        }
        let found = self.flows.find(key, time_ns);
        let index = self.place(found);
        let connection = self.flows.at(index);
        connection.last_ns = time_ns;
        connection.carried_data = true;
        let context = Context {
            forward: Peers { client: source, server: destination, protocol: Protocol::Udp },
            connection: connection.number,
            direction,
        };
        let message = MessageEnd {
            bytes: udp.payload.bytes,
            elided_at: None,
            damaged: udp.payload.bytes.len() < udp.payload.wire_len,
            data_missing: 0,
            time_ns,
            place: Place { at: 0, len: udp.payload.wire_len as u32 },
            token: None,
        };
        let stages = &mut self.stages;
        stages.matcher.end(&context, &message, &mut stages.ledger)
    }
}

impl<S: Sink> Stages<S> {
    fn finish_connection(&mut self, connection: &mut Connection) {
        for direction in [0, 1] {
            let (source, destination) = connection.key.ends(direction);
            let mine = &mut connection.directions[usize::from(direction)];
            let mut stream = DirectionStream {
                records: &mut mine.records,
                matcher: &mut self.matcher,
                context: Context {
                    forward: Peers { client: source, server: destination, protocol: Protocol::Tcp },
                    connection: connection.number,
                    direction,
                },
            };
            mine.reassembly.finish(&mut stream, &mut self.ledger, &mut self.memory);
            let context = stream.context;
            let mut shared = Shared {
                matcher: &mut self.matcher,
                context: &context,
                ledger: &mut self.ledger,
                memory: &mut self.memory,
            };
            mine.records.finish(&mut shared);
            mine.reassembly.release(&mut self.memory);
        }
    }
}
