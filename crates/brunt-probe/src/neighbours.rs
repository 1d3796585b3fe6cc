//! Which other programs used CPUs during a run, and how much. Compares `/proc/PID/stat` of all processes before and
//! after, so the run itself is not disturbed. Used by the noise meter.
//!
//! The rule: this program and its children, kernel threads, and local servers to which this program has TCP connections
//! are not neighbours: they are the measurement and the storage under test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use brunt_core::ProcessStat;

/// Maximum number of processes that are read.
const PROCESSES_MAX: usize = 20_000;

/// A process at one moment.
#[derive(Clone, Debug, PartialEq)]
struct Process {
    name: String,
    parent: u32,
    is_kernel: bool,
    /// Ticks used by the process and by its ended children.
    ticks: u64,
    started: u64,
}

/// All processes at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes(BTreeMap<u32, Process>);

/// CPU time used by other programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Used {
    /// Number of CPUs' worth of time over the interval.
    pub cpus: f64,
    /// The program that used the most CPU time, and its share.
    pub most: Option<(String, f64)>,
}

impl Processes {
    /// Reads the current processes.
    pub fn of(proc: &Path) -> Processes {
        let Ok(entries) = fs::read_dir(proc) else {
            return Processes::default();
        };
        let processes = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // A process that has ended in the meantime has no file.
            let stat = ProcessStat::read_file(&entry.path().join("stat"))?;
            Some((pid, process(stat)))
        });
        Processes(processes.take(PROCESSES_MAX).collect())
    }

    /// Returns true if a process is `me` or a descendant of it.
    fn is_of(&self, pid: u32, me: u32) -> bool {
        let mut at = pid;
        for _ in 0..self.0.len() {
            if at == me {
                return true;
            }
            match self.0.get(&at) {
                Some(process) if process.parent != 0 => at = process.parent,
                _ => return false,
            }
        }
        false
    }

    /// Returns all descendants of `me`.
    pub fn descendants(&self, me: u32) -> Vec<u32> {
        let all = self.0.keys().copied();
        all.filter(|pid| *pid != me && self.is_of(*pid, me))
            .collect()
    }

    /// Returns the closest surviving process among the former `parent` and its ancestors.
    fn surviving(&self, before: &Processes, parent: u32) -> Option<&Process> {
        let mut at = parent;
        for _ in 0..before.0.len() {
            if let Some(process) = self.0.get(&at) {
                return Some(process);
            }
            at = before.0.get(&at)?.parent;
        }
        None
    }

    /// Returns the CPU time used by processes other than `me`, its descendants and `servers` in the `seconds` since
    /// `before`.
    pub fn used_since(
        &self,
        before: &Processes,
        me: u32,
        servers: &BTreeSet<u32>,
        (seconds, ticks_per_second): (f64, f64),
    ) -> Used {
        let is_other = |of: &Processes, pid: u32, process: &Process| {
            !process.is_kernel && !servers.contains(&pid) && !of.is_of(pid, me)
        };
        let (mut all, mut each) = (0i64, BTreeMap::<&str, i64>::new());
        // The time of an ended process is included in that of its closest surviving ancestor, so the usage before the
        // interval is subtracted. The time of a process that was never waited for is lost, and must not make the sum
        // negative.
        for (pid, process) in &self.0 {
            if is_other(self, *pid, process) {
                let same = before
                    .0
                    .get(pid)
                    .filter(|earlier| earlier.started == process.started);
                let ticks = process.ticks as i64 - same.map_or(0, |earlier| earlier.ticks as i64);
                all += ticks;
                *each.entry(&process.name).or_default() += ticks;
            }
        }
        for (pid, process) in &before.0 {
            let is_gone = self
                .0
                .get(pid)
                .is_none_or(|now| now.started != process.started);
            if is_gone && is_other(before, *pid, process) {
                all -= process.ticks as i64;
                if let Some(heir) = self.surviving(before, process.parent) {
                    *each.entry(&heir.name).or_default() -= process.ticks as i64;
                }
            }
        }
        let cpus = |ticks: i64| ticks.max(0) as f64 / ticks_per_second / seconds.max(1e-9);
        let most = each
            .into_iter()
            .max_by_key(|(_, ticks)| *ticks)
            .filter(|(_, ticks)| *ticks > 0);
        Used {
            cpus: cpus(all),
            most: most.map(|(name, ticks)| (name.to_string(), cpus(ticks))),
        }
    }
}

fn process(stat: ProcessStat) -> Process {
    Process {
        ticks: stat.ticks().saturating_add(stat.children_ticks),
        name: stat.comm.chars().filter(|c| !c.is_control()).collect(),
        parent: stat.parent,
        is_kernel: stat.is_kernel_thread,
        started: stat.start_ticks,
    }
}

