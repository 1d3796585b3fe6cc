//! A folder for the files of services that is removed at the end of the experiment, however it ends: a separate
//! process waits for the end ([`crate::guard`]).
//!
//! Processes that have the folder in their environment ([`FOLDERS_VARIABLE`]) are killed before it is removed:
//! background processes of a service whose keeper was killed. For a lab, the folder is created outside, before the
//! namespaces, and passed in as a file descriptor, because a guard inside would be killed with the lab's processes. The
//! rule: nothing that is mounted in the folder is removed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::guard::{Guard, Undo};
use crate::io_group;
use crate::process::all;

/// Maximum number of names to try; other experiments may use the first ones.
const NAMES_MAX: u32 = 1000;
/// How long processes that still write to the folder may take to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between attempts to remove the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The environment variable that gives service processes their folder, and by which they are found.
pub const FOLDERS_VARIABLE: &str = "BRUNT_FOLDERS";

/// A folder that is removed on drop.
#[derive(Debug)]
pub struct ServiceFolder {
    path: PathBuf,
    guard: Option<Guard>,
}

impl ServiceFolder {
    /// Creates a folder inside the one for temporary files (`TMPDIR`). Other users may enter the folder, but not list
    /// it.
    ///
    /// # Errors
    /// The folder cannot be created or guarded.
    pub fn new() -> io::Result<ServiceFolder> {
        // Canonical, as in the kernel's mount table, so that mounts in the folder are found.
        let within = std::env::temp_dir().canonicalize()?;
        for number in 0..NAMES_MAX {
            let path = within.join(format!("brunt-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o711).create(&path) {
                Ok(()) => {
                    let text = path.to_str().map(str::to_string);
                    let text = text.ok_or_else(|| {
                        io::Error::other("the path of the experiment folder is not UTF-8")
                    });
                    let guard = text.and_then(|path| Guard::start(Undo::Folder { path }));
                    return match guard {
                        Ok(guard) => Ok(ServiceFolder {
                            path,
                            guard: Some(guard),
                        }),
                        Err(error) => fs::remove_dir(&path).and(Err(error)),
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!(
            "{} contains too many experiment folders",
            within.display()
        )))
    }

    /// A file descriptor to pass to a process that calls [`ServiceFolder::of`].
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(File::open(&self.path)?.into())
    }

    /// Opens the folder of this descriptor, which another process guards.
    ///
    /// # Errors
    /// The folder is gone.
    pub fn of(descriptor: &OwnedFd) -> io::Result<ServiceFolder> {
        let path = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        fs::metadata(&path).map(|_| ServiceFolder { path, guard: None })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ServiceFolder {
    fn drop(&mut self) {
        // If removal fails, the guard retries it.
        if remove(&self.path).is_ok()
            && let Some(guard) = self.guard.take()
        {
            guard.dismiss();
        }
    }
}

/// Removes a folder with everything in it, once no process adds to it any more.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let begin = Instant::now();
    io_group::remove_of(path);
    loop {
        end_users(path);
        if let Some(mounted) = mounted_below(path)? {
            // A mount left by a killed service. If it cannot be unmounted, its files must not be removed.
            unmount(&mounted, UnmountFlags::DETACH)?;
            continue;
        }
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
            Ok(()) => return Ok(()),
        }
    }
}

/// Kills the processes that have this folder in their environment.
fn end_users(folder: &Path) {
    let variable = [
        FOLDERS_VARIABLE.as_bytes(),
        b"=",
        folder.as_os_str().as_bytes(),
    ]
    .concat();
    for pid in all().filter_map(|pid| Pid::from_raw(pid.try_into().ok()?)) {
        // The environment belongs to the process that the pidfd refers to; if that has ended, sending the signal
        // fails.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let environment =
            fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable)
        {
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        }
    }
}

/// A mount point in this folder, the last one if there are several.
fn mounted_below(folder: &Path) -> io::Result<Option<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let place = |line: &str| Some(unescaped(line.split(' ').nth(4)?));
    let below = |place: &PathBuf| place.starts_with(folder) && place != folder;
    Ok(text.lines().filter_map(place).rfind(below))
}

/// Spaces are written as `\040`, and a few other characters similarly (proc_pid_mountinfo(5)).
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_with_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::create_dir_all(path.join("b/c")).unwrap();
        fs::write(path.join("b/d"), "e").unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        remove(&path).unwrap();
    }

    /// Only processes with the folder in their environment are killed.
    #[test]
    fn only_processes_with_the_folder_in_their_environment_are_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::create_dir(&path).unwrap();
        let sleeper = |value: &Path| {
            let mut command = std::process::Command::new("sleep");
            command
                .arg("1000")
                .env(FOLDERS_VARIABLE, value)
                .spawn()
                .unwrap()
        };
        let (mut user, mut other) = (sleeper(&path), sleeper(folder.path()));
        // Until exec, the child has this process's environment, so this waits for exec.
        let has_it = || {
            let environment = fs::read(format!("/proc/{}/environ", user.id())).unwrap();
            environment
                .windows(FOLDERS_VARIABLE.len())
                .any(|part| part == FOLDERS_VARIABLE.as_bytes())
        };
        while !has_it() {
            std::thread::yield_now();
        }
        remove(&path).unwrap();
        assert!(user.wait().unwrap().code().is_none());
        assert!(other.try_wait().unwrap().is_none() && !path.exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn mounts_are_found() {
        assert_eq!(unescaped("/a\\040b\\134"), PathBuf::from("/a b\\"));
        assert!(mounted_below(Path::new("/")).unwrap().is_some());
        assert_eq!(mounted_below(Path::new("/no/such/folder")).unwrap(), None);
    }
}
