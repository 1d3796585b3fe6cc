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

/// CPU time spent for a ring that its thread's own usage doesn't include, or doesn't show separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCpu {
    /// CPU time of other threads that work for the ring, kernel threads (io-wq, SQPOLL) or helpers, in nanoseconds.
    /// Excludes the last work of an io-wq thread that exited between two readings. `None` if the threads cannot be
    /// found.
    pub workers_nanos: Option<u64>,
    /// Time spent polling for completions or submissions instead of sleeping, in nanoseconds: by the ring's thread, and
    /// by SQPOLL's. Excludes polling within a system call (`iopoll`).
    pub polling_nanos: u64,
}

struct SeenThread {
    nanos: u64,
    /// Whether this is SQPOLL's thread rather than a worker.
    polls: bool,
}

/// The kernel threads that work for one thread's io_uring.
pub(super) struct KernelWorkers {
    owner: libc::pid_t,
    /// CPU time of each thread when last seen; io-wq threads exit after 5 s without work.
    seen: BTreeMap<libc::pid_t, SeenThread>,
    look_again: Nanos,
    /// Whether every scan so far was able to list the threads of this process.
    is_known: bool,
}

impl KernelWorkers {
    /// The kernel threads that work for the calling thread.
    pub fn of_this_thread() -> KernelWorkers {
        KernelWorkers {
            owner: this_thread(),
            seen: BTreeMap::new(),
            look_again: Nanos(0),
            is_known: true,
        }
    }

    /// Total CPU time of all of these threads so far.
    pub fn cpu(&mut self) -> RingCpu {
        let begin = Clock::Monotonic.now();
        if begin >= self.look_again {
            self.update();
            let end = Clock::Monotonic.now();
            self.look_again = end.after(end.since(begin) * LOOK_SHARE);
        }
        for (thread, seen) in &mut self.seen {
            seen.nanos = of_thread(*thread).unwrap_or(0).max(seen.nanos);
        }
        let polling = self.seen.values().filter(|seen| seen.polls);
        RingCpu {
            workers_nanos: self
                .is_known
                .then(|| self.seen.values().map(|seen| seen.nanos).sum()),
            polling_nanos: polling.map(|seen| seen.nanos).sum(),
        }
    }

    /// The kernel names these threads after the thread that they work for: `iou-wrk-TID`, `iou-sqp-TID`
    /// (io_uring/io-wq.c, sqpoll.c). A polling thread has its own workers.
    fn update(&mut self) {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
            self.is_known = false;
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
            let polls = |(other, name): &(libc::pid_t, String)| {
                *other == thread && name.starts_with("iou-sqp-")
            };
            self.seen.entry(thread).or_insert_with(|| SeenThread {
                nanos: 0,
                polls: named.iter().any(polls),
            });
        }
    }
}
