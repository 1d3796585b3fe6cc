//! One connection on the ring, with its session, which outlives it, and reconnection. Driven by the device.
//!
//! The one rule: no protocol rules here. Bytes go from the channel to the session's parser and from the session's
//! messages to the channel; when either fails, all buffers come back and the session waits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::table::OpenError;
use brunt_block::{
    Bell, Completion, DeviceError, Lent, ReconnectState, Reconnecting, Request, Ring, Stream,
};
use brunt_core::{Clock, Nanos};
use brunt_wire::sheepdog::SheepdogResponse;
use brunt_wire::sheepdog::header::HEADER_BYTES;

use super::connect::{self, SheepdogConnection, SheepdogLock};
use super::connect_error::SheepdogConnectError;
use super::objects::SheepdogObjects;
use super::session::{
    SheepdogDataRange, SheepdogOutgoing, SheepdogPayload, SheepdogSession, SheepdogSessionConfig,
    SheepdogViolation,
};
use super::url::SheepdogConfig;
use crate::channel::Channel;

/// Receive buffer for unplaced bytes: twice a queue of 32 replies of 4 KiB with headers.
const RX_BYTES: usize = 256 << 10;

/// A connection and its session; see the module.
pub(super) struct SheepdogLink {
    pub session: SheepdogSession,
    objects: Arc<SheepdogObjects>,
    /// Wakes this thread when a claim is released.
    bell: Bell,
    listener: u64,
    channel: Option<Channel>,
    receiving: Receiving,
    /// For each task: where its data is while the channel has it.
    lent: Vec<Option<Lent>>,
    /// Completed tasks whose data is still being sent.
    stuck: Vec<u16>,
    /// Requests that arrived after the link gave up, or that no server would accept.
    pub refused: Vec<Completion>,
    pub reconnect: ReconnectState<SheepdogConnection, SheepdogConnectError>,
    ring: Ring,
    config: SheepdogConfig,
    /// Number of failed attempts to connect on opening.
    pub connect_retries: u64,
    /// Why the first attempts to connect failed, if any did.
    pub connect_trouble: Option<String>,
}

#[derive(Clone, Copy)]
enum Receiving {
    Header,
    /// The payload is being received into its task's buffer, or discarded.
    Payload(SheepdogResponse, Option<SheepdogDataRange>),
}

