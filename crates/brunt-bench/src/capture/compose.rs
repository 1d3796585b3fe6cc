//! Generates captures for users who have none: real NFSv3 messages ([`super::messages`]), or iSCSI ([`super::scsi`]),
//! on generated TCP connections. There are four clients with four addresses; segments are as long as the MTU allows,
//! and messages of different connections are interleaved.
//!
//! The rule: the same kind and count always produce the same file.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use brunt_capture::trace::pcap::{PacketFiles, PcapOptions};
use brunt_core::random::Random;
use brunt_wire::nfs::v3::Procedure;
use brunt_wire::pcap::{CapturedPacket, LinkType};

use super::messages::{CallAndReply, exchanges};
use super::scsi;
use crate::BenchError;

const CLIENTS: usize = 4;
/// Number of variants of each built-in file.
const FILES: u32 = 64;
/// Size of READ and WRITE: 64 KiB.
const DATA_BYTES: usize = 64 << 10;
/// Size of the recurring blocks, which is also the block size for the checksums.
const BLOCK_BYTES: usize = 512;
const POOL_BLOCKS: usize = 1024;
/// READs and WRITEs access this many bytes of each file.
const FILE_BYTES: u64 = 256 << 20;
/// Maximum number of consecutive segments of a connection.
const BURST_MAX: u64 = 16;
/// 2026-01-01 in Unix time.
const START_NS: u64 = 1_767_225_600_000_000_000;
const HEADERS_BYTES: usize = 14 + 20 + 32;
const SYN: u8 = 2;
const PUSH_ACK: u8 = 0x18;
const ACK: u8 = 0x10;

/// The traffic in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureContent {
    /// 49 % READ and 49 % WRITE of 64 KiB, the rest COMMIT and GETATTR; data of all kinds.
    Large,
    /// All procedures of the embedded capture, as often as they occur there.
    Small,
    /// Like [`CaptureContent::Large`] but over iSCSI and without GETATTR: READ and WRITE of 64 KiB, SYNCHRONIZE CACHE.
    Scsi,
}

/// Writes a capture with `calls` calls and their replies.
///
/// # Errors
/// The file cannot be written.
pub fn compose(
    path: &Path,
    load: CaptureContent,
    mtu: usize,
    calls: u64,
) -> Result<(), BenchError> {
    let exchanges = exchanges()?;
    let failed = |error: io::Error| BenchError::failed(format!("{}: {error}", path.display()));
    let to = PacketFiles::create(PcapOptions::new(path.to_path_buf())).map_err(failed)?;
    let mut composer = Composer::new(to, load, mtu, exchanges);
    composer.run(calls).map_err(failed)?;
    composer
        .to
        .finish()
        .1
        .map_or(Ok(()), |error| Err(failed(error)))?;
    Ok(())
}

/// A long capture in bursts: small operations, then a pause until the next burst is due.
#[derive(Clone, Copy, Debug)]
pub struct CaptureBursts {
    /// Number of bursts.
    pub count: u64,
    /// Time from the start of one burst to the start of the next.
    pub every_ns: u64,
    /// Calls per burst.
    pub calls: u64,
    /// Each file of the built-in capture becomes up to this many files; a few of them get most of the accesses.
    pub files: u32,
    /// The set of files changes after this many bursts.
    pub files_for: u64,
}

/// Writes a capture of bursts as pcap, until it is complete or `stop` returns true. Returns the number of calls.
///
/// # Errors
/// The capture cannot be written.
pub fn compose_bursts(
    to: impl Write,
    bursts: &CaptureBursts,
    mut stop: impl FnMut() -> bool,
) -> Result<u64, BenchError> {
    let exchanges = exchanges()?;
    let to = PcapPipe::new(to).map_err(BenchError::failed)?;
    let mut composer = Composer::new(to, CaptureContent::Small, 1500, exchanges);
    composer.files = bursts.files;
    let mut connections = composer.connections();
    let mut calls = 0;
    for burst in 0..bursts.count {
        if stop() {
            break;
        }
        composer.first_file = (burst / bursts.files_for.max(1)) as u32 * bursts.files;
        composer.time_ns = composer.time_ns.max(START_NS + burst * bursts.every_ns);
        composer
            .burst(&mut connections, bursts.calls)
            .map_err(BenchError::failed)?;
        calls += bursts.calls;
    }
    composer.to.0.flush().map_err(BenchError::failed)?;
    Ok(calls)
}

