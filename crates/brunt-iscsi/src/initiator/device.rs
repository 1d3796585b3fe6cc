//! The initiator as a device: sessions on the thread's ring.
//!
//! [`InitiatorSession`] implements the protocol rules; this module moves the bytes. Long payloads are received
//! directly into their request's buffer; short payloads are parsed, many from a single receive. All pending commands
//! are sent in one vectored call. Requests allocate nothing.
//!
//! A lost session is restored as [`ReconnectState`] specifies (first after the target's Time2Wait), for as long as the
//! URL's `reconnect` allows; unanswered requests are sent again on the new session. A permanent refusal (such as a
//! wrong secret) ends the attempts at once. After that, every request fails with [`DeviceError::Gone`].
//!
//! The one rule: connecting happens on another thread, which passes the sockets to the device; `submit` and `poll`
//! never wait.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brunt_block::socket::SocketOptions;
use brunt_block::stream::PLACE_BYTES_MIN;
use brunt_block::table::{BackendEntry, Opened, UrlOptions};
use brunt_block::{
    Backend, Completion, Device, DeviceError, DeviceInfo, Health, Lent, OpenError, PayloadPlace,
    ReconnectState, Reconnecting, Request, Ring, StorageId, Stream, hand_out,
};
use brunt_core::{Clock, Nanos};
use brunt_wire::iscsi::digest;
use brunt_wire::iscsi::pdu::{Bhs, DIGEST_BYTES, padded};
use brunt_wire::scsi::unit_names;
use zerocopy::IntoBytes;

use super::command::{Facts, UnmapBy};
use super::connect::{self, ConnectError, Established};
use super::session::{
    DEPTH_MAX, DataDestination, DataRange, InitiatorSession, Outgoing, SessionConfig, Violation,
};
use super::url::{InitiatorConfig, OPTIONS};
use crate::device_errors;

/// Size of the receive buffer: twice 32 responses of 4 KiB with headers; it still fits in the L2 cache.
const RX_BYTES: usize = 256 << 10;

/// This backend's entry in the table of backends.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "iscsi",
    help: "a LUN of an iSCSI target, without a kernel driver",
    example: "iscsi://127.0.0.1:3260/iqn.2026-11.io.brunt:t0/0",
    options: OPTIONS,
    open: open_entry,
    preview: |place, options| config(place, options).map(|_| None),
};

fn open_entry(place: &str, options: &mut UrlOptions) -> Opened {
    Ok(Arc::new(Initiator::open(config(place, options)?)?))
}

fn config(place: &str, options: &mut UrlOptions) -> Result<InitiatorConfig, OpenError> {
    let config = InitiatorConfig::parse(place, options, &|key| std::env::var(key).ok())?;
    if config.target.is_empty() {
        return Err(OpenError::Refused(format!(
            "{} names a portal without a LUN; add /target-name/lun ('brunt io targets URL' lists \
             the names)",
            config.name()
        )));
    }
    Ok(config)
}

/// A LUN whose properties are known from a first login.
#[derive(Debug)]
pub struct Initiator {
    config: InitiatorConfig,
    info: DeviceInfo,
    facts: Facts,
    storage: Vec<StorageId>,
    /// The session from the first login, which the first device takes over.
    spare: Mutex<Option<([u8; 6], Established)>>,
}

