//! The other end of the `tcp` device: discards writes and answers reads with zeros. Started by `brunt sink`,
//! by experiments that measure the network, and by tests.
//!
//! One thread and one ring per connection; all answers of a batch go out in one vectored call. The one rule:
//! a peer can only use a bounded amount of memory and only break its own connection.

use std::fmt;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use rustix::event::{PollFd, PollFlags, poll};

use super::frame::{FrameKind, HEADER_BYTES, Header, HeaderError};
use super::{PLACE_BYTES_MIN, RX_BYTES, TIMEOUT};
use crate::socket::SocketOptions;
use crate::{PayloadPlace, Ring, RingConfig, Stream};

/// A connection that has not said hello after this is closed. Longer than a client waits by default: after a lost
/// SYN and a lost hello, TCP itself takes 6 s and more.
const HELLO_TIME: Duration = Duration::from_secs(60);
const _: () = assert!(HELLO_TIME.as_secs() > TIMEOUT.as_secs(), "who loses packets is not hung up on");
/// Answers queued, in bytes, beyond which no further request is looked at.
const ANSWERS_BYTES_MAX: usize = 4 << 20;
/// How long connections have to end when the sink does.
const END_TIME: Duration = Duration::from_secs(5);

/// How a sink is made.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// Where it listens; port 0 picks a free one.
    pub portal: SocketAddr,
    /// Of every connection.
    pub sockets: SocketOptions,
    /// Connections at once; one more is closed, and counted.
    pub connections_max: usize,
    /// Is told of each connection that ended badly, in that connection's thread.
    pub listener: SinkListener,
}

impl Default for SinkConfig {
    fn default() -> SinkConfig {
        SinkConfig {
            portal: SocketAddr::from(([127, 0, 0, 1], 0)),
            sockets: SocketOptions::default(),
            connections_max: 256,
            listener: SinkListener::default(),
        }
    }
}

/// Called with a line for people; the default hears nothing.
#[derive(Clone, Default)]
pub struct SinkListener(Option<Arc<Hear>>);

type Hear = dyn Fn(&str) + Send + Sync;

impl SinkListener {
    /// Calls `hear`.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> SinkListener {
        SinkListener(Some(Arc::new(hear)))
    }
}

impl fmt::Debug for SinkListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "SinkListener" } else { "no SinkListener" })
    }
}

/// What a sink did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Connections that were let in.
    pub connections: u64,
    /// Connections that were one too many.
    pub refused: u64,
    /// Connections that ended because of what their peer sent, or for trouble of our own.
    pub broken: u64,
    /// Requests answered.
    pub requests: u64,
    /// Payload thrown away.
    pub received_bytes: u64,
    /// Payload sent.
    pub sent_bytes: u64,
    /// System calls of the connections' rings.
    pub system_calls: u64,
}

/// A sink that listens. Dropping it ends it.
pub struct TcpSink {
    state: Arc<State>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
    wake: UnixStream,
}

struct State {
    config: SinkConfig,
    stop: AtomicBool,
    /// The sockets of connections under way, by number: shut down at the end.
    live: Mutex<Vec<(u64, TcpStream)>>,
    ended: Condvar,
    connections: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
    requests: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    system_calls: AtomicU64,
}

impl TcpSink {
    /// Listens.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub fn start(config: SinkConfig) -> io::Result<TcpSink> {
        let listener = TcpListener::bind(config.portal)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        let state = Arc::new(State {
            config,
            stop: AtomicBool::new(false),
            live: Mutex::default(),
            ended: Condvar::new(),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            system_calls: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&state);
        let acceptor = std::thread::Builder::new()
            .name("sink".into())
            .spawn(move || accept(&accepting, &listener, &woken))?;
        Ok(TcpSink { state, address, acceptor: Some(acceptor), wake })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it did so far; connections under way are counted a batch at a time.
    pub fn stats(&self) -> SinkStats {
        let state = &self.state;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SinkStats {
            connections: get(&state.connections),
            refused: get(&state.refused),
            broken: get(&state.broken),
            requests: get(&state.requests),
            received_bytes: get(&state.received_bytes),
            sent_bytes: get(&state.sent_bytes),
            system_calls: get(&state.system_calls),
        }
    }

    /// Closes everything; what it did.
    pub fn shutdown(mut self) -> SinkStats {
        self.stop();
        self.stats()
    }

    fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.state.stop.store(true, Ordering::Release);
        // A full line wakes as well.
        let _ = self.wake.write(&[1]);
        let _ = acceptor.join();
        let live = self.state.live();
        for (_, socket) in live.iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let _ = self.state.ended.wait_timeout_while(live, END_TIME, |live| !live.is_empty());
    }
}

