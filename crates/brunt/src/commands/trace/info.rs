//! `brunt trace info`: describes the contents of a trace.

use std::path::PathBuf;

use brunt_core::units::{counted, format_grouped, format_size};
use brunt_trace::{Summarizer, TraceInfo};

use super::{ReadArgs, failure};
use crate::cli::{Done, Failure, Output};

/// Summarize a trace: requests, duration, read/write mix, sizes, rates, footprint
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # requests, duration, mix, sizes, rates, footprint\n  brunt trace info Financial1.spc.gz\n\n  # the events that blktrace recorded on all CPUs\n  brunt trace info sda.blktrace.0\n\n  # a page with charts\n  brunt trace info Financial1.spc.gz --html financial1.html"
)]
pub struct InfoArgs {
    /// Trace file; `-` reads standard input
    file: PathBuf,
    /// Also write the figures as one self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
}

/// Reads the trace and prints its figures.
pub fn run(args: &InfoArgs, output: &Output) -> Done {
    let mut reader = args.read.open(std::slice::from_ref(&args.file))?;
    let mut summarizer = Summarizer::default();
    while let Some(requests) = reader.next_requests().map_err(failure)? {
        summarizer.add(requests);
        if output.is_interrupted() {
            return Err(Failure::failed("interrupted before the trace was read"));
        }
    }
    let info = summarizer.finish(&reader);
    print(&info, output);
    reader.notes().iter().for_each(|note| output.note(note));
    if let Some(html) = &args.html {
        let name = crate::plain::file_label(&args.file);
        let page = brunt_report::trace::page(&info, &name, env!("CARGO_PKG_VERSION"));
        std::fs::write(html, brunt_report::html::render(&page))
            .map_err(|error| Failure::failed(format!("{}: {error}", html.display())))?;
        output.line(format_args!("\nreport in {}", html.display()));
    }
    let mut object = serde_json::to_value(&info).map_err(Failure::failed)?;
    object["notes"] = reader.notes().into();
    output.object(&object);
    nothing_read(&info)
}

/// A trace without requests is a failure, because the user expected some.
fn nothing_read(info: &TraceInfo) -> Done {
    let ledger = &info.ledger;
    if ledger.requests > 0 {
        return Ok(());
    }
    let why = match (ledger.damaged, ledger.left_out.total()) {
        (0, 0) => "it contains none".to_string(),
        (0, _) => format!("{}: they moved no data", ledger.left_out),
        (damaged, _) => format!("{} cannot be read", counted(damaged as usize, "row")),
    };
    Err(Failure::failed(format!(
        "no requests were read as {}: {why}",
        info.format
    )))
}

fn print(info: &TraceInfo, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    output.line(format_args!("format       {}", info.format));
    if !info.format_note.is_empty() {
        output.line(format_args!("             {}", info.format_note));
    }
    output.line(format_args!(
        "requests     {} in {:.3} s",
        count(info.ledger.requests),
        info.span_s
    ));
    if let Some(first) = info.ledger.damaged_first {
        output.line(match info.ledger.damaged {
            1 => format!("damaged      row {first} was skipped"),
            damaged => format!(
                "damaged      {} rows were skipped, the first is row {first}",
                count(damaged)
            ),
        });
    }
    if info.ledger.left_out.total() > 0 {
        output.line(format_args!(
            "left out     {}: they moved no data",
            info.ledger.left_out
        ));
    }
    if info.ledger.details_dropped > 0 {
        output.line(format_args!(
            "dropped      details of {} (FUA, extents of UNMAP): their requests arrived too late",
            counted(info.ledger.details_dropped as usize, "command")
        ));
    }
    if info.ledger.backwards > 0 {
        let backwards = match info.ledger.backwards {
            1 => "1 time is earlier than the one before it".to_string(),
            backwards => format!(
                "{} times are each earlier than the one before",
                count(backwards)
            ),
        };
        let order = match (info.sorted, info.ledger.out_of_order) {
            (false, _) => "kept in the order of the file; --sort sorts them".to_string(),
            (true, 0) => "sorted".to_string(),
            (true, late) => format!("sorted, except for {} that arrived too late", count(late)),
        };
        output.line(format_args!("backwards    {backwards} ({order})"));
    }
    if info.ledger.repeated > 0 {
        output.line(match info.ledger.repeated {
            1 => "repeated     1 write repeats a single block".to_string(),
            repeated => {
                format!(
                    "repeated     {} writes repeat a single block each",
                    count(repeated)
                )
            }
        });
    }
    if let Some(events) = info.ledger.events {
        let (merges, splits, others) = (
            count(events.merges),
            count(events.splits),
            count(events.others),
        );
        output.line(format_args!(
            "events       {merges} merges, {splits} splits, {others} other events"
        ));
    }
    figures(info, output);
}

