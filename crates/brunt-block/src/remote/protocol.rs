//! What a network protocol implements to become a device: its session, its type of connection, and how bytes get from
//! one to the other.
//!
//! The rule: a session does no I/O, and returns each request exactly once.

use std::fmt::Display;
use std::io;

use brunt_core::Nanos;

use crate::stream::{Lent, PayloadPlace, Stream, StreamEvent};
use crate::{Buf, Completion, DeviceError, ReconnectError, Request, Ring};

/// A connection on the ring.
pub trait RemoteChannel {
    /// Processes completions from the ring.
    fn poll(&mut self) -> StreamEvent;

    /// Submits queued data to the kernel.
    fn flush(&mut self);

    /// Starts receiving, unless a receive is already in progress.
    fn arm(&mut self);

    /// Describes why the connection ended, if it has.
    fn why_ended(&self) -> String;

    /// Closes it immediately and takes back all buffers from the kernel; returns the one that was being filled.
    fn abort(&mut self) -> Option<Buf>;

    /// Returns a buffer that was pushed; `false` while it is being sent.
    fn give_back(&mut self, lent: &mut Option<Lent>, buf: &mut Buf) -> bool;
}

/// Describes why a connection ended, as reported by its stream.
pub fn why_stream_ended(stream: &Stream) -> String {
    match stream.ended() {
        Some(io::ErrorKind::UnexpectedEof) | None => "the server closed the connection".to_string(),
        Some(kind) => format!("the connection failed: {kind}"),
    }
}

impl RemoteChannel for Stream {
    fn poll(&mut self) -> StreamEvent {
        self.poll()
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn arm(&mut self) {
        self.arm();
    }

    fn why_ended(&self) -> String {
        why_stream_ended(self)
    }

    fn abort(&mut self) -> Option<Buf> {
        match self.abort()? {
            PayloadPlace::Buf(buf) => Some(buf),
            PayloadPlace::Discard => None,
            PayloadPlace::Memory(_) => unreachable!("only buffers are destinations"),
        }
    }

    fn give_back(&mut self, lent: &mut Option<Lent>, buf: &mut Buf) -> bool {
        let Some(held) = *lent else {
            return true;
        };
        match self.reclaim(held) {
            Some(back) => {
                *buf = back;
                *lent = None;
                true
            }
            None => false,
        }
    }
}

/// Events of one session other than normal replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteEvents {
    /// Number of messages resent.
    pub replays: u64,
    /// Number of messages that timed out.
    pub timeouts: u64,
    /// The server's message about its last error or refusal.
    pub words: Option<String>,
}

/// The requests and replies of one connection, without I/O. Task indexes are below the depth of the link.
pub trait RemoteSession {
    /// Why a connection must be dropped without a protocol violation.
    type Loss: Display;

    /// Number of tasks that can be accepted.
    fn room(&self) -> usize;

    /// Number of tasks accepted but not retired.
    fn outstanding(&self) -> u32;

    /// Accepts a request that the device has checked.
    ///
    /// # Errors
    /// The request is returned if there is no room.
    fn submit(&mut self, request: Request, now: Nanos) -> Result<(), Request>;

    /// Cancels a request that has not been sent, or not sent again since the connection was last lost.
    fn cancel(&mut self, tag: u64);

    /// The buffer of a task, which the driver sends from or receives into.
    fn data(&mut self, task: u16) -> &mut Buf;

    /// The next answered task; retire it once its data has been returned.
    fn next_answered(&mut self) -> Option<u16>;

    /// Retires an answered task.
    fn retire(&mut self, task: u16) -> Completion;

    /// When [`RemoteSession::on_time`] must be called next.
    fn deadline(&self) -> Nanos;

    /// Handles messages that have timed out or are due.
    fn on_time(&mut self, now: Nanos);

    /// Why the connection must be dropped, if so.
    fn lost(&self) -> Option<Self::Loss>;

    /// The connection is lost, and all data has been returned: messages in flight wait for the next connection, except
    /// those that have used up their attempts.
    fn detach(&mut self);

    /// No new connection will be made: all requests end with this error.
    fn fail_all(&mut self, error: DeviceError);

    /// Events so far.
    fn events(&self) -> RemoteEvents;
}

/// How a session's bytes get onto a connection and back.
pub trait RemoteProtocol {
    /// The session.
    type Session: RemoteSession;
    /// The connection on the ring.
    type Channel: RemoteChannel;
    /// The result of connecting.
    type Connection: Send + 'static;
    /// Why connecting failed.
    type Error: ReconnectError;
    /// How a server violated the protocol.
    type Violation: Display;

    /// The device's name, for messages.
    fn name(&self) -> String;

    /// If a new connection leads to a different device than before: how that device differs.
    fn changed(&self, connection: &Self::Connection) -> Option<String>;

    /// Puts a connection on the ring and resumes the session on it.
    ///
    /// # Errors
    /// A system call fails.
    fn bring_up(
        &mut self,
        session: &mut Self::Session,
        connection: Self::Connection,
        ring: &Ring,
        now: Nanos,
    ) -> io::Result<Self::Channel>;

    /// Called first at each poll, for events that don't come from the connection.
    fn before_poll(&mut self, _session: &mut Self::Session, _now: Nanos) {}

    /// Queues everything that the session has to send. `lent` has one entry per task.
    fn send(
        &mut self,
        session: &mut Self::Session,
        channel: &mut Self::Channel,
        lent: &mut [Option<Lent>],
    );

    /// Passes received bytes to the session.
    ///
    /// # Errors
    /// The server violated the protocol; the connection is dropped.
    fn receive(
        &mut self,
        session: &mut Self::Session,
        channel: &mut Self::Channel,
        now: Nanos,
    ) -> Result<(), Self::Violation>;

    /// The connection is lost; `placed` is the buffer that was being filled.
    fn on_loss(&mut self, session: &mut Self::Session, placed: Option<Buf>);

    /// Sends a goodbye for sessions without outstanding requests when their device is closed. Takes a second at most.
    fn say_goodbye(
        &mut self,
        _session: &mut Self::Session,
        _channel: &mut Self::Channel,
        _ring: &Ring,
    ) {
    }
}
