//! Connects to an NBD server, negotiates, and starts TLS. Blocking, with a single deadline; called when a device is
//! opened, and on a separate thread to restore a lost connection. Also answers queries that need no device: the list of
//! exports, and which blocks are allocated.
//!
//! The one rule: the resulting connection is in the transmission phase, with no unread data in its socket. Network
//! losses are retried and counted; refusals by the server are not.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use brunt_block::attempts::{Attempted, AttemptsFailed, in_attempts};
use brunt_block::dial::{self, DialError, left};
use brunt_block::socket::Socket;
use brunt_wire::ParseError;
use brunt_wire::nbd::transmission::{
    HEADER_BYTES_MAX, command_flag, parse_block_status, parse_error,
};
use brunt_wire::nbd::{NbdChunk, NbdCommand, NbdHeaders, NbdReply, NbdRequest};
use rustls::ClientConnection;

use super::connect_error::NbdConnectError;
use super::export::NbdExport;
use super::handshake::{NbdHandshake, NbdHandshakeOptions, NbdStep};
use super::url::{NbdAddress, NbdConfig};

/// Limit for the reply to a query about one extent, with 32- or 64-bit lengths, or for an error with its text.
const STATUS_BYTES_MAX: u32 = 8 << 10;

/// A connection in the transmission phase.
#[derive(Debug)]
pub struct NbdConnection {
    /// The connection's socket.
    pub socket: Socket,
    /// The encryption, if any.
    pub tls: Option<Box<ClientConnection>>,
    /// The negotiated export.
    pub export: NbdExport,
    /// Number of failed attempts before this connection.
    pub retries: u32,
    /// Why the last of them failed.
    pub trouble: Option<String>,
}

/// Connects, with as many attempts as fit in the configured timeout.
///
/// # Errors
/// See [`NbdConnectError`].
pub fn connect(config: &NbdConfig) -> Result<NbdConnection, NbdConnectError> {
    let Attempted {
        value,
        retries,
        trouble,
    } = over_the_network(config.timeout, |time| connect_once(config, time))?;
    Ok(NbdConnection {
        retries,
        trouble: trouble.map(|trouble| trouble.to_string()),
        ..value
    })
}

/// Like [`connect`], but makes a single attempt, for callers with their own retry rule.
///
/// # Errors
/// See [`NbdConnectError`].
pub fn connect_once(config: &NbdConfig, limit: Duration) -> Result<NbdConnection, NbdConnectError> {
    let (wire, step) = negotiate(config, config.headers, false, Instant::now() + limit)?;
    let NbdStep::Done(export) = step else {
        unreachable!("no list was requested")
    };
    wire.socket.set_timeouts(None).map_err(|error| {
        NbdConnectError::Io(wire.address.clone(), "setting up its socket", error)
    })?;
    Ok(NbdConnection {
        socket: wire.socket,
        tls: wire.tls,
        export: *export,
        retries: 0,
        trouble: None,
    })
}

/// The names and descriptions of a server's exports.
///
/// # Errors
/// See [`NbdConnectError`].
pub fn list(config: &NbdConfig) -> Result<Vec<(String, String)>, NbdConnectError> {
    let listed = over_the_network(config.timeout, |time| {
        let (mut wire, step) = negotiate(config, config.headers, true, Instant::now() + time)?;
        let NbdStep::Listed(names, goodbye) = step else {
            unreachable!("a list was requested")
        };
        let _ = wire.send(&goodbye, "goodbye");
        Ok(names)
    })?;
    Ok(listed.value)
}

/// Retries after errors that the network may have caused.
fn over_the_network<T>(
    limit: Duration,
    once: impl FnMut(Duration) -> Result<T, NbdConnectError>,
) -> Result<Attempted<T, NbdConnectError>, NbdConnectError> {
    in_attempts(limit, NbdConnectError::is_of_the_network, once).map_err(
        |AttemptsFailed {
             last,
             attempts,
             time,
         }| {
            match attempts {
                1 => last,
                _ => NbdConnectError::AttemptsFailed {
                    attempts,
                    time,
                    last: Box::new(last),
                },
            }
        },
    )
}