impl Initiator {
    /// Logs in and queries the LUN.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn open(config: InitiatorConfig) -> Result<Initiator, ConnectError> {
        let isid = connect::random_isid();
        let established = connect::establish(&config, isid)?;
        let facts = established.facts.clone();
        let params = &established.attachment.connections[0].1;
        let yes = |value| if value { "yes" } else { "no" };
        let crc = |value| if value { "CRC32C" } else { "none" };
        let mut fact_lines = vec![
            identity(&facts),
            format!(
                "iSCSI: digests header {}, data {}; InitialR2T {}, ImmediateData {}; segments {} in, {} out; \
                 bursts first {}, max {}; MaxOutstandingR2T {}",
                crc(params.header_digest),
                crc(params.data_digest),
                yes(params.initial_r2t),
                yes(params.immediate_data),
                params.max_recv_data_segment_length,
                params.peer_max_recv_data_segment_length,
                params.first_burst_length,
                params.max_burst_length,
                params.max_outstanding_r2t
            ),
        ];
        let mut notes = Vec::new();
        if config.sockets != SocketOptions::default() {
            for socket in &established.sockets {
                config.sockets.apply(socket).map_err(|error| {
                    ConnectError::Io(
                        config.address.clone(),
                        "setting its socket's options",
                        error,
                    )
                })?;
            }
            notes.extend(config.sockets.complaint(&established.sockets[0]));
        }
        fact_lines.extend(config.sockets.facts(&established.sockets[0]));
        if facts.unmap_by != UnmapBy::Nothing && !facts.unmapped_reads_zeros {
            notes.push("unmapped blocks may not read as zeros (LBPRZ=0)".to_string());
        }
        let info = DeviceInfo {
            name: config.name(),
            block_bytes: facts.block_bytes,
            size_bytes: facts.size_bytes,
            physical_block_bytes: facts.physical_block_bytes,
            buffer_align: 1,
            transfer_bytes_max: facts.transfer_bytes_max,
            read_only: facts.read_only,
            volatile_cache: facts.volatile_cache,
            unmap: facts.unmap_by != UnmapBy::Nothing,
            facts: fact_lines,
            notes,
        };
        Ok(Initiator {
            storage: storage(&config, &established),
            config,
            info,
            facts,
            spare: Mutex::new(Some((isid, established))),
        })
    }
}

/// Vendor, product and serial number of the LUN.
fn identity(facts: &Facts) -> String {
    let serial = facts.serial.as_ref();
    let serial = serial.map(|serial| format!(", serial number {serial}"));
    format!(
        "{} {} {}{}",
        facts.vendor,
        facts.product,
        facts.revision,
        serial.unwrap_or_default()
    )
}

/// Identifies the LUN by its path, with both the portal's name and its address, and by the LUN's own names: a portal
/// may have several names, and a LUN several portals. If a LUN has no unique name, it is the same as another if they
/// look alike and their LUN numbers and target names match; iSCSI requires target names to be unique.
fn storage(config: &InitiatorConfig, established: &Established) -> Vec<StorageId> {
    let facts = &established.facts;
    let peer = established.sockets.first().map(TcpStream::peer_addr);
    let path = format!("{}/{}", config.target, config.lun);
    let by_address = peer.and_then(Result::ok).map(|peer| {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        format!("iscsi://{peer}/{path}")
    });
    let serial = facts.serial.as_deref();
    let (names, size_bytes) = (&facts.names, facts.size_bytes);
    let alike = unit_names::likeness(&facts.vendor, &facts.product, serial, names, size_bytes);
    let of_target = alike.as_ref().map(|alike| format!("iscsi {path} {alike}"));
    std::iter::once(config.name())
        .chain(by_address)
        .chain(facts.names.unique.iter().cloned())
        .chain(of_target)
        .map(StorageId::Remote)
        .chain(alike.map(StorageId::Alike))
        .collect()
}

impl Backend for Initiator {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        self.storage.clone()
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into()); // sockets are not polled
        }
        let sessions = u32::from(self.config.sessions);
        let depth = depth.div_ceil(sessions).clamp(1, DEPTH_MAX);
        let mut links = Vec::new();
        for _ in 0..sessions {
            let spare = self
                .spare
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .take();
            let (isid, established) = match spare {
                Some(spare) => spare,
                None => {
                    let isid = connect::random_isid();
                    (isid, connect::establish(&self.config, isid)?)
                }
            };
            links.push(SessionLink::new(self, ring, depth, isid, established)?);
        }
        Ok(Box::new(InitiatorDevice {
            info: self.info.clone(),
            links,
            clock: Clock::Monotonic,
        }))
    }
}

