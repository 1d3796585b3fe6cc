//! The limits of this process's cgroups on CPUs, memory and processes, and how long they throttled it. Supports
//! versions 1 and 2 of the hierarchy, and includes all ancestors of each cgroup, because the tightest limit counts.
//! Used by the `cgroup` probe, the noise meter, `brunt doctor` and advice about memory.
//!
//! The rule: a limit that cannot be read is unknown, never infinite or zero.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::figures::named;

/// Larger values mean no limit: version 1 expresses "unlimited" as the largest multiple of a page.
const UNLIMITED_BYTES: u64 = 1 << 60;
/// Maximum depth of a process's cgroup below the root.
const DEPTH_MAX: usize = 64;

/// The kinds of limits that are read, named after version 1's controllers.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "cpuset"];

/// The folders of this process's cgroups.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// By controller: whether the cgroups are version 2, and the process's cgroup followed by its ancestors.
    groups: BTreeMap<&'static str, (bool, Vec<PathBuf>)>,
    proc: PathBuf,
}

/// The limits of cgroups. `None` means no limit, or unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    /// Number of CPUs' worth of time: quota divided by period.
    pub cpus: Option<f64>,
    /// Number of periods in which a quota was exhausted: the highest count among the cgroup and its ancestors.
    pub throttled_periods: Option<u64>,
    /// How long cgroups were throttled because a quota was exhausted, in nanoseconds: the longest among the cgroup
    /// and its ancestors.
    pub throttled_nanos: Option<u64>,
    /// Maximum bytes of memory, in the cgroup with the least left.
    pub memory_max: Option<u64>,
    /// Bytes still available in the cgroup with the least left: its limit minus unreclaimable memory.
    pub memory_left: Option<u64>,
    /// Processes in this cgroup that the kernel killed because memory ran out.
    pub oom_kills: Option<u64>,
    /// Maximum number of processes and threads.
    pub pids_max: Option<u64>,
    /// Current number of processes and threads in the cgroup with that limit.
    pub pids: Option<u64>,
    /// CPUs that may be used, such as `0-3,8`.
    pub cpuset: Option<String>,
}

impl Cgroups {
    /// Returns the cgroups of this process on this machine.
    pub fn own() -> Cgroups {
        Cgroups::at(Path::new("/"))
    }

