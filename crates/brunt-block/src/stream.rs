//! A TCP connection on a ring, made for protocols that frame bulk data: sends chains of borrowed
//! segments in one vectored call, receives headers into one buffer and payloads straight to
//! where they belong. Both ends of iSCSI stand on it. It knows no protocol.
//!
//! The loop of its owner: [`Stream::arm`] and [`Stream::flush`], [`Ring::enter`],
//! [`Stream::poll`]; then parse [`Stream::bytes`], `consume` what was understood, or `place` a
//! payload that is long. All of it is queued work; none of it blocks.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};

use crate::sparse::SparseMemory;
use crate::{Buf, Port, Ring};

/// Bytes sent as zeros come from here; small enough to stay in the second-level cache.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// The kernel takes at most so many pieces in one call (UIO_MAXIOV).
const PIECES_MAX: usize = 1024;
/// No piece is added to a call that has so much already. The kernel holds the socket for the whole of a call
/// and leaves the peer's acknowledgements for its end: `brunt bench iscsi --row "1m read"` under libiscsi's client
/// gave 5.5 GB/s with 8 MiB a call, 7.7 with 1 MiB, and 4.5 with 128 KiB.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Behind a long payload that goes to its place, so much is received along with it: the next header,
/// and small PDUs whole. More would have to be copied out again.
const TAIL_BYTES: usize = 4096;
/// A payload of which less is missing than this is no long one: behind its rest as much is received as
/// there is room for, because a receive costs more than copying so little.
const LONG_BYTES_MIN: usize = 16 << 10;
/// Payload to throw away goes through a buffer of this size.
const DISCARD_BYTES: usize = 256 << 10;

const USER_RECEIVE: u64 = 0;
const USER_SEND: u64 = 1;

/// Where a payload belongs.
#[derive(Debug)]
pub enum Place {
    /// From an offset in this buffer on.
    Buf(Buf),
    /// Into a memory medium itself; marked as written when the payload is complete.
    Memory(Arc<SparseMemory>),
    /// Nowhere.
    Discard,
}

/// A buffer that several segments are sent from and that comes back afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent(u32);

/// What [`Stream::poll`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEvent {
    /// There are new bytes, or a place is full.
    pub received: bool,
    /// Something was sent: there is more room below a bound on [`Stream::queued_bytes`].
    pub sent: bool,
    /// No more will come: the peer closed (after what is in [`Stream::bytes`]) or the connection broke.
    pub ended: bool,
}

/// A connection. Dropping it closes it, after the kernel has let go of its buffers.
pub struct Stream {
    port: Port,
    socket: TcpStream,
    target: Target,
    rx: Buf,
    rx_start: usize,
    rx_end: usize,
    placing: Option<Placing>,
    placed: Option<Place>,
    receiving: Option<Box<Call>>,
    /// How many bytes of the receive under way go to the place; the others go behind `rx_end`.
    receiving_placed: usize,
    spare_call: Option<Box<Call>>,
    discard: Buf,
    sending: bool,
    filling: Batch,
    flying: Batch,
    lent: Vec<LentSlot>,
    lent_free: Vec<u32>,
    ended: Option<io::ErrorKind>,
}

/// A registered file if there was a slot, the descriptor otherwise.
enum Target {
    Fixed(types::Fixed),
    Fd(types::Fd),
}

struct Placing {
    place: Place,
    at: u64,
    end: u64,
    start: u64,
}

struct LentSlot {
    buf: Option<Buf>,
    pieces: u32,
}

/// What a vectored call needs to stay where it is while the kernel has it.
struct Call {
    header: libc::msghdr,
    pieces: Vec<libc::iovec>,
}

/// Segments on their way, in order.
struct Batch {
    segments: VecDeque<Segment>,
    /// Bytes of `Segment::Bytes`, back to back.
    bytes: Vec<u8>,
    /// How much of `bytes` the segments before the current front had.
    queued: usize,
    call: Box<Call>,
}

