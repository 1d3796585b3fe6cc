//! Settings of `[filesystems.NAME]`: directory, phases and sizes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_core::{Size, Span};
use brunt_result::OpKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::workload::check_hosts;
use crate::load::{INTERVAL_MAX, INTERVAL_MIN, WorkloadError};

/// Maximum number of files in the phases that create files.
pub const FILES_MAX: u64 = 10_000_000;

/// A file system benchmark in a mounted directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSystemLoad {
    /// Directory on the file system to measure. All files are created in a new folder inside this directory.
    pub directory: PathBuf,
    /// Hosts that run the phases, all at the same time: names of `[hosts.NAME]` with `ssh` or `agent`, or lab hosts.
    /// Each host runs whole phases in its own `directory`, with its own files. Default: the machine that runs the
    /// experiment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Phases to run, each a point of the experiment; default: all.
    #[serde(default = "all")]
    pub phases: Vec<FilePhase>,
    /// Size of the data file; default: see `times_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Size>,
    /// Size of the data file as a multiple of this machine's memory. At 2 and above the page cache has little
    /// influence.
    #[serde(default = "two")]
    pub times_memory: f64,
    /// Size of each read and write.
    #[serde(default = "eight_kib")]
    pub block: Size,
    /// Number of random seeks, all threads together; every tenth block is written back.
    #[serde(default = "eight_thousand")]
    pub seeks: u64,
    /// Threads of the seek phase.
    #[serde(default = "five")]
    pub seekers: u32,
    /// Number of files to create, look up and unlink.
    #[serde(default = "sixteen_ki")]
    pub files: u64,
    /// When written data is flushed to stable storage.
    #[serde(default)]
    pub fsync: Fsync,
    /// Opens the data file with O_DIRECT, bypassing the page cache.
    #[serde(default)]
    pub direct: bool,
    /// Drops the data file from the page cache before each phase that reads it.
    #[serde(default = "yes")]
    pub drop_cache: bool,
    /// Reporting interval of the time series; 0: one interval per phase. Seeks report only at the end.
    #[serde(default = "second")]
    pub interval: Span,
}

/// When written data is flushed to stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    /// No fsync: the phase includes the effect of the page cache.
    None,
    /// fsync at the end of a phase, included in its time.
    #[default]
    End,
    /// fsync after every write, or after every file.
    Each,
}

/// A phase of a file system benchmark.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FilePhase {
    /// Writes the file character by character, through a 4 KiB buffer.
    WriteCharacters,
    /// Writes the file block by block.
    WriteBlocks,
    /// Reads each block, changes it and writes it back.
    Rewrite,
    /// Reads the file character by character, through a 4 KiB buffer.
    ReadCharacters,
    /// Reads the file block by block.
    ReadBlocks,
    /// Reads blocks at random offsets.
    Seeks,
    /// Creates files in name order.
    CreateSequential,
    /// Looks the files up (stat) in name order.
    StatSequential,
    /// Unlinks the files in name order.
    UnlinkSequential,
    /// Creates files in random order.
    CreateRandom,
    /// Looks the files up (stat) in random order.
    StatRandom,
    /// Unlinks the files in random order.
    UnlinkRandom,
}

impl FilePhase {
    /// All phases, in Bonnie's order.
    pub const ALL: [FilePhase; 12] = [
        FilePhase::WriteCharacters,
        FilePhase::WriteBlocks,
        FilePhase::Rewrite,
        FilePhase::ReadCharacters,
        FilePhase::ReadBlocks,
        FilePhase::Seeks,
        FilePhase::CreateSequential,
        FilePhase::StatSequential,
        FilePhase::UnlinkSequential,
        FilePhase::CreateRandom,
        FilePhase::StatRandom,
        FilePhase::UnlinkRandom,
    ];

    /// Returns the phase's name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            FilePhase::WriteCharacters => "write-characters",
            FilePhase::WriteBlocks => "write-blocks",
            FilePhase::Rewrite => "rewrite",
            FilePhase::ReadCharacters => "read-characters",
            FilePhase::ReadBlocks => "read-blocks",
            FilePhase::Seeks => "seeks",
            FilePhase::CreateSequential => "create-sequential",
            FilePhase::StatSequential => "stat-sequential",
            FilePhase::UnlinkSequential => "unlink-sequential",
            FilePhase::CreateRandom => "create-random",
            FilePhase::StatRandom => "stat-random",
            FilePhase::UnlinkRandom => "unlink-random",
        }
    }

    /// Returns true if the phase uses the data file rather than file names.
    pub fn uses_file(self) -> bool {
        self <= FilePhase::Seeks
    }

    /// Returns true if the phase changes something.
    pub fn writes(self) -> bool {
        use FilePhase::{ReadBlocks, ReadCharacters, StatRandom, StatSequential};
        !matches!(
            self,
            ReadCharacters | ReadBlocks | StatSequential | StatRandom
        )
    }

    /// Returns the kinds of the phase's requests, in the order of their figures.
    pub fn kinds(self) -> &'static [OpKind] {
        match self {
            FilePhase::WriteCharacters | FilePhase::WriteBlocks | FilePhase::Rewrite => {
                &[OpKind::Write]
            }
            FilePhase::ReadCharacters | FilePhase::ReadBlocks => &[OpKind::Read],
            FilePhase::Seeks => &[OpKind::Read, OpKind::Write],
            FilePhase::CreateSequential | FilePhase::CreateRandom => &[OpKind::Create],
            FilePhase::StatSequential | FilePhase::StatRandom => &[OpKind::GetAttributes],
            FilePhase::UnlinkSequential | FilePhase::UnlinkRandom => &[OpKind::Remove],
        }
    }

    /// Returns the operation for "cannot …" messages.
    pub(super) fn doing(self) -> &'static str {
        match self {
            FilePhase::WriteCharacters | FilePhase::WriteBlocks => "write its file",
            FilePhase::Rewrite => "rewrite its file",
            FilePhase::ReadCharacters | FilePhase::ReadBlocks | FilePhase::Seeks => "read its file",
            FilePhase::CreateSequential | FilePhase::CreateRandom => "create files",
            FilePhase::StatSequential | FilePhase::StatRandom => "look files up",
            FilePhase::UnlinkSequential | FilePhase::UnlinkRandom => "unlink files",
        }
    }
}

