//! The kernel interface of `AF_XDP`: packet memory and rings shared with the kernel, and the program that redirects
//! packets to them. Contains the unsafe code for [`super::xdp`]. The one rule: a frame belongs to the kernel from
//! when it is put into the fill ring until it comes out of the receive ring, and to us until it is put into the fill
//! ring again.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of a frame: one page, which every driver supports.
pub(super) const FRAME_BYTES: usize = 4096;
/// Set in a descriptor if the packet continues in the next descriptor.
pub(super) const CONTINUED: u32 = 1; // XDP_PKT_CONTD

// linux/bpf.h
const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_PROG_LOAD: i64 = 5;
const BPF_LINK_CREATE: i64 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_ATTACH_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_FUNC_REDIRECT_MAP: u32 = 51;
const XDP_PASS: u32 = 2;
const XDP_USE_SG: u16 = 1 << 4; // linux/if_xdp.h

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Calls `bpf`; the attributes begin with `words`, and the rest is zero.
///
/// # Safety
/// Addresses in `words` must point to live memory that the command only reads.
unsafe fn bpf(command: i64, words: &[u32]) -> io::Result<libc::c_int> {
    // Larger than any of these commands needs; the kernel requires unknown fields to be zero.
    let mut attributes = [0u32; 32];
    attributes[..words.len()].copy_from_slice(words);
    // SAFETY: the kernel reads `size_of_val(&attributes)` bytes of a live array; the caller is responsible for
    // the addresses in it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(&attributes) as u32,
        )
    };
    check(result as libc::c_int)
}

/// The two halves of an address, in memory order.
fn halves<T>(of: *const T) -> [u32; 2] {
    let bytes = (of as u64).to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}

/// Takes ownership of a descriptor returned by a system call.
fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just created it, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A map from queue number to the socket that receives its packets.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    // SAFETY: no addresses are passed.
    unsafe { bpf(BPF_MAP_CREATE, &[BPF_MAP_TYPE_XSKMAP, 4, 4, queues]) }.map(owned)
}

/// Adds a socket to the map.
pub(super) fn set_socket(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let (k, v) = (halves(&raw const queue), halves(&raw const value));
    // SAFETY: key and value are live four-byte integers, the sizes that the map was created with.
    unsafe {
        bpf(
            BPF_MAP_UPDATE_ELEM,
            &[map.as_raw_fd() as u32, 0, k[0], k[1], v[0], v[1], 0, 0],
        )
    }
    .map(drop)
}

/// Loads the program, which passes a queue's packets to the queue's socket, or to the kernel's network stack if there
/// is none. With `frags`, it also handles packets in several buffers.
pub(super) fn load_program(map: &OwnedFd, frags: bool) -> io::Result<OwnedFd> {
    let instruction = |code: u8, registers: u8, offset: i16, value: u32| {
        u64::from_ne_bytes({
            let (o, v) = (offset.to_ne_bytes(), value.to_ne_bytes());
            [code, registers, o[0], o[1], v[0], v[1], v[2], v[3]]
        })
    };
    // On little-endian machines, the source register is in the upper half of the byte.
    let registers = |to: u8, from: u8| {
        if cfg!(target_endian = "little") {
            to | from << 4
        } else {
            to << 4 | from
        }
    };
    let program = [
        // r2 = context->rx_queue_index
        instruction(0x61, registers(2, 1), 16, 0),
        // r1 = map, by its descriptor: an instruction that takes two slots
        instruction(0x18, registers(1, 1), 0, map.as_raw_fd() as u32),
        instruction(0, 0, 0, 0),
        // r3 = action for packets without a socket
        instruction(0xb7, registers(3, 0), 0, XDP_PASS),
        instruction(0x85, 0, 0, BPF_FUNC_REDIRECT_MAP),
        instruction(0x95, 0, 0, 0),
    ];
    let license = c"Apache-2.0";
    let (code, license) = (halves(program.as_ptr()), halves(license.as_ptr()));
    let mut words = [0u32; 18];
    words[..6].copy_from_slice(&[
        BPF_PROG_TYPE_XDP,
        program.len() as u32,
        code[0],
        code[1],
        license[0],
        license[1],
    ]);
    // After the log and the kernel version come flags, a name, a device and the attach type.
    words[11] = if frags { BPF_F_XDP_HAS_FRAGS } else { 0 };
    words[17] = BPF_ATTACH_XDP;
    // SAFETY: program and license live until the kernel has copied them.
    unsafe { bpf(BPF_PROG_LOAD, &words) }.map(owned)
}