/// One thread's sessions to a LUN.
struct InitiatorDevice {
    info: DeviceInfo,
    links: Vec<SessionLink>,
    clock: Clock,
}

impl Device for InitiatorDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        if batch.is_empty() {
            return;
        }
        let now = self.clock.now();
        hand_out(&mut self.links, batch, |link, request| {
            link.submit(request, now)
        });
        for link in &mut self.links {
            link.send(now);
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        for link in &mut self.links {
            link.poll(&self.clock, done);
        }
    }

    fn outstanding(&self) -> u32 {
        self.links
            .iter()
            .map(|link| link.session.outstanding() + link.refused.len() as u32)
            .sum()
    }

    fn deadline(&self) -> Nanos {
        self.links
            .iter()
            .map(SessionLink::deadline)
            .min()
            .unwrap_or(Nanos::MAX)
    }

    fn cancel(&mut self, tag: u64) {
        let now = self.clock.now();
        for link in &mut self.links {
            link.session.cancel(tag, now);
        }
    }

    fn health(&self) -> Health {
        let mut health = Health::default();
        for link in &self.links {
            let counts = link.session.counts();
            health.retries += counts.replays + counts.unit_attentions + counts.busy;
            health.timeouts += counts.timeouts;
            health.reconnects += link.reconnect.reconnects();
            health.connect_retries += link.connect_retries;
            if let Some(trouble) = link.reconnect.trouble() {
                health.trouble = Some(trouble.clone());
            } else if let Some((status, sense)) = counts.last {
                health.trouble = Some(device_errors::from_status(status, sense).to_string());
            } else if let Some(trouble) = &link.connect_trouble {
                health.trouble = Some(trouble.clone());
            }
        }
        health
    }
}

/// A session and its connections, or the attempt to restore them.
struct SessionLink {
    session: InitiatorSession,
    connections: Vec<ConnectionStream>,
    /// For each task, the connection that holds its data.
    lent: Vec<Option<(usize, Lent)>>,
    /// Answered tasks whose data is still being sent.
    stuck: Vec<u16>,
    /// Requests that arrived after the session had failed.
    refused: Vec<Completion>,
    reconnect: ReconnectState<Established, ConnectError>,
    ring: Ring,
    config: InitiatorConfig,
    /// The LUN's properties when the device was opened.
    facts: Facts,
    /// Failed login attempts when the device was opened.
    connect_retries: u64,
    /// Error of the first connection attempts, if any failed.
    connect_trouble: Option<String>,
}

struct ConnectionStream {
    stream: Stream,
    state: Receiving,
    header_digest: bool,
    data_digest: bool,
}

#[derive(Clone, Copy)]
enum Receiving {
    Header,
    /// A payload is being received into its task's buffer.
    Payload(Bhs, DataRange),
    /// The payload's padding and digest are still expected.
    Trailer(Bhs, DataRange),
}

/// Why a connection must be dropped.
enum ReceiveError {
    Violation(Violation),
    Digest(&'static str),
}

impl From<Violation> for ReceiveError {
    fn from(violation: Violation) -> ReceiveError {
        ReceiveError::Violation(violation)
    }
}

impl SessionLink {
    fn new(
        initiator: &Initiator,
        ring: &Ring,
        depth: u32,
        isid: [u8; 6],
        established: Established,
    ) -> Result<SessionLink, OpenError> {
        let config = initiator.config.clone();
        let session_config = SessionConfig {
            lun: config.lun_field(),
            depth,
            timeout: config.timeout,
            keepalive: config.keepalive,
            tries: config.tries,
            attribute: config.attribute,
        };
        let facts = initiator.facts.clone();
        let again = config.clone();
        let connect = move |limit| connect::establish_once(&again, isid, limit);
        let mut link = SessionLink {
            session: InitiatorSession::new(session_config, facts.clone(), ring.pool().clone()),
            connections: Vec::new(),
            lent: vec![None; depth as usize],
            stuck: Vec::with_capacity(depth as usize),
            refused: Vec::new(),
            reconnect: ReconnectState::up(config.reconnect, config.timeout, ring, connect),
            ring: ring.clone(),
            config,
            facts,
            connect_retries: established.retries.into(),
            connect_trouble: established.trouble.clone(),
        };
        let now = Clock::Monotonic.now();
        link.bring_up(established, now).map_err(|error| {
            let address = link.config.address.clone();
            ConnectError::Io(address, "setting up its sockets", error)
        })?;
        Ok(link)
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        if self.reconnect.is_dead() {
            let Request { tag, buf, .. } = request;
            self.refused.push(Completion {
                tag,
                buf,
                result: Err(DeviceError::Gone),
            });
            return;
        }
        self.session
            .submit(request, now)
            .expect("only sessions with a free slot are chosen");
    }

