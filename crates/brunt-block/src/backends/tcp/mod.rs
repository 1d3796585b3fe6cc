//! `tcp://host:port`: raw network throughput with the transfer sizes of block requests, for comparison with a disk, a
//! diskless target and a full target; the role of netperf in Aiken and Grunwald, 2003, Figures 4 to 7. A read is a
//! header answered by a header and N bytes; a write is a header and N bytes answered by a header. The number of
//! requests in flight is limited by the queue depth. [`frame`] defines the frames, whose headers have 16 bytes. The
//! peer is a [sink](start_sink), which stores nothing: reads return zeros, and offsets are ignored.
//!
//! The one rule: a lost connection is not re-established. The device measures one network path as it is; after a loss,
//! all requests fail with [`DeviceError::Gone`].

mod connect;
pub mod frame;
mod sink;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

pub use sink::start as start_sink;

use self::connect::Connected;
use self::frame::{FrameKind, HEADER_BYTES, Header, HeaderError, TRANSFER_BYTES_MAX};
use super::in_range;
use crate::open::{BackendEntry, DevicePreview, OpenError, Opened, UrlOptions, host_and_port};
use crate::sink::RX_BYTES;
use crate::socket::SocketOptions;
use crate::{
    Backend, Buf, Completion, Device, DeviceError, DeviceInfo, Health, Lent, Op, PayloadPlace,
    Request, Ring, Stream,
};

/// A sink's default port.
pub const PORT: u16 = 5260;
/// Default time limit for connecting (all attempts together), and for each request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum connections per thread's device.
const CONNECTIONS_MAX: u32 = 16;

/// The table entry.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "tcp",
    help: "the network alone: transfers as large as block requests, to and from 'brunt sink'",
    example: "tcp://127.0.0.1:5260",
    options: &[
        ("size", "nominal size of the device; default 1TiB"),
        (
            "block",
            "logical block size in bytes, 512 (default) or 4096",
        ),
        ("connections", "connections per thread, 1 to 16; default 1"),
        (
            "timeout",
            "time limit for connecting and for each request; default 30s",
        ),
        (
            "send_buffer",
            "socket send buffer; default: chosen by the kernel",
        ),
        (
            "receive_buffer",
            "socket receive buffer; default: chosen by the kernel",
        ),
        (
            "no_delay",
            "yes (default): set TCP_NODELAY; no: leave Nagle's algorithm on",
        ),
        (
            "congestion",
            "TCP congestion control, such as cubic; default: chosen by the kernel",
        ),
    ],
    open: |place, options| -> Opened {
        Ok(Arc::new(TcpBackend::open(TcpConfig::take(
            place, options,
        )?)?))
    },
    preview: |place, options| {
        let TcpConfig {
            size_bytes,
            block_bytes,
            ..
        } = TcpConfig::take(place, options)?;
        Ok(Some(DevicePreview {
            size_bytes,
            block_bytes,
            read_only: false,
        }))
    },
};

/// The configuration in a URL.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Name or address of the sink's host.
    pub host: String,
    /// The sink's port.
    pub port: u16,
    /// Nominal size of the device, in bytes.
    pub size_bytes: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Connections per thread's device.
    pub connections: u32,
    /// Time limit for connecting, and for each request.
    pub timeout: Duration,
    /// Options of every socket.
    pub sockets: SocketOptions,
}

impl TcpConfig {
    fn take(place: &str, options: &mut UrlOptions) -> Result<TcpConfig, OpenError> {
        let refuse = || {
            OpenError::Refused(format!(
                "'tcp:{place}' is not a sink's address; write tcp://host:port, such as {}",
                ENTRY.example
            ))
        };
        let rest = place
            .strip_prefix("//")
            .ok_or_else(refuse)?
            .trim_end_matches('/');
        let (host, port) = host_and_port(rest, PORT)
            .filter(|(host, _)| !host.contains('/'))
            .ok_or_else(refuse)?;
        let block_bytes = options.block()?.unwrap_or(512);
        let size = options.take("size").unwrap_or_else(|| "1TiB".to_string());
        let connections = options.number("connections", 1, 1, CONNECTIONS_MAX.into())? as u32;
        let timeout = options.time("timeout", TIMEOUT, Duration::from_millis(1))?;
        Ok(TcpConfig {
            host,
            port,
            size_bytes: super::size_of(&size, block_bytes)?,
            block_bytes,
            connections,
            timeout,
            sockets: SocketOptions::take(options)?,
        })
    }

