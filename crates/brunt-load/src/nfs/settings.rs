//! The `nfs` table of a workload: the mix of operations, and the tree that they use.
//!
//! The rule: every number is checked before anything is created on a server.

use brunt_core::Size;
use brunt_result::OpKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::op::{NfsOp, OPS};
use crate::file_sizes::FileSizes;
use crate::load::{WorkloadError, wrong};

/// Maximum directories per worker, and maximum files per directory.
const COUNT_MAX: u32 = 1 << 20;
/// Maximum files per worker: each has a handle in memory.
pub(super) const FILES_MAX: u64 = 1 << 22;
/// Maximum size of a file: with its number, an offset in it then has at most 56 bits ([`super::call::address`]).
pub(super) const FILE_BYTES_MAX: u64 = 1 << 34;
/// Maximum weight of an operation.
const WEIGHT_MAX: f64 = 1e9;

/// Calls to an NFS server, on a tree that the load creates itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NfsSettings {
    /// Weights of the operations. Default: `{ getattr = 26, lookup = 20, read = 18, access = 12, write = 10,
    /// readdirplus = 4, create = 2, remove = 2, setattr = 2, commit = 1, readlink = 1, rename = 1, mkdir = 0.5,
    /// rmdir = 0.5 }`.
    pub mix: NfsMix,
    /// Directories per worker.
    pub directories: u32,
    /// Files in each directory.
    pub files: u32,
    /// Size of each file: one size, or a distribution written like `blocks`, from which each file's size is drawn.
    /// READ and WRITE start at a random multiple of their size; a file shorter than that is transferred whole.
    pub file_size: FileSizes,
    /// Number of files, and of directories, that each worker has at the start of a run for calls that change names:
    /// CREATE, REMOVE and RENAME apply to these files, MKDIR and RMDIR to these directories. They are in a separate
    /// directory, which is new in each run. If no file is left, REMOVE and RENAME become CREATE; at twice
    /// this number, CREATE becomes REMOVE; likewise for directories.
    pub names: u32,
    /// When a WRITE is complete.
    pub stable: NfsStable,
    /// Leaves the tree on the server instead of removing it after the last run.
    pub keep: bool,
}

impl Default for NfsSettings {
    fn default() -> NfsSettings {
        NfsSettings {
            mix: NfsMix::general(),
            directories: 10,
            files: 100,
            file_size: Size(64 << 10).into(),
            names: 100,
            stable: NfsStable::default(),
            keep: false,
        }
    }
}

/// When a WRITE is complete (`stable_how` of RFC 1813).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NfsStable {
    /// When the server has the data; only a COMMIT makes it stable.
    #[default]
    Unstable,
    /// When the data is on stable storage.
    DataSync,
    /// When data and attributes are on stable storage.
    FileSync,
}

/// Weights of operations: each operation's share is its weight divided by the sum of all weights. An operation
/// without a weight is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NfsMix {
    /// GETATTR of a file.
    #[serde(skip_serializing_if = "is_zero")]
    pub getattr: f64,
    /// LOOKUP of a file in its directory.
    #[serde(skip_serializing_if = "is_zero")]
    pub lookup: f64,
    /// ACCESS of a file: all rights.
    #[serde(skip_serializing_if = "is_zero")]
    pub access: f64,
    /// READLINK; each directory then has a symbolic link.
    #[serde(skip_serializing_if = "is_zero")]
    pub readlink: f64,
    /// READ, with the sizes of `blocks`.
    #[serde(skip_serializing_if = "is_zero")]
    pub read: f64,
    /// WRITE, with the sizes of `blocks`. Files keep their length.
    #[serde(skip_serializing_if = "is_zero")]
    pub write: f64,
    /// COMMIT of a file; in results, a flush.
    #[serde(skip_serializing_if = "is_zero")]
    pub commit: f64,
    /// CREATE of a new file (GUARDED).
    #[serde(skip_serializing_if = "is_zero")]
    pub create: f64,
    /// REMOVE of the oldest file.
    #[serde(skip_serializing_if = "is_zero")]
    pub remove: f64,
    /// RENAME of the oldest file to a new name.
    #[serde(skip_serializing_if = "is_zero")]
    pub rename: f64,
    /// MKDIR of a new directory.
    #[serde(skip_serializing_if = "is_zero")]
    pub mkdir: f64,
    /// RMDIR of the oldest directory.
    #[serde(skip_serializing_if = "is_zero")]
    pub rmdir: f64,
    /// READDIRPLUS of the first 32 KiB of a directory's entries.
    #[serde(skip_serializing_if = "is_zero")]
    pub readdirplus: f64,
    /// SETATTR of a file: sets its mode, and its modification time to the server's time.
    #[serde(skip_serializing_if = "is_zero")]
    pub setattr: f64,
    /// LOCK of a whole file for writing, one file after the other; only with NFSv4.1. When `names` locks are held, it
    /// becomes LOCKU.
    #[serde(skip_serializing_if = "is_zero")]
    pub lock: f64,
    /// LOCKU of the file that was locked first. When no locks are held, it becomes LOCK.
    #[serde(skip_serializing_if = "is_zero")]
    pub locku: f64,
}

fn is_zero(weight: &f64) -> bool {
    *weight == 0.0
}

