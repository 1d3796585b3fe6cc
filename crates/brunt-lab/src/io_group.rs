//! Cgroups that limit what processes request of a block device: the `blkio` controller of cgroup version 1
//! (blk-throttle), or the `io` controller of version 2. Used by [`crate::faults::SlowDisk`].
//!
//! A cgroup is named after the folder of all services, so that the cleanup of that folder ([`crate::scratch`]) finds
//! the cgroups left behind by a killed experiment. The rule: a cgroup is empty when it is removed; its processes return
//! to their previous cgroups.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brunt_core::Size;

/// How long it may take until an empty cgroup can be removed.
const REMOVE_MAX: Duration = Duration::from_secs(5);
/// Interval between attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Limits per second on the device for a cgroup's processes, for reads and writes separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Requests per second.
    pub requests: Option<u64>,
    /// Bytes per second.
    pub bytes: Option<u64>,
}

impl std::fmt::Display for DiskLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let requests = self.requests.map(|count| format!("{count} requests/s"));
        let bytes = self.bytes.map(|bytes| format!("{}/s", Size(bytes)));
        let limits: Vec<String> = requests.into_iter().chain(bytes).collect();
        f.write_str(&limits.join(" and "))
    }
}

/// The cgroup version in use on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The cgroup hierarchy that has the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The mount point.
    mount: PathBuf,
    /// The cgroup at the mount point.
    root: PathBuf,
}

/// A block device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A cgroup of processes with a limited disk. Dropping the cgroup releases its processes and removes it.
#[derive(Debug)]
pub(crate) struct IoGroup {
    hierarchy: Hierarchy,
    path: PathBuf,
    device: DeviceNumber,
    /// The previous cgroup of each process.
    from: BTreeMap<u32, PathBuf>,
    there: bool,
}

fn no_controller() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "no cgroup controller here limits block devices: neither blkio (v1) nor io (v2)",
    )
}

impl Hierarchy {
    /// Finds this machine's hierarchy in the contents of proc_pid_mountinfo(5).
    fn of(mounts: &str, has_io: impl Fn(&Path) -> bool) -> Option<Hierarchy> {
        let found = mounts.lines().filter_map(|line| {
            let (place, system) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, mount) = (PathBuf::from(place.next()?), PathBuf::from(place.next()?));
            let mut system = system.split(' ');
            let (kind, _, options) = (system.next()?, system.next()?, system.next()?);
            match kind {
                "cgroup" if options.split(',').any(|option| option == "blkio") => Some(Hierarchy {
                    version: Version::One,
                    mount,
                    root,
                }),
                "cgroup2" if has_io(&mount) => Some(Hierarchy {
                    version: Version::Two,
                    mount,
                    root,
                }),
                _ => None,
            }
        });
        found.last()
    }

    fn here() -> io::Result<Hierarchy> {
        let has_io = |mount: &Path| {
            let controllers =
                fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
            controllers
                .split_whitespace()
                .any(|controller| controller == "io")
        };
        Hierarchy::of(&fs::read_to_string("/proc/self/mountinfo")?, has_io)
            .ok_or_else(no_controller)
    }

    /// The folder of the cgroup that a process is in.
    fn group_of(&self, process: &str) -> io::Result<PathBuf> {
        let text = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let path = text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let is_ours = match self.version {
                Version::One => controllers
                    .split(',')
                    .any(|controller| controller == "blkio"),
                Version::Two => controllers.is_empty(),
            };
            is_ours.then_some(path)
        });
        let path = Path::new(path.ok_or_else(no_controller)?);
        let below = path
            .strip_prefix(&self.root)
            .or_else(|_| path.strip_prefix("/"))
            .unwrap_or(path);
        Ok(self.mount.join(below))
    }

    /// Where cgroups are created: with version 1, in the cgroup of this process; with version 2, at the top, since a
    /// cgroup that contains processes cannot limit them through child cgroups.
    fn home(&self) -> io::Result<PathBuf> {
        match self.version {
            Version::One => self.group_of("self"),
            Version::Two => Ok(self.mount.clone()),
        }
    }
}