    fn name(&self) -> String {
        match self.host.contains(':') {
            true => format!("tcp://[{}]:{}", self.host, self.port),
            false => format!("tcp://{}:{}", self.host, self.port),
        }
    }
}

/// A sink that has answered an initial connection.
pub struct TcpBackend {
    config: TcpConfig,
    info: DeviceInfo,
    /// The initial connection, kept for the first device.
    spare: Mutex<Option<Connected>>,
}

impl TcpBackend {
    /// Connects to check the sink.
    ///
    /// # Errors
    /// The host doesn't answer, or isn't a sink.
    pub fn open(config: TcpConfig) -> Result<TcpBackend, OpenError> {
        let name = config.name();
        let connected = connect::connect(&config).map_err(|error| {
            OpenError::Failed(format!("{name}: {error}; start one with 'brunt sink'").into())
        })?;
        let socket = &connected.socket;
        let mut info = DeviceInfo {
            name,
            unmap: true,
            ..super::inline_info(config.size_bytes, config.block_bytes)
        };
        info.transfer_bytes_max = TRANSFER_BYTES_MAX;
        info.notes.push(format!(
            "the network alone: {HEADER_BYTES}-byte headers both ways, nothing is stored, reads \
             return zeros"
        ));
        info.notes.extend(config.sockets.complaint(socket));
        info.facts.extend(config.sockets.facts(socket));
        Ok(TcpBackend {
            config,
            info,
            spare: Mutex::new(Some(connected)),
        })
    }
}

impl Backend for TcpBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into()); // sockets are not polled
        }
        let failed = |error: io::Error| OpenError::Failed(error.into());
        let (mut links, mut health) = (Vec::new(), Health::default());
        for _ in 0..self.config.connections {
            let spare = self
                .spare
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let Connected {
                socket,
                retries,
                trouble,
            } = match spare {
                Some(connected) => connected,
                None => connect::connect(&self.config)
                    .map_err(|error| OpenError::Failed(error.into()))?,
            };
            health.connect_retries += u64::from(retries);
            if let Some(trouble) = trouble {
                health.trouble = Some(format!("{}: {trouble}", self.info.name));
            }
            let mut stream = Stream::new(ring, socket, RX_BYTES).map_err(failed)?;
            stream
                .socket()
                .set_nodelay(self.config.sockets.no_delay)
                .map_err(failed)?;
            stream.arm();
            links.push(Link {
                stream: Some(stream),
                tasks: VecDeque::with_capacity(depth as usize),
                answered: 0,
                next_tag: 0,
                placing: false,
            });
        }
        Ok(Box::new(TcpDevice {
            info: self.info.clone(),
            links,
            refused: Vec::with_capacity(depth as usize),
            depth,
            timeout: self.config.timeout,
            health,
            clock: Clock::Monotonic,
        }))
    }
}

/// One thread's connections.
struct TcpDevice {
    info: DeviceInfo,
    links: Vec<Link>,
    /// Completions of requests that were never sent.
    refused: Vec<Completion>,
    depth: u32,
    timeout: Duration,
    health: Health,
    clock: Clock,
}

struct Link {
    /// `None` after the connection was lost.
    stream: Option<Stream>,
    /// Tasks in send order, which is also the order of the answers.
    tasks: VecDeque<Task>,
    /// Number of answered tasks at the front that have not completed yet.
    answered: usize,
    next_tag: u64,
    /// Whether the payload of the first unanswered task is being received into its buffer.
    placing: bool,
}

struct Task {
    /// The caller's tag.
    tag: u64,
    answer: Header,
    buf: Buf,
    /// A write's buffer while the stream holds it.
    lent: Option<Lent>,
    due: Nanos,
}

