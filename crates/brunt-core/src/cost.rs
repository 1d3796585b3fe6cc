//! The cost of a piece of work to this process or thread: printed with every result, so that the claim "below
//! every cache, few system calls" can be checked on every run.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Resources used by a process or a thread since it began (getrusage); subtract two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Processor time in user mode, all threads.
    pub user: Duration,
    /// Processor time in the kernel on our behalf.
    pub system: Duration,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because a thread's time was up.
    pub involuntary_switches: u64,
}

impl ResourceUsage {
    /// Of this process up to now, all threads.
    pub fn now() -> ResourceUsage {
        ResourceUsage::of(libc::RUSAGE_SELF)
    }

    /// Of the calling thread up to now.
    pub fn of_thread() -> ResourceUsage {
        ResourceUsage::of(libc::RUSAGE_THREAD)
    }

    /// Of the programs that this process ran and waited for, up to now.
    pub fn of_children() -> ResourceUsage {
        ResourceUsage::of(libc::RUSAGE_CHILDREN)
    }

    fn of(whose: libc::c_int) -> ResourceUsage {
        // SAFETY: an rusage of zeros is valid, and the call fills the one it is given.
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

    /// What was used since `earlier`.
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

    /// Processor time of both kinds.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    /// Context switches of both kinds.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

/// What a program that ended had used, from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// How it ended.
    pub status: ExitStatus,
    /// Its processor time and switches, all threads.
    pub cost: ResourceUsage,
    /// The most memory that it held at a time, in bytes. Linux counts from before the program was
    /// loaded: it is never less than the caller's own.
    pub resident_bytes_max: u64,
}

impl Spent {
    /// Waits for a program's end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(child: Child) -> io::Result<Spent> {
        let mut status = 0;
        let pid = child.id() as libc::pid_t;
        // SAFETY: an rusage of zeros is valid, and both pointers are to values that outlive the call. The
        // child is ours and is given up here, so that nobody waits for its number again.
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
        Ok(Spent {
            status: ExitStatus::from_raw(status),
            cost: ResourceUsage::from_usage(&usage),
            resident_bytes_max: usage.ru_maxrss as u64 * 1024,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work shows as processor time, and a wait as a voluntary switch.
    #[test]
    fn work_and_waits_show() {
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

    /// A program's end, its processor time and its memory are its own.
    #[test]
    fn a_program_that_ended() {
        let run = |script: &str| {
            Spent::wait(
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