/// Connects and returns the last step of the handshake.
fn negotiate(
    config: &NbdConfig,
    headers: NbdHeaders,
    list: bool,
    deadline: Instant,
) -> Result<(Wire, NbdStep), NbdConnectError> {
    let mut wire = Wire::connect(config.address.clone(), deadline)?;
    let mut handshake = NbdHandshake::new(NbdHandshakeOptions {
        export: config.export.clone(),
        headers,
        tls: config.tls.is_some(),
        list,
    });
    loop {
        // Bounded by the longest reply of the handshake.
        let mut bytes = vec![0; handshake.wants()];
        if let Err(error) = wire.read(&mut bytes, "the handshake") {
            return Err(match error {
                NbdConnectError::Io(address, _, error)
                    if handshake.is_silent() && error.kind() == io::ErrorKind::UnexpectedEof =>
                {
                    NbdConnectError::HungUp(address, config.export.clone())
                }
                error => error,
            });
        }
        let step = handshake
            .on_bytes(&bytes)
            .map_err(|refusal| NbdConnectError::Refused(wire.address.clone(), refusal))?;
        match step {
            NbdStep::More => {}
            NbdStep::Send(bytes) => wire.send(&bytes, "the handshake")?,
            NbdStep::StartTls => {
                let tls = config.tls.as_ref().expect("TLS is used only if configured");
                wire.begin_tls(tls.begin())?;
                wire.send(&handshake.on_tls(), "the handshake")?;
            }
            over @ (NbdStep::Done(_) | NbdStep::Listed(..)) => return Ok((wire, over)),
        }
    }
}

/// A blocking connection with a deadline, plain or encrypted.
#[derive(Debug)]
struct Wire {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    address: NbdAddress,
    deadline: Instant,
}

impl Wire {
    fn connect(address: NbdAddress, deadline: Instant) -> Result<Wire, NbdConnectError> {
        let wire = |socket, address| {
            Ok(Wire {
                socket,
                tls: None,
                address,
                deadline,
            })
        };
        let (host, port) = match &address {
            NbdAddress::Unix(path) => {
                return match dial::unix(path, deadline) {
                    Ok(socket) => wire(socket.into(), address),
                    Err(error) => Err(NbdConnectError::Connect(address, error)),
                };
            }
            NbdAddress::Tcp(host, port) => (host.as_str(), *port),
        };
        match dial::tcp(host, port, deadline) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true);
                wire(socket.into(), address)
            }
            Err(DialError::Resolve(error)) => Err(NbdConnectError::Resolve(address, error)),
            Err(DialError::Connect(error)) => Err(NbdConnectError::Connect(address, error)),
        }
    }

    fn begin_tls(
        &mut self,
        begun: Result<ClientConnection, rustls::Error>,
    ) -> Result<(), NbdConnectError> {
        let failed = |error| NbdConnectError::Tls(self.address.clone(), error);
        let mut tls = begun.map_err(failed)?;
        while tls.is_handshaking() || tls.wants_write() {
            // Updated for each piece, so that a server that trickles bytes doesn't get more time.
            let _ = self.socket.set_timeouts(Some(left(self.deadline)));
            match one_step(&mut tls, &self.socket) {
                // Other work on this thread's ring interrupted the call: repeat the step.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error("the TLS handshake", error)),
                Ok(()) => {}
            }
        }
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Unwraps rustls errors, which come wrapped in I/O errors.
    fn io_error(&self, during: &'static str, error: io::Error) -> NbdConnectError {
        let address = self.address.clone();
        match error.downcast::<rustls::Error>() {
            Ok(error) => NbdConnectError::Tls(address, error),
            // The kernel reports a socket's timeout as "Resource temporarily unavailable".
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => NbdConnectError::Io(
                address,
                during,
                io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for a reply"),
            ),
            Err(error) => NbdConnectError::Io(address, during, error),
        }
    }

    fn send(&mut self, bytes: &[u8], during: &'static str) -> Result<(), NbdConnectError> {
        let _ = self.socket.set_timeouts(Some(left(self.deadline)));
        let mut socket = &self.socket;
        let sent = match &mut self.tls {
            None => socket.write_all(bytes),
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut socket);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
        };
        sent.map_err(|error| self.io_error(during, error))
    }

    fn read(&mut self, bytes: &mut [u8], during: &'static str) -> Result<(), NbdConnectError> {
        let mut at = 0;
        while at < bytes.len() {
            // Updated for each piece, so that a server that trickles bytes doesn't get more time.
            let _ = self.socket.set_timeouts(Some(left(self.deadline)));
            let mut socket = &self.socket;
            let read = match &mut self.tls {
                None => socket.read(&mut bytes[at..]),
                Some(tls) => rustls::Stream::new(&mut **tls, &mut socket).read(&mut bytes[at..]),
            };
            match read {
                Ok(0) => {
                    let ended = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    );
                    return Err(NbdConnectError::Io(self.address.clone(), during, ended));
                }
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error(during, error)),
            }
        }
        Ok(())
    }
}

