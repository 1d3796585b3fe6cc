//! Moves bytes between a connection and its session. Driven by the shared link of `brunt-block`.
//!
//! The one rule: this module contains no protocol rules. Bytes go from the channel to the session's parser, and from
//! the session's messages to the channel.

use std::io;
use std::sync::Arc;

use brunt_block::remote::{RemoteProtocol, RemoteSession};
use brunt_block::{Bell, Buf, Lent, Ring, Stream};
use brunt_core::Nanos;
use brunt_wire::sheepdog::SheepdogResponse;
use brunt_wire::sheepdog::header::HEADER_BYTES;

use super::connect::SheepdogConnection;
use super::connect_error::SheepdogConnectError;
use super::objects::SheepdogObjects;
use super::session::{
    SheepdogDataRange, SheepdogOutgoing, SheepdogPayload, SheepdogSession, SheepdogViolation,
};
use super::url::SheepdogConfig;
use crate::channel::Channel;

/// Receive buffer for unplaced bytes: twice a queue of 32 replies of 4 KiB with headers.
const RX_BYTES: usize = 256 << 10;

/// The driver of one connection.
pub(super) struct SheepdogProtocol {
    config: SheepdogConfig,
    objects: Arc<SheepdogObjects>,
    /// Wakes this thread when a claim is released.
    bell: Bell,
    listener: u64,
    receiving: Receiving,
}

#[derive(Clone, Copy)]
enum Receiving {
    Header,
    /// The payload is being received into its task's buffer, or discarded.
    Payload(SheepdogResponse, Option<SheepdogDataRange>),
}

impl SheepdogProtocol {
    /// Creates the driver of a connection on this ring.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn new(
        config: &SheepdogConfig,
        objects: &Arc<SheepdogObjects>,
        ring: &Ring,
    ) -> io::Result<SheepdogProtocol> {
        let bell = Bell::new(ring)?;
        Ok(SheepdogProtocol {
            config: config.clone(),
            objects: Arc::clone(objects),
            listener: objects.listen(bell.waker()),
            bell,
            receiving: Receiving::Header,
        })
    }
}

impl RemoteProtocol for SheepdogProtocol {
    type Session = SheepdogSession;
    type Channel = Channel;
    type Connection = SheepdogConnection;
    type Error = SheepdogConnectError;
    type Violation = SheepdogViolation;

    fn name(&self) -> String {
        self.config.name()
    }

    /// Describes a change that shows that this is a different disk, which must not be written to. A snapshot isn't
    /// such a change.
    fn changed(&self, connection: &SheepdogConnection) -> Option<String> {
        let (old, new) = (self.objects.inode(), &connection.inode);
        if new.size_bytes != old.size_bytes {
            let (new, old) = (new.size_bytes, old.size_bytes);
            return Some(format!(
                "after the reconnect, the disk has {new} bytes instead of {old}"
            ));
        }
        let same = new.object_shift == old.object_shift && new.is_snapshot == old.is_snapshot;
        (!same).then(|| "after the reconnect, the disk has different properties".to_string())
    }

    fn bring_up(
        &mut self,
        session: &mut SheepdogSession,
        connection: SheepdogConnection,
        ring: &Ring,
        now: Nanos,
    ) -> io::Result<Channel> {
        let SheepdogConnection {
            socket, inode, map, ..
        } = connection;
        if let Some(map) = map {
            self.objects.replace(inode, map);
        }
        let stream = Stream::new(ring, socket, RX_BYTES)?;
        let channel = Channel::new(stream, None);
        if let Some(socket) = channel.stream().socket().as_tcp() {
            self.config.sockets.apply(socket)?;
        }
        self.receiving = Receiving::Header;
        session.attach(now);
        Ok(channel)
    }

    /// Takes the bell before checking the parked tasks: otherwise, the ring for a claim that is released in between
    /// would be lost.
    fn before_poll(&mut self, session: &mut SheepdogSession, now: Nanos) {
        self.bell.take();
        session.replan_parked(now);
    }

    #[inline]
    fn send(
        &mut self,
        session: &mut SheepdogSession,
        channel: &mut Channel,
        lent: &mut [Option<Lent>],
    ) {
        while let Some(SheepdogOutgoing {
            header,
            data,
            entry,
            zeros,
        }) = session.pull()
        {
            channel.push_bytes(&header);
            if let Some(SheepdogDataRange { task, start, len }) = data {
                let lent = &mut lent[usize::from(task)];
                channel.push_data(lent, session.data(task), start, len);
            }
            if let Some(entry) = entry {
                channel.push_bytes(&entry);
            }
            if zeros > 0 {
                channel.push_zeros(zeros);
            }
        }
    }

    /// Parses the received bytes.
    fn receive(
        &mut self,
        session: &mut SheepdogSession,
        channel: &mut Channel,
        now: Nanos,
    ) -> Result<(), SheepdogViolation> {
        while session.lost().is_none() {
            if let Receiving::Payload(response, range) = self.receiving {
                let Some(buf) = channel.take_placed() else {
                    return Ok(());
                };
                if let Some(range) = range {
                    *session.data(range.task) = buf;
                }
                self.receiving = Receiving::Header;
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
                    self.receiving = Receiving::Payload(response, None);
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
                        self.receiving = Receiving::Payload(response, Some(range));
                    } else {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn on_loss(&mut self, session: &mut SheepdogSession, placed: Option<Buf>) {
        if let (Some(buf), Receiving::Payload(_, Some(range))) = (placed, self.receiving) {
            *session.data(range.task) = buf;
        }
        self.receiving = Receiving::Header;
    }
}

impl Drop for SheepdogProtocol {
    fn drop(&mut self) {
        self.objects.forget(self.listener);
    }
}
