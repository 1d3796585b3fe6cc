//! CPU time of threads that work for a ring: helpers, and kernel threads (io-wq, SQPOLL). The latter are threads of
//! this process that its code never sees, and no thread's rusage includes them.

use std::collections::BTreeMap;

use brunt_core::{Clock, Nanos};

/// Scanning for threads takes at most 1/`LOOK_SHARE` of the time between scans.
const LOOK_SHARE: u32 = 100;

/// The calling thread's ID.
pub(super) fn this_thread() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// CPU time of a thread of this process, in nanoseconds; `None` if it has ended.
pub(super) fn of_thread(thread: libc::pid_t) -> Option<u64> {
    // The CPU clock of a thread ID: CPUCLOCK_PERTHREAD_MASK (4) with CPUCLOCK_SCHED (2), linux/posix-timers.h.
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is a local variable.
    let got = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (got == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The kernel threads that work for one thread's io_uring.
pub(super) struct KernelWorkers {
    owner: libc::pid_t,
    /// CPU time of each thread when last seen; io-wq threads exit after 5 s without work.
    seen: BTreeMap<libc::pid_t, u64>,
    look_again: Nanos,
}

impl KernelWorkers {
    /// The kernel threads that work for the calling thread.
    pub fn of_this_thread() -> KernelWorkers {
        KernelWorkers {
            owner: this_thread(),
            seen: BTreeMap::new(),
            look_again: Nanos(0),
        }
    }

    /// Total CPU time of all of these threads so far, in nanoseconds.
    pub fn cpu_nanos(&mut self) -> u64 {
        let begin = Clock::Monotonic.now();
        if begin >= self.look_again {
            self.look();
            let end = Clock::Monotonic.now();
            self.look_again = end.after(end.since(begin) * LOOK_SHARE);
        }
        for (thread, nanos) in &mut self.seen {
            *nanos = of_thread(*thread).unwrap_or(*nanos).max(*nanos);
        }
        self.seen.values().sum()
    }

    /// The kernel names these threads after the thread that they work for: `iou-wrk-TID`, `iou-sqp-TID`
    /// (io_uring/io-wq.c, sqpoll.c). A polling thread has its own workers.
    fn look(&mut self) {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
            return;
        };
        let named: Vec<(libc::pid_t, String)> = tasks
            .flatten()
            .filter_map(|task| {
                let thread = task.file_name().to_str()?.parse().ok()?;
                let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
                name.starts_with("iou-")
                    .then(|| (thread, name.trim().to_string()))
            })
            .collect();
        let works_for = |name: &str, owner: libc::pid_t| {
            ["iou-wrk-", "iou-sqp-"]
                .iter()
                .any(|kind| name.strip_prefix(kind).and_then(|of| of.parse().ok()) == Some(owner))
        };
        let direct: Vec<libc::pid_t> = named
            .iter()
            .filter(|(_, name)| works_for(name, self.owner))
            .map(|(thread, _)| *thread)
            .collect();
        let indirect = named
            .iter()
            .filter(|(_, name)| direct.iter().any(|thread| works_for(name, *thread)))
            .map(|(thread, _)| *thread);
        for thread in direct.iter().copied().chain(indirect) {
            self.seen.entry(thread).or_insert(0);
        }
    }
}