impl SheepdogLink {
    /// A link on an established connection.
    ///
    /// # Errors
    /// Its socket cannot be set up.
    pub fn new(
        config: &SheepdogConfig,
        objects: &Arc<SheepdogObjects>,
        ring: &Ring,
        depth: u32,
        connection: SheepdogConnection,
    ) -> Result<SheepdogLink, OpenError> {
        let SheepdogConfig {
            timeout,
            tries,
            cache,
            ..
        } = *config;
        let session_config = SheepdogSessionConfig {
            depth,
            timeout,
            tries,
            cache,
        };
        let (again, known) = (config.clone(), Arc::clone(objects));
        let lock = if config.lock {
            SheepdogLock::Keep
        } else {
            SheepdogLock::Without
        };
        let connect = move |limit| connect::connect_once(&again, lock, Some(known.vdi()), limit);
        let setting_up =
            |error| SheepdogConnectError::Io(config.address(), "setting up its socket", error);
        let bell = Bell::new(ring).map_err(setting_up)?;
        let mut link = SheepdogLink {
            session: SheepdogSession::new(session_config, Arc::clone(objects)),
            objects: Arc::clone(objects),
            listener: objects.listen(bell.waker()),
            bell,
            channel: None,
            receiving: Receiving::Header,
            lent: vec![None; depth as usize],
            stuck: Vec::with_capacity(depth as usize),
            refused: Vec::new(),
            reconnect: ReconnectState::up(config.reconnect, config.timeout, ring, connect),
            ring: ring.clone(),
            config: config.clone(),
            connect_retries: connection.retries.into(),
            connect_trouble: connection.trouble.clone(),
        };
        link.bring_up(connection, Clock::Monotonic.now())
            .map_err(setting_up)?;
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
        while let Some(SheepdogOutgoing {
            header,
            data,
            entry,
            zeros,
        }) = self.session.pull()
        {
            channel.push_bytes(&header);
            if let Some(SheepdogDataRange { task, start, len }) = data {
                let lent = &mut self.lent[usize::from(task)];
                channel.push_data(lent, self.session.data(task), start, len);
            }
            if let Some(entry) = entry {
                channel.push_bytes(&entry);
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
        // Taken before the parked tasks are checked: a claim is released before the bell rings.
        self.bell.take();
        self.session.look_at_parked(now);
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
    fn receive(&mut self, now: Nanos) -> Result<(), SheepdogViolation> {
        let SheepdogLink {
            session,
            channel,
            receiving,
            ..
        } = self;
        let Some(channel) = channel else {
            return Ok(());
        };
        while session.lost().is_none() {
            if let Receiving::Payload(response, range) = *receiving {
                let Some(buf) = channel.take_placed() else {
                    return Ok(());
                };
                if let Some(range) = range {
                    *session.data(range.task) = buf;
                }
                *receiving = Receiving::Header;
                session.on_response(&response, now)?;
                continue;
            }
            let bytes = channel.bytes();
            let Ok(response) = SheepdogResponse::parse(bytes) else {
                return Ok(());
            };
            match session.on_header(&response)? {
                SheepdogPayload::Discard(0) => {
                    session.on_response(&response, now)?;
                    channel.consume(HEADER_BYTES);
                }
                SheepdogPayload::Discard(len) => {
                    channel.consume(HEADER_BYTES);
                    channel.discard(len);
                    *receiving = Receiving::Payload(response, None);
                }
                SheepdogPayload::Task(range) => {
                    let total = HEADER_BYTES + range.len;
                    if let Some(data) = bytes.get(HEADER_BYTES..total) {
                        session.data(range.task)[range.start..range.start + range.len]
                            .copy_from_slice(data);
                        session.on_response(&response, now)?;
                        channel.consume(total);
                    } else if channel.wants_place(total - bytes.len(), total) {
                        channel.consume(HEADER_BYTES);
                        let buf = std::mem::take(session.data(range.task));
                        channel.place(buf, range.start, range.len);
                        *receiving = Receiving::Payload(response, Some(range));
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
            if let (Some(buf), Receiving::Payload(_, Some(range))) =
                (channel.abort(), self.receiving)
            {
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

impl Reconnecting for SheepdogLink {
    type Connection = SheepdogConnection;
    type Error = SheepdogConnectError;

    fn reconnect(&self) -> &ReconnectState<SheepdogConnection, SheepdogConnectError> {
        &self.reconnect
    }

    fn reconnect_mut(&mut self) -> &mut ReconnectState<SheepdogConnection, SheepdogConnectError> {
        &mut self.reconnect
    }

    fn name(&self) -> String {
        self.config.name()
    }

    /// Describes a change that makes the disk a different one, to which writing would be a mistake. A snapshot doesn't.
    fn changed(&self, connection: &SheepdogConnection) -> Option<String> {
        let (old, new) = (self.objects.inode(), &connection.inode);
        if new.size_bytes != old.size_bytes {
            let (new, old) = (new.size_bytes, old.size_bytes);
            return Some(format!(
                "after the reconnect the disk has {new} bytes, not {old}"
            ));
        }
        let same = new.object_shift == old.object_shift && new.is_snapshot == old.is_snapshot;
        (!same).then(|| "after the reconnect the disk has other properties".to_string())
    }

    fn bring_up(&mut self, connection: SheepdogConnection, now: Nanos) -> io::Result<()> {
        let SheepdogConnection {
            socket, inode, map, ..
        } = connection;
        if let Some(map) = map {
            self.objects.replace(inode, map);
        }
        let stream = Stream::new(&self.ring, socket, RX_BYTES)?;
        let mut channel = Channel::new(stream, None);
        if let Some(socket) = channel.stream().socket().as_tcp() {
            self.config.sockets.apply(socket)?;
        }
        // Receiving starts first, so that a disconnect is noticed before the first message.
        channel.flush();
        channel.arm();
        self.channel = Some(channel);
        self.receiving = Receiving::Header;
        self.session.attach(now);
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

impl Drop for SheepdogLink {
    fn drop(&mut self) {
        self.objects.forget(self.listener);
    }
}