impl NfsMix {
    /// Returns the mix of a file server for home directories: mostly metadata, and more reads than writes.
    fn general() -> NfsMix {
        NfsMix {
            getattr: 26.0,
            lookup: 20.0,
            access: 12.0,
            readlink: 1.0,
            read: 18.0,
            write: 10.0,
            commit: 1.0,
            create: 2.0,
            remove: 2.0,
            rename: 1.0,
            mkdir: 0.5,
            rmdir: 0.5,
            readdirplus: 4.0,
            setattr: 2.0,
            lock: 0.0,
            locku: 0.0,
        }
    }

    /// Returns the weight of an operation.
    pub fn weight(&self, op: NfsOp) -> f64 {
        match op {
            NfsOp::Getattr => self.getattr,
            NfsOp::Lookup => self.lookup,
            NfsOp::Access => self.access,
            NfsOp::Readlink => self.readlink,
            NfsOp::Read => self.read,
            NfsOp::Write => self.write,
            NfsOp::Commit => self.commit,
            NfsOp::Create => self.create,
            NfsOp::Remove => self.remove,
            NfsOp::Rename => self.rename,
            NfsOp::Mkdir => self.mkdir,
            NfsOp::Rmdir => self.rmdir,
            NfsOp::Readdirplus => self.readdirplus,
            NfsOp::Setattr => self.setattr,
            NfsOp::Lock => self.lock,
            NfsOp::Locku => self.locku,
        }
    }
}

impl NfsSettings {
    /// Returns true if the mix includes this operation, or may use it in place of another.
    pub(crate) fn makes(&self, op: NfsOp) -> bool {
        let weight = |op| self.mix.weight(op) > 0.0;
        weight(op)
            || match op {
                NfsOp::Create => weight(NfsOp::Remove) || weight(NfsOp::Rename),
                NfsOp::Remove => weight(NfsOp::Create) || weight(NfsOp::Rename),
                NfsOp::Mkdir => weight(NfsOp::Rmdir),
                NfsOp::Rmdir => weight(NfsOp::Mkdir),
                NfsOp::Lock => weight(NfsOp::Locku),
                NfsOp::Locku => weight(NfsOp::Lock),
                _ => false,
            }
    }

    /// Returns the kinds of the mix's operations, in the order of their figures.
    pub(crate) fn kinds(&self) -> Vec<OpKind> {
        let made = OPS.iter().filter(|op| self.makes(**op));
        made.map(|op| op.kind()).collect()
    }

    /// Returns the maximum number of locks per worker.
    pub(super) fn locks_max(&self) -> u64 {
        self.files_of_worker().min(self.names.into())
    }

    /// Returns the number of files per worker.
    pub(crate) fn files_of_worker(&self) -> u64 {
        u64::from(self.directories) * u64::from(self.files)
    }

    /// Describes the mix and the tree in readable form, with the weights in percent.
    pub(crate) fn describe(&self) -> String {
        let all: f64 = OPS.iter().map(|op| self.mix.weight(*op)).sum();
        let mut made: Vec<NfsOp> = OPS.to_vec();
        made.retain(|op| self.mix.weight(*op) > 0.0);
        made.sort_by(|a, b| self.mix.weight(*b).total_cmp(&self.mix.weight(*a)));
        let share = |op: &NfsOp| {
            let percent = (self.mix.weight(*op) / all * 1000.0).round() / 10.0;
            format!("{percent} % {}", op.name())
        };
        let words: Vec<String> = made.iter().map(share).collect();
        format!(
            "NFSv3, {}, {} directories of {} files of {}",
            words.join(" + "),
            self.directories,
            self.files,
            self.file_size.describe()
        )
    }

    /// Checks the table without regard to the rest of the workload.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let weights = OPS.map(|op| self.mix.weight(op));
        if weights
            .iter()
            .any(|weight| !(0.0..=WEIGHT_MAX).contains(weight))
        {
            wrong("nfs.mix", "a weight is a number from 0 to 1e9")?;
        }
        if weights.iter().all(|weight| *weight == 0.0) {
            wrong(
                "nfs.mix",
                "no operation has a weight; write { getattr = 2, lookup = 1 }, for example",
            )?;
        }
        let counts = [
            ("nfs.directories", self.directories),
            ("nfs.files", self.files),
            ("nfs.names", self.names),
        ];
        for (key, count) in counts {
            if !(1..=COUNT_MAX).contains(&count) {
                wrong(key, format!("{count} is outside 1 to {COUNT_MAX}"))?;
            }
        }
        if self.files_of_worker() > FILES_MAX {
            let files = self.files_of_worker();
            wrong(
                "nfs.files",
                format!("{files} files per worker; at most {FILES_MAX}"),
            )?;
        }
        self.file_size.check("nfs.file_size", FILE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_described_by_its_shares() {
        let text =
            "mix = { getattr = 3, create = 1 }\ndirectories = 2\nfiles = 5\nfile_size = \"4k\"";
        let settings: NfsSettings = toml::from_str(text).unwrap();
        assert_eq!(
            settings.describe(),
            "NFSv3, 75 % GETATTR + 25 % CREATE, 2 directories of 5 files of 4KiB"
        );
        // With twice the initial number of names, CREATE becomes REMOVE.
        let kinds = [OpKind::GetAttributes, OpKind::Create, OpKind::Remove];
        assert_eq!(settings.kinds(), kinds);
    }
}
