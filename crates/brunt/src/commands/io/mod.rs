//! `brunt io`: a minimal client for a device: reads, writes or verifies a range, or prints the device's properties.
//! It is for trying out a target by hand, and for tests that need data with known content. This file defines the
//! arguments. [`run`] moves the data through [`brunt_load::transfer`], [`report`] prints the results, and [`info`]
//! queries the device without reading or writing data.

mod info;
mod report;
mod run;

use brunt_block::RingConfig;
use brunt_block::ring::engine;
use brunt_core::IoEngine;
use brunt_core::units::parse_size;
use brunt_load::block::seeded;
use clap::{Args, Subcommand, ValueEnum};

use super::engine::EngineFlag;
use crate::cli::{Done, Failure, Output};
use crate::devices::url_parser;
use run::{Job, Run};

/// Read, write or verify a range of a device, or show its properties.
#[derive(Args)]
pub struct Io {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Read a range; print throughput, latency and, if requested, a checksum.
    #[command(
        after_help = "Examples:\n  # copy the first GiB to a file and print its checksum\n  brunt io read iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --length 1GiB --bs 1M --output disk.img"
    )]
    Read {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        sum: Sum,
        /// Write the data to this file (`-`: standard output).
        #[arg(long, value_name = "FILE", conflicts_with = "random")]
        output: Option<String>,
    },
    /// Write a range with content generated from a seed, or read from a file.
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
        /// Write the content of this file (`-`: standard input); the last block is padded with zeros.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["random", "pattern"])]
        input: Option<String>,
        /// Set FUA: each write is on stable storage when it completes.
        #[arg(long)]
        fua: bool,
        /// Write even if the device contains a partition table or a file system.
        #[arg(long)]
        overwrite: bool,
    },
    /// Read a range and compare it with what `brunt io write` wrote with the same seed and pattern.
    #[command(
        after_help = "Examples:\n  # check what `brunt io write --seed 7` wrote\n  brunt io verify iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --seed 7"
    )]
    Verify {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        content: Content,
    },
    /// Print a device's size, block sizes, cache and other properties.
    #[command(
        alias = "capacity", // former name of `info`
        after_help = "Examples:\n  # show the properties of a LUN\n  brunt io info iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0"
    )]
    Info {
        /// Device URL.
        #[arg(value_parser = url_parser())]
        url: String,
    },
    /// List the targets behind an iSCSI portal (SendTargets), or the exports of an NBD server.
    #[command(
        after_help = "Examples:\n  # list target names and addresses\n  brunt io targets iscsi://127.0.0.1:3260\n  # list exports\n  brunt io targets nbd://127.0.0.1"
    )]
    Targets {
        /// `iscsi://[user%secret@]host[:port]`, `nbd://host[:port]` or `nbd+unix://?socket=PATH`.
        url: String,
    },
}

/// Which requests.
#[derive(Args)]
struct Range {
    /// Device URL: a path, null:SIZE, memory:SIZE, `iscsi://[user%secret@]host[:port]/target-name/lun`, `nbd://host[:port]/export` and others
    /// (see `brunt help devices`).
    #[arg(value_parser = url_parser())]
    url: String,
    /// Start of the range in bytes.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// Length of the range in bytes [default: to the end of the device].
    #[arg(long, value_parser = parse_size)]
    length: Option<u64>,
    /// Size of each request.
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    bs: u64,
    /// Queue depth: requests in flight.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=16384))]
    depth: u32,
    /// Number of requests [default: as many as cover the range once].
    #[arg(long)]
    count: Option<u64>,
    /// Access blocks in random order, drawn with replacement.
    #[arg(long)]
    random: bool,
    /// Seed for the content and for the random order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to detect completions.
    #[arg(long, value_enum, default_value_t = Poll::No)]
    poll: Poll,
    #[command(flatten)]
    engine: EngineFlag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Poll {
    /// By interrupt.
    No,
    /// A kernel thread polls for submissions (SQPOLL): no system calls, but it occupies a core.
    Thread,
    /// The device's completion queue is polled (IOPOLL): only for block devices with poll queues, not for iSCSI.
    Device,
}

impl Range {
    /// Sets the engine for all rings of this process.
    fn settle_engine(&self) -> Result<(), Failure> {
        self.engine.state()?;
        let flag = match self.poll {
            Poll::No => return Ok(()),
            Poll::Thread => "--poll thread",
            Poll::Device => "--poll device",
        };
        match engine::usual_engine() {
            Ok(IoEngine::IoUring) => Ok(()),
            _ => Err(Failure::usage(match engine::io_uring() {
                Ok(()) => format!("{flag} needs engine io_uring, but the engine is threads"),
                Err(why) => format!("{flag} needs engine io_uring: {why}"),
            })),
        }
    }
}

impl Poll {
    fn ring(self) -> RingConfig {
        // Idle time before the kernel's polling thread goes to sleep, in milliseconds.
        const IDLE_MS: u32 = 100;
        RingConfig {
            sqpoll_idle_ms: (self == Poll::Thread).then_some(IDLE_MS),
            iopoll: self == Poll::Device,
            ..RingConfig::default()
        }
    }
}

/// The data to generate or expect.
#[derive(Args)]
struct Content {
    /// The data to write; for verify, the data to expect.
    #[arg(long, value_enum, default_value_t = Pattern::Seeded)]
    pattern: Pattern,
}

/// What to compute from the transferred data.
#[derive(Args)]
struct Sum {
    /// Checksum of the data in address order; not available with random order. Computing it costs processor time.
    #[arg(long, value_enum, default_value_t = Checksum::Sha256)]
    checksum: Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Random numbers generated from the seed and the offset.
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
    /// The value that `sha256sum` prints for these bytes.
    Sha256,
    None,
}

impl super::Subcommand for Io {
    const NAME: &'static str = "io";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt io info iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0",
            "show the properties of an iSCSI LUN",
        ),
        (
            "brunt io write memory:1GiB --bs 1M --depth 8",
            "measure sequential writes to memory",
        ),
        (
            "brunt io read iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --random --count 100000",
            "make 100,000 random reads of 4 KiB at queue depth 32",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        match self.action {
            Action::Read {
                range,
                sum,
                output: file,
            } => Run::new(range, Job::Read { file }, output)?.go(sum.checksum),
            Action::Write {
                range,
                content,
                sum,
                input,
                fua,
                overwrite,
            } => {
                let job = Job::Write {
                    file: input,
                    pattern: content.pattern,
                    fua,
                    overwrite,
                };
                Run::new(range, job, output)?.go(sum.checksum)
            }
            Action::Verify { range, content } => {
                let job = Job::Verify {
                    pattern: content.pattern,
                };
                Run::new(range, job, output)?.go(Checksum::None)
            }
            Action::Info { url } => info::info(&url, output),
            Action::Targets { url } => info::targets(&url, output),
        }
    }
}
