//! `brunt compare`: compares two results of the same experiment and prints which changes are significant.

use std::path::{Path, PathBuf};

use brunt_core::units::counted;
use brunt_report::experiment;
use brunt_result::compare::{FailIf, Line, Margin, compare_summaries};
use brunt_result::engines::engine_differences;
use brunt_result::failures;
use brunt_result::percentile::Percentile;
use brunt_result::statistics::{EffectScale, Estimate, RUNS_MIN, Verdict};
use brunt_result::summary::Summary;
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Compare two results: the change of each metric with its confidence interval, and a verdict
///
/// Each metric is better, worse, same (within the margin) or inconclusive; runs are the samples. "Better" and "worse"
/// come from Welch's t-test of the ratio, with variances moderated across points, a deviation of 2 % between sessions,
/// and Holm's correction over all metrics of all points; "same" comes from two one-sided tests. "Machines differed"
/// means that a change is significant, but that a difference between the machines, measured during the runs, may
/// explain it. On a shared machine, measure both as targets of one experiment: its runs are interleaved, and its report
/// compares targets round by round. Fewer than four runs per side are always inconclusive. The column "sees" is the
/// smallest change that would be detected with 80 % power. --json adds Mann-Whitney tests.
#[derive(clap::Args)]
pub struct Compare {
    /// Results folder of the baseline
    a: PathBuf,
    /// Results folder to compare with the baseline
    b: PathBuf,
    /// Exit with status 1 if this condition holds at any point: 'p99 worse by 10%', or for one kind of operation
    /// 'write p99.9 worse by 10%'. A condition about something that the results don't have is an error. Can be repeated
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<FailIf>,
    /// Changes smaller than this do not matter: a metric shown to be within it is "same" [default: 5%]
    #[arg(long, value_name = "PERCENT")]
    margin: Option<Margin>,
}

impl Subcommand for Compare {
    const NAME: &'static str = "compare";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt compare before.results after.results",
        "show what changed and how certain that is",
    )];

    fn run(self, output: &Output) -> Done {
        let read = |folder: &Path| {
            experiment::read(folder).map_err(|error| {
                let advice = error.advice();
                Failure::usage(error).advise(advice)
            })
        };
        let (a, b) = (read(&self.a)?, read(&self.b)?);
        for (summary, folder) in [(&a, &self.a), (&b, &self.b)] {
            if !summary.complete {
                output.note(format_args!(
                    "{} is incomplete; only its finished runs are compared",
                    folder.display()
                ));
            }
            if let Some(note) = summary.judged_note() {
                output.note(format_args!("{}: {note}", folder.display()));
            }
        }
        let results = [(&a, self.a.as_path()), (&b, self.b.as_path())];
        let wrong = noted(results, failures::failures, output);
        let doubts = noted(results, failures::doubts, output);
        let engines = engine_differences(&a, &b);
        let margin = self.margin.unwrap_or_default().0;
        let asked: Vec<Percentile> = self.fail_if.iter().filter_map(FailIf::percentile).collect();
        let (lines, alone) = compare_summaries(&a, &b, margin, &asked);
        if lines.is_empty() {
            return Err(Failure::usage("the two results have no point in common")
                .advise("compare results of the same experiment"));
        }
        let is_met = |condition: &&FailIf| lines.iter().any(|line| condition.is_about(line));
        if let Some(condition) = self.fail_if.iter().find(|condition| !is_met(condition)) {
            return Err(Failure::usage(format!(
                "--fail-if '{condition}' matches no metric that both results have"
            ))
            .advise("run brunt compare without it to see the available metrics"));
        }
        output.line(row([
            "",
            "first",
            "second",
            "change (95 %)",
            "sees",
            "verdict",
        ]));
        let mut label = "";
        for line in &lines {
            if line.label != label {
                output.line(&line.label);
                label = &line.label;
            }
            output.line(describe(line, margin));
            if let Some(slower) = line.machine_slower {
                let (share, word) = (
                    slower.abs() * 100.0,
                    if slower > 0.0 { "slower" } else { "faster" },
                );
                output.line(format_args!(
                    "    the machine was {share:.1}% {word}, which may explain the change"
                ));
            }
        }
        if let Some(note) = too_few_runs(&lines) {
            output.note(note);
        }
        for label in &alone {
            output.note(format_args!("only one result has {label}"));
        }
        for difference in &engines {
            output.note(difference);
        }
        for note in advice(&lines) {
            output.note(note);
        }
        let failed: Vec<String> = lines
            .iter()
            .filter(|line| self.fail_if.iter().any(|condition| condition.fails(line)))
            .map(|line| format!("{} {}", line.label, line.metric))
            .collect();
        output.object(
            &json!({ "margin": margin, "lines": lines, "only_one_has": alone, "failed": failed, "failures": wrong,
                "doubts": doubts, "engines_differ": engines }),
        );
        match failed.as_slice() {
            [] => Ok(()),
            failed => Err(Failure::failed(format!(
                "the condition holds for {}",
                failed.join("; ")
            ))),
        }
    }
}

