//! The io_uring engine: calls become submission queue entries, and one system call submits many and waits.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::call::{Call, RingFile};
use super::cpu::{KernelWorkers, RingCpu};
use super::engine::NoIoUring;
use super::{LINGER, RingConfig, Wait};
use crate::BufPool;

// linux/io_uring.h, IORING_ENTER_*.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_SQ_WAKEUP: u32 = 2;
const ENTER_EXT_ARG: u32 = 8;

/// `struct io_uring_getevents_arg` (linux/io_uring.h); its third field was padding before 6.12.
#[repr(C)]
struct EnterArgument {
    signals: u64,
    signals_len: u32,
    min_wait_us: u32,
    time: *const types::Timespec,
}

pub(super) struct Uring {
    ring: IoUring,
    /// Which registered file slots are in use; empty if the kernel can't register files.
    slots: Vec<bool>,
    /// Whether each region of the pool's arena is registered; empty if the kernel can't register any.
    regions: Vec<Registration>,
    /// Whether completions are added only during our own waits, never while this thread runs other code.
    deferred: bool,
    sqpoll: bool,
    iopoll: bool,
    /// Whether the kernel supports waiting for several completions with a timeout after which a single one suffices
    /// (6.12).
    lingers: bool,
    submitted: u64,
    /// Value of `submitted` when the kernel thread was last woken: one wake-up covers all requests up to then, however
    /// long that thread waits for a core.
    woken_for: u64,
    pub system_calls: u64,
    workers: KernelWorkers,
}

/// The state of a region of the arena.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registration {
    /// The region hasn't been used.
    None,
    Registered,
    /// The kernel rejected the registration: RLIMIT_MEMLOCK is exhausted.
    Refused,
}

impl Uring {
    /// Registers the pool's arena with the kernel, or, if it grows with use, prepares for [`Uring::register_region`].
    /// The pool must outlive this value.
    pub fn new(config: &RingConfig, pool: &BufPool) -> io::Result<Uring> {
        let (ring, deferred) = build(config).map_err(|error| {
            let why = error
                .raw_os_error()
                .map_or(NoIoUring::Other(0), NoIoUring::of);
            io::Error::new(error.kind(), why)
        })?;
        let submitter = ring.submitter();
        let (registered, state) = match pool.regions() {
            0 => (false, Registration::None),
            count if config.arena_grows => {
                let prepared = submitter.register_buffers_sparse(u32::from(count));
                (prepared.is_ok(), Registration::None)
            }
            _ => {
                // SAFETY: the pool keeps the arena until it is dropped, and the ring keeps the pool.
                let made = unsafe { submitter.register_buffers(&[iovec(pool.region(0))]) };
                (made.is_ok(), Registration::Registered)
            }
        };
        let regions = match registered {
            true => vec![state; usize::from(pool.regions())],
            false => Vec::new(),
        };
        let slots = match ring.submitter().register_files_sparse(config.file_slots) {
            Ok(()) => vec![false; config.file_slots as usize],
            Err(_) => Vec::new(),
        };
        Ok(Uring {
            slots,
            regions,
            deferred,
            sqpoll: config.sqpoll_idle_ms.is_some(),
            iopoll: config.iopoll,
            lingers: ring.params().is_feature_min_timeout(),
            submitted: 0,
            woken_for: 0,
            system_calls: 0,
            workers: KernelWorkers::of_this_thread(),
            ring,
        })
    }

    /// Whether completions, and the data of receives, arrive only during [`Uring::enter`].
    pub fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// Registers a region of the pool's arena unless it already is. Returns whether calls may refer to it.
    #[inline]
    pub fn register_region(&mut self, index: u16, pool: &BufPool) -> bool {
        match self.regions.get(usize::from(index)) {
            Some(Registration::Registered) => true,
            Some(Registration::None) => self.register_now(index, pool),
            Some(Registration::Refused) | None => false,
        }
    }

    #[cold]
    fn register_now(&mut self, index: u16, pool: &BufPool) -> bool {
        let region = [iovec(pool.region(index))];
        let submitter = self.ring.submitter();
        // SAFETY: the pool keeps the region until it is dropped, and the ring keeps the pool.
        let made = unsafe { submitter.register_buffers_update(u32::from(index), &region, None) };
        self.regions[usize::from(index)] = match made {
            Ok(()) => Registration::Registered,
            Err(_) => Registration::Refused,
        };
        made.is_ok()
    }

    /// Ends the registration of a region that no call in the kernel refers to. Returns whether it is unregistered now.
    /// It doesn't wait for other calls, unlike unregistering the whole table before 6.13.
    pub fn unregister_region(&mut self, index: u16) -> bool {
        let Some(state) = self.regions.get_mut(usize::from(index)) else {
            return true;
        };
        if *state == Registration::Registered {
            let none = [iovec((std::ptr::null_mut(), 0))];
            let submitter = self.ring.submitter();
            // SAFETY: an empty entry refers to no memory.
            let ended = unsafe { submitter.register_buffers_update(u32::from(index), &none, None) };
            if ended.is_err() {
                return false;
            }
        }
        *state = Registration::None;
        true
    }

    /// CPU time of the kernel threads that work for this ring.
    pub fn cpu(&mut self) -> RingCpu {
        self.workers.cpu()
    }

    pub fn lingers(&self) -> bool {
        self.lingers
    }

    /// Registers a file; `None` if the table is full or doesn't exist.
    pub fn register_file(&mut self, fd: RawFd) -> Option<u32> {
        let slot = self.slots.iter().position(|used| !used)?;
        self.ring
            .submitter()
            .register_files_update(slot as u32, &[fd])
            .ok()?;
        self.slots[slot] = true;
        Some(slot as u32)
    }