fn figures(info: &TraceInfo, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    let more = if info.devices > info.device_names.len() as u64 {
        ", …"
    } else {
        ""
    };
    output.line(format_args!(
        "devices      {}: {}{more}",
        count(info.devices),
        info.device_names.join(", ")
    ));
    for (op, counted) in &info.ops {
        let share = counted.requests as f64 / info.ledger.requests.max(1) as f64 * 100.0;
        let (requests, bytes) = (count(counted.requests), format_size(counted.bytes));
        output.line(format_args!(
            "{:<12} {requests} ({share:.1} %), {bytes}",
            op.name()
        ));
    }
    let sizes: Vec<String> = info
        .sizes
        .iter()
        .map(|size| format!("{} × {}", format_size(size.bytes), count(size.requests)))
        .collect();
    if !sizes.is_empty() {
        output.line(format_args!("sizes        {}", sizes.join(", ")));
    }
    let mean = info
        .rate
        .mean_per_s
        .map_or_else(|| "-".to_string(), |rate| format!("{rate:.1}/s"));
    output.line(format_args!(
        "rate         {mean} on average, at most {} in a second",
        count(info.rate.peak_per_s)
    ));
    if let Some(dispersion) = info.rate.dispersion {
        output.line(format_args!(
            "burstiness   {dispersion:.1} (variance over mean of the requests per second; Poisson: 1)"
        ));
    }
    if !info.sizes.is_empty() {
        locality(info, output);
    }
    answers(info, output);
    output.line(format_args!(
        "digest       {} (times {})",
        info.digest.requests, info.digest.times
    ));
}

fn locality(info: &TraceInfo, output: &Output) {
    let count = |count: u64| format_grouped(count as f64);
    let (bytes, end) = (
        format_size(info.footprint.bytes),
        format_size(info.footprint.end_bytes),
    );
    let error = info.footprint.standard_error * 100.0;
    output.line(format_args!(
        "footprint    {bytes} ± {error:.1} % in blocks of 4 KiB, up to {end}"
    ));
    if let Some(share) = info.sequential_share {
        output.line(format_args!(
            "sequential   {:.1} % begin where the previous request ended",
            share * 100.0
        ));
    }
    if let Some(mean) = info.runs.mean_requests {
        let longest = count(info.runs.longest_requests);
        output.line(format_args!(
            "runs         {mean:.2} requests on average, longest {longest}"
        ));
    }
    let hot = info.hot_extents.iter().take(3).map(|hot| {
        let at = format_size(hot.offset_bytes);
        format!(
            "{} at {at} of device {}",
            count(hot.requests),
            hot.device_name
        )
    });
    let hot = hot.collect::<Vec<_>>().join(", ");
    output.line(format_args!(
        "hot          {hot} (requests to an extent of 1 MiB)"
    ));
    if let Some(largest) = info.working_sets.iter().max_by_key(|set| set.bytes) {
        let (bytes, from) = (format_size(largest.bytes), largest.from_s);
        output.line(format_args!(
            "working set  peak {bytes} in {:.0} s, from {from:.0} s on",
            largest.for_s
        ));
    }
    if let Some(reuse) = &info.reuse {
        let first = reuse.first_use_share * 100.0;
        let error = reuse.standard_error * 100.0;
        let median = reuse.median_bytes.map_or_else(
            || "hardly any block is accessed again".to_string(),
            |median| {
                format!(
                    "the median reuse distance is at most {}",
                    format_size(median)
                )
            },
        );
        output.line(format_args!(
            "reuse        {first:.1} % of block accesses are the first to their block; {median} (shares ± {error:.1} %)"
        ));
    }
}

/// Prints what is known about responses.
fn answers(info: &TraceInfo, output: &Output) {
    if let Some(depth) = info.depth {
        let (mean, p99, max) = (depth.mean, depth.p99, depth.max);
        output.line(format_args!(
            "depth        {mean:.1} in flight on average when one is sent, including itself, p99 {p99}, peak {max}"
        ));
    }
    if let Some(response) = info.response {
        output.line(format_args!(
            "response     mean {:.1} µs, median {:.1} µs, p99 {:.1} µs, max {:.1} µs ({})",
            response.mean_us,
            response.p50_us,
            response.p99_us,
            response.max_us,
            counted(response.requests as usize, "request")
        ));
    }
}
