//! A server that stores nothing, whatever its protocol: accepts connections, moves bytes and counts. A [`SinkSession`]
//! per connection implements the protocol: that of the `tcp` device here, NFS in `brunt-nfs`.
//!
//! One thread and one ring per connection; all answers of a batch are sent in one vectored call. The one rule: a peer
//! can use only a bounded amount of memory and break only its own connection.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::reception::{ListeningSocket, Reception, ReceptionCounts, ReceptionListener};
use crate::socket::{Socket, SocketOptions};
use crate::{Ring, RingConfig, Stream};

/// A connection without a valid message is closed after this time. Longer than the clients' default timeouts: after a
/// lost SYN and a lost first message, TCP itself needs 6 s or more.
pub const HELLO_TIME: Duration = Duration::from_secs(60);
/// Maximum bytes of queued answers; beyond that, no further request is processed.
const ANSWERS_BYTES_MAX: usize = 4 << 20;
/// Receive buffer: holds many requests at once and fits into the L2 cache.
pub(crate) const RX_BYTES: usize = 256 << 10;

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

/// A connection's counts since they were last added to the sink's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Requests answered.
    pub requests: u64,
    /// Payload bytes received and discarded.
    pub received_bytes: u64,
    /// Payload bytes sent.
    pub sent_bytes: u64,
}

/// The protocol on one connection.
pub trait SinkSession {
    /// Why the protocol ends the connection.
    type Error: Display;

    /// Whether the peer has sent a valid message.
    fn is_greeted(&self) -> bool;

    /// Answers all requests received so far, until [`is_full`].
    ///
    /// # Errors
    /// The peer violated the protocol.
    fn serve(&mut self, stream: &mut Stream, counts: &mut SinkCounts) -> Result<(), Self::Error>;
}

/// Whether so many answers are queued that no further request is processed.
pub fn is_full(stream: &Stream) -> bool {
    stream.queued_bytes() > ANSWERS_BYTES_MAX
}

/// A listening sink. Dropping the sink closes it.
pub struct SinkServer {
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

impl SinkServer {
    /// Starts listening. `session` is called for each connection; threads are named `name`.
    ///
    /// # Errors
    /// The address is in use or not local.
    pub fn start<S: SinkSession>(
        name: &'static str,
        config: SinkConfig,
        session: impl Fn(&Socket) -> S + Send + Sync + 'static,
    ) -> io::Result<SinkServer> {
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
            name,
            listening,
            connections_max,
            listener,
            move |socket, guest| {
                guest.settle();
                let session = session(&socket);
                serve(socket, session, &of_connection)
            },
        )?;
        Ok(SinkServer {
            state,
            address,
            reception,
        })
    }

    /// The address that the sink listens on.
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
enum SinkError<E: Display> {
    #[error("cannot set up the connection's ring: {0}")]
    Ring(#[from] io::Error),
    #[error("the peer sent no valid message within {HELLO_TIME:?}")]
    Silent,
    #[error("{0}")]
    Session(E),
}

fn serve<S: SinkSession>(
    socket: Socket,
    mut session: S,
    state: &State,
) -> Result<(), SinkError<S::Error>> {
    let ring = Ring::new(RingConfig {
        entries: 64,
        ..RingConfig::default()
    })?;
    socket.set_nonblocking(false)?;
    state.config.sockets.apply(&socket)?;
    let mut stream = Stream::new(&ring, socket, RX_BYTES)?;
    stream.socket().set_nodelay(state.config.sockets.no_delay)?;
    let hello_until = Clock::Monotonic.now().after(HELLO_TIME);
    let mut calls = 0;
    loop {
        let mut counts = SinkCounts::default();
        let done = session.serve(&mut stream, &mut counts);
        stream.flush();
        let SinkCounts {
            requests,
            received_bytes,
            sent_bytes,
        } = counts;
        if counts != SinkCounts::default() {
            state.requests.fetch_add(requests, Ordering::Relaxed);
            state
                .received_bytes
                .fetch_add(received_bytes, Ordering::Relaxed);
            state.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        }
        let now = ring.stats().system_calls;
        state.system_calls.fetch_add(now - calls, Ordering::Relaxed);
        calls = now;
        done.map_err(SinkError::Session)?;
        if !is_full(&stream) {
            stream.arm();
        }
        let until = match session.is_greeted() {
            true => Nanos::MAX,
            false => hello_until,
        };
        ring.enter(until)?;
        // The peer has closed the connection, so the answers to its last requests have no reader.
        if stream.poll().ended {
            return Ok(());
        }
        if !session.is_greeted() && Clock::Monotonic.now() >= hello_until {
            return Err(SinkError::Silent);
        }
    }
}
