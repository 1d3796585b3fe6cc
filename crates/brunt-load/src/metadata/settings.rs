//! Settings of `[metadata.NAME]`: place, phases and the shape of the tree.

use std::path::Path;
use std::time::Duration;

use brunt_core::Span;
use brunt_result::OpKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shape::TreeShape;
use crate::block::workload::{WORKERS_MAX, check_hosts};
use crate::file_sizes::FileSizes;
use crate::load::{INTERVAL_MAX, INTERVAL_MIN, WorkloadError, wrong};

/// Maximum directories in a tree: each worker keeps a handle of each directory in memory.
const DIRECTORIES_MAX: u32 = 1 << 20;
/// Maximum items per worker.
const ITEMS_MAX: u64 = 1 << 24;
/// Maximum size of a file, which is held in memory.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The prefix of a folder on an NFS server.
const NFS_PREFIX: &str = "nfs:";

/// Metadata operations like mdtest's, on a mounted file system or in a folder of an NFS server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetadataSettings {
    /// Mounted directory, or folder of an NFS server that Brunt uses without a kernel mount:
    /// `nfs://server/export/folder/`, with the options of device URLs. Everything is created in a new directory there.
    pub directory: String,
    /// Hosts that run the load, all at the same time: names of `[hosts.NAME]` with `ssh` or `agent`, or lab hosts.
    /// Each runs the same number of `workers`, and all use the same new directory, which has to be on the same file
    /// system. Default: the machine that runs the experiment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Workers per host; mdtest calls them tasks. Each performs one operation at a time; on NFS, each has a
    /// connection.
    #[serde(default = "one")]
    pub workers: u32,
    /// Phases to run, each a point of the experiment; default: all. A phase prepares what it needs without measuring it.
    #[serde(default = "all")]
    pub phases: Vec<MetadataPhase>,
    /// Levels of directories below the top directory of a tree (mdtest -z).
    #[serde(default)]
    pub depth: u32,
    /// Subdirectories of each directory (mdtest -b).
    #[serde(default = "one")]
    pub branch: u32,
    /// Items (files or directories) per worker in each directory (mdtest -I).
    #[serde(default = "thousand")]
    pub items: u32,
    /// Only directories of the deepest level have items (mdtest -L).
    #[serde(default)]
    pub leaf_only: bool,
    /// Whether workers share a tree.
    #[serde(default)]
    pub trees: MetadataTrees,
    /// Order in which items are looked up and read.
    #[serde(default)]
    pub order: MetadataOrder,
    /// Size of the files: one size, or a distribution written like `blocks`, from which each file's size is drawn
    /// (mdtest -w and -e). Default: empty files, and no phase `file-read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size: Option<FileSizes>,
    /// Makes each new file stable before it is closed (mdtest -y): by fsync(2), or by COMMIT. This includes files
    /// that are appended to.
    #[serde(default)]
    pub fsync: bool,
    /// Phase `transactions`, as in PostMark. Default: no such phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<MetadataTransactions>,
    /// Name of the new directory. Default: `brunt-` and a random number. Hosts of one load share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Leaves all files and directories after the last run instead of removing them.
    #[serde(default)]
    pub keep: bool,
    /// Reporting interval of the time series; 0: one interval per phase.
    #[serde(default = "second")]
    pub interval: Span,
}

/// Transactions as in PostMark: each reads a file as a whole or appends to it, and creates or removes a file. Files
/// are chosen at random from those that the worker has at that time; initially, these are its items.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetadataTransactions {
    /// Transactions per worker in a run.
    pub count: u32,
    /// Share of transactions that read, 0 to 1; the others append, up to the largest `file_size`; files that have
    /// reached that size are left unchanged.
    #[serde(default = "half")]
    pub read: f64,
    /// Share of transactions that create a file, 0 to 1; the others remove one.
    #[serde(default = "half")]
    pub create: f64,
}

