//! `brunt trace fit`: fits a model to a trace.

use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;

use brunt_capture::trace::{TraceSizer, is_trace, sizer};
use brunt_core::SizerProfile;
use brunt_core::quantity::Span;
use brunt_trace::{ModelDistance, ModelFitter, Summarizer, TraceError};

use super::{ReadArgs, failure};
use crate::cli::{Done, Failure, Output};

/// Fit a model to a trace: an experiment that represents it, and a profile for sizing tools
///
/// Each part of the model (mix, sizes, sequential runs, arrivals, locality, reuse) is reported with its distance from
/// the trace.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # an experiment to share instead of the trace\n  brunt trace fit Financial1.spc.gz \
                  --out financial1.toml\n  # the profile of each server in each hour, from a captured trace\n  brunt \
                  --json trace fit DIR --window 1h"
)]
pub struct FitArgs {
    /// Trace file; `-` reads standard input
    file: PathBuf,
    /// Write the experiment to this file, which must not exist yet
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also print, for a captured trace, each server's profile for sizing tools in each window of this length
    #[arg(long, value_name = "TIME")]
    window: Option<Span>,
    #[command(flatten)]
    read: ReadArgs,
}

/// Reads the trace and writes its model.
pub fn run(args: &FitArgs, output: &Output) -> Done {
    let width_ns = args.width_ns()?;
    let mut reader = args.read.open(std::slice::from_ref(&args.file))?;
    let (mut summarizer, mut fitter) = (Summarizer::default(), ModelFitter::default());
    while reader.next_requests().map_err(failure)?.is_some() {
        summarizer.add(reader.requests());
        fitter.add(reader.requests());
        if output.is_interrupted() {
            return Err(Failure::failed("interrupted before the trace was read"));
        }
    }
    let info = summarizer.finish(&reader);
    let mut model = fitter.finish(&info).ok_or_else(|| {
        Failure::failed(
            "the trace has no reads or writes, or all of them at the same time, so no model can be fitted",
        )
    })?;
    let mut captured = None;
    if args.is_captured() {
        let sizer = sizer(&args.file, width_ns, &mut || output.is_interrupted());
        let sizer = sizer.map_err(Failure::failed)?;
        let sizer =
            sizer.ok_or_else(|| Failure::failed("interrupted before the trace was read again"))?;
        model.sizer = sizer.whole;
        captured = Some(sizer);
    }
    if let Some(out) = &args.out {
        let name = args
            .file
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        let written = std::fs::File::create_new(out)
            .and_then(|mut file| file.write_all(model.experiment(&name).as_bytes()));
        let path = out.display().to_string();
        written.map_err(|source| failure(TraceError::Write { path, source }))?;
    }
    for ModelDistance {
        part,
        distance,
        measure,
    } in &model.distances
    {
        output.line(format_args!("{part:<12} {distance:.4} ({measure})"));
    }
    output.line(format_args!("sizer        {}", line(&model.sizer)));
    let mut object = serde_json::to_value(&model).map_err(Failure::failed)?;
    if let Some(TraceSizer {
        servers, windows, ..
    }) = &captured
    {
        for of in servers {
            let name = of.server.as_deref().unwrap_or("other servers");
            output.line(format_args!("  {name}: {}", line(&of.sizer)));
        }
        for of in windows {
            let from = brunt_report::format::date_time((of.window_from_ns / 1_000_000_000) as i64);
            let name = of.server.server.as_deref().unwrap_or("other servers");
            output.line(format_args!("  {from} {name}: {}", line(&of.server.sizer)));
        }
        object["sizer_by_server"] = serde_json::to_value(servers).map_err(Failure::failed)?;
        if width_ns.is_some() {
            object["sizer_by_window"] = serde_json::to_value(windows).map_err(Failure::failed)?;
        }
    }
    output.object(&object);
    Ok(())
}

impl FitArgs {
    fn is_captured(&self) -> bool {
        self.file.is_dir() && is_trace(&self.file)
    }

    fn width_ns(&self) -> Result<Option<NonZeroU64>, Failure> {
        let Some(width) = self.window else {
            return Ok(None);
        };
        if width.0.as_secs() < 1 {
            return Err(Failure::usage("--window must be at least 1s"));
        }
        match self.is_captured() {
            true => Ok(NonZeroU64::new(width.0.as_nanos() as u64)),
            false => Err(Failure::usage(
                "--window needs the folder of a trace saved by `brunt capture --out`: other traces do not name servers",
            )),
        }
    }
}

/// A profile as one line.
fn line(sizer: &SizerProfile) -> String {
    let share = |share: Option<f64>| {
        share.map_or_else(|| "-".to_string(), |share| format!("{:.1}", share * 100.0))
    };
    let mean = sizer
        .mean_per_s
        .map_or_else(|| "-".to_string(), |rate| format!("{rate:.1}/s"));
    format!(
        "{mean} on average, peak {}/s; random reads {} % over {} bytes, random writes {} %",
        sizer.peak_per_s,
        share(sizer.random_read),
        sizer.random_read_working_set_bytes,
        share(sizer.random_write),
    )
}
