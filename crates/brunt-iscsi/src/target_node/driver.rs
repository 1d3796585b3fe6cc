//! Runs one connection in full-feature phase, in turns on its worker's ring. A turn reads all available data, has
//! [`TargetConnection`] handle every PDU in it, and queues all responses for one vectored call, which at depth 32 is a
//! single call for many commands. Write payloads are received directly into their destination; read payloads are sent
//! in place, without a copy. The one rule: `connection` decides what a PDU means; this module only moves bytes, and
//! never waits.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use brunt_block::sparse::SparseMemory;
use brunt_block::stream::Lent;
use brunt_block::{Buf, IdleTimer, Inline, PayloadPlace, Ring, Stream};
use brunt_core::{Clock, Nanos};
use brunt_wire::iscsi::digest::{digest, padded_digest, received_digest};
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES, padded};
use zerocopy::IntoBytes;

use super::connection::{
    Broken, CommandBegun, ConnectionContext, ConnectionIo, DataOut, Destination, IsDone, KeepAlive,
    Received, TargetConnection,
};
use super::counters::LiveCounters;
use super::listeners::{CurrentListeners, Portal};
use super::login::LoggedInConnection;
use super::session::{
    CommandWindow, ConnectionHandle, ConnectionMessage, Reach, SESSION_TASKS_MAX, SessionTable,
    TargetSession,
};
use super::units::Units;
use crate::scsi::{CommandOutcome, DataIn, LunMap, TransportCommand};

/// Size of the receive buffer: one receive call can get 32 write commands of 4 KiB with their data, but for a burst
/// of large writes, no more than this has to be copied.
const RX_BYTES: usize = 160 << 10;
/// A data segment up to this length is copied from the receive buffer if it is already there; a longer one is received
/// directly into its destination.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Limit on queued responses and promised data, in bytes; beyond it, no further PDUs are processed.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
/// The tag of a command that has already been answered.
const NO_TAG: u64 = u64::MAX;
/// Time for the peer to receive the last response.
const LAST_RESPONSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// State shared by all connections of a process.
pub struct SharedTarget {
    /// The sessions and their targets.
    pub table: SessionTable,
    /// Keep-alive settings of all connections.
    pub keep_alive: KeepAlive,
    /// The portals, and the settings for new connections.
    pub listeners: CurrentListeners,
    /// Whether workers poll instead of sleeping.
    pub poll: bool,
}

/// Why a connection ended, other than by logout or by its peer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The ring or the socket failed.
    #[error("cannot set up the connection's ring: {0}")]
    Io(#[from] std::io::Error),
    /// A logical unit could not be opened.
    #[error("LUN {lun}: {source}")]
    Unit {
        /// Its LUN.
        lun: u16,
        /// The backend's error.
        source: brunt_block::OpenError,
    },
    /// The initiator violated the protocol.
    #[error("the initiator violated the protocol: {0}")]
    Protocol(#[from] Broken),
}

/// What a connection needs next.
#[derive(Clone, Copy, Debug)]
pub(super) enum DriverStep {
    /// Call the connection again when it has something to process, at this time at the latest.
    Wait {
        deadline: Nanos,
        /// Whether the connection has become idle and released its memory, which the ring can return.
        is_idle: bool,
    },
    /// The connection has ended: call [`ConnectionDriver::end`].
    Over,
}

/// A connection on a worker's ring.
pub(super) struct ConnectionDriver<'a> {
    io: SocketIo<'a>,
    session: Arc<TargetSession>,
    connection: TargetConnection,
    input: Input,
    live: Arc<LiveCounters>,
    idle: IdleTimer,
    /// When to close the connection, even if its last response has not been sent.
    close_at: Option<Nanos>,
}

