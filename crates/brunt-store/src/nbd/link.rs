//! One connection on the ring, with its session, which outlives it, and reconnection. Driven by the device.
//!
//! The one rule: no protocol rules here. Bytes go from the channel to the session's parser and from the session's
//! commands to the channel; when either fails, all buffers come back and the session waits.

use std::io;
use std::time::Duration;

use brunt_block::table::OpenError;
use brunt_block::{
    Completion, DeviceError, Lent, ReconnectState, Reconnecting, Request, Ring, Stream,
};
use brunt_core::{Clock, Nanos};
use brunt_wire::ParseError;
use brunt_wire::nbd::export_flag::READ_ONLY;
use brunt_wire::nbd::{NbdCommand, NbdReply, NbdRequest};

use super::connect::{self, NbdConnection};
use super::connect_error::NbdConnectError;
use super::export::NbdExport;
use super::session::{
    NbdDataRange, NbdOutgoing, NbdPayload, NbdSession, NbdSessionConfig, NbdViolation,
};
use super::url::NbdConfig;
use crate::channel::Channel;

/// Receive buffer for unplaced bytes: twice a queue of 32 replies of 4 KiB with
/// headers, and it fits into the second-level cache.
const RX_BYTES: usize = 256 << 10;

/// A connection and its session; see the module.
pub(super) struct NbdLink {
    pub session: NbdSession,
    channel: Option<Channel>,
    receiving: Receiving,
    /// For each task: where its data is while the channel has it.
    lent: Vec<Option<Lent>>,
    /// Completed tasks whose data is still being sent.
    stuck: Vec<u16>,
    /// Requests that arrived after the link gave up, or that no server would accept.
    pub refused: Vec<Completion>,
    pub reconnect: ReconnectState<NbdConnection, NbdConnectError>,
    ring: Ring,
    config: NbdConfig,
    block_bytes: u32,
    /// The export's properties when it was opened.
    first: NbdExport,
    /// Number of failed attempts to connect on opening.
    pub connect_retries: u64,
    /// Why the first attempts to connect failed, if any did.
    pub connect_trouble: Option<String>,
}

#[derive(Clone, Copy)]
enum Receiving {
    Header,
    /// The payload is being received into its task's buffer.
    Payload(NbdReply, NbdDataRange),
}

impl NbdLink {
    /// A link on an established connection.
    ///
    /// # Errors
    /// Its socket cannot be set up.
    pub fn new(
        config: &NbdConfig,
        block_bytes: u32,
        ring: &Ring,
        depth: u32,
        connection: NbdConnection,
    ) -> Result<NbdLink, OpenError> {
        let session_config = NbdSessionConfig {
            depth,
            block_bytes,
            timeout: config.timeout,
            tries: config.tries,
        };
        let first = connection.export.clone();
        let again = config.clone();
        let connect = move |limit| connect::connect_once(&again, limit);
        let mut link = NbdLink {
            session: NbdSession::new(session_config, first.clone()),
            channel: None,
            receiving: Receiving::Header,
            lent: vec![None; depth as usize],
            stuck: Vec::with_capacity(depth as usize),
            refused: Vec::new(),
            reconnect: ReconnectState::up(config.reconnect, config.timeout, ring, connect),
            ring: ring.clone(),
            config: config.clone(),
            block_bytes,
            first,
            connect_retries: connection.retries.into(),
            connect_trouble: connection.trouble.clone(),
        };
        link.bring_up(connection, Clock::Monotonic.now())
            .map_err(|error| {
                NbdConnectError::Io(config.address.clone(), "setting up its socket", error)
            })?;
        Ok(link)
    }

    /// Accepts a request that the device has checked.
    pub fn submit(&mut self, request: Request, now: Nanos) {
        if self.reconnect.is_dead() {
            return self.refuse(request, DeviceError::Gone);
        }
        self.session
            .submit(request, now)
            .expect("a session with room was chosen");
    }

    pub fn refuse(&mut self, request: Request, error: DeviceError) {
        let Request { tag, buf, .. } = request;
        self.refused.push(Completion {
            tag,
            buf,
            result: Err(error),
        });
    }

    pub fn outstanding(&self) -> u32 {
        self.session.outstanding() + self.refused.len() as u32
    }

    pub fn deadline(&self) -> Nanos {
        if !self.refused.is_empty() {
            return Nanos(0);
        }
        self.reconnect.deadline().min(self.session.deadline())
    }