/// Where packets go.
trait PacketOut {
    fn put(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()>;
}

impl PacketOut for PacketFiles {
    fn put(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        self.write(packet)
    }
}

/// A pcap stream with nanosecond timestamps.
struct PcapPipe<W: Write>(BufWriter<W>);

impl<W: Write> PcapPipe<W> {
    fn new(to: W) -> io::Result<PcapPipe<W>> {
        let mut to = BufWriter::with_capacity(1 << 20, to);
        // Magic number for nanoseconds, version 2.4, UTC, snap length, Ethernet.
        for word in [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, 1 << 18, 1_u32] {
            to.write_all(&word.to_le_bytes())?;
        }
        Ok(PcapPipe(to))
    }
}

impl<W: Write> PacketOut for PcapPipe<W> {
    fn put(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        let len = packet.bytes.len() as u32;
        let (seconds, nanos) = (
            packet.time_ns / 1_000_000_000,
            packet.time_ns % 1_000_000_000,
        );
        for word in [seconds as u32, nanos as u32, len, packet.wire_len] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(packet.bytes)
    }
}

struct Composer<P> {
    to: P,
    load: CaptureContent,
    mss: usize,
    exchanges: Vec<CallAndReply>,
    pool: Vec<u8>,
    random: Random,
    time_ns: u64,
    frame: Vec<u8>,
    data: Vec<u8>,
    /// Number of variants of each file that are in use, and the first of these.
    files: u32,
    first_file: u32,
}

/// A segment waiting to be sent.
struct Segment {
    from_server: bool,
    flags: u8,
    bytes: Vec<u8>,
}

/// One client and its server.
struct Connection {
    number: u8,
    /// The next sequence numbers of client and server.
    seq: [u32; 2],
    segments: VecDeque<Segment>,
    /// Replies to outstanding calls.
    replies: VecDeque<Vec<u8>>,
    calls_left: u64,
    xid: u32,
    identification: [u16; 2],
}

impl Connection {
    /// Starts an iSCSI session.
    fn log_in(&mut self) {
        let (request, response) = scsi::login(self.number);
        for (from_server, bytes) in [(false, request), (true, response)] {
            self.segments.push_back(Segment {
                from_server,
                flags: PUSH_ACK,
                bytes,
            });
        }
    }
}

impl<P: PacketOut> Composer<P> {
    fn new(to: P, load: CaptureContent, mtu: usize, exchanges: Vec<CallAndReply>) -> Composer<P> {
        let mut composer = Composer {
            to,
            load,
            mss: mtu - 20 - 32,
            exchanges,
            pool: vec![0; POOL_BLOCKS * BLOCK_BYTES],
            random: Random::new(1),
            time_ns: START_NS,
            frame: Vec::with_capacity(HEADERS_BYTES + mtu),
            data: vec![0; DATA_BYTES],
            files: FILES,
            first_file: 0,
        };
        composer.random.fill(&mut composer.pool);
        composer
    }

    fn run(&mut self, calls: u64) -> io::Result<()> {
        let mut connections = self.connections();
        self.burst(&mut connections, calls)
    }

    /// New connections of all clients.
    fn connections(&mut self) -> Vec<Connection> {
        let mut connections: Vec<Connection> = (0..CLIENTS)
            .map(|number| Connection {
                number: number as u8,
                seq: [self.random.next_u64() as u32, self.random.next_u64() as u32],
                segments: [(false, SYN), (true, SYN | ACK), (false, ACK)]
                    .map(|(from_server, flags)| Segment {
                        from_server,
                        flags,
                        bytes: Vec::new(),
                    })
                    .into(),
                replies: VecDeque::new(),
                calls_left: 0,
                xid: self.random.next_u64() as u32,
                identification: [0; 2],
            })
            .collect();
        if self.load == CaptureContent::Scsi {
            connections.iter_mut().for_each(Connection::log_in);
        }
        connections
    }

