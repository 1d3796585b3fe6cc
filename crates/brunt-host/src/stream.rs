//! Messages over file descriptors: lets a thread hold a conversation without ever waiting longer than it chooses.
//! Works on the pipes of ssh or a child process, and on a socket with TLS.
//!
//! The rule: neither side can make the other buffer more than a frame and a bounded backlog. Adding to a full backlog
//! returns [`StreamError::Full`]. Low-priority messages go through [`MessageStream::send_later`], after everything
//! else; [`MessageStream::later_backlog`] shows in advance whether a droppable message should be dropped.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use brunt_protocol::{Decoder, FRAME_BYTES_MAX, FrameError, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use serde::{Deserialize, Serialize};

use crate::tls::{Seal, TlsError};

/// Maximum bytes waiting to be sent: two frames of the maximum size.
const BACKLOG_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// The size of the kernel's send buffer; clock replies wait behind its contents. The kernel doubles this number for
/// its own use (tcp(7)).
const SOCKET_BYTES: usize = 64 << 10;
/// A pipe that is ready accepts this much without blocking, whatever its reader does: PIPE_BUF (pipe(7)).
const PIPE_WRITE_BYTES: usize = 4096;

/// An error of a message stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation, such as "read from the other side".
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The peer's bytes are not valid messages.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer isn't the expected one, or the bytes were altered.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The peer didn't authenticate in time.
    #[error("the peer did not send a certificate within {0:?}")]
    Slow(Duration),
    /// The peer left before authenticating.
    #[error("the peer closed the connection before it sent a certificate")]
    Left,
    /// The peer doesn't read.
    #[error("the peer reads too slowly: {0} bytes are queued for it")]
    Full(usize),
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Bytes arrived, so there may be messages.
    Heard,
    /// Nothing arrived.
    Quiet,
    /// The peer has closed its end; messages that it sent before that can still be taken.
    Closed,
}

/// One side of a conversation.
#[derive(Debug)]
pub struct MessageStream {
    input: OwnedFd,
    output: OwnedFd,
    seal: Option<Box<Seal>>,
    decoder: Decoder,
    outgoing: Vec<u8>,
    /// Bytes at the front that have been sent.
    sent: usize,
    /// Frames to send when nothing else is waiting.
    later: VecDeque<Vec<u8>>,
    later_bytes: usize,
    sent_bytes: u64,
    received_bytes: u64,
}

