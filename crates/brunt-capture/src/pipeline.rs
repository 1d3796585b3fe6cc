//! Turns frames into operations: runs the stages in order for the connections of this pipeline. One thread or actor
//! feeds it batches. The one rule: a packet's payload is copied only if it has to wait for other packets.

use brunt_wire::ParseError;
use brunt_wire::net::{
    Endpoint, FragmentKey, Frame, IpPacket, IpPayload, NextHeader, PROTOCOL_TCP, Payload, PlainTcp,
    TUNNELS_MAX, TcpSegment, TunnelPayload, UdpDatagram, open_frame, open_ip, open_udp,
    parse_frame, parse_plain_tcp, parse_transport,
};
use brunt_wire::pcap::CapturedPacket;

use crate::clock::{CaptureClock, OutOfOrder};
use crate::defragment::{Defragmented, Defragmenter};
use crate::dissect::{Conversation, Datagram, Dissectors, Flow, FramingState, Gap, Out, RecordIds};
use crate::flow::{Connection, FlowKey, FlowLookup, FlowTable};
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::operation::{Packet, Sink, Transport};
use crate::reassembly::{Piece, StreamContext, StreamSink};
use crate::source::PacketBatch;

/// The stages and their shared state.
#[derive(Debug)]
pub struct Pipeline<S> {
    flows: FlowTable,
    defragmenter: Defragmenter,
    stages: Stages<S>,
    now_ns: u64,
}

#[derive(Debug)]
struct Stages<S> {
    protocols: Protocols<S>,
    ledger: Ledger,
    memory: Memory,
}

/// The last stage, and the sink for its results.
#[derive(Debug)]
struct Protocols<S> {
    dissectors: Dissectors,
    ids: RecordIds,
    clock: CaptureClock,
    sink: S,
}

/// Passes one direction's stream to the dissector of the connection.
struct DirectionStream<'a, S> {
    conversation: &'a mut Conversation,
    protocols: &'a mut Protocols<S>,
    flow: &'a Flow,
}

impl<S: Sink> StreamSink for DirectionStream<'_, S> {
    // Always inlined: an in-order segment goes straight from here into the dissector's code.
    #[inline(always)]
    fn piece(&mut self, piece: Piece<'_>, time_ns: u64, ledger: &mut Ledger, memory: &mut Memory) {
        let gap = match piece {
            Piece::Data(bytes) => {
                let Protocols {
                    dissectors,
                    ids,
                    clock,
                    sink,
                } = &mut *self.protocols;
                let mut out = Out {
                    sink,
                    ids,
                    clock,
                    ledger,
                    memory,
                };
                return dissectors.on_bytes(self.conversation, self.flow, bytes, time_ns, &mut out);
            }
            Piece::Hole(len) => Gap::Hole(len),
            Piece::Jump => Gap::Jump,
        };
        self.on_gap(gap, ledger, memory);
    }
}

impl<S: Sink> DirectionStream<'_, S> {
    #[cold]
    fn on_gap(&mut self, gap: Gap, ledger: &mut Ledger, memory: &mut Memory) {
        let Protocols {
            dissectors,
            ids,
            clock,
            sink,
        } = &mut *self.protocols;
        let mut out = Out {
            sink,
            ids,
            clock,
            ledger,
            memory,
        };
        dissectors.on_gap(self.conversation, self.flow, gap, &mut out);
    }
}

impl<S: Sink> Pipeline<S> {
    /// A pipeline that passes operations to `sink`.
    pub fn new(sink: S, limits: Limits) -> Pipeline<S> {
        Pipeline::with_clock(sink, limits, CaptureClock::default())
    }

    /// One of several pipelines that share a capture; to be fed with [`Pipeline::on_some_packets`].
    pub fn one_of_several(sink: S, limits: Limits) -> Pipeline<S> {
        Pipeline::with_clock(sink, limits, CaptureClock::of_one_of_several())
    }