impl<'a> ConnectionDriver<'a> {
    /// Puts a connection that has logged in on the ring. `early` is the data received after the last login request.
    ///
    /// # Errors
    /// The socket or a logical unit can't be opened.
    pub fn open(
        ring: &Ring,
        logged_in: LoggedInConnection,
        socket: TcpStream,
        early: &[u8],
        shared: &'a SharedTarget,
        live: &Arc<LiveCounters>,
    ) -> Result<ConnectionDriver<'a>, ConnectionError> {
        let LoggedInConnection {
            session,
            cid,
            connection_id,
            handle,
            params,
            stat_sn,
        } = logged_in;
        let local = socket.local_addr()?;
        let mut stream = Stream::new(ring, socket, RX_BYTES.max(early.len()))?;
        shared.listeners.get().sockets.apply(stream.socket())?;
        stream.preload(early);
        handle.set_waker(ring.waker());
        let discovery = session.target().is_none();
        let luns = session.target().map_or_else(
            || LunMap::new(Vec::new()),
            |target| Arc::clone(&target.luns),
        );
        let units = Units::open(&luns, ring, session.nexus(), SESSION_TASKS_MAX)
            .map_err(|(lun, source)| ConnectionError::Unit { lun, source })?;
        let (header_digest, data_digest) = (params.header_digest, params.data_digest);
        let connection = TargetConnection::new(
            connection_id,
            session.tsih(),
            cid,
            discovery,
            params,
            stat_sn,
        );
        Ok(ConnectionDriver {
            io: SocketIo {
                stream,
                ring: ring.clone(),
                units,
                shared,
                session: Arc::clone(&session),
                handle,
                connection_id,
                local,
                header_digest,
                data_digest,
                lent: Vec::new(),
                zeros_digest: (0, [0; DIGEST_BYTES]),
            },
            session,
            connection,
            input: Input::new(),
            live: Arc::clone(live),
            idle: IdleTimer::new(Clock::Monotonic.now()),
            close_at: None,
        })
    }

    /// Processes everything that has arrived and queues the responses; the caller then enters the ring.
    ///
    /// # Errors
    /// The connection can't continue: call [`ConnectionDriver::end`].
    pub fn turn(&mut self, now: Nanos) -> Result<DriverStep, ConnectionError> {
        let ConnectionDriver {
            io,
            session,
            connection,
            input,
            ..
        } = self;
        let event = io.stream.poll();
        input.received |= event.received;
        if event.sent && !io.lent.is_empty() {
            let stream = &mut io.stream;
            io.lent.retain(|&lent| stream.reclaim(lent).is_none());
        }
        let (mut deadline, turn) = io.process(session, connection, input, now)?;
        let received = std::mem::take(&mut input.received);
        if let Some(other) = turn.filter(|&other| other != io.connection_id) {
            io.shared.table.notify_turn(other);
        }
        self.live.set(connection.counters());
        io.units.submit();
        io.stream.flush();
        if connection.is_closing() {
            let until = *self
                .close_at
                .get_or_insert_with(|| now.after(LAST_RESPONSE_TIMEOUT));
            if io.stream.queued_bytes() == 0 || now >= until {
                return Ok(DriverStep::Over);
            }
            deadline = deadline.min(until);
        }
        if event.ended {
            return Ok(DriverStep::Over);
        }
        if !io.is_full(connection) {
            io.stream.arm();
        }
        let busy = received || connection.outstanding() > 0 || io.stream.queued_bytes() > 0;
        let is_idle = self.idle.becomes_idle(busy, now);
        if is_idle {
            io.stream.release();
        }
        deadline = deadline.min(self.idle.deadline());
        Ok(DriverStep::Wait {
            deadline: deadline.min(io.units.deadline()),
            is_idle,
        })
    }

    /// Aborts the connection's commands and closes its socket. Commands that its devices are executing stay with the
    /// returned connection.
    pub fn end(mut self) -> EndingConnection {
        let mut window = self.session.window();
        self.connection.on_end(&mut ConnectionContext {
            window: &mut window,
            io: &mut self.io,
        });
        drop(window);
        self.live.set(self.connection.counters());
        EndingConnection {
            units: self.io.units,
            outcomes: Vec::new(),
        }
    }
}

