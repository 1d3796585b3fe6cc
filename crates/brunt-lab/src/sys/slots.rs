//! A ring of slots that a packet socket shares with the kernel (packet(7), `TPACKET_V2`), and batched sending directly
//! from it. The kernel hands over a slot as soon as its frame is complete, so a lone frame doesn't wait.
//!
//! The rule: a slot is accessed only between the kernel's handover and [`SlotRing::release`]. A frame longer than a
//! slot is either complete in the socket's own queue, in order, or reported as truncated.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::interface::{SOCKET_HEADER_BYTES, TAG_AT, TAG_BYTES, missing_tag, put_back};
use super::set_option;
use crate::link::VNET_HEADER_BYTES;

/// A standard Ethernet packet with its tags, and the kernel's header.
pub(crate) const SLOT_BYTES: usize = 2048;
/// The kernel allocates the ring in blocks of this size.
const BLOCK_BYTES: usize = 64 << 10;
/// Reserved before each frame: our virtio-net header is two bytes longer than the socket's, and a tag may be restored.
const RESERVED_BYTES: libc::c_int = 16;
/// Minimum offset of a frame in a slot.
const FRAME_AT_MIN: usize = size_of::<libc::tpacket2_hdr>() + VNET_HEADER_BYTES + TAG_BYTES;

/// The ring. Dropping the ring frees the memory.
#[derive(Debug)]
pub(crate) struct SlotRing {
    start: NonNull<u8>,
    slots: usize,
    /// The slot that the kernel hands over next, and the number of slots before it that are taken but not released.
    next: usize,
    taken: usize,
}

// SAFETY: the memory belongs to the ring until it is dropped, and is not tied to a thread.
unsafe impl Send for SlotRing {}

/// The state of the next slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotRead {
    /// Nothing yet.
    Nothing,
    /// A frame.
    Frame(SlotFrame),
    /// The frame is longer than a slot, and must be read from the socket.
    Long,
    /// The frame is longer than a slot, and the socket had no room for it either, so it is lost.
    Cut,
}

/// A frame in a taken slot: virtio-net header of [`VNET_HEADER_BYTES`], then Ethernet with its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotFrame {
    slot: usize,
    at: usize,
    bytes: usize,
    /// When the kernel received the frame, since 1970.
    pub(crate) stamp: Duration,
}

impl SlotRing {
    /// Gives a packet socket with virtio-net headers, not yet bound to an interface, a ring of `bytes` (a power of
    /// two), or of less (at least a sixteenth) if the kernel lacks memory.
    pub(crate) fn new(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<SlotRing> {
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        // Any value except zero keeps frames longer than a slot for recvmsg.
        let copy_long = 1 as libc::c_int;
        for (option, value) in [
            (libc::PACKET_VERSION, version),
            (libc::PACKET_RESERVE, RESERVED_BYTES),
            (libc::PACKET_COPY_THRESH, copy_long),
        ] {
            set_option(socket, libc::SOL_PACKET, option, &value)?;
        }
        let mut blocks = bytes / BLOCK_BYTES;
        let blocks_min = (blocks / 16).max(1);
        loop {
            let slots = blocks * (BLOCK_BYTES / SLOT_BYTES);
            let request = libc::tpacket_req {
                tp_block_size: BLOCK_BYTES as libc::c_uint,
                tp_block_nr: blocks as libc::c_uint,
                tp_frame_size: SLOT_BYTES as libc::c_uint,
                tp_frame_nr: slots as libc::c_uint,
            };
            match set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request) {
                Err(error)
                    if error.kind() == io::ErrorKind::OutOfMemory && blocks / 2 >= blocks_min =>
                {
                    blocks /= 2;
                }
                Err(error) => return Err(error),
                Ok(()) => return SlotRing::map(socket, slots),
            }
        }
    }

