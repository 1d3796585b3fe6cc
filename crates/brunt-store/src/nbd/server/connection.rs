//! A client's connection: one thread, one ring, one loop. Reads all available requests, submits them to the device in
//! one batch, and sends all replies in one vectored call.
//!
//! The one rule: `requests` decides what a request may do; this module only moves bytes.

use std::collections::VecDeque;
use std::time::Duration;

use brunt_block::backends::TRANSFER_BYTES_MAX;
use brunt_block::reception::Guest;
use brunt_block::socket::{Socket, SocketOptions};
use brunt_block::{
    Buf, Completion, Device, DeviceInfo, IdleTimer, OpenError, Request, Ring, RingConfig, Stream,
    StreamEvent,
};
use brunt_core::{Clock, Nanos};
use brunt_wire::nbd::{NbdBlockSizes, NbdRequest, PAYLOAD_BYTES_DEFAULT, export_flag};
use brunt_wire::{Malformed, ParseError};

use super::memory::{Memory, Share};
use super::offer::{NbdAgreement, NbdOffer, NbdOfferError, NbdOfferStep, NbdOffered, NbdTlsPolicy};
use super::requests::{NbdRequestHandler, NbdVerdict};
use super::tally::{Tally, Totals};
use super::tls::NbdServerTls;
use super::{NbdCatalog, NbdServed, error};
use crate::channel::Channel;

/// Receive buffer for unplaced bytes: a queue of 32 writes of 4 KiB with headers.
const RX_BYTES: usize = 160 << 10;
/// Maximum requests of a connection at the device; further requests wait in the socket.
const DEPTH: u32 = 128;
/// No further requests are read beyond this many bytes of data at the device and in queued replies.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Beyond this many bytes of replies without data, no further requests are read until all replies are sent. Such
/// replies are small and need no reservation.
const SMALL_REPLIES_BYTES_MAX: usize = 128 << 10;
/// A client that has not chosen an export and has sent no option for this long is disconnected. Listing hundreds of
/// exports takes some clients minutes.
const HANDSHAKE_TIME: Duration = Duration::from_secs(60);

/// Bytes passed to the kernel at a time: the first value while connections wait for memory, so that slow clients show
/// progress, the second otherwise.
const SEND_BYTES_SHORT: usize = 128 << 10;
const SEND_BYTES: usize = 1 << 20;
/// Shorter data may be queued as a copy, like replies without data.
const SMALL_DATA_BYTES_MAX: u64 = 1024;
/// A client that has taken all its replies after this much data has priority over others. More than sockets usually
/// buffer.
const PROVEN_BYTES: u64 = 4 << 20;
/// A connection that waits for memory looks for stuck connections at a twentieth of the time after which they count as
/// stuck, within these bounds.
const STUCK_CHECK_MIN: Duration = Duration::from_millis(10);
const STUCK_CHECK_MAX: Duration = Duration::from_millis(500);