/// Prints `find`'s findings for each result with the result's folder, and returns them.
fn noted(
    results: [(&Summary, &Path); 2],
    find: impl Fn(&Summary) -> Vec<String>,
    output: &Output,
) -> [Vec<String>; 2] {
    results.map(|(summary, folder)| {
        let found = find(summary);
        for text in &found {
            output.note(format_args!("{}: {text}", folder.display()));
        }
        found
    })
}

/// Advice on how to settle inconclusive comparisons.
fn advice(lines: &[Line]) -> Vec<String> {
    let of = |verdict: Verdict| {
        lines
            .iter()
            .filter(move |line| line.comparison.verdict == verdict)
    };
    let mut notes = Vec::new();
    if of(Verdict::MachinesDiffered).next().is_some() {
        notes.push(
            "the machines differed, so nothing is concluded from these changes; measure both as targets of one \
             experiment, whose runs are interleaved and compared round by round (brunt report)"
                .to_string(),
        );
    }
    let wanted = of(Verdict::Inconclusive).filter_map(|line| {
        let effect = line.comparison.effect?;
        Some((line, effect.runs_wanted))
    });
    // Treat an unknown number as the largest: the comparison that needs the most runs decides for all.
    let most = wanted.max_by_key(|(_, runs)| runs.unwrap_or(u32::MAX));
    if let Some((line, runs)) = most {
        let (label, metric) = (&line.label, &line.metric);
        notes.push(match runs {
            Some(runs) => format!(
                "repetitions = {runs} would detect a change of 10% in each inconclusive figure with 80% power (most \
                 for {label} {metric})"
            ),
            None => format!(
                "no number of runs would detect a change of 10% in {label} {metric}; measure both as targets of one \
                 experiment, whose runs are interleaved and compared round by round (brunt report)"
            ),
        });
    }
    notes
}

/// Reports the figure with the fewest runs, if too few for a verdict. A run without the figure is incomplete, or made
/// no requests of that kind.
fn too_few_runs(lines: &[Line]) -> Option<String> {
    let least = lines
        .iter()
        .filter(|line| line.comparison.verdict == Verdict::TooFewRuns)
        .min_by_key(|line| runs(line).into_iter().min())?;
    let [first, second] = runs(least);
    Some(format!(
        "a verdict needs {RUNS_MIN} complete runs with the figure in each result, and {} {} has {first} and {second}; run \
         with repetitions = {RUNS_MIN} or more",
        least.label, least.metric
    ))
}

/// Number of complete runs of each result that have the figure.
fn runs(line: &Line) -> [usize; 2] {
    [&line.comparison.a, &line.comparison.b].map(|side| side.as_ref().map_or(0, |side| side.runs))
}

/// A row of the table, at most 80 columns wide.
fn row([figure, a, b, change, sees, verdict]: [&str; 6]) -> String {
    format!("  {figure:<17}{a:>9} {b:>9}  {change:<19} {sees:>5} {verdict}")
}

fn describe(line: &Line, margin: f64) -> String {
    let comparison = &line.comparison;
    let change = comparison.effect.map_or("-".to_string(), |effect| {
        let (value, low, high) = (effect.value, effect.low, effect.high);
        match effect.scale {
            EffectScale::Ratio if high < 1000.0 => format!("x{value:.3} ({low:.3}-{high:.3})"),
            EffectScale::Ratio => format!("x{value:.3e}"),
            EffectScale::Difference => format!("{value:+.3} ({low:.3},{high:.3})"),
        }
    });
    let sees = comparison
        .effect
        .and_then(|effect| effect.detectable)
        .map_or("-".to_string(), |share| {
            if share < 10.0 {
                format!("{:.1}%", share * 100.0)
            } else {
                ">999%".to_string()
            }
        });
    let word = comparison.verdict.word();
    let verdict = match comparison.verdict {
        Verdict::Worse => word.to_uppercase(),
        Verdict::Same => format!("{word} (±{:.3}%)", margin * 100.0).replace(".000", ""),
        Verdict::TooFewRuns => {
            let [first, second] = runs(line);
            format!("{word}: {}", counted(first.min(second), "run"))
        }
        _ => word.to_string(),
    };
    let mean = |estimate: &Option<Estimate>| estimate.as_ref().map(|estimate| estimate.mean);
    let (a, b) = comparison.effect.map_or_else(
        || (mean(&comparison.a), mean(&comparison.b)),
        |effect| (Some(effect.first), Some(effect.second)),
    );
    // Shares and factors are small; rates and latencies are not.
    let digits = if matches!(line.unit, "requests/s" | "us") {
        1
    } else {
        3
    };
    let figure = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let unit = if line.unit == "requests/s" {
        "1/s"
    } else {
        line.unit
    };
    row([
        &format!("{} {unit}", line.metric),
        &figure(a),
        &figure(b),
        &change,
        &sees,
        &verdict,
    ])
}
