//! The calls that need `unsafe`: namespaces, TAP devices, interfaces, waiting for signals. All of the crate's unsafe
//! code is here, and every function is safe to call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

mod interface;
mod slots;

pub(crate) use interface::*;
pub(crate) use slots::*;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Moves the calling process or thread to new namespaces; `flags` as for clone(2).
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: integers only. Callers pass CLONE_NEW* flags, none of which takes memory or descriptors away from other
    // threads.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread to the network namespace of this descriptor.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: integers only; the descriptor is open as long as it is borrowed.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread to a mount namespace with the root `root`. The thread's working folder becomes the one
/// with the same path there; if none exists, the thread keeps the previous one.
pub(crate) fn enter_mounts(mounts: BorrowedFd<'_>, root: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{chdir, chroot, fchdir};
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    // Threads of a process share their root and working folder; the kernel refuses to move just one of them (setns(2)).
    unshare(libc::CLONE_FS)?;
    let folder = open(
        c".",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // No allocation: this is also called between fork and exec.
    let mut path = [0u8; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes at most the stated bytes, which are the array's.
    let bytes = unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) };
    move_into_link_name_space(mounts, Some(LinkNameSpaceType::Mount))?;
    // setns used the namespace's own root, which differs from that of a process in a chroot(2).
    fchdir(root)?;
    chroot(c".")?;
    let named = std::ffi::CStr::from_bytes_until_nul(&path);
    // If a folder is unreachable from the root, its path doesn't start with a slash.
    let named = named
        .ok()
        .filter(|named| bytes > 0 && named.to_bytes().starts_with(b"/"));
    match named.map(chdir) {
        Some(Ok(())) => Ok(()),
        _ => Ok(fchdir(folder)?),
    }
}

/// The open namespaces of a host.
#[derive(Debug)]
pub(crate) struct Namespaces {
    pub(crate) network: OwnedFd,
    pub(crate) mounts: OwnedFd,
    /// The root of the file systems in `mounts`.
    pub(crate) root: OwnedFd,
}

impl Namespaces {
    /// Moves the calling thread to the namespaces; there is no way back.
    pub(crate) fn enter(&self) -> io::Result<()> {
        enter_network(self.network.as_fd())?;
        enter_mounts(self.mounts.as_fd(), self.root.as_fd())
    }

    /// Duplicates the descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Namespaces> {
        Ok(Namespaces {
            network: self.network.try_clone()?,
            mounts: self.mounts.try_clone()?,
            root: self.root.try_clone()?,
        })
    }
}

/// Makes the process that `command` will start run in these namespaces and on these cores.
pub(crate) fn enter_on_spawn(
    command: &mut Command,
    namespaces: Namespaces,
    cores: rustix::thread::CpuSet,
) {
    // SAFETY: between fork and exec, only bare system calls are made, on the process's own memory.
    unsafe {
        command.pre_exec(move || {
            namespaces.enter()?;
            Ok(rustix::thread::sched_setaffinity(None, &cores)?)
        });
    }
}

/// Makes the process that `command` will start run in this network namespace.
pub(crate) fn enter_network_on_spawn(command: &mut Command, network: OwnedFd) {
    // SAFETY: between fork and exec, only a bare system call is made.
    unsafe {
        command.pre_exec(move || enter_network(network.as_fd()));
    }
}

/// Makes the process that `command` will start die when the calling *thread* ends, and unblocks all signals in it.
pub(crate) fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec, only bare system calls are made, on the process's own memory.
    unsafe {
        command.pre_exec(|| {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            let mut none = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut none);
            check(libc::sigprocmask(
                libc::SIG_SETMASK,
                &none,
                std::ptr::null_mut(),
            ))
            .map(drop)
        });
    }
}