/// Attaches a program to an interface until the descriptor is closed, explicitly or at the end of the process.
/// `flags` are `XDP_FLAGS_*`.
pub(super) fn attach(program: &OwnedFd, interface: i32, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: no addresses are passed.
    unsafe {
        bpf(
            BPF_LINK_CREATE,
            &[
                program.as_raw_fd() as u32,
                interface as u32,
                BPF_ATTACH_XDP,
                flags,
            ],
        )
    }
    .map(owned)
}

/// Number of receive queues of an interface; one if it doesn't report them.
pub(super) fn queue_count(fd: &OwnedFd, name: &str) -> u32 {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    // struct ethtool_channels: command, four maxima, then rx, tx, other and combined.
    let mut channels = [0u32; 9];
    channels[0] = 0x3c; // ETHTOOL_GCHANNELS
    // SAFETY: the structs consist of integers and pointers, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
    // SAFETY: the kernel writes no more words than the command's structure has.
    match check(unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, &raw mut request) }) {
        Ok(_) => (channels[5] + channels[8]).max(1),
        Err(_) => 1,
    }
}

/// A shared memory mapping.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn map(bytes: usize, fd: Option<(&OwnedFd, i64)>) -> io::Result<Mapping> {
        let (flags, fd, at) = match fd {
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            Some((fd, at)) => (libc::MAP_SHARED, fd.as_raw_fd(), at),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                flags | libc::MAP_POPULATE,
                fd,
                at,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            start: NonNull::new(start.cast()).expect("mapped somewhere"),
            bytes,
        })
    }

    /// A word that both sides access.
    fn word(&self, at: u64) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes as u64);
        // SAFETY: the word is within the map and aligned, by the assertion; both sides access it as one word.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at as usize).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the map is ours, and anything that uses its bytes keeps it alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The frames into which an interface's queue puts packets.
#[derive(Debug)]
pub(super) struct Frames {
    memory: Mapping,
    /// Whether each frame currently belongs to us.
    taken: Box<[AtomicBool]>,
}

// SAFETY: the memory belongs to the process until it is dropped; `taken` tracks whose turn each frame is, and the
// bytes of a taken frame are only read.
unsafe impl Send for Frames {}
// SAFETY: as for `Send`.
unsafe impl Sync for Frames {}

impl Frames {
    pub(super) fn new(count: usize) -> io::Result<Frames> {
        let memory = Mapping::map(count * FRAME_BYTES, None)?;
        Ok(Frames {
            memory,
            taken: (0..count).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    /// Bytes of a taken frame, by their offset in the memory.
    #[inline]
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let frame = at / FRAME_BYTES;
        assert!(at % FRAME_BYTES + len <= FRAME_BYTES && self.taken[frame].load(Ordering::Relaxed));
        // SAFETY: the bytes are within a frame of the memory, by the assertion; the frame is ours, so the kernel does
        // not write to it, and it is not given back while the batch in which it arrived is held.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr().add(at), len) }
    }

    /// Marks frame `index` as the kernel's; call it when putting the frame into the fill ring.
    pub(super) fn give_back(&self, index: u32) {
        self.taken[index as usize].store(false, Ordering::Release);
    }
}

/// A ring of descriptors that one side fills and the other empties.
#[derive(Debug)]
struct Descriptors {
    memory: Mapping,
    at: libc::xdp_ring_offset,
    size: u32,
}

// SAFETY: the memory belongs to the process; its words are accessed atomically, and its descriptors only by the owner
// of the socket, in turns with the kernel.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(
        fd: &OwnedFd,
        place: i64,
        at: libc::xdp_ring_offset,
        size: u32,
        each: usize,
    ) -> io::Result<Descriptors> {
        let memory = Mapping::map(at.desc as usize + size as usize * each, Some((fd, place)))?;
        Ok(Descriptors { memory, at, size })
    }

