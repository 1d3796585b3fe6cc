//! Real NFSv3 calls and replies from a capture, modified: another xid, other files, 64 KiB of data instead of one
//! byte. Called by [`super::compose`].
//!
//! The rule: each result is parsed again by our own parser before it is used.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brunt_capture::recovery::numbered;
use brunt_capture::{
    Body, ChecksumRun, FileSource, Limits, Operation, PacketBatch, Pipeline, Sink,
};
use brunt_wire::net::{Endpoint, Frame, IpPayload, parse_frame, parse_transport};
use brunt_wire::nfs::v3::{Args, Procedure, ResultBody};
use brunt_wire::{nfs::v3, rpc};

use crate::BenchError;

/// A thousand packets between nfs-ganesha and libnfs, with small operations of most procedures.
const PIECE: &[u8] = include_bytes!("../../../../testdata/nfs3-small.pcap.zst");

/// A call and its reply, as captured.
#[derive(Clone, Debug)]
pub struct CallAndReply {
    /// The procedure.
    pub procedure: Procedure,
    call: Message,
    reply: Message,
}

#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    /// Offset and length of each file handle in the message.
    handles: Vec<(usize, usize)>,
}

/// The position of a message: its sender, the packet in which it starts, its offset there, and its length.
type Lies = (Endpoint, u64, usize, usize);

/// Records the positions of messages and of file handles.
#[derive(Default)]
struct Places {
    exchanges: Vec<(Procedure, Lies, Lies)>,
    handles: BTreeSet<Vec<u8>>,
}

impl Sink for Places {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let Some(Body::Nfs3 {
            procedure,
            args: Some(args),
            results: Some(results),
        }) = operation.rpc().map(|rpc| rpc.body)
        else {
            return;
        };
        let Some(reply) = operation.reply else {
            return;
        };
        if !operation.request.whole || !reply.whole {
            return;
        }
        let second = match args {
            Args::Rename { to, .. } => Some(to.dir),
            Args::Link { link, .. } => Some(link.dir),
            _ => None,
        };
        let returned = match &results.body {
            ResultBody::Lookup { object, .. } => Some(*object),
            ResultBody::Created { object, .. } => *object,
            _ => None,
        };
        let listed = match &results.body {
            ResultBody::Readdir { entries, .. } => entries
                .iter()
                .filter_map(|entry| entry.handle)
                .map(|handle| handle.0.to_vec())
                .collect(),
            _ => Vec::new(),
        };
        let handles = [args.handle(), second, returned];
        self.handles.extend(
            handles
                .into_iter()
                .flatten()
                .map(|handle| handle.0.to_vec())
                .chain(listed),
        );
        let lies = |from, time_ns: u64, place: brunt_capture::operation::MessagePlace| -> Lies {
            (from, time_ns / 1000, place.at as usize, place.len as usize)
        };
        let peers = operation.peers;
        self.exchanges.push((
            *procedure,
            lies(
                peers.client,
                operation.request.first_ns,
                operation.request.place,
            ),
            lies(peers.server, reply.first_ns, reply.place),
        ));
    }
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
}

/// One direction of a connection: its data by sequence number.
#[derive(Default)]
struct Stream {
    data: BTreeMap<u32, Vec<u8>>,
}

impl Stream {
    /// `len` bytes starting at `seq`, if none are missing.
    fn take(&self, seq: u32, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = seq.wrapping_add(bytes.len() as u32);
            let (begin, segment) = self.data.range(..=at).next_back()?;
            let rest = segment
                .get((at - begin) as usize..)
                .filter(|rest| !rest.is_empty())?;
            bytes.extend_from_slice(&rest[..rest.len().min(len - bytes.len())]);
        }
        Some(bytes)
    }
}

/// The data of a capture's TCP connections.
#[derive(Default)]
struct Segments {
    streams: HashMap<(Endpoint, Endpoint), Stream>,
    /// For each packet with data, its direction and the sequence number of its first byte.
    packets: HashMap<u64, ((Endpoint, Endpoint), u32)>,
}

impl Segments {
    fn add(&mut self, packet: u64, ends: (Endpoint, Endpoint), seq: u32, bytes: &[u8]) {
        let stream = self.streams.entry(ends).or_default();
        let segment = stream.data.entry(seq).or_default();
        // A retransmission may be longer than the segment, so keep the longer one.
        if segment.len() < bytes.len() {
            *segment = bytes.to_vec();
        }
        self.packets.insert(packet, (ends, seq));
    }