/// Blocked signals that are waited for.
pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks these signals for this thread and those that it starts.
    pub(crate) fn block(signals: &[libc::c_int]) -> io::Result<Signals> {
        // SAFETY: sigemptyset accepts a zeroed set, and all calls get memory of this stack frame.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut set);
            for signal in signals {
                check(libc::sigaddset(&mut set, *signal))?;
            }
            check(libc::sigprocmask(
                libc::SIG_BLOCK,
                &set,
                std::ptr::null_mut(),
            ))?;
            Ok(Signals(set))
        }
    }

    /// Waits for the next signal; returns it, and whether a process sent it (rather than the kernel, as for Ctrl-C).
    pub(crate) fn wait(&self) -> io::Result<(libc::c_int, bool)> {
        loop {
            // SAFETY: the set is initialised; the info is in this stack frame, and the call fills it.
            let (signal, code) = unsafe {
                let mut info = std::mem::zeroed::<libc::siginfo_t>();
                (libc::sigwaitinfo(&self.0, &mut info), info.si_code)
            };
            match check(signal) {
                Ok(signal) => return Ok((signal, code <= 0)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Creates a TAP device in the calling thread's network namespace, with a virtio-net header of
/// [`crate::link::VNET_HEADER_BYTES`] before each frame. Closing the last descriptor removes the device.
pub(crate) fn open_tap(name: &str) -> io::Result<OwnedFd> {
    let flags =
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let tap = rustix::fs::open("/dev/net/tun", flags, rustix::fs::Mode::empty())?;
    let mut request = ifreq(name);
    let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = kind as libc::c_short;
    let header = crate::link::VNET_HEADER_BYTES as libc::c_int;
    // SAFETY: each ioctl reads exactly the type that its number names (linux/if_tun.h).
    unsafe {
        check(libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &request))?;
        check(libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ, &header))?;
    }
    Ok(tap)
}

/// Sets the offloads that the host may leave to a TAP: `TUN_F_*` of linux/if_tun.h.
pub(crate) fn set_tap_offload(tap: BorrowedFd<'_>, offload: libc::c_uint) -> io::Result<()> {
    // SAFETY: an ioctl that takes an integer.
    check(unsafe {
        libc::ioctl(
            tap.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload),
        )
    })
    .map(drop)
}

/// Builds an ioctl request for this device.
fn ifreq(device: &str) -> libc::ifreq {
    assert!(
        device.len() < libc::IFNAMSIZ,
        "an interface name has at most 15 characters"
    );
    // SAFETY: zeros are a valid ifreq.
    let mut request = unsafe { std::mem::zeroed::<libc::ifreq>() };
    for (place, letter) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *place = letter as libc::c_char;
    }
    request
}

/// A socket for ioctls on devices of the calling thread's namespace.
fn some_socket() -> io::Result<OwnedFd> {
    let (family, flags) = (
        rustix::net::AddressFamily::INET,
        rustix::net::SocketFlags::CLOEXEC,
    );
    Ok(rustix::net::socket_with(
        family,
        rustix::net::SocketType::DGRAM,
        flags,
        None,
    )?)
}

/// Opens a socket that receives every packet that arrives at a device of the calling thread's namespace, and sends
/// through that device; each packet has a virtio-net header of ten bytes.
pub(crate) fn open_packet_socket(index: u32, buffer_bytes: libc::c_int) -> io::Result<OwnedFd> {
    let socket = make_packet_socket(buffer_bytes)?;
    bind_packet_socket(socket.as_fd(), index)?;
    Ok(socket)
}

/// Like [`open_packet_socket`], except that the socket receives nothing until it is bound.
pub(crate) fn make_packet_socket(buffer_bytes: libc::c_int) -> io::Result<OwnedFd> {
    const PACKET_IGNORE_OUTGOING: libc::c_int = 23; // linux/if_packet.h
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: integers only.
    let socket = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: it was just opened and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let on: libc::c_int = 1;
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
    set_option(
        socket.as_fd(),
        libc::SOL_PACKET,
        PACKET_IGNORE_OUTGOING,
        &on,
    )?;
    for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        // Without the required capability, the default buffer has to do; drops are counted.
        let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, option, &buffer_bytes);
    }
    Ok(socket)
}

/// Sets a socket option to a value of the type that its manual page specifies, which contains no pointers.
fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (value, bytes) = (
        (&raw const *value).cast(),
        size_of::<T>() as libc::socklen_t,
    );
    // SAFETY: the kernel only reads the value, which is borrowed and as long as stated.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) }).map(drop)
}

/// Makes a packet socket receive from, and send through, this device.
pub(crate) fn bind_packet_socket(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: zeros are a valid sockaddr_ll.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is in this stack frame and as long as stated.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) }).map(drop)
}

/// Packets that a packet socket dropped for lack of room since the last call.
pub(crate) fn packet_socket_drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // struct tpacket_stats: packets, drops.
    let mut counts = [0u32; 2];
    let mut bytes = size_of_val(&counts) as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    let into = counts.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most the stated bytes, which are the array's.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, into, &mut bytes) })?;
    Ok(u64::from(counts[1]))
}

/// Makes the calling thread's namespace forward packets, without sending redirects.
pub(crate) fn forward_packets() -> io::Result<()> {
    for devices in ["all", "default"] {
        let _ = std::fs::write(
            format!("/proc/sys/net/ipv4/conf/{devices}/send_redirects"),
            "0",
        );
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
}

/// Sets a socket's receive buffer to this size or, if that is less, to the system's maximum.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: libc::c_int) {
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // If this is refused, the socket is unchanged.
        let _ = set_option(socket, libc::SOL_SOCKET, option, &bytes);
    }
}

