//! Processes by PID, as faults and services need them: their data in `/proc`, and signals to them.

use std::fmt::Display;
use std::fs;

use brunt_core::ProcessStat;
use rustix::process::{Pid, Signal, kill_process};

/// The search for a service's processes stops at this many.
const PROCESSES_MAX: usize = 1 << 16;

/// The name of a process's program, truncated to 15 bytes by the kernel.
pub(crate) fn comm(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// When a process was started, in ticks since boot; together with its PID this identifies the process.
pub(crate) fn started_ticks(pid: u32) -> Option<u64> {
    ProcessStat::read(pid).map(|stat| stat.start_ticks)
}

/// The PID of a process's parent.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    ProcessStat::read(pid).map(|stat| stat.parent)
}

/// Whether the process doesn't exist or is a zombie.
pub(crate) fn is_dead(pid: u32) -> bool {
    ProcessStat::read(pid).is_none_or(|stat| stat.is_dead())
}

/// Sends a signal to a process whose PID cannot have been reused.
pub(crate) fn signal(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.ok_or(rustix::io::Errno::SRCH)?, signal)
}

/// All living descendants of this process. A process started in the meantime may be missing.
pub fn below(pid: u32) -> Vec<u32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(parent) = found
        .get(next)
        .copied()
        .filter(|_| found.len() < PROCESSES_MAX)
    {
        let more = children(parent);
        found.extend(more);
        next += 1;
    }
    found.retain(|pid| !is_dead(*pid));
    found
}

/// The children of all threads of a process, including zombies.
fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => found.extend(
                text.split_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            ),
            // The thread has ended in the meantime.
            Err(_) if fs::metadata(task.path()).is_err() => {}
            // A kernel without CONFIG_PROC_CHILDREN.
            Err(_) => return children_of_all(pid),
        }
    }
    found
}

/// The children of a process, found by reading the parent of every process.
fn children_of_all(parent: u32) -> Vec<u32> {
    all()
        .filter(|pid| self::parent(*pid) == Some(parent))
        .collect()
}

/// The PIDs of all processes.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Resident memory of a process in bytes, including shared memory.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:").unwrap_or(0)
}

/// An amount of memory of a process, by its name in proc_pid_status(5); `None` if its /proc entry cannot be read.
pub(crate) fn status_bytes(process: impl Display, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    /// Both methods find a process's child and grandchild.
    #[test]
    fn both_methods_find_children_and_grandchildren() {
        let script = "sh -c 'sleep 1000 & echo $!; wait' & wait";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let last: u32 = line.trim().parse().unwrap();
        let found = below(child.id());
        assert!(found.len() == 2 && found[1] == last, "{found:?} {last}");
        assert_eq!(children_of_all(child.id()), [found[0]]);
        assert!(resident_bytes(last) > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in found {
            signal(pid, Signal::KILL).unwrap();
        }
        assert!(below(child.id()).is_empty());
    }
}