    fn with_clock(sink: S, limits: Limits, clock: CaptureClock) -> Pipeline<S> {
        Pipeline {
            flows: FlowTable::new(limits.connections),
            defragmenter: Defragmenter::default(),
            stages: Stages {
                protocols: Protocols {
                    dissectors: Dissectors::new(&limits),
                    ids: RecordIds::new(limits.record_ids),
                    clock,
                    sink,
                },
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

    /// Bytes currently buffered for incomplete data; never above [`Limits::kept_bytes`].
    pub fn kept_bytes(&self) -> usize {
        self.stages.memory.used()
    }

    /// The sink that receives the operations.
    pub fn sink(&self) -> &S {
        &self.stages.protocols.sink
    }

    /// Processes a batch.
    pub fn on_batch(&mut self, batch: &PacketBatch) {
        self.on_packets(batch.packets());
    }

    /// Processes packets that were captured together.
    pub fn on_packets<'p>(&mut self, packets: impl Iterator<Item = CapturedPacket<'p>>) {
        for packet in packets {
            self.on_packet(&packet);
        }
        let stages = &mut self.stages;
        let (dissectors, mut out) = stages.split();
        dissectors.expire(self.now_ns, &mut out);
        stages
            .protocols
            .sink
            .on_batch_end(self.now_ns, &stages.ledger);
    }

    /// Like [`Pipeline::on_packets`], for one of several pipelines; `out_of_order` says how many of these packets are
    /// out of order in the whole capture.
    pub fn on_some_packets<'p>(
        &mut self,
        out_of_order: OutOfOrder,
        packets: impl Iterator<Item = CapturedPacket<'p>>,
    ) {
        let ledger = &mut self.stages.ledger;
        ledger.packets_back += out_of_order.packets_back;
        ledger.clock_steps += out_of_order.clock_steps;
        self.on_packets(packets);
    }

    /// Ends the capture: abandons incomplete data and open calls, and returns the sink and the counters.
    pub fn finish(mut self) -> (S, Ledger) {
        for connection in self.flows.iter_mut() {
            self.stages.finish_connection(connection);
        }
        let stages = &mut self.stages;
        stages.ledger.fragmented_packets_lost += self.defragmenter.waiting() as u64;
        let (dissectors, mut out) = stages.split();
        dissectors.finish(&mut out);
        stages
            .protocols
            .sink
            .on_batch_end(self.now_ns, &stages.ledger);
        stages.protocols.sink.on_end(&stages.ledger);
        (self.stages.protocols.sink, self.stages.ledger)
    }

    /// Announces that the capture's time has reached `now_ns`: no earlier packet will follow.
    pub fn on_time(&mut self, now_ns: u64) {
        if now_ns >= self.stages.protocols.sink.window_until_ns() {
            self.end_window(now_ns);
        }
    }

    #[cold]
    fn end_window(&mut self, now_ns: u64) {
        let stages = &mut self.stages;
        stages.protocols.sink.on_window_end(now_ns, &stages.ledger);
    }

    /// Processes one packet.
    #[inline]
    pub fn on_packet(&mut self, packet: &CapturedPacket<'_>) {
        if packet.time_ns >= self.stages.protocols.sink.window_until_ns() {
            self.end_window(packet.time_ns);
        }
        let Stages {
            protocols, ledger, ..
        } = &mut self.stages;
        let next_record = protocols.ids.next();
        let was_set =
            protocols
                .clock
                .on_packet(packet.time_ns, packet.interface, next_record, ledger);
        // If the clock was set back, keeping the later `now` would prevent anything from expiring until the clock
        // catches up.
        self.now_ns = match was_set {
            true => packet.time_ns,
            false => self.now_ns.max(packet.time_ns),
        };
        ledger.packets += 1;
        ledger.wire_bytes += u64::from(packet.wire_len);
        ledger.packets_cut += u64::from((packet.bytes.len() as u32) < packet.wire_len);
        self.stages
            .protocols
            .sink
            .on_packet(packet.time_ns, packet.wire_len);
        match parse_plain_tcp(packet.link, packet.bytes) {
            Some(plain) => self.on_plain_tcp(packet, &plain),
            None => self.on_other_packet(packet),
        }
    }

    /// The fast path that almost all packets take.
    #[inline(always)]
    fn on_plain_tcp(&mut self, packet: &CapturedPacket<'_>, plain: &PlainTcp<'_>) {
        let tcp = &plain.tcp;
        let source = Endpoint {
            address: plain.source,
            port: tcp.source_port,
        };
        let destination = Endpoint {
            address: plain.destination,
            port: tcp.destination_port,
        };
        let in_message = self.on_tcp(source, destination, tcp, packet.time_ns);
        if S::PACKETS {
            self.stages.protocols.sink.on_packet_parsed(&Packet {
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
                in_message,
                not_understood: None,
            });
        }
    }

    #[cold]
    fn on_other_packet(&mut self, packet: &CapturedPacket<'_>) {
        let mut seen = Packet {
            time_ns: packet.time_ns,
            interface: packet.interface,
            wire_len: packet.wire_len,
            missing: packet.wire_len.saturating_sub(packet.bytes.len() as u32),
            ..Packet::default()
        };
        self.on_frame(
            parse_frame(packet.link, packet.bytes, packet.wire_len),
            0,
            &mut seen,
        );
        let sink = &mut self.stages.protocols.sink;
        if let Some(next) = seen.not_understood {
            sink.on_not_understood(next, packet.wire_len);
        }
        if S::PACKETS {
            sink.on_packet_parsed(&seen);
        }
    }

    /// Processes a frame inside `depth` tunnels and records its properties in `seen`. Recurses into inner
    /// frames, at most [`TUNNELS_MAX`] times.
    fn on_frame(&mut self, frame: Result<Frame<'_>, ParseError>, depth: usize, seen: &mut Packet) {
        match frame {
            Ok(Frame::Ip(ip)) => {
                let end = |address| Endpoint { address, port: 0 };
                seen.macs = ip.macs.copied().or(seen.macs);
                seen.vlan = ip.vlan.or(seen.vlan);
                seen.ends = Some((end(ip.source), end(ip.destination), ip.protocol));
                seen.is_fragment = ip.fragment.is_some();
                match ip.fragment {
                    None => self.on_ip(&ip, ip.payload, depth, seen),
                    Some(_) => self.on_fragment(&ip, depth, seen),
                }
            }
            Ok(Frame::Other { next, payload }) => match open_frame(next, payload) {
                Ok(Some(inner)) => self.on_inner(&inner, depth, seen),
                Ok(None) => {
                    self.stages.ledger.packets_not_ip += 1;
                    seen.ends = None;
                    seen.not_understood = Some(next);
                }
                Err(_) => self.stages.ledger.packets_unreadable += 1,
            },
            Err(_) => self.stages.ledger.packets_unreadable += 1,
        }
    }

    #[cold]
    fn on_inner(&mut self, inner: &TunnelPayload<'_>, depth: usize, seen: &mut Packet) {
        let ledger = &mut self.stages.ledger;
        if depth >= TUNNELS_MAX {
            ledger.packets_tunneled_too_deep += 1;
            return;
        }
        *ledger.tunnel(inner.tunnel) += 1;
        self.on_frame(inner.parse(), depth + 1, seen);
    }

    #[cold]
    fn on_fragment(&mut self, ip: &IpPacket<'_>, depth: usize, seen: &mut Packet) {
        let ledger = &mut self.stages.ledger;
        ledger.fragments += 1;
        let Some(fragment) = ip.fragment else { return };
        let key = FragmentKey {
            source: ip.source,
            destination: ip.destination,
            identification: fragment.identification,
            protocol: ip.protocol,
        };
        match self
            .defragmenter
            .add(key, fragment, ip.payload, seen.time_ns)
        {
            Defragmented::Waiting(dropped) => ledger.fragmented_packets_lost += dropped,
            Defragmented::Lost => ledger.fragmented_packets_lost += 1,
            Defragmented::Whole(bytes) => {
                let payload = Payload {
                    bytes: &bytes,
                    wire_len: bytes.len(),
                };
                // `seen` describes this fragment, so the reassembled packet is parsed into a copy.
                let mut whole = *seen;
                self.on_ip(ip, payload, depth, &mut whole);
                seen.not_understood = whole.not_understood;
                self.defragmenter.reuse(bytes);
            }
        }
    }

    #[inline]
    fn on_ip(&mut self, ip: &IpPacket<'_>, payload: Payload<'_>, depth: usize, seen: &mut Packet) {
        match parse_transport(ip.protocol, payload) {
            Ok(IpPayload::Tcp(tcp)) => {
                let source = Endpoint {
                    address: ip.source,
                    port: tcp.source_port,
                };
                let destination = Endpoint {
                    address: ip.destination,
                    port: tcp.destination_port,
                };
                seen.ends = Some((source, destination, ip.protocol));
                seen.tcp = Some((tcp.seq, tcp.flags.0));
                seen.payload_len = Some(tcp.payload.wire_len as u32);
                seen.in_message = self.on_tcp(source, destination, &tcp, seen.time_ns);
            }
            Ok(IpPayload::Udp(udp)) => {
                if let Some(inner) = open_udp(udp.destination_port, udp.payload) {
                    return self.on_inner(&inner, depth, seen);
                }
                let source = Endpoint {
                    address: ip.source,
                    port: udp.source_port,
                };
                let destination = Endpoint {
                    address: ip.destination,
                    port: udp.destination_port,
                };
                seen.ends = Some((source, destination, ip.protocol));
                seen.payload_len = Some(udp.payload.wire_len as u32);
                seen.in_message = self.on_udp(source, destination, &udp, seen.time_ns);
            }
            Ok(IpPayload::Other(protocol)) => match open_ip(protocol, payload) {
                Ok(Some(inner)) => self.on_inner(&inner, depth, seen),
                Ok(None) => {
                    self.stages.ledger.packets_other_transport += 1;
                    seen.not_understood = Some(NextHeader::Ip(protocol));
                }
                Err(_) => self.stages.ledger.packets_unreadable += 1,
            },
            Err(_) => self.stages.ledger.packets_unreadable += 1,
        }
    }

    fn place(&mut self, found: FlowLookup) -> usize {
        match found {
            FlowLookup::Old(index) => index,
            FlowLookup::New(index) => {
                self.stages.ledger.connections += 1;
                index
            }
            FlowLookup::Evicted(index, mut old) => {
                self.stages.ledger.connections += 1;
                self.stages.ledger.connections_evicted += 1;
                self.stages.finish_connection(&mut old);
                index
            }
        }
    }

    #[cold]
    fn unknown_tcp(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        time_ns: u64,
    ) -> (usize, u8) {
        let (found, direction) = self.flows.find_tcp(source, destination, time_ns);
        (self.place(found), direction)
    }

    #[inline]
    fn on_tcp(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        tcp: &TcpSegment<'_>,
        time_ns: u64,
    ) -> bool {
        let known = self.flows.known_tcp(source, destination);
        let (mut index, direction) =
            known.unwrap_or_else(|| self.unknown_tcp(source, destination, time_ns));
        let mut seq = tcp.seq;
        if tcp.flags.syn() {
            index = self.on_syn(index, direction, tcp);
            seq = seq.wrapping_add(1);
        }
        let Stages {
            protocols,
            ledger,
            memory,
        } = &mut self.stages;
        let connection = self.flows.at(index);
        connection.last_ns = time_ns;
        let (conversation, flows) = (&mut connection.conversation, &connection.flows);
        let (low, high) = connection.streams.split_at_mut(1);
        let (mine, other) = if direction == 0 {
            (&mut low[0], &mut high[0])
        } else {
            (&mut high[0], &mut low[0])
        };
        if tcp.flags.ack() && other.on_ack(tcp.ack) {
            let flow = &flows[usize::from(direction ^ 1)];
            let mut stream = DirectionStream {
                conversation,
                protocols,
                flow,
            };
            other.settle(&mut StreamContext {
                out: &mut stream,
                ledger,
                memory,
            });
        }
        if tcp.payload.wire_len == 0 {
            return false;
        }
        connection.carried_data = true;
        let mut stream = DirectionStream {
            conversation,
            protocols,
            flow: &flows[usize::from(direction)],
        };
        let mut to = StreamContext {
            out: &mut stream,
            ledger,
            memory,
        };
        mine.on_segment(seq, tcp.payload, time_ns, &mut to);
        let framing_state = stream.conversation.framing_state(direction);
        if framing_state == FramingState::GaveUp {
            stream.protocols.dissectors.claim_again(
                stream.conversation,
                stream.flow,
                tcp.payload.bytes,
            );
        }
        framing_state == FramingState::Framed
    }

    #[cold]
    fn on_syn(&mut self, index: usize, direction: u8, tcp: &TcpSegment<'_>) -> usize {
        let connection = self.flows.at(index);
        let mine = usize::from(direction);
        if !connection.streams[mine].is_new_syn(tcp.seq) {
            return index;
        }
        // A SYN without ACK opens a connection, so the previous connection on these ports is over. A SYN-ACK answers
        // such a SYN.
        if !tcp.flags.ack() && connection.carried_data {
            self.stages.finish_connection(connection);
            connection.streams = Default::default();
            connection.conversation = Conversation::default();
            connection.carried_data = false;
            self.stages.ledger.connections += 1;
            self.flows.renumber(index);
        }
        self.flows.at(index).streams[mine].on_syn(tcp.seq, &mut self.stages.memory);
        index
    }

    fn on_udp(
        &mut self,
        source: Endpoint,
        destination: Endpoint,
        udp: &UdpDatagram<'_>,
        time_ns: u64,
    ) -> bool {
        let (key, direction) = FlowKey::new(source, destination, Transport::Udp);
        let mut flow = Flow::new(source, destination, Transport::Udp, 0, direction);
        // Datagrams of unknown protocols, such as DNS, don't get an entry in the table.
        if !self
            .stages
            .protocols
            .dissectors
            .claims_datagram(&flow, udp.payload.bytes)
        {
            self.stages.ledger.bytes_unclaimed += udp.payload.wire_len as u64;
            return false;
        }
        let found = self.flows.find(key, time_ns);
        let index = self.place(found);
        let connection = self.flows.at(index);
        connection.last_ns = time_ns;
        connection.carried_data = true;
        flow.connection = connection.flows[0].connection;
        let datagram = Datagram {
            bytes: udp.payload.bytes,
            wire_len: udp.payload.wire_len as u32,
            time_ns,
        };
        let (dissectors, mut out) = self.stages.split();
        dissectors.on_datagram(&flow, &datagram, &mut out)
    }
}

impl<S: Sink> Stages<S> {
    /// Splits the borrow into the dissectors and the context they write to.
    fn split(&mut self) -> (&mut Dissectors, Out<'_, S>) {
        let Stages {
            protocols:
                Protocols {
                    dissectors,
                    ids,
                    clock,
                    sink,
                },
            ledger,
            memory,
        } = self;
        (
            dissectors,
            Out {
                sink,
                ids,
                clock,
                ledger,
                memory,
            },
        )
    }

    fn finish_connection(&mut self, connection: &mut Connection) {
        for direction in [0, 1] {
            let flow = &connection.flows[direction];
            let mine = &mut connection.streams[direction];
            let (conversation, protocols) = (&mut connection.conversation, &mut self.protocols);
            let mut stream = DirectionStream {
                conversation,
                protocols,
                flow,
            };
            let (ledger, memory) = (&mut self.ledger, &mut self.memory);
            mine.finish(&mut StreamContext {
                out: &mut stream,
                ledger,
                memory,
            });
            let (dissectors, mut out) = self.split();
            dissectors.on_end(&mut connection.conversation, flow, &mut out);
            mine.release(&mut self.memory);
        }
    }
}
