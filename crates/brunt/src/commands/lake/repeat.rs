//! `brunt lake repeat`: makes a large lake from copies of a small trace, to measure the cost of queries.

use std::path::PathBuf;
use std::time::Instant;

use brunt_capture::trace::repeat::{RepeatError, repeat};
use brunt_lake::LakeError;
use serde_json::json;

use super::WriteArgs;
use crate::cli::{Done, Failure, Output};

/// Make a large lake from copies of a small trace, to measure the cost of queries
///
/// Each copy is later than the previous one, and its requests have new ids; servers, clients, files and names are
/// those of the trace. docs/scale.md has such measurements.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # a large lake for measurements\n  brunt lake repeat DIR --rows 2000000000 --out LAKE"
)]
pub struct RepeatArgs {
    /// Folder of the trace, which covers at most one hour.
    trace: PathBuf,
    /// Minimum number of rows in all tables together.
    #[arg(long, value_name = "COUNT")]
    rows: u64,
    /// Folder of the lake, which must be new.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

pub fn run(args: &RepeatArgs, output: &Output) -> Done {
    let begun = Instant::now();
    let counts = repeat(
        &args.out,
        &args.trace,
        args.rows,
        &args.write.options(&args.out),
        output.interrupt_flag(),
    )
    .map_err(failure)?;
    let seconds = begun.elapsed().as_secs_f64();
    let rows_per_second = counts.rows as f64 / seconds;
    output.line(format_args!(
        "copies      {}, one every {} s",
        counts.copies, counts.period_seconds
    ));
    output.line(format_args!("rows        {}", counts.rows));
    output.line(format_args!(
        "written     {} parts, {} bytes",
        counts.parts, counts.bytes
    ));
    output.line(format_args!(
        "took        {seconds:.1} s, {:.1} million rows/s",
        rows_per_second / 1e6
    ));
    let mut object = json!(counts);
    object["seconds"] = json!(seconds);
    output.object(&object);
    Ok(())
}

fn failure(error: RepeatError) -> Failure {
    match &error {
        RepeatError::Stopped | RepeatError::Lake(LakeError::Full { .. } | LakeError::Io { .. }) => {
            Failure::failed(&error)
        }
        RepeatError::Lake(_)
        | RepeatError::Trace(_)
        | RepeatError::Empty(_)
        | RepeatError::TooLong { .. }
        | RepeatError::TooMany { .. } => Failure::usage(&error),
    }
}
