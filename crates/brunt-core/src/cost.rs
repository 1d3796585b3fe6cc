//! Measures the CPU time and context switches that work costs this process or thread. Every result includes them, so
//! the claim "below every cache, few system calls" can be checked on every run.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Resources used by a process or thread since it started (getrusage). Subtract two values to measure an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// CPU time in user mode, all threads.
    pub user: Duration,
    /// CPU time in the kernel on our behalf.
    pub system: Duration,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because a thread used up its time slice.
    pub involuntary_switches: u64,
}

impl ResourceUsage {
    /// Usage of this process so far, all threads.
    pub fn now() -> ResourceUsage {
        ResourceUsage::of(libc::RUSAGE_SELF)
    }

    /// Usage of the calling thread so far.
    pub fn of_thread() -> ResourceUsage {
        ResourceUsage::of(libc::RUSAGE_THREAD)
    }

    /// Usage of all child processes that have terminated and been waited for.
    pub fn of_children() -> ResourceUsage {
        ResourceUsage::of(libc::RUSAGE_CHILDREN)
    }

    fn of(whose: libc::c_int) -> ResourceUsage {
        // SAFETY: an all-zero rusage is valid, and the call fills it.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(whose, &mut usage);
            usage
        };
        ResourceUsage::from_usage(&usage)
    }

    fn from_usage(usage: &libc::rusage) -> ResourceUsage {
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        ResourceUsage {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// The usage since `earlier`.
    pub fn since(self, earlier: ResourceUsage) -> ResourceUsage {
        ResourceUsage {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }

    /// User plus system CPU time.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    /// Voluntary plus involuntary context switches.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

/// The resources that a terminated child process used over its lifetime.
#[derive(Clone, Copy, Debug)]
pub struct ChildUsage {
    /// The child's exit status.
    pub status: ExitStatus,
    /// The child's CPU time and context switches, all threads.
    pub cost: ResourceUsage,
    /// The child's peak memory use in bytes. Linux starts counting before the program is loaded, so this is never
    /// less than the caller's own peak.
    pub resident_bytes_max: u64,
}

impl ChildUsage {
    /// Waits for a child process to exit.
    ///
    /// # Errors
    /// The wait fails.
    pub fn wait(child: Child) -> io::Result<ChildUsage> {
        let mut status = 0;
        let pid = child.id() as libc::pid_t;
        // SAFETY: an all-zero rusage is valid, and both pointers refer to values that outlive the call. We own the
        // child and consume it here, so its process id is never waited for again.
        let (waited, usage) = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            let mut waited = libc::wait4(pid, &mut status, 0, &mut usage);
            while waited < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                waited = libc::wait4(pid, &mut status, 0, &mut usage);
            }
            (waited, usage)
        };
        if waited < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ChildUsage {
            status: ExitStatus::from_raw(status),
            cost: ResourceUsage::from_usage(&usage),
            resident_bytes_max: usage.ru_maxrss as u64 * 1024,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work shows up as CPU time, and a wait as a voluntary context switch.
    #[test]
    fn work_is_cpu_time_and_a_wait_is_a_context_switch() {
        let before = ResourceUsage::now();
        let mut random = crate::random::Random::new(1);
        while ResourceUsage::now().since(before).cpu() < Duration::from_millis(5) {
            std::hint::black_box(random.next_u64());
        }
        std::thread::sleep(Duration::from_millis(1));
        let used = ResourceUsage::now().since(before);
        assert!(used.user > Duration::ZERO || used.system > Duration::ZERO);
        assert!(used.voluntary_switches >= 1 && used.switches() >= used.voluntary_switches);
    }

    /// A child's exit status, CPU time and memory are reported separately from those of other processes.
    #[test]
    fn the_cost_of_a_child_is_its_own() {
        let run = |script: &str| {
            ChildUsage::wait(
                std::process::Command::new("sh")
                    .args(["-c", script])
                    .spawn()
                    .unwrap(),
            )
            .unwrap()
        };
        let idle = run("exit 3");
        assert_eq!(idle.status.code(), Some(3));
        let busy = run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
        assert!(
            busy.status.success() && busy.cost.cpu() > idle.cost.cpu(),
            "{busy:?} {idle:?}"
        );
        assert!(busy.resident_bytes_max > 100 << 10, "{busy:?}");
    }
}
