//! A file in `/proc` that is read repeatedly. The file is opened only once, so that neither a reused PID nor a
//! thread's change of namespace can put another file in its place.

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

/// Maximum bytes read from a file: enough for `/proc/stat` on a machine with thousands of CPUs and interrupts.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Maximum number of threads per process whose `status` is read: each costs some 20 µs.
const THREADS_MAX: usize = 256;

/// A file and its last contents.
pub struct Source {
    path: PathBuf,
    kind: Kind,
    text: Vec<u8>,
    read_at: Nanos,
}

enum Kind {
    File(File),
    /// This file in each thread's folder.
    Threads {
        folder: PathBuf,
        name: String,
    },
    /// The kernel's counts for this process, including ended threads, in the format of `status`.
    OwnSwitches,
    /// This process's CPU time, in the format of a thread's ID and its `schedstat`.
    OwnTime,
    /// The counters of the process's cgroup, if it is alone in it.
    Cgroup(Option<OwnCgroup>),
    /// All of the machine's sensors.
    Sensors(Vec<Sensor>),
    /// The limits of this process's cgroups.
    Limits(Cgroups),
}

impl Source {
    /// Opens a file. `*` stands for each thread of a process.
    ///
    /// # Errors
    /// An error from the operating system.
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
                    "this kernel does not provide scheduling statistics",
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

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// An error from the operating system: a process has ended, or the kernel has disabled a counter.
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
                    // Skip a thread that ended in between.
                    let thread = thread?;
                    let Ok(file) = File::open(thread.path().join(name)) else {
                        continue;
                    };
                    let before = self.text.len();
                    if name == "schedstat" {
                        // The file doesn't contain the thread's ID.
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

    /// Returns the file's contents; process names may not be valid UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }

    /// Returns when the file was last read.
    pub fn read_at(&self) -> Nanos {
        self.read_at
    }
}

/// Reads from start to end: these files are generated on reading and report no length.
fn append(file: &File, text: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 16 << 10];
    let begin = text.len();
    loop {
        let filled = text.len() - begin;
        if filled > TEXT_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "longer than expected for a file of this kind",
            ));
        }
        let count = file.read_at(&mut piece, filled as u64)?;
        if count == 0 {
            return Ok(());
        }
        text.extend_from_slice(&piece[..count]);
    }
}
