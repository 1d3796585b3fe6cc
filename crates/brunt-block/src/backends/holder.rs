//! Finds the process that uses a file or block device, and takes locks that exclude a second writer. Called by
//! [`super::medium`] when it opens something for writing.
//!
//! The rule: only one Brunt process at a time writes to a file or device, unless `force=yes`. For disks the kernel
//! ensures this (`O_EXCL`); files are locked.

use std::fs::{self, File, Metadata, TryLockError};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brunt_core::FileLock;
use brunt_core::device_path::shown;

use crate::StorageId;
use crate::open::OpenError;

/// How long to wait for a file or disk held by a process.
const HOLDER_WAIT: Duration = Duration::from_secs(1);
/// How long to wait if no process has it open: the kernel releases a killed process's files only after its ring is
/// gone, which takes seconds on a busy machine.
const ORPHAN_WAIT: Duration = Duration::from_secs(15);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// A file or disk is still in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in use: {by}")]
pub(crate) struct StillInUse {
    /// The user of the file or disk.
    pub by: String,
}

/// Repeated attempts to open or lock something that may still be held briefly: by a process that is about to exit, by
/// the ring of one that has exited, or by a child between fork and exec, which holds all of its parent's open files.
pub(crate) struct Attempts(Instant);

impl Attempts {
    /// Starts the waiting time, which includes the first attempt.
    pub(crate) fn begin() -> Attempts {
        Attempts(Instant::now())
    }

    /// Sleeps until the next attempt.
    ///
    /// # Errors
    /// The waiting time is over; the error names the user of the file.
    pub(crate) fn pause(&self, metadata: &Metadata) -> Result<(), StillInUse> {
        let waited = self.0.elapsed();
        let holder = (waited >= HOLDER_WAIT).then(|| writer(metadata)).flatten();
        match holder {
            Some(by) => Err(StillInUse { by }),
            None if waited >= ORPHAN_WAIT => {
                let by = "another process has it open".to_string();
                Err(StillInUse { by })
            }
            None => {
                std::thread::sleep(PAUSE.max(waited / 10));
                Ok(())
            }
        }
    }

    /// Sleeps until the next attempt to open a disk exclusively.
    ///
    /// # Errors
    /// The waiting time is over, or the kernel itself uses the disk; the error names the user of the disk. Kernel
    /// uses (mounts, volumes, swap) don't end on their own, so this doesn't wait for them.
    pub(super) fn pause_for_disk(&self, metadata: &Metadata) -> Result<(), StillInUse> {
        match kernel_use(metadata.rdev()) {
            Some(by) => Err(StillInUse { by }),
            None => self.pause(metadata),
        }
    }
}

/// See [`share_files`].
static SHARED: AtomicBool = AtomicBool::new(false);

/// Disables file locking in this process from now on. Meant for a process that works for a controller, whose run may
/// have workers on other hosts that use the same file.
pub fn share_files() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Whether [`share_files`] was called.
pub(super) fn are_files_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Locks a file for a single writer; returns `None` and adds a note if the file system doesn't support locks.
///
/// # Errors
/// Another writer has locked the file: a Brunt process, or the user of a loop device attached to it.
pub(super) fn lock(
    file: &File,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<Option<FileLock>, OpenError> {
    let in_use = |by: String| OpenError::InUse {
        path: path.to_path_buf(),
        by,
    };
    let failed = |source| OpenError::Os {
        what: "cannot examine",
        path: path.to_path_buf(),
        source,
    };
    let metadata = file.metadata().map_err(failed)?;
    if let Some(device) = loop_device(&metadata) {
        if let Some(by) = user_of_loop(&device) {
            return Err(in_use(by));
        }
        notes.push(format!(
            "the file is also attached to {}, which does not see writes to the file",
            shown(&device)
        ));
    }
    let attempts = Attempts::begin();
    loop {
        let copy = file.try_clone().map_err(failed)?;
        match FileLock::try_exclusive(copy) {
            Ok(lock) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => attempts
                .pause(&metadata)
                .map_err(|still| in_use(still.by))?,
            Err(TryLockError::Error(error)) => {
                notes.push(format!(
                    "cannot lock the file ({error}): other programs can write to it during the run"
                ));
                return Ok(None);
            }
        }
    }
}

/// How the kernel uses a block device, as text: its mount point if it is mounted.
fn kernel_use(rdev: u64) -> Option<String> {
    let number = device_number(rdev);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // proc(5): id, parent, major:minor, root, mount point, …
    let mounted = |number: &str| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(2);
            (fields.next() == Some(number)).then(|| fields.nth(1).unwrap_or("?").to_string())
        })
    };
    // proc(5): the first field is a path.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swapped = |number: &str| {
        let mut paths = swaps.lines().filter_map(|line| line.split(' ').next());
        paths.any(|path| fs::metadata(path).is_ok_and(|it| device_number(it.rdev()) == number))
    };
    let used = |number: &str| match mounted(number) {
        Some(point) => Some(format!("mounted on {point}")),
        None => swapped(number).then(|| "used for swap".to_string()),
    };
    if let Some(by) = used(&number) {
        return Some(by);
    }
    let folder = disk_folder(rdev);
    // A partition is a subdirectory of its disk's directory, with its device number in the file `dev`.
    for part in entries(&folder) {
        let number = fs::read_to_string(part.join("dev")).unwrap_or_default();
        if let Some(by) = used(number.trim()) {
            return Some(format!("its partition {} is {by}", name(&part)));
        }
    }
    let holders = entries(&folder.join("holders"));
    holders
        .first()
        .map(|holder| format!("held by {}", name(holder)))
}

