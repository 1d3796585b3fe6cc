//! The state and usage of a process in `/proc/PID/stat` (proc_pid_stat(5)), for all crates that look at other processes:
//! probes, profiles, faults and benchmarks.
//!
//! The rule: the name is in parentheses and may contain anything, including parentheses, spaces and bytes that are
//! not UTF-8, so fields are counted from the end of the name.

use std::fs;
use std::path::Path;

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`: a kernel thread.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The fields of `/proc/PID/stat` that Brunt uses. A tick is 1 / `sysconf(_SC_CLK_TCK)` seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name of the program; the kernel keeps 15 bytes.
    pub comm: String,
    /// State: `R` is running, `Z` a zombie.
    pub state: char,
    /// PID of the parent.
    pub parent: u32,
    /// Whether it is a kernel thread.
    pub is_kernel_thread: bool,
    /// User-mode CPU time of all threads of the process, including ended ones.
    pub user_ticks: u64,
    /// Kernel-mode CPU time of all threads of the process, including ended ones.
    pub system_ticks: u64,
    /// CPU time of the process's children that have ended and been waited for.
    pub children_ticks: u64,
    /// Number of threads.
    pub threads: u64,
    /// The process's start time, counted from boot. Together with its PID this identifies a process.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
}

impl ProcessStat {
    /// Reads the state and usage of a process; `None` if the process does not exist.
    pub fn read(pid: u32) -> Option<ProcessStat> {
        ProcessStat::read_file(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// Reads the state and usage of the calling thread.
    pub fn of_thread() -> Option<ProcessStat> {
        ProcessStat::read_file(Path::new("/proc/thread-self/stat"))
    }

    /// Reads the file of a process or thread; `None` if it does not exist.
    pub fn read_file(file: &Path) -> Option<ProcessStat> {
        ProcessStat::parse(&String::from_utf8_lossy(&fs::read(file).ok()?))
    }

    /// Parses the contents of the file; `None` if a field is missing.
    pub fn parse(text: &str) -> Option<ProcessStat> {
        let (head, rest) = text.rsplit_once(')')?;
        let (_, comm) = head.split_once('(')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // `rest` begins with field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(ProcessStat {
            comm: comm.to_string(),
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(field(4)?).ok()?,
            is_kernel_thread: field(9)? & KERNEL_THREAD != 0,
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            children_ticks: field(16)?.saturating_add(field(17)?),
            threads: field(20)?,
            start_ticks: field(22)?,
            resident_pages: field(24)?,
        })
    }

    /// Whether the process has ended, although its parent has not waited for it yet.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// CPU time of all threads of the process, including ended ones.
    pub fn ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_parentheses() {
        let text = "42 (a) b (c) S 1 42 42 0 -1 2097216 1 2 3 4 77 88 7 8 20 0 3 0 991 4096 12";
        let stat = ProcessStat::parse(text).unwrap();
        let expected = ProcessStat {
            comm: "a) b (c".into(),
            state: 'S',
            parent: 1,
            is_kernel_thread: true,
            user_ticks: 77,
            system_ticks: 88,
            children_ticks: 15,
            threads: 3,
            start_ticks: 991,
            resident_pages: 12,
        };
        assert_eq!(stat, expected);
        assert!(!stat.is_dead() && stat.ticks() == 165);
        for cut in 0..text.rfind("12").unwrap() {
            assert_eq!(ProcessStat::parse(&text[..cut]), None, "{cut}");
        }
        let dead = ProcessStat::parse(&text.replace(" S ", " Z ")).unwrap();
        assert!(dead.is_dead());
    }

    /// The fields agree with other sources of the same facts.
    #[test]
    fn the_own_process_is_read() {
        let pid = std::process::id();
        let stat = ProcessStat::read(pid).unwrap();
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(stat.comm, comm.trim_end());
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
        assert!(!stat.is_kernel_thread && !stat.is_dead());
        assert!(stat.threads >= 1 && stat.resident_pages > 0);
        assert_eq!(ProcessStat::read(u32::MAX), None);
    }

    /// A program's name may contain anything.
    #[test]
    fn a_name_that_is_not_utf_8_hides_no_process() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = b"42 (\xff) S 1 42 42 0 -1 0 1 2 3 4 77 88 7 8 20 0 3 0 991 4096 12";
        fs::write(file.path(), text).unwrap();
        let stat = ProcessStat::read_file(file.path()).unwrap();
        assert_eq!((stat.comm.as_str(), stat.start_ticks), ("\u{fffd}", 991));
    }
}