impl Device for TcpDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        if batch.is_empty() {
            return;
        }
        let due = self.clock.now().after(self.timeout);
        let mut room = self.depth - self.outstanding();
        while room > 0
            && let Some(request) = batch.pop_front()
        {
            room -= 1;
            let moves_data = matches!(request.op, Op::Read | Op::Write);
            let fault = match in_range(&self.info, &request) {
                Ok(()) if moves_data && request.len > u64::from(TRANSFER_BYTES_MAX) => {
                    Some(DeviceError::OutOfRange)
                }
                Ok(()) => None,
                Err(error) => Some(error),
            };
            let open = self.links.iter_mut().filter(|link| link.stream.is_some());
            let link = open.min_by_key(|link| link.tasks.len());
            match (fault, link) {
                (None, Some(link)) => link.send(request, due),
                (fault, _) => {
                    let Request { tag, buf, .. } = request;
                    self.refused.push(Completion {
                        tag,
                        buf,
                        result: Err(fault.unwrap_or(DeviceError::Gone)),
                    });
                }
            }
        }
        self.links.iter_mut().for_each(Link::flush);
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        let now = self.clock.now();
        for link in &mut self.links {
            let Some(stream) = &mut link.stream else {
                continue;
            };
            let event = stream.poll();
            let mut end = None;
            if event.received
                && let Err(error) = link.receive()
            {
                end = Some((DeviceError::Gone, LinkEnd::Answer(error)));
            }
            if end.is_none() && event.ended {
                end = Some((DeviceError::Gone, LinkEnd::Lost));
            }
            let first_open = link.tasks.get(link.answered);
            if end.is_none() && first_open.is_some_and(|task| now >= task.due) {
                self.health.timeouts += 1;
                end = Some((DeviceError::TimedOut, LinkEnd::Silent));
            }
            if let Some((error, what)) = end {
                self.health.trouble = Some(format!("{}: {what}", self.info.name));
                link.end(error, done);
                continue;
            }
            link.complete(done);
            link.flush();
        }
    }

    fn outstanding(&self) -> u32 {
        (self.refused.len()
            + self
                .links
                .iter()
                .map(|link| link.tasks.len())
                .sum::<usize>()) as u32
    }

    fn deadline(&self) -> Nanos {
        if !self.refused.is_empty() {
            return Nanos(0);
        }
        let dues = self
            .links
            .iter()
            .filter_map(|link| Some(link.tasks.get(link.answered)?.due));
        dues.min().unwrap_or(Nanos::MAX)
    }

    fn health(&self) -> Health {
        self.health.clone()
    }
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum LinkEnd {
    #[error(transparent)]
    Answer(AnswerError),
    #[error("the connection was lost")]
    Lost,
    #[error("timed out waiting for a reply")]
    Silent,
}

/// An answer from the sink that violates the protocol.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("{wanted}")]
    Malformed { wanted: &'static str },
    #[error("the sink sent an unexpected reply")]
    Unexpected,
    #[error("the sink replied to requests out of order")]
    OutOfOrder,
}

impl Link {
    fn send(&mut self, request: Request, due: Nanos) {
        let stream = self
            .stream
            .as_mut()
            .expect("only open connections are chosen");
        let (kind, len) = match request.op {
            Op::Read => (FrameKind::Read, request.len as u32),
            Op::Write => (FrameKind::Write, request.len as u32),
            Op::Flush | Op::Unmap | Op::WriteZeroes => (FrameKind::Touch, 0),
        };
        let header = Header {
            kind,
            len,
            tag: self.next_tag,
        };
        self.next_tag = self.next_tag.wrapping_add(1);
        stream.push_bytes(&header.encode());
        let answer = header.answer().expect("each reply belongs to a request");
        let mut task = Task {
            tag: request.tag,
            answer,
            buf: request.buf,
            lent: None,
            due,
        };
        if kind == FrameKind::Write && len > 0 {
            let lent = stream.lend(std::mem::take(&mut task.buf));
            stream.push_lent(lent, 0, len as usize);
            task.lent = Some(lent);
        }
        self.tasks.push_back(task);
    }

