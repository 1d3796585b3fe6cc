//! `brunt trace`: inspects block traces in all supported formats. `brunt-trace` reads them.

mod convert;
mod fit;
mod info;

use brunt_core::Size;
use brunt_lake::LakeError;
use brunt_trace::{
    ColumnMap, FORMATS, FormatOptions, ReadOptions, TraceError, TraceOp, TracedEvent, format_named,
};
use brunt_unpack::PACKINGS;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Inspect and convert block traces
///
/// Formats: those of public traces (spc, msr, alibaba, tencent, vscsi, systor, fiu, k5cloud, dtb …) and of tools
/// (blktrace, blkparse, fio's iologs, blkreplay, hfplayer, libCacheSim); plain, gzip, zstd or xz. docs/block-traces.md
/// describes each format and what it leaves unspecified.
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

/// How a trace is to be read.
#[derive(clap::Args)]
struct ReadArgs {
    /// Format, if it cannot be detected
    #[arg(long, value_name = "NAME", value_parser = names(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    /// Stop at the first malformed row instead of skipping and counting malformed rows
    #[arg(long)]
    strict: bool,
    /// Sort requests by time within a window of 65,536 requests; by default they stay in file order
    #[arg(long)]
    sort: bool,
    /// Operation of every request, for formats that record none (libCacheSim)
    #[arg(long, value_name = "OP", value_parser = names(["read", "write"]))]
    op: Option<String>,
    /// Block size, for formats that do not record it (SPC, libCacheSim)
    #[arg(long, value_name = "SIZE", default_value = "512")]
    block: Size,
    /// What the columns of a csv mean, as in libCacheSim: "time-col=2, obj-id-col=5, obj-size-col=4, op-col=3";
    /// implies --format csv
    #[arg(long, value_name = "COLUMNS", value_parser = ColumnMap::parse)]
    columns: Option<ColumnMap>,
    /// Jiffies per second of the kernel that recorded the trace (DTB)
    #[arg(long, value_name = "HZ", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    jiffies: u32,
    /// Event that counts as the request (blktrace)
    #[arg(long, value_name = "STEP", default_value = "dispatched", value_parser = names(TracedEvent::NAMES.map(|(name, _)| name)))]
    event: String,
}

fn names(names: impl IntoIterator<Item = &'static str>) -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(names)
}

impl ReadArgs {
    fn options(&self) -> Result<ReadOptions, Failure> {
        let block_bytes = u32::try_from(self.block.0).ok().filter(|bytes| *bytes > 0);
        let event = TracedEvent::NAMES.iter().find(|(name, _)| *name == self.event);
        let op = match self.op.as_deref() {
            Some("read") => Some(TraceOp::Read),
            Some(_) => Some(TraceOp::Write),
            None => None,
        };
        let format = match (&self.format, self.columns) {
            (None, None) => None,
            (None, Some(_)) => format_named("csv"),
            (Some(name), columns) => {
                let format = format_named(name);
                if columns.is_some() && format.is_some_and(|format| !format.needs_columns) {
                    return Err(Failure::usage(format!("{name} has its own columns; leave out --columns")));
                }
                format
            }
        };
        Ok(ReadOptions {
            format,
            strict: self.strict,
            sorted: self.sort,
            options: FormatOptions {
                block_bytes: block_bytes
                    .ok_or_else(|| Failure::usage("--block is at least 1 and below 4GiB"))?,
                jiffies_per_s: self.jiffies,
                event: event.map(|(_, event)| *event).unwrap_or_default(),
                op,
                columns: self.columns,
            },
        })
    }
}

impl Subcommand for Trace {
    const NAME: &'static str = "trace";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt trace info Financial1.spc.gz", "requests, duration, mix, sizes, rates, footprint"),
        ("brunt trace info day.csv --format tencent --json", "the same as JSON, with the format given"),
        ("brunt trace convert sda.blktrace.0 --to iolog3 --out sda.iolog", "a blktrace as fio replays it"),
    ];

    fn run(self, output: &Output) -> Done {
        match self.what {
            What::Info(args) => info::run(&args, output),
            What::Convert(args) => convert::run(&args, output),
            What::Fit(args) => fit::run(&args, output),
        }
    }
}

/// What a trace that cannot be read means for the exit status, and what can be done.
fn failure(error: TraceError) -> Failure {
    let format_names = || FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
    match &error {
        TraceError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage(&error).advise("write the path of a trace that exists")
        }
        TraceError::Write { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Failure::usage(&error).advise("choose another file, or remove that one")
        }
        TraceError::Lake(LakeError::Taken { .. }) => Failure::usage(&error),
        TraceError::Io { .. } => Failure::failed(&error),
        TraceError::UnknownFormat { .. } => Failure::usage(&error)
            .advise(format!("say which it is with --format; there are {}, {PACKINGS}", format_names())),
        TraceError::Write { .. } | TraceError::Lake(_) => Failure::failed(&error),
        TraceError::NoOperation { .. } => Failure::usage(&error).advise("say what they do with --op"),
        TraceError::NoColumns { .. } => Failure::usage(&error).advise("say it with --columns"),
        TraceError::Ambiguous { .. } => Failure::usage(&error).advise("say which it is with --format"),
        TraceError::Damaged { .. } => {
            Failure::usage(&error).advise("leave out --strict to skip and count such rows")
        }
    }
}
