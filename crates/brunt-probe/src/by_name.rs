//! Finds processes by program name, repeatedly, because they come and go during a run.
//!
//! The rule: in samples, the first process with a name has the name as its instance, further ones have `name:2`,
//! `name:3`. A restarted process takes the place of the one that ended, so that runs can be compared.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Nanos, ProcessStat};

use super::watch::{Watch, Watching};

/// Minimum time between searches through all processes, which cost some microseconds each.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of watched processes; each adds some 50 µs to a sample.
const FOUND_MAX: usize = 64;
/// The kernel keeps at most this much of a name.
const COMM_BYTES: usize = 15;

/// Searches for processes by name.
pub struct ProcessFinder {
    host: Arc<str>,
    names: Vec<String>,
    next: Nanos,
    found: Vec<Found>,
    /// Names for which a process was found.
    seen: BTreeSet<usize>,
    left_out: usize,
}

struct Found {
    process: Process,
    /// The process's number among those with the same name, from 1.
    number: usize,
    _watching: Watching,
}

/// A process. The start time distinguishes the process from a later one with the same PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    name: usize,
    started_ticks: u64,
    pid: u32,
}

impl ProcessFinder {
    /// Searches for processes with these names on this host.
    pub fn new(host: &str, names: &[String]) -> ProcessFinder {
        ProcessFinder {
            host: host.into(),
            names: names.to_vec(),
            next: Nanos(0),
            found: Vec::new(),
            seen: BTreeSet::new(),
            left_out: 0,
        }
    }

    /// Updates the watched processes, if the next search is due.
    pub fn refresh(&mut self, watch: &Watch, now: Nanos) {
        if self.names.is_empty() || now < self.next {
            return;
        }
        self.next = now.after(SEARCH_INTERVAL);
        let there = self.there();
        self.found.retain(|found| there.contains(&found.process));
        for process in there {
            if self.found.iter().any(|found| found.process == process) {
                continue;
            }
            if self.found.len() >= FOUND_MAX {
                self.left_out += 1;
                continue;
            }
            let is_taken = |number: &usize| {
                self.found
                    .iter()
                    .any(|found| found.process.name == process.name && found.number == *number)
            };
            let number = (1..)
                .find(|number| !is_taken(number))
                .expect("numbers do not end");
            let name = &self.names[process.name];
            let instance = if number == 1 {
                name.clone()
            } else {
                format!("{name}:{number}")
            };
            let watching = watch.process(&self.host, &instance, process.pid);
            self.seen.insert(process.name);
            self.found.push(Found {
                process,
                number,
                _watching: watching,
            });
        }
    }

    /// Returns the current processes with these names, the oldest first.
    fn there(&self) -> BTreeSet<Process> {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| self.process(pid)).collect()
    }

    /// Returns the process with this PID, if it has one of the names.
    fn process(&self, pid: u32) -> Option<Process> {
        let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
        let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
        let cut = |name: &String| name.as_bytes()[..name.len().min(COMM_BYTES)] == *comm;
        let name = self.names.iter().position(cut)?;
        Some(Process {
            name,
            started_ticks: ProcessStat::read(pid)?.start_ticks,
            pid,
        })
    }

    /// Notes for the end: names that never matched a process, and the number of processes beyond the limit.
    pub fn notes(&self) -> Vec<String> {
        let never = self
            .names
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.seen.contains(index));
        let never = never.map(|(_, name)| format!("{}: no process is called '{name}'", self.host));
        let many = (self.left_out > 0).then(|| {
            format!(
                "{}: more than {FOUND_MAX} processes have these names; others were left out",
                self.host
            )
        });
        never.chain(many).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Processes are found by name as they start; when one ends, the next one takes its place.
    #[test]
    fn processes_are_found_as_they_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than the kernel's limit, and unique.
        let name = format!("by-name-{}-sleeps", std::process::id());
        let program = folder.path().join(&name);
        // A symbolic link, not a copy: if another test forks during the copy, executing the file would fail with
        // ETXTBSY.
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let start = || {
            let child = Sleeper(Command::new(&program).arg("60").spawn().unwrap());
            let comm = || fs::read_to_string(format!("/proc/{}/comm", child.0.id())).unwrap();
            while !name.starts_with(comm().trim()) {
                std::thread::yield_now();
            }
            child
        };
        let watch = Watch::default();
        let mut finder = ProcessFinder::new("here", &[name.clone(), "never-there".to_string()]);
        let mut now = Nanos(0);
        let mut look = |finder: &mut ProcessFinder| {
            finder.refresh(&watch, now);
            now = now.after(SEARCH_INTERVAL);
            let (_, subjects) = watch.changed(None).unwrap();
            let process = |subject: super::super::Subject| match subject {
                super::super::Subject::Process { name, pid, .. } => (name.to_string(), pid),
                other => panic!("{other:?}"),
            };
            let mut found: Vec<_> = subjects
                .into_iter()
                .map(|(_, subject)| process(subject))
                .collect();
            found.sort();
            found
        };
        assert_eq!(look(&mut finder), []);
        assert_eq!(finder.notes().len(), 2);
        let first = start();
        let first_pid = first.0.id();
        assert_eq!(look(&mut finder), [(name.clone(), first_pid)]);
        let second = start();
        let second_name = format!("{name}:2");
        assert_eq!(
            look(&mut finder),
            [
                (name.clone(), first_pid),
                (second_name.clone(), second.0.id())
            ]
        );
        drop(first);
        let third = start();
        assert_eq!(
            look(&mut finder),
            [(name.clone(), third.0.id()), (second_name, second.0.id())]
        );
        assert_eq!(finder.notes(), ["here: no process is called 'never-there'"]);
    }
}