    /// Sends everything that is ready.
    #[inline]
    pub fn send(&mut self) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        while let Some(NbdOutgoing {
            header,
            data,
            zeros,
        }) = self.session.pull()
        {
            channel.push_bytes(&header);
            if let Some(NbdDataRange { task, start, len }) = data {
                let lent = &mut self.lent[usize::from(task)];
                channel.push_data(lent, self.session.data(task), start, len);
            }
            if zeros > 0 {
                channel.push_zeros(zeros);
            }
        }
        channel.flush();
        channel.arm();
    }

    pub fn poll(&mut self, clock: &Clock, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        let now = clock.now();
        if !self.reconnect.is_up() {
            if !self.reconnect.is_dead() {
                self.continue_reconnecting(now);
            }
            self.complete(done);
            self.send();
            return;
        }
        let mut trouble = None;
        if let Some(channel) = &mut self.channel {
            let event = channel.poll();
            if event.received
                && let Err(violation) = self.receive(now)
            {
                trouble = Some(violation.to_string());
            } else if event.ended
                && self.session.lost().is_none()
                && let Some(channel) = &self.channel
            {
                trouble = Some(channel.why_ended());
            }
        }
        self.session.on_time(now);
        let trouble = trouble.or_else(|| self.session.lost().map(|loss| loss.to_string()));
        if let Some(why) = trouble {
            self.lose(why, now);
        }
        self.complete(done);
        self.send();
    }

    /// Parses the received bytes.
    fn receive(&mut self, now: Nanos) -> Result<(), NbdViolation> {
        let NbdLink {
            session,
            channel,
            receiving,
            ..
        } = self;
        let Some(channel) = channel else {
            return Ok(());
        };
        let headers = session.export().headers;
        while session.lost().is_none() {
            if let Receiving::Payload(reply, range) = *receiving {
                let Some(buf) = channel.take_placed() else {
                    return Ok(());
                };
                *session.data(range.task) = buf;
                *receiving = Receiving::Header;
                session.on_reply(&reply, &[], now)?;
                continue;
            }
            let bytes = channel.bytes();
            let (reply, header_len) = match NbdReply::parse(bytes, headers) {
                Ok(parsed) => parsed,
                Err(ParseError::Incomplete(_)) => return Ok(()),
                Err(ParseError::Malformed(malformed)) => return Err(malformed.into()),
            };
            match session.on_header(&reply)? {
                NbdPayload::Short(len) => {
                    let Some(payload) = bytes.get(header_len..header_len + len) else {
                        return Ok(());
                    };
                    session.on_reply(&reply, payload, now)?;
                    channel.consume(header_len + len);
                }
                NbdPayload::Task(range) => {
                    let total = header_len + range.len;
                    if let Some(data) = bytes.get(header_len..total) {
                        session.data(range.task)[range.start..range.start + range.len]
                            .copy_from_slice(data);
                        session.on_reply(&reply, &[], now)?;
                        channel.consume(total);
                    } else if channel.wants_place(total - bytes.len(), total) {
                        channel.consume(header_len);
                        let buf = std::mem::take(session.data(range.task));
                        channel.place(buf, range.start, range.len);
                        *receiving = Receiving::Payload(reply, range);
                    } else {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Retires completed tasks whose data is back.
    fn complete(&mut self, done: &mut Vec<Completion>) {
        for _ in 0..self.stuck.len() {
            let task = self.stuck.remove(0);
            self.finish(task, done);
        }
        while let Some(task) = self.session.next_answered() {
            self.finish(task, done);
        }
    }

    fn finish(&mut self, task: u16, done: &mut Vec<Completion>) {
        let lent = &mut self.lent[usize::from(task)];
        if lent.is_some()
            && let Some(channel) = &mut self.channel
            && !channel.give_back(lent, self.session.data(task))
        {
            // Answered before it was sent completely; the channel still has its data.
            return self.stuck.push(task);
        }
        let retired = self.session.retire(task);
        done.push(Completion {
            tag: retired.tag,
            buf: retired.buf,
            result: retired.result,
        });
    }

    // ---- loss and return

    /// Takes all data back from the connection and starts reconnecting.
    fn lose(&mut self, why: String, now: Nanos) {
        if let Some(mut channel) = self.channel.take() {
            if let (Some(buf), Receiving::Payload(_, range)) = (channel.abort(), self.receiving) {
                *self.session.data(range.task) = buf;
            }
            for (task, lent) in self.lent.iter_mut().enumerate() {
                let back = channel.give_back(lent, self.session.data(task as u16));
                assert!(back, "an aborted stream gives everything back");
            }
        }
        self.receiving = Receiving::Header;
        self.session.detach();
        self.start_reconnecting(&why, Duration::ZERO, now);
    }
}

impl Reconnecting for NbdLink {
    type Connection = NbdConnection;
    type Error = NbdConnectError;

    fn reconnect(&self) -> &ReconnectState<NbdConnection, NbdConnectError> {
        &self.reconnect
    }

    fn reconnect_mut(&mut self) -> &mut ReconnectState<NbdConnection, NbdConnectError> {
        &mut self.reconnect
    }

    fn name(&self) -> String {
        self.config.name()
    }

    /// Describes a change that makes the export a different one, to which writing would be a mistake.
    fn changed(&self, connection: &NbdConnection) -> Option<String> {
        let (old, new) = (&self.first, &connection.export);
        let new_size = new.size_bytes;
        if new_size != old.size_bytes {
            return Some(format!(
                "after the reconnect the export has {new_size} bytes, not {}",
                old.size_bytes
            ));
        }
        let same = new.block_bytes_min() <= old.block_bytes_min().max(512)
            && new.payload_max(self.block_bytes) >= old.payload_max(self.block_bytes)
            && new.has(READ_ONLY) == old.has(READ_ONLY);
        (!same).then(|| "after the reconnect the export has other properties".to_string())
    }

    fn bring_up(&mut self, connection: NbdConnection, now: Nanos) -> io::Result<()> {
        let NbdConnection {
            socket,
            tls,
            export,
            ..
        } = connection;
        let stream = Stream::new(&self.ring, socket, RX_BYTES)?;
        let mut channel = Channel::new(stream, tls.map(|tls| (*tls).into()));
        if let Some(socket) = channel.stream().socket().as_tcp() {
            self.config.sockets.apply(socket)?;
        }
        // Receiving starts first, so that a disconnect is noticed before the first command.
        channel.flush();
        channel.arm();
        self.channel = Some(channel);
        self.receiving = Receiving::Header;
        self.session.attach(export, now);
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

impl Drop for NbdLink {
    /// Sends a goodbye if that needs no waiting, so that the server frees the connection at once.
    fn drop(&mut self) {
        if self.session.outstanding() > 0 {
            return;
        }
        let headers = self.session.export().headers;
        let Some(channel) = &mut self.channel else {
            return;
        };
        let goodbye = NbdRequest {
            flags: 0,
            command: NbdCommand::Disconnect,
            cookie: 0,
            offset: 0,
            len: 0,
        };
        channel.say_goodbye(&goodbye.encode(headers));
    }
}
