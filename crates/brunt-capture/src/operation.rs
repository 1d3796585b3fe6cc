//! What the pipeline hands on: operations and the sums of their data. Sinks (analyses, the
//! trace) take them. The one rule: everything borrows; a sink copies what it keeps.

use brunt_wire::net::{Address, Endpoint};
use brunt_wire::nfs::{FileHandle, mount, v3, v4};
use brunt_wire::rpc;

use crate::ledger::Ledger;

/// What carried a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Record-marked, on a connection.
    #[default]
    Tcp,
    /// One message, one datagram.
    Udp,
}

/// Who called whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peers {
    /// The caller.
    pub client: Endpoint,
    /// The called.
    pub server: Endpoint,
    /// How.
    pub protocol: Protocol,
}

/// A file of a server, as 64 bits: a hash of the server's address and the handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey(pub u64);

impl FileKey {
    /// The key of `handle` on `server`.
    #[inline]
    pub fn new(server: Address, handle: FileHandle<'_>) -> FileKey {
        // The server is mixed in by SplitMix64's multiplier: a seeded XXH3 costs twice as much.
        let server = (server.0 as u64) ^ ((server.0 >> 64) as u64).rotate_left(32);
        let server = server.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        FileKey(twox_hash::XxHash3_64::oneshot(handle.0) ^ server ^ (server >> 32))
    }
}

/// What was asked and answered. A part that was not seen, or could not be read, is `None`.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // borrowed views on the stack, once an operation
pub enum Body<'a> {
    /// NFSv3.
    Nfs3 {
        /// Which procedure.
        procedure: v3::Procedure,
        /// What was asked.
        args: Option<&'a v3::Args<'a>>,
        /// What was answered.
        results: Option<&'a v3::Results<'a>>,
    },
    /// MOUNT version 3.
    Mount {
        /// Its number.
        procedure: u32,
        /// What was asked.
        args: Option<mount::Args<'a>>,
        /// What was answered.
        results: Option<mount::Results<'a>>,
    },
    /// A compound of NFSv4.0, 4.1 or 4.2: [`v4::Walk`] goes through its operations. NULL has neither.
    Nfs4 {
        /// What was asked.
        call: Option<v4::Call<'a>>,
        /// What was answered.
        reply: Option<v4::Reply<'a>>,
    },
    /// An NFSv4 server calls its client: here [`Peers::client`] is the server.
    Nfs4Callback {
        /// What is asked.
        call: v4::Callback<'a>,
    },
    /// A program or version that is not looked into, or encrypted.
    Opaque,
}

/// A call with its reply, or without one when none came in time.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Counts calls in the order in which they were seen; links the tables of a trace.
    pub record_id: u64,
    /// When the call's first byte was seen: nanoseconds since 1970.
    pub call_time_ns: u64,
    /// When the reply's first byte was seen.
    pub reply_time_ns: Option<u64>,
    /// Who.
    pub peers: Peers,
    /// The call's header.
    pub call: &'a rpc::Call<'a>,
    /// The reply's header.
    pub reply: Option<&'a rpc::Reply<'a>>,
    /// The procedure's own status, when it has one and it was seen.
    pub status: Option<u32>,
    /// What was asked and answered.
    pub body: &'a Body<'a>,
    /// What an NFSv3 call is about: a file, or the directory of a name.
    pub file: Option<FileKey>,
    /// Calls waiting for a reply when this one was made, itself included.
    pub outstanding: u32,
    /// Bytes of READ or WRITE data that lay in holes.
    pub data_missing: u32,
    /// Whether every byte of the call was seen.
    pub call_whole: bool,
    /// Whether every byte of the reply was seen.
    pub reply_whole: bool,
    /// Where the call lay.
    pub call_place: Place,
    /// Where the reply lay.
    pub reply_place: Option<Place>,
}

/// Where a message lay in the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of data in its first packet before its RPC header.
    pub at: u32,
    /// Bytes of the message, file data included, as its record marks say.
    pub len: u32,
}

