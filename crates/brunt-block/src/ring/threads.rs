//! The engine without io_uring: ordinary system calls. Socket calls are tried without blocking and polled; file calls
//! go to helper threads, one per concurrent call, unless the calling thread may make them itself.
//!
//! The rule: the ring's thread blocks only in `ppoll`, so every completion, wake-up and deadline ends its wait. The
//! exceptions are calls that don't wait for a device, and a single call of a client without other requests
//! ([`Manner::Alone`]), so that nothing delays the call relative to the clock reading.

use std::io;
use std::os::fd::RawFd;

use super::Wait;
use super::call::{Call, Manner};
use super::helpers::Helpers;

/// Descriptors are polled at least once every this many iterations, even if nothing else requires it.
const LOOK_EVERY: u32 = 64;

#[derive(Default)]
pub(super) struct Threads {
    queued: Vec<(u64, Call)>,
    /// Calls that wait for a descriptor; `polled` holds their pollfds in the same order.
    waiting: Vec<(u64, Call)>,
    polled: Vec<libc::pollfd>,
    /// Number of sockets among `waiting`.
    sockets_waiting: usize,
    done: Vec<(u64, i32)>,
    helpers: Option<Helpers>,
    /// Calls about to be handed to helpers.
    handed: Vec<(u64, Call)>,
    /// The socket whose last receive filled its buffers completely, so that more data may be waiting.
    more_on: Option<RawFd>,
    turns: u32,
    calls_made: u64,
}

impl Threads {
    pub fn new() -> Threads {
        Threads::default()
    }

    /// # Safety
    /// The memory that the call points to must stay valid until its completion.
    pub unsafe fn push(&mut self, call: Call, user_data: u64) {
        self.queued.push((user_data, call));
    }

    pub fn system_calls(&self) -> u64 {
        self.calls_made + self.helpers.as_ref().map_or(0, Helpers::system_calls)
    }

    /// CPU time of the helpers, in nanoseconds.
    pub fn helpers_cpu_nanos(&self) -> u64 {
        self.helpers.as_ref().map_or(0, Helpers::cpu_nanos)
    }

    /// Starts queued calls, and waits unless some have completed.
    pub fn enter(&mut self, wait: Wait) -> io::Result<()> {
        self.start()?;
        self.take_finished();
        let timeout = match wait {
            _ if !self.done.is_empty() => 0,
            Wait::No => 0,
            Wait::One => u64::MAX,
            Wait::Until { nanos, .. } => nanos,
        };
        if timeout == 0 {
            self.turns += 1;
            if self.sockets_waiting == 0 && self.turns < LOOK_EVERY {
                return Ok(());
            }
        } else if !self.may_sleep() {
            return Ok(());
        }
        self.turns = 0;
        let polled = self.poll(timeout);
        if let Some(helpers) = &self.helpers {
            helpers.owner_is_awake();
        }
        polled?;
        self.take_finished();
        Ok(())
    }

    /// Passes completed calls to `sink`.
    pub fn drain(&mut self, mut sink: impl FnMut(u64, i32)) {
        for (user_data, result) in self.done.drain(..) {
            sink(user_data, result);
        }
    }