    fn deadline(&self) -> Nanos {
        if !self.refused.is_empty() {
            return Nanos(0);
        }
        self.reconnect.deadline().min(self.session.deadline())
    }

    /// Sends everything that is ready.
    fn send(&mut self, now: Nanos) {
        if !self.reconnect.is_up() {
            return;
        }
        self.session.schedule(now);
        for number in 0..self.connections.len() {
            while let Some(outgoing) = self.session.pull(number) {
                self.push(number, &outgoing);
            }
            let stream = &mut self.connections[number].stream;
            stream.flush();
            stream.arm();
        }
    }

    fn push(&mut self, number: usize, outgoing: &Outgoing) {
        let connection = &mut self.connections[number];
        let stream = &mut connection.stream;
        let header = outgoing.bhs.as_bytes();
        stream.push_bytes(header);
        if connection.header_digest {
            stream.push_bytes(&digest::digest(header));
        }
        let Some(DataRange { task, start, len }) = outgoing.data else {
            return;
        };
        let slot = &mut self.lent[usize::from(task)];
        let lent = match *slot {
            Some((_, lent)) => lent,
            None => {
                let lent = stream.lend(std::mem::take(self.session.data(task)));
                *slot = Some((number, lent));
                lent
            }
        };
        stream.push_lent(lent, start, len);
        stream.push_bytes(&[0; 3][..padded(len) - len]);
        if connection.data_digest {
            let digest = digest::padded_digest(&stream.lent_bytes(lent)[start..start + len]);
            stream.push_bytes(&digest);
        }
    }

    fn poll(&mut self, clock: &Clock, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        if self.reconnect.is_dead() {
            return self.complete(clock.now(), done);
        }
        if !self.reconnect.is_up() {
            self.continue_reconnecting(clock.now());
            self.complete(clock.now(), done);
            self.send(clock.now());
            return;
        }
        let now = clock.now();
        let mut trouble = None;
        for number in 0..self.connections.len() {
            let event = self.connections[number].stream.poll();
            // Checked for every connection, even without an event from the ring: a payload's destination may have
            // been filled from bytes that had already arrived.
            if event.received
                && let Err(why) = self.receive(number, now)
            {
                trouble = Some(match why {
                    ReceiveError::Violation(violation) => violation.to_string(),
                    ReceiveError::Digest(what) => {
                        format!("wrong {what} digest: data was corrupted in transit")
                    }
                });
                break;
            }
            if event.ended && self.session.lost().is_none() {
                let kind = self.connections[number].stream.ended();
                trouble = Some(match kind {
                    Some(io::ErrorKind::UnexpectedEof) | None => {
                        "the target closed the connection".to_string()
                    }
                    Some(kind) => format!("the connection failed: {kind}"),
                });
                break;
            }
        }
        self.session.on_time(now);
        if let Some(why) = trouble {
            self.lose(why, Duration::ZERO, now);
        } else if let Some(loss) = self.session.lost() {
            self.lose(loss.why.to_string(), loss.wait, now);
        }
        self.complete(now, done);
        self.send(now);
    }