/// A packet as a trace keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it was captured: nanoseconds since 1970.
    pub time_ns: u64,
    /// Which interface of the capture.
    pub interface: u32,
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
    /// Bytes that a snap length cut.
    pub missing: u32,
    /// Destination, then source, when the link has both.
    pub macs: Option<[u8; 12]>,
    /// The innermost VLAN.
    pub vlan: Option<u16>,
    /// Sender and receiver, and the transport's number, when it is IP. Without ports (zero) when
    /// the transport has none, or they are in another fragment.
    pub ends: Option<(Endpoint, Endpoint, u8)>,
    /// Whether it is a fragment.
    pub is_fragment: bool,
    /// Sequence number and control bits, when it is TCP.
    pub tcp: Option<(u32, u8)>,
    /// Bytes of data above TCP or UDP, as sent.
    pub payload_len: Option<u32>,
    /// Whether its data belongs to an RPC message whose header was found.
    pub in_rpc: bool,
}

impl Operation<'_> {
    /// From the call's first byte to the reply's, in nanoseconds.
    #[inline]
    pub fn latency_ns(&self) -> Option<u64> {
        Some(self.reply_time_ns?.saturating_sub(self.call_time_ns))
    }
}

/// Sums of consecutive blocks of a file.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumRun<'a> {
    /// The operation that moved them.
    pub record_id: u64,
    /// The file.
    pub file: FileKey,
    /// Whether the data went to the server.
    pub write: bool,
    /// File offset of the first block, a multiple of [`crate::checksum::BLOCK_BYTES`].
    pub offset: u64,
    /// One sum for each block.
    pub sums: &'a [u64],
}

/// Takes what the pipeline finds.
pub trait Sink {
    /// An operation is complete, or was given up.
    fn on_operation(&mut self, operation: &Operation<'_>);
    /// Data went by.
    fn on_checksums(&mut self, run: &ChecksumRun<'_>);
    /// A packet was seen.
    #[inline]
    fn on_packet(&mut self, _time_ns: u64, _wire_len: u32) {}
    /// Everything that was at hand has been worked off: what was put by is due now.
    #[inline]
    fn on_batch_end(&mut self, _now_ns: u64, _ledger: &Ledger) {}
    /// Whether the sink wants [`Sink::on_packet_parsed`]: it costs something.
    const PACKETS: bool = false;
    /// What a packet was.
    #[inline]
    fn on_packet_parsed(&mut self, _packet: &Packet) {}
}

/// A sink that may not be there.
impl<S: Sink> Sink for Option<S> {
    #[inline]
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.iter_mut().for_each(|sink| sink.on_operation(operation));
    }
    #[inline]
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.iter_mut().for_each(|sink| sink.on_checksums(run));
    }
    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.iter_mut().for_each(|sink| sink.on_packet(time_ns, wire_len));
    }
    #[inline]
    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.iter_mut().for_each(|sink| sink.on_batch_end(now_ns, ledger));
    }
    const PACKETS: bool = S::PACKETS;
    #[inline]
    fn on_packet_parsed(&mut self, packet: &Packet) {
        self.iter_mut().for_each(|sink| sink.on_packet_parsed(packet));
    }
}

impl<A: Sink, B: Sink> Sink for (A, B) {
    #[inline]
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.0.on_operation(operation);
        self.1.on_operation(operation);
    }
    #[inline]
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.0.on_checksums(run);
        self.1.on_checksums(run);
    }
    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.0.on_packet(time_ns, wire_len);
        self.1.on_packet(time_ns, wire_len);
    }
    #[inline]
    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.0.on_batch_end(now_ns, ledger);
        self.1.on_batch_end(now_ns, ledger);
    }
    const PACKETS: bool = A::PACKETS || B::PACKETS;
    #[inline]
    fn on_packet_parsed(&mut self, packet: &Packet) {
        self.0.on_packet_parsed(packet);
        self.1.on_packet_parsed(packet);
    }
}