    fn producer(&self) -> &AtomicU32 {
        self.memory.word(self.at.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.memory.word(self.at.consumer)
    }

    fn slot<T>(&self, index: u32) -> NonNull<T> {
        let at = self.at.desc as usize + (index & (self.size - 1)) as usize * size_of::<T>();
        assert!(at + size_of::<T>() <= self.memory.bytes);
        // SAFETY: the slot is within the map, by the assertion.
        unsafe { self.memory.start.add(at).cast() }
    }
}

/// A socket that receives a queue's packets.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    fill: Descriptors,
    receive: Descriptors,
}

impl Socket {
    /// Creates a socket with rings for all frames. Packets arrive once it is bound and in the program's map.
    pub(super) fn new(frames: &Frames) -> io::Result<Socket> {
        // SAFETY: no memory is passed.
        let fd = owned(check(unsafe {
            libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
        })?);
        let size = frames.count() as u32;
        let area = libc::xdp_umem_reg_v1 {
            addr: frames.memory.start.as_ptr() as u64,
            len: frames.memory.bytes as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
        };
        let set = |name, value: &u32| super::sys::set_option(&fd, libc::SOL_XDP, name, value);
        super::sys::set_option(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &area)?;
        set(libc::XDP_UMEM_FILL_RING, &size)?;
        // Nothing is ever sent, but a socket without this ring cannot be bound.
        set(libc::XDP_UMEM_COMPLETION_RING, &2)?;
        set(libc::XDP_RX_RING, &size)?;
        // SAFETY: the struct consists of integers, for which zero is a valid value.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
        option(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let fill = Descriptors::map(&fd, fill_at, offsets.fr, size, size_of::<u64>())?;
        let receive_at = libc::XDP_PGOFF_RX_RING;
        let receive = Descriptors::map(
            &fd,
            receive_at,
            offsets.rx,
            size,
            size_of::<libc::xdp_desc>(),
        )?;
        Ok(Socket { fd, fill, receive })
    }

    /// Binds the socket to a queue; with `frags`, multi-frame packets arrive, too.
    pub(super) fn bind(&self, interface: i32, queue: u32, frags: bool) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if frags { XDP_USE_SG } else { 0 },
            sxdp_ifindex: interface as u32,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads no more bytes than the address has.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) })
            .map(drop)
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Gives frames to the kernel. The ring has room for all existing frames.
    pub(super) fn fill(&mut self, indexes: impl Iterator<Item = u32>) {
        let mut at = self.fill.producer().load(Ordering::Relaxed);
        for index in indexes {
            let address = u64::from(index) * FRAME_BYTES as u64;
            // SAFETY: `slot` is within the ring and aligned, and the kernel does not read it until the producer
            // has passed it.
            unsafe { self.fill.slot::<u64>(at).write(address) };
            at = at.wrapping_add(1);
        }
        self.fill.producer().store(at, Ordering::Release);
    }

    /// Takes the next packet or part of a packet: offset, length and options.
    pub(super) fn receive(&mut self, frames: &Frames) -> Option<(usize, u32, u32)> {
        let at = self.receive.consumer().load(Ordering::Relaxed);
        if self.receive.producer().load(Ordering::Acquire) == at {
            return None;
        }
        // SAFETY: `slot` is within the ring and aligned, and the kernel wrote it before it advanced the producer; the
        // kernel writes there again only after the consumer has passed it.
        let found: libc::xdp_desc = unsafe { self.receive.slot::<libc::xdp_desc>(at).read() };
        self.receive
            .consumer()
            .store(at.wrapping_add(1), Ordering::Release);
        frames.taken[found.addr as usize / FRAME_BYTES].store(true, Ordering::Relaxed);
        Some((found.addr as usize, found.len, found.options))
    }

    /// Number of packets dropped since the socket was created because no frame was free or the ring was full.
    pub(super) fn dropped(&self) -> io::Result<u64> {
        // SAFETY: the struct consists of integers, for which zero is a valid value.
        let mut counters: libc::xdp_statistics = unsafe { zeroed() };
        option(&self.fd, libc::XDP_STATISTICS, &mut counters)?;
        Ok(counters.rx_dropped + counters.rx_ring_full)
    }
}

/// Reads an option of `SOL_XDP`; `T` consists of integers.
fn option<T: Copy>(fd: &OwnedFd, name: i32, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `len` bytes into a live value, for which all bit patterns are valid.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, value, &raw mut len) })
        .map(drop)
}