/// A closed connection whose devices still execute aborted commands: dropping a device would wait for them, which
/// would block all connections of the thread.
pub(super) struct EndingConnection {
    units: Units,
    outcomes: Vec<CommandOutcome>,
}

impl EndingConnection {
    /// Collects completions. Returns when to call it again at the latest, or `None` if no commands remain.
    pub fn turn(&mut self) -> Option<Nanos> {
        self.units.poll(&mut self.outcomes);
        self.outcomes.clear();
        self.units.submit();
        (self.units.outstanding() > 0).then(|| self.units.deadline())
    }
}

/// The socket side of a connection, and everything that [`TargetConnection`] accesses through it.
struct SocketIo<'a> {
    stream: Stream,
    ring: Ring,
    units: Units,
    shared: &'a SharedTarget,
    session: Arc<TargetSession>,
    handle: ConnectionHandle,
    connection_id: u64,
    local: SocketAddr,
    header_digest: bool,
    data_digest: bool,
    lent: Vec<Lent>,
    /// Length and digest of the run of zeros whose digest was computed last.
    zeros_digest: (usize, [u8; DIGEST_BYTES]),
}

/// The state that the loop processes in each turn. The vectors are reused.
struct Input {
    reader: Reader,
    messages: Vec<ConnectionMessage>,
    outcomes: Vec<CommandOutcome>,
    /// Whether data was received since the last turn.
    received: bool,
}

impl Input {
    fn new() -> Input {
        Input {
            reader: Reader {
                state: ReadState::Header,
                scratch: Vec::new(),
            },
            messages: Vec::new(),
            outcomes: Vec::new(),
            received: true,
        }
    }
}

/// The state of reading a PDU.
struct Reader {
    state: ReadState,
    scratch: Vec<u8>,
}

enum ReadState {
    Header,
    /// The data segment is being received into its destination.
    Placing(PlacedData),
    /// Padding or digest is still expected.
    Trailer(PlacedData, PayloadPlace),
}

/// A data segment that is received directly into its destination.
#[derive(Clone, Copy)]
struct PlacedData {
    start: usize,
    len: usize,
    kind: PlacedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlacedKind {
    Elsewhere,
    Buf,
    Control,
}

impl SocketIo<'_> {
    /// Processes messages, finished commands, received PDUs and timeouts. Returns when to process again at the latest,
    /// and the connection that has the session's next command, if known.
    fn process(
        &mut self,
        session: &TargetSession,
        connection: &mut TargetConnection,
        input: &mut Input,
        now: Nanos,
    ) -> Result<(Nanos, Option<u64>), ConnectionError> {
        let window = &mut *session.window();
        if self.handle.has_messages() {
            self.handle.take(&mut input.messages);
            for message in input.messages.drain(..) {
                connection.on_message(message, &mut ConnectionContext { window, io: self });
            }
        }
        self.units
            .follow()
            .map_err(|(lun, source)| ConnectionError::Unit { lun, source })?;
        self.units.poll(&mut input.outcomes);
        for outcome in input.outcomes.drain(..) {
            connection.on_outcome(outcome, &mut ConnectionContext { window, io: self });
        }
        connection.check_task_management(&mut ConnectionContext { window, io: self });
        self.read(connection, &mut input.reader, window)?;
        let keep_alive = self.shared.keep_alive;
        let deadline = connection.on_time(
            now,
            input.received,
            keep_alive,
            &mut ConnectionContext { window, io: self },
        )?;
        Ok((deadline, window.turn_of()))
    }

    fn is_full(&self, connection: &TargetConnection) -> bool {
        self.stream.queued_bytes() + connection.reading_bytes() > ANSWERS_BYTES_MAX
            && (self.stream.queued_bytes() > 0 || connection.outstanding() > 0)
    }