/// A single read or write step of a TLS handshake.
fn one_step(tls: &mut ClientConnection, mut socket: &Socket) -> io::Result<()> {
    if tls.wants_write() {
        return tls.write_tls(&mut socket).map(drop);
    }
    if tls.read_tls(&mut socket)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match tls.process_new_packets() {
        Ok(_) => Ok(()),
        Err(error) => {
            // Sends the alert; the peer may be gone.
            let _ = tls.write_tls(&mut socket);
            Err(io::Error::new(io::ErrorKind::InvalidData, error))
        }
    }
}

/// Queries a server for allocated blocks over a separate connection.
#[derive(Debug)]
pub struct NbdStatusAsker {
    wire: Wire,
    export: NbdExport,
    timeout: Duration,
    cookie: u64,
}

impl NbdStatusAsker {
    /// Connects to the server.
    ///
    /// # Errors
    /// See [`NbdConnectError`]; also if the export has no block status.
    pub fn connect(config: &NbdConfig) -> Result<NbdStatusAsker, NbdConnectError> {
        let (wire, step) = negotiate(
            config,
            config.status_headers,
            false,
            Instant::now() + config.timeout,
        )?;
        let NbdStep::Done(export) = step else {
            unreachable!("no list was requested")
        };
        if export.allocation_context.is_none() {
            return Err(NbdConnectError::Export(
                config.name(),
                "it does not support block status".to_string(),
            ));
        }
        Ok(NbdStatusAsker {
            wire,
            export: *export,
            timeout: config.timeout,
            cookie: 0,
        })
    }

    /// The state of the blocks from `offset` on, as bits of `base:allocation`, and how many of the `len` bytes have
    /// this state.
    ///
    /// # Errors
    /// The connection broke, the server refused, or its reply was invalid; the asker can no longer be used.
    pub fn ask(&mut self, offset: u64, len: u32) -> Result<(u32, u64), NbdConnectError> {
        self.wire.deadline = Instant::now() + self.timeout;
        self.cookie += 1;
        let request = NbdRequest {
            flags: command_flag::REQ_ONE,
            command: NbdCommand::BlockStatus,
            cookie: self.cookie,
            offset,
            len: len.into(),
        };
        self.wire
            .send(&request.encode(self.export.headers), "block status")?;
        let mut found = None;
        loop {
            let (done, chunk) = self.header()?;
            let violation = |what| NbdConnectError::Violation(self.wire.address.clone(), what);
            let len = match chunk {
                NbdChunk::None => 0,
                NbdChunk::BlockStatus { len, .. } | NbdChunk::Error { len, .. } => len,
                _ => return Err(violation("a chunk other than block status")),
            };
            if len > STATUS_BYTES_MAX {
                return Err(violation("more block status than requested"));
            }
            let mut payload = vec![0; len as usize];
            self.wire.read(&mut payload, "block status")?;
            let violation = |what| NbdConnectError::Violation(self.wire.address.clone(), what);
            match chunk {
                NbdChunk::BlockStatus { wide, .. } => {
                    let status = parse_block_status(&payload, wide)
                        .map_err(|_| violation("malformed block status"))?;
                    if Some(status.context) == self.export.allocation_context {
                        let (len, flags) = status.extents[0];
                        found = Some((flags as u32, len));
                    }
                }
                NbdChunk::Error { .. } => {
                    let (error, words) =
                        parse_error(&payload).map_err(|_| violation("malformed error"))?;
                    let why = format!("block status at {offset} failed with error {error} {words}");
                    return Err(NbdConnectError::Export(self.wire.address.to_string(), why));
                }
                _ => {}
            }
            if done {
                let violation = violation("block status without an extent");
                return found.ok_or(violation);
            }
        }
    }

    /// Reads the header of the next chunk of the reply.
    fn header(&mut self) -> Result<(bool, NbdChunk), NbdConnectError> {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let mut have = 0;
        // Every kind of header is longer than its magic.
        let mut need = 4;
        loop {
            self.wire.read(&mut bytes[have..need], "block status")?;
            have = need;
            match NbdReply::parse(&bytes[..have], self.export.headers) {
                Ok((
                    NbdReply::Chunk {
                        done,
                        cookie,
                        chunk,
                        ..
                    },
                    _,
                )) if cookie == self.cookie => {
                    return Ok((done, chunk));
                }
                Err(ParseError::Incomplete(more)) if more <= HEADER_BYTES_MAX => need = more,
                Ok(_) => {
                    return Err(NbdConnectError::Violation(
                        self.wire.address.clone(),
                        "a reply to a different request than block status",
                    ));
                }
                Err(_) => {
                    let what = "a malformed reply to block status";
                    return Err(NbdConnectError::Violation(self.wire.address.clone(), what));
                }
            }
        }
    }
}