/// The block device of a folder's file system.
///
/// # Errors
/// The file system is not on a block device, such as one in memory.
fn device_of(folder: &Path) -> io::Result<DeviceNumber> {
    let number = fs::metadata(folder)?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let none = || {
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{} is not on a block device", folder.display()),
        )
    };
    // Limits only apply to whole devices.
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if major == 0 || !entry.exists() {
        return Err(none());
    }
    if !entry.join("partition").exists() {
        return Ok(DeviceNumber { major, minor });
    }
    let whole = fs::read_to_string(entry.canonicalize()?.join("../dev"))?;
    let numbers = whole
        .trim()
        .split_once(':')
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers
        .map(|(major, minor)| DeviceNumber { major, minor })
        .ok_or_else(none)
}

impl IoGroup {
    /// Creates an empty cgroup with this name, with these limits on the device that holds `folder`.
    ///
    /// # Errors
    /// The kernel lacks such cgroups, this process may not create them, or the folder is not on a block device.
    pub fn new(name: &str, folder: &Path, limits: DiskLimits) -> io::Result<IoGroup> {
        let device = device_of(folder)?;
        let hierarchy = Hierarchy::here()?;
        let home = hierarchy.home()?;
        if hierarchy.version == Version::Two {
            let _ = fs::write(home.join("cgroup.subtree_control"), "+io");
        }
        let path = home.join(name);
        fs::create_dir(&path)?;
        let group = IoGroup {
            hierarchy,
            path,
            device,
            from: BTreeMap::new(),
            there: true,
        };
        group.limit(limits)?;
        Ok(group)
    }

    /// Sets the limits; `None` means unlimited.
    pub fn limit(&self, limits: DiskLimits) -> io::Result<()> {
        let DiskLimits { requests, bytes } = limits;
        let device = self.device;
        match self.hierarchy.version {
            Version::One => {
                for way in ["read", "write"] {
                    for (unit, limit) in [("iops", requests), ("bps", bytes)] {
                        let file = self
                            .path
                            .join(format!("blkio.throttle.{way}_{unit}_device"));
                        fs::write(file, format!("{device} {}", limit.unwrap_or(0)))?;
                    }
                }
                Ok(())
            }
            Version::Two => {
                let shown = |limit: Option<u64>| {
                    limit.map_or_else(|| "max".to_string(), |limit| limit.to_string())
                };
                let (requests, bytes) = (shown(requests), shown(bytes));
                let text =
                    format!("{device} riops={requests} wiops={requests} rbps={bytes} wbps={bytes}");
                fs::write(self.path.join("io.max"), text)
            }
        }
    }

    /// Moves a process into the cgroup. A process that has ended in the meantime is ignored.
    pub fn take(&mut self, pid: u32) -> io::Result<()> {
        let moved = self.hierarchy.group_of(&pid.to_string()).and_then(|from| {
            if from != self.path {
                put(&self.path, pid)?;
                self.from.insert(pid, from);
            }
            Ok(())
        });
        match moved {
            Err(error) if is_gone(&error) => Ok(()),
            moved => moved,
        }
    }

    /// Whether a process is in the cgroup, according to the kernel's data about that process.
    pub fn holds(&self, pid: u32) -> bool {
        self.hierarchy
            .group_of(&pid.to_string())
            .is_ok_and(|group| group == self.path)
    }

    /// Requests that the cgroup's processes have made to the device.
    pub fn requests(&self) -> io::Result<u64> {
        let (file, requests_of): (_, fn(&str) -> u64) = match self.hierarchy.version {
            Version::One => ("blkio.throttle.io_serviced", requests_of_row),
            Version::Two => ("io.stat", requests_of_stat),
        };
        let text = fs::read_to_string(self.path.join(file))?;
        let device = format!("{} ", self.device);
        let lines = text.lines().filter_map(|line| line.strip_prefix(&device));
        Ok(lines.map(requests_of).sum())
    }

    /// Lifts the limits, returns the processes to their previous cgroups, and removes the cgroup.
    pub fn remove(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.there) {
            return Ok(());
        }
        // Release waiting requests first: the kernel keeps the cgroup alive for them.
        self.limit(DiskLimits {
            requests: None,
            bytes: None,
        })?;
        empty(&self.path, |pid| self.from.get(&pid).cloned())
    }
}

impl Drop for IoGroup {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Removes the cgroups of the experiment whose services have their folders in `services`; only its processes are in
/// them.
pub(crate) fn remove_of(services: &Path) {
    let Some(name) = services.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let Ok(home) = Hierarchy::here().and_then(|hierarchy| hierarchy.home()) else {
        return;
    };
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|entry| is_of(entry, name));
        if is_ours {
            let _ = empty(&entry.path(), |_| None);
        }
    }
}