    /// Parses the bytes received on one connection. (Long because it is one state machine: a PDU's header, payload and
    /// trailer depend on each other's lengths.)
    fn receive(&mut self, number: usize, now: Nanos) -> Result<(), ReceiveError> {
        let session = &mut self.session;
        let ConnectionStream {
            stream,
            state,
            header_digest,
            data_digest,
        } = &mut self.connections[number];
        let (header_digest, data_digest) = (*header_digest, *data_digest);
        loop {
            match *state {
                Receiving::Header => {
                    let bytes = stream.bytes();
                    let Some(&bhs) = Bhs::peek(bytes) else {
                        return Ok(());
                    };
                    let data_offset = bhs.data_offset(header_digest);
                    if bytes.len() < data_offset {
                        return Ok(());
                    }
                    if header_digest {
                        let (header, sent) =
                            bytes[..data_offset].split_at(data_offset - DIGEST_BYTES);
                        if digest::digest(header) != sent {
                            return Err(ReceiveError::Digest("header"));
                        }
                    }
                    let payload = session.on_header(number, &bhs)?;
                    let total = bhs.total_len(header_digest, data_digest);
                    if bytes.len() >= total {
                        let rest = &bytes[data_offset..total];
                        let len = bhs.data_len();
                        if data_digest && len > 0 {
                            let (data, sent) = rest.split_at(padded(len));
                            if digest::digest(data) != sent {
                                return Err(ReceiveError::Digest("data"));
                            }
                        }
                        match payload {
                            DataDestination::Task(piece) => {
                                session.data(piece.task)[piece.start..piece.start + piece.len]
                                    .copy_from_slice(&rest[..len]);
                                session.on_pdu(number, &bhs, &[], now)?;
                            }
                            DataDestination::Short => {
                                session.on_pdu(number, &bhs, &rest[..len], now)?
                            }
                        }
                        stream.consume(total);
                        continue;
                    }
                    match payload {
                        DataDestination::Task(piece)
                            if stream.wants_place(total - bytes.len(), total) =>
                        {
                            stream.consume(data_offset);
                            let buf = std::mem::take(session.data(piece.task));
                            stream.place(PayloadPlace::Buf(buf), piece.start as u64, piece.len);
                            *state = Receiving::Payload(bhs, piece);
                        }
                        // The rest is short and will fit: SHORT_DATA_BYTES_MAX is below the buffer size.
                        _ => return Ok(()),
                    }
                }
                Receiving::Payload(bhs, piece) => {
                    let Some(place) = stream.take_placed() else {
                        return Ok(());
                    };
                    let PayloadPlace::Buf(buf) = place else {
                        unreachable!("only buffers are destinations")
                    };
                    *session.data(piece.task) = buf;
                    *state = Receiving::Trailer(bhs, piece);
                }
                Receiving::Trailer(bhs, piece) => {
                    let pad = padded(piece.len) - piece.len;
                    let trailer = pad + if data_digest { DIGEST_BYTES } else { 0 };
                    let Some(bytes) = stream.bytes().get(..trailer) else {
                        return Ok(());
                    };
                    if data_digest {
                        let data = &session.data(piece.task)[piece.start..piece.start + piece.len];
                        if digest::padded_digest(data) != bytes[pad..] {
                            return Err(ReceiveError::Digest("data"));
                        }
                    }
                    stream.consume(trailer);
                    *state = Receiving::Header;
                    session.on_pdu(number, &bhs, &[], now)?;
                }
            }
        }
    }

    /// Retires answered tasks whose data has been returned.
    fn complete(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        for _ in 0..self.stuck.len() {
            let task = self.stuck.remove(0);
            self.finish(task, now, done);
        }
        while let Some(task) = self.session.next_answered() {
            self.finish(task, now, done);
        }
    }

    fn finish(&mut self, task: u16, now: Nanos, done: &mut Vec<Completion>) {
        let slot = &mut self.lent[usize::from(task)];
        if let Some((number, lent)) = *slot {
            match self.connections[number].stream.reclaim(lent) {
                Some(buf) => {
                    *slot = None;
                    *self.session.data(task) = buf;
                }
                // The task was answered before its data was completely sent; the stream still needs the data.
                None => return self.stuck.push(task),
            }
        }
        if let Some(retired) = self.session.retire(task, now) {
            done.push(Completion {
                tag: retired.tag,
                buf: retired.buf,
                result: retired.result,
            });
        }
    }

