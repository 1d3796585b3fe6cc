//! Reads a machine's `/proc` and `/sys` below a given folder: `/`, or a fake root in tests.

use std::path::{Path, PathBuf};

use brunt_probe::limits::Cgroups;

/// A machine's `/proc` and `/sys`.
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    pub fn at(root: &Path) -> Machine {
        Machine {
            root: root.to_path_buf(),
        }
    }

    /// The control groups of this program.
    pub fn cgroups(&self) -> Cgroups {
        Cgroups::at(&self.root)
    }

    /// A file's text without surrounding white space; `None` if the file cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_string())
    }

    pub fn number(&self, path: &str) -> Option<f64> {
        self.text(path)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).exists()
    }

    /// The files in a folder as (name, text), sorted by name.
    pub fn texts(&self, folder: &str) -> Vec<(String, String)> {
        let path = self.root.join(folder.trim_start_matches('/'));
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path()).ok()?;
            Some((
                entry.file_name().to_string_lossy().into_owned(),
                text.trim().to_string(),
            ))
        });
        let mut found: Vec<(String, String)> = named.collect();
        found.sort();
        found
    }

    /// The frequency governor of each processor that has one.
    pub fn governors(&self) -> Vec<String> {
        let folder = self.root.join("sys/devices/system/cpu");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let governors = entries
            .filter_map(|entry| {
                std::fs::read_to_string(entry.path().join("cpufreq/scaling_governor")).ok()
            })
            .map(|text| text.trim().to_string());
        let mut found: Vec<String> = governors.collect();
        found.sort();
        found
    }

    /// The kernel version, as (major, minor).
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let text = self.text("/proc/sys/kernel/osrelease")?;
        let mut parts = text.split(|letter: char| !letter.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// A soft limit of this process; infinity if unlimited (proc_pid_limits(5)).
    pub fn limit(&self, name: &str) -> Option<f64> {
        let text = self.text("/proc/self/limits")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_ascii_whitespace().next()? {
            "unlimited" => Some(f64::INFINITY),
            number => number.parse().ok(),
        }
    }

    /// Number of online processors.
    pub fn processors(&self) -> usize {
        let stat = self.text("/proc/stat").unwrap_or_default();
        let cpus = stat.lines().filter(|line| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
        });
        cpus.count().max(1)
    }
}