    fn map(socket: BorrowedFd<'_>, slots: usize) -> io::Result<SlotRing> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
        );
        assert!(
            slots.is_power_of_two(),
            "a power of two, so slots are indexed without a division"
        );
        let bytes = slots * SLOT_BYTES;
        // SAFETY: the kernel chooses the address; no existing mapping is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags,
                socket.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mapped somewhere");
        Ok(SlotRing {
            start,
            slots,
            next: 0,
            taken: 0,
        })
    }

    /// The number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Takes the next slot if the kernel has handed it over. A removed tag is restored in the frame.
    pub(crate) fn take(&mut self) -> SlotRead {
        if self.taken == self.slots
            || self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0
        {
            return SlotRead::Nothing;
        }
        let slot = self.next;
        self.next = self.wrap(slot + 1);
        self.taken += 1;
        let bytes = self.slot_mut(slot);
        // SAFETY: a slot begins with this header and is longer than it, and it was handed over, so the kernel does not
        // write to it.
        let header = unsafe { bytes.as_ptr().cast::<libc::tpacket2_hdr>().read_unaligned() };
        if header.tp_status & libc::TP_STATUS_COPY != 0 {
            return SlotRead::Long;
        }
        if header.tp_snaplen < header.tp_len {
            return SlotRead::Cut;
        }
        let (at, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        assert!(
            at >= FRAME_AT_MIN && at + length <= SLOT_BYTES,
            "the kernel writes frames into slots"
        );
        // Our header has two more bytes than the socket's; they are zero.
        let mut start = at - VNET_HEADER_BYTES;
        bytes.copy_within(at - SOCKET_HEADER_BYTES..at, start);
        bytes[start + SOCKET_HEADER_BYTES..at].fill(0);
        let mut whole = VNET_HEADER_BYTES + length;
        let missing = missing_tag(header.tp_status, header.tp_vlan_tpid, header.tp_vlan_tci);
        if let Some((kind, tag)) = missing.filter(|_| whole > TAG_AT) {
            // The header and the addresses move into the reserved space before them.
            bytes.copy_within(start..start + TAG_AT, start - TAG_BYTES);
            start -= TAG_BYTES;
            whole += TAG_BYTES;
            put_back(&mut bytes[start..], kind, tag);
        }
        let stamp = Duration::new(header.tp_sec.into(), header.tp_nsec.min(999_999_999));
        SlotRead::Frame(SlotFrame {
            slot,
            at: start,
            bytes: whole,
            stamp,
        })
    }

    /// The bytes of a frame that was taken and not released.
    pub(crate) fn bytes(&self, frame: SlotFrame) -> &[u8] {
        self.check_taken(frame);
        // SAFETY: the slot is ours until it is released, which needs the whole ring mutably, and `at` and `bytes` lie
        // within it.
        unsafe {
            std::slice::from_raw_parts(self.slot(frame.slot).as_ptr().add(frame.at), frame.bytes)
        }
    }

    /// Like [`SlotRing::bytes`], but mutable.
    pub(crate) fn bytes_mut(&mut self, frame: SlotFrame) -> &mut [u8] {
        self.check_taken(frame);
        &mut self.slot_mut(frame.slot)[frame.at..][..frame.bytes]
    }

    /// Returns all taken slots to the kernel.
    pub(crate) fn release(&mut self) {
        let first = self.next + self.slots - self.taken;
        for slot in first..first + self.taken {
            self.status_of(self.wrap(slot))
                .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.taken = 0;
    }

    fn check_taken(&self, frame: SlotFrame) {
        // Taken slots end right before the next one.
        let behind = self.wrap(self.next + self.slots - 1 - frame.slot);
        assert!(behind < self.taken, "its slot was released");
    }

    fn wrap(&self, slot: usize) -> usize {
        slot & (self.slots - 1)
    }

    fn slot(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.slots);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.add(slot * SLOT_BYTES) }
    }

    fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: callers name a slot that the kernel has handed over, and the ring stays borrowed as long as its
        // bytes.
        unsafe { std::slice::from_raw_parts_mut(self.slot(slot).as_ptr(), SLOT_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        self.status_of(self.next)
    }

    fn status_of(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status, which is aligned; both sides access it as one word, and it lives as
        // long as the ring.
        unsafe { AtomicU32::from_ptr(self.slot(slot).cast().as_ptr()) }
    }
}

