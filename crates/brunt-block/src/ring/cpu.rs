//! Processor time of threads that work for a ring: helpers, and the kernel's own (io-wq, SQPOLL), which are threads of
//! this process that its code never sees.

/// The calling thread's number.
pub(super) fn this_thread() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Processor time of a thread of this process, in nanoseconds; `None` when it is gone.
pub(super) fn of_thread(thread: libc::pid_t) -> Option<u64> {
    // The clock of a thread by its number: CPUCLOCK_PERTHREAD_MASK (4) with CPUCLOCK_SCHED (2), linux/posix-timers.h.
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is ours.
    let got = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (got == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
