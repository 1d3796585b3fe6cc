//! Measures the cost of the mergeable tables, `latency_histograms` and `sketches`: traces with both, with one, and
//! with neither, interleaved.
//!
//! The rule: in each round, all traces are made from the same capture, in an order drawn for the round.

use brunt_result::statistics::{Ratio, interleaved};
use serde_json::{Value, json};

use super::programs::{Program, ProgramRun, TablesLeftOut};
use super::subject::SubjectCapture;
use crate::sample::ratio_words;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

const WITH_ALL: Program = Program::Trace;
const WITHOUT: [TablesLeftOut; 3] = [
    TablesLeftOut::Both,
    TablesLeftOut::Histograms,
    TablesLeftOut::Sketches,
];

/// Measures all captures and prints a table for each.
pub fn run(
    subjects: &[SubjectCapture],
    rounds: u32,
    scratch: &Scratch,
    output: &dyn Console,
) -> BenchResult {
    let mut tables = Vec::new();
    for subject in subjects {
        let megabytes = subject.file_bytes as f64 / 1e6;
        output.line(format_args!(
            "{}: {megabytes:.0} MB, {} calls",
            subject.name, subject.calls
        ));
        let programs: Vec<Program> = std::iter::once(WITH_ALL)
            .chain(WITHOUT.map(Program::TraceWithout))
            .collect();
        let mut runs: Vec<Vec<ProgramRun>> = vec![Vec::new(); programs.len()];
        for (who, _) in interleaved(programs.len(), rounds as usize, 1) {
            if output.is_interrupted() {
                return Err(BenchError::interrupted(
                    "interrupted: the captures printed so far are complete",
                ));
            }
            runs[who].push(programs[who].run(&subject.path, scratch)?);
        }
        tables.push(print(subject, &runs, output));
        if subject.path.starts_with(scratch.join("")) {
            let _ = std::fs::remove_file(&subject.path);
        }
    }
    output.object(&json!({ "captures": tables, "rounds": rounds }));
    Ok(())
}

/// `runs` contains the runs with all tables, then those without the tables in [`WITHOUT`], in that order.
fn print(subject: &SubjectCapture, runs: &[Vec<ProgramRun>], output: &dyn Console) -> Value {
    let [all, without @ ..] = runs else {
        unreachable!("the run with all tables comes first")
    };
    let bytes = |runs: &[ProgramRun]| {
        runs.iter()
            .filter_map(|run| run.trace_bytes)
            .max()
            .unwrap_or(0)
    };
    output.line(format_args!(
        "  {:<42} {:>26} {:>26} {:>12}",
        "with both, relative to", "time", "CPU time", "bytes"
    ));
    let line = |(left_out, without): (TablesLeftOut, &Vec<ProgramRun>)| {
        let name = format!("without {}", left_out.tables().join(" and "));
        let wall = ratio(all, without, |run| run.wall.as_secs_f64());
        let cpu = ratio(all, without, |run| run.cpu.as_secs_f64());
        let bytes = bytes(all) as f64 / bytes(without).max(1) as f64;
        let words = |ratio: &Option<Ratio>| ratio_words(ratio.as_ref(), 3);
        output.line(format_args!(
            "  {name:<42} {:>26} {:>26} {bytes:>12.3}",
            words(&wall),
            words(&cpu)
        ));
        json!({
            "without": left_out.tables(), "time": wall, "processor_time": cpu, "bytes": bytes,
            "calls_found": without[0].calls,
        })
    };
    let ratios: Vec<Value> = WITHOUT.into_iter().zip(without).map(line).collect();
    output.line("");
    json!({
        "capture": subject.name, "calls": subject.calls, "calls_found": all[0].calls,
        "trace_bytes": bytes(all), "with_both_of": ratios,
    })
}

/// The ratio between a figure with all tables and the same figure with fewer.
fn ratio(
    all: &[ProgramRun],
    fewer: &[ProgramRun],
    figure: impl Fn(&ProgramRun) -> f64,
) -> Option<Ratio> {
    let values = |runs: &[ProgramRun]| runs.iter().map(&figure).collect::<Vec<f64>>();
    Ratio::of(&values(fewer), &values(all), 1)
}