impl FileSystemLoad {
    /// Returns the default settings, with all phases, for `directory`.
    pub fn new(directory: &Path) -> FileSystemLoad {
        FileSystemLoad {
            directory: directory.to_path_buf(),
            hosts: Vec::new(),
            phases: all(),
            file_size: None,
            times_memory: two(),
            block: eight_kib(),
            seeks: eight_thousand(),
            seekers: five(),
            files: sixteen_ki(),
            fsync: Fsync::default(),
            direct: false,
            drop_cache: true,
            interval: second(),
        }
    }

    /// Checks the settings without regard to the directory.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let wrong = |key, what: &str| {
            Err(WorkloadError {
                key,
                what: what.to_string(),
            })
        };
        check_hosts(&self.hosts, 1)?;
        let mut phases = self.phases.clone();
        phases.sort_unstable();
        phases.dedup();
        if phases.is_empty() || phases.len() != self.phases.len() {
            return wrong("phases", "write at least one phase, and each once");
        }
        let block = self.block.0;
        if !(512..=16 << 20).contains(&block) || !block.is_multiple_of(512) {
            return wrong("block", "write a multiple of 512 bytes, up to 16MiB");
        }
        if self.direct && !block.is_multiple_of(4096) {
            return wrong("block", "O_DIRECT needs a multiple of 4096 bytes");
        }
        if self.file_size.is_some_and(|size| size.0 < block.max(4096)) {
            return wrong("file_size", "write a size of at least a block and 4KiB");
        }
        if !(0.001..=1000.0).contains(&self.times_memory) {
            return wrong("times_memory", "write a number from 0.001 to 1000");
        }
        if self.seeks == 0 || self.seekers == 0 || self.seekers > 256 {
            return wrong("seekers", "write 1 to 256 seekers, and at least one seek");
        }
        if !(1..=FILES_MAX).contains(&self.files) {
            return wrong("files", "write 1 to 10000000 files");
        }
        let interval = self.interval.0;
        if !interval.is_zero() && !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            return wrong("interval", "write 0, or 10ms to 1h");
        }
        Ok(())
    }
}

fn all() -> Vec<FilePhase> {
    FilePhase::ALL.to_vec()
}
fn two() -> f64 {
    2.0
}
fn eight_kib() -> Size {
    Size(8192)
}
fn eight_thousand() -> u64 {
    8000
}
fn five() -> u32 {
    5
}
fn sixteen_ki() -> u64 {
    16_384
}
fn yes() -> bool {
    true
}
fn second() -> Span {
    Span(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single line in a file selects all of Bonnie's phases, and mistakes name their key.
    #[test]
    fn one_line_selects_all_phases_and_mistakes_name_their_key() {
        let load: FileSystemLoad = toml::from_str("directory = \"/x\"").unwrap();
        assert_eq!(
            (load.check(), &load),
            (Ok(()), &FileSystemLoad::new(Path::new("/x")))
        );
        let check = |line: &str, key: &str| {
            let load: FileSystemLoad =
                toml::from_str(&format!("directory = \"/x\"\n{line}")).unwrap();
            assert_eq!(load.check().unwrap_err().key, key, "{line}");
        };
        check("phases = []", "phases");
        check("phases = [\"seeks\", \"seeks\"]", "phases");
        check("block = \"1000\"", "block");
        check("direct = true\nblock = \"512\"", "block");
        check("file_size = \"4k\"", "file_size");
        check("times_memory = 0", "times_memory");
        check("seekers = 0", "seekers");
        check("files = 0", "files");
        check("interval = \"1ms\"", "interval");
        for phase in FilePhase::ALL {
            assert_eq!(serde_name(phase), phase.name());
        }
    }

    fn serde_name(phase: FilePhase) -> String {
        #[derive(Serialize)]
        struct One {
            phase: FilePhase,
        }
        let text = toml::to_string(&One { phase }).unwrap();
        text.split('"').nth(1).unwrap().to_string()
    }
}
