//! Processes that samples belong to: which program, and where its code is mapped. Identified by process id and start
//! time, because ids are reused.
//!
//! The rule: a process's mappings are read at its first sample and at the end. Files of a process that has ended by
//! then are used only if they are still the same.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use brunt_core::ProcessStat;

/// Maximum number of executable mappings kept for a process.
const MAPPINGS_MAX: usize = 4096;

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Position of `start` in the file.
    pub offset: u64,
    /// The file as the process sees it; `[vdso]` and similar names for memory of the kernel, empty for other memory.
    pub name: String,
    /// The file's inode.
    pub inode: u64,
    /// The file's path as seen from this process.
    pub path: Option<PathBuf>,
}

/// The executable mappings of a process; none if it does not exist.
fn mappings(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let found = text.lines().filter_map(mapping);
    found.take(MAPPINGS_MAX).collect()
}

/// A line of `/proc/PID/maps` (proc_pid_maps(5)), if it is executable.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.next()?)?;
    let inode = fields.nth(1)?.parse().ok()?;
    let name = fields.next().unwrap_or_default().trim_start();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset,
        name: name.to_string(),
        inode,
        path: None,
    })
}

/// A process that was sampled.
#[derive(Debug)]
pub struct SampledProcess {
    /// Its id.
    pub pid: u32,
    /// Its state when it was first sampled; `None` if it had ended by then.
    pub stat: Option<ProcessStat>,
    /// Its executable mappings.
    pub mappings: Vec<Mapping>,
}

impl SampledProcess {
    /// Whether the id still belongs to this process.
    fn is_running(&self) -> bool {
        let start = |stat: &ProcessStat| stat.start_ticks;
        let now = ProcessStat::read(self.pid);
        self.stat.is_some() && now.as_ref().map(start) == self.stat.as_ref().map(start)
    }

    /// The mapping that contains an address; later mappings replace earlier ones.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        let holds = |one: &&Mapping| (one.start..one.end).contains(&address);
        self.mappings.iter().rev().find(holds)
    }

    /// Finds the files of its mappings. The process may have another root, and its program may have been replaced
    /// since it started.
    fn find_files(&mut self, is_running: bool) {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.pid));
        let program = fs::read_link(&exe).unwrap_or_default();
        for mapping in &mut self.mappings {
            mapping.path = match &mapping.name {
                name if !is_running => {
                    let is_same = |path: &PathBuf| {
                        fs::metadata(path).is_ok_and(|file| file.ino() == mapping.inode)
                    };
                    Some(PathBuf::from(name)).filter(|path| path.is_absolute() && is_same(path))
                }
                name if program.as_os_str() == &**name => Some(exe.clone()),
                name if name.starts_with('/') => {
                    Some(PathBuf::from(format!("/proc/{}/root{name}", self.pid)))
                }
                _ => None,
            };
        }
    }
}

/// All processes that were sampled.
#[derive(Default)]
pub struct SampledProcesses {
    known: Vec<SampledProcess>,
    latest: HashMap<u32, u32>,
    /// Ids already compared with `/proc` for the current batch of samples.
    checked: HashSet<u32>,
}

impl SampledProcesses {
    /// Begins a new batch of samples, because ids may have been reused since the last one.
    pub fn begin_batch(&mut self) {
        self.checked.clear();
    }

    /// The index of the process that has this id now.
    pub fn index_of(&mut self, pid: u32) -> u32 {
        let is_new = self.checked.insert(pid);
        if let Some(index) = self.latest.get(&pid).copied() {
            let known = self.known[index as usize].stat.as_ref();
            let before = known.map(|stat| stat.start_ticks);
            if !is_new {
                return index;
            }
            match ProcessStat::read(pid) {
                // The process may have ended before its batch is read.
                None => return index,
                Some(now) if Some(now.start_ticks) == before => return index,
                Some(_) => {}
            }
        }
        let stat = ProcessStat::read(pid);
        let mappings = mappings(pid);
        self.known.push(SampledProcess {
            pid,
            stat,
            mappings,
        });
        let index = self.known.len() as u32 - 1;
        self.latest.insert(pid, index);
        index
    }

    /// Reads the mappings of running processes again, because some libraries are loaded later, and finds their files.
    pub fn finish(mut self) -> Vec<SampledProcess> {
        for process in &mut self.known {
            let is_running = process.is_running();
            if is_running {
                process.mappings.extend(mappings(process.pid));
            }
            process.find_files(is_running);
        }
        self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_mappings_count() {
        let line = "7f00-7fff r-xp 00001000 fd:01 77         /usr/lib/a b.so (deleted)";
        let expected = Mapping {
            start: 0x7f00,
            end: 0x7fff,
            offset: 0x1000,
            name: "/usr/lib/a b.so (deleted)".into(),
            inode: 77,
            path: None,
        };
        assert_eq!(mapping(line), Some(expected));
        assert_eq!(mapping(&line.replace("r-xp", "rw-p")), None);
        assert_eq!(
            mapping("7f00-7fff r-xp 0 00:00 0 ").unwrap().name,
            "",
            "memory without a file"
        );
        assert_eq!(mapping("x"), None);
    }

    /// If another process has the id now, it gets a separate entry.
    #[test]
    fn a_reused_id_is_another_process() {
        let own = std::process::id();
        let mut processes = SampledProcesses::default();
        let first = processes.index_of(own);
        processes.begin_batch();
        assert_eq!(processes.index_of(own), first);
        let stat = processes.known[first as usize].stat.as_mut().unwrap();
        stat.start_ticks -= 1;
        assert_eq!(processes.index_of(own), first, "compared once per batch");
        processes.begin_batch();
        assert_ne!(processes.index_of(own), first);
        let all = processes.finish();
        assert!(all[1].is_running() && !all[0].is_running());
    }
}
