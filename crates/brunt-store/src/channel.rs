//! A plain or encrypted connection on the ring, used by clients' links and servers' connections: receives bytes, places
//! payloads, sends headers and payloads. A plain connection moves data between the socket and a request's buffer; an
//! encrypted one copies it once in each direction, through the cipher.
//!
//! The one rule: both kinds behave the same, so the owner need not know which one it has.

use std::io::{self, Read, Write};

use brunt_block::remote::{RemoteChannel, why_stream_ended};
use brunt_block::{Buf, Lent, PayloadPlace, Stream, StreamEvent};
use rustls::Connection;

/// Decrypted bytes are moved to the front of the buffer once this many bytes before them have been consumed.
const PLAIN_BYTES: usize = 256 << 10;
/// Number of bytes encrypted at a time: three maximum-size records. With headers and tags they fit in a buffer of
/// [`CIPHER_BUF_BYTES`].
const CIPHER_BYTES: usize = 48 << 10;
const CIPHER_BUF_BYTES: usize = 64 << 10;
/// Cipher output up to this size is queued as a copy rather than in a buffer.
const COPY_BYTES_MAX: usize = 1024;
/// Zeros to encrypt.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// A plain or encrypted connection; see the module's docs.
pub(crate) enum Channel {
    /// Unencrypted.
    Plain(Box<Stream>),
    /// Encrypted.
    Tls(Box<TlsChannel>),
}

pub(crate) struct TlsChannel {
    stream: Stream,
    tls: Connection,
    /// Bytes that were written but are not yet encrypted or not yet in the stream's queue.
    unsent_bytes: usize,
    /// Decrypted bytes, some of which may be consumed already.
    plain: Vec<u8>,
    start: usize,
    placing: Option<Placing>,
    placed: Option<Buf>,
    /// The error that broke the cipher.
    broken: Option<rustls::Error>,
    /// Whether the peer announced the end of its data.
    closed: bool,
    scratch: Vec<u8>,
}

struct Placing {
    /// Empty if the bytes are discarded.
    buf: Buf,
    discard: bool,
    at: usize,
    end: usize,
}

impl Channel {
    /// Creates a channel on a stream; `tls` is its encryption if the connection is already encrypted.
    pub fn new(stream: Stream, tls: Option<Connection>) -> Channel {
        match tls {
            None => Channel::Plain(Box::new(stream)),
            Some(tls) => Channel::Tls(Box::new(TlsChannel::new(stream, tls))),
        }
    }

    /// Starts TLS. Bytes that were received but not consumed are treated as encrypted. Queued bytes are sent first,
    /// unencrypted.
    ///
    /// # Errors
    /// The received bytes are not TLS.
    ///
    /// # Panics
    /// Panics if the channel is encrypted already.
    pub fn begin_tls(self, tls: Connection) -> Result<Channel, rustls::Error> {
        let Channel::Plain(stream) = self else {
            panic!("TLS is started once")
        };
        let mut channel = TlsChannel::new(*stream, tls);
        let begun = channel.decrypt();
        channel.encrypt();
        begun.map(|()| Channel::Tls(Box::new(channel)))
    }

    /// The underlying stream.
    pub fn stream(&self) -> &Stream {
        match self {
            Channel::Plain(stream) => stream,
            Channel::Tls(channel) => &channel.stream,
        }
    }

    /// Returns memory that an idle stream doesn't need to the kernel; see [`Stream::release`].
    pub fn release(&mut self) {
        match self {
            Channel::Plain(stream) => stream.release(),
            Channel::Tls(channel) => channel.stream.release(),
        }
    }

    /// Limits the bytes of each subsequent send call; see [`Stream::set_call_bytes_max`].
    pub fn set_call_bytes_max(&mut self, bytes: usize) {
        match self {
            Channel::Plain(stream) => stream.set_call_bytes_max(bytes),
            Channel::Tls(channel) => channel.stream.set_call_bytes_max(bytes),
        }
    }