    /// Sends this many calls and all their replies.
    fn burst(&mut self, connections: &mut [Connection], calls: u64) -> io::Result<()> {
        for (number, connection) in (0..).zip(connections.iter_mut()) {
            let more = u64::from(number < calls % CLIENTS as u64);
            connection.calls_left = calls / CLIENTS as u64 + more;
        }
        let mut busy: Vec<usize> = (0..connections.len()).collect();
        while !busy.is_empty() {
            let place = self.random.below(busy.len() as u64) as usize;
            let connection = &mut connections[busy[place]];
            for _ in 0..1 + self.random.below(BURST_MAX) {
                if connection.segments.is_empty() && !self.advance(connection) {
                    break;
                }
                let segment = connection
                    .segments
                    .pop_front()
                    .expect("the buffer was just filled");
                self.send(connection, &segment)?;
            }
            if connection.calls_left == 0
                && connection.replies.is_empty()
                && connection.segments.is_empty()
            {
                busy.swap_remove(place);
            }
        }
        Ok(())
    }

    /// Queues a connection's next message; `false` if there are no more.
    fn advance(&mut self, connection: &mut Connection) -> bool {
        let (depth, at_once) = if self.load == CaptureContent::Small {
            (16, 3)
        } else {
            (4, 1)
        };
        let waiting = connection.replies.len();
        let call = connection.calls_left > 0
            && waiting < depth
            && (waiting == 0 || self.random.chance(0.5));
        let mut stream = Vec::new();
        if call {
            let count = (1 + self.random.below(at_once)).min(connection.calls_left);
            for _ in 0..count {
                connection.xid = connection.xid.wrapping_add(1);
                connection.calls_left -= 1;
                let (call, reply) = self.exchange(connection.xid);
                self.mark(&mut stream, &call);
                connection.replies.push_back(reply);
            }
        } else {
            let Some(reply) = connection.replies.pop_front() else {
                return false;
            };
            self.mark(&mut stream, &reply);
        }
        let segments = stream.chunks(self.mss);
        let long = segments.len() > 1;
        let from_server = !call;
        connection.segments.extend(segments.map(|bytes| Segment {
            from_server,
            flags: if bytes.len() < self.mss {
                PUSH_ACK
            } else {
                ACK
            },
            bytes: bytes.to_vec(),
        }));
        if long || self.random.chance(0.1) {
            // A pure ACK.
            connection.segments.push_back(Segment {
                from_server: call,
                flags: ACK,
                bytes: Vec::new(),
            });
        }
        true
    }

    /// Appends a message; RPC messages follow a record mark (RFC 5531, 11).
    fn mark(&self, stream: &mut Vec<u8>, message: &[u8]) {
        if self.load != CaptureContent::Scsi {
            stream.extend_from_slice(&(1 << 31 | message.len() as u32).to_be_bytes());
        }
        stream.extend_from_slice(message);
    }

    fn exchange(&mut self, xid: u32) -> (Vec<u8>, Vec<u8>) {
        // A few files get most of the accesses.
        let files = (f64::from(self.files) * self.random.unit().powi(3)) as u32;
        let files = self.first_file + files;
        let kind = match self.load {
            CaptureContent::Small => {
                let index = self.random.below(self.exchanges.len() as u64) as usize;
                return self.exchanges[index].varied(xid, files);
            }
            CaptureContent::Scsi => return self.scsi_exchange(xid),
            CaptureContent::Large => match self.random.below(100) {
                0..=48 => Procedure::Read,
                49..=97 => Procedure::Write,
                98 => Procedure::Commit,
                _ => Procedure::Getattr,
            },
        };
        self.fill();
        let mut offset = self.random.below(FILE_BYTES / DATA_BYTES as u64) * DATA_BYTES as u64;
        if self.random.chance(0.1) {
            offset += 1 + self.random.below(DATA_BYTES as u64 - 1);
        }
        let of_kind = |exchange: &&CallAndReply| exchange.procedure == kind && exchange.succeeded();
        let exchange = self
            .exchanges
            .iter()
            .find(of_kind)
            .expect("the piece contains each of them");
        match kind {
            Procedure::Read => exchange.read(xid, files, offset, &self.data),
            Procedure::Write => exchange.write(xid, files, offset, &self.data),
            _ => exchange.varied(xid, files),
        }
    }

