//! `brunt trace`: inspects block traces in all supported formats. `brunt-trace` reads them.

use std::path::PathBuf;

use brunt_core::units::{format_grouped, format_size};
use brunt_trace::{FORMATS, Summarizer, TraceError, TraceInfo, TraceReader, format_named};

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Inspect block traces
///
/// Formats: blkreplay, vscsi1 and vscsi2 (CloudPhysics), spc (UMass), msr (MSR Cambridge), alibaba, tencent; plain,
/// gzip or zstd. docs/block-traces.md describes each format and what it leaves unspecified.
#[derive(clap::Args)]
pub struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Info(InfoArgs),
}

/// Summarize a trace: requests, duration, read/write mix, sizes, rates, footprint
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # requests, duration, mix, sizes, rates, footprint\n  brunt trace info Financial1.spc.gz"
)]
struct InfoArgs {
    /// Trace file; `-` reads standard input
    file: PathBuf,
    /// Format, if it cannot be detected
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    /// Stop at the first malformed row instead of skipping and counting malformed rows
    #[arg(long)]
    strict: bool,
}

impl Subcommand for Trace {
    const NAME: &'static str = "trace";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt trace info Financial1.spc.gz", "requests, duration, mix, sizes, rates, footprint"),
        ("brunt trace info day.csv --format tencent --json", "the same as JSON, with the format given"),
    ];

    fn run(self, output: &Output) -> Done {
        let What::Info(args) = self.what;
        let format = args.format.as_deref().and_then(format_named);
        let mut reader = TraceReader::open(&args.file, format, args.strict).map_err(failure)?;
        let mut summarizer = Summarizer::default();
        while let Some(requests) = reader.next_requests().map_err(failure)? {
            summarizer.add(requests);
            if output.is_interrupted() {
                return Err(Failure::failed("interrupted before the trace was read"));
            }
        }
        let info = summarizer.finish(reader.format(), reader.ledger(), reader.devices());
        print(&info, output);
        output.object(&serde_json::to_value(&info).map_err(Failure::failed)?);
        Ok(())
    }
}

/// What a trace that cannot be read means for the exit status, and what can be done.
fn failure(error: TraceError) -> Failure {
    let names = || FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
    match &error {
        TraceError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage(&error).advise("write the path of a trace that exists")
        }
        TraceError::Io { .. } => Failure::failed(&error),
        TraceError::UnknownFormat { .. } => Failure::usage(&error)
            .advise(format!("say which it is with --format; there are {}, plain, gzip or zstd", names())),
        TraceError::Ambiguous { .. } => Failure::usage(&error).advise("say which it is with --format"),
        TraceError::Damaged { .. } => {
            Failure::usage(&error).advise("leave out --strict to skip and count such rows")
        }
    }
}

fn print(info: &TraceInfo, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    output.line(format_args!("format       {}", info.format));
    if !info.format_note.is_empty() {
        output.line(format_args!("             {}", info.format_note));
    }
    output.line(format_args!("requests     {} in {:.3} s", count(info.ledger.requests), info.span_s));
    if let Some(first) = info.ledger.damaged_first {
        let damaged = count(info.ledger.damaged);
        output.line(format_args!("damaged      {damaged} rows were skipped, the first is row {first}"));
    }
    if info.ledger.backwards > 0 {
        let backwards = count(info.ledger.backwards);
        output.line(format_args!(
            "backwards    {backwards} times are before the one before them (kept in order)"
        ));
    }
    output.line(format_args!("devices      {}", count(info.devices)));
    for (op, counted) in &info.ops {
        let share = counted.requests as f64 / info.ledger.requests.max(1) as f64 * 100.0;
        let (requests, bytes) = (count(counted.requests), format_size(counted.bytes));
        output.line(format_args!("{:<12} {requests} ({share:.1} %), {bytes}", op.name()));
    }
    let sizes: Vec<String> = info
        .sizes
        .iter()
        .map(|size| format!("{} × {}", format_size(size.bytes), count(size.requests)))
        .collect();
    output.line(format_args!("sizes        {}", sizes.join(", ")));
    let mean = info.rate.mean_per_s.map_or_else(|| "-".to_string(), |rate| format!("{rate:.1}/s"));
    output.line(format_args!(
        "rate         {mean} on average, at most {} in a second",
        count(info.rate.peak_per_s)
    ));
    if let Some(dispersion) = info.rate.dispersion {
        output.line(format_args!(
            "burstiness   {dispersion:.1} (variance over mean of a second's requests; Poisson: 1)"
        ));
    }
    let (bytes, end) = (format_size(info.footprint.bytes), format_size(info.footprint.end_bytes));
    let error = info.footprint.standard_error * 100.0;
    output.line(format_args!("footprint    {bytes} ± {error:.1} % in blocks of 4 KiB, up to {end}"));
    output.line(format_args!(
        "sequential   {:.1} % begin where the one before ended",
        info.sequential_share * 100.0
    ));
    if let Some(response) = info.response {
        output.line(format_args!(
            "response     mean {:.1} µs, median {:.1} µs, p99 {:.1} µs, max {:.1} µs ({} requests)",
            response.mean_us,
            response.p50_us,
            response.p99_us,
            response.max_us,
            count(response.requests)
        ));
    }
}