    /// Bytes that were received but not consumed. Empty while a place is being filled.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Channel::Plain(stream) => stream.bytes(),
            Channel::Tls(channel) => &channel.plain[channel.start..],
        }
    }

    /// Consumes the first `count` bytes.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        match self {
            Channel::Plain(stream) => stream.consume(count),
            Channel::Tls(channel) => {
                assert!(count <= channel.plain.len() - channel.start);
                channel.start += count;
            }
        }
    }

    /// Whether the `missing` bytes should be received directly into their place.
    pub fn wants_place(&self, missing: usize, total: usize) -> bool {
        match self {
            Channel::Plain(stream) => stream.wants_place(missing, total),
            Channel::Tls(_) => true,
        }
    }

    /// Receives the next `len` bytes into `buf` at `offset`; [`Channel::take_placed`] returns the buffer once all have
    /// arrived.
    pub fn place(&mut self, buf: Buf, offset: usize, len: usize) {
        match self {
            Channel::Plain(stream) => stream.place(PayloadPlace::Buf(buf), offset as u64, len),
            Channel::Tls(channel) => {
                assert!(
                    channel.placing.is_none() && channel.placed.is_none(),
                    "one receive at a time"
                );
                assert!(
                    offset + len <= buf.len(),
                    "the payload does not fit in its buffer"
                );
                channel.placing = Some(Placing {
                    buf,
                    discard: false,
                    at: offset,
                    end: offset + len,
                });
                channel.fill();
            }
        }
    }

    /// Discards the next `len` bytes; [`Channel::take_placed`] returns an empty buffer once all have arrived.
    pub fn discard(&mut self, len: usize) {
        match self {
            Channel::Plain(stream) => stream.place(PayloadPlace::Discard, 0, len),
            Channel::Tls(channel) => {
                assert!(
                    channel.placing.is_none() && channel.placed.is_none(),
                    "one receive at a time"
                );
                channel.placing = Some(Placing {
                    buf: Buf::empty(),
                    discard: true,
                    at: 0,
                    end: len,
                });
                channel.fill();
            }
        }
    }

    /// Takes the filled buffer, once.
    pub fn take_placed(&mut self) -> Option<Buf> {
        match self {
            Channel::Plain(stream) => match stream.take_placed()? {
                PayloadPlace::Buf(buf) => Some(buf),
                PayloadPlace::Discard => Some(Buf::empty()),
                PayloadPlace::Memory(_) => unreachable!("only buffers are destinations"),
            },
            Channel::Tls(channel) => channel.placed.take(),
        }
    }

    /// Number of bytes queued or being sent, by which a sender that outruns its peer can limit itself.
    pub fn queued_bytes(&self) -> usize {
        match self {
            Channel::Plain(stream) => stream.queued_bytes(),
            Channel::Tls(channel) => channel.stream.queued_bytes() + channel.unsent_bytes,
        }
    }

    /// Maximum buffer bytes needed for encrypting `len` bytes; 0 without encryption.
    pub fn cipher_bytes(&self, len: usize) -> usize {
        match self {
            Channel::Plain(_) => 0,
            // A 16 KiB record grows by 22 bytes, and the reply's header is encrypted together with the data.
            Channel::Tls(_) if len <= CIPHER_BYTES => (len + COPY_BYTES_MAX).next_power_of_two(),
            Channel::Tls(_) => (len.div_ceil(CIPHER_BYTES) + 1) * CIPHER_BUF_BYTES,
        }
    }

    /// Queues a copy of `bytes`.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        match self {
            Channel::Plain(stream) => stream.push_bytes(bytes),
            Channel::Tls(channel) => channel.write(bytes),
        }
    }

    /// Queues zeros.
    pub fn push_zeros(&mut self, len: usize) {
        match self {
            Channel::Plain(stream) => stream.push_zeros(len),
            Channel::Tls(channel) => {
                let mut left = len;
                while left > 0 {
                    let part = left.min(ZEROS.len());
                    channel.write(&ZEROS[..part]);
                    left -= part;
                }
            }
        }
    }

    /// Queues the first `len` bytes of a buffer, which returns to its pool once they are sent.
    pub fn push_buf(&mut self, buf: Buf, len: usize) {
        match self {
            Channel::Plain(stream) => stream.push_buf(buf, 0, len),
            Channel::Tls(channel) => channel.write(&buf[..len]),
        }
    }

    /// Queues part of a buffer, which may be unavailable until [`Channel::give_back`] returns it.
    pub fn push_data(&mut self, lent: &mut Option<Lent>, buf: &mut Buf, start: usize, len: usize) {
        match self {
            Channel::Plain(stream) => {
                let lent = *lent.get_or_insert_with(|| stream.lend(std::mem::take(buf)));
                stream.push_lent(lent, start, len);
            }
            Channel::Tls(channel) => channel.write(&buf[start..start + len]),
        }
    }

    /// Returns a buffer that was pushed; `false` while it is being sent.
    pub fn give_back(&mut self, lent: &mut Option<Lent>, buf: &mut Buf) -> bool {
        let (Channel::Plain(stream), Some(held)) = (self, *lent) else {
            return true;
        };
        match stream.reclaim(held) {
            Some(back) => {
                *buf = back;
                *lent = None;
                true
            }
            None => false,
        }
    }

    /// Submits the queued data to the kernel.
    #[inline]
    pub fn flush(&mut self) {
        match self {
            Channel::Plain(stream) => stream.flush(),
            Channel::Tls(channel) => {
                channel.encrypt();
                channel.stream.flush();
            }
        }
    }

    /// Starts receiving, unless that is already in progress.
    #[inline]
    pub fn arm(&mut self) {
        match self {
            Channel::Plain(stream) => stream.arm(),
            Channel::Tls(channel) => channel.stream.arm(),
        }
    }

    /// If encrypted, queues the end of the sent data (close_notify).
    pub fn finish(&mut self) {
        if let Channel::Tls(channel) = self {
            channel.tls.send_close_notify();
            channel.encrypt();
        }
    }

    /// The error that broke the cipher, if any.
    pub fn broken(&self) -> Option<&rustls::Error> {
        match self {
            Channel::Plain(_) => None,
            Channel::Tls(channel) => channel.broken.as_ref(),
        }
    }

    /// Processes completions from the ring.
    #[inline]
    pub fn poll(&mut self) -> StreamEvent {
        match self {
            Channel::Plain(stream) => stream.poll(),
            Channel::Tls(channel) => channel.poll(),
        }
    }

    /// Describes why the channel ended, if it has.
    pub fn why_ended(&self) -> String {
        let stream = match self {
            Channel::Plain(stream) => stream,
            Channel::Tls(channel) => match &channel.broken {
                Some(broken) => return format!("TLS: {broken}"),
                None => &channel.stream,
            },
        };
        why_stream_ended(stream)
    }

    /// Closes the channel at once and takes all buffers back from the kernel; returns the buffer that was being filled.
    pub fn abort(&mut self) -> Option<Buf> {
        match self {
            Channel::Plain(stream) => match stream.abort()? {
                PayloadPlace::Buf(buf) => Some(buf),
                PayloadPlace::Discard => None,
                PayloadPlace::Memory(_) => unreachable!("only buffers are destinations"),
            },
            Channel::Tls(channel) => {
                let _ = channel.stream.abort();
                channel
                    .placing
                    .take()
                    .map(|placing| placing.buf)
                    .or_else(|| channel.placed.take())
            }
        }
    }

    /// Sends a last message without waiting, unless something else is being sent. A broken cipher sends its alert
    /// instead.
    pub fn say_goodbye(&mut self, bytes: &[u8]) {
        let last = match self {
            Channel::Plain(stream) if stream.queued_bytes() == 0 => bytes.to_vec(),
            Channel::Tls(channel) if channel.stream.queued_bytes() == 0 => {
                if channel.broken.is_none() {
                    channel.write(bytes);
                    channel.tls.send_close_notify();
                }
                let mut last = Vec::new();
                while channel.tls.wants_write() && channel.tls.write_tls(&mut last).is_ok() {}
                last
            }
            _ => return,
        };
        let _ = (&mut self.stream().socket()).write_all(&last);
    }
}