/// Packets dropped by a socket for lack of room so far.
pub(crate) fn socket_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const SO_MEMINFO: libc::c_int = 55; // asm-generic/socket.h
    const DROPS: usize = 8; // linux/sock_diag.h, SK_MEMINFO_DROPS
    let mut values = [0u32; DROPS + 1];
    let mut bytes = size_of_val(&values) as libc::socklen_t;
    let into = values.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most the stated bytes, which are the array's.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            into,
            &mut bytes,
        )
    })?;
    Ok(values[DROPS])
}

/// Makes the calling thread's timers accurate to the nanosecond, rather than up to 50 µs late.
pub(crate) fn exact_timers() {
    // SAFETY: integers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Sets the priority (-20 to 19, lower goes first) of the calling thread only: on Linux each thread has its own
/// (setpriority(2), bugs).
pub(crate) fn raise_priority(nice: i32) -> io::Result<()> {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice)
        .map_err(io::Error::from)
}

/// Makes the calling thread real-time (SCHED_FIFO): it preempts all normal threads on its core.
pub(crate) fn real_time(priority: libc::c_int) -> io::Result<()> {
    // SAFETY: zeros are a valid sched_param, and the call only reads it.
    unsafe {
        let mut parameters = std::mem::zeroed::<libc::sched_param>();
        parameters.sched_priority = priority;
        check(libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters)).map(drop)
    }
}

/// Reads a frame into `into`; `None` if there currently is none.
pub(crate) fn read_frame(tap: RawFd, into: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the kernel writes at most as many bytes as the slice has.
    let count = unsafe { libc::read(tap, into.as_mut_ptr().cast(), into.len()) };
    if count >= 0 {
        return Ok(Some(count as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Writes one frame.
pub(crate) fn write_frame(tap: RawFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads at most as many bytes as the slice has.
    let count = unsafe { libc::write(tap, frame.as_ptr().cast(), frame.len()) };
    if count < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Waits until one of the descriptors is readable, or until `timeout`; returns which ones have an error.
pub(crate) fn wait_readable(fds: &[RawFd; 3], timeout: Option<Duration>) -> io::Result<[bool; 3]> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(3600) as libc::time_t,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and the time live in this stack frame; there is no signal mask.
    let result = unsafe { libc::ppoll(polled.as_mut_ptr(), 3, time, std::ptr::null()) };
    match check(result) {
        Ok(_) => Ok(polled.map(|polled| polled.revents & (libc::POLLERR | libc::POLLHUP) != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; 3]),
        Err(error) => Err(error),
    }
}

/// Mounts a /proc of this PID namespace, visible only in this mount namespace.
pub(crate) fn mount_proc() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: all strings are zero-terminated, and the kernel keeps none of them. Private first, so that the mount does
    // not propagate to the previous namespace.
    unsafe {
        check(libc::mount(
            none,
            c"/".as_ptr(),
            none,
            libc::MS_REC | libc::MS_PRIVATE,
            none.cast(),
        ))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        check(libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            flags,
            none.cast(),
        ))
        .map(drop)
    }
}

/// Takes ownership of a descriptor that was passed by number.
pub(crate) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD takes an integer, and fails if the descriptor isn't open.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and the process that left it to us gave it no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Removes an environment variable.
///
/// # Panics
/// Panics if other threads might read the environment concurrently: call this only from the first thread, before
/// starting others.
pub(crate) fn remove_variable(name: &str) {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert!(
        threads <= 1,
        "the environment is changed before threads are started"
    );
    // SAFETY: there is no other thread, as just checked.
    unsafe { std::env::remove_var(name) };
}

/// Whether the writers of this pipe have closed it.
pub(crate) fn is_hung_up(pipe: impl AsFd) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(&pipe, PollFlags::empty())];
    poll(
        &mut polled,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    Ok(polled[0].revents().contains(PollFlags::HUP))
}

/// Anonymous memory that is made resident and locked piece by piece.
pub(crate) struct LockedMemory {
    start: *mut libc::c_void,
    bytes: usize,
    locked_bytes: usize,
}

impl LockedMemory {
    /// Creates a mapping without resident pages.
    pub(crate) fn reserve(bytes: usize) -> io::Result<LockedMemory> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new anonymous mapping at an address that the kernel chooses; nothing is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(LockedMemory {
            start,
            bytes,
            locked_bytes: 0,
        })
    }

    /// Locks the next piece, of at most `bytes` and in whole pages; returns whether there was one. Locking faults its
    /// pages in.
    pub(crate) fn lock_more(&mut self, bytes: usize) -> io::Result<bool> {
        let piece = bytes.min(self.bytes - self.locked_bytes);
        if piece == 0 {
            return Ok(false);
        }
        // SAFETY: the piece lies within the mapping, which is ours.
        check(unsafe { libc::mlock(self.start.byte_add(self.locked_bytes), piece) })?;
        self.locked_bytes += piece;
        Ok(true)
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // SAFETY: the address is not used anywhere else. Unmapping also unlocks.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