/// The cgroup name for the service with this folder, which is inside the folder of all services.
pub(crate) fn name_of(folder: &Path) -> String {
    let part = |path: Option<&Path>| {
        path.and_then(Path::file_name)
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    format!("{}.{}", part(folder.parent()), part(Some(folder)))
}

fn is_of(group: &str, services: &str) -> bool {
    group
        .strip_prefix(services)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Moves all processes out of a cgroup, to the one that `from` returns or else to the parent, and removes it.
fn empty(path: &Path, from: impl Fn(u32) -> Option<PathBuf>) -> io::Result<()> {
    let above = path.parent().unwrap_or(path);
    let begin = Instant::now();
    loop {
        let inside = fs::read_to_string(path.join("cgroup.procs"))?;
        for pid in inside
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
        {
            match put(&from(pid).unwrap_or_else(|| above.to_path_buf()), pid) {
                Err(error) if is_gone(&error) => {}
                put => put?,
            }
        }
        // The cgroup's files don't have to be removed: they disappear with the folder.
        match fs::remove_dir(path) {
            Err(_) if begin.elapsed() < REMOVE_MAX => std::thread::sleep(POLL_INTERVAL),
            removed => return removed,
        }
    }
}

fn put(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// A line such as `Read 12` or `Write 30` of version 1, without the device; other lines count the same requests
/// differently.
fn requests_of_row(row: &str) -> u64 {
    match row.split_once(' ') {
        Some(("Read" | "Write", count)) => count.trim().parse().unwrap_or(0),
        _ => 0,
    }
}

/// `rbytes=… wbytes=… rios=12 wios=30 …` of version 2, without the device.
fn requests_of_stat(row: &str) -> u64 {
    let count = |word: &str| {
        word.strip_prefix("rios=")
            .or(word.strip_prefix("wios="))?
            .parse::<u64>()
            .ok()
    };
    row.split(' ').filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found() {
        let none = "22 28 0:20 / /proc rw - proc proc rw\n";
        let one = "38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime shared:1 - cgroup cgroup rw,blkio\n\
                   39 31 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let two = "29 24 0:26 /docker/x /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let find = |text: &str, has_io: bool| Hierarchy::of(text, |_| has_io);
        assert_eq!(find(none, true), None);
        let found = find(one, false).unwrap();
        assert_eq!(
            (found.version, found.mount),
            (Version::One, PathBuf::from("/sys/fs/cgroup/blkio"))
        );
        assert_eq!(find(two, false), None);
        let found = find(two, true).unwrap();
        assert_eq!(
            (found.version, found.root),
            (Version::Two, PathBuf::from("/docker/x"))
        );
    }

    #[test]
    fn requests_are_counted_once() {
        let rows = [
            "Read 12",
            "Write 30",
            "Sync 40",
            "Async 2",
            "Discard 1",
            "Total 42",
        ];
        assert_eq!(rows.iter().map(|row| requests_of_row(row)).sum::<u64>(), 42);
        assert_eq!(
            requests_of_stat("rbytes=9 wbytes=8 rios=12 wios=30 dbytes=0 dios=3"),
            42
        );
    }

    /// An experiment's cgroups are recognized by its folder, and not confused with those of an experiment whose number
    /// has the same prefix.
    #[test]
    fn groups_are_known_by_their_experiment() {
        let name = name_of(Path::new("/tmp/brunt-7-0/osd-1"));
        assert_eq!(name, "brunt-7-0.osd-1");
        assert!(
            is_of(&name, "brunt-7-0")
                && !is_of(&name, "brunt-7")
                && !is_of("brunt-7-01.x", "brunt-7-0")
        );
    }

    #[test]
    fn disk_limits_are_described() {
        let shown = |requests, bytes| DiskLimits { requests, bytes }.to_string();
        assert_eq!(shown(Some(20), None), "20 requests/s");
        assert_eq!(shown(Some(20), Some(1 << 20)), "20 requests/s and 1MiB/s");
    }

    /// A folder in memory has no disk to slow down.
    #[test]
    fn a_folder_on_no_device_is_refused() {
        assert_eq!(
            device_of(Path::new("/proc")).unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
    }
}
