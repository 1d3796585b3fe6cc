//! Moves bytes between a connection and a session. Driven by the shared link of `brunt-block`.
//!
//! The one rule: this module contains no protocol rules.

use std::io;
use std::marker::PhantomData;

use brunt_block::remote::{RemoteProtocol, RemoteSession};
use brunt_block::{Buf, Lent, PayloadPlace, Ring, Stream};
use brunt_core::{Clock, Nanos};

use crate::calls::{NfsCalls, NfsCollected, NfsIncoming, NfsOutgoing, NfsPayload, NfsReadData};
use crate::connect::{NfsConnection, random_xid};
use crate::connect_error::NfsConnectError;
use crate::conversation::GOODBYE_TIME;
use crate::disk::NfsDisk;
use crate::rpc::NfsViolation;
use crate::url::NfsConfig;
use crate::v41::NfsGrant;

use brunt_wire::rpc::MARK_BYTES;

/// Receive buffer for unplaced bytes: twice a queue of 32 replies of 4 KiB with headers.
const RX_BYTES: usize = 256 << 10;

/// A session that turns requests into NFS calls; a request's task and its call have the same index.
pub(crate) trait NfsSession: RemoteSession {
    /// The connection's calls.
    fn calls(&mut self) -> &mut NfsCalls;

    /// Offset of a READ's data in the buffer of its task.
    fn place_of(&self, read: &NfsReadData) -> usize;

    /// Handles the reply to a READ whose data is already in place.
    ///
    /// # Errors
    /// The reply violates a protocol.
    fn on_read(&mut self, read: &NfsReadData, now: Nanos) -> Result<(), NfsViolation>;

    /// Handles a complete record, without its mark.
    ///
    /// # Errors
    /// The reply violates a protocol.
    fn on_reply(&mut self, call: u16, record: &[u8], now: Nanos) -> Result<(), NfsViolation>;
}

impl NfsSession for NfsDisk {
    fn calls(&mut self) -> &mut NfsCalls {
        self.calls()
    }

    fn place_of(&self, read: &NfsReadData) -> usize {
        self.place_of(read)
    }

    fn on_read(&mut self, read: &NfsReadData, now: Nanos) -> Result<(), NfsViolation> {
        self.on_read(read, now)
    }

    fn on_reply(&mut self, call: u16, record: &[u8], now: Nanos) -> Result<(), NfsViolation> {
        self.on_reply(call, record, now)
    }
}

/// The driver of one connection.
#[derive(Debug)]
pub(crate) struct NfsProtocol<S> {
    config: NfsConfig,
    /// The file's size when the device was opened.
    size_bytes: u64,
    /// With NFSv4.1, the session of the connection.
    grant: Option<NfsGrant>,
    receiving: Receiving,
    session: PhantomData<S>,
}

impl<S> NfsProtocol<S> {
    /// The driver of a connection to a file that had this size when the device was opened.
    pub fn new(config: NfsConfig, size_bytes: u64) -> NfsProtocol<S> {
        NfsProtocol {
            config,
            size_bytes,
            grant: None,
            receiving: Receiving::default(),
            session: PhantomData,
        }
    }
}

/// What the next received bytes are.
#[derive(Clone, Copy, Debug, Default)]
enum Receiving {
    #[default]
    Record,
    /// Data that goes directly into its task's buffer.
    Data(NfsReadData),
    /// Zeros after the data.
    Padding(NfsReadData),
}

impl<S: NfsSession> RemoteProtocol for NfsProtocol<S> {
    type Session = S;
    type Channel = Stream;
    type Connection = NfsConnection;
    type Error = NfsConnectError;
    type Violation = NfsViolation;

    fn name(&self) -> String {
        self.config.name()
    }

    /// Describes a change that shows that this is a different file, which must not be written to.
    fn changed(&self, connection: &NfsConnection) -> Option<String> {
        let (old, new) = (self.size_bytes, connection.size_bytes);
        (new != old)
            .then(|| format!("after the reconnect, the file has {new} bytes instead of {old}"))
    }

    fn bring_up(
        &mut self,
        session: &mut S,
        connection: NfsConnection,
        ring: &Ring,
        now: Nanos,
    ) -> io::Result<Stream> {
        self.grant = connection.session;
        let stream = Stream::new(ring, connection.socket, RX_BYTES)?;
        if let Some(socket) = stream.socket().as_tcp() {
            self.config.sockets.apply(socket)?;
        }
        self.receiving = Receiving::Record;
        session.calls().attach(self.grant.as_ref(), now);
        Ok(stream)
    }