/// Returns the local processes at the other end of this process's TCP connections: servers under test that this
/// program did not start. This needs access to their file descriptors, so it doesn't find servers of other users.
pub(super) fn tcp_peers(proc: &Path) -> BTreeSet<u32> {
    let own = sockets(&proc.join("self"));
    let mut connections = Vec::new();
    for file in ["self/net/tcp", "self/net/tcp6"] {
        let text = fs::read_to_string(proc.join(file)).unwrap_or_default();
        connections.extend(text.lines().skip(1).filter_map(connection));
    }
    let mine: BTreeSet<(&str, &str)> = connections
        .iter()
        .filter(|(_, _, inode)| own.contains(inode))
        .map(|(local, remote, _)| (remote.as_str(), local.as_str()))
        .collect();
    let theirs: BTreeSet<u64> = connections
        .iter()
        .filter(|(local, remote, inode)| {
            mine.contains(&(local.as_str(), remote.as_str())) && !own.contains(inode)
        })
        .map(|(_, _, inode)| *inode)
        .collect();
    if theirs.is_empty() {
        return BTreeSet::new();
    }
    let Ok(entries) = fs::read_dir(proc) else {
        return BTreeSet::new();
    };
    let pids = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    pids.take(PROCESSES_MAX)
        .filter(|pid| !sockets(&proc.join(pid.to_string())).is_disjoint(&theirs))
        .collect()
}

/// Returns the inodes of a process's open sockets.
fn sockets(process: &Path) -> BTreeSet<u64> {
    let Ok(entries) = fs::read_dir(process.join("fd")) else {
        return BTreeSet::new();
    };
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter_map(|link: PathBuf| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse().ok()
        })
        .collect()
}

/// Returns the local address, remote address and inode from a line of `/proc/net/tcp` (proc_net_tcp.rst), if it is
/// connected.
fn connection(line: &str) -> Option<(String, String, u64)> {
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let inode = fields.get(9)?.parse().ok()?;
    (*fields.get(3)? == ESTABLISHED).then(|| (fields[1].to_string(), fields[2].to_string(), inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(u32, &str)]) -> Processes {
        let each = lines
            .iter()
            .map(|(pid, line)| (*pid, process(ProcessStat::parse(line).expect("a process"))));
        Processes(each.collect())
    }

    fn line(pid: u32, name: &str, parent: u32, ticks: [u64; 2]) -> (u32, String) {
        let [own, children] = ticks;
        // PF_KTHREAD.
        let flags = if name.starts_with("kworker") {
            0x0020_0000
        } else {
            0
        };
        let text = format!(
            "{pid} ({name}) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {own} 0 {children} 0 20 0 1 0 {pid} 0 0"
        );
        (pid, text)
    }

    fn all(lines: &[(u32, String)]) -> Processes {
        let lines: Vec<(u32, &str)> = lines
            .iter()
            .map(|(pid, line)| (*pid, line.as_str()))
            .collect();
        of(&lines)
    }

    /// A build with short-lived compilers, a hog, the kernel, a server under test, and this program with a child.
    #[test]
    fn only_other_programs_count() {
        let before = all(&[
            line(1, "init", 0, [5, 0]),
            line(2, "kworker/0:1", 0, [100, 0]),
            line(10, "brunt", 1, [50, 0]),
            line(11, "brunt", 10, [10, 0]),
            line(20, "cargo (a)", 1, [3, 400]),
            line(21, "rustc", 20, [150, 20]),
            line(22, "cc", 21, [30, 0]),
            line(30, "nbd-server", 1, [0, 0]),
        ]);
        let now = all(&[
            line(1, "init", 0, [5, 0]),
            line(2, "kworker/0:1", 0, [150, 0]),
            line(10, "brunt", 1, [250, 0]),
            line(11, "brunt", 10, [90, 0]),
            line(20, "cargo (a)", 1, [3, 650]),
            line(30, "nbd-server", 1, [80, 0]),
            line(40, "hog", 1, [40, 0]),
        ]);
        // Two seconds of 100 ticks each: the compiler used 50 more ticks before it ended, the hog 40.
        let used = now.used_since(&before, 10, &BTreeSet::from([30]), (2.0, 100.0));
        assert_eq!(used.cpus, 0.45);
        assert_eq!(used.most, Some(("cargo (a)".to_string(), 0.25)));
        assert_eq!(now.descendants(10), [11]);
        let none = now.used_since(&now, 10, &BTreeSet::new(), (2.0, 100.0));
        assert_eq!((none.cpus, none.most), (0.0, None));
    }

    /// The time of processes that were never waited for is lost, and usage is never negative.
    #[test]
    fn usage_is_never_negative() {
        let before = all(&[line(1, "init", 0, [5, 0]), line(7, "gone", 1, [500, 0])]);
        let now = all(&[line(1, "init", 0, [5, 0])]);
        let used = now.used_since(&before, 10, &BTreeSet::new(), (1.0, 100.0));
        assert_eq!((used.cpus, used.most), (0.0, None));
    }

    #[test]
    fn a_server_that_this_process_talks_to_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut child = std::process::Command::new("python3")
            .args([
                "-c",
                &format!(
                    "import socket;s=socket.create_connection(('127.0.0.1',{}));s.recv(1)",
                    address.port()
                ),
            ])
            .spawn()
            .expect("python3");
        let (connection, _) = listener.accept().unwrap();
        let peers = tcp_peers(Path::new("/proc"));
        let is_found = peers.contains(&child.id());
        drop(connection);
        let _ = child.wait();
        assert!(is_found, "{peers:?}");
    }
}
