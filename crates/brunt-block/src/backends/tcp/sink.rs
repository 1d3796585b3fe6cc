//! The other end of the `tcp` device: discards writes and answers reads with zeros. Started by `brunt sink`,
//! by experiments that measure the network, and by tests.
//!
//! One thread and one ring per connection; all answers of a batch are sent in one vectored call. The one rule: a peer
//! can use only a bounded amount of memory and break only its own connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::frame::{FrameKind, HEADER_BYTES, Header, HeaderError};
use super::{RX_BYTES, TIMEOUT};
use crate::reception::{ListeningSocket, Reception, ReceptionCounts, ReceptionListener};
use crate::socket::{Socket, SocketOptions};
use crate::{PayloadPlace, Ring, RingConfig, Stream};

/// A connection without a greeting is closed after this time. Longer than the client's default timeout: after a lost
/// SYN and a lost hello, TCP itself needs 6 s and more.
const HELLO_TIME: Duration = Duration::from_secs(60);
const _: () = assert!(
    HELLO_TIME.as_secs() > TIMEOUT.as_secs(),
    "a client that retransmits lost packets is not disconnected"
);
/// Maximum bytes of queued answers; beyond that, no further request is processed.
const ANSWERS_BYTES_MAX: usize = 4 << 20;

/// Configuration of a sink.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// The listening address; port 0 picks a free port.
    pub portal: SocketAddr,
    /// Options of every connection.
    pub sockets: SocketOptions,
    /// Maximum concurrent connections; further ones are closed and counted.
    pub connections_max: usize,
    /// Called for each connection that ended with an error, on that connection's thread.
    pub listener: ReceptionListener,
}

impl Default for SinkConfig {
    fn default() -> SinkConfig {
        SinkConfig {
            portal: SocketAddr::from(([127, 0, 0, 1], 0)),
            sockets: SocketOptions::default(),
            connections_max: 256,
            listener: ReceptionListener::default(),
        }
    }
}

/// A sink's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Connections accepted.
    pub connections: u64,
    /// Connections rejected because of the limit.
    pub refused: u64,
    /// Connections that ended because of invalid data or a local error.
    pub broken: u64,
    /// Requests answered.
    pub requests: u64,
    /// Payload bytes received and discarded.
    pub received_bytes: u64,
    /// Payload bytes sent.
    pub sent_bytes: u64,
    /// System calls of the connections' rings.
    pub system_calls: u64,
}

/// A listening sink. Dropping it closes it.
pub struct TcpSink {
    state: Arc<State>,
    address: SocketAddr,
    reception: Reception,
}

struct State {
    config: SinkConfig,
    requests: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    system_calls: AtomicU64,
}

