//! A connection on a ring, TCP or Unix, for protocols that frame bulk data: it sends chains of borrowed segments in one
//! vectored call, and receives headers into one buffer and payloads directly into their destination. iSCSI initiators
//! and targets both use it. It is independent of any protocol.
//!
//! The owner's loop: [`Stream::arm`] and [`Stream::flush`], [`Ring::enter`], [`Stream::poll`]; then parse
//! [`Stream::bytes`], `consume` the parsed bytes, or `place` a long payload. All of these only queue work; none blocks.

mod send;

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::buffer::{Buf, BufPool};
use crate::ring::call::{Call, Manner, RingFile};
use crate::ring::{Port, Ring};
use crate::socket::Socket;
use crate::sparse::SparseMemory;
pub use send::Lent;
use send::{Batch, LentSlot};

/// Bytes received after a long payload in the same call: the next header, and small PDUs in full. More would have to be
/// copied again.
const TAIL_BYTES: usize = 4096;
/// A payload missing fewer bytes than this isn't long: the rest of the receive buffer is filled along with it, because
/// another receive costs more than copying so few bytes.
const LONG_BYTES_MIN: usize = 16 << 10;
/// A payload missing at least this many bytes is received directly into its destination; a smaller remainder is copied,
/// which costs less than a separate receive.
pub const PLACE_BYTES_MIN: usize = 16 << 10;
/// Size of the buffer for discarded payloads.
const DISCARD_BYTES: usize = 256 << 10;

const USER_RECEIVE: u64 = 0;
const USER_SEND: u64 = 1;

/// Destination of a payload.
#[derive(Debug)]
pub enum PayloadPlace {
    /// Into this buffer, starting at an offset.
    Buf(Buf),
    /// Directly into a memory medium; marked as written when the payload is complete.
    Memory(Arc<SparseMemory>),
    /// Discarded.
    Discard,
}

/// The result of [`Stream::poll`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEvent {
    /// New bytes have arrived, or a destination is full.
    pub received: bool,
    /// Data was sent, so [`Stream::queued_bytes`] is further below its limit.
    pub sent: bool,
    /// The stream has ended: the peer closed it (after the bytes in [`Stream::bytes`]), or the connection broke.
    pub ended: bool,
}

/// A connection. Dropping the stream closes the connection, once the kernel has released its buffers.
pub struct Stream {
    port: Port,
    socket: Socket,
    file: RingFile,
    rx: Buf,
    rx_start: usize,
    rx_end: usize,
    placing: Option<Placing>,
    placed: Option<PayloadPlace>,
    receiving: Option<Box<Vector>>,
    /// Bytes of the outstanding receive that go to the destination; the rest goes after `rx_end`.
    receiving_placed: usize,
    spare_call: Option<Box<Vector>>,
    discard: Buf,
    sending: bool,
    filling: Batch,
    call_bytes_max: usize,
    flying: Batch,
    lent: Vec<LentSlot>,
    lent_free: Vec<u32>,
    ended: Option<io::ErrorKind>,
}

struct Placing {
    place: PayloadPlace,
    at: u64,
    end: u64,
    start: u64,
}

/// The arguments of a vectored call, which must not move while the kernel uses them.
struct Vector {
    header: libc::msghdr,
    pieces: Vec<libc::iovec>,
}

impl Stream {
    /// Puts a connected socket on the ring, with a receive buffer of `rx_bytes` for data without a destination.
    ///
    /// # Errors
    /// If the socket's options cannot be set.
    pub fn new(ring: &Ring, socket: impl Into<Socket>, rx_bytes: usize) -> io::Result<Stream> {
        let socket = socket.into();
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        let file = ring.add_file(socket.as_raw_fd(), Manner::Waits);
        ring.add_socket();
        Ok(Stream {
            port: ring.attach(),
            socket,
            file,
            // Outside the pool: sockets don't use registered memory.
            rx: Buf::zeroed(rx_bytes.max(2 * TAIL_BYTES)),
            rx_start: 0,
            rx_end: 0,
            placing: None,
            placed: None,
            receiving: None,
            receiving_placed: 0,
            spare_call: Some(Box::new(Vector::new(2))),
            discard: Buf::empty(),
            sending: false,
            filling: Batch::new(),
            call_bytes_max: send::CALL_BYTES_MAX,
            flying: Batch::new(),
            lent: Vec::new(),
            lent_free: Vec::new(),
            ended: None,
        })
    }

    /// The socket, for its addresses and options.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The buffer pool of the stream's ring.
    pub fn pool(&self) -> &BufPool {
        self.port.ring().pool()
    }