impl Drop for TcpSink {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn live(&self) -> MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(state: &Arc<State>, listener: &TcpListener, woken: &UnixStream) {
    while !state.stop.load(Ordering::Acquire) {
        let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        if poll(&mut polled, None).is_err() {
            // EINTR, or ENOMEM in passing: look again, not at once.
            std::thread::sleep(Duration::from_millis(10));
        }
        match listener.accept() {
            Ok((socket, _)) => admit(state, socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Gone again before it was accepted, or no descriptor to be had: not at once.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Gives a connection its thread, if there is room for one more.
fn admit(state: &Arc<State>, socket: TcpStream) {
    let number = state.connections.load(Ordering::Relaxed);
    let mut live = state.live();
    let copy = match socket.try_clone() {
        Ok(copy) if live.len() < state.config.connections_max => copy,
        _ => {
            state.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    live.push((number, copy));
    drop(live);
    state.connections.fetch_add(1, Ordering::Relaxed);
    let of_thread = Arc::clone(state);
    let spawned = std::thread::Builder::new().name(format!("sink {number}")).spawn(move || {
        // The place is given back also when this thread panics.
        let _leave = Leave { state: Arc::clone(&of_thread), number };
        if let Err(error) = serve(socket, &of_thread) {
            of_thread.broken.fetch_add(1, Ordering::Relaxed);
            if let Some(hear) = &of_thread.config.listener.0 {
                hear(&format!("connection {number}: {error}"));
            }
        }
    });
    if spawned.is_err() {
        // No thread to be had: the peer sees the connection close.
        drop(Leave { state: Arc::clone(state), number });
    }
}

struct Leave {
    state: Arc<State>,
    number: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.state.live().retain(|(number, _)| *number != self.number);
        self.state.ended.notify_all();
    }
}

/// Why a connection ended otherwise than by its peer's leaving.
#[derive(Debug, thiserror::Error)]
enum SinkConnectionError {
    #[error("the connection's ring: {0}")]
    Ring(#[from] io::Error),
    #[error("the peer sent what is {0}")]
    Malformed(#[from] HeaderError),
    #[error("the peer sent no greeting within {HELLO_TIME:?}")]
    Silent,
    #[error("the peer sent {0:?} where a request belongs")]
    Unexpected(FrameKind),
}

/// What a connection did since it was last told to the sink.
#[derive(Default)]
struct Batch {
    requests: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

fn serve(socket: TcpStream, state: &State) -> Result<(), SinkConnectionError> {
    let ring = Ring::new(RingConfig { entries: 64, ..RingConfig::default() })?;
    socket.set_nonblocking(false)?;
    state.config.sockets.apply(&socket)?;
    let stream = Stream::new(&ring, socket, RX_BYTES)?;
    stream.socket().set_nodelay(state.config.sockets.no_delay)?;
    let mut connection = Connection { stream, greeted: false, swallowing: None, batch: Batch::default() };
    let hello_until = Clock::Monotonic.now().after(HELLO_TIME);
    let mut calls = 0;
    loop {
        let done = connection.read();
        connection.stream.flush();
        let Batch { requests, received_bytes, sent_bytes } = std::mem::take(&mut connection.batch);
        if requests > 0 {
            state.requests.fetch_add(requests, Ordering::Relaxed);
            state.received_bytes.fetch_add(received_bytes, Ordering::Relaxed);
            state.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        }
        let now = ring.stats().system_calls;
        state.system_calls.fetch_add(now - calls, Ordering::Relaxed);
        calls = now;
        done?;
        if !connection.is_full() {
            connection.stream.arm();
        }
        let until = if connection.greeted { Nanos::MAX } else { hello_until };
        ring.enter(until)?;
        // What came before the end was asked by somebody who is gone: nobody waits for the answers.
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
    /// Whether the peer said hello.
    greeted: bool,
    /// The answer that is due when the payload under way has been thrown away.
    swallowing: Option<Header>,
    batch: Batch,
}

impl Connection {
    fn is_full(&self) -> bool {
        self.stream.queued_bytes() > ANSWERS_BYTES_MAX
    }

    /// Takes every request that is there.
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
            let answer = header.answer().ok_or(SinkConnectionError::Unexpected(header.kind))?;
            let (len, have) = (header.payload_len(), bytes.len() - HEADER_BYTES);
            if have >= len {
                self.stream.consume(HEADER_BYTES + len);
                self.batch.received_bytes += len as u64;
                self.answer(answer);
            } else if len - have >= PLACE_BYTES_MIN || HEADER_BYTES + len > self.stream.rx_capacity() {
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
    use std::io::Read;

    fn start(connections_max: usize) -> TcpSink {
        TcpSink::start(SinkConfig { connections_max, ..SinkConfig::default() }).unwrap()
    }

    fn header(kind: FrameKind, len: u32, tag: u64) -> Vec<u8> {
        Header { kind, len, tag }.encode().to_vec()
    }

    /// What a sink sends until it closes, or until `wanted` bytes are there.
    fn talk(sink: &TcpSink, bytes: &[u8], wanted: usize) -> (TcpStream, Vec<u8>) {
        let mut socket = TcpStream::connect(sink.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
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

    /// Requests cut at every byte are answered once, in order.
    #[test]
    fn pieces() {
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

    /// Nonsense ends its own connection, is counted, and disturbs nobody else.
    #[test]
    fn nonsense() {
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
        let (_, still) =
            talk(&sink, &[hello.clone(), header(FrameKind::Touch, 0, 9)].concat(), 2 * HEADER_BYTES);
        assert_eq!(still, [hello, header(FrameKind::Done, 0, 9)].concat());
        assert_eq!(sink.shutdown().broken, count);
    }

    /// One connection too many is closed, and a place that was left is given again.
    #[test]
    fn full_house() {
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

    /// A peer that asks and does not read is held back, not buffered for.
    #[test]
    fn greedy() {
        let sink = start(8);
        let mut script = Header::hello().encode().to_vec();
        for tag in 0..20_000 {
            script.extend(header(FrameKind::Read, 1 << 20, tag));
        }
        // 20 GB are asked for; some 8 MiB are queued, the rest waits in the socket.
        let (socket, got) = talk(&sink, &script, 100_000);
        assert_eq!(got.len(), 100_000);
        assert!(sink.stats().sent_bytes < 200 << 20, "{:?}", sink.stats());
        drop(socket);
        assert_eq!(sink.shutdown().broken, 0);
    }
}
