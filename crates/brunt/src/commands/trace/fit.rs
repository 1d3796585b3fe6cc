//! `brunt trace fit`: fits a model to a trace.

use std::io::Write;
use std::path::PathBuf;

use brunt_capture::trace::{is_trace, sizer};
use brunt_trace::{ModelDistance, ModelFitter, Summarizer, TraceError};

use super::{ReadArgs, failure};
use crate::cli::{Done, Failure, Output};

/// Fit a model to a trace: an experiment that represents it, and a profile for sizing tools
///
/// Each part of the model (mix, sizes, sequential runs, arrivals, locality, reuse) comes with its distance from the trace.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # an experiment to share instead of the trace\n  brunt trace fit Financial1.spc.gz \
                  --out financial1.toml"
)]
pub struct FitArgs {
    /// Trace file; `-` reads standard input
    file: PathBuf,
    /// Write the experiment to this file, which must not exist yet
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
}

/// Reads the trace and writes its model.
pub fn run(args: &FitArgs, output: &Output) -> Done {
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
    if args.file.is_dir() && is_trace(&args.file) {
        let sizer = sizer(&args.file, &mut || output.is_interrupted()).map_err(Failure::failed)?;
        model.sizer =
            sizer.ok_or_else(|| Failure::failed("interrupted before the trace was read again"))?;
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
    let sizer = &model.sizer;
    let share = |share: Option<f64>| {
        share.map_or_else(|| "-".to_string(), |share| format!("{:.1}", share * 100.0))
    };
    let mean = sizer
        .mean_per_s
        .map_or_else(|| "-".to_string(), |rate| format!("{rate:.1}/s"));
    output.line(format_args!(
        "sizer        {mean} on average, {}/s at most; random reads {} % over {} bytes, random writes {} %",
        sizer.peak_per_s,
        share(sizer.random_read),
        sizer.random_read_working_set_bytes,
        share(sizer.random_write),
    ));
    output.object(&serde_json::to_value(&model).map_err(Failure::failed)?);
    Ok(())
}
