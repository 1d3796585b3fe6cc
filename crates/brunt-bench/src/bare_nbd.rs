//! A bare NBD client: the least that a client with one connection can do. Requests are made once and sent again and
//! again, answers are received into one buffer and counted by their length. It says how fast a server is, so what
//! any client could reach at best; nothing but `brunt bench nbd` uses it.
//!
//! The one rule: only for servers known to answer without errors, since nothing is checked.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use brunt_wire::nbd::negotiation::{self, handshake_flag, option};
use brunt_wire::nbd::{NbdCommand, NbdHeaders, NbdRequest};

use super::bare::{self, PayloadDirection};
use super::sample::RunSample;

/// Bytes of the answer to EXPORT_NAME: size and flags.
const EXPORT_BYTES: usize = 10;
/// Bytes of a simple reply, its data apart.
const REPLY_BYTES: usize = 16;

/// Keeps `depth` requests of `size` bytes going for `time`, at the start of the default export behind a Unix socket.
///
/// # Errors
/// The socket's.
pub fn measure(
    socket: &Path,
    direction: PayloadDirection,
    size: usize,
    depth: usize,
    time: Duration,
) -> io::Result<RunSample> {
    let mut server = UnixStream::connect(socket)?;
    server.read_exact(&mut [0; negotiation::GREETING_BYTES])?;
    let flags = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    server.write_all(&flags.to_be_bytes())?;
    server.write_all(&negotiation::encode_option(option::EXPORT_NAME, b""))?;
    server.read_exact(&mut [0; EXPORT_BYTES])?;
    let (command, sent, received) = match direction {
        PayloadDirection::Read => (NbdCommand::Read, 0, size),
        PayloadDirection::Write => (NbdCommand::Write, size, 0),
    };
    let header = NbdRequest { flags: 0, command, cookie: 0, offset: 0, len: size as u64 };
    let mut request = header.encode(NbdHeaders::Simple).to_vec();
    request.resize(request.len() + sent, 0);
    server.set_nonblocking(true)?;
    bare::ask(Polling(server), &request, REPLY_BYTES + received, depth, time)
}

/// A socket that is looked at until it has something, as the ring of our client does: sleeping would cost more.
struct Polling(UnixStream);

impl Polling {
    fn until_ready<T>(&mut self, mut call: impl FnMut(&mut UnixStream) -> io::Result<T>) -> io::Result<T> {
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
