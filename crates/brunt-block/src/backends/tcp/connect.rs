//! Opens a connection to a sink: connects, sends a greeting, and reads the sink's greeting. Blocking, with a deadline
//! for the whole procedure; called when a device is opened.
//!
//! The one rule: packet loss is retried ([`crate::attempts`]); answers from the sink are final.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::TcpConfig;
use super::frame::{FrameKind, HEADER_BYTES, Header, TRANSFER_BYTES_MAX};
use crate::attempts::{Attempted, AttemptsFailed, in_attempts};
use crate::dial;

/// Why there is no connection to a sink.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot resolve the host: {0}")]
    Resolve(io::Error),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("cannot set up the socket: {0}")]
    Socket(io::Error),
    #[error("the connection failed before the greeting: {0}")]
    Broken(io::Error),
    #[error(
        "the peer closed the connection before the greeting: it is not a brunt sink, or it has \
         too many connections"
    )]
    Closed,
    #[error("no greeting from a brunt sink within {}", seconds(*.0))]
    Silent(Duration),
    #[error("the peer is not a brunt sink, or has another version")]
    Stranger,
    #[error("{last}; {attempts} attempts in {}", seconds(*.time))]
    AttemptsFailed {
        attempts: u32,
        time: Duration,
        last: Box<ConnectError>,
    },
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl ConnectError {
    /// Whether another attempt may succeed.
    fn is_transient(&self) -> bool {
        match self {
            // "Refused" and "unreachable" are answers from the network. Only a missing answer is transient.
            ConnectError::Connect(error) => {
                matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
            }
            ConnectError::Broken(_) | ConnectError::Closed | ConnectError::Silent(_) => true,
            ConnectError::Resolve(_)
            | ConnectError::Socket(_)
            | ConnectError::Stranger
            | ConnectError::AttemptsFailed { .. } => false,
        }
    }
}

/// A blocking connection to a sink whose greeting has arrived.
pub(super) struct Connected {
    pub(super) socket: TcpStream,
    /// Number of failed attempts before the successful one.
    pub(super) retries: u32,
    /// Why the last failed attempt failed.
    pub(super) trouble: Option<ConnectError>,
}

/// Connects within the configured timeout, in as many attempts as fit.
pub(super) fn connect(config: &TcpConfig) -> Result<Connected, ConnectError> {
    let deadline = Instant::now() + config.timeout;
    let addresses =
        dial::resolve(&config.host, config.port, deadline).map_err(ConnectError::Resolve)?;
    let once = |time| attempt(config, &addresses, Instant::now() + time);
    match in_attempts(dial::left(deadline), ConnectError::is_transient, once) {
        Ok(Attempted {
            value: socket,
            retries,
            trouble,
        }) => Ok(Connected {
            socket,
            retries,
            trouble,
        }),
        Err(AttemptsFailed {
            last, attempts: 1, ..
        }) => Err(last),
        Err(AttemptsFailed {
            last,
            attempts,
            time,
        }) => Err(ConnectError::AttemptsFailed {
            attempts,
            time,
            last: Box::new(last),
        }),
    }
}

fn attempt(
    config: &TcpConfig,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, ConnectError> {
    let start = Instant::now();
    let left = || dial::left(deadline);
    let mut socket = dial::tcp_to(addresses, deadline).map_err(ConnectError::Connect)?;
    config
        .sockets
        .apply(&socket)
        .map_err(ConnectError::Socket)?;
    socket
        .set_write_timeout(Some(left()))
        .map_err(ConnectError::Socket)?;
    socket
        .write_all(&Header::hello().encode())
        .map_err(ConnectError::Broken)?;
    let mut bytes = [0; HEADER_BYTES];
    let mut at = 0;
    while at < bytes.len() {
        // Set again before each read, so that a peer that sends single bytes gets no extra time.
        socket
            .set_read_timeout(Some(left()))
            .map_err(ConnectError::Socket)?;
        match socket.read(&mut bytes[at..]) {
            Ok(0) => return Err(ConnectError::Closed),
            Ok(count) => at += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ConnectError::Silent(start.elapsed()));
            }
            Err(error) => return Err(ConnectError::Broken(error)),
        }
    }
    match Header::parse(&bytes) {
        Ok(Header {
            kind: FrameKind::Hello,
            len: TRANSFER_BYTES_MAX,
            ..
        }) => {}
        _ => return Err(ConnectError::Stranger),
    }
    socket
        .set_read_timeout(None)
        .map_err(ConnectError::Socket)?;
    socket
        .set_write_timeout(None)
        .map_err(ConnectError::Socket)?;
    Ok(socket)
}