    fn flush(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.flush();
            stream.arm();
        }
    }

    /// Processes all answers received so far.
    fn receive(&mut self) -> Result<(), AnswerError> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        loop {
            if self.placing {
                let Some(PayloadPlace::Buf(buf)) = stream.take_placed() else {
                    return Ok(());
                };
                self.tasks[self.answered].buf = buf;
                self.placing = false;
                self.answered += 1;
                continue;
            }
            let bytes = stream.bytes();
            let header = match Header::parse(bytes) {
                Ok(header) => header,
                Err(HeaderError::Incomplete) => return Ok(()),
                Err(HeaderError::Malformed { wanted, .. }) => {
                    return Err(AnswerError::Malformed { wanted });
                }
            };
            let task = self
                .tasks
                .get_mut(self.answered)
                .ok_or(AnswerError::Unexpected)?;
            if header != task.answer {
                return Err(AnswerError::OutOfOrder);
            }
            let (len, have) = (header.payload_len(), bytes.len() - HEADER_BYTES);
            if have >= len {
                task.buf[..len].copy_from_slice(&bytes[HEADER_BYTES..HEADER_BYTES + len]);
                stream.consume(HEADER_BYTES + len);
                self.answered += 1;
            } else if stream.wants_place(len - have, HEADER_BYTES + len) {
                stream.consume(HEADER_BYTES);
                stream.place(PayloadPlace::Buf(std::mem::take(&mut task.buf)), 0, len);
                self.placing = true;
            } else {
                return Ok(());
            }
        }
    }

    /// Completes answered tasks whose buffers have been returned.
    fn complete(&mut self, done: &mut Vec<Completion>) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        while self.answered > 0 {
            let front = self.tasks.front_mut().expect("only tasks have replies");
            if let Some(lent) = front.lent {
                // Answered, but the completion of its send hasn't been reported yet: try again at the next poll.
                let Some(buf) = stream.reclaim(lent) else {
                    return;
                };
                front.buf = buf;
            }
            let Some(Task { tag, buf, .. }) = self.tasks.pop_front() else {
                return;
            };
            self.answered -= 1;
            done.push(Completion {
                tag,
                buf,
                result: Ok(()),
            });
        }
    }

    /// Ends the connection: all unanswered tasks complete with `error`.
    fn end(&mut self, error: DeviceError, done: &mut Vec<Completion>) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        if let Some(PayloadPlace::Buf(buf)) = stream.abort()
            && let Some(task) = self.tasks.get_mut(self.answered)
        {
            task.buf = buf;
        }
        for (index, task) in self.tasks.drain(..).enumerate() {
            let buf = match task.lent {
                Some(lent) => stream
                    .reclaim(lent)
                    .expect("an aborted stream returns its buffers"),
                None => task.buf,
            };
            let result = if index < self.answered {
                Ok(())
            } else {
                Err(error)
            };
            done.push(Completion {
                tag: task.tag,
                buf,
                result,
            });
        }
        (self.answered, self.placing) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RingConfig;
    use crate::open_url;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};

    /// Addresses and options are parsed; mistakes are reported with a correction.
    #[test]
    fn urls_are_parsed_and_mistakes_come_with_a_correction() {
        let check = |url: &str, words: &str| {
            let error = open_url(url)
                .err()
                .unwrap_or_else(|| panic!("{url} opened"))
                .to_string();
            assert!(
                error.contains(words),
                "{url}: '{error}' does not say '{words}'"
            );
        };
        check("tcp:host:1", "tcp://host:port");
        check("tcp://:1", "tcp://host:port");
        check("tcp://host:0", "tcp://host:port");
        check("tcp://host:x", "tcp://host:port");
        check("tcp://[::1", "tcp://host:port");
        check("tcp://host:1/disk", "tcp://host:port");
        check("tcp://127.0.0.1:1?connections=17", "1 to 16");
        check("tcp://127.0.0.1:1?timeout=0", "1ms");
        check("tcp://127.0.0.1:1?send_buffer=0", "1 byte");
        check("tcp://127.0.0.1:1?no_delay=maybe", "yes or no");
        check("tcp://127.0.0.1:1?congestion=no-such-thing", "available: ");
        check("tcp://127.0.0.1:1?size=1", "less than one block");
        check("tcp://127.0.0.1:1", "brunt sink");
        let config = |url: &str| TcpConfig::take(url, &mut UrlOptions::default()).unwrap();
        assert_eq!(config("//[::1]").name(), "tcp://[::1]:5260");
        assert_eq!(config("//host:9/").name(), "tcp://host:9");
    }

    /// A server that sends `script` regardless of its input, then only reads until the end.
    fn impostor(script: Vec<u8>) -> (String, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}?timeout=60s", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut hello = [0; HEADER_BYTES];
            socket.read_exact(&mut hello).unwrap();
            socket.write_all(&script).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
        });
        (url, thread)
    }

    /// Whatever a sink sends, every request completes once, and nothing panics or hangs.
    #[test]
    fn requests_complete_once_whatever_a_sink_sends() {
        let hello = Header::hello().encode().to_vec();
        let answer = |kind, len, tag| Header { kind, len, tag }.encode().to_vec();
        let mut wrong_version = answer(FrameKind::Data, 4096, 0);
        wrong_version[3] = 9;
        let check = |after: Vec<u8>, words: &str| {
            let (url, thread) = impostor([hello.clone(), after].concat());
            let backend = open_url(&url).unwrap();
            let ring = Ring::new(RingConfig::default()).unwrap();
            let mut device = backend.open(&ring, 4).unwrap();
            let request = |tag| Request {
                tag,
                op: if tag == 0 { Op::Read } else { Op::Write },
                offset: 0,
                len: 4096,
                buf: ring.pool().take(4096),
                force_unit_access: false,
            };
            let mut batch = VecDeque::from([request(0), request(1)]);
            let mut done = Vec::new();
            device.submit(&mut batch);
            while device.outstanding() > 0 {
                ring.enter(device.deadline()).unwrap();
                device.poll(&mut done);
            }
            let mut tags: Vec<u64> = done.iter().map(|one| one.tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, [0, 1], "{words}");
            assert!(done.iter().all(|one| one.buf.len() == 4096), "{words}");
            assert!(
                done.iter().any(|one| one.result == Err(DeviceError::Gone)),
                "{words}"
            );
            let trouble = device.health().trouble.unwrap();
            assert!(
                trouble.contains(words),
                "'{trouble}' does not say '{words}'"
            );
            // A device that has lost its connection fails requests immediately.
            batch.push_back(request(2));
            device.submit(&mut batch);
            device.poll(&mut done);
            assert_eq!(done.pop().unwrap().result, Err(DeviceError::Gone));
            drop(device);
            thread.join().unwrap();
        };
        check(vec![0xff; 16], "message type");
        check(answer(FrameKind::Data, 512, 0), "out of order");
        check(answer(FrameKind::Data, 4096, 1), "out of order");
        check(answer(FrameKind::Done, 0, 0), "out of order");
        check(wrong_version, "version 1");
        let mut long = answer(FrameKind::Data, 4096, 0);
        long[4] = 0xff;
        check(long, "at most 16 MiB");
        // The first answer is complete, the second is truncated.
        let cut = [
            answer(FrameKind::Data, 4096, 0),
            vec![0; 4096],
            answer(FrameKind::Done, 0, 1),
        ]
        .concat();
        check(cut[..cut.len() - 8].to_vec(), "the connection was lost");
        // A payload cut off in the middle is detected too, whether it is short or long enough to be received in place.
        check(
            cut[..HEADER_BYTES + 100].to_vec(),
            "the connection was lost",
        );
    }

    /// A connection that breaks before its greeting, as under packet loss, is retried and counted; if retries don't
    /// help, the error contains the cause.
    #[test]
    fn a_connection_that_breaks_while_opening_is_retried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let greet = |listener: &TcpListener, answer: bool| {
            let (mut socket, _) = listener.accept().unwrap();
            let mut hello = [0; HEADER_BYTES];
            socket.read_exact(&mut hello).unwrap();
            if answer {
                socket.write_all(&hello).unwrap();
            }
            socket
        };
        let thread = std::thread::spawn(move || {
            let first = greet(&listener, true);
            drop(greet(&listener, false));
            let second = greet(&listener, true);
            let hang_up = || (0..3).for_each(|_| drop(greet(&listener, false)));
            hang_up();
            drop(listener);
            (first, second)
        });
        let ring = Ring::new(RingConfig::default()).unwrap();
        let backend = open_url(&url).unwrap();
        let first = backend.open(&ring, 1).unwrap();
        assert_eq!(first.health(), Health::default());
        let second = backend.open(&ring, 1).unwrap();
        let note = second.health().note().unwrap();
        assert!(
            note.starts_with("connection retries: 1, last error: tcp://"),
            "{note}"
        );
        assert!(note.contains("before the greeting"), "{note}");
        let error = backend
            .open(&ring, 1)
            .err()
            .expect("nobody greets any more")
            .to_string();
        assert!(
            error.contains("cannot connect") && error.contains("refused"),
            "{error}"
        );
        drop((first, second, thread.join().unwrap()));
    }

    #[test]
    fn a_server_that_is_no_sink_is_distinguished_from_a_slow_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = |timeout: &str| format!("tcp://{address}?timeout={timeout}");
        let thread = std::thread::spawn(move || {
            let (mut mail, _) = listener.accept().unwrap();
            mail.read_exact(&mut [0; HEADER_BYTES]).unwrap();
            mail.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
            // Sends nothing until the peer closes the connection.
            let mut silent = listener.accept().unwrap().0;
            let _ = silent.read_to_end(&mut Vec::new());
        });
        let error = |url: &str| open_url(url).err().expect("no sink").to_string();
        let stranger = error(&url("60s"));
        assert!(
            stranger.contains("not a brunt sink, or has another version"),
            "{stranger}"
        );
        let silent = error(&url("2s"));
        assert!(silent.contains("no greeting"), "{silent}");
        thread.join().unwrap();
    }
}