    fn scsi_exchange(&mut self, tag: u32) -> (Vec<u8>, Vec<u8>) {
        self.fill();
        let mut offset = self.random.below(FILE_BYTES / DATA_BYTES as u64) * DATA_BYTES as u64;
        if self.random.chance(0.1) {
            offset += self.random.below((DATA_BYTES / BLOCK_BYTES) as u64) * BLOCK_BYTES as u64;
        }
        match self.random.below(100) {
            0..=48 => scsi::read(tag, offset, &self.data),
            49..=97 => scsi::write(tag, offset, &self.data),
            _ => scsi::flush(tag),
        }
    }

    /// Fills in new data: 25 % of its blocks are recurring blocks, 10 % zeros, 15 % text, the rest random.
    fn fill(&mut self) {
        for block in self.data.chunks_mut(BLOCK_BYTES) {
            match self.random.below(100) {
                0..=24 => {
                    let at = self.random.below(POOL_BLOCKS as u64) as usize * BLOCK_BYTES;
                    block.copy_from_slice(&self.pool[at..at + BLOCK_BYTES]);
                }
                25..=34 => block.fill(0),
                35..=49 => {
                    for word in block.chunks_mut(8) {
                        let bits = self.random.next_u64();
                        let letters = (0..8).map(|n| b'a' + (bits >> (8 * n)) as u8 % 20);
                        word.iter_mut()
                            .zip(letters)
                            .for_each(|(byte, letter)| *byte = letter);
                    }
                }
                _ => self.random.fill(block),
            }
        }
    }