/// Where the data of an open file or block device is stored.
pub(super) fn storage(metadata: &Metadata) -> Vec<StorageId> {
    if !metadata.file_type().is_block_device() {
        return vec![file_id(metadata)];
    }
    let number = metadata.rdev();
    let folder = disk_folder(number);
    let whole = folder
        .join("partition")
        .exists()
        .then(|| disk_number(&folder.join("..")))
        .flatten();
    let below = entries(&folder.join("slaves"))
        .into_iter()
        .filter_map(|slave| disk_number(&slave))
        .map(|number| StorageId::Disk {
            number,
            whole: None,
        });
    let behind_loop = fs::read_to_string(folder.join("loop/backing_file"))
        .ok()
        .and_then(|file| fs::metadata(file.trim_end_matches('\n')).ok())
        .map(|metadata| file_id(&metadata));
    std::iter::once(StorageId::Disk { number, whole })
        .chain(below)
        .chain(behind_loop)
        .collect()
}

fn file_id(metadata: &Metadata) -> StorageId {
    StorageId::File {
        device: metadata.dev(),
        inode: metadata.ino(),
    }
}

fn disk_folder(rdev: u64) -> PathBuf {
    Path::new("/sys/dev/block").join(device_number(rdev))
}

/// Formats a device number as in sysfs and mountinfo.
fn device_number(rdev: u64) -> String {
    format!("{}:{}", libc::major(rdev), libc::minor(rdev))
}

/// Reads the device number from a sysfs directory.
fn disk_number(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The loop device that a file is attached to.
fn loop_device(metadata: &Metadata) -> Option<PathBuf> {
    let own = file_id(metadata);
    let attached = |device: &PathBuf| {
        fs::read_to_string(device.join("loop/backing_file"))
            .ok()
            .and_then(|file| fs::metadata(file.trim_end_matches('\n')).ok())
            .is_some_and(|metadata| file_id(&metadata) == own)
    };
    let device = entries(Path::new("/sys/block"))
        .into_iter()
        .find(attached)?;
    Some(Path::new("/dev").join(name(&device)))
}

/// The user of a loop device; if it has one, opening it exclusively fails.
fn user_of_loop(device: &Path) -> Option<String> {
    let attempts = Attempts::begin();
    loop {
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(device);
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            _ => return None,
        }
        let metadata = fs::metadata(device).ok()?;
        if let Err(still) = attempts.pause_for_disk(&metadata) {
            let (device, user) = (shown(device), still.by);
            return Some(format!("attached to {device}, which is {user}"));
        }
    }
}

/// A process that has the same file or disk open for writing, as text.
fn writer(metadata: &Metadata) -> Option<String> {
    let disk = metadata.file_type().is_block_device();
    let same = |other: &Metadata| match disk {
        true => other.file_type().is_block_device() && other.rdev() == metadata.rdev(),
        false => file_id(other) == file_id(metadata),
    };
    let own = std::process::id();
    let mut own_handles = 0;
    for process in entries(Path::new("/proc")) {
        let Ok(id) = name(&process).parse::<u32>() else {
            continue;
        };
        for handle in entries(&process.join("fd")) {
            let writes = || writable(&process.join("fdinfo").join(name(&handle)));
            if !fs::metadata(&handle).is_ok_and(|other| same(&other)) || !writes() {
                continue;
            }
            if id != own {
                let program = fs::read_to_string(process.join("comm")).unwrap_or_default();
                return Some(format!("written by {} (process {id})", program.trim()));
            }
            own_handles += 1;
        }
    }
    // For a file, one of the handles is the caller's.
    let asking = usize::from(!disk);
    (own_handles > asking).then(|| {
        "already opened for writing by this process: two targets or devices name the same storage"
            .to_string()
    })
}