/// Why a connection ended, other than by the client disconnecting.
#[derive(Debug, thiserror::Error)]
pub(super) enum NbdServeError {
    #[error("cannot set up its ring: {0}")]
    Ring(#[from] std::io::Error),
    #[error("{0}")]
    Offer(#[from] NbdOfferError),
    #[error("the client has not chosen an export, and sent nothing for {HANDSHAKE_TIME:?}")]
    Silent,
    #[error("{name}: {source}")]
    Open { name: String, source: OpenError },
    #[error("invalid request from client: {0}")]
    Malformed(#[from] Malformed),
    #[error("the client sent a request of {0} bytes")]
    Long(u64),
    #[error(
        "closed: the client neither received nor sent data for {0:?} while other clients waited \
         for memory"
    )]
    Stuck(Duration),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Runs a connection until it ends.
pub(super) fn run(
    socket: Socket,
    guest: &Guest<'_>,
    catalog: &NbdCatalog,
    tls: Option<&NbdServerTls>,
    sockets: &SocketOptions,
    memory: &Memory,
    totals: &Totals,
) -> Result<(), NbdServeError> {
    let ring = Ring::new(RingConfig {
        arena_bytes: memory.limits().arena_bytes,
        ..RingConfig::of_connection()
    })?;
    if let Socket::Tcp(socket) = &socket {
        sockets.apply(socket)?;
    }
    let channel = Channel::new(Stream::new(&ring, socket, RX_BYTES)?, None);
    let served = catalog();
    let offered = served.iter().map(|one| offered(one, memory)).collect();
    let Some(Agreed {
        channel,
        agreement,
        served,
        offered,
    }) = shake_hands(&ring, channel, tls, served, offered)?
    else {
        return Ok(());
    };
    guest.settle();
    let device = served
        .backend
        .open(&ring, DEPTH)
        .map_err(|source| NbdServeError::Open {
            name: served.name.clone(),
            source,
        })?;
    // Declared before the buffers, so that it is dropped after them.
    let mut share = memory.join(ring.waker());
    let mut connection = ServedConnection {
        channel,
        ring: &ring,
        device,
        requests: NbdRequestHandler::new(agreement, &offered),
        served,
        tally: Tally::new(totals),
        tasks: (0..DEPTH).map(|_| None).collect(),
        free: (0..DEPTH as u16).rev().collect(),
        batch: VecDeque::with_capacity(DEPTH as usize),
        arriving: None,
        held_bytes: 0,
        share: &mut share,
        own_bytes: memory.limits().own_bytes,
        stuck_after: memory.limits().stuck_after,
        base_bytes: ring.pool().heap_bytes(),
        promised_bytes: 0,
        data_bytes: 0,
        small_bytes: 0,
        freed_bytes: 0,
        leaving: false,
    };
    let ended = connection.serve();
    drop(connection);
    drop(ring);
    if share.peak_bytes >= GIVE_BACK_BYTES {
        brunt_block::buffer::give_back();
    }
    ended
}

/// The properties of an export as announced to clients.
fn offered(served: &NbdServed, memory: &Memory) -> NbdOffered {
    let info: &DeviceInfo = served.backend.info();
    let mut flags = export_flag::HAS_FLAGS
        | export_flag::SEND_FLUSH
        | export_flag::SEND_FUA
        | export_flag::SEND_WRITE_ZEROES
        | export_flag::SEND_CACHE
        // All connections share one backend.
        | export_flag::CAN_MULTI_CONN;
    if info.unmap {
        flags |= export_flag::SEND_TRIM;
    }
    if served.backend.unmap_reads_zeros() {
        flags |= export_flag::SEND_FAST_ZERO;
    }
    if served.read_only || info.read_only {
        flags |= export_flag::READ_ONLY;
    }
    let payload_max = info
        .transfer_bytes_max
        .min(TRANSFER_BYTES_MAX)
        .min(PAYLOAD_BYTES_DEFAULT)
        .min(memory.limits().payload_max());
    NbdOffered {
        name: served.name.clone(),
        description: served.description.clone(),
        size_bytes: served.backend.medium_state().size_bytes,
        flags,
        sizes: NbdBlockSizes {
            minimum: info.block_bytes,
            preferred: info
                .physical_block_bytes
                .max(info.block_bytes)
                .next_power_of_two(),
            payload_max,
        },
    }
}

/// The result of a handshake.
struct Agreed {
    channel: Channel,
    agreement: NbdAgreement,
    served: NbdServed,
    offered: NbdOffered,
}

/// Performs the handshake on the ring; `None` if the client left.
fn shake_hands(
    ring: &Ring,
    mut channel: Channel,
    tls: Option<&NbdServerTls>,
    mut served: Vec<NbdServed>,
    offered: Vec<NbdOffered>,
) -> Result<Option<Agreed>, NbdServeError> {
    let policy = tls.map_or(NbdTlsPolicy::Absent, NbdServerTls::policy);
    let (mut offer, greeting) = NbdOffer::new(offered.clone(), policy);
    channel.push_bytes(&greeting);
    let mut until = Clock::Monotonic.now().after(HANDSHAKE_TIME);
    let mut answer = Vec::new();
    let mut ended = false;
    loop {
        while !ended && let Some(bytes) = channel.bytes().get(..offer.wants()) {
            let (len, step) = (bytes.len(), offer.on_bytes(bytes, &mut answer)?);
            channel.consume(len);
            channel.push_bytes(&answer);
            answer.clear();
            until = Clock::Monotonic.now().after(HANDSHAKE_TIME);
            match step {
                NbdOfferStep::More => {}
                NbdOfferStep::StartTls => {
                    let tls = tls.expect("TLS is negotiated only if configured");
                    channel = channel.begin_tls(tls.begin()?.into())?;
                }
                NbdOfferStep::Serve(agreement) => {
                    let index = agreement.export;
                    let (served, offered) = (served.swap_remove(index), offered[index].clone());
                    return Ok(Some(Agreed {
                        channel,
                        agreement,
                        served,
                        offered,
                    }));
                }
                NbdOfferStep::Close => {
                    channel.finish();
                    ended = true;
                }
            }
        }
        channel.flush();
        if ended && channel.queued_bytes() == 0 {
            return Ok(None);
        }
        channel.arm();
        ring.enter(until)?;
        let event = channel.poll();
        broken(&mut channel)?;
        if event.ended {
            return Ok(None);
        }
        if Clock::Monotonic.now() >= until {
            return Err(NbdServeError::Silent);
        }
    }
}

/// Ends a connection whose cipher failed, sending the client a TLS alert.
fn broken(channel: &mut Channel) -> Result<(), NbdServeError> {
    let Some(error) = channel.broken().cloned() else {
        return Ok(());
    };
    channel.say_goodbye(&[]);
    Err(error.into())
}

/// A connection that held or freed at least this many bytes returns memory to the kernel.
const GIVE_BACK_BYTES: usize = 8 << 20;

/// A connection in the transmission phase.
struct ServedConnection<'a, 'b> {
    channel: Channel,
    ring: &'a Ring,
    device: Box<dyn Device>,
    requests: NbdRequestHandler,
    served: NbdServed,
    tally: Tally<'a>,
    /// The requests at the device, by tag.
    tasks: Vec<Option<NbdRequest>>,
    free: Vec<u16>,
    batch: VecDeque<Request>,
    /// A request whose payload is being received.
    arriving: Option<(NbdRequest, NbdVerdict)>,
    /// Bytes of buffers at the device.
    held_bytes: usize,
    /// Its share of the memory of all connections.
    share: &'a mut Share<'b>,
    /// Heap memory that needs no reservation.
    own_bytes: usize,
    stuck_after: Duration,
    /// Heap memory of the ring's pool before the first request.
    base_bytes: usize,
    /// Bytes reserved for encrypting the replies to reads at the device.
    promised_bytes: usize,
    /// Bytes of data read and written by the client.
    data_bytes: u64,
    /// Bytes of replies without data since the queue was last empty.
    small_bytes: usize,
    /// Bytes freed because other connections wait, but not yet returned to the kernel.
    freed_bytes: usize,
    /// Whether the client has sent a disconnect.
    leaving: bool,
}

impl ServedConnection<'_, '_> {
    fn serve(&mut self) -> Result<(), NbdServeError> {
        let mut done = Vec::with_capacity(DEPTH as usize);
        let mut event = StreamEvent::default();
        let mut idle = IdleTimer::new(Clock::Monotonic.now());
        loop {
            self.account();
            self.read()?;
            self.device.submit(&mut self.batch);
            self.device.poll(&mut done);
            done.drain(..)
                .for_each(|completion| self.complete(completion));
            self.tally.add();
            let busy = self.device.outstanding() > 0 || !self.batch.is_empty();
            if self.leaving && !busy {
                self.channel.finish();
            }
            self.channel.flush();
            if self.leaving && !busy && self.channel.queued_bytes() == 0 {
                return Ok(());
            }
            if self.has_room() {
                self.channel.arm();
            }
            self.note(event);
            // Immediate completions may have made room for requests that were already received.
            let more = self.has_room() && self.has_request();
            let active = busy || event.received || self.channel.queued_bytes() > 0;
            if idle.becomes_idle(active, Clock::Monotonic.now()) {
                self.channel.release();
                self.ring.release();
            }
            let deadline = self.deadline().min(idle.deadline());
            self.ring.enter(if more { Nanos(0) } else { deadline })?;
            self.ring.take_woken();
            event = self.channel.poll();
            if event.ended {
                self.drain(&mut done)?;
                return broken(&mut self.channel);
            }
            if self.share.waits() {
                self.share.close_stuck(Clock::Monotonic.now());
            }
            if self.share.is_closed() {
                return Err(NbdServeError::Stuck(self.stuck_after));
            }
        }
    }

    /// The time by which the next turn is due.
    fn deadline(&self) -> Nanos {
        let deadline = self.device.deadline();
        if !self.share.waits() {
            return deadline;
        }
        let period = (self.stuck_after / 20).clamp(STUCK_CHECK_MIN, STUCK_CHECK_MAX);
        deadline.min(Clock::Monotonic.now().after(period))
    }

    /// Updates the share. If other connections wait, memory kept for reuse is freed first.
    fn account(&mut self) {
        let pool = self.ring.pool();
        let is_short = self.share.is_short();
        self.channel.set_call_bytes_max(match is_short {
            true => SEND_BYTES_SHORT,
            false => SEND_BYTES,
        });
        if is_short {
            self.freed_bytes += pool.free_kept();
            if self.freed_bytes >= GIVE_BACK_BYTES {
                self.freed_bytes = 0;
                brunt_block::buffer::give_back();
            }
        }
        self.share.set(self.shared_bytes(0));
    }

    /// Bytes of shared memory needed with `more` bytes in addition to the current ones.
    fn shared_bytes(&self, more: usize) -> usize {
        let used = self.ring.pool().heap_bytes() + self.promised_bytes + more;
        used.saturating_sub(self.base_bytes + self.own_bytes)
    }

    /// Records, for other connections, whether this connection waits for its client.
    fn note(&mut self, event: StreamEvent) {
        let unsent = self.channel.queued_bytes() > 0;
        if !unsent && self.data_bytes >= PROVEN_BYTES {
            self.share.prove();
        }
        // The connection waits for a payload only while there is room for it.
        let missing = self.arriving.is_some() && self.has_room();
        let progress = if unsent { event.sent } else { event.received };
        self.share
            .note(unsent || missing, progress, || Clock::Monotonic.now());
    }

    /// Reserves memory for a request's data and its encryption; `false` if the request has to wait.
    fn reserve(&mut self, verdict: NbdVerdict, len: u64, payload: usize) -> bool {
        let NbdVerdict::Run { op, .. } = verdict else {
            self.share.stop_waiting();
            return true;
        };
        let (len, cipher) = match op {
            brunt_block::Op::Read => (len as usize, self.channel.cipher_bytes(len as usize)),
            brunt_block::Op::Write => (payload, 0),
            _ => (0, 0),
        };
        let mut bytes = cipher;
        if len > 0 {
            bytes += self.ring.pool().bytes_to_take(len);
        }
        if !self.share.reserve_up_to(self.shared_bytes(bytes)) {
            // The connection's own memory, kept for reuse, may be enough.
            self.account();
            if !self.share.reserve_up_to(self.shared_bytes(bytes)) {
                return false;
            }
        }
        self.promised_bytes += cipher;
        true
    }

    /// Finishes after the client has stopped waiting for replies. Requests received before the end are still executed,
    /// as far as there is room, and the device returns the buffers.
    fn drain(&mut self, done: &mut Vec<Completion>) -> Result<(), NbdServeError> {
        self.read()?;
        self.device.submit(&mut self.batch);
        while self.device.outstanding() > 0 {
            self.ring.enter(self.device.deadline())?;
            self.ring.take_woken();
            self.device.poll(done);
            done.clear();
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let own = self.channel.queued_bytes() + self.held_bytes;
        let small = self.small_bytes > SMALL_REPLIES_BYTES_MAX && self.channel.queued_bytes() > 0;
        self.free.is_empty() || own > HELD_BYTES_MAX || small
    }

    /// Whether more requests may be read.
    fn has_room(&self) -> bool {
        !self.leaving && !self.is_full() && !self.share.waits()
    }

    fn has_request(&self) -> bool {
        self.arriving.is_none()
            && NbdRequest::parse(self.channel.bytes(), self.requests.headers()).is_ok()
    }

    /// Reads all available requests while there is room.
    fn read(&mut self) -> Result<(), NbdServeError> {
        while !self.leaving && !self.is_full() {
            if let Some((request, verdict)) = self.arriving {
                let Some(buf) = self.channel.take_placed() else {
                    return Ok(());
                };
                self.arriving = None;
                self.held_bytes -= buf.len();
                self.begin(request, verdict, buf);
                continue;
            }
            let bytes = self.channel.bytes();
            let (request, header_len, payload) =
                match NbdRequest::parse(bytes, self.requests.headers()) {
                    Ok(parsed) => parsed,
                    Err(ParseError::Incomplete(_)) => return Ok(()),
                    Err(ParseError::Malformed(malformed)) => return Err(malformed.into()),
                };
            if payload > PAYLOAD_BYTES_DEFAULT.into() {
                return Err(NbdServeError::Long(payload));
            }
            let payload = payload as usize;
            let mut verdict = self.requests.judge(&request);
            let is_write = matches!(
                verdict,
                NbdVerdict::Run {
                    op: brunt_block::Op::Write,
                    ..
                }
            );
            if payload > 0 && !is_write && !matches!(verdict, NbdVerdict::Refuse(..)) {
                verdict = NbdVerdict::Refuse(
                    brunt_wire::nbd::errno::INVAL,
                    "this command has no payload",
                );
            }
            let total = header_len + payload;
            let missing = total.saturating_sub(bytes.len());
            if missing > 0 && !self.channel.wants_place(missing, total) {
                return Ok(());
            }
            if !self.reserve(verdict, request.len, payload) {
                return Ok(());
            }
            let bytes = self.channel.bytes();
            if let Some(data) = bytes.get(header_len..total) {
                let mut buf = Buf::empty();
                if is_write {
                    buf = self.ring.pool().take(payload);
                    buf.copy_from_slice(data);
                }
                self.channel.consume(total);
                self.begin(request, verdict, buf);
            } else {
                self.channel.consume(header_len);
                if is_write {
                    let buf = self.ring.pool().take(payload);
                    self.held_bytes += buf.len();
                    self.channel.place(buf, 0, payload);
                } else {
                    self.channel.discard(payload);
                }
                self.arriving = Some((request, verdict));
            }
        }
        Ok(())
    }

    /// Answers a request, or submits it to the device.
    fn begin(&mut self, request: NbdRequest, verdict: NbdVerdict, buf: Buf) {
        let NbdRequest {
            cookie,
            offset,
            len,
            ..
        } = request;
        match verdict {
            NbdVerdict::Leave => {
                self.leaving = true;
                return;
            }
            NbdVerdict::Run {
                op,
                force_unit_access,
            } => {
                let tag = self
                    .free
                    .pop()
                    .expect("a request is read only if there is room");
                self.tasks[usize::from(tag)] = Some(request);
                let (buf, offset, len) = match op {
                    brunt_block::Op::Read => (self.ring.pool().take(len as usize), offset, len),
                    brunt_block::Op::Flush => (buf, 0, 0),
                    _ => (buf, offset, len),
                };
                self.held_bytes += buf.len();
                self.batch.push_back(Request {
                    tag: tag.into(),
                    op,
                    offset,
                    len,
                    buf,
                    force_unit_access,
                });
                return;
            }
            NbdVerdict::Nothing => self.push_small(&self.requests.done(cookie, offset)),
            NbdVerdict::Status => {
                let answer = self.requests.status(&request, &*self.served.backend);
                self.push_small(&answer);
            }
            NbdVerdict::Refuse(error, words) => {
                self.tally.errors += 1;
                self.push_small(&self.requests.error(cookie, offset, error, words));
            }
        }
        self.tally.requests += 1;
    }

    /// Queues a reply without data, or the header of one with data.
    fn push_small(&mut self, bytes: &[u8]) {
        if self.channel.queued_bytes() == 0 {
            self.small_bytes = 0;
        }
        self.small_bytes += bytes.len();
        self.channel.push_bytes(bytes);
    }

    /// Answers a request that the device has completed.
    fn complete(&mut self, completion: Completion) {
        let Completion { tag, buf, result } = completion;
        let request = self.tasks[tag as usize]
            .take()
            .expect("a tag belongs to a task until it completes");
        self.free.push(tag as u16);
        self.held_bytes -= buf.len();
        let NbdRequest {
            cookie,
            offset,
            len,
            command,
            ..
        } = request;
        self.tally.requests += 1;
        if command == brunt_wire::nbd::NbdCommand::Read {
            self.promised_bytes -= self.channel.cipher_bytes(len as usize);
        }
        // A recovered error counts as success.
        match result {
            Err(error) if !error.is_recovered() => {
                self.tally.errors += 1;
                let answer =
                    self.requests
                        .error(cookie, offset, error::number(&error), &error.to_string());
                self.push_small(&answer);
            }
            _ if command == brunt_wire::nbd::NbdCommand::Read => {
                self.push_small(&self.requests.data(cookie, offset, len as u32));
                if len <= SMALL_DATA_BYTES_MAX {
                    self.small_bytes += len as usize;
                }
                self.channel.push_buf(buf, len as usize);
                self.tally.sent_bytes += len;
                self.data_bytes += len;
            }
            _ => {
                if command == brunt_wire::nbd::NbdCommand::Write {
                    self.tally.received_bytes += len;
                    self.data_bytes += len;
                }
                self.push_small(&self.requests.done(cookie, offset));
            }
        }
    }
}