    fn send(&mut self, connection: &mut Connection, segment: &Segment) -> io::Result<()> {
        let from = usize::from(segment.from_server);
        let (seq, ack) = (connection.seq[from], connection.seq[1 - from]);
        let len = segment.bytes.len() as u32 + u32::from(segment.flags & SYN != 0);
        connection.seq[from] = seq.wrapping_add(len);
        connection.identification[from] = connection.identification[from].wrapping_add(1);
        let ends = End::both(connection.number, self.load);
        let (source, destination) = (ends[from], ends[1 - from]);
        let frame = &mut self.frame;
        frame.clear();
        frame.extend_from_slice(&destination.mac);
        frame.extend_from_slice(&source.mac);
        frame.extend_from_slice(&[8, 0, 0x45, 0]);
        frame.extend_from_slice(&((20 + 32 + segment.bytes.len()) as u16).to_be_bytes());
        frame.extend_from_slice(&connection.identification[from].to_be_bytes());
        // Don't fragment, 64 hops, TCP, and a checksum to be filled in.
        frame.extend_from_slice(&[0x40, 0, 64, 6, 0, 0]);
        frame.extend_from_slice(&source.address);
        frame.extend_from_slice(&destination.address);
        let header = sum(0, &frame[14..34]);
        frame[24..26].copy_from_slice(&fold(header).to_be_bytes());
        frame.extend_from_slice(&source.port.to_be_bytes());
        frame.extend_from_slice(&destination.port.to_be_bytes());
        frame.extend_from_slice(&seq.to_be_bytes());
        let ack = if segment.flags & ACK == 0 { 0 } else { ack };
        frame.extend_from_slice(&ack.to_be_bytes());
        // 32 bytes of header, a window, a checksum to be filled in, no urgent data.
        frame.extend_from_slice(&[0x80, segment.flags, 0x20, 0, 0, 0, 0, 0]);
        // Two bytes of padding, and timestamps in milliseconds (RFC 7323).
        frame.extend_from_slice(&[1, 1, 8, 10]);
        let stamp = (self.time_ns / 1_000_000) as u32;
        frame.extend_from_slice(&stamp.to_be_bytes());
        frame.extend_from_slice(&stamp.wrapping_sub(1).to_be_bytes());
        frame.extend_from_slice(&segment.bytes);
        let pseudo = 6 + (frame.len() - 34) as u64;
        let total = sum(sum(pseudo, &frame[26..34]), &frame[34..]);
        frame[50..52].copy_from_slice(&fold(total).to_be_bytes());
        // Packets follow each other as on a 10 Gb/s link, plus a random pause of less than 1 µs.
        self.time_ns += frame.len() as u64 * 8 / 10 + self.random.below(1000);
        self.to.put(&CapturedPacket {
            time_ns: self.time_ns,
            wire_len: frame.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bytes: frame,
        })
    }
}

/// One side of a connection.
#[derive(Clone, Copy)]
struct End {
    mac: [u8; 6],
    address: [u8; 4],
    port: u16,
}

impl End {
    /// The client and the server of connection `number`, each with its own address.
    fn both(number: u8, load: CaptureContent) -> [End; 2] {
        let port = if load == CaptureContent::Scsi {
            3260
        } else {
            2049
        };
        [
            End {
                mac: [2, 0, 0, 0, 0, 2],
                address: [10, 99, 0, 2 + number],
                port: 700 + u16::from(number),
            },
            End {
                mac: [2, 0, 0, 0, 0, 1],
                address: [10, 99, 0, 100 + number],
                port,
            },
        ]
    }
}

/// Adds bytes to a sum of big-endian 32-bit words, which [`fold`] reduces to the 16-bit sum of RFC 1071.
fn sum(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total = start
        + words
            .iter()
            .map(|word| u64::from(u32::from_be_bytes(*word)))
            .sum::<u64>();
    for (index, byte) in rest.iter().enumerate() {
        total += u64::from(*byte) << (8 * (1 - index % 2));
    }
    total
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_capture::{Analysis, Limits, run_file};

    fn moved(report: &brunt_capture::Report) -> u64 {
        let profile = report.profile.as_ref().expect("not left out");
        profile.read.bytes + profile.write.bytes
    }

    /// A generated capture is parsed to the last byte, and has the requested content.
    #[test]
    fn generated_captures_are_parsed_to_the_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let check = |load, mtu: usize, calls| {
            let path = folder.path().join("composed.pcap");
            compose(&path, load, mtu, calls).unwrap();
            let outcome = run_file(&path, Analysis::new(), Limits::default(), || false).unwrap();
            std::fs::remove_file(&path).unwrap();
            let ledger = &outcome.ledger;
            ledger.check().unwrap();
            assert_eq!(
                (ledger.calls, ledger.calls_answered),
                (calls, calls),
                "{load:?}"
            );
            assert_eq!(
                (
                    ledger.holes,
                    ledger.bytes_unclaimed,
                    ledger.bodies_malformed
                ),
                (0, 0, 0),
                "{load:?}"
            );
            let report = outcome.sink.report(ledger);
            assert_eq!(
                report.clients.as_ref().map(|all| all.count),
                Some(CLIENTS as u64)
            );
            report
        };
        for mtu in [1500, 9000] {
            let report = check(CaptureContent::Large, mtu, 101);
            let moved = moved(&report);
            assert!(
                moved.is_multiple_of(DATA_BYTES as u64) && moved > 90 * DATA_BYTES as u64,
                "{moved}"
            );
        }
        let report = check(CaptureContent::Scsi, 1500, 101);
        let moved = moved(&report);
        assert!(
            moved.is_multiple_of(DATA_BYTES as u64) && moved > 90 * DATA_BYTES as u64,
            "{moved}"
        );
        assert!(
            report
                .by_operation
                .iter()
                .all(|row| row.name.starts_with("SCSI "))
        );
        let report = check(CaptureContent::Small, 1500, 2000);
        assert!(report.by_operation.len() >= 15 && report.files.is_some_and(|all| all.count > 100));
    }

    /// The checksum over a header including its checksum is zero (example data of RFC 1071, 3).
    #[test]
    fn the_checksum_of_a_header_with_its_checksum_is_zero() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(0, &bytes)), !0xddf2);
        let odd = [0x00, 0x01, 0xf2];
        assert_eq!(fold(sum(0, &odd)), !0xf201);
    }
}