    /// Processes every available PDU.
    fn read(
        &mut self,
        connection: &mut TargetConnection,
        reader: &mut Reader,
        window: &mut CommandWindow,
    ) -> Result<(), Broken> {
        loop {
            match std::mem::replace(&mut reader.state, ReadState::Header) {
                ReadState::Header => {
                    if self.is_full(connection) || !self.read_header(connection, reader, window)? {
                        return Ok(());
                    }
                }
                ReadState::Placing(data) => match self.stream.take_placed() {
                    None => {
                        reader.state = ReadState::Placing(data);
                        return Ok(());
                    }
                    Some(place) => reader.state = ReadState::Trailer(data, place),
                },
                ReadState::Trailer(data, place) => {
                    if self.stream.bytes().len() < self.trailer_bytes(data.len) {
                        reader.state = ReadState::Trailer(data, place);
                        return Ok(());
                    }
                    self.finish_placed(connection, data, place, window);
                }
            }
        }
    }

    /// Length of the padding and the digest that follow a data segment.
    #[inline]
    fn trailer_bytes(&self, len: usize) -> usize {
        padded(len) - len + if self.data_digest { DIGEST_BYTES } else { 0 }
    }

    /// Processes a data segment that has reached its destination and whose trailer is at the front.
    fn finish_placed(
        &mut self,
        connection: &mut TargetConnection,
        data: PlacedData,
        place: PayloadPlace,
        window: &mut CommandWindow,
    ) {
        let PlacedData { start, len, kind } = data;
        let pad = padded(len) - len;
        let trailer = self.trailer_bytes(len);
        let bytes = self.stream.bytes();
        let ok = match &place {
            PayloadPlace::Buf(buf) if self.data_digest => {
                received_digest(&buf[start..start + len], &bytes[..pad]) == bytes[pad..trailer]
            }
            _ => true,
        };
        self.stream.consume(trailer);
        let cx = &mut ConnectionContext { window, io: self };
        match (kind, place) {
            (PlacedKind::Control, PayloadPlace::Buf(buf)) => {
                connection.on_data(Received::Control(&buf[..len]), ok, cx);
            }
            (PlacedKind::Buf, PayloadPlace::Buf(buf)) => {
                connection.on_data(Received::Buf(buf), ok, cx);
            }
            _ => connection.on_data(Received::Elsewhere, ok, cx),
        }
    }

