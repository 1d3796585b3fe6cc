//! Moves bytes between a connection and its session. Driven by the shared link of `brunt-block`.
//!
//! The one rule: this module contains no protocol rules. Bytes go from the channel to the session's parser, and from
//! the session's commands to the channel.

use std::io;

use brunt_block::remote::{RemoteProtocol, RemoteSession};
use brunt_block::{Buf, Lent, Ring, Stream};
use brunt_core::Nanos;
use brunt_wire::ParseError;
use brunt_wire::nbd::export_flag::READ_ONLY;
use brunt_wire::nbd::{NbdCommand, NbdReply, NbdRequest};

use super::connect::NbdConnection;
use super::connect_error::NbdConnectError;
use super::export::NbdExport;
use super::session::{NbdDataRange, NbdOutgoing, NbdPayload, NbdSession, NbdViolation};
use super::url::NbdConfig;
use crate::channel::Channel;

/// Receive buffer for unplaced bytes: twice a queue of 32 replies of 4 KiB with headers; fits in the L2 cache.
const RX_BYTES: usize = 256 << 10;

/// The driver of one connection.
#[derive(Debug)]
pub(super) struct NbdProtocol {
    pub config: NbdConfig,
    pub block_bytes: u32,
    /// The export's properties when it was opened.
    pub first: NbdExport,
    pub receiving: Receiving,
}

/// What the next received bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    Header,
    /// The payload is being received into its task's buffer.
    Payload(NbdReply, NbdDataRange),
}

impl RemoteProtocol for NbdProtocol {
    type Session = NbdSession;
    type Channel = Channel;
    type Connection = NbdConnection;
    type Error = NbdConnectError;
    type Violation = NbdViolation;

    fn name(&self) -> String {
        self.config.name()
    }

    /// Describes a change that shows that this is a different export, which must not be written to.
    fn changed(&self, connection: &NbdConnection) -> Option<String> {
        let (old, new) = (&self.first, &connection.export);
        let new_size = new.size_bytes;
        if new_size != old.size_bytes {
            return Some(format!(
                "after the reconnect, the export has {new_size} bytes instead of {}",
                old.size_bytes
            ));
        }
        let same = new.block_bytes_min() <= old.block_bytes_min().max(512)
            && new.payload_max(self.block_bytes) >= old.payload_max(self.block_bytes)
            && new.has(READ_ONLY) == old.has(READ_ONLY);
        (!same).then(|| "after the reconnect, the export has different properties".to_string())
    }

    fn bring_up(
        &mut self,
        session: &mut NbdSession,
        connection: NbdConnection,
        ring: &Ring,
        now: Nanos,
    ) -> io::Result<Channel> {
        let NbdConnection {
            socket,
            tls,
            export,
            ..
        } = connection;
        let stream = Stream::new(ring, socket, RX_BYTES)?;
        let channel = Channel::new(stream, tls.map(|tls| (*tls).into()));
        if let Some(socket) = channel.stream().socket().as_tcp() {
            self.config.sockets.apply(socket)?;
        }
        self.receiving = Receiving::Header;
        session.attach(export, now);
        Ok(channel)
    }

    #[inline]
    fn send(&mut self, session: &mut NbdSession, channel: &mut Channel, lent: &mut [Option<Lent>]) {
        while let Some(NbdOutgoing {
            header,
            data,
            zeros,
        }) = session.pull()
        {
            channel.push_bytes(&header);
            if let Some(NbdDataRange { task, start, len }) = data {
                let lent = &mut lent[usize::from(task)];
                channel.push_data(lent, session.data(task), start, len);
            }
            if zeros > 0 {
                channel.push_zeros(zeros);
            }
        }
    }

    /// Parses the received bytes.
    fn receive(
        &mut self,
        session: &mut NbdSession,
        channel: &mut Channel,
        now: Nanos,
    ) -> Result<(), NbdViolation> {
        let headers = session.export().headers;
        while session.lost().is_none() {
            if let Receiving::Payload(reply, range) = self.receiving {
                let Some(buf) = channel.take_placed() else {
                    return Ok(());
                };
                *session.data(range.task) = buf;
                self.receiving = Receiving::Header;
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
                        self.receiving = Receiving::Payload(reply, range);
                    } else {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn on_loss(&mut self, session: &mut NbdSession, placed: Option<Buf>) {
        if let (Some(buf), Receiving::Payload(_, range)) = (placed, self.receiving) {
            *session.data(range.task) = buf;
        }
        self.receiving = Receiving::Header;
    }

    /// A goodbye makes the server free the connection at once.
    fn say_goodbye(&mut self, session: &mut NbdSession, channel: &mut Channel, _ring: &Ring) {
        let goodbye = NbdRequest {
            flags: 0,
            command: NbdCommand::Disconnect,
            cookie: 0,
            offset: 0,
            len: 0,
        };
        channel.say_goodbye(&goodbye.encode(session.export().headers));
    }
}
