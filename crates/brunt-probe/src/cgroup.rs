//! The cgroup (version 2) of a process that is alone in it, such as a service or a container with a single process.
//! For such a process, the kernel counts CPU time to the microsecond, including that of ended threads.
//!
//! The rule: a cgroup with other members says nothing about this process, so its text is then empty; members are
//! checked on every reading.

use std::fs;
use std::path::{Path, PathBuf};

use super::figures::named;

/// The cgroup of a process, and where it is mounted.
pub(super) struct OwnCgroup {
    /// `/proc/PID/cgroup`.
    membership: PathBuf,
    pid: u32,
    /// Mount point of the hierarchy, and the cgroup that is visible there; `None` if version 2 is not mounted.
    mount: Option<(PathBuf, PathBuf)>,
}

impl OwnCgroup {
    /// Returns the cgroup of the process with this `cgroup` file; `None` if the path doesn't contain the process's
    /// PID.
    pub fn of(membership: &Path) -> Option<OwnCgroup> {
        let pid = membership.parent()?.file_name()?.to_str()?.parse().ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Some(OwnCgroup {
            membership: membership.into(),
            pid,
            mount: mounts.lines().find_map(unified),
        })
    }

    /// Returns the contents of the cgroup's `cpu.stat`; empty if there is none, or while other processes are in the
    /// cgroup.
    pub fn cpu_stat(&self) -> String {
        self.own_cpu_stat().unwrap_or_default()
    }

    fn own_cpu_stat(&self) -> Option<String> {
        let (mount, root) = self.mount.as_ref()?;
        let membership = fs::read_to_string(&self.membership).ok()?;
        let path = membership
            .lines()
            .find_map(|line| line.strip_prefix("0::"))?;
        // `/../…` is outside of what this process may see.
        let folder = mount.join(Path::new(path).strip_prefix(root).ok()?);
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let only = |procs: String| procs.trim().parse() == Ok(self.pid);
        let no_children = |stat: String| named(&stat, "nr_descendants") == Ok(Some(0));
        (only(read("cgroup.procs")?) && no_children(read("cgroup.stat")?))
            .then(|| read("cpu.stat"))?
    }
}

/// Returns the mount point and the root from a `mountinfo` line (proc_pid_mountinfo(5)) of the version 2 hierarchy.
fn unified(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    kind.starts_with("cgroup2 ")
        .then(|| (point.into(), root.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    #[test]
    fn mounts_of_version_two_are_found() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(point, root)| (point.into(), root.into()));
            assert_eq!(unified(line), expected, "{line}");
        };
        check(
            "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw",
            Some(("/sys/fs/cgroup", "/")),
        );
        check(
            "41 31 0:38 /a /cg rw - cgroup2 none rw",
            Some(("/cg", "/a")),
        );
        check(
            "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu",
            None,
        );
        check("", None);
    }

    /// On drop, removes a cgroup and ends the processes that were put into it.
    struct Made(PathBuf, Vec<Child>);

    impl Drop for Made {
        fn drop(&mut self) {
            for child in &mut self.1 {
                let _ = child.kill();
                let _ = child.wait();
            }
            let _ = fs::remove_dir(&self.0);
        }
    }

    /// A process that is alone in its cgroup has a text with its CPU time; with other members or child cgroups there is
    /// none.
    #[test]
    fn only_a_process_alone_in_its_cgroup_has_a_text() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let Some((mount, _)) = mounts.lines().find_map(unified) else {
            println!("skipped: needs cgroup version 2");
            return;
        };
        let folder = mount.join(format!("brunt-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            println!("skipped: needs to create {} ({error})", folder.display());
            return;
        }
        let mut made = Made(folder.clone(), Vec::new());
        let join = |made: &mut Made| {
            let child = Command::new("sleep").arg("600").spawn().unwrap();
            let pid = child.id();
            made.1.push(child);
            fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
            OwnCgroup::of(Path::new(&format!("/proc/{pid}/cgroup"))).unwrap()
        };
        let first = join(&mut made);
        let text = first.cpu_stat();
        assert!(
            named(&text, "usage_usec").is_ok_and(|found| found.is_some()),
            "{text}"
        );
        fs::create_dir(folder.join("below")).unwrap();
        assert_eq!(first.cpu_stat(), "");
        fs::remove_dir(folder.join("below")).unwrap();
        assert_ne!(first.cpu_stat(), "");
        let second = join(&mut made);
        assert_eq!(
            (first.cpu_stat(), second.cpu_stat()),
            (String::new(), String::new())
        );
        // The path of this process's file contains no PID; no cgroup is needed here, because this process has better
        // counters.
        assert!(OwnCgroup::of(Path::new("/proc/self/cgroup")).is_none());
    }
}