impl MessageStream {
    /// Reads from one descriptor and writes to the other, which may be the same. The descriptors needn't be
    /// non-blocking, because they may be shared with other processes, such as a terminal's shell.
    pub fn new(input: OwnedFd, output: OwnedFd) -> MessageStream {
        MessageStream {
            input,
            output,
            seal: None,
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            sent: 0,
            later: VecDeque::new(),
            later_bytes: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// A stream over a socket, with TLS. [`MessageStream::greet`] has to be called first.
    pub(crate) fn sealed(socket: TcpStream, seal: Seal) -> Result<MessageStream, StreamError> {
        let io = |source| StreamError::Io {
            what: "use the connection",
            source,
        };
        // Sends small messages immediately: clock requests must not wait for more data.
        socket
            .set_nodelay(true)
            .and_then(|()| socket.set_nonblocking(true))
            .map_err(io)?;
        set_socket_send_buffer_size(&socket, SOCKET_BYTES).map_err(|error| io(error.into()))?;
        let input = socket.try_clone().map_err(io)?;
        Ok(MessageStream {
            seal: Some(Box::new(seal)),
            ..MessageStream::new(input.into(), socket.into())
        })
    }

    /// Waits until both sides have authenticated. Nothing is sent before that.
    ///
    /// # Errors
    /// The peer fails to authenticate, leaves, or takes longer.
    pub(crate) fn greet(&mut self, at_most: Duration) -> Result<(), StreamError> {
        let begin = Instant::now();
        loop {
            if let Some(seal) = &mut self.seal {
                seal.take(&mut self.outgoing);
            }
            if self.seal.as_ref().is_none_or(|seal| !seal.is_greeting()) && self.backlog() == 0 {
                return Ok(());
            }
            let left = at_most.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(StreamError::Slow(at_most));
            }
            if self.wait(left)? == StreamState::Closed {
                return Err(StreamError::Left);
            }
        }
    }

    /// Adds bytes that were already read from the descriptor.
    pub fn begin_with(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// Queues a message, and sends as much as possible without waiting.
    ///
    /// # Errors
    /// The message is longer than a frame, the peer doesn't read, or the peer is gone.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), StreamError> {
        if self.backlog() > BACKLOG_BYTES_MAX - FRAME_BYTES_MAX {
            return Err(StreamError::Full(self.backlog()));
        }
        match &mut self.seal {
            None => encode(message, &mut self.outgoing)?,
            Some(_) => {
                let mut plain = Vec::new();
                encode(message, &mut plain)?;
                self.put(&plain);
            }
        }
        self.write_if_ready()
    }

    /// Queues a low-priority message: all other messages are sent first, even those queued later. The caller bounds the
    /// number of such messages.
    ///
    /// # Errors
    /// The message is longer than a frame, or the peer is gone.
    pub fn send_later(&mut self, message: &impl Serialize) -> Result<(), StreamError> {
        let mut frame = Vec::new();
        encode(message, &mut frame)?;
        self.later_bytes += frame.len();
        self.later.push_back(frame);
        if self.next_later() {
            self.write_if_ready()
        } else {
            Ok(())
        }
    }

    /// Moves the next low-priority message to the queue if the queue is empty, so that at most one low-priority
    /// message precedes messages sent later.
    fn next_later(&mut self) -> bool {
        let frame = if self.backlog() == 0 {
            self.later.pop_front()
        } else {
            None
        };
        let Some(frame) = frame else { return false };
        self.later_bytes -= frame.len();
        self.put(&frame);
        true
    }

    /// Appends a frame to the queue.
    fn put(&mut self, frame: &[u8]) {
        match &mut self.seal {
            None => self.outgoing.extend_from_slice(frame),
            Some(seal) => {
                seal.close(frame);
                seal.take(&mut self.outgoing);
            }
        }
    }

    fn write_if_ready(&mut self) -> Result<(), StreamError> {
        let mut ready = [PollFd::new(&self.output, PollFlags::OUT)];
        if poll_for(&mut ready, Duration::ZERO)? && ready[0].revents().contains(PollFlags::OUT) {
            self.write_some()?;
        }
        Ok(())
    }

    /// Bytes of queued low-priority messages.
    pub fn later_backlog(&self) -> usize {
        self.later_bytes
    }

    /// Bytes waiting to be sent.
    pub fn backlog(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Bytes sent and received.
    pub fn bytes(&self) -> [u64; 2] {
        [self.sent_bytes, self.received_bytes]
    }

    /// Waits for bytes for up to `at_most`, while sending queued bytes.
    ///
    /// # Errors
    /// The descriptors can no longer be read or written.
    pub fn wait(&mut self, at_most: Duration) -> Result<StreamState, StreamError> {
        self.next_later();
        let has_backlog = self.backlog() > 0;
        let wanted = if has_backlog {
            PollFlags::OUT
        } else {
            PollFlags::empty()
        };
        let mut ready = [
            PollFd::new(&self.input, PollFlags::IN),
            PollFd::new(&self.output, wanted),
        ];
        if !poll_for(&mut ready, at_most)? {
            return Ok(StreamState::Quiet);
        }
        let (input, output) = (ready[0].revents(), ready[1].revents());
        if input.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return self.read_some();
        }
        // A pipe whose reader is gone reports that even if no events were requested.
        let mut gone = output.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        if has_backlog && output.contains(PollFlags::OUT) {
            gone = match self.write_some() {
                Err(StreamError::Io { source, .. }) if is_gone(&source) => true,
                written => written.map(|()| false)?,
            };
        }
        if !gone {
            return Ok(StreamState::Quiet);
        }
        // Reads what the peer sent between these two polls, and why it ended.
        if poll_for(
            &mut [PollFd::new(&self.input, PollFlags::IN)],
            Duration::ZERO,
        )? {
            return self.read_some();
        }
        Ok(StreamState::Closed)
    }

    /// The next complete message.
    ///
    /// # Errors
    /// The bytes are not valid messages; the stream is unusable from then on.
    pub fn take<M: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<M>, StreamError> {
        Ok(self.decoder.take()?)
    }

    fn read_some(&mut self) -> Result<StreamState, StreamError> {
        let mut buffer = [0; READ_BYTES];
        match rustix::io::read(&self.input, &mut buffer) {
            Ok(0) => Ok(StreamState::Closed),
            Ok(count) => {
                self.received_bytes += count as u64;
                self.decode(&buffer[..count])?;
                Ok(StreamState::Heard)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(StreamState::Quiet),
            Err(Errno::CONNRESET) => Ok(StreamState::Closed),
            Err(error) => Err(StreamError::Io {
                what: "read from the peer",
                source: error.into(),
            }),
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let Some(seal) = &mut self.seal else {
            self.decoder.push(bytes);
            return Ok(());
        };
        let mut plain = Vec::new();
        let opened = seal.open(bytes, &mut plain);
        seal.take(&mut self.outgoing);
        self.decoder.push(&plain);
        if opened.is_err() {
            // Sends the TLS alert with the reason; the peer may be gone.
            let _ = self.write_some();
        }
        Ok(opened?)
    }

    fn write_some(&mut self) -> Result<(), StreamError> {
        let rest = &self.outgoing[self.sent..];
        match rustix::io::write(&self.output, &rest[..rest.len().min(PIPE_WRITE_BYTES)]) {
            Ok(count) => {
                self.sent += count;
                self.sent_bytes += count as u64;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => {
                return Err(StreamError::Io {
                    what: "write to the peer",
                    source: error.into(),
                });
            }
        }
        if self.sent == self.outgoing.len() {
            self.outgoing.clear();
            self.sent = 0;
        } else if self.sent >= FRAME_BYTES_MAX / 4 {
            self.outgoing.drain(..std::mem::take(&mut self.sent));
        }
        Ok(())
    }
}

/// Reads some bytes from a descriptor within this time; returns `None` if there are none yet, and nothing at the end
/// of the stream.
///
/// # Errors
/// The descriptor cannot be read.
pub(crate) fn read_within(
    from: impl AsFd,
    at_most: Duration,
) -> Result<Option<Vec<u8>>, StreamError> {
    let mut ready = [PollFd::new(&from, PollFlags::IN)];
    if !poll_for(&mut ready, at_most)? {
        return Ok(None);
    }
    let mut buffer = [0; READ_BYTES];
    match rustix::io::read(&from, &mut buffer) {
        Ok(count) => Ok(Some(buffer[..count].to_vec())),
        Err(Errno::INTR | Errno::AGAIN) => Ok(None),
        Err(error) => Err(StreamError::Io {
            what: "read from the peer",
            source: error.into(),
        }),
    }
}

/// Writes some bytes to a pipe within this time; returns the number of bytes, 0 if the pipe accepts none.
///
/// # Errors
/// The pipe cannot be written.
pub(crate) fn write_within(
    to: impl AsFd,
    bytes: &[u8],
    at_most: Duration,
) -> Result<usize, StreamError> {
    if !poll_for(&mut [PollFd::new(&to, PollFlags::OUT)], at_most)? {
        return Ok(0);
    }
    match rustix::io::write(&to, &bytes[..bytes.len().min(PIPE_WRITE_BYTES)]) {
        Ok(count) => Ok(count),
        Err(Errno::INTR | Errno::AGAIN) => Ok(0),
        Err(error) => Err(StreamError::Io {
            what: "write to the peer",
            source: error.into(),
        }),
    }
}

/// Whether a write failed because the reader is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Whether any descriptor becomes ready within this time.
fn poll_for(fds: &mut [PollFd<'_>], at_most: Duration) -> Result<bool, StreamError> {
    let time = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    match poll(fds, Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(StreamError::Io {
            what: "wait for the peer",
            source: error.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_protocol::{FromHost, ToHost, TraceDigest};

    fn pair() -> (MessageStream, MessageStream) {
        let (from, to) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        (
            MessageStream::new(from.0, to.1),
            MessageStream::new(to.0, from.1),
        )
    }

    fn next<M: for<'de> Deserialize<'de>>(stream: &mut MessageStream) -> Option<M> {
        loop {
            if let Some(message) = stream.take().unwrap() {
                return Some(message);
            }
            if stream.wait(Duration::from_secs(60)).unwrap() == StreamState::Closed {
                return None;
            }
        }
    }

    /// Messages pass in both directions, even those larger than a pipe's buffer, with one thread per side.
    #[test]
    fn messages_larger_than_a_pipe_pass_in_both_directions() {
        let (mut here, mut there) = pair();
        let part = ToHost::TracePart {
            trace: TraceDigest("f".into()),
            bytes: vec![200; 300_000],
        };
        let sent = part.clone();
        let other = std::thread::spawn(move || {
            let heard: ToHost = next(&mut there).unwrap();
            assert_eq!(heard, sent);
            there.send(&FromHost::Note("heard".into())).unwrap();
            assert_eq!(next::<ToHost>(&mut there), None);
        });
        here.send(&part).unwrap();
        assert_eq!(
            next::<FromHost>(&mut here),
            Some(FromHost::Note("heard".into()))
        );
        assert!(here.bytes()[0] > 300_000 && here.bytes()[1] > 10 && here.backlog() == 0);
        drop(here);
        other.join().unwrap();
    }

    /// A peer that doesn't read makes us buffer only a bounded amount.
    #[test]
    fn a_backlog_is_bounded() {
        let (mut here, _there) = pair();
        let part = ToHost::TracePart {
            trace: TraceDigest("f".into()),
            bytes: vec![200; 1 << 20],
        };
        let error = loop {
            if let Err(error) = here.send(&part) {
                break error;
            }
            assert!(here.backlog() <= BACKLOG_BYTES_MAX);
        };
        assert!(matches!(error, StreamError::Full(_)), "{error}");
    }

    /// A reply overtakes all low-priority messages except one and those in the kernel's buffer; all arrive, in order.
    #[test]
    fn low_priority_messages_are_overtaken() {
        let (mut here, mut there) = pair();
        let note = |number: usize| FromHost::Note(format!("{number:08}{}", "x".repeat(8 << 10)));
        (0..100).for_each(|number| here.send_later(&note(number)).unwrap());
        // Fill the pipe.
        let mut left = usize::MAX;
        while here.backlog() + here.later_backlog() < left {
            left = here.backlog() + here.later_backlog();
            here.wait(Duration::ZERO).unwrap();
        }
        let before = here.later.len();
        assert!(before > 80 && here.later_backlog() > before * (8 << 10));
        here.send(&FromHost::Released).unwrap();
        let mut heard: Vec<FromHost> = Vec::new();
        while heard.len() < 101 {
            here.wait(Duration::ZERO).unwrap();
            there.wait(Duration::ZERO).unwrap();
            heard.extend(std::iter::from_fn(|| there.take().unwrap()));
        }
        let at = heard
            .iter()
            .position(|one| *one == FromHost::Released)
            .unwrap();
        assert_eq!(
            at,
            100 - before,
            "behind those that were already being sent"
        );
        heard.remove(at);
        assert!(heard.into_iter().eq((0..100).map(note)));
        assert_eq!((here.backlog(), here.later_backlog()), (0, 0));
    }

    /// Invalid bytes end the conversation, and so does a peer that closes the connection.
    #[test]
    fn invalid_bytes_and_a_closed_peer_end_the_conversation() {
        let (mut here, there) = pair();
        here.begin_with(b"\xff\xff\xff\xffno frame");
        assert!(matches!(
            here.take::<FromHost>(),
            Err(StreamError::Frame(FrameError::TooLong { .. }))
        ));
        drop(there);
        let (mut here, there) = pair();
        assert_eq!(here.wait(Duration::ZERO).unwrap(), StreamState::Quiet);
        drop(there);
        assert_eq!(
            here.wait(Duration::from_secs(60)).unwrap(),
            StreamState::Closed
        );
        let error = here.send(&ToHost::Renew).unwrap_err();
        assert!(
            matches!(
                error,
                StreamError::Io {
                    what: "write to the peer",
                    ..
                }
            ),
            "{error}"
        );
    }
}
