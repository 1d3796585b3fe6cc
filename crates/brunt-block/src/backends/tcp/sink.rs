//! The peer of the `tcp` device: discards writes and answers reads with zeros. Started by `brunt sink`, by
//! experiments that measure the network, and by tests.
//!
//! The one rule: requests are answered in order, once each.

use std::io;

use super::TIMEOUT;
use super::frame::{FrameKind, HEADER_BYTES, Header, HeaderError};
use crate::sink::{HELLO_TIME, SinkConfig, SinkCounts, SinkServer, SinkSession, is_full};
use crate::{PayloadPlace, Stream};

const _: () = assert!(
    HELLO_TIME.as_secs() > TIMEOUT.as_secs(),
    "a client that retransmits lost packets is not disconnected"
);

/// Starts a sink for `tcp` devices.
///
/// # Errors
/// The address is in use or not local.
pub fn start(config: SinkConfig) -> io::Result<SinkServer> {
    SinkServer::start("sink", config, |_| Connection::default())
}

/// Why a connection ended, unless the peer closed it.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("invalid message from peer: {0}")]
    Malformed(#[from] HeaderError),
    #[error("the peer sent {0:?} instead of a request")]
    Unexpected(FrameKind),
}

#[derive(Default)]
struct Connection {
    /// Whether the peer has sent its greeting.
    greeted: bool,
    /// The answer to send once the current payload has been discarded.
    swallowing: Option<Header>,
}

impl SinkSession for Connection {
    type Error = ConnectionError;

    fn is_greeted(&self) -> bool {
        self.greeted
    }

    fn serve(
        &mut self,
        stream: &mut Stream,
        counts: &mut SinkCounts,
    ) -> Result<(), ConnectionError> {
        loop {
            if let Some(header) = self.swallowing {
                if stream.take_placed().is_none() {
                    return Ok(());
                }
                self.swallowing = None;
                answer(header, stream, counts);
            }
            if is_full(stream) {
                return Ok(());
            }
            let bytes = stream.bytes();
            let header = match Header::parse(bytes) {
                Ok(header) => header,
                Err(HeaderError::Incomplete) => return Ok(()),
                Err(error @ HeaderError::Malformed { .. }) => return Err(error.into()),
            };
            if !self.greeted {
                if header.kind != FrameKind::Hello {
                    return Err(ConnectionError::Unexpected(header.kind));
                }
                stream.consume(HEADER_BYTES);
                stream.push_bytes(&Header::hello().encode());
                self.greeted = true;
                continue;
            }
            let reply = header
                .answer()
                .ok_or(ConnectionError::Unexpected(header.kind))?;
            let (len, have) = (header.payload_len(), bytes.len() - HEADER_BYTES);
            if have >= len {
                stream.consume(HEADER_BYTES + len);
                counts.received_bytes += len as u64;
                answer(reply, stream, counts);
            } else if stream.wants_place(len - have, HEADER_BYTES + len) {
                stream.consume(HEADER_BYTES);
                counts.received_bytes += len as u64;
                stream.place(PayloadPlace::Discard, 0, len);
                self.swallowing = Some(reply);
            } else {
                return Ok(());
            }
        }
    }
}

fn answer(header: Header, stream: &mut Stream, counts: &mut SinkCounts) {
    stream.push_bytes(&header.encode());
    if header.payload_len() > 0 {
        stream.push_zeros(header.payload_len());
        counts.sent_bytes += header.payload_len() as u64;
    }
    counts.requests += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    fn start(connections_max: usize) -> SinkServer {
        super::start(SinkConfig {
            connections_max,
            ..SinkConfig::default()
        })
        .unwrap()
    }

    fn header(kind: FrameKind, len: u32, tag: u64) -> Vec<u8> {
        Header { kind, len, tag }.encode().to_vec()
    }

    /// Returns what a sink sends until it closes the connection, or until `wanted` bytes have arrived.
    fn talk(sink: &SinkServer, bytes: &[u8], wanted: usize) -> (TcpStream, Vec<u8>) {
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