impl RemoteChannel for Channel {
    fn poll(&mut self) -> StreamEvent {
        self.poll()
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn arm(&mut self) {
        self.arm();
    }

    fn why_ended(&self) -> String {
        self.why_ended()
    }

    fn abort(&mut self) -> Option<Buf> {
        self.abort()
    }

    fn give_back(&mut self, lent: &mut Option<Lent>, buf: &mut Buf) -> bool {
        self.give_back(lent, buf)
    }
}

impl TlsChannel {
    fn new(stream: Stream, mut tls: Connection) -> TlsChannel {
        // The queue is bounded by the owner's queue depth.
        tls.set_buffer_limit(None);
        TlsChannel {
            stream,
            tls,
            unsent_bytes: 0,
            plain: Vec::with_capacity(PLAIN_BYTES),
            start: 0,
            placing: None,
            placed: None,
            broken: None,
            closed: false,
            scratch: Vec::new(),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(CIPHER_BYTES) {
            if self.unsent_bytes + part.len() > CIPHER_BYTES {
                self.encrypt();
            }
            self.unsent_bytes += part.len();
            self.tls
                .writer()
                .write_all(part)
                .expect("the cipher's queue is unlimited");
        }
    }

    /// Moves cipher output to the stream.
    fn encrypt(&mut self) {
        while self.tls.wants_write() {
            self.scratch.clear();
            if self.tls.write_tls(&mut self.scratch).is_err() {
                return;
            }
            if self.scratch.len() <= COPY_BYTES_MAX {
                self.stream.push_bytes(&self.scratch);
                continue;
            }
            let len = self.scratch.len();
            let mut buf = self.stream.pool().take(len);
            buf.copy_from_slice(&self.scratch);
            self.stream.push_buf(buf, 0, len);
        }
        // During the handshake, the cipher keeps what was written.
        if !self.tls.is_handshaking() {
            self.unsent_bytes = 0;
        }
    }

    fn poll(&mut self) -> StreamEvent {
        let mut event = self.stream.poll();
        let had = self.plain.len() - self.start;
        let placed = self.placed.is_some();
        if let Err(error) = self.decrypt() {
            self.broken.get_or_insert(error);
        }
        event.received = self.plain.len() - self.start > had || (self.placed.is_some() && !placed);
        event.ended |= self.broken.is_some() || self.closed;
        event
    }

    /// Decrypts all received bytes, filling the place first.
    fn decrypt(&mut self) -> Result<(), rustls::Error> {
        loop {
            let mut bytes = self.stream.bytes();
            let len = bytes.len();
            if len > 0 {
                let read = self.tls.read_tls(&mut bytes);
                let taken = len - bytes.len();
                self.stream.consume(taken);
                read.map_err(|error| rustls::Error::General(error.to_string()))?;
            }
            let state = self.tls.process_new_packets()?;
            self.closed |= state.peer_has_closed();
            self.take_plain(state.plaintext_bytes_to_read());
            if self.stream.bytes().is_empty() {
                return Ok(());
            }
        }
    }

    fn take_plain(&mut self, mut count: usize) {
        if let Some(placing) = &mut self.placing {
            let part = count.min(placing.end - placing.at);
            if placing.discard {
                let mut reader = self.tls.reader().take(part as u64);
                io::copy(&mut reader, &mut io::sink()).expect("the cipher has the announced bytes");
            } else {
                let into = &mut placing.buf[placing.at..placing.at + part];
                self.tls
                    .reader()
                    .read_exact(into)
                    .expect("the cipher has the announced bytes");
            }
            placing.at += part;
            count -= part;
            self.finish_placing();
        }
        if count > 0 {
            if self.start == self.plain.len() {
                self.plain.clear();
                self.start = 0;
            } else if self.start > PLAIN_BYTES {
                self.plain.drain(..self.start);
                self.start = 0;
            }
            let at = self.plain.len();
            self.plain.resize(at + count, 0);
            self.tls
                .reader()
                .read_exact(&mut self.plain[at..])
                .expect("the cipher has the announced bytes");
        }
    }

    /// Fills the place from bytes that are already decrypted.
    fn fill(&mut self) {
        let Some(placing) = &mut self.placing else {
            return;
        };
        let have = (self.plain.len() - self.start).min(placing.end - placing.at);
        if !placing.discard {
            placing.buf[placing.at..placing.at + have]
                .copy_from_slice(&self.plain[self.start..self.start + have]);
        }
        placing.at += have;
        self.start += have;
        self.finish_placing();
    }

    fn finish_placing(&mut self) {
        let done = self.placing.take_if(|placing| placing.at == placing.end);
        if let Some(placing) = done {
            self.placed = Some(placing.buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    use brunt_block::{Ring, RingConfig};
    use brunt_core::Clock;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    /// Nothing takes this long; only a failing test waits this long.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Both ends of a connection, plain or with TLS yet to be started.
    fn pair(ring: &Ring, encrypted: bool) -> [Channel; 2] {
        let (left, right) = UnixStream::pair().unwrap();
        let channels = [left, right].map(|socket| {
            // The buffer is smaller than the data to send.
            Channel::new(Stream::new(ring, socket, 16 << 10).unwrap(), None)
        });
        if !encrypted {
            return channels;
        }
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
        let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.into()))
            .unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let [left, right] = channels;
        let left = left.begin_tls(
            ClientConnection::new(Arc::new(client), name)
                .unwrap()
                .into(),
        );
        let right = right.begin_tls(ServerConnection::new(Arc::new(server)).unwrap().into());
        [left.unwrap(), right.unwrap()]
    }

    /// Drives both ends until a condition holds for the second one.
    fn turn(
        ring: &Ring,
        [left, right]: &mut [Channel; 2],
        mut holds: impl FnMut(&mut Channel) -> bool,
    ) {
        while !holds(right) {
            for channel in [&mut *left, &mut *right] {
                channel.flush();
                channel.arm();
            }
            ring.enter(Clock::Monotonic.now().after(PATIENCE)).unwrap();
            for channel in [&mut *left, &mut *right] {
                assert!(
                    !channel.poll().ended && channel.broken().is_none(),
                    "{}",
                    channel.why_ended()
                );
            }
        }
    }

    /// Headers, placed payloads and discarded payloads arrive the same way on plain and encrypted channels, and sent
    /// bytes leave the queue.
    #[test]
    fn plain_and_encrypted_behave_alike() {
        for encrypted in [false, true] {
            let ring = Ring::new(RingConfig::default()).unwrap();
            let mut both = pair(&ring, encrypted);
            let mut payload = ring.pool().take(200_704);
            payload
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = (at / 7) as u8);
            let expected = payload.to_vec();
            let left = &mut both[0];
            left.push_bytes(b"head");
            left.push_buf(payload, 200_704);
            left.push_zeros(300_000);
            left.push_bytes(b"tail");
            assert!(left.queued_bytes() >= 500_712, "{}", left.queued_bytes());

            turn(&ring, &mut both, |right| right.bytes().len() >= 4);
            assert_eq!(&both[1].bytes()[..4], b"head");
            both[1].consume(4);
            both[1].place(ring.pool().take(200_704), 0, 200_704);
            let mut placed = None;
            turn(&ring, &mut both, |right| {
                placed = placed.take().or_else(|| right.take_placed());
                placed.is_some()
            });
            assert!(placed.take().is_some_and(|buf| buf[..] == expected[..]));
            both[1].discard(300_000);
            turn(&ring, &mut both, |right| {
                placed = placed.take().or_else(|| right.take_placed());
                placed.is_some()
            });
            assert!(placed.is_some_and(|buf| buf.is_empty()));
            turn(&ring, &mut both, |right| right.bytes().len() >= 4);
            assert_eq!(both[1].bytes(), b"tail");

            // If encrypted, the receiver is notified of the end.
            let [left, right] = &mut both;
            left.finish();
            let mut ended = !encrypted;
            while !ended || left.queued_bytes() > 0 {
                left.flush();
                right.arm();
                ring.enter(Clock::Monotonic.now().after(PATIENCE)).unwrap();
                left.poll();
                ended |= right.poll().ended;
            }
            assert!(right.broken().is_none());
        }
    }

    /// Bytes that are not TLS end an encrypted channel and are never treated as data.
    #[test]
    fn bytes_in_the_clear_break_the_cipher() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let [left, mut right] = pair(&ring, true);
        let mut raw = left.stream().socket();
        raw.set_timeouts(Some(PATIENCE)).unwrap();
        raw.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").unwrap();
        while right.broken().is_none() {
            right.arm();
            ring.enter(Clock::Monotonic.now().after(PATIENCE)).unwrap();
            right.poll();
        }
        assert!(right.bytes().is_empty());
        right.say_goodbye(b"never sent");
        let mut alert = [0; 7];
        raw.read_exact(&mut alert).unwrap();
        // RFC 8446, 5.1: 21 is an alert.
        assert_eq!(alert[0], 21);
    }
}