    /// Processes the header at the front, and its data if already available. Returns false if more data is needed.
    // Long because it handles every destination twice: for data that is already here, and for data yet to come.
    fn read_header(
        &mut self,
        connection: &mut TargetConnection,
        reader: &mut Reader,
        window: &mut CommandWindow,
    ) -> Result<bool, Broken> {
        let bytes = self.stream.bytes();
        let Some(&bhs) = Bhs::peek(bytes) else {
            return Ok(false);
        };
        let head = bhs.data_offset(self.header_digest);
        if bytes.len() < head {
            return Ok(false);
        }
        let protected = BHS_BYTES + bhs.ahs_len();
        if self.header_digest && digest(&bytes[..protected]) != bytes[protected..head] {
            connection.count_digest_error();
            return Err(Broken("wrong header digest"));
        }
        let destination = if bhs.ahs_len() == 0 {
            self.stream.consume(head);
            connection.on_header(&bhs, &[], &mut ConnectionContext { window, io: self })?
        } else {
            reader.scratch.clear();
            reader
                .scratch
                .extend_from_slice(&bytes[BHS_BYTES..protected]);
            self.stream.consume(head);
            connection.on_header(
                &bhs,
                &reader.scratch,
                &mut ConnectionContext { window, io: self },
            )?
        };
        let len = bhs.data_len();
        if len == 0 {
            return Ok(true);
        }
        let pad = padded(len) - len;
        let whole = len + pad + if self.data_digest { DIGEST_BYTES } else { 0 };
        let bytes = self.stream.bytes();
        if len <= COPY_BYTES_MAX && bytes.len() >= whole {
            let (data, rest) = bytes[..whole].split_at(len);
            let ok = !self.data_digest || received_digest(data, &rest[..pad]) == rest[pad..];
            let received = match destination {
                Destination::None | Destination::Discard => Received::Elsewhere,
                Destination::Buf(mut buf, start) => {
                    buf[start..start + len].copy_from_slice(data);
                    Received::Buf(buf)
                }
                Destination::Inline { lun, tag, offset } => {
                    if let Inline::Memory(memory) = self.units.inline(lun, tag) {
                        memory.write(offset, data);
                    }
                    Received::Elsewhere
                }
                Destination::Control => {
                    reader.scratch.clear();
                    reader.scratch.extend_from_slice(data);
                    Received::Control(&reader.scratch)
                }
            };
            self.stream.consume(whole);
            connection.on_data(received, ok, &mut ConnectionContext { window, io: self });
            return Ok(true);
        }
        let (place, start, kind) = match destination {
            Destination::None | Destination::Discard => {
                (PayloadPlace::Discard, 0, PlacedKind::Elsewhere)
            }
            Destination::Buf(buf, start) => (PayloadPlace::Buf(buf), start, PlacedKind::Buf),
            Destination::Inline { lun, tag, offset } => match self.units.inline(lun, tag) {
                Inline::Memory(memory) => (
                    PayloadPlace::Memory(Arc::clone(memory)),
                    offset as usize,
                    PlacedKind::Elsewhere,
                ),
                _ => (PayloadPlace::Discard, 0, PlacedKind::Elsewhere),
            },
            Destination::Control => (
                PayloadPlace::Buf(self.ring.pool().take(len)),
                0,
                PlacedKind::Control,
            ),
        };
        self.stream.place(place, start as u64, len);
        reader.state = ReadState::Placing(PlacedData { start, len, kind });
        Ok(true)
    }

    #[inline]
    fn push_header(&mut self, bhs: &Bhs) {
        let bytes = bhs.as_bytes();
        self.stream.push_bytes(bytes);
        if self.header_digest {
            self.stream.push_bytes(&digest(bytes));
        }
    }

    fn push_trailer(&mut self, len: usize, digest: Option<[u8; DIGEST_BYTES]>) {
        let pad = padded(len) - len;
        if pad > 0 {
            self.stream.push_bytes(&[0; 3][..pad]);
        }
        if let Some(digest) = digest {
            self.stream.push_bytes(&digest);
        }
    }

    fn zeros_digest(&mut self, len: usize) -> [u8; DIGEST_BYTES] {
        if self.zeros_digest.0 != len {
            self.zeros_digest = (len, padded_digest(&vec![0; len]));
        }
        self.zeros_digest.1
    }
}

