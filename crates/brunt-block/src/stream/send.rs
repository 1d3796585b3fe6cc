//! The sending half of a [`Stream`]: segments are queued, gathered into a vectored call, and retired as the kernel
//! sends them.
//!
//! The rule: the memory behind a segment stays in place until the call that sends it completes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Stream, USER_SEND, Vector};
use crate::buffer::Buf;
use crate::ring::call::Call;
use crate::sparse::SparseMemory;

/// Source of zeros to send; small enough to stay in the L2 cache.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Maximum number of pieces in one call (the kernel's UIO_MAXIOV).
const PIECES_MAX: usize = 1024;
/// Initial capacity of a batch, in bytes of headers: 32 responses of 48 bytes fit. It grows with the queue depth.
const BATCH_BYTES: usize = 2048;
/// Initial capacity of a batch, in segments and pieces.
const BATCH_SEGMENTS: usize = 16;
/// Default maximum bytes per call. The kernel locks the socket for the whole call and processes the peer's
/// acknowledgements only at its end: `brunt-bench iscsi --row "1m read"` with libiscsi's client measured 5.5 GB/s with
/// 8 MiB per call, 7.7 with 1 MiB, and 4.5 with 128 KiB.
pub(super) const CALL_BYTES_MAX: usize = 1 << 20;
/// A buffer from which several segments are sent before it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent(u32);

pub(super) struct LentSlot {
    buf: Option<Buf>,
    pub pieces: u32,
}

/// Segments being sent, in order.
pub(super) struct Batch {
    pub segments: VecDeque<Segment>,
    /// The data of all `Segment::Bytes`, concatenated.
    bytes: Vec<u8>,
    /// Number of bytes in all segments that have not been sent yet.
    pub queued: usize,
    call: Box<Vector>,
}

pub(super) enum Segment {
    Bytes {
        start: usize,
        len: usize,
    },
    Buf {
        buf: Buf,
        start: usize,
        len: usize,
    },
    Lent {
        lent: Lent,
        start: usize,
        len: usize,
    },
    Zeros {
        len: usize,
    },
    Memory {
        memory: Arc<SparseMemory>,
        offset: u64,
        len: usize,
    },
}

impl Stream {
    /// Bytes queued or being sent. A sender that may outrun its peer must limit this.
    pub fn queued_bytes(&self) -> usize {
        self.filling.queued + self.flying.queued
    }

    /// Limits the bytes of each subsequent call; the default is 1 MiB. [`StreamEvent::sent`](super::StreamEvent::sent)
    /// is set only when all bytes of a call are sent, so smaller calls show the progress of slower peers.
    ///
    /// # Panics
    /// Panics if the limit is zero.
    pub fn set_call_bytes_max(&mut self, bytes: usize) {
        assert!(bytes > 0, "calls with nothing to send");
        self.call_bytes_max = bytes;
    }

    /// Queues a copy of `bytes`: headers and other short data.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.filling.bytes.len();
        self.filling.bytes.extend_from_slice(bytes);
        self.filling.queued += bytes.len();
        // Merge consecutive headers into one piece.
        if let Some(Segment::Bytes { len, .. }) = self.filling.segments.back_mut() {
            *len += bytes.len();
        } else if !bytes.is_empty() {
            self.filling.segments.push_back(Segment::Bytes {
                start,
                len: bytes.len(),
            });
        }
    }

    /// Queues part of a buffer, which returns to its pool once sent.
    ///
    /// # Panics
    /// Panics if the part exceeds the buffer.
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
    /// Panics if the part exceeds the medium.
    pub fn push_memory(&mut self, memory: &Arc<SparseMemory>, offset: u64, len: usize) {
        let _ = memory.ptr(offset, len as u64);
        self.push(
            Segment::Memory {
                memory: Arc::clone(memory),
                offset,
                len,
            },
            len,
        );
    }

    /// Takes a buffer; [`Stream::push_lent`] sends parts of it, and [`Stream::reclaim`] returns it.
    pub fn lend(&mut self, buf: Buf) -> Lent {
        let slot = LentSlot {
            buf: Some(buf),
            pieces: 0,
        };
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
    /// Panics if the buffer was already reclaimed.
    pub fn lent_bytes(&self, lent: Lent) -> &[u8] {
        self.lent[lent.0 as usize]
            .buf
            .as_ref()
            .expect("a lent buffer is kept until it is reclaimed")
    }

    /// Queues part of a lent buffer.
    ///
    /// # Panics
    /// Panics if the buffer was already reclaimed, or the part exceeds it.
    pub fn push_lent(&mut self, lent: Lent, start: usize, len: usize) {
        assert!(start + len <= self.lent_bytes(lent).len());
        self.lent[lent.0 as usize].pieces += 1;
        self.push(Segment::Lent { lent, start, len }, len);
    }

    /// Returns the buffer once no part of it is queued or being sent; `None` until then.
    ///
    /// # Panics
    /// Panics if the buffer was already reclaimed.
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

    /// Passes queued data to the kernel, unless a send is outstanding.
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
        let send = Call::Send {
            socket: self.file,
            message: &raw const self.flying.call.header,
        };
        self.sending = true;
        // SAFETY: the call is boxed in `flying`, which does not change until the completion; its pieces point into
        // `flying.bytes`, into buffers that its segments own or that stay lent while their piece count is non-zero,
        // into media that its segments keep alive, or into ZEROS; `drop` waits for the kernel before freeing.
        unsafe { self.port.push(send, USER_SEND) };
    }

    /// Gathers pieces of the segments being sent, up to the limits of one call.
    fn gather(&mut self) {
        let Batch {
            segments,
            bytes,
            call,
            ..
        } = &mut self.flying;
        let pieces = &mut call.pieces;
        pieces.clear();
        let mut room = self.call_bytes_max;
        // The rest of a truncated piece is part of the next call.
        let mut add = |base: *const u8, len: usize| {
            let len = len.min(room);
            pieces.push(libc::iovec {
                iov_base: base.cast_mut().cast(),
                iov_len: len,
            });
            room -= len;
            pieces.len() < PIECES_MAX && room > 0
        };
        'all: for segment in segments.iter() {
            let more = match segment {
                Segment::Bytes { start, len } => add(bytes[*start..*start + *len].as_ptr(), *len),
                Segment::Buf { buf, start, len } => add(buf[*start..*start + *len].as_ptr(), *len),
                Segment::Lent { lent, start, len } => {
                    let buf = self.lent[lent.0 as usize]
                        .buf
                        .as_ref()
                        .expect("only queued pieces are lent");
                    add(buf[*start..*start + *len].as_ptr(), *len)
                }
                Segment::Memory {
                    memory,
                    offset,
                    len,
                } => add(memory.ptr(*offset, *len as u64), *len),
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

    /// Retires `count` sent bytes of these segments.
    pub(super) fn retire(&mut self, count: usize) {
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
    pub fn new() -> Batch {
        Batch {
            segments: VecDeque::with_capacity(BATCH_SEGMENTS),
            bytes: Vec::with_capacity(BATCH_BYTES),
            queued: 0,
            call: Box::new(Vector::new(BATCH_SEGMENTS)),
        }
    }

    /// Whether the batch holds more memory than a new one.
    pub fn has_grown(&self) -> bool {
        self.bytes.capacity() > BATCH_BYTES
            || self.segments.capacity() > 2 * BATCH_SEGMENTS
            || self.call.pieces.capacity() > 2 * BATCH_SEGMENTS
    }
}
