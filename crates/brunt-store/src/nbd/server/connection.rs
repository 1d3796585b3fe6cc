//! One client's connection: one thread, one ring, one loop. Reads all available requests, submits them to the device in
//! one batch, and sends all replies in one vectored call.
//!
//! The one rule: `requests` decides what a request may do; this module moves bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brunt_block::backends::TRANSFER_BYTES_MAX;
use brunt_block::reception::Guest;
use brunt_block::socket::{Socket, SocketOptions};
use brunt_block::{
    Buf, Completion, Device, DeviceInfo, OpenError, Request, Ring, RingConfig, Stream,
};
use brunt_core::{Clock, Nanos};
use brunt_wire::nbd::{NbdBlockSizes, NbdRequest, PAYLOAD_BYTES_DEFAULT, export_flag};
use brunt_wire::{Malformed, ParseError};

use super::offer::{NbdAgreement, NbdOffer, NbdOfferError, NbdOfferStep, NbdOffered, NbdTlsPolicy};
use super::requests::{NbdRequestHandler, NbdVerdict};
use super::tally::{Tally, Totals};
use super::tls::NbdServerTls;
use super::{HELD_BYTES_MAX_ALL, NbdCatalog, NbdServed, error};
use crate::channel::Channel;

/// Receive buffer for unplaced bytes: a queue of 32 writes of 4 KiB with headers.
const RX_BYTES: usize = 160 << 10;
/// Maximum requests of one connection at the device; further ones wait in the socket.
const DEPTH: u32 = 128;
/// Bytes of data at the device and queued replies beyond which no further request is read.
const HELD_BYTES_MAX: usize = 64 << 20;
/// A client that has not chosen an export by then is disconnected.
const HANDSHAKE_TIME: Duration = Duration::from_secs(60);

