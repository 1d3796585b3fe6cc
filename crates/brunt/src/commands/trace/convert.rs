//! `brunt trace convert`: converts traces to other formats, and extracts slices of them.

use std::path::PathBuf;
use std::time::Duration;

use brunt_core::units::format_grouped;
use brunt_core::{LeftOutTransfers, Span};
use brunt_trace::{
    DeviceExtents, DigestBuilder, TraceError, TraceReader, TraceSink, Transform, TransformLedger,
    TransformOptions, WRITERS, WriteLedger, writer_named,
};
use serde::Serialize;

use super::{ReadArgs, failure, names};
use crate::cli::{Done, Failure, Output};

/// The name of the Parquet format.
const PARQUET: &str = "parquet";

/// Convert traces to another format; slice, merge, scale or anonymize them
///
/// Several traces are merged by time, and devices with the same name become one device. Requests that the output
/// format cannot express are left out and counted.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # convert to Parquet, for SQL and for replay\n  brunt trace convert \
     Financial1.spc.gz --to parquet --out financial1\n\n  # extract a minute of one volume, for fio\n  brunt \
     trace convert day.csv.gz --from 1h --for 1m --device 1063 --to iolog3 --out minute.iolog"
)]
pub struct ConvertArgs {
    /// Trace files, or `-` for standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", value_parser = names(std::iter::once(PARQUET).chain(WRITERS.iter().map(|writer| writer.name))))]
    to: String,
    /// Output file (for parquet, folder), which must not exist yet
    #[arg(long, short, value_name = "PATH")]
    out: PathBuf,
    #[command(flatten)]
    slice: SliceArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// Which requests of a trace to convert, and how to change them.
#[derive(clap::Args)]
struct SliceArgs {
    /// Skip requests before this time, counted from the first request
    #[arg(long, value_name = "TIME")]
    from: Option<Span>,
    /// Keep requests for this long
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Keep this device; may be repeated
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// Keep this fraction of the addresses (0 to 1), in extents of 1 MiB
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    share: f64,
    /// Concatenate all devices into one; reads the traces twice
    #[arg(long)]
    merge_devices: bool,
    /// Divide times by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Multiply addresses by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Replace device names with numbers, start times at 0 and hide content hashes; addresses and sizes are kept
    #[arg(long)]
    anonymize: bool,
}

impl SliceArgs {
    fn options(&self) -> Result<TransformOptions, Failure> {
        for (name, value, most) in [
            ("--share", self.share, 1.0),
            ("--speed", self.speed, f64::MAX),
            ("--scale", self.scale, f64::MAX),
        ] {
            if !(value > 0.0 && value <= most) {
                let upper = if most == 1.0 { " and at most 1" } else { "" };
                return Err(Failure::usage(format!("{name} is above 0{upper}")));
            }
        }
        Ok(TransformOptions {
            from: self.from.map_or(Duration::ZERO, |from| from.0),
            length: self.length.map(|length| length.0),
            devices: self.devices.clone(),
            share: self.share,
            merged: None,
            speed: self.speed,
            scale: self.scale,
            anonymize: self.anonymize,
        })
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Converted {
    /// Requests read.
    requests: u64,
    damaged: u64,
    /// Requests in a captured trace that transferred no data.
    moved_nothing: LeftOutTransfers,
    /// SCSI commands whose FUA bit or extents are unknown.
    details_dropped: u64,
    #[serde(flatten)]
    left_out: TransformLedger,
    #[serde(flatten)]
    ledger: WriteLedger,
    /// Digest of the requests that are written.
    digest: brunt_trace::StreamDigest,
}

/// Converts the traces.
pub fn run(args: &ConvertArgs, output: &Output) -> Done {
    let mut options = args.slice.options()?;
    if args.slice.merge_devices {
        if args.files.iter().any(|file| file.as_os_str() == "-") {
            return Err(Failure::usage(
                "--merge-devices reads the traces twice, which is impossible with standard input",
            ));
        }
        let mut extents = DeviceExtents::default();
        each(args, output, |reader| {
            extents.add(reader.requests());
            Ok(())
        })?;
        options.merged = Some(extents.begins());
    }
    let mut sink = sink(args).map_err(failure)?;
    let (mut transform, mut digest) = (Transform::new(options), DigestBuilder::default());
    let reader = each(args, output, |reader| {
        transform.apply(reader.requests(), reader.devices());
        digest.add(transform.requests());
        sink.write(transform.requests(), transform.devices())
    })?;
    let ledger = sink.finish(transform.devices()).map_err(failure)?;
    reader.notes().iter().for_each(|note| output.note(note));
    let read = reader.ledger();
    let converted = Converted {
        requests: read.requests,
        damaged: read.damaged,
        moved_nothing: read.left_out,
        details_dropped: read.details_dropped,
        left_out: transform.ledger(),
        ledger,
        digest: digest.finish(),
    };
    print(&converted, output);
    output.object(&serde_json::to_value(&converted).map_err(Failure::failed)?);
    Ok(())
}

/// Reads the traces to the end.
fn each(
    args: &ConvertArgs,
    output: &Output,
    mut each: impl FnMut(&TraceReader) -> Result<(), TraceError>,
) -> Result<TraceReader, Failure> {
    let mut reader = args.read.open(&args.files)?;
    while reader.next_requests().map_err(failure)?.is_some() {
        each(&reader).map_err(failure)?;
        if output.is_interrupted() {
            return Err(Failure::failed("interrupted before the trace was read"));
        }
    }
    Ok(reader)
}

fn sink(args: &ConvertArgs) -> Result<TraceSink, TraceError> {
    if args.to == PARQUET {
        return TraceSink::table(&args.out);
    }
    let writer = writer_named(&args.to).expect("clap accepts only known formats");
    let path = args.out.display().to_string();
    let file = std::fs::File::create_new(&args.out);
    let file = file.map_err(|source| TraceError::Write {
        path: path.clone(),
        source,
    })?;
    Ok(TraceSink::file(path, Box::new(file), writer))
}

fn print(converted: &Converted, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    output.line(format_args!(
        "wrote        {} of {} requests",
        count(converted.ledger.written),
        count(converted.requests)
    ));
    let Converted {
        left_out, ledger, ..
    } = converted;
    for (number, why) in [
        (converted.damaged, "not readable"),
        (left_out.outside_time, "outside the requested time"),
        (left_out.other_devices, "of other devices"),
        (
            left_out.not_in_share,
            "outside the requested fraction of the addresses",
        ),
        (left_out.too_far, "with an address or time beyond 64 bits"),
        (
            ledger.left_out_operation,
            "with an operation that the format lacks",
        ),
        (
            ledger.left_out_unaligned,
            "whose address or length is not a whole number of the format's blocks",
        ),
        (
            ledger.left_out_device,
            "for devices other than the first, since the format supports only one",
        ),
    ] {
        if number > 0 {
            output.line(format_args!("left out     {} {why}", count(number)));
        }
    }
    for (why, number) in converted.moved_nothing.reasons() {
        output.line(format_args!("left out     {} {why}", count(number)));
    }
    if converted.details_dropped > 0 {
        let dropped = count(converted.details_dropped);
        output.line(format_args!(
            "dropped      details of {dropped} commands (FUA, extents of UNMAP): their requests arrived too late"
        ));
    }
    output.line(format_args!(
        "digest       {} (times {})",
        converted.digest.requests, converted.digest.times
    ));
}