    fn send(&mut self, session: &mut S, stream: &mut Stream, lent: &mut [Option<Lent>]) {
        while let Some(NfsOutgoing {
            call,
            payload,
            padding,
        }) = session.calls().pull()
        {
            stream.push_bytes(session.calls().head(call));
            match payload {
                NfsPayload::None => {}
                NfsPayload::Buf { start, len } => {
                    let held = &mut lent[usize::from(call)];
                    let held = *held
                        .get_or_insert_with(|| stream.lend(std::mem::take(session.data(call))));
                    stream.push_lent(held, start, len);
                }
                NfsPayload::Zeros(len) => stream.push_zeros(len),
            }
            if padding > 0 {
                stream.push_zeros(padding);
            }
        }
    }

    fn receive(
        &mut self,
        session: &mut S,
        stream: &mut Stream,
        now: Nanos,
    ) -> Result<(), NfsViolation> {
        loop {
            match self.receiving {
                Receiving::Data(read) => {
                    let Some(PayloadPlace::Buf(buf)) = stream.take_placed() else {
                        return Ok(());
                    };
                    *session.data(read.call) = buf;
                    self.receiving = Receiving::Padding(read);
                }
                Receiving::Padding(read) => {
                    if stream.bytes().len() < read.padding {
                        return Ok(());
                    }
                    stream.consume(read.padding);
                    self.receiving = Receiving::Record;
                    session.calls().settle_data(read.call, read.opened, now);
                    session.on_read(&read, now)?;
                }
                Receiving::Record => {
                    if !self.receive_record(session, stream, now)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn on_loss(&mut self, session: &mut S, placed: Option<Buf>) {
        if let (Some(buf), Receiving::Data(read)) = (placed, self.receiving) {
            *session.data(read.call) = buf;
        }
        self.receiving = Receiving::Record;
    }

    /// Closes files and gives back the session, so that the server doesn't keep them for its lease.
    fn say_goodbye(&mut self, session: &mut S, stream: &mut Stream, ring: &Ring) {
        let Some(grant) = self.grant.take() else {
            return;
        };
        let mut farewell = session.calls().farewell(grant, random_xid());
        let deadline = Clock::Monotonic.now().after(GOODBYE_TIME);
        while let Some(records) = farewell.next_calls() {
            records.iter().for_each(|record| stream.push_bytes(record));
            loop {
                stream.flush();
                stream.arm();
                let is_done = stream.queued_bytes() == 0 && !farewell.is_waiting();
                if is_done || Clock::Monotonic.now() >= deadline {
                    break;
                }
                if ring.enter(deadline).is_err() || stream.poll().ended {
                    return;
                }
                match farewell.receive(stream.bytes()) {
                    Some(consumed) => stream.consume(consumed),
                    None => return,
                }
            }
        }
    }
}

impl<S: NfsSession> NfsProtocol<S> {
    /// Handles one record, or the beginning of one; `false` if more has to arrive.
    fn receive_record(
        &mut self,
        session: &mut S,
        stream: &mut Stream,
        now: Nanos,
    ) -> Result<bool, NfsViolation> {
        let bytes = stream.bytes();
        match session.calls().examine(bytes)? {
            NfsIncoming::More => Ok(false),
            NfsIncoming::Reply { call, len } => {
                let record = &bytes[MARK_BYTES..MARK_BYTES + len];
                if !session.calls().settle(call, record, now)? {
                    session.on_reply(call, record, now)?;
                }
                stream.consume(MARK_BYTES + len);
                Ok(true)
            }
            NfsIncoming::Data(read) => {
                let total = read.head_len + read.len as usize + read.padding;
                if !stream.wants_place(total - bytes.len(), total) {
                    return Ok(false);
                }
                stream.consume(read.head_len);
                let start = session.place_of(&read) as u64;
                let buf = std::mem::take(session.data(read.call));
                stream.place(PayloadPlace::Buf(buf), start, read.len as usize);
                self.receiving = Receiving::Data(read);
                Ok(true)
            }
            NfsIncoming::Fragments => {
                let NfsCollected { consumed, reply } = session.calls().collect(bytes)?;
                stream.consume(consumed);
                let Some((call, record)) = reply else {
                    return Ok(false);
                };
                if !session.calls().settle(call, &record, now)? {
                    session.on_reply(call, &record, now)?;
                }
                Ok(true)
            }
        }
    }
}
