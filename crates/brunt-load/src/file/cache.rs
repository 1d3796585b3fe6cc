//! Measures the influence of the page cache on a phase, and looks up properties of a directory's file system.
//!
//! Reads: per thread, the kernel counts the bytes requested (`rchar`) and the bytes fetched from storage for them
//! (`read_bytes`), including read-ahead. The difference came from the cache. This works on every file system and needs
//! no privileges, whereas mincore and cachestat report what is cached, not what was served from the cache. Writes
//! always go to the cache first; what matters is whether the phase waited for the medium, so its fsync time is
//! reported.

use std::path::Path;

/// I/O counters of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadIo {
    /// Bytes fetched from storage.
    fetched_bytes: u64,
}

impl ThreadIo {
    pub(super) fn now() -> Option<ThreadIo> {
        let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes:"))?;
        Some(ThreadIo {
            fetched_bytes: line.trim().parse().ok()?,
        })
    }

    /// Returns the share of `bytes` that was not fetched from storage between two readings.
    pub(super) fn cached_share(
        before: Option<ThreadIo>,
        after: Option<ThreadIo>,
        bytes: u64,
    ) -> Option<f64> {
        let fetched = after?.fetched_bytes.checked_sub(before?.fetched_bytes)?;
        (bytes > 0).then(|| 1.0 - (fetched as f64 / bytes as f64).min(1.0))
    }
}

/// Returns this machine's memory in bytes.
pub(super) fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the CPU's name as a virtual machine sees it; `None` on a physical machine.
pub(super) fn virtual_processor() -> Option<String> {
    virtual_in(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn virtual_in(processors: &str) -> Option<String> {
    let value = |name: &str| {
        let line = processors
            .lines()
            .find_map(|line| line.strip_prefix(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    value("flags")?
        .split(' ')
        .any(|flag| flag == "hypervisor")
        .then(|| value("model name"))
        .flatten()
}

/// Returns the type of a directory's file system, as named by mount(8).
pub(crate) fn kind_of(directory: &Path) -> String {
    let directory = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_path_buf());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    kind_in(&mounts, &directory)
}

fn kind_in(mounts: &str, directory: &Path) -> String {
    let mut found = ("", 0);
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(place), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        // If two mounts have the same mount point, the later one hides the earlier one.
        if directory.starts_with(place.replace("\\040", " ")) && place.len() >= found.1 {
            found = (kind, place.len());
        }
    }
    if found.0.is_empty() {
        "an unknown file system".to_string()
    } else {
        found.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mount with the longest matching path applies.
    #[test]
    fn the_mount_with_the_longest_matching_path_applies() {
        let mounts = "/dev/a / ext4 rw 0 0\nt /tmp tmpfs rw 0 0\nn /tmp/my\\040nfs nfs4 rw 0 0\nt /tmp tmpfs rw 0 0\n";
        let check =
            |directory: &str, kind: &str| assert_eq!(kind_in(mounts, Path::new(directory)), kind);
        check("/home", "ext4");
        check("/tmp", "tmpfs");
        check("/tmpfile", "ext4");
        check("/tmp/my nfs/x", "nfs4");
        assert!(memory_bytes() > 1 << 20);
    }

    /// Virtual machines are recognized; emulated CPUs have their own names.
    #[test]
    fn virtual_machines_are_recognized() {
        let text = |flags: &str| {
            format!("model name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu {flags} sse\n")
        };
        assert_eq!(
            virtual_in(&text("hypervisor")),
            Some("QEMU TCG CPU version 2.5+".to_string())
        );
        assert_eq!(virtual_in(&text("hypervisor_x")), None);
        assert_eq!(virtual_in("processor: 0\n"), None);
    }

    /// Shares refer to the bytes read, and read-ahead beyond those doesn't make a share negative.
    #[test]
    fn read_ahead_does_not_make_a_cached_share_negative() {
        let at = |fetched_bytes| Some(ThreadIo { fetched_bytes });
        let check = |fetched: u64, bytes, share| {
            assert_eq!(
                ThreadIo::cached_share(at(10), at(10 + fetched), bytes),
                share
            )
        };
        check(0, 100, Some(1.0));
        check(25, 100, Some(0.75));
        check(300, 100, Some(0.0));
        check(0, 0, None);
        assert_eq!(ThreadIo::cached_share(None, at(1), 1), None);
    }
}