enum Segment {
    Bytes { start: usize, len: usize },
    Buf { buf: Buf, start: usize, len: usize },
    Lent { lent: Lent, start: usize, len: usize },
    Zeros { len: usize },
    Memory { memory: Arc<SparseMemory>, offset: u64, len: usize },
}

impl Stream {
    /// Puts a connected socket on the ring, with `rx_bytes` of room for what is not placed.
    ///
    /// # Errors
    /// When the socket's options cannot be set.
    pub fn new(ring: &Ring, socket: TcpStream, rx_bytes: usize) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        let fd = socket.as_raw_fd();
        let target = match ring.register_file(fd) {
            Some(slot) => Target::Fixed(slot),
            None => Target::Fd(types::Fd(fd)),
        };
        ring.add_socket();
        Ok(Stream {
            port: ring.attach(),
            socket,
            target,
            rx: ring.pool().take(rx_bytes.max(2 * TAIL_BYTES)),
            rx_start: 0,
            rx_end: 0,
            placing: None,
            placed: None,
            receiving: None,
            receiving_placed: 0,
            spare_call: Some(Box::new(Call::new(2))),
            discard: Buf::empty(),
            sending: false,
            filling: Batch::new(),
            flying: Batch::new(),
            lent: Vec::new(),
            lent_free: Vec::new(),
            ended: None,
        })
    }

    /// The socket, for its addresses and options.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Hands the stream bytes that were read from the socket before it came here.
    ///
    /// # Panics
    /// When they do not fit behind what is unconsumed, or a receive is under way.
    pub fn preload(&mut self, bytes: &[u8]) {
        assert!(self.receiving.is_none(), "preload comes before the first arm");
        self.rx[self.rx_end..self.rx_end + bytes.len()].copy_from_slice(bytes);
        self.rx_end += bytes.len();
    }

    // ---- receiving

    /// What was received and not consumed. Empty while a place is being filled.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.rx[self.rx_start..self.rx_end]
    }

    /// Room for [`Stream::bytes`] in all: what has to be in it whole may not be longer.
    pub fn rx_capacity(&self) -> usize {
        self.rx.len()
    }

    /// Steps over the first `count` bytes.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.rx_end - self.rx_start);
        self.rx_start += count;
    }

    /// The next `len` bytes, those in [`Stream::bytes`] first, go to `place` from `offset` on. When all
    /// are there, [`Stream::take_placed`] gives the place back (at once, perhaps).
    ///
    /// # Panics
    /// While another place is being filled or waits to be taken, or when the bytes do not fit there.
    pub fn place(&mut self, place: Place, offset: u64, len: usize) {
        assert!(self.placing.is_none() && self.placed.is_none(), "one place at a time");
        let end = offset + len as u64;
        match &place {
            Place::Buf(buf) => assert!(end <= buf.len() as u64, "the payload does not fit in its buffer"),
            // Checks the range.
            Place::Memory(memory) => drop(memory.ptr(offset, len as u64)),
            Place::Discard if self.discard.is_empty() => {
                self.discard = self.port.ring().pool().take(DISCARD_BYTES);
            }
            Place::Discard => {}
        }
        self.placing = Some(Placing { place, at: offset, end, start: offset });
        self.fill_from_rx();
    }

    /// The place that was filled, once.
    pub fn take_placed(&mut self) -> Option<Place> {
        self.placed.take()
    }

    /// Whether a place is still waiting for bytes.
    pub fn is_placing(&self) -> bool {
        self.placing.is_some()
    }

    /// Asks the kernel for more, unless it was asked already, nothing fits, or the stream has ended.
    pub fn arm(&mut self) {
        if self.receiving.is_some() || self.ended.is_some() {
            return;
        }
        // Room first: to the front when there is nothing, or when the tail gets short.
        if self.rx_start == self.rx_end {
            self.rx_start = 0;
            self.rx_end = 0;
        } else if self.rx.len() - self.rx_end < self.rx.len() / 4 && self.rx_start > 0 {
            self.rx.copy_within(self.rx_start..self.rx_end, 0);
            self.rx_end -= self.rx_start;
            self.rx_start = 0;
        }
        let mut call = self.spare_call.take().expect("a call is spare when none is under way");
        call.pieces.clear();
        let mut room = self.rx.len() - self.rx_end;
        self.receiving_placed = 0;
        if let Some(placing) = &mut self.placing {
            let left = (placing.end - placing.at) as usize;
            let (base, len) = match &mut placing.place {
                // SAFETY: `at <= end <= len` of the buffer, checked in `place`.
                Place::Buf(buf) => (unsafe { buf.as_mut_ptr().add(placing.at as usize) }, left),
                Place::Memory(memory) => (memory.ptr(placing.at, left as u64), left),
                Place::Discard => (self.discard.as_mut_ptr(), left.min(DISCARD_BYTES)),
            };
            call.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: len });
            room = match len {
                len if len < left => 0,
                LONG_BYTES_MIN.. => room.min(TAIL_BYTES),
                _ => room,
            };
            self.receiving_placed = len;
        }
        if room > 0 {
            // SAFETY: `rx_end <= len` of the buffer.
            let base = unsafe { self.rx.as_mut_ptr().add(self.rx_end) };
            call.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: room });
        }
        if call.pieces.is_empty() {
            self.spare_call = Some(call);
            return;
        }
        call.point();
        let header = &raw mut call.header;
        let entry = match self.target {
            Target::Fixed(fd) => opcode::RecvMsg::new(fd, header).build(),
            Target::Fd(fd) => opcode::RecvMsg::new(fd, header).build(),
        };
        self.receiving = Some(call);
        // SAFETY: the call is boxed and kept in `receiving` until its completion; what it points to is
        // the receive buffer (whose used part is not moved meanwhile: only `arm` moves it), the place
        // (kept in `placing`), or the discard buffer; `drop` waits for the kernel before freeing.
        unsafe { self.port.push(entry, USER_RECEIVE) };
    }

    /// Looks at what the ring brought. Call after every [`Ring::enter`].
    pub fn poll(&mut self) -> StreamEvent {
        let mut event = StreamEvent::default();
        while let Some(done) = self.port.pop() {
            if done.user == USER_SEND {
                self.sending = false;
                match done.result {
                    n if n >= 0 => {
                        self.retire(n as usize);
                        event.sent = true;
                    }
                    error if -error == libc::EINTR || -error == libc::EAGAIN => event.sent = true,
                    error => self.end(error),
                }
                continue;
            }
            self.spare_call = self.receiving.take();
            match done.result {
                0 => {
                    self.ended.get_or_insert(io::ErrorKind::UnexpectedEof);
                }
                n if n > 0 => {
                    self.accept(n as usize);
                    event.received = true;
                }
                error if -error == libc::EINTR || -error == libc::EAGAIN => {}
                error => self.end(error),
            }
        }
        event.ended = self.ended.is_some();
        event
    }

    /// Why the stream ended, when it has: `UnexpectedEof` when the peer closed it.
    pub fn ended(&self) -> Option<io::ErrorKind> {
        self.ended
    }

    fn end(&mut self, error: i32) {
        self.ended.get_or_insert(io::Error::from_raw_os_error(-error).kind());
    }

    /// `count` bytes came into the pieces of the receive call, in order.
    fn accept(&mut self, count: usize) {
        let part = count.min(self.receiving_placed);
        self.rx_end += count - part;
        if let Some(placing) = &mut self.placing {
            placing.at += part as u64;
            // The place may be younger than the receive: then its bytes came to the buffer.
            self.fill_from_rx();
        }
    }

    /// Moves what the place still lacks out of the receive buffer.
    fn fill_from_rx(&mut self) {
        let Some(placing) = &mut self.placing else { return };
        let have = (self.rx_end - self.rx_start).min((placing.end - placing.at) as usize);
        let bytes = &self.rx[self.rx_start..self.rx_start + have];
        match &mut placing.place {
            Place::Buf(buf) => buf[placing.at as usize..placing.at as usize + have].copy_from_slice(bytes),
            Place::Memory(memory) => memory.write(placing.at, bytes),
            Place::Discard => {}
        }
        placing.at += have as u64;
        self.rx_start += have;
        self.finish_placing();
    }

    fn finish_placing(&mut self) {
        let Some(placing) = self.placing.take_if(|placing| placing.at == placing.end) else { return };
        if let Place::Memory(memory) = &placing.place {
            memory.mark(placing.start, placing.end - placing.start);
        }
        self.placed = Some(placing.place);
    }

    // ---- sending

    /// Bytes queued or being sent: what a sender that outruns its peer holds itself back by.
    pub fn queued_bytes(&self) -> usize {
        self.filling.queued + self.flying.queued
    }

    /// Queues a copy of `bytes`: headers and other short things.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.filling.bytes.len();
        self.filling.bytes.extend_from_slice(bytes);
        self.filling.queued += bytes.len();
        // Headers that follow one another are one piece.
        if let Some(Segment::Bytes { len, .. }) = self.filling.segments.back_mut() {
            *len += bytes.len();
        } else if !bytes.is_empty() {
            self.filling.segments.push_back(Segment::Bytes { start, len: bytes.len() });
        }
    }

    /// Queues part of a buffer, which goes back to its pool when it is sent.
    ///
    /// # Panics
    /// When the part is not inside the buffer.
    pub fn push_buf(&mut self, buf: Buf, start: usize, len: usize) {
        assert!(start + len <= buf.len());
        self.push(Segment::Buf { buf, start, len }, len);
    }

    /// Queues zeros.
    pub fn push_zeros(&mut self, len: usize) {
        self.push(Segment::Zeros { len }, len);
    }

    /// Queues part of a memory medium. Its content is read when it is sent.
    ///
    /// # Panics
    /// When the part is not inside the medium.
    pub fn push_memory(&mut self, memory: &Arc<SparseMemory>, offset: u64, len: usize) {
        let _ = memory.ptr(offset, len as u64);
        self.push(Segment::Memory { memory: Arc::clone(memory), offset, len }, len);
    }

    /// Takes a buffer in, from which [`Stream::push_lent`] sends parts and which
    /// [`Stream::reclaim`] gives back.
    pub fn lend(&mut self, buf: Buf) -> Lent {
        let slot = LentSlot { buf: Some(buf), pieces: 0 };
        match self.lent_free.pop() {
            Some(index) => {
                self.lent[index as usize] = slot;
                Lent(index)
            }
            None => {
                self.lent.push(slot);
                Lent(self.lent.len() as u32 - 1)
            }
        }
    }

    /// The bytes of a lent buffer (for a digest).
    ///
    /// # Panics
    /// When it was reclaimed.
    pub fn lent_bytes(&self, lent: Lent) -> &[u8] {
        self.lent[lent.0 as usize].buf.as_ref().expect("a lent buffer is there until it is reclaimed")
    }

    /// Queues part of a lent buffer.
    ///
    /// # Panics
    /// When it was reclaimed, or the part is not inside it.
    pub fn push_lent(&mut self, lent: Lent, start: usize, len: usize) {
        assert!(start + len <= self.lent_bytes(lent).len());
        self.lent[lent.0 as usize].pieces += 1;
        self.push(Segment::Lent { lent, start, len }, len);
    }

    /// The buffer back, once no part of it is queued or being sent; `None` until then.
    ///
    /// # Panics
    /// When it was reclaimed before.
    pub fn reclaim(&mut self, lent: Lent) -> Option<Buf> {
        let slot = &mut self.lent[lent.0 as usize];
        if slot.pieces > 0 {
            return None;
        }
        self.lent_free.push(lent.0);
        Some(slot.buf.take().expect("a lent buffer is reclaimed once"))
    }

    fn push(&mut self, segment: Segment, len: usize) {
        self.filling.queued += len;
        self.filling.segments.push_back(segment);
    }

    /// Hands what is queued to the kernel, unless a send is under way.
    pub fn flush(&mut self) {
        if self.sending || self.ended.is_some() {
            return;
        }
        if self.flying.segments.is_empty() {
            if self.filling.segments.is_empty() {
                return;
            }
            self.flying.bytes.clear();
            std::mem::swap(&mut self.flying, &mut self.filling);
        }
        self.gather();
        let header = &raw const self.flying.call.header;
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        let entry: squeue::Entry = match self.target {
            Target::Fixed(fd) => opcode::SendMsg::new(fd, header).flags(flags).build(),
            Target::Fd(fd) => opcode::SendMsg::new(fd, header).flags(flags).build(),
        };
        self.sending = true;
        // SAFETY: the call is boxed in `flying`, which does not change until the completion; its pieces
        // point into `flying.bytes`, into buffers that its segments own or that stay lent while
        // their piece count is not zero, into media that its segments hold, or into ZEROS; `drop` waits for the
        // kernel before freeing.
        unsafe { self.port.push(entry, USER_SEND) };
    }

    /// The pieces of the flying segments, as many as go into one call.
    fn gather(&mut self) {
        let Batch { segments, bytes, call, .. } = &mut self.flying;
        let pieces = &mut call.pieces;
        pieces.clear();
        let mut room = CALL_BYTES_MAX;
        let mut add = |base: *const u8, len: usize| {
            pieces.push(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len });
            room = room.saturating_sub(len);
            pieces.len() < PIECES_MAX && room > 0
        };
        'all: for segment in segments.iter() {
            let more = match segment {
                Segment::Bytes { start, len } => add(bytes[*start..*start + *len].as_ptr(), *len),
                Segment::Buf { buf, start, len } => add(buf[*start..*start + *len].as_ptr(), *len),
                Segment::Lent { lent, start, len } => {
                    let buf = self.lent[lent.0 as usize].buf.as_ref().expect("lent while pieces are queued");
                    add(buf[*start..*start + *len].as_ptr(), *len)
                }
                Segment::Memory { memory, offset, len } => add(memory.ptr(*offset, *len as u64), *len),
                Segment::Zeros { len } => {
                    let mut left = *len;
                    while left > ZEROS.len() {
                        if !add(ZEROS.as_ptr(), ZEROS.len()) {
                            break 'all;
                        }
                        left -= ZEROS.len();
                    }
                    add(ZEROS.as_ptr(), left)
                }
            };
            if !more {
                break;
            }
        }
        call.point();
    }

    /// `count` bytes of the flying segments were sent.
    fn retire(&mut self, count: usize) {
        self.flying.queued -= count;
        let mut left = count;
        while let Some(segment) = self.flying.segments.front_mut() {
            if left < segment.len() {
                segment.skip(left);
                return;
            }
            left -= segment.len();
            if let Segment::Lent { lent, .. } = segment {
                self.lent[lent.0 as usize].pieces -= 1;
            }
            self.flying.segments.pop_front();
        }
        assert_eq!(left, 0, "the kernel sent more than it was given");
    }

    /// Ends the connection at once and takes everything back from the kernel: afterwards every lent
    /// buffer can be reclaimed, and the place that was being filled comes back half full. For an
    /// owner whose buffers outlive the connection. Waits for the kernel, which is quick once the
    /// socket is shut down.
    ///
    /// # Panics
    /// When the kernel still holds buffers a second later.
    pub fn abort(&mut self) -> Option<Place> {
        let _ = self.socket.shutdown(Shutdown::Both);
        assert!(self.port.wait_idle(), "the kernel did not let go of a socket that was shut down");
        while self.port.pop().is_some() {}
        self.ended.get_or_insert(io::ErrorKind::ConnectionAborted);
        self.sending = false;
        self.receiving = None;
        for batch in [&mut self.flying, &mut self.filling] {
            batch.segments.clear();
            batch.queued = 0;
        }
        for slot in &mut self.lent {
            slot.pieces = 0;
        }
        self.placing.take().map(|placing| placing.place).or_else(|| self.placed.take())
    }

    /// No more will be sent: the peer reads what was sent, then the end.
    pub fn shutdown_write(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.port.ring().remove_socket();
        if let Target::Fixed(slot) = self.target {
            // In-flight requests hold the file themselves.
            self.port.ring().unregister_file(slot);
        }
        if !self.port.wait_idle() {
            // Never seen after a shutdown; still, memory that the kernel may write to is not freed.
            std::mem::forget(std::mem::take(&mut self.rx));
            std::mem::forget(std::mem::take(&mut self.discard));
            std::mem::forget(self.placing.take());
            std::mem::forget(self.receiving.take());
            std::mem::forget(std::mem::replace(&mut self.flying, Batch::new()));
            std::mem::forget(std::mem::take(&mut self.lent));
        }
    }
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Segment::Bytes { len, .. }
            | Segment::Buf { len, .. }
            | Segment::Lent { len, .. }
            | Segment::Zeros { len }
            | Segment::Memory { len, .. } => *len,
        }
    }

    /// Drops the first `count` bytes.
    fn skip(&mut self, count: usize) {
        match self {
            Segment::Bytes { start, len }
            | Segment::Buf { start, len, .. }
            | Segment::Lent { start, len, .. } => {
                *start += count;
                *len -= count;
            }
            Segment::Zeros { len } => *len -= count,
            Segment::Memory { offset, len, .. } => {
                *offset += count as u64;
                *len -= count;
            }
        }
    }
}

