//! A file of `/proc` that is read again and again: opened once, so that a process's number that
//! comes back or a thread's namespace that changes cannot put another one in its place.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brunt_core::cost::ResourceUsage;
use brunt_core::{Clock, Nanos};

use super::cgroup::OwnCgroup;
use super::control_group;
use super::limits::Cgroups;
use super::temperature::{self, Sensor};

/// Most of a file that is read: `/proc/stat` of a machine of thousands of CPUs and interrupts.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Most threads of a process whose `status` is read: each costs some 20 µs.
const THREADS_MAX: usize = 256;

/// One, with what it held last.
pub struct Source {
    path: PathBuf,
    kind: Kind,
    text: Vec<u8>,
    read_at: Nanos,
}

enum Kind {
    File(File),
    /// The file of that name in each thread's folder.
    Threads {
        folder: PathBuf,
        name: String,
    },
    /// What the kernel counted for this process, ended threads too, in the words of `status`.
    OwnSwitches,
    /// The same of its CPU time, in those of `schedstat` behind a thread's number.
    OwnTime,
    /// What the process's cgroup counted, if it is alone in it.
    Cgroup(Option<OwnCgroup>),
    /// All sensors of the machine.
    Sensors(Vec<Sensor>),
    /// What this process's control groups allow.
    Limits(Cgroups),
}

impl Source {
    /// Opens it. `*` stands for each of a process's threads.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(path: &Path) -> io::Result<Source> {
        let text = path.to_string_lossy();
        let kind = match text.split_once("/*/") {
            None if path.ends_with("cgroup") => {
                File::open(path)?;
                Kind::Cgroup(OwnCgroup::of(path))
            }
            None if path == Path::new(temperature::FOLDER) => {
                Kind::Sensors(temperature::sensors(path))
            }
            None if path == Path::new(control_group::FOLDER) => Kind::Limits(Cgroups::own()),
            None => Kind::File(File::open(path)?),
            Some(("/proc/self/task", "status")) => Kind::OwnSwitches,
            Some(("/proc/self/task", "schedstat")) => Kind::OwnTime,
            Some((_, "schedstat")) if !Path::new("/proc/self/schedstat").exists() => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "this kernel does not count them",
                ));
            }
            Some((folder, name)) => {
                std::fs::read_dir(folder)?;
                Kind::Threads {
                    folder: folder.into(),
                    name: name.into(),
                }
            }
        };
        Ok(Source {
            path: path.into(),
            kind,
            text: Vec::new(),
            read_at: Nanos(0),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it anew.
    ///
    /// # Errors
    /// The operating system's: a process that ended, a counter that the kernel has switched off.
    pub fn read(&mut self, clock: &Clock) -> io::Result<()> {
        let before = std::mem::replace(&mut self.read_at, clock.now());
        let is_fresh = before != Nanos(0) && self.read_at.since(before) < temperature::READ_EVERY;
        if let (Kind::Sensors(_), true) = (&self.kind, is_fresh) {
            self.read_at = before;
            return Ok(());
        }
        self.text.clear();
        match &self.kind {
            Kind::File(file) => append(file, &mut self.text),
            Kind::Threads { folder, name } => {
                for thread in std::fs::read_dir(folder)?.take(THREADS_MAX) {
                    // A thread that ended in between is none.
                    let thread = thread?;
                    let Ok(file) = File::open(thread.path().join(name)) else {
                        continue;
                    };
                    let before = self.text.len();
                    if name == "schedstat" {
                        // It does not say whose it is.
                        self.text
                            .extend_from_slice(thread.file_name().as_encoded_bytes());
                        self.text.push(b' ');
                    }
                    if append(&file, &mut self.text).is_err() {
                        self.text.truncate(before);
                    }
                }
                Ok(())
            }
            Kind::Cgroup(cgroup) => {
                let text = cgroup.as_ref().map(OwnCgroup::cpu_stat).unwrap_or_default();
                self.text.extend_from_slice(text.as_bytes());
                Ok(())
            }
            Kind::Sensors(sensors) => {
                temperature::append(sensors, &mut self.text);
                Ok(())
            }
            Kind::Limits(cgroups) => {
                let text = cgroups.limits().text();
                self.text.extend_from_slice(text.as_bytes());
                Ok(())
            }
            Kind::OwnTime => {
                let nanos = ResourceUsage::now().cpu().as_nanos();
                self.text
                    .extend_from_slice(format!("0 {nanos}\n").as_bytes());
                Ok(())
            }
            Kind::OwnSwitches => {
                let ResourceUsage {
                    voluntary_switches,
                    involuntary_switches,
                    ..
                } = ResourceUsage::now();
                let text = format!(
                    "Pid: 0\nvoluntary_ctxt_switches: {voluntary_switches}\n\
                     nonvoluntary_ctxt_switches: {involuntary_switches}\n"
                );
                self.text.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
    }

    /// What it held; names of processes need not be UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }

    /// When it was read.
    pub fn read_at(&self) -> Nanos {
        self.read_at
    }
}

/// From the file's begin to its end: these files are made as they are read, and have no length.
fn append(file: &File, text: &mut Vec<u8>) -> io::Result<()> {
    const PIECE: usize = 16 << 10;
    let begin = text.len();
    loop {
        let filled = text.len();
        if filled - begin > TEXT_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "longer than expected of such a file",
            ));
        }
        text.resize(filled + PIECE, 0);
        let count = file.read_at(&mut text[filled..], (filled - begin) as u64);
        text.truncate(filled + *count.as_ref().unwrap_or(&0));
        if count? == 0 {
            return Ok(());
        }
    }
}