impl TcpSink {
    /// Starts listening.
    ///
    /// # Errors
    /// The address is in use or not local.
    pub fn start(config: SinkConfig) -> io::Result<TcpSink> {
        let listening = ListeningSocket::tcp(config.portal)?;
        let address = listening.address()?.expect("a bound port has an address");
        let connections_max = config.connections_max;
        let state = Arc::new(State {
            config,
            requests: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            system_calls: AtomicU64::new(0),
        });
        let of_connection = Arc::clone(&state);
        let listener = state.config.listener.clone();
        let reception = Reception::open(
            "sink",
            listening,
            connections_max,
            listener,
            move |socket, guest| {
                guest.settle();
                serve(socket, &of_connection)
            },
        )?;
        Ok(TcpSink {
            state,
            address,
            reception,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters so far; open connections update them once per batch.
    pub fn stats(&self) -> SinkStats {
        let state = &self.state;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ReceptionCounts {
            connections,
            refused,
            broken,
        } = self.reception.counts();
        SinkStats {
            connections,
            refused,
            broken,
            requests: get(&state.requests),
            received_bytes: get(&state.received_bytes),
            sent_bytes: get(&state.sent_bytes),
            system_calls: get(&state.system_calls),
        }
    }

    /// Closes all connections and returns the final counters.
    pub fn shutdown(mut self) -> SinkStats {
        self.reception.close();
        self.stats()
    }
}

/// Why a connection ended, unless the peer closed it.
#[derive(Debug, thiserror::Error)]
enum SinkConnectionError {
    #[error("cannot set up the connection's ring: {0}")]
    Ring(#[from] io::Error),
    #[error("invalid message from peer: {0}")]
    Malformed(#[from] HeaderError),
    #[error("the peer sent no greeting within {HELLO_TIME:?}")]
    Silent,
    #[error("the peer sent {0:?} instead of a request")]
    Unexpected(FrameKind),
}

/// A connection's counts since they were last added to the sink's.
#[derive(Default)]
struct Batch {
    requests: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

fn serve(socket: Socket, state: &State) -> Result<(), SinkConnectionError> {
    let ring = Ring::new(RingConfig {
        entries: 64,
        ..RingConfig::default()
    })?;
    socket.set_nonblocking(false)?;
    state.config.sockets.apply(&socket)?;
    let stream = Stream::new(&ring, socket, RX_BYTES)?;
    stream.socket().set_nodelay(state.config.sockets.no_delay)?;
    let mut connection = Connection {
        stream,
        greeted: false,
        swallowing: None,
        batch: Batch::default(),
    };
    let hello_until = Clock::Monotonic.now().after(HELLO_TIME);
    let mut calls = 0;
    loop {
        let done = connection.read();
        connection.stream.flush();
        let Batch {
            requests,
            received_bytes,
            sent_bytes,
        } = std::mem::take(&mut connection.batch);
        if requests > 0 {
            state.requests.fetch_add(requests, Ordering::Relaxed);
            state
                .received_bytes
                .fetch_add(received_bytes, Ordering::Relaxed);
            state.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        }
        let now = ring.stats().system_calls;
        state.system_calls.fetch_add(now - calls, Ordering::Relaxed);
        calls = now;
        done?;
        if !connection.is_full() {
            connection.stream.arm();
        }
        let until = if connection.greeted {
            Nanos::MAX
        } else {
            hello_until
        };
        ring.enter(until)?;
        // The peer has closed the connection, so the answers to its last requests have no reader.
        if connection.stream.poll().ended {
            return Ok(());
        }
        if !connection.greeted && Clock::Monotonic.now() >= hello_until {
            return Err(SinkConnectionError::Silent);
        }
    }
}

struct Connection {
    stream: Stream,
    /// Whether the peer has sent its greeting.
    greeted: bool,
    /// The answer to send once the current payload has been discarded.
    swallowing: Option<Header>,
    batch: Batch,
}

impl Connection {
    fn is_full(&self) -> bool {
        self.stream.queued_bytes() > ANSWERS_BYTES_MAX
    }

    /// Processes all requests received so far.
    fn read(&mut self) -> Result<(), SinkConnectionError> {
        loop {
            if let Some(answer) = self.swallowing {
                if self.stream.take_placed().is_none() {
                    return Ok(());
                }
                self.swallowing = None;
                self.answer(answer);
            }
            if self.is_full() {
                return Ok(());
            }
            let bytes = self.stream.bytes();
            let header = match Header::parse(bytes) {
                Ok(header) => header,
                Err(HeaderError::Incomplete) => return Ok(()),
                Err(error @ HeaderError::Malformed { .. }) => return Err(error.into()),
            };
            if !self.greeted {
                if header.kind != FrameKind::Hello {
                    return Err(SinkConnectionError::Unexpected(header.kind));
                }
                self.stream.consume(HEADER_BYTES);
                self.stream.push_bytes(&Header::hello().encode());
                self.greeted = true;
                continue;
            }
            let answer = header
                .answer()
                .ok_or(SinkConnectionError::Unexpected(header.kind))?;
            let (len, have) = (header.payload_len(), bytes.len() - HEADER_BYTES);
            if have >= len {
                self.stream.consume(HEADER_BYTES + len);
                self.batch.received_bytes += len as u64;
                self.answer(answer);
            } else if self.stream.wants_place(len - have, HEADER_BYTES + len) {
                self.stream.consume(HEADER_BYTES);
                self.batch.received_bytes += len as u64;
                self.stream.place(PayloadPlace::Discard, 0, len);
                self.swallowing = Some(answer);
            } else {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, header: Header) {
        self.stream.push_bytes(&header.encode());
        if header.payload_len() > 0 {
            self.stream.push_zeros(header.payload_len());
            self.batch.sent_bytes += header.payload_len() as u64;
        }
        self.batch.requests += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn start(connections_max: usize) -> TcpSink {
        TcpSink::start(SinkConfig {
            connections_max,
            ..SinkConfig::default()
        })
        .unwrap()
    }

    fn header(kind: FrameKind, len: u32, tag: u64) -> Vec<u8> {
        Header { kind, len, tag }.encode().to_vec()
    }

    /// Returns what a sink sends until it closes the connection, or until `wanted` bytes have arrived.
    fn talk(sink: &TcpSink, bytes: &[u8], wanted: usize) -> (TcpStream, Vec<u8>) {
        let mut socket = TcpStream::connect(sink.address()).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let _ = socket.write_all(bytes);
        let mut got = vec![0; wanted];
        let mut at = 0;
        while at < wanted {
            match socket.read(&mut got[at..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => at += count,
            }
        }
        got.truncate(at);
        (socket, got)
    }

    #[test]
    fn requests_split_at_every_byte_are_answered_once_and_in_order() {
        let sink = start(8);
        let mut script = Header::hello().encode().to_vec();
        script.extend(header(FrameKind::Read, 512, 1));
        script.extend(header(FrameKind::Write, 700, 2));
        script.extend([7; 700]);
        script.extend(header(FrameKind::Touch, 0, 3));
        let mut expected = Header::hello().encode().to_vec();
        expected.extend(header(FrameKind::Data, 512, 1));
        expected.extend([0; 512]);
        expected.extend(header(FrameKind::Done, 0, 2));
        expected.extend(header(FrameKind::Done, 0, 3));
        for cut in (0..script.len()).step_by(13) {
            let mut socket = TcpStream::connect(sink.address()).unwrap();
            socket.set_nodelay(true).unwrap();
            socket.write_all(&script[..cut]).unwrap();
            std::thread::yield_now();
            socket.write_all(&script[cut..]).unwrap();
            let mut got = vec![0; expected.len()];
            socket.read_exact(&mut got).unwrap();
            assert!(got == expected, "cut at {cut}");
        }
        let stats = sink.shutdown();
        assert_eq!((stats.broken, stats.requests % 3), (0, 0), "{stats:?}");
    }

    /// Malformed data ends its own connection, is counted, and doesn't affect others.
    #[test]
    fn malformed_data_ends_only_its_own_connection_and_is_counted() {
        let sink = start(8);
        let hello = Header::hello().encode().to_vec();
        let (_good, greeting) = talk(&sink, &hello, HEADER_BYTES);
        assert_eq!(greeting, hello);
        let mut long = header(FrameKind::Write, 1, 1);
        long[4] = 0x7f;
        let cases: [Vec<u8>; 5] = [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            header(FrameKind::Read, 512, 1),
            [hello.clone(), hello.clone()].concat(),
            [hello.clone(), header(FrameKind::Data, 1, 1)].concat(),
            [hello.clone(), long].concat(),
        ];
        let count = cases.len() as u64;
        for case in cases {
            let (_, got) = talk(&sink, &case, 1 << 10);
            assert!(got.len() <= HEADER_BYTES, "{case:?}: {got:?}");
        }
        let (_, still) = talk(
            &sink,
            &[hello.clone(), header(FrameKind::Touch, 0, 9)].concat(),
            2 * HEADER_BYTES,
        );
        assert_eq!(still, [hello, header(FrameKind::Done, 0, 9)].concat());
        assert_eq!(sink.shutdown().broken, count);
    }

    /// A connection above the limit is closed, and a freed slot is reused.
    #[test]
    fn a_connection_above_the_limit_is_closed() {
        let sink = start(1);
        let hello = Header::hello().encode().to_vec();
        let (first, got) = talk(&sink, &hello, HEADER_BYTES);
        assert_eq!(got.len(), HEADER_BYTES);
        assert_eq!(talk(&sink, &hello, HEADER_BYTES).1.len(), 0);
        drop(first);
        while talk(&sink, &hello, HEADER_BYTES).1.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(sink.shutdown().refused >= 1);
    }

    /// A peer that sends requests but doesn't read is throttled; its answers aren't buffered without limit.
    #[test]
    fn a_peer_that_does_not_read_is_throttled() {
        let sink = start(8);
        let mut script = Header::hello().encode().to_vec();
        for tag in 0..20_000 {
            script.extend(header(FrameKind::Read, 1 << 20, tag));
        }
        // 20 GB are requested; about 8 MiB are queued, and the rest waits in the socket.
        let (socket, got) = talk(&sink, &script, 100_000);
        assert_eq!(got.len(), 100_000);
        assert!(sink.stats().sent_bytes < 200 << 20, "{:?}", sink.stats());
        drop(socket);
        assert_eq!(sink.shutdown().broken, 0);
    }
}