/// Whether workers share a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataTrees {
    /// All workers of all hosts create their items in the same directories.
    #[default]
    Shared,
    /// Each worker has its own tree (mdtest -u).
    Unique,
}

/// Order in which items are looked up and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataOrder {
    /// In the order of their creation.
    #[default]
    Sequential,
    /// Each once, in a random order that depends on the seed (mdtest -R).
    Random,
}

/// A phase of a metadata load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataPhase {
    /// Creates the directories of the tree; a shared tree is created by the first worker.
    TreeCreation,
    /// Creates directories as items.
    DirectoryCreation,
    /// Looks the directories up (stat).
    DirectoryStat,
    /// Removes them.
    DirectoryRemoval,
    /// Creates files, and writes their data if `file_size` is set.
    FileCreation,
    /// Looks the files up (stat).
    FileStat,
    /// Opens and reads the files.
    FileRead,
    /// Lists each directory of the tree, including its files (not in mdtest).
    Readdir,
    /// Reads, appends to, creates and removes files at random, as specified in `transactions` (not in mdtest). This
    /// phase starts with all files as `file-creation` leaves them.
    Transactions,
    /// Removes the files.
    FileRemoval,
    /// Removes the directories of the tree; a shared tree is removed by the first worker.
    TreeRemoval,
}

impl MetadataPhase {
    /// All phases, in mdtest's order.
    pub const ALL: [MetadataPhase; 11] = [
        MetadataPhase::TreeCreation,
        MetadataPhase::DirectoryCreation,
        MetadataPhase::DirectoryStat,
        MetadataPhase::DirectoryRemoval,
        MetadataPhase::FileCreation,
        MetadataPhase::FileStat,
        MetadataPhase::FileRead,
        MetadataPhase::Readdir,
        MetadataPhase::Transactions,
        MetadataPhase::FileRemoval,
        MetadataPhase::TreeRemoval,
    ];

    /// Returns the phase's name in experiment files: mdtest's, in lower case with hyphens.
    pub fn name(self) -> &'static str {
        match self {
            MetadataPhase::TreeCreation => "tree-creation",
            MetadataPhase::DirectoryCreation => "directory-creation",
            MetadataPhase::DirectoryStat => "directory-stat",
            MetadataPhase::DirectoryRemoval => "directory-removal",
            MetadataPhase::FileCreation => "file-creation",
            MetadataPhase::FileStat => "file-stat",
            MetadataPhase::FileRead => "file-read",
            MetadataPhase::Readdir => "readdir",
            MetadataPhase::Transactions => "transactions",
            MetadataPhase::FileRemoval => "file-removal",
            MetadataPhase::TreeRemoval => "tree-removal",
        }
    }
}

impl MetadataSettings {
    /// Returns the shape of each tree.
    pub(super) fn shape(&self) -> TreeShape {
        TreeShape {
            depth: self.depth,
            branch: self.branch,
            items: self.items,
            leaf_only: self.leaf_only,
        }
    }

    /// Returns true if the load runs in a folder of an NFS server.
    pub(super) fn is_nfs(&self) -> bool {
        self.directory.starts_with(NFS_PREFIX)
    }

    /// Returns the mounted directory; `None` on NFS.
    pub(super) fn mounted(&self) -> Option<&Path> {
        (!self.is_nfs()).then(|| Path::new(&self.directory))
    }

    /// Returns the phases to run: those that are named, or all that are possible.
    pub(super) fn runs(&self) -> Vec<MetadataPhase> {
        let is_possible = |phase: &MetadataPhase| match phase {
            MetadataPhase::FileRead => self.file_size.is_some(),
            MetadataPhase::Transactions => self.transactions.is_some(),
            _ => true,
        };
        match self.phases == all() {
            true => self.phases.iter().copied().filter(is_possible).collect(),
            false => self.phases.clone(),
        }
    }