    /// Releases the slot.
    pub fn unregister_file(&mut self, slot: u32) {
        let _ = self.ring.submitter().register_files_update(slot, &[-1]);
        self.slots[slot as usize] = false;
    }

    /// Queues a call; `false` if the queue is full.
    ///
    /// # Safety
    /// The memory that the call points to must stay valid until its completion.
    pub unsafe fn push(&mut self, call: Call, user_data: u64) -> bool {
        let entry = entry_of(call).user_data(user_data);
        // SAFETY: guaranteed by the caller.
        let pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        self.submitted += u64::from(pushed);
        pushed
    }

    /// Makes one system call, or none if there is nothing to submit, to wait for, or to run.
    pub fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let (needs_wakeup, task_work, queued) = {
            let sq = self.ring.submission();
            (sq.need_wakeup(), sq.taskrun() || sq.cq_overflow(), sq.len())
        };
        let waits = !matches!(wait, Wait::No);
        let wakes = needs_wakeup && self.woken_for != self.submitted;
        let calls = waits || task_work || self.iopoll || (queued > 0 && (!self.sqpoll || wakes));
        if !calls {
            return Ok(());
        }
        let submitter = self.ring.submitter();
        let outcome = match wait {
            Wait::No => submitter.submit_and_wait(0),
            Wait::One => submitter.submit_and_wait(1),
            Wait::Until { count, nanos } => {
                let time = types::Timespec::new()
                    .sec(nanos / 1_000_000_000)
                    .nsec((nanos % 1_000_000_000) as u32);
                let argument = EnterArgument {
                    signals: 0,
                    signals_len: 0,
                    min_wait_us: if count > 1 {
                        LINGER.as_micros() as u32
                    } else {
                        0
                    },
                    time: &raw const time,
                };
                let wakeup = if self.sqpoll && needs_wakeup {
                    ENTER_SQ_WAKEUP
                } else {
                    0
                };
                let flags = ENTER_GETEVENTS | ENTER_EXT_ARG | wakeup;
                // SAFETY: the argument has the layout that ENTER_EXT_ARG requires, and it and its time outlive the
                // call.
                unsafe { submitter.enter(queued as u32, count, flags, Some(&argument)) }
            }
        };
        self.system_calls += 1;
        match outcome {
            Ok(_) if needs_wakeup => self.woken_for = self.submitted,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Passes the entries of the completion queue to `sink`.
    pub fn drain(&mut self, mut sink: impl FnMut(u64, i32)) {
        for entry in self.ring.completion() {
            sink(entry.user_data(), entry.result());
        }
    }
}

fn iovec((base, len): (*mut u8, usize)) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    }
}

/// Builds the submission queue entry for a call.
fn entry_of(call: Call) -> squeue::Entry {
    // Long because calls have many fields, one per line.
    // ASYNC is not set, even where the kernel's first attempt always fails before it passes the request to a worker
    // (buffered writes to tmpfs): with ASYNC, Linux 6.18 completes a third fewer requests.
    let fd_of = |file: RingFile| types::Fd(file.slot.map_or(file.fd, |slot| slot as RawFd));
    let fixed = |file: RingFile| match file.slot {
        Some(_) => squeue::Flags::FIXED_FILE,
        None => squeue::Flags::empty(),
    };
    match call {
        Call::Read {
            file,
            base,
            len,
            offset,
            registered,
        } => match registered {
            Some(index) => opcode::ReadFixed::new(fd_of(file), base, len, index)
                .offset(offset)
                .build(),
            None => opcode::Read::new(fd_of(file), base, len)
                .offset(offset)
                .build(),
        }
        .flags(fixed(file)),
        Call::Write {
            file,
            base,
            len,
            offset,
            flags,
            registered,
        } => match registered {
            Some(index) => opcode::WriteFixed::new(fd_of(file), base, len, index)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            None => opcode::Write::new(fd_of(file), base, len)
                .offset(offset)
                .rw_flags(flags)
                .build(),
        }
        .flags(fixed(file)),
        Call::Allocate {
            file,
            offset,
            len,
            mode,
        } => opcode::Fallocate::new(fd_of(file), len)
            .offset(offset)
            .mode(mode)
            .build()
            .flags(fixed(file)),
        Call::Sync { file } => opcode::Fsync::new(fd_of(file))
            .flags(types::FsyncFlags::DATASYNC)
            .build()
            .flags(fixed(file)),
        Call::Receive { socket, message } => opcode::RecvMsg::new(fd_of(socket), message)
            .build()
            .flags(fixed(socket)),
        Call::Send { socket, message } => {
            let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
            opcode::SendMsg::new(fd_of(socket), message)
                .flags(flags)
                .build()
                .flags(fixed(socket))
        }
        Call::Count { fd, into } => {
            opcode::Read::new(types::Fd(fd), into.cast(), size_of::<u64>() as u32).build()
        }
    }
}

/// Builds the best ring that this kernel supports: task work is deferred to our own waits (since 6.1) or, before that,
/// left to the kernel. Returns whether it is deferred.
fn build(config: &RingConfig) -> io::Result<(IoUring, bool)> {
    let build = |deferred: bool| {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(config.entries * 4).setup_clamp();
        if deferred {
            builder
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag();
        }
        if let Some(idle) = config.sqpoll_idle_ms {
            builder.setup_sqpoll(idle);
        }
        if config.iopoll {
            builder.setup_iopoll();
        }
        Ok((builder.build(config.entries)?, deferred))
    };
    if config.sqpoll_idle_ms.is_some() {
        return build(false);
    }
    build(true).or_else(|_| build(false))
}