impl Batch {
    fn new() -> Batch {
        Batch {
            segments: VecDeque::with_capacity(256),
            bytes: Vec::with_capacity(16 << 10),
            queued: 0,
            call: Box::new(Call::new(PIECES_MAX)),
        }
    }
}

impl Call {
    fn new(pieces: usize) -> Call {
        // SAFETY: a msghdr of zeros is an empty message.
        Call { header: unsafe { std::mem::zeroed() }, pieces: Vec::with_capacity(pieces) }
    }

    fn point(&mut self) {
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RingConfig;
    use brunt_core::Nanos;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    /// The goal: every kind of segment arrives whole and in order, though it is far more than the
    /// socket takes at once, and lent buffers come back only when they are sent.
    #[test]
    fn segments_arrive_in_order() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let (mut client, server) = pair();
        let data = pattern(3 << 20);
        let memory = Arc::new(SparseMemory::new(4 << 20).unwrap());
        memory.write(100, &data);
        let mut stream = Stream::new(&ring, server, 64 << 10).unwrap();
        let mut expected = Vec::new();
        let lent = stream.lend({
            let mut buf = Buf::zeroed(data.len());
            buf.copy_from_slice(&data);
            buf
        });
        for round in 0..700usize {
            stream.push_bytes(&data[round..round + 48]);
            expected.extend_from_slice(&data[round..round + 48]);
            stream.push_lent(lent, round, 1000);
            expected.extend_from_slice(&data[round..round + 1000]);
        }
        stream.push_zeros(200_001);
        expected.extend(std::iter::repeat_n(0, 200_001));
        stream.push_memory(&memory, 100, data.len());
        expected.extend_from_slice(&data);
        let mut buf = ring.pool().take(5000);
        buf.copy_from_slice(&data[..5000]);
        stream.push_buf(buf, 1, 4998);
        expected.extend_from_slice(&data[1..4999]);
        let total = expected.len();
        assert!(stream.reclaim(lent).is_none());
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; total];
            client.read_exact(&mut got).unwrap();
            got
        });
        while stream.queued_bytes() > 0 {
            stream.flush();
            ring.enter(Nanos::MAX).unwrap();
            stream.poll();
        }
        assert!(reader.join().unwrap() == expected);
        assert_eq!(stream.reclaim(lent).unwrap().len(), data.len());
    }

    /// The goal: headers come out of `bytes`, payloads go to their places, whatever the pieces
    /// in which they arrive, and the peer's close is seen after the last byte.
    #[test]
    fn payloads_go_to_their_places() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let (mut client, server) = pair();
        let data = pattern(1 << 20);
        let sent = data.clone();
        let writer = std::thread::spawn(move || {
            for chunk in sent.chunks(77_777) {
                client.write_all(chunk).unwrap();
            }
        });
        let memory = Arc::new(SparseMemory::new(1 << 20).unwrap());
        let mut stream = Stream::new(&ring, server, 16 << 10).unwrap();
        // A header of 10 bytes, then a payload to each kind of place in turn.
        let sizes = [100usize, 50_000, 300_000, 9_000, 400_000];
        let mut at = 0;
        let mut step = 0;
        let mut header_done = false;
        let mut ended = false;
        while !ended || step < sizes.len() {
            stream.arm();
            ring.enter(Nanos::MAX).unwrap();
            ended = stream.poll().ended;
            loop {
                if let Some(place) = stream.take_placed() {
                    let payload = &data[at..at + sizes[step]];
                    match place {
                        Place::Buf(buf) => assert!(buf[3..3 + sizes[step]] == *payload),
                        Place::Memory(_) => {
                            let mut got = vec![0; sizes[step]];
                            memory.read(4096, &mut got);
                            assert!(got == payload);
                        }
                        Place::Discard => {}
                    }
                    at += sizes[step];
                    step += 1;
                    header_done = false;
                }
                if step == sizes.len() {
                    let rest = stream.bytes().len();
                    assert!(stream.bytes() == &data[at..at + rest]);
                    at += rest;
                    stream.consume(rest);
                    break;
                }
                if !header_done && !stream.is_placing() && stream.bytes().len() >= 10 {
                    assert!(stream.bytes()[..10] == data[at..at + 10]);
                    stream.consume(10);
                    at += 10;
                    header_done = true;
                    let (place, offset) = match step % 3 {
                        0 => (Place::Buf(Buf::zeroed(sizes[step] + 3)), 3),
                        1 => (Place::Memory(Arc::clone(&memory)), 4096),
                        _ => (Place::Discard, 0),
                    };
                    stream.place(place, offset, sizes[step]);
                    continue;
                }
                break;
            }
        }
        writer.join().unwrap();
        assert_eq!(at, data.len());
        assert_eq!(stream.ended(), Some(io::ErrorKind::UnexpectedEof));
    }

    /// The goal: an aborted stream gives back what it had, in the middle of sending and placing.
    #[test]
    fn abort_gives_everything_back() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let (mut client, server) = pair();
        let mut stream = Stream::new(&ring, server, 16 << 10).unwrap();
        let lent = stream.lend(Buf::zeroed(8 << 20));
        stream.push_lent(lent, 0, 8 << 20);
        stream.place(Place::Buf(Buf::zeroed(1 << 20)), 0, 1 << 20);
        client.write_all(&[7; 1000]).unwrap();
        stream.arm();
        stream.flush();
        ring.enter(Nanos::MAX).unwrap();
        assert!(stream.reclaim(lent).is_none());
        assert!(matches!(stream.abort(), Some(Place::Buf(buf)) if buf.len() == 1 << 20));
        assert_eq!(stream.reclaim(lent).unwrap().len(), 8 << 20);
        assert_eq!(stream.queued_bytes(), 0);
        assert!(stream.poll().ended);
    }

    /// The goal: a stream that goes away in the middle of everything leaves no request behind.
    #[test]
    fn dropped_in_flight() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        for _ in 0..200 {
            let (client, server) = pair();
            let mut stream = Stream::new(&ring, server, 16 << 10).unwrap();
            stream.push_zeros(16 << 20);
            stream.arm();
            stream.flush();
            ring.enter(Nanos(0)).unwrap();
            drop(stream);
            drop(client);
        }
    }
}