    /// Returns the kinds of a phase's requests, in the order of their figures.
    pub(super) fn kinds(&self, phase: MetadataPhase) -> &'static [OpKind] {
        match phase {
            MetadataPhase::TreeCreation | MetadataPhase::DirectoryCreation => {
                &[OpKind::MakeDirectory]
            }
            MetadataPhase::DirectoryStat | MetadataPhase::FileStat => &[OpKind::GetAttributes],
            MetadataPhase::DirectoryRemoval | MetadataPhase::TreeRemoval => {
                &[OpKind::RemoveDirectory]
            }
            MetadataPhase::FileCreation if self.file_size.is_some() => {
                &[OpKind::Create, OpKind::Write]
            }
            MetadataPhase::FileCreation => &[OpKind::Create],
            MetadataPhase::FileRead => &[OpKind::Read],
            MetadataPhase::Readdir => &[OpKind::ReadDirectory],
            MetadataPhase::Transactions => super::transactions::KINDS,
            MetadataPhase::FileRemoval => &[OpKind::Remove],
        }
    }

    /// Checks the settings without regard to the directory.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub fn check(&self) -> Result<(), WorkloadError> {
        if self.directory.is_empty() {
            wrong(
                "directory",
                "write a directory, or nfs://server/export/folder/",
            )?;
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            wrong(
                "workers",
                format!("{} is outside 1 to {WORKERS_MAX}", self.workers),
            )?;
        }
        check_hosts(&self.hosts, self.workers)?;
        self.check_phases()?;
        self.check_shape()?;
        self.check_transactions()?;
        if let Some(sizes) = &self.file_size {
            sizes.check("file_size", FILE_BYTES_MAX)?;
        }
        let is_name = |name: &String| {
            let bytes = name.as_bytes();
            !matches!(bytes, b"" | b"." | b"..") && bytes.len() <= 255 && !bytes.contains(&b'/')
        };
        if !self.folder.as_ref().is_none_or(is_name) {
            wrong(
                "folder",
                "write the name of a new directory, without a path",
            )?;
        }
        let interval = self.interval.0;
        if !interval.is_zero() && !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            wrong("interval", "write 0, or 10ms to 1h")?;
        }
        Ok(())
    }

    fn check_phases(&self) -> Result<(), WorkloadError> {
        let mut phases = self.phases.clone();
        phases.sort_unstable();
        phases.dedup();
        if phases.is_empty() || phases.len() != self.phases.len() {
            wrong("phases", "write at least one phase, and each once")?;
        }
        if self.file_size.is_none() && self.runs().contains(&MetadataPhase::FileRead) {
            wrong("phases", "file-read needs files with data; add file_size")?;
        }
        if self.transactions.is_none() && self.runs().contains(&MetadataPhase::Transactions) {
            wrong(
                "phases",
                "the phase transactions needs their number; add transactions = { count = 500 }",
            )?;
        }
        Ok(())
    }

    fn check_transactions(&self) -> Result<(), WorkloadError> {
        let Some(MetadataTransactions {
            count,
            read,
            create,
        }) = self.transactions
        else {
            return Ok(());
        };
        let key = "transactions";
        if !(1..=ITEMS_MAX).contains(&count.into()) {
            wrong(key, format!("count {count} is outside 1 to {ITEMS_MAX}"))?;
        }
        for (name, share) in [("read", read), ("create", create)] {
            if !(0.0..=1.0).contains(&share) {
                wrong(key, format!("{name} {share} is outside 0 to 1"))?;
            }
        }
        if !self.runs().contains(&MetadataPhase::Transactions) {
            wrong(key, "phases lacks the phase transactions; add it")?;
        }
        match &self.file_size {
            None => wrong(key, "transactions need files with data; add file_size"),
            Some(sizes) if read < 1.0 && !sizes.varies() => wrong(
                key,
                "files of one size can't grow by appending; write a file_size with several sizes, or read = 1",
            ),
            Some(_) => Ok(()),
        }
    }

    fn check_shape(&self) -> Result<(), WorkloadError> {
        if self.items == 0 {
            wrong("items", "write at least 1")?;
        }
        if self.branch == 0 {
            wrong(
                "branch",
                "write at least 1; without subdirectories, omit depth",
            )?;
        }
        let directories = self.shape().directories();
        let Some(directories) = directories.filter(|count| *count <= DIRECTORIES_MAX) else {
            return wrong(
                "depth",
                format!("a tree of this depth and branch has over {DIRECTORIES_MAX} directories"),
            );
        };
        let items = self.shape().item_numbers();
        if items.end - items.start > ITEMS_MAX {
            let what = format!(
                "{} items per worker in {directories} directories; at most {ITEMS_MAX}",
                items.end - items.start
            );
            return wrong("items", what);
        }
        Ok(())
    }
}

