//! `brunt io`: the smallest client of a device: read, write, verify a range, ask what it is. For a
//! person who pokes at a target, and for tests that need data whose content is known.
//!
//! Here are the arguments. [`run`] has [`brunt_load::transfer`] move the data, [`report`] says what came of it, and [`info`]
//! asks without reading or writing.

mod info;
mod report;
mod run;

use brunt_block::RingConfig;
use brunt_core::units::parse_size;
use brunt_load::block::seeded;
use clap::{Args, Subcommand, ValueEnum};

use crate::cli::{Done, Output};
use run::{Job, Run};

/// Read, write or verify a range of a device, or ask what it is.
#[derive(Args)]
pub struct Io {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Read a range, and print what it cost and its checksum.
    #[command(
        after_help = "Examples:\n  # the first GiB into a file, with its checksum\n  brunt io read iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --length 1GiB --bs 1M --output disk.img"
    )]
    Read {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        sum: Sum,
        /// Put the data into this file (`-`: standard output).
        #[arg(long, value_name = "FILE", conflicts_with = "random")]
        output: Option<String>,
    },
    /// Write a range with content that follows from a seed, or from a file.
    #[command(
        after_help = "Examples:\n  # fill a new file, 1 MiB at a time\n  brunt io write 'disk.img?size=1GiB&create=yes' --bs 1M\n  # put an image on a LUN\n  brunt io write iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --input disk.img --bs 1M"
    )]
    Write {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        content: Content,
        #[command(flatten)]
        sum: Sum,
        /// Write what is in this file (`-`: standard input); the last block is filled with zeros.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["random", "pattern"])]
        input: Option<String>,
        /// Each write is on stable storage when it completes.
        #[arg(long)]
        fua: bool,
        /// Write even when the device holds a partition table or a file system.
        #[arg(long)]
        overwrite: bool,
    },
    /// Read a range and compare it with what `write` made of the same seed and pattern.
    #[command(
        after_help = "Examples:\n  # whether all is there that `brunt io write` wrote with seed 7\n  brunt io verify iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --seed 7"
    )]
    Verify {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        content: Content,
    },
    /// Print a device's size, block sizes, cache and what else it says of itself.
    #[command(
        alias = "capacity", // what it was called before
        after_help = "Examples:\n  # what a LUN is\n  brunt io info iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0"
    )]
    Info {
        /// What to look at.
        url: String,
    },
    /// List the targets behind an iSCSI portal (SendTargets).
    #[command(
        after_help = "Examples:\n  # which targets there are, and where\n  brunt io targets iscsi://127.0.0.1:3260"
    )]
    Targets {
        /// `iscsi://[user%secret@]host[:port]`.
        url: String,
    },
}

/// Which requests.
#[derive(Args)]
struct Range {
    /// A path, null:SIZE, memory:SIZE, or `iscsi://[user%secret@]host[:port]/target-name/lun`.
    url: String,
    /// Where the range begins.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// How long it is [default: to the end of the device].
    #[arg(long, value_parser = parse_size)]
    length: Option<u64>,
    /// Bytes of one request.
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    bs: u64,
    /// Requests under way at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=16384))]
    depth: u32,
    /// How many requests [default: the range once].
    #[arg(long)]
    count: Option<u64>,
    /// In random order, blocks drawn with replacement.
    #[arg(long)]
    random: bool,
    /// What the content and the random order follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Who looks for completions.
    #[arg(long, value_enum, default_value_t = Poll::No)]
    poll: Poll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Poll {
    /// Interrupts wake the thread.
    No,
    /// A kernel thread takes submissions (SQPOLL): no system calls, and a core gone.
    Thread,
    /// The device's completion queue is polled (IOPOLL): block devices with poll queues, and no iSCSI.
    Device,
}

impl Poll {
    fn ring(self) -> RingConfig {
        // So long without a request before the kernel's thread sleeps, in milliseconds.
        const IDLE_MS: u32 = 100;
        RingConfig {
            sqpoll_idle_ms: (self == Poll::Thread).then_some(IDLE_MS),
            iopoll: self == Poll::Device,
            ..RingConfig::default()
        }
    }
}

/// What data is made or expected.
#[derive(Args)]
struct Content {
    /// What is written, and expected by verify.
    #[arg(long, value_enum, default_value_t = Pattern::Seeded)]
    pattern: Pattern,
}

/// What is made of the data that goes by.
#[derive(Args)]
struct Sum {
    /// Checksum of the data in address order; not for random order. It costs processor time.
    #[arg(long, value_enum, default_value_t = Checksum::Sha256)]
    checksum: Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Random numbers from the seed and the offset.
    Seeded,
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
}

impl Pattern {
    fn with(self, seed: u64) -> seeded::Pattern {
        match self {
            Pattern::Seeded => seeded::Pattern::Seeded(seed),
            Pattern::Zeros => seeded::Pattern::Byte(0),
            Pattern::Ones => seeded::Pattern::Byte(0xff),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Checksum {
    /// What `sha256sum` prints for the same bytes.
    Sha256,
    None,
}

impl super::Subcommand for Io {
    const NAME: &'static str = "io";
    const NAMES_DEVICES: bool = true;
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt io info iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0", "what is behind an iSCSI URL"),
        ("brunt io write memory:1GiB --bs 1M --depth 8", "how fast memory takes data"),
        (
            "brunt io read iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --random --count 100000",
            "100,000 random reads of 4 KiB, 32 at a time",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        match self.action {
            Action::Read { range, sum, output: file } => {
                Run::new(range, Job::Read { file }, output)?.go(sum.checksum)
            }
            Action::Write { range, content, sum, input, fua, overwrite } => {
                let job = Job::Write { file: input, pattern: content.pattern, fua, overwrite };
                Run::new(range, job, output)?.go(sum.checksum)
            }
            Action::Verify { range, content } => {
                let job = Job::Verify { pattern: content.pattern };
                Run::new(range, job, output)?.go(Checksum::None)
            }
            Action::Info { url } => info::info(&url, output),
            Action::Targets { url } => info::targets(&url, output),
        }
    }
}