    /// The bytes of a message, if all of them were captured.
    fn message(&self, (from, packet, at, len): Lies) -> Option<Vec<u8>> {
        let (ends, seq) = self.packets.get(&packet)?;
        (ends.0 == from).then_some(())?;
        self.streams
            .get(ends)?
            .take(seq.wrapping_add(at as u32), len)
    }
}

/// A message with the positions of its file handles.
fn with_handles(bytes: Vec<u8>, places: &Places) -> Message {
    let mut handles = Vec::new();
    // A handle follows its length, and both are aligned to four bytes.
    for at in (4..bytes.len()).step_by(4) {
        let len = u32::from_be_bytes([bytes[at - 4], bytes[at - 3], bytes[at - 2], bytes[at - 1]])
            as usize;
        if bytes
            .get(at..at + len)
            .is_some_and(|bytes| places.handles.contains(bytes))
        {
            handles.push((at, len));
        }
    }
    Message { bytes, handles }
}

/// The exchanges in the embedded capture.
///
/// # Errors
/// The embedded capture cannot be parsed, which a test would have caught.
pub fn exchanges() -> Result<Vec<CallAndReply>, BenchError> {
    let input = Box::new(PIECE);
    let mut source =
        FileSource::from_reader("nfs3-small".into(), input).map_err(BenchError::failed)?;
    let (mut batch, mut pipeline) = (
        PacketBatch::default(),
        Pipeline::new(Places::default(), Limits::default()),
    );
    let mut segments = Segments::default();
    let mut index = 0;
    while source.fill(&mut batch).map_err(BenchError::failed)? {
        for packet in batch.packets() {
            pipeline.on_packet(&numbered(index, &packet));
            if let Ok(Frame::Ip(ip)) = parse_frame(packet.link, packet.bytes, packet.wire_len)
                && let Ok(IpPayload::Tcp(tcp)) = parse_transport(ip.protocol, ip.payload)
            {
                let source = Endpoint {
                    address: ip.source,
                    port: tcp.source_port,
                };
                let destination = Endpoint {
                    address: ip.destination,
                    port: tcp.destination_port,
                };
                segments.add(index, (source, destination), tcp.seq, tcp.payload.bytes);
            }
            index += 1;
        }
    }
    let (places, _) = pipeline.finish();
    let found: Vec<CallAndReply> = places
        .exchanges
        .iter()
        .filter_map(|(procedure, call, reply)| {
            let (call, reply) = (segments.message(*call)?, segments.message(*reply)?);
            let exchange = CallAndReply {
                procedure: *procedure,
                call: with_handles(call, &places),
                reply: with_handles(reply, &places),
            };
            exchange.is_whole().then_some(exchange)
        })
        .collect();
    match found.is_empty() {
        true => Err(BenchError::failed("the built-in capture has no exchange")),
        false => Ok(found),
    }
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

impl Message {
    /// A copy with another xid, and with the handles of another set of files.
    fn varied(&self, xid: u32, files: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        put(&mut bytes, 0, xid);
        for (at, len) in &self.handles {
            // The last eight bytes hold the file's number or part of it; either way, different handles stay different.
            for (byte, other) in bytes[at + len - len.min(&8)..]
                .iter_mut()
                .zip(files.to_be_bytes())
            {
                *byte ^= other;
            }
        }
        bytes
    }
}

impl CallAndReply {
    fn parts(
        &self,
    ) -> Option<(
        rpc::RpcCall<'_>,
        Args<'_>,
        rpc::RpcReply<'_>,
        v3::Results<'_>,
    )> {
        let rpc::RpcMessage::Call(call) = rpc::parse(&self.call.bytes).ok()? else {
            return None;
        };
        let rpc::RpcMessage::Reply(reply) = rpc::parse(&self.reply.bytes).ok()? else {
            return None;
        };
        let cursor = |bytes| brunt_wire::Cursor::new(bytes);
        let args = v3::parse_args(
            self.procedure,
            &mut cursor(&self.call.bytes[call.body_at..]),
        )
        .ok()?;
        let results = v3::parse_results(
            self.procedure,
            &mut cursor(&self.reply.bytes[reply.body_at..]),
        )
        .ok()?;
        Some((call, args, reply, results))
    }

    fn is_whole(&self) -> bool {
        self.parts()
            .is_some_and(|(call, _, reply, _)| call.xid == reply.xid)
    }

    /// Whether the call succeeded.
    pub fn succeeded(&self) -> bool {
        self.parts()
            .is_some_and(|(_, _, _, results)| results.status == v3::Status::OK)
    }

    /// The call and its reply for another set of files.
    pub fn varied(&self, xid: u32, files: u32) -> (Vec<u8>, Vec<u8>) {
        (self.call.varied(xid, files), self.reply.varied(xid, files))
    }

    /// A READ at another offset that is answered with `data`.
    ///
    /// # Panics
    /// The exchange is not a successful READ.
    pub fn read(&self, xid: u32, files: u32, offset: u64, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut call, mut reply) = self.varied(xid, files);
        // READ3args end with offset and count.
        let end = call.len();
        call[end - 12..end - 4].copy_from_slice(&offset.to_be_bytes());
        put(&mut call, end - 4, data.len() as u32);
        // READ3resok: attributes, count, eof, data.
        let (_, _, header, results) = self.parts().expect("the message is complete");
        let ResultBody::Read { attributes, .. } = results.body else {
            panic!("no READ found")
        };
        let count_at = header.body_at + 4 + if attributes.is_some() { 4 + 84 } else { 4 };
        reply.truncate(count_at);
        for word in [data.len() as u32, 0, data.len() as u32] {
            reply.extend_from_slice(&word.to_be_bytes());
        }
        reply.extend_from_slice(data);
        reply.resize(reply.len().next_multiple_of(4), 0);
        (call, reply)
    }

    /// A WRITE of `data` at another offset.
    ///
    /// # Panics
    /// The exchange is not a successful WRITE.
    pub fn write(&self, xid: u32, files: u32, offset: u64, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut call, mut reply) = self.varied(xid, files);
        let (header, args, ..) = self.parts().expect("the message is complete");
        let Args::Write { file, .. } = args else {
            panic!("no WRITE found")
        };
        // WRITE3args: handle, offset, count, stable, data.
        let offset_at = header.body_at + 4 + file.0.len().next_multiple_of(4);
        call[offset_at..offset_at + 8].copy_from_slice(&offset.to_be_bytes());
        put(&mut call, offset_at + 8, data.len() as u32);
        call.truncate(offset_at + 16);
        call.extend_from_slice(&(data.len() as u32).to_be_bytes());
        call.extend_from_slice(data);
        call.resize(call.len().next_multiple_of(4), 0);
        // WRITE3resok ends with count, committed, verifier.
        let end = reply.len();
        put(&mut reply, end - 16, data.len() as u32);
        (call, reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most procedures occur, and each modified exchange is parsed back with its changes.
    #[test]
    fn modified_exchanges_are_parsed_back() {
        let all = exchanges().unwrap();
        let procedures: BTreeSet<Procedure> =
            all.iter().map(|exchange| exchange.procedure).collect();
        assert!(
            all.len() >= 350 && procedures.len() >= 15,
            "{} of {procedures:?}",
            all.len()
        );
        let of = |procedure| {
            all.iter()
                .find(|exchange| exchange.procedure == procedure && exchange.succeeded())
                .unwrap()
        };
        let again = |call: Vec<u8>, reply: Vec<u8>, procedure| {
            let message = |bytes| Message {
                bytes,
                handles: Vec::new(),
            };
            CallAndReply {
                procedure,
                call: message(call),
                reply: message(reply),
            }
        };
        let data: Vec<u8> = (0..=255).cycle().take(65_536).collect();
        let (call, reply) = of(Procedure::Read).read(7, 3, 1 << 33, &data);
        let read = again(call, reply, Procedure::Read);
        let (call, args, reply, results) = read.parts().unwrap();
        assert_eq!((call.xid, reply.xid), (rpc::Xid(7), rpc::Xid(7)));
        assert!(
            matches!(
                args,
                Args::Read {
                    offset: 0x2_0000_0000,
                    count: 65_536,
                    ..
                }
            ),
            "{args:?}"
        );
        let ResultBody::Read {
            count: 65_536,
            data: moved,
            ..
        } = results.body
        else {
            panic!("{results:?}")
        };
        assert_eq!(moved.bytes, data);
        let (call, reply) = of(Procedure::Write).write(8, 3, 513, &data);
        let write = again(call, reply, Procedure::Write);
        let (_, args, _, results) = write.parts().unwrap();
        let Args::Write {
            offset: 513,
            count: 65_536,
            data: moved,
            ..
        } = args
        else {
            panic!("{args:?}")
        };
        assert_eq!(moved.bytes, data);
        assert!(
            matches!(results.body, ResultBody::Write { count: 65_536, .. }),
            "{results:?}"
        );
        // Another set of files has different handles of the same lengths; the same set has the same handles.
        let lookup = of(Procedure::Lookup);
        assert!(!lookup.call.handles.is_empty() && !lookup.reply.handles.is_empty());
        assert_ne!(lookup.varied(1, 1), lookup.varied(1, 2));
        assert_eq!(lookup.varied(1, 0).0[4..], lookup.call.bytes[4..]);
    }
}
