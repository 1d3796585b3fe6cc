//! A bare NBD client: a client stripped down to a single connection whose data is ignored. Requests are built once and
//! sent repeatedly; replies are received into a single buffer and counted by their length. This is the baseline of
//! `brunt-bench nbd`; nothing else uses it.
//!
//! The rule: use it only for servers known to answer without errors, since nothing is checked.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use brunt_block::socket::Socket;
use brunt_store::nbd::connect;
use brunt_store::nbd::url::NbdConfig;
use brunt_wire::nbd::{NbdCommand, NbdHeaders, NbdRequest};

use super::bare::{self, PayloadDirection};
use super::sample::RunSample;

/// Size of a simple reply without its data.
const REPLY_BYTES: usize = 16;

/// Keeps `depth` requests of `size` bytes in flight for `time`, all at offset 0 of an export on a Unix socket.
///
/// # Errors
/// The handshake or a socket operation fails, or the export is not on a Unix socket.
pub fn measure(
    export: &NbdConfig,
    direction: PayloadDirection,
    size: usize,
    depth: usize,
    time: Duration,
) -> io::Result<RunSample> {
    let connection = connect::connect(export).map_err(io::Error::other)?;
    let Socket::Unix(server) = connection.socket else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let (command, sent, received) = match direction {
        PayloadDirection::Read => (NbdCommand::Read, 0, size),
        PayloadDirection::Write => (NbdCommand::Write, size, 0),
    };
    let header = NbdRequest {
        flags: 0,
        command,
        cookie: 0,
        offset: 0,
        len: size as u64,
    };
    let mut request = header.encode(NbdHeaders::Simple).to_vec();
    request.resize(request.len() + sent, 0);
    server.set_nonblocking(true)?;
    bare::ask(
        Polling(server),
        &request,
        REPLY_BYTES + received,
        depth,
        time,
    )
}

/// A socket that is polled until it is ready, as our client polls its ring, because sleeping would cost more.
struct Polling(UnixStream);

impl Polling {
    fn until_ready<T>(
        &mut self,
        mut call: impl FnMut(&mut UnixStream) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                done => return done,
            }
        }
    }
}

impl Read for Polling {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.until_ready(|socket| socket.read(bytes))
    }
}

impl Write for Polling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_ready(|socket| socket.write(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.until_ready(|socket| socket.write_vectored(pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
