//! The kernel interface of packet sockets: the shared ring, socket options, sending many frames at once. Apart from
//! `live::xsk`, this is the crate's only module with unsafe code. The one rule: a block of the ring is accessed only
//! between the time when the kernel releases it to us and the time when we give it back, and its bytes are changed
//! only before they are shared.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Offset of the status word in a block's descriptor (`tpacket_hdr_v1`).
const STATUS_AT: usize = 8;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Opens a packet socket that receives nothing yet.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor is new and not owned by anything else.
    unsafe {
        let fd = check(libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sets an option of `SOL_PACKET` or `SOL_SOCKET`; `T` has the layout that the kernel expects.
pub(super) fn set_option<T: Copy>(
    fd: &OwnedFd,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a live value.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result).map(|_| ())
}

/// Packets received since the last query, and how many of them were dropped.
pub(super) fn statistics(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    // SAFETY: the struct consists of integers, for which zero is a valid value; the kernel writes at most `len`
    // bytes.
    unsafe {
        let mut stats: libc::tpacket_stats_v3 = zeroed();
        let mut len = size_of_val(&stats) as libc::socklen_t;
        check(libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        ))?;
        Ok((u64::from(stats.tp_packets), u64::from(stats.tp_drops)))
    }
}

/// The fan-out group that the kernel chose for this socket.
pub(super) fn fanout_id(fd: &OwnedFd) -> io::Result<u16> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live integer.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    check(result).map(|_| value as u16)
}

/// Attaches a filter: only packets that it passes, cut to the length it returns, reach the socket.
pub(super) fn attach_filter(fd: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // The kernel copies the instructions during the call and does not change them.
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// The index of an interface.
pub(super) fn interface_index(name: &str) -> io::Result<i32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the name is a live string that ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(index as i32)
    }
}

/// The type of an interface (`ARPHRD_*`). Queried through the socket, because sysfs shows the network namespace in
/// which it was mounted.
pub(super) fn hardware_type(fd: &OwnedFd, name: &str) -> io::Result<u16> {
    // SAFETY: the struct consists of integers, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // Leaves one byte for the terminating zero.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the kernel reads the name and writes an address into a live request.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
    // SAFETY: the successful call has filled in this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// Makes an interface also receive packets addressed to other hosts, as long as the socket is open.
pub(super) fn make_promiscuous(fd: &OwnedFd, interface: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Binds a socket to an interface: packets arrive from now on (or never, if the protocol is zero).
pub(super) fn bind(fd: &OwnedFd, interface: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: the struct consists of integers, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface;
    // SAFETY: the kernel reads no more bytes than the address has.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    check(result).map(|_| ())
}

/// The ring's memory, shared with the kernel.
#[derive(Debug)]
pub(super) struct RingMap {
    start: NonNull<u8>,
    block_bytes: usize,
    block_count: usize,
    /// Whether each block was taken and not given back yet.
    taken: Box<[AtomicBool]>,
}

// SAFETY: the memory belongs to the process until the map is dropped. A block's status word, accessed atomically,
// says whether it is the kernel's turn or ours, and `taken` keeps our own users of a block apart.
unsafe impl Send for RingMap {}
// SAFETY: as for `Send`; `take` hands out each block only once until it comes back.
unsafe impl Sync for RingMap {}

impl RingMap {
    /// Maps the ring of a socket that has the option `PACKET_RX_RING` set.
    pub(super) fn new(fd: &OwnedFd, block_bytes: usize, block_count: usize) -> io::Result<RingMap> {
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                block_bytes * block_count,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mapped somewhere");
        let taken = (0..block_count).map(|_| AtomicBool::new(false)).collect();
        Ok(RingMap {
            start,
            block_bytes,
            block_count,
            taken,
        })
    }

    fn block(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.block_count);
        // SAFETY: the address is within the map, by the assertion.
        unsafe { self.start.add(index * self.block_bytes) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: blocks begin at page boundaries, so the word is aligned; both sides access it as
        // one word, and it lives as long as the map.
        unsafe { AtomicU32::from_ptr(self.block(index).add(STATUS_AT).cast().as_ptr()) }
    }

    /// Number of blocks with packets that were not given back to the kernel yet, whether read or unread.
    pub(super) fn blocks_used(&self) -> usize {
        let is_used = |index: &usize| {
            self.taken[*index].load(Ordering::Relaxed)
                || self.status(*index).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
        };
        (0..self.block_count).filter(is_used).count()
    }

    /// Takes block `index` if the kernel has released it and it is not taken already.
    pub(super) fn take(self: &Arc<Self>, index: usize) -> Option<TakenBlock> {
        if self.taken[index].load(Ordering::Acquire)
            || self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0
        {
            return None;
        }
        self.taken[index].store(true, Ordering::Relaxed);
        Some(TakenBlock(RingBlock {
            map: self.clone(),
            index,
        }))
    }
}

impl Drop for RingMap {
    fn drop(&mut self) {
        // SAFETY: the map is ours, and taken blocks hold a reference to it, so none is left.
        unsafe {
            libc::munmap(
                self.start.as_ptr().cast(),
                self.block_bytes * self.block_count,
            )
        };
    }
}

/// A block that is not shared yet: its bytes may be changed.
pub(super) struct TakenBlock(RingBlock);

impl TakenBlock {
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let map = &self.0.map;
        // SAFETY: the kernel has released the block to us, `take` handed it out only once, and the bytes are borrowed
        // from `self`.
        unsafe { std::slice::from_raw_parts_mut(map.block(self.0.index).as_ptr(), map.block_bytes) }
    }

    pub(super) fn share(self) -> RingBlock {
        self.0
    }
}

/// A block of packets. It is given back to the kernel on drop.
#[derive(Debug)]
pub struct RingBlock {
    map: Arc<RingMap>,
    index: usize,
}

impl RingBlock {
    /// All bytes of the block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the kernel does not touch the block until it is given back, which drops this value; nothing else
        // changes the bytes.
        unsafe {
            std::slice::from_raw_parts(self.map.block(self.index).as_ptr(), self.map.block_bytes)
        }
    }
}

impl Drop for RingBlock {
    fn drop(&mut self) {
        self.map
            .status(self.index)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.map.taken[self.index].store(false, Ordering::Release);
    }
}

/// Maximum frames per call.
pub(super) const SENT_AT_ONCE_MAX: usize = 64;

/// Sends frames and returns how many were sent. If not all were sent, the queue was full, or the next frame was
/// rejected.
pub(super) fn send_many(fd: &OwnedFd, frames: &[&[u8]]) -> io::Result<usize> {
    let frames = &frames[..frames.len().min(SENT_AT_ONCE_MAX)];
    // SAFETY: the structs consist of pointers and integers, for which zero is a valid value.
    let (mut parts, mut messages): (
        [libc::iovec; SENT_AT_ONCE_MAX],
        [libc::mmsghdr; SENT_AT_ONCE_MAX],
    ) = unsafe { (zeroed(), zeroed()) };
    for ((frame, part), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
        *part = libc::iovec {
            iov_base: frame.as_ptr().cast_mut().cast(),
            iov_len: frame.len(),
        };
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: each message points to its part, and each part to a live frame, which is only read.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            messages.as_mut_ptr(),
            frames.len() as u32,
            0,
        )
    };
    check(sent).map(|sent| sent as usize)
}