    fn start(&mut self) -> io::Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        let lone = self.is_lone();
        let mut queued = std::mem::take(&mut self.queued);
        for (user_data, call) in queued.drain(..) {
            match call {
                Call::Count { fd, .. } => self.wait_for(user_data, call, fd, libc::POLLIN),
                Call::Receive { socket, .. } => {
                    if self.more_on != Some(socket.fd) || !self.tried(user_data, &call) {
                        self.wait_for(user_data, call, socket.fd, libc::POLLIN);
                    }
                }
                Call::Send { socket, .. } => {
                    if !self.tried(user_data, &call) {
                        self.wait_for(user_data, call, socket.fd, libc::POLLOUT);
                    }
                }
                Call::Read { file, .. } if file.manner == Manner::Cached => {
                    self.calls_made += 1;
                    match call.perform(libc::RWF_NOWAIT) {
                        refused if is_refused(refused) => self.handed.push((user_data, call)),
                        result => self.done.push((user_data, result)),
                    }
                }
                Call::Read { file, .. }
                | Call::Write { file, .. }
                | Call::Allocate { file, .. }
                | Call::Sync { file } => {
                    if file.manner == Manner::Memory || (lone && file.manner == Manner::Alone) {
                        self.calls_made += 1;
                        self.done.push((user_data, call.perform(0)));
                    } else {
                        self.handed.push((user_data, call));
                    }
                }
            }
        }
        self.queued = queued;
        if self.handed.is_empty() {
            return Ok(());
        }
        if self.helpers.is_none() {
            self.helpers = Some(Helpers::new()?);
        }
        let helpers = self.helpers.as_mut().expect("a worker was added above");
        helpers.hand_over(&mut self.handed)
    }

    /// Whether this ring has only a single call to make, not counting wake reads.
    fn is_lone(&self) -> bool {
        let counts = |(_, call): &&(u64, Call)| !matches!(call, Call::Count { .. });
        self.sockets_waiting == 0
            && self.helpers.as_ref().is_none_or(Helpers::are_idle)
            && self.queued.iter().filter(counts).count() == 1
    }

    /// Makes a call on a descriptor if it wouldn't block. Returns whether the call was made.
    fn tried(&mut self, user_data: u64, call: &Call) -> bool {
        self.calls_made += 1;
        let result = call.perform(0);
        if result == -libc::EAGAIN {
            return false;
        }
        if let Call::Receive { socket, message } = call {
            // SAFETY: the client keeps the message until the call completes, which happens below.
            let room = unsafe { room_of(*message) };
            self.more_on = (result > 0 && result as usize == room).then_some(socket.fd);
        }
        self.done.push((user_data, result));
        true
    }

    fn wait_for(&mut self, user_data: u64, call: Call, fd: RawFd, events: libc::c_short) {
        self.sockets_waiting += usize::from(!matches!(call, Call::Count { .. }));
        self.waiting.push((user_data, call));
        self.polled.push(libc::pollfd {
            fd,
            events,
            revents: 0,
        });
    }

    fn take_finished(&mut self) {
        if let Some(helpers) = &mut self.helpers {
            helpers.take_finished(&mut self.done);
        }
    }

    /// Makes helpers ring the bell from now on. Returns `false` if one had already finished a call.
    fn may_sleep(&mut self) -> bool {
        if let Some(helpers) = &self.helpers {
            helpers.owner_sleeps();
            self.take_finished();
            if !self.done.is_empty()
                && let Some(helpers) = &self.helpers
            {
                helpers.owner_is_awake();
                return false;
            }
        }
        true
    }

    /// Polls all descriptors for at most `nanos` (`u64::MAX`: no limit) and makes the calls that wouldn't block.
    fn poll(&mut self, nanos: u64) -> io::Result<()> {
        let own = self.waiting.len();
        if let Some(helpers) = &self.helpers {
            self.polled.push(libc::pollfd {
                fd: helpers.bell_fd(),
                events: libc::POLLIN,
                revents: 0,
            });
        }
        let time = libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        };
        let time = if nanos == u64::MAX {
            std::ptr::null()
        } else {
            &raw const time
        };
        self.calls_made += 1;
        // SAFETY: the descriptors are open, and the time outlives the call.
        let ready = unsafe {
            libc::ppoll(
                self.polled.as_mut_ptr(),
                self.polled.len() as libc::nfds_t,
                time,
                std::ptr::null(),
            )
        };
        let rang = self.polled.get(own).is_some_and(|bell| bell.revents != 0);
        self.polled.truncate(own);
        match ready {
            0 => return Ok(()),
            1.. => {}
            _ => {
                let error = io::Error::last_os_error();
                // A signal ended the wait.
                return match error.kind() {
                    io::ErrorKind::Interrupted => Ok(()),
                    _ => Err(error),
                };
            }
        }
        if rang && let Some(helpers) = &self.helpers {
            self.calls_made += 1;
            helpers.reset_bell();
        }
        // In reverse, because `swap_remove` moves the last call into the place of a finished one.
        for at in (0..own).rev() {
            if self.polled[at].revents == 0 {
                continue;
            }
            let (user_data, call) = self.waiting[at];
            if self.tried(user_data, &call) {
                self.sockets_waiting -= usize::from(!matches!(call, Call::Count { .. }));
                self.waiting.swap_remove(at);
                self.polled.swap_remove(at);
            }
        }
        Ok(())
    }
}

/// Whether RWF_NOWAIT failed in a way that requires another call.
fn is_refused(result: i32) -> bool {
    matches!(-result, libc::EAGAIN | libc::EOPNOTSUPP | libc::EINVAL)
}

/// Total capacity of a message's buffers, in bytes.
///
/// # Safety
/// The message and its vector must be valid.
unsafe fn room_of(message: *const libc::msghdr) -> usize {
    // SAFETY: guaranteed by the caller.
    let pieces = unsafe { std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen) };
    pieces.iter().map(|piece| piece.iov_len).sum()
}

impl Call {
    /// Makes the call. Sockets and counters return EAGAIN instead of blocking. `flags` are added to those of a read.
    /// Returns the number of bytes, or a negative errno.
    pub(super) fn perform(&self, flags: i32) -> i32 {
        // SAFETY: the client keeps the memory that the call points to until the call completes.
        let result = unsafe {
            match *self {
                Call::Read {
                    file,
                    base,
                    len,
                    offset,
                    ..
                } => {
                    let piece = libc::iovec {
                        iov_base: base.cast(),
                        iov_len: len as usize,
                    };
                    libc::preadv2(file.fd, &raw const piece, 1, offset as libc::off_t, flags)
                }
                Call::Write {
                    file,
                    base,
                    len,
                    offset,
                    flags,
                    ..
                } => {
                    let piece = libc::iovec {
                        iov_base: base.cast_mut().cast(),
                        iov_len: len as usize,
                    };
                    libc::pwritev2(file.fd, &raw const piece, 1, offset as libc::off_t, flags)
                }
                Call::Allocate {
                    file,
                    offset,
                    len,
                    mode,
                } => libc::fallocate(file.fd, mode, offset as libc::off_t, len as libc::off_t)
                    as isize,
                Call::Sync { file } => libc::fdatasync(file.fd) as isize,
                Call::Receive { socket, message } => {
                    libc::recvmsg(socket.fd, message, libc::MSG_DONTWAIT)
                }
                Call::Send { socket, message } => {
                    libc::sendmsg(socket.fd, message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                }
                Call::Count { fd, into } => libc::read(fd, into.cast(), size_of::<u64>()),
            }
        };
        match i32::try_from(result) {
            Ok(result) if result >= 0 => result,
            Ok(_) => -io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
            Err(_) => i32::MAX,
        }
    }
}