impl Drop for SlotRing {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to the ring, and nothing borrowed from it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.slots * SLOT_BYTES) };
    }
}

/// Maximum number of frames per call.
pub(crate) const SENT_AT_ONCE_MAX: usize = 64;

/// Sends frames, virtio-net header first, in order through the interface that a packet socket is bound to. Set bits
/// in the result mark frames that were refused.
///
/// # Panics
/// Panics if there are more than [`SENT_AT_ONCE_MAX`].
pub(crate) fn write_packets<'a>(socket: RawFd, frames: impl Iterator<Item = &'a [u8]>) -> u64 {
    // A thread's stack has room for these arrays, and unused parts cost nothing.
    let mut parts = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; SENT_AT_ONCE_MAX];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; SENT_AT_ONCE_MAX];
    let mut count = 0;
    for frame in frames {
        assert!(count < SENT_AT_ONCE_MAX, "batches have a maximum size");
        let (header, packet) = frame.split_at(VNET_HEADER_BYTES);
        let parts =
            parts[count].write(
                [&header[..SOCKET_HEADER_BYTES], packet].map(|part| libc::iovec {
                    iov_base: part.as_ptr().cast_mut().cast(),
                    iov_len: part.len(),
                }),
            );
        // SAFETY: zeros are a valid mmsghdr.
        let message = messages[count].write(unsafe { std::mem::zeroed::<libc::mmsghdr>() });
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) =
            (parts.as_mut_ptr(), parts.len() as _);
        count += 1;
    }
    let (mut done, mut refused) = (0, 0u64);
    while done < count {
        let (rest, left) = (
            messages[done..].as_mut_ptr().cast(),
            (count - done) as libc::c_uint,
        );
        // SAFETY: this many messages were written, each with its parts, which point to frames that are borrowed and
        // only read.
        let sent = unsafe { libc::sendmmsg(socket, rest, left, 0) };
        match usize::try_from(sent) {
            Ok(sent @ 1..) => done += sent,
            // The first of the remaining frames was not sent.
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => {
                refused |= 1 << done;
                done += 1;
            }
        }
    }
    refused
}

/// The error that occurred on a socket since the last call, if any.
pub(crate) fn socket_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    rustix::net::sockopt::socket_error(socket)??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    /// Frames are sent in order, each with the ten-byte header of a packet socket, and refused frames are reported
    /// correctly.
    #[test]
    fn batched_frames_are_sent_in_order() {
        let (kind, flags) = (
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        );
        let (to, from) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let frame = |number: usize| -> Vec<u8> {
            let length = if number == 5 { 16 << 20 } else { 60 + number };
            (0..VNET_HEADER_BYTES + length)
                .map(|at| (at + number) as u8)
                .collect()
        };
        let frames: Vec<Vec<u8>> = (0..8).map(frame).collect();
        let refused = write_packets(to.as_raw_fd(), frames.iter().map(Vec::as_slice));
        assert_eq!(refused, 1 << 5, "too long for a socket");
        for (number, frame) in frames.iter().enumerate().filter(|(number, _)| *number != 5) {
            let mut seen = vec![0; 200];
            let (count, _) = recv(from.as_fd(), seen.as_mut_slice(), RecvFlags::empty()).unwrap();
            let expected = [&frame[..SOCKET_HEADER_BYTES], &frame[VNET_HEADER_BYTES..]].concat();
            assert_eq!(seen[..count], expected, "frame {number}");
        }
        drop(from);
        let refused = write_packets(to.as_raw_fd(), frames[..3].iter().map(Vec::as_slice));
        assert_eq!(refused, 0b111);
        assert_eq!(write_packets(to.as_raw_fd(), std::iter::empty()), 0);
    }
}
