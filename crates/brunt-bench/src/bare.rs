//! A bare request/response pair over TCP: a SAN stripped of protocol and storage. Two threads on loopback exchange
//! messages of iSCSI's sizes (a 48-byte header and the payload) with plain blocking calls. This is the baseline of
//! `brunt-bench iscsi`, measured in the same run. [`ask`], its client half, also drives the bare NBD client.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use brunt_core::ResourceUsage;

use super::sample::RunSample;

const HEADER_BYTES: usize = 48;

/// The direction of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadDirection {
    /// The response carries the payload.
    Read,
    /// The request carries the payload.
    Write,
}

/// Keeps `depth` requests of `payload` bytes in flight for `time`.
///
/// # Errors
/// A socket operation fails.
pub fn measure(
    direction: PayloadDirection,
    payload: usize,
    depth: usize,
    time: Duration,
) -> io::Result<RunSample> {
    let (request, response) = match direction {
        PayloadDirection::Read => (HEADER_BYTES, HEADER_BYTES + payload),
        PayloadDirection::Write => (HEADER_BYTES + payload, HEADER_BYTES),
    };
    measure_messages(request, response, depth, time)
}

/// Keeps `depth` requests of `request` bytes, each answered with `response` bytes, in flight for `time`.
///
/// # Errors
/// A socket operation fails.
pub fn measure_messages(
    request: usize,
    response: usize,
    depth: usize,
    time: Duration,
) -> io::Result<RunSample> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let answering = std::thread::spawn(move || serve(server, request, response));
    let sample = ask(client, &vec![0; request], response, depth, time);
    let target_cpu = answering
        .join()
        .expect("the server thread does not panic")?;
    sample.map(|sample| RunSample {
        target_cpu: Some(target_cpu),
        ..sample
    })
}

/// Answers complete requests until the peer closes the connection; returns its own CPU time.
fn serve(mut socket: TcpStream, request: usize, response: usize) -> io::Result<Duration> {
    let start = ResourceUsage::of_thread();
    let mut counter = Counter::new(request);
    let answer = vec![0u8; response];
    loop {
        let whole = counter.receive(&mut socket)?;
        // The client may have failed and closed its socket.
        if counter.ended || send(&mut socket, &answer, whole).is_err() {
            return Ok(ResourceUsage::of_thread().since(start).cpu());
        }
    }
}

/// Keeps `depth` copies of a request in flight for `time`, and discards the `response` bytes of each reply.
///
/// # Errors
/// A socket operation fails, or the peer closes the connection.
pub fn ask(
    mut socket: impl Read + Write,
    message: &[u8],
    response: usize,
    depth: usize,
    time: Duration,
) -> io::Result<RunSample> {
    let mut counter = Counter::new(response);
    let begin = Instant::now();
    let cpu = ResourceUsage::of_thread();
    let mut requests = 0;
    let mut outstanding = depth;
    let mut elapsed = Duration::ZERO;
    send(&mut socket, message, depth)?;
    while outstanding > 0 {
        let whole = counter.receive(&mut socket)?;
        if counter.ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        requests += whole as u64;
        let more = || io::Error::new(io::ErrorKind::InvalidData, "more replies than requests");
        outstanding = outstanding.checked_sub(whole).ok_or_else(more)?;
        elapsed = begin.elapsed();
        if elapsed < time {
            send(&mut socket, message, whole)?;
            outstanding += whole;
        }
    }
    let client_cpu = ResourceUsage::of_thread().since(cpu).cpu();
    Ok(RunSample {
        requests,
        elapsed,
        client_cpu: Some(client_cpu),
        ..RunSample::default()
    })
}

/// Sends `count` copies of a message in as few calls as possible.
fn send(socket: &mut impl Write, message: &[u8], count: usize) -> io::Result<()> {
    let mut left = count;
    while left > 0 {
        let batch = left.min(64);
        let mut pieces = [IoSlice::new(message); 64];
        let mut pieces = &mut pieces[..batch];
        while !pieces.is_empty() {
            let sent = socket.write_vectored(pieces)?;
            IoSlice::advance_slices(&mut pieces, sent);
        }
        left -= batch;
    }
    Ok(())
}

/// Counts complete messages in a byte stream.
struct Counter {
    message: usize,
    have: usize,
    buffer: Vec<u8>,
    ended: bool,
}

impl Counter {
    fn new(message: usize) -> Counter {
        Counter {
            message,
            have: 0,
            buffer: vec![0; 256 << 10],
            ended: false,
        }
    }

    fn receive(&mut self, socket: &mut impl Read) -> io::Result<usize> {
        let count = match socket.read(&mut self.buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error),
        };
        self.ended = count == 0;
        self.have += count;
        let whole = self.have / self.message;
        self.have %= self.message;
        Ok(whole)
    }
}
