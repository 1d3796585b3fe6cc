//! `brunt compare`: two results of the same experiment, with what may be concluded.

use std::path::PathBuf;

use brunt_result::compare::{FailIf, Line, compare_summaries};
use brunt_result::statistics::{RUNS_MIN, Verdict};
use brunt_result::summary::Summary;
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Compare two results: ratios with intervals, tests, and a verdict for each metric
///
/// The unit is the run. Verdicts are by Welch's test, corrected by Holm over all metrics of all
/// points; under four runs a side there is none. --json has Mann-Whitney and effect sizes too.
#[derive(clap::Args)]
pub struct Compare {
    /// Folder of the result to compare with
    a: PathBuf,
    /// Folder of the result in question
    b: PathBuf,
    /// Exit with status 1 when this holds for any point, such as 'p99 worse by 10%', or for one kind of
    /// operation, such as 'write p99 worse by 10%' (may be given more than once)
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<FailIf>,
}

impl Subcommand for Compare {
    const NAME: &'static str = "compare";
    const EXAMPLES: &'static [(&'static str, &'static str)] =
        &[("brunt compare before.results after.results", "What changed, as far as it can be told")];

    fn run(self, output: &Output) -> Done {
        let read = |folder| {
            Summary::read(folder).map_err(|error| {
                let advice = error.advice();
                Failure::usage(error).advise(advice)
            })
        };
        let (a, b) = (read(&self.a)?, read(&self.b)?);
        for (summary, folder) in [(&a, &self.a), (&b, &self.b)] {
            if !summary.complete {
                output
                    .note(format_args!("{} is incomplete; its finished runs are compared", folder.display()));
            }
        }
        let (lines, alone) = compare_summaries(&a, &b);
        if lines.is_empty() {
            return Err(Failure::usage("the two have no point in common")
                .advise("compare results of the same experiment"));
        }
        let mut label = "";
        for line in &lines {
            if line.label != label {
                output.line(&line.label);
                label = &line.label;
            }
            output.line(describe(line));
        }
        for label in &alone {
            output.note(format_args!("only one result has {label}"));
        }
        for condition in &self.fail_if {
            if !lines.iter().any(|line| condition.is_about(line)) {
                output.note(format_args!("--fail-if '{condition}' is about nothing that both results have"));
            }
        }
        let failed: Vec<String> = lines
            .iter()
            .filter(|line| self.fail_if.iter().any(|condition| condition.fails(line)))
            .map(|line| format!("{} {}", line.label, line.metric))
            .collect();
        output.object(&json!({ "lines": lines, "only_one_has": alone, "failed": failed }));
        match failed.as_slice() {
            [] => Ok(()),
            failed => Err(Failure::failed(format!("the condition holds for {}", failed.join("; ")))),
        }
    }
}

fn describe(line: &Line) -> String {
    let comparison = &line.comparison;
    let mean = |estimate: Option<brunt_result::statistics::Estimate>| estimate.map_or(f64::NAN, |e| e.mean);
    let ratio = comparison
        .ratio
        .map_or("-".to_string(), |ratio| format!("{:.3} ({:.3}-{:.3})", ratio.ratio, ratio.low, ratio.high));
    let verdict = match comparison.verdict {
        Verdict::Better => "better".to_string(),
        Verdict::Worse => "WORSE".to_string(),
        Verdict::NotShown => "not shown".to_string(),
        Verdict::TooFewRuns => format!("under {RUNS_MIN} runs"),
    };
    let (a, b) = (mean(comparison.a), mean(comparison.b));
    // Shares and factors are small; rates and latencies are not.
    let digits = if matches!(line.unit, "requests/s" | "us") { 1 } else { 3 };
    format!("  {:<11} {a:>11.digits$} {b:>11.digits$} {:<10}  {ratio:<20} {verdict}", line.metric, line.unit)
}