fn one() -> u32 {
    1
}
fn thousand() -> u32 {
    1000
}
fn half() -> f64 {
    0.5
}
fn all() -> Vec<MetadataPhase> {
    MetadataPhase::ALL.to_vec()
}
fn second() -> Span {
    Span(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> MetadataSettings {
        toml::from_str(&format!("directory = \"/x\"\n{text}")).unwrap()
    }

    #[test]
    fn mistakes_are_reported_by_their_key() {
        let check = |text: &str, key: Option<&str>| {
            let settings = read(text);
            let found = settings.check();
            assert_eq!(
                found.as_ref().err().map(|error| error.key),
                key,
                "{text}: {found:?}"
            );
            let written: MetadataSettings =
                toml::from_str(&toml::to_string(&settings).unwrap()).unwrap();
            assert_eq!(written, settings);
        };
        check("", None);
        check("workers = 0", Some("workers"));
        check("hosts = [\"a\", \"a\"]", Some("hosts"));
        check("phases = []", Some("phases"));
        check("phases = [\"readdir\", \"readdir\"]", Some("phases"));
        check("phases = [\"file-read\"]", Some("phases"));
        check("phases = [\"file-read\"]\nfile_size = \"4k\"", None);
        check("file_size = \"1GiB\"", Some("file_size"));
        let sizes = "file_size = { kind = \"uniform\", min = \"512\", max = \"10240\" }";
        let transacting = |more: &str| format!("{sizes}\ntransactions = {{ {more} }}");
        check(&transacting("count = 1"), None);
        check(&transacting("count = 1, read = 1, create = 0"), None);
        check(&transacting("count = 0"), Some("transactions"));
        check(&transacting("count = 1, read = 2"), Some("transactions"));
        check(&transacting("count = 1, create = -1"), Some("transactions"));
        check("transactions = { count = 1 }", Some("transactions"));
        let one = "file_size = \"4k\"\ntransactions = { count = 1";
        check(&format!("{one} }}"), Some("transactions"));
        check(&format!("{one}, read = 1 }}"), None);
        check(
            &format!("phases = [\"readdir\"]\n{}", transacting("count = 1")),
            Some("transactions"),
        );
        check("phases = [\"transactions\"]", Some("phases"));
        check("items = 0", Some("items"));
        check("branch = 0", Some("branch"));
        check("depth = 40\nbranch = 2", Some("depth"));
        check("depth = 19\nbranch = 2\nitems = 100", Some("items"));
        check("folder = \"a/b\"", Some("folder"));
        check("folder = \"..\"", Some("folder"));
        check("interval = \"1ms\"", Some("interval"));
    }

    #[test]
    fn phases_have_the_names_that_files_use() {
        for phase in MetadataPhase::ALL {
            let settings = read(&format!("phases = [\"{}\"]", phase.name()));
            assert_eq!(settings.phases, [phase]);
        }
        // Empty files can't be read, and transactions are optional.
        assert_eq!(read("").runs().len(), MetadataPhase::ALL.len() - 2);
        let all = "file_size = \"1\"\ntransactions = { count = 1, read = 1 }";
        assert_eq!(read(all).runs(), MetadataPhase::ALL);
    }
}