    /// Adds bytes that were read from the socket before it was put on the ring.
    ///
    /// # Panics
    /// Panics if the bytes don't fit after the unconsumed ones, or a receive is outstanding.
    pub fn preload(&mut self, bytes: &[u8]) {
        assert!(self.receiving.is_none(), "preload precedes the first arm");
        self.rx[self.rx_end..self.rx_end + bytes.len()].copy_from_slice(bytes);
        self.rx_end += bytes.len();
    }

    /// The bytes received but not consumed. Empty while a destination is being filled.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.rx[self.rx_start..self.rx_end]
    }

    /// Capacity of [`Stream::bytes`]: the maximum length of anything that must be in it completely.
    pub fn rx_capacity(&self) -> usize {
        self.rx.len()
    }

    /// Whether to receive a payload's `missing` bytes directly into their destination: if there are many, or if the
    /// whole message of `total` bytes, including headers, doesn't fit in the receive buffer.
    #[inline]
    pub fn wants_place(&self, missing: usize, total: usize) -> bool {
        missing >= PLACE_BYTES_MIN || total > self.rx_capacity()
    }

    /// Consumes the first `count` bytes.
    ///
    /// # Panics
    /// Panics if fewer bytes are available.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.rx_end - self.rx_start);
        self.rx_start += count;
    }

    /// Directs the next `len` bytes, starting with those in [`Stream::bytes`], into `place` at `offset`. When all have
    /// arrived (possibly at once), [`Stream::take_placed`] returns the place.
    ///
    /// # Panics
    /// Panics if another destination is being filled or hasn't been taken yet, or if the bytes don't fit.
    pub fn place(&mut self, place: PayloadPlace, offset: u64, len: usize) {
        assert!(
            self.placing.is_none() && self.placed.is_none(),
            "one receive at a time"
        );
        let end = offset + len as u64;
        match &place {
            PayloadPlace::Buf(buf) => {
                assert!(
                    end <= buf.len() as u64,
                    "the payload does not fit in its buffer"
                )
            }
            // Only checks the range.
            PayloadPlace::Memory(memory) => drop(memory.ptr(offset, len as u64)),
            PayloadPlace::Discard if self.discard.is_empty() => {
                self.discard = self.port.ring().pool().take(DISCARD_BYTES);
            }
            PayloadPlace::Discard => {}
        }
        self.placing = Some(Placing {
            place,
            at: offset,
            end,
            start: offset,
        });
        self.fill_from_rx();
    }

    /// Returns the filled destination, once.
    pub fn take_placed(&mut self) -> Option<PayloadPlace> {
        self.placed.take()
    }

    /// Whether a destination is still incomplete.
    pub fn is_placing(&self) -> bool {
        self.placing.is_some()
    }

    /// Queues a receive, unless one is outstanding, there is no room, or the stream has ended.
    pub fn arm(&mut self) {
        if self.receiving.is_some() || self.ended.is_some() {
            return;
        }
        // Make room first: move the data to the front if the buffer is empty or its tail gets short.
        if self.rx_start == self.rx_end {
            self.rx_start = 0;
            self.rx_end = 0;
        } else if self.rx.len() - self.rx_end < self.rx.len() / 4 && self.rx_start > 0 {
            self.rx.copy_within(self.rx_start..self.rx_end, 0);
            self.rx_end -= self.rx_start;
            self.rx_start = 0;
        }
        let mut call = self.spare_call.take().expect("only idle calls are spare");
        call.pieces.clear();
        let mut room = self.rx.len() - self.rx_end;
        self.receiving_placed = 0;
        if let Some(placing) = &mut self.placing {
            let left = (placing.end - placing.at) as usize;
            let (base, len) = match &mut placing.place {
                PayloadPlace::Buf(buf) => {
                    // SAFETY: `at <= end <= len` of the buffer, checked in `place`.
                    let base = unsafe { buf.as_mut_ptr().add(placing.at as usize) };
                    (base, left)
                }
                PayloadPlace::Memory(memory) => (memory.ptr(placing.at, left as u64), left),
                PayloadPlace::Discard => (self.discard.as_mut_ptr(), left.min(DISCARD_BYTES)),
            };
            call.pieces.push(libc::iovec {
                iov_base: base.cast(),
                iov_len: len,
            });
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
            call.pieces.push(libc::iovec {
                iov_base: base.cast(),
                iov_len: room,
            });
        }
        if call.pieces.is_empty() {
            self.spare_call = Some(call);
            return;
        }
        call.point();
        let receive = Call::Receive {
            socket: self.file,
            message: &raw mut call.header,
        };
        self.receiving = Some(call);
        // SAFETY: the call is boxed and kept in `receiving` until its completion; it points to the receive buffer
        // (whose used part is not moved meanwhile, since only `arm` moves it), the destination (kept in `placing`), or
        // the discard buffer; `drop` waits for the kernel before freeing.
        unsafe { self.port.push(receive, USER_RECEIVE) };
    }

    /// Processes the ring's completions. Call this after every [`Ring::enter`].
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

    /// Why the stream ended, if it has: `UnexpectedEof` if the peer closed it.
    pub fn ended(&self) -> Option<io::ErrorKind> {
        self.ended
    }

    fn end(&mut self, error: i32) {
        self.ended
            .get_or_insert(io::Error::from_raw_os_error(-error).kind());
    }

    /// Accounts for `count` bytes received into the pieces of the call, in order.
    fn accept(&mut self, count: usize) {
        let part = count.min(self.receiving_placed);
        self.rx_end += count - part;
        if let Some(placing) = &mut self.placing {
            placing.at += part as u64;
            // If the destination was set after the receive began, its bytes are in the receive buffer.
            self.fill_from_rx();
        }
    }

    /// Moves the destination's missing bytes out of the receive buffer.
    fn fill_from_rx(&mut self) {
        let Some(placing) = &mut self.placing else {
            return;
        };
        let have = (self.rx_end - self.rx_start).min((placing.end - placing.at) as usize);
        let bytes = &self.rx[self.rx_start..self.rx_start + have];
        match &mut placing.place {
            PayloadPlace::Buf(buf) => {
                buf[placing.at as usize..placing.at as usize + have].copy_from_slice(bytes)
            }
            PayloadPlace::Memory(memory) => memory.write(placing.at, bytes),
            PayloadPlace::Discard => {}
        }
        placing.at += have as u64;
        self.rx_start += have;
        self.finish_placing();
    }

    fn finish_placing(&mut self) {
        let Some(placing) = self.placing.take_if(|placing| placing.at == placing.end) else {
            return;
        };
        if let PayloadPlace::Memory(memory) = &placing.place {
            memory.mark(placing.start, placing.end - placing.start);
        }
        self.placed = Some(placing.place);
    }

    /// Aborts the connection and takes back everything from the kernel: afterwards all lent buffers can be reclaimed; a
    /// destination that was being filled is returned incomplete. For owners whose buffers outlive the connection. Waits
    /// for the kernel, which is quick once the socket is shut down.
    ///
    /// # Panics
    /// Panics if the kernel still holds buffers after a second.
    pub fn abort(&mut self) -> Option<PayloadPlace> {
        let _ = self.socket.shutdown(Shutdown::Both);
        assert!(
            self.port.wait_idle(),
            "the kernel still uses a socket that was shut down"
        );
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
        self.placing
            .take()
            .map(|placing| placing.place)
            .or_else(|| self.placed.take())
    }

    /// Releases memory that the stream doesn't need while it is idle; [`Ring::release`] then returns it to the
    /// kernel, once for many connections. Does nothing unless everything received has been consumed and everything
    /// queued has been sent.
    pub fn release(&mut self) {
        let is_receiving = self.rx_start < self.rx_end
            || self.placing.is_some()
            || self.placed.is_some()
            || self.port.has_completions();
        if is_receiving || self.sending || self.queued_bytes() > 0 {
            return;
        }
        // The outstanding receive has no data yet, and the kernel doesn't pin the pages that it will write to, so
        // they can be released.
        if self.port.ring().receives_only_on_enter() {
            self.rx.clear_pages();
        }
        if self.receiving_placed == 0 {
            self.discard = Buf::empty();
        }
        if self.filling.has_grown() || self.flying.has_grown() {
            self.filling = Batch::new();
            self.flying = Batch::new();
            self.port.ring().trim_on_release();
        }
    }

    /// Closes the sending direction: the peer reads all data sent, then the end of the stream.
    pub fn shutdown_write(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.port.ring().remove_socket();
        self.port.ring().remove_file(self.file);
        if !self.port.wait_idle() {
            // Never observed after a shutdown, but memory that the kernel may still write to must not be freed.
            std::mem::forget(std::mem::take(&mut self.rx));
            std::mem::forget(std::mem::take(&mut self.discard));
            std::mem::forget(self.placing.take());
            std::mem::forget(self.receiving.take());
            std::mem::forget(std::mem::replace(&mut self.flying, Batch::new()));
            std::mem::forget(std::mem::take(&mut self.lent));
        }
    }
}

impl Vector {
    fn new(pieces: usize) -> Vector {
        // SAFETY: an all-zero msghdr is an empty message.
        let header = unsafe { std::mem::zeroed() };
        Vector {
            header,
            pieces: Vec::with_capacity(pieces),
        }
    }

    fn point(&mut self) {
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
    }
}

#[cfg(test)]
mod tests;