    // ---- loss and recovery

    /// Takes all data back from the connections and starts to reconnect.
    fn lose(&mut self, why: String, wait: Duration, now: Nanos) {
        for connection in &mut self.connections {
            if let (Some(PayloadPlace::Buf(buf)), Receiving::Payload(_, piece)) =
                (connection.stream.abort(), connection.state)
            {
                *self.session.data(piece.task) = buf;
            }
        }
        for (task, slot) in self.lent.iter_mut().enumerate() {
            if let Some((number, lent)) = slot.take() {
                let buf = self.connections[number].stream.reclaim(lent);
                *self.session.data(task as u16) =
                    buf.expect("an aborted stream returns its buffers");
            }
        }
        self.connections.clear();
        self.session.detach();
        self.start_reconnecting(&why, wait, now);
    }
}

impl Reconnecting for SessionLink {
    type Connection = Established;
    type Error = ConnectError;

    fn reconnect(&self) -> &ReconnectState<Established, ConnectError> {
        &self.reconnect
    }

    fn reconnect_mut(&mut self) -> &mut ReconnectState<Established, ConnectError> {
        &mut self.reconnect
    }

    fn name(&self) -> String {
        self.config.name()
    }

    /// Detects that a different LUN has taken the place of the opened one, so that nothing is written to it.
    fn changed(&self, established: &Established) -> Option<String> {
        let (old, new) = (&self.facts, &established.facts);
        if !old.may_be_same(new) {
            return Some("after the reconnect, the path leads to a different LUN".to_string());
        }
        let same_size = new.size_bytes == old.size_bytes && new.block_bytes == old.block_bytes;
        (!same_size).then(|| "after the reconnect, the LUN has a different size".to_string())
    }

    fn bring_up(&mut self, established: Established, now: Nanos) -> io::Result<()> {
        let Established {
            sockets,
            attachment,
            facts,
            ..
        } = established;
        let mut connections = Vec::with_capacity(sockets.len());
        for (socket, (_, params, _)) in sockets.into_iter().zip(&attachment.connections) {
            let stream = Stream::new(&self.ring, socket, RX_BYTES)?;
            self.config.sockets.apply(stream.socket())?;
            connections.push(ConnectionStream {
                stream,
                state: Receiving::Header,
                header_digest: params.header_digest,
                data_digest: params.data_digest,
            });
        }
        self.connections = connections;
        self.session.attach(attachment, facts, now);
        // Starts receiving, so that pings and messages are handled before the first command.
        for connection in &mut self.connections {
            connection.stream.arm();
        }
        Ok(())
    }

    fn fail_all(&mut self) {
        self.session.fail_all(DeviceError::Gone);
    }

    fn room(&self) -> usize {
        self.session.room()
    }

    fn in_session(&self) -> u32 {
        self.session.outstanding()
    }
}

impl Drop for SessionLink {
    /// Logs out if that is possible without waiting, so that the target frees the session at once.
    fn drop(&mut self) {
        use io::Write;
        if !self.reconnect.is_up() || self.session.outstanding() > 0 {
            return;
        }
        let logout = self.session.logout_pdu();
        let Some(connection) = self.connections.first_mut() else {
            return;
        };
        if connection.stream.queued_bytes() == 0 {
            let mut bytes = logout.as_bytes().to_vec();
            if connection.header_digest {
                bytes.extend_from_slice(&digest::digest(logout.as_bytes()));
            }
            let _ = (&mut connection.stream.socket()).write_all(&bytes);
        }
    }
}

const _: () =
    assert!(super::session::SHORT_DATA_BYTES_MAX + (4 << 10) + PLACE_BYTES_MIN < RX_BYTES);