/// Why a connection ended, other than by its client disconnecting.
#[derive(Debug, thiserror::Error)]
pub(super) enum NbdServeError {
    #[error("its ring: {0}")]
    Ring(#[from] std::io::Error),
    #[error("{0}")]
    Offer(#[from] NbdOfferError),
    #[error("the client chose no export within {HANDSHAKE_TIME:?}")]
    Silent,
    #[error("{name}: {source}")]
    Open { name: String, source: OpenError },
    #[error("invalid request from client: {0}")]
    Malformed(#[from] Malformed),
    #[error("the client sends {0} bytes with one request")]
    Long(u64),
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
    totals: &Totals,
) -> Result<(), NbdServeError> {
    let ring = Ring::new(RingConfig {
        entries: 256,
        ..RingConfig::default()
    })?;
    if let Socket::Tcp(socket) = &socket {
        sockets.apply(socket)?;
    }
    let channel = Channel::new(Stream::new(&ring, socket, RX_BYTES)?, None);
    let served = catalog();
    let offered: Vec<NbdOffered> = served.iter().map(offered).collect();
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
        held: Held::of(totals),
        leaving: false,
    };
    let ended = connection.serve();
    let peak_bytes = connection.held.peak_bytes;
    drop(connection);
    drop(ring);
    if peak_bytes >= GIVE_BACK_BYTES {
        brunt_block::buffer::give_back();
    }
    ended
}

/// The properties of an export as announced to clients.
fn offered(served: &NbdServed) -> NbdOffered {
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
        .min(PAYLOAD_BYTES_DEFAULT);
    NbdOffered {
        name: served.name.clone(),
        description: served.description.clone(),
        size_bytes: served.backend.look().size_bytes,
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

/// The handshake on the ring; `None` if the client left.
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
    let until = Clock::Monotonic.now().after(HANDSHAKE_TIME);
    let mut answer = Vec::new();
    let mut ended = false;
    loop {
        while !ended && let Some(bytes) = channel.bytes().get(..offer.wants()) {
            let (len, step) = (bytes.len(), offer.on_bytes(bytes, &mut answer)?);
            channel.consume(len);
            channel.push_bytes(&answer);
            answer.clear();
            match step {
                NbdOfferStep::More => {}
                NbdOfferStep::StartTls => {
                    let tls = tls.expect("TLS is agreed on only where there is some");
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

/// Ends a connection whose cipher failed, with a TLS alert to the client.
fn broken(channel: &mut Channel) -> Result<(), NbdServeError> {
    let Some(error) = channel.broken().cloned() else {
        return Ok(());
    };
    channel.say_goodbye(&[]);
    Err(error.into())
}

/// A connection that held at least this many bytes returns memory to the kernel when it ends.
const GIVE_BACK_BYTES: usize = 8 << 20;

/// The bytes held by one connection, included in the total of all; returned when it ends.
struct Held<'a> {
    all_bytes: &'a AtomicUsize,
    own_bytes: usize,
    peak_bytes: usize,
}

impl Held<'_> {
    fn of(totals: &Totals) -> Held<'_> {
        Held {
            all_bytes: &totals.held_bytes,
            own_bytes: 0,
            peak_bytes: 0,
        }
    }

    /// Sets the connection's share.
    fn is(&mut self, bytes: usize) {
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.all_bytes.fetch_sub(self.own_bytes, Ordering::Relaxed);
        self.own_bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(bytes);
    }

    fn is_too_much(&self) -> bool {
        self.all_bytes.load(Ordering::Relaxed) > HELD_BYTES_MAX_ALL
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.is(0);
    }
}

/// A connection in the transmission phase.
struct ServedConnection<'a> {
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
    /// Bytes of buffers that the device has.
    held_bytes: usize,
    /// Its share of the bytes held by all connections.
    held: Held<'a>,
    /// Whether the client has sent a disconnect.
    leaving: bool,
}

impl ServedConnection<'_> {
    fn serve(&mut self) -> Result<(), NbdServeError> {
        let mut done = Vec::with_capacity(DEPTH as usize);
        loop {
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
            self.held.is(self.channel.queued_bytes() + self.held_bytes);
            if self.leaving && !busy && self.channel.queued_bytes() == 0 {
                return Ok(());
            }
            if !self.leaving && !self.is_full() {
                self.channel.arm();
            }
            // Immediate completions may have made room for requests that were already received.
            let more = !self.leaving && !self.is_full() && self.has_request();
            self.ring.enter(if more {
                Nanos(0)
            } else {
                self.device.deadline()
            })?;
            let event = self.channel.poll();
            if event.ended {
                self.drain(&mut done)?;
                return broken(&mut self.channel);
            }
        }
    }

    /// The client no longer waits for replies. Requests received before the end are still executed, as far as there is
    /// room, and the device returns the buffers.
    fn drain(&mut self, done: &mut Vec<Completion>) -> Result<(), NbdServeError> {
        self.read()?;
        self.device.submit(&mut self.batch);
        while self.device.outstanding() > 0 {
            self.ring.enter(self.device.deadline())?;
            self.device.poll(done);
            done.clear();
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let own = self.channel.queued_bytes() + self.held_bytes;
        self.free.is_empty() || own > HELD_BYTES_MAX || (own > 0 && self.held.is_too_much())
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
            if let Some(data) = bytes.get(header_len..total) {
                let mut buf = Buf::empty();
                if is_write {
                    buf = self.ring.pool().take(payload);
                    buf.copy_from_slice(data);
                }
                self.channel.consume(total);
                self.begin(request, verdict, buf);
            } else if self.channel.wants_place(total - bytes.len(), total) {
                self.channel.consume(header_len);
                if is_write {
                    let buf = self.ring.pool().take(payload);
                    self.held_bytes += buf.len();
                    self.channel.place(buf, 0, payload);
                } else {
                    self.channel.discard(payload);
                }
                self.arriving = Some((request, verdict));
            } else {
                return Ok(());
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
                    .expect("a request is read when there is room");
                self.tasks[usize::from(tag)] = Some(request);
                let (buf, offset, len) = match op {
                    brunt_block::Op::Read => (self.ring.pool().take(len as usize), offset, len),
                    brunt_block::Op::Flush => (buf, 0, 0),
                    _ => (buf, offset, len),
                };
                self.held_bytes += buf.len();
                self.held.is(self.channel.queued_bytes() + self.held_bytes);
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
            NbdVerdict::Nothing => self.channel.push_bytes(&self.requests.done(cookie, offset)),
            NbdVerdict::Status => {
                let answer = self.requests.status(&request, &*self.served.backend);
                self.channel.push_bytes(&answer);
            }
            NbdVerdict::Refuse(error, words) => {
                self.tally.errors += 1;
                self.channel
                    .push_bytes(&self.requests.error(cookie, offset, error, words));
            }
        }
        self.tally.requests += 1;
    }

    /// Answers a request that the device has completed.
    fn complete(&mut self, completion: Completion) {
        let Completion { tag, buf, result } = completion;
        let request = self.tasks[tag as usize]
            .take()
            .expect("a tag is a task's until it completes");
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
        // A recovered error counts as success.
        match result {
            Err(error) if !error.is_recovered() => {
                self.tally.errors += 1;
                let answer =
                    self.requests
                        .error(cookie, offset, error::number(&error), &error.to_string());
                self.channel.push_bytes(&answer);
            }
            _ if command == brunt_wire::nbd::NbdCommand::Read => {
                self.channel
                    .push_bytes(&self.requests.data(cookie, offset, len as u32));
                self.channel.push_buf(buf, len as usize);
                self.tally.sent_bytes += len;
            }
            _ => {
                if command == brunt_wire::nbd::NbdCommand::Write {
                    self.tally.received_bytes += len;
                }
                self.channel.push_bytes(&self.requests.done(cookie, offset));
            }
        }
    }
}