    /// Returns the cgroups of the process `self` below this root; tests use a root of their own.
    pub fn at(root: &Path) -> Cgroups {
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        let (membership, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let mut groups = BTreeMap::new();
        for controller in CONTROLLERS {
            let of_one = mounts
                .lines()
                .find_map(|line| mounted(line, Some(controller)));
            let is_two = of_one.is_none();
            let Some((visible, mount)) =
                of_one.or_else(|| mounts.lines().find_map(|line| mounted(line, None)))
            else {
                continue;
            };
            let path = membership.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (of, path) = (parts.next()?, parts.next()?);
                let is_it = match is_two {
                    true => of.is_empty(),
                    false => of.split(',').any(|name| name == controller),
                };
                is_it.then_some(path)
            });
            // Cgroups outside the mounted one cannot be seen from here; the mounted cgroup itself can.
            let below = path.and_then(|path| Path::new(path).strip_prefix(&visible).ok());
            let top = root.join(mount.strip_prefix("/").unwrap_or(&mount));
            let own = below.map_or_else(|| top.clone(), |below| top.join(below));
            let above = own.ancestors().take(DEPTH_MAX);
            let chain: Vec<PathBuf> = above
                .take_while(|folder| folder.starts_with(&top))
                .map(Path::to_path_buf)
                .collect();
            groups.insert(controller, (is_two, chain));
        }
        Cgroups {
            groups,
            proc: root.join("proc"),
        }
    }

    fn chain(&self, controller: &str) -> (bool, &[PathBuf]) {
        self.groups
            .get(controller)
            .map_or((true, &[]), |(is_two, chain)| (*is_two, chain))
    }

    /// Reads the current limits.
    pub fn limits(&self) -> CgroupLimits {
        let mut limits = CgroupLimits::default();
        self.add_cpu(&mut limits);
        self.add_memory(&mut limits);
        self.add_pids(&mut limits);
        let (is_two, sets) = self.chain("cpuset");
        let file = if is_two {
            "cpuset.cpus.effective"
        } else {
            "cpuset.effective_cpus"
        };
        limits.cpuset = sets
            .iter()
            .find_map(|folder| text(folder, file).or_else(|| text(folder, "cpuset.cpus")));
        limits
    }

    fn add_cpu(&self, limits: &mut CgroupLimits) {
        let (is_two, chain) = self.chain("cpu");
        for folder in chain {
            let quota = match is_two {
                true => text(folder, "cpu.max").and_then(|text| {
                    let (quota, period) = text.split_once(' ')?;
                    Some((quota.parse().ok()?, period.parse().ok()?))
                }),
                false => {
                    number(folder, "cpu.cfs_quota_us").zip(number(folder, "cpu.cfs_period_us"))
                }
            };
            if let Some((quota, period)) = quota.filter(|(_, period): &(u64, u64)| *period > 0) {
                least(&mut limits.cpus, quota as f64 / period as f64);
            }
            let Some(stat) = text(folder, "cpu.stat") else {
                continue;
            };
            let of = |name: &str| named(&stat, name).ok().flatten();
            // Each ancestor may throttle this cgroup, too, so the longest time is a lower bound of the total.
            let nanos = of("throttled_time")
                .or_else(|| of("throttled_usec").map(|micros| micros.saturating_mul(1000)));
            limits.throttled_nanos = limits.throttled_nanos.max(nanos);
            limits.throttled_periods = limits.throttled_periods.max(of("nr_throttled"));
        }
    }

    fn add_memory(&self, limits: &mut CgroupLimits) {
        let (is_two, chain) = self.chain("memory");
        let names = match is_two {
            true => [
                "memory.max",
                "memory.current",
                "inactive_file",
                "memory.events",
            ],
            false => [
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
                "memory.oom_control",
            ],
        };
        for folder in chain {
            if let Some(max) = number(folder, names[0]).filter(|max| *max < UNLIMITED_BYTES) {
                let stat = text(folder, "memory.stat").unwrap_or_default();
                let given_back = named(&stat, names[2]).ok().flatten().unwrap_or(0);
                let used = number(folder, names[1]).map(|used| used.saturating_sub(given_back));
                let left = used.map(|used| max.saturating_sub(used));
                if limits.memory_max.is_none() || left < limits.memory_left {
                    (limits.memory_max, limits.memory_left) = (Some(max), left);
                }
            }
        }
        // Only the process's own cgroup; its ancestors count the events of all their descendants.
        let events = chain.first().and_then(|folder| text(folder, names[3]));
        limits.oom_kills = events.and_then(|events| named(&events, "oom_kill").ok().flatten());
    }

    fn add_pids(&self, limits: &mut CgroupLimits) {
        for folder in self.chain("pids").1 {
            if let Some(max) = number(folder, "pids.max")
                && limits.pids_max.is_none_or(|least| max < least)
            {
                limits.pids_max = Some(max);
                limits.pids = number(folder, "pids.current");
            }
        }
    }

    /// Returns the memory in bytes that this process can still allocate: the kernel's estimate for the machine, or
    /// less if cgroups limit it.
    pub fn available_memory(&self) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let machine = named(&text, "MemAvailable").ok().flatten()? << 10;
        Some(
            self.limits()
                .memory_left
                .map_or(machine, |left| left.min(machine)),
        )
    }
}

impl CgroupLimits {
    /// Formats the limits as lines of names and values in the kernel's style, for the probe to parse.
    pub(super) fn text(&self) -> String {
        let counts = [
            ("throttled_nanos", self.throttled_nanos),
            ("throttled_periods", self.throttled_periods),
            (
                "cpu_milli",
                self.cpus.map(|cpus| (cpus * 1000.0).round() as u64),
            ),
            ("memory_max", self.memory_max),
            ("memory_left", self.memory_left),
            ("oom_kills", self.oom_kills),
            ("pids_max", self.pids_max),
            ("pids", self.pids),
        ];
        counts
            .into_iter()
            .filter_map(|(name, count)| Some(format!("{name} {}\n", count?)))
            .collect()
    }
}

fn least(to: &mut Option<f64>, value: f64) {
    *to = Some(to.map_or(value, |least| least.min(value)));
}

fn text(folder: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(file)).ok()?;
    Some(text.trim().to_string()).filter(|text| !text.is_empty())
}

/// Reads a number from a file; `None` for "max" or "-1".
fn number(folder: &Path, file: &str) -> Option<u64> {
    text(folder, file)?.parse().ok()
}