/// Whether a file is open for writing, according to its entry in `fdinfo` (proc(5): the flags are octal).
fn writable(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    flags
        .and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok())
        .is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).into_iter().flatten().flatten();
    list.map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use crate::backends::file::{FileBackend, FileOptions};
    use std::process::Command;

    fn open(path: &Path) -> Result<FileBackend, OpenError> {
        FileBackend::open(path, &FileOptions::default())
    }

    fn user(opened: Result<FileBackend, OpenError>) -> String {
        match opened {
            Err(OpenError::InUse { by, .. }) => by,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("a second writer"),
        }
    }

    /// A file has one writer at a time, regardless of the name it is opened by; readers and `force` are admitted.
    #[test]
    fn a_file_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("disk"), folder.path().join("link"));
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let first = open(&path).unwrap();
        assert!(user(open(&link)).starts_with("already opened for writing by this process"));
        let reading = FileOptions {
            read_only: true,
            ..FileOptions::default()
        };
        let insisting = FileOptions {
            force: true,
            ..FileOptions::default()
        };
        for options in [reading, insisting] {
            let second = FileBackend::open(&link, &options).unwrap();
            assert!(second.storage()[0].overlaps(&first.storage()[0]));
        }
        drop(first);
        open(&link).unwrap();
    }

    /// Waits for another process's lock, because that process may be about to exit.
    #[test]
    fn another_process_is_named_or_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let held = folder.path().join("held");
        let hold = |time: &str| {
            let _ = fs::remove_file(&held);
            let [file, mark] = [&path, &held].map(|path| path.display());
            let mut child = Command::new("flock")
                .args(["-x", path.to_str().unwrap(), "-c"])
                .arg(format!("exec 9<>{file}; : >{mark}; exec sleep {time}"))
                .spawn()?;
            while !held.exists() {
                let ended = child.try_wait()?;
                assert!(ended.is_none(), "flock doesn't run: {ended:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
            std::io::Result::Ok(child)
        };
        let Ok(mut long) = hold("30") else {
            return println!("skipped: needs flock");
        };
        let by = user(open(&path));
        assert!(
            by.starts_with("written by ") && by.contains("(process "),
            "{by}"
        );
        // `flock` waits for its child and holds the lock until the child exits.
        let sleeper = Command::new("pkill")
            .args(["-P", &long.id().to_string()])
            .status();
        let _ = (sleeper, long.kill(), long.wait());
        // The sleeper may take a while to end.
        assert!((0..60).any(|_| open(&path).is_ok()));
        // On a busy machine, a holder may take longer than it is waited for, so this tries again.
        let is_waited_for = || {
            let mut short = hold("0.3").unwrap();
            let opened = open(&path);
            short.wait().unwrap();
            opened.is_ok()
        };
        assert!((0..20).any(|_| is_waited_for()));
    }

    #[test]
    fn a_disk_overlaps_its_partitions_and_nothing_else() {
        let disk = |number, whole| StorageId::Disk { number, whole };
        let (whole, first, second) = (disk(8, None), disk(9, Some(8)), disk(10, Some(8)));
        assert!(whole.overlaps(&first) && second.overlaps(&whole) && first.overlaps(&first));
        assert!(!first.overlaps(&second));
        assert!(!whole.overlaps(&StorageId::Remote("8".to_string())));
    }

    /// Attaches a loop device to a file, as root; `None` if none can be created.
    fn attach(path: &Path, options: &[&str]) -> Option<PathBuf> {
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .args(options)
            .arg(path)
            .output();
        let made = made.ok().filter(|made| made.status.success());
        let Some(made) = made else {
            let required = std::env::var_os("BRUNT_REQUIRE_ALL").is_some_and(|value| value == "1");
            assert!(!required, "needs loop devices");
            println!("skipped: needs loop devices");
            return None;
        };
        Some(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()))
    }

    fn detach(device: &Path) {
        let _ = Command::new("losetup").arg("-d").arg(device).status();
    }

    /// A file whose loop device is mounted is in use like a mounted disk, and counts as the same storage.
    #[test]
    fn a_file_behind_a_loop_device_in_use_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let Some(device) = attach(&path, &[]) else {
            return;
        };
        let free = open(&path).map(|file| (file.info().notes.clone(), file.storage()));
        let holder = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_EXCL)
            .open(&device);
        let held = open(&path);
        drop(holder);
        let disk = open(&device).map(|disk| disk.storage());
        detach(&device);
        let (notes, file) = free.unwrap();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("attached to /dev/loop")),
            "{notes:?}"
        );
        assert!(user(held).starts_with("attached to /dev/loop"));
        assert!(disk.unwrap().iter().any(|one| one.overlaps(&file[0])));
    }

    #[test]
    fn a_disk_set_read_only_is_reported_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let Some(device) = attach(&path, &[]) else {
            return;
        };
        let set = |how: &str| Command::new("blockdev").arg(how).arg(&device).status();
        let before = open(&device).map(|disk| disk.info().read_only);
        let _ = set("--setro");
        let after = open(&device).map(|disk| disk.info().clone());
        let _ = set("--setrw");
        detach(&device);
        assert!(!before.unwrap());
        let after = after.unwrap();
        assert!(
            after.read_only && after.notes.iter().any(|note| note.contains("read-only")),
            "{after:?}"
        );
    }
}
