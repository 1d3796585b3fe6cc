//! `brunt trace`: inspects block traces in all supported formats. `brunt-trace` reads them.

mod convert;
mod fit;
mod info;

use std::path::PathBuf;

use brunt_lake::LakeError;
use brunt_trace::{FORMATS, TraceError, TraceOpenError, TraceReader, TraceReading, format_named};
use brunt_unpack::PACKINGS;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Inspect and convert block traces
///
/// Formats: those of public traces (spc, msr, alibaba, tencent, vscsi, systor, fiu, k5cloud, dtb …) and of tools
/// (blktrace, blkparse, perf script, ftrace, biosnoop, fio's iologs, blkreplay, hfplayer, libCacheSim, DiskSim, MQSim);
/// plain, packed with gzip, zstd, xz, bzip2 or lz4, or in a tar or zip archive. docs/block-traces.md describes each format
/// and what it leaves unspecified.
#[derive(clap::Args)]
pub struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Info(info::InfoArgs),
    Convert(convert::ConvertArgs),
    Fit(fit::FitArgs),
}

/// How to read a trace.
#[derive(clap::Args)]
struct ReadArgs {
    /// Format, if it cannot be detected
    #[arg(long, value_name = "NAME", value_parser = names(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    #[command(flatten)]
    stated: TraceReading,
}

fn names(names: impl IntoIterator<Item = &'static str>) -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(names)
}

impl ReadArgs {
    /// Opens several traces as one.
    fn open(&self, files: &[PathBuf]) -> Result<TraceReader, Failure> {
        let format = self.format.as_deref().and_then(format_named);
        self.stated
            .open(files, format)
            .map_err(|error| match error {
                TraceOpenError::Reading(error) => {
                    Failure::usage(format!("--{}: {error}", error.key))
                }
                TraceOpenError::Trace(error) => failure(error),
            })
    }
}

impl Subcommand for Trace {
    const NAME: &'static str = "trace";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt trace info Financial1.spc.gz",
            "requests, duration, mix, sizes, rates, footprint",
        ),
        (
            "brunt trace info day.csv --format tencent --json",
            "describe a trace as JSON, with its format given",
        ),
        (
            "brunt trace convert sda.blktrace.0 --to iolog3 --out sda.iolog",
            "convert a blktrace recording for replay with fio",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        match self.what {
            What::Info(args) => info::run(&args, output),
            What::Convert(args) => convert::run(&args, output),
            What::Fit(args) => fit::run(&args, output),
        }
    }
}

/// Maps an error from reading a trace to an exit status and advice.
fn failure(error: TraceError) -> Failure {
    let format_names = || {
        FORMATS
            .iter()
            .map(|format| format.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match &error {
        TraceError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage(&error).advise("write the path of an existing trace")
        }
        TraceError::Write { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Failure::usage(&error).advise("choose another file, or remove this one")
        }
        TraceError::Lake(LakeError::Taken { .. }) => Failure::usage(&error),
        TraceError::TooManyCalls { .. } => Failure::failed(&error),
        TraceError::Io { .. } => Failure::failed(&error),
        TraceError::UnknownFormat { .. } => Failure::usage(&error).advise(format!(
            "set it with --format, or describe its columns with --columns; formats are {}, {PACKINGS}",
            format_names()
        )),
        TraceError::PacketCapture { path } => Failure::usage(&error).advise(format!(
            "'brunt analyze {path}' reports on its NFS and iSCSI traffic"
        )),
        TraceError::Doubtful { format, .. } => Failure::usage(&error).advise(format!(
            "if it is a trace, write --format {format}; otherwise describe its columns with --columns"
        )),
        TraceError::NoTraceInArchive { .. } => {
            Failure::usage(&error).advise("extract the file you want to read, or set --format")
        }
        TraceError::Write { .. } | TraceError::Lake(_) => Failure::failed(&error),
        TraceError::NoOperation { .. } => {
            Failure::usage(&error).advise("describe them with --op")
        }
        TraceError::NoColumns { .. } => Failure::usage(&error).advise("set it with --columns"),
        TraceError::Ambiguous { .. } => {
            Failure::usage(&error).advise("set it with --format")
        }
        TraceError::Damaged { .. } | TraceError::Cut { .. } => {
            Failure::usage(&error).advise("omit --strict to skip and count rows that cannot be read")
        }
    }
}