/// Returns the cgroup that a `mountinfo` line (proc_pid_mountinfo(5)) mounts and where, if the line mounts the given
/// version 1 controller or, without a controller, version 2.
fn mounted(line: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
    let is_it = match controller {
        Some(controller) => name == "cgroup" && options.split(',').any(|one| one == controller),
        None => name == "cgroup2",
    };
    is_it.then(|| (root.into(), point.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a root folder with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n",
    );

    #[test]
    fn limits_of_version_two_are_the_tightest_of_all_groups_above() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            (
                "proc/self/mountinfo",
                "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            (
                "sys/fs/cgroup/a/cpu.stat",
                "usage_usec 5\nnr_periods 9\nnr_throttled 7\nthrottled_usec 1234\n",
            ),
            (
                "sys/fs/cgroup/a/b/cpu.stat",
                "nr_throttled 0\nthrottled_usec 0\n",
            ),
            ("sys/fs/cgroup/a/memory.max", "1000000000\n"),
            ("sys/fs/cgroup/a/memory.current", "700000000\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 100000000\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            (
                "sys/fs/cgroup/a/b/memory.events",
                "low 0\noom 2\noom_kill 3\n",
            ),
            ("sys/fs/cgroup/a/b/pids.max", "64\n"),
            ("sys/fs/cgroup/a/b/pids.current", "12\n"),
            ("sys/fs/cgroup/a/pids.max", "max\n"),
            ("sys/fs/cgroup/a/b/cpuset.cpus.effective", "1,3\n"),
        ]);
        let cgroups = Cgroups::at(root.path());
        let expected = CgroupLimits {
            cpus: Some(1.5),
            throttled_periods: Some(7),
            throttled_nanos: Some(1_234_000),
            memory_max: Some(1_000_000_000),
            memory_left: Some(400_000_000),
            oom_kills: Some(3),
            pids_max: Some(64),
            pids: Some(12),
            cpuset: Some("1,3".into()),
        };
        assert_eq!(cgroups.limits(), expected);
        assert_eq!(cgroups.available_memory(), Some(400_000_000));
    }

    #[test]
    fn limits_of_version_one_come_from_each_controllers_hierarchy() {
        let root = machine(&[
            MEMINFO,
            (
                "proc/self/cgroup",
                "4:memory:/m\n2:cpu,cpuacct:/quota\n8:pids:/\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "30 1 0:1 / /cg/unified rw - cgroup2 none rw\n\
                 31 1 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 32 1 0:3 / /cg/memory rw - cgroup cgroup rw,memory\n\
                 33 1 0:4 / /cg/pids rw - cgroup cgroup rw,pids\n",
            ),
            ("cg/cpu/quota/cpu.cfs_quota_us", "20000\n"),
            ("cg/cpu/quota/cpu.cfs_period_us", "100000\n"),
            (
                "cg/cpu/quota/cpu.stat",
                "nr_periods 90\nnr_throttled 80\nthrottled_time 6400000000\n",
            ),
            ("cg/cpu/cpu.cfs_quota_us", "-1\n"),
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory/m/memory.limit_in_bytes", "300000000\n"),
            ("cg/memory/m/memory.usage_in_bytes", "100000000\n"),
            (
                "cg/memory/m/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
            ("cg/pids/pids.max", "max\n"),
        ]);
        let limits = Cgroups::at(root.path()).limits();
        assert_eq!(
            (limits.cpus, limits.throttled_nanos),
            (Some(0.2), Some(6_400_000_000))
        );
        assert_eq!(
            (limits.memory_max, limits.memory_left, limits.oom_kills),
            (Some(300_000_000), Some(200_000_000), Some(1))
        );
        assert_eq!((limits.pids_max, limits.cpuset), (None, None));
    }

    /// A container sees its own cgroup as the top, and a machine without cgroups has no limits.
    #[test]
    fn unknown_limits_are_none() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/docker/x\n"),
            (
                "proc/self/mountinfo",
                "41 31 0:38 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ]);
        assert_eq!(Cgroups::at(root.path()).limits().cpus, Some(0.5));
        let bare = machine(&[MEMINFO]);
        let cgroups = Cgroups::at(bare.path());
        assert_eq!(cgroups.limits(), CgroupLimits::default());
        assert_eq!(cgroups.available_memory(), Some(8_192_000_000));
        assert_eq!(
            Cgroups::at(&bare.path().join("none")).available_memory(),
            None
        );
    }
}