impl ConnectionIo for SocketIo<'_> {
    #[inline]
    fn begin(&mut self, lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun {
        self.units.begin(lun, command)
    }

    fn start(&mut self, lun: Option<u16>, tag: u64, data: DataOut) -> Option<CommandOutcome> {
        self.units.start(lun, tag, data)
    }

    fn abort(&mut self, lun: Option<u16>, tag: u64) {
        self.units.abort(lun, tag);
    }

    fn manage(&mut self, function: u8, lun: Option<u16>) -> Vec<IsDone> {
        self.units.manage(function, lun)
    }

    fn has_lun(&self, lun: u16) -> bool {
        self.units.has(lun)
    }

    fn wants_descriptor_sense(&self, lun: Option<u16>) -> bool {
        lun.is_some_and(|lun| self.units.wants_descriptor_sense(lun))
    }

    fn buffer(&mut self, len: usize) -> Buf {
        self.ring.pool().take(len)
    }

    fn send(&mut self, bhs: &Bhs, data: &[u8]) {
        self.push_header(bhs);
        if !data.is_empty() {
            self.stream.push_bytes(data);
            let digest = self.data_digest.then(|| padded_digest(data));
            self.push_trailer(data.len(), digest);
        }
    }

    fn send_data_in(&mut self, lun: Option<u16>, data: DataIn, pdus: &[(Bhs, u32, u32)]) {
        match data {
            DataIn::None => {}
            DataIn::Bytes(bytes) => {
                for (bhs, start, len) in pdus {
                    self.send(bhs, &bytes[*start as usize..(*start + *len) as usize]);
                }
            }
            DataIn::Inline { offset, len: whole } => {
                let inline = lun.map_or(Inline::No, |lun| self.units.inline(lun, NO_TAG).clone());
                // If the response had to wait for its command's data, the unit may have been replaced in the meantime
                // by a smaller one.
                let is_gone = |memory: &SparseMemory| offset + u64::from(whole) > memory.room();
                let inline = match inline {
                    Inline::Memory(memory) if is_gone(&memory) => Inline::Zeros,
                    inline => inline,
                };
                if let (Inline::Memory(memory), true) = (&inline, self.data_digest) {
                    // The medium could change between computing the digest and sending, so send a copy.
                    let mut buf = self.ring.pool().take(whole as usize);
                    memory.read(offset, &mut buf);
                    return self.send_data_in(lun, DataIn::Buf(buf, whole), pdus);
                }
                for (bhs, start, len) in pdus {
                    self.push_header(bhs);
                    let length = *len as usize;
                    let digest = self.data_digest.then(|| self.zeros_digest(length));
                    match &inline {
                        Inline::Memory(memory) => {
                            self.stream
                                .push_memory(memory, offset + u64::from(*start), length);
                        }
                        _ => self.stream.push_zeros(length),
                    }
                    self.push_trailer(length, digest);
                }
            }
            DataIn::Buf(buf, _) => {
                if let [(bhs, start, len)] = pdus {
                    self.push_header(bhs);
                    let (start, len) = (*start as usize, *len as usize);
                    let digest = self
                        .data_digest
                        .then(|| padded_digest(&buf[start..start + len]));
                    self.stream.push_buf(buf, start, len);
                    return self.push_trailer(len, digest);
                }
                let lent = self.stream.lend(buf);
                for (bhs, start, len) in pdus {
                    self.push_header(bhs);
                    let (start, len) = (*start as usize, *len as usize);
                    let digest = self
                        .data_digest
                        .then(|| padded_digest(&self.stream.lent_bytes(lent)[start..start + len]));
                    self.stream.push_lent(lent, start, len);
                    self.push_trailer(len, digest);
                }
                self.lent.push(lent);
            }
        }
    }

    fn log_out(&mut self, whole_session: bool) {
        self.units.log_out(whole_session);
    }

    fn close_others(&mut self, reach: Reach) {
        self.shared
            .table
            .close(self.connection_id, |other| match reach {
                Reach::TargetSession(tsih) => other.tsih() == tsih,
                Reach::Target => other.target_name() == self.session.target_name(),
            });
    }

    fn close_cid(&mut self, cid: u16) -> bool {
        self.shared.table.close_cid(self.session.tsih(), cid)
    }

    fn describe_targets(&self) -> Vec<(String, Vec<String>)> {
        let listeners = self.shared.listeners.get();
        let addresses = listeners.open.as_slice().iter().map(|open| {
            let Portal {
                listen,
                advertise,
                group,
            } = &open.portal;
            // For a portal that listens on all addresses, advertise the address that this initiator connected to.
            let ip = if listen.ip().is_unspecified() {
                self.local.ip()
            } else {
                listen.ip()
            };
            let address = || SocketAddr::new(ip.to_canonical(), listen.port()).to_string();
            format!("{},{group}", advertise.clone().unwrap_or_else(address))
        });
        let addresses: Vec<String> = addresses.collect();
        match self.session.target() {
            Some(target) => vec![(target.name.clone(), addresses)],
            None => {
                let targets = self.shared.table.directory().targets();
                targets
                    .iter()
                    .map(|target| (target.name.clone(), addresses.clone()))
                    .collect()
            }
        }
    }
}
