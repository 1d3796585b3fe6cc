//! `brunt compare`: compares results of the same experiment, or the targets within one result, and prints which
//! changes are significant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brunt_core::units::counted;
use brunt_report::experiment::{self, EnvironmentFact, ResultDifference, differences};
use brunt_result::compare::{FailIf, Line, Margin, compare_summaries};
use brunt_result::engines::engine_differences;
use brunt_result::failures;
use brunt_result::percentile::Percentile;
use brunt_result::statistics::{
    Effect, EffectScale, Estimate, PERCENT_RATIO_MAX, RUNS_MIN, Verdict,
};
use brunt_result::summary::Summary;
use serde_json::{Value, json};

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Compare results: the change in each metric with its confidence interval, and a verdict
///
/// Each metric is better, worse, same (within the margin) or inconclusive; runs are the samples. "Better" and "worse"
/// come from Welch's t-test of the ratio, with variances moderated across points, a deviation of 2 % between sessions,
/// and Holm's correction over all metrics of all points; "same" comes from two one-sided tests. "Machines differed"
/// means that a change is significant, but that a difference between the machines, measured during the runs, may
/// explain it. Fewer than four runs per side are always inconclusive. The column "sees" is the smallest change that
/// would be detected with 80 % power. --json adds Mann-Whitney tests.
///
/// Runs that took turns, made by 'brunt run --interleave A.toml B.toml' or on targets of one experiment, are compared
/// in pairs by a paired t-test. This is the recommended way: changes in the machine's speed affect both runs of a
/// pair.
///
/// With a single folder, its targets are compared with the network alone if that was measured, otherwise with the
/// first target. With more than two folders, each is compared with the first, and each comparison is corrected
/// separately.
#[derive(clap::Args)]
pub struct Compare {
    /// Results folders: the baseline, and the ones to compare with it; or a single folder, to compare its targets
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,
    /// Exit with status 1 if this condition holds at any point: 'p99 worse by 10%', or for a single kind of operation
    /// 'write p99.9 worse by 10%'. Fails if the results have no such figure in common. Can be repeated
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<FailIf>,
    /// Changes smaller than this do not matter: a metric shown to have changed by less is "same" [default: 5%]
    #[arg(long, value_name = "PERCENT")]
    margin: Option<Margin>,
    /// Also compare these percentiles, such as 95,99.99. Percentiles that are missing in a result's summary are
    /// computed from its histograms
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    percentiles: Vec<Percentile>,
}

/// A result, with its name for messages.
pub(super) struct NamedResult<'a> {
    pub name: String,
    pub summary: &'a Summary,
}

impl NamedResult<'_> {
    /// The result's name, with its label if it has one.
    fn title(&self) -> String {
        match &self.summary.label {
            Some(label) => format!("{} ({label})", self.name),
            None => self.name.clone(),
        }
    }
}

/// What to compare, and when to fail.
#[derive(Default)]
pub(super) struct CompareOptions {
    pub margin: f64,
    /// Percentiles in addition to the usual ones and those chosen in the results' experiments.
    pub percentiles: Vec<Percentile>,
    pub fail_if: Vec<FailIf>,
    /// What each result recorded about its machine and targets; empty if the runs took turns on one machine, or for
    /// targets of one experiment.
    pub environments: Vec<Vec<EnvironmentFact>>,
}

/// Two compared results.
pub(super) struct ComparedPair {
    /// For `--json`.
    pub object: Value,
    /// The figures for which a `--fail-if` condition holds.
    pub failed: Vec<String>,
}

impl Subcommand for Compare {
    const NAME: &'static str = "compare";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt compare old.results new.results",
            "show what changed and how certain that is",
        ),
        (
            "brunt compare disks.results",
            "compare the targets of one experiment",
        ),
        (
            "brunt compare old.results new.results --fail-if 'p99 worse by 10%'",
            "in CI: exit with status 1 if a p99 became worse by 10 % or more",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let mut percentiles = self.percentiles;
        percentiles.extend(self.fail_if.iter().filter_map(FailIf::percentile));
        let mut results = read(&self.results, &percentiles)?;
        if let [(folder, summary)] = &results[..] {
            let targets = summary.of_each_target();
            if targets.is_empty() {
                return Err(Failure::usage(format!("{folder} has only one target"))
                    .advise("name a second result to compare it with"));
            }
            results = targets;
        }
        let named: Vec<NamedResult<'_>> = results
            .iter()
            .map(|(name, summary)| NamedResult {
                name: name.clone(),
                summary,
            })
            .collect();
        let wanted = CompareOptions {
            margin: self.margin.unwrap_or_default().0,
            percentiles,
            fail_if: self.fail_if,
            environments: environments(&self.results),
        };
        let compared = compare_all(&named, &wanted, output)?;
        let failed: Vec<&str> = compared
            .iter()
            .flat_map(|one| one.failed.iter().map(String::as_str))
            .collect();
        match &compared[..] {
            [one] => output.object(&one.object),
            all => {
                let all: Vec<&Value> = all.iter().map(|one| &one.object).collect();
                output.object(&json!({ "comparisons": all, "failed": failed }));
            }
        }
        match failed.as_slice() {
            [] => Ok(()),
            failed => Err(Failure::failed(format!(
                "the --fail-if condition holds for {}",
                failed.join("; ")
            ))),
        }
    }
}

/// Compares the first result with each of the others, and prints what changed.
pub(super) fn compare_all(
    results: &[NamedResult<'_>],
    wanted: &CompareOptions,
    output: &Output,
) -> Result<Vec<ComparedPair>, Failure> {
    for NamedResult { name, summary } in results {
        if !summary.complete {
            output.note(format_args!(
                "{name} is incomplete; only its finished runs are compared"
            ));
        }
        if let Some(note) = summary.judged_note() {
            output.note(format_args!("{name}: {note}"));
        }
        let found = failures::failures(summary).into_iter();
        for text in found.chain(failures::doubts(summary)) {
            output.note(format_args!("{name}: {text}"));
        }
    }
    let (first, others) = results.split_first().expect("there are results");
    others
        .iter()
        .enumerate()
        .map(|(nth, other)| {
            output.line(format_args!(
                "{} compared with {}",
                other.title(),
                first.title()
            ));
            let known = wanted
                .environments
                .first()
                .zip(wanted.environments.get(nth + 1));
            let known = known.map(|(a, b)| [(first.summary, &a[..]), (other.summary, &b[..])]);
            let differ = known.map(|both| differences(&both));
            if let Some(differ) = &differ {
                print_differences(differ, output);
            }
            compare_pair([first, other], differ, wanted, output)
        })
        .collect()
}

/// Compares two results and prints what changed.
fn compare_pair(
    [a, b]: [&NamedResult<'_>; 2],
    differ: Option<Vec<ResultDifference>>,
    wanted: &CompareOptions,
    output: &Output,
) -> Result<ComparedPair, Failure> {
    let CompareOptions {
        margin,
        percentiles,
        fail_if,
        ..
    } = wanted;
    let (first, second) = (a.summary, b.summary);
    let (lines, alone) = compare_summaries(first, second, *margin, percentiles);
    if lines.is_empty() {
        let what = format!("{} and {} have no points in common", a.name, b.name);
        return Err(Failure::usage(what).advise("compare results of the same experiment"));
    }
    let is_met = |condition: &&FailIf| lines.iter().any(|line| condition.is_about(line));
    if let Some(condition) = fail_if.iter().find(|condition| !is_met(condition)) {
        return Err(Failure::usage(format!(
            "--fail-if '{condition}' matches no metric that both results have"
        ))
        .advise("run brunt compare without it to see the available metrics"));
    }
    print(&lines, *margin, output);
    let paired = first.took_turns_with(second);
    if paired {
        output.note("the runs took turns, so they are compared in pairs");
    }
    if let Some(note) = too_few_runs(&lines) {
        output.note(note);
    }
    for label in &alone {
        output.note(format_args!("only one result has {label}"));
    }
    for note in absent([a, b], percentiles) {
        output.note(note);
    }
    let engines = engine_differences(first, second);
    for difference in &engines {
        output.note(difference);
    }
    for note in advice(&lines, paired) {
        output.note(note);
    }
    let failed: Vec<String> = lines
        .iter()
        .filter(|line| fail_if.iter().any(|condition| condition.fails(line)))
        .map(|line| format!("{} {}", line.label, line.metric))
        .collect();
    let both = [first, second];
    let object = json!({
        "first": a.name,
        "second": b.name,
        "paired": paired,
        "margin": margin,
        "lines": lines,
        "only_one_has": alone,
        "failed": failed,
        "failures": both.map(failures::failures),
        "doubts": both.map(failures::doubts),
        "engines_differ": engines,
        "differences": differ,
    });
    Ok(ComparedPair { object, failed })
}

/// What results recorded about their machines and targets; tables that can't be read contribute nothing.
fn environments(folders: &[PathBuf]) -> Vec<Vec<EnvironmentFact>> {
    let read = |folder: &PathBuf| experiment::read_environment(folder);
    let each = folders.iter().map(read);
    each.map(|known| known.map(|(facts, _)| facts).unwrap_or_default())
        .collect()
}

/// Prints the differences other than the figures.
fn print_differences(found: &[ResultDifference], output: &Output) {
    if found.is_empty() {
        output.line("  same experiment, targets, program and machine, as far as recorded");
        return;
    }
    output.line("  what differs:");
    for one in found.iter().take(DIFFERENCES_MAX) {
        let shown = |value: Option<&Option<String>>| match value.and_then(Option::as_deref) {
            Some(text) => shortened(text),
            None => "(none)".to_string(),
        };
        let (about, name) = (one.about.word(), &one.name);
        let (a, b) = (shown(one.values.first()), shown(one.values.get(1)));
        output.line(format_args!("    {about} {name}: {a} -> {b}"));
    }
    if found.len() > DIFFERENCES_MAX {
        let more = found.len() - DIFFERENCES_MAX;
        output.line(format_args!(
            "    and {more} more; brunt report A B lists them all"
        ));
    }
}

/// The first line of a value, shortened so that two values fit on one line.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_string(),
    }
}

/// Prints the table of changes.
fn print(lines: &[Line], margin: f64, output: &Output) {
    output.line(row([
        "",
        "first",
        "second",
        "change (95 %)",
        "sees",
        "verdict",
    ]));
    let mut label = "";
    for line in lines {
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
}

/// Messages about requested percentiles that the runs of a result don't have.
fn absent(results: [&NamedResult<'_>; 2], asked: &[Percentile]) -> Vec<String> {
    let chosen = results
        .iter()
        .flat_map(|of| &of.summary.experiment.percentiles);
    let chosen: BTreeSet<Percentile> = chosen.chain(asked).copied().collect();
    let lacks = |of: &NamedResult<'_>, percentile: Percentile| {
        let runs = of.summary.points.iter().flat_map(|point| &point.runs);
        let mut runs = runs.filter(|run| run.is_complete()).peekable();
        runs.peek().is_some() && runs.all(|run| run.percentile_us(percentile).is_none())
    };
    let each = results.iter().flat_map(|of| {
        let absent = chosen.iter().filter(|one| lacks(of, **one));
        absent.map(|one| {
            format!(
                "{} has no {one}: its runs have too few requests, or their histograms are incomplete; every summary has \
                 p50, p90, p99, p99.9 and p99.99",
                of.name
            )
        })
    });
    each.collect()
}

/// Reads results with their names, and with the requested percentiles as far as possible.
fn read(
    folders: &[PathBuf],
    percentiles: &[Percentile],
) -> Result<Vec<(String, Summary)>, Failure> {
    let paths: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let summaries = experiment::read_to_compare(&paths, percentiles).map_err(|error| {
        let advice = error.advice();
        Failure::usage(error).advise(advice)
    })?;
    let names = paths.iter().map(|folder| folder.display().to_string());
    Ok(names.zip(summaries).collect())
}

/// Maximum number of differences printed; the page lists all of them.
const DIFFERENCES_MAX: usize = 20;
/// Maximum number of characters printed of each differing value.
const VALUE_CHARS_MAX: usize = 60;

/// Advice on how to measure two experiments so that changes in the machine affect both.
const IN_TURNS: &str =
    "measure both in turns, which cancels such differences: brunt run --interleave A.toml B.toml";

/// Advice on how to settle inconclusive comparisons; `paired` if the runs took turns.
fn advice(lines: &[Line], paired: bool) -> Vec<String> {
    let of = |verdict: Verdict| {
        lines
            .iter()
            .filter(move |line| line.comparison.verdict == verdict)
    };
    let mut notes = Vec::new();
    if of(Verdict::MachinesDiffered).next().is_some() {
        let what = "the machines differed, so nothing is concluded from these changes";
        notes.push(match paired {
            // With paired runs, the machines count as different only if one run of a pair was stopped or throttled.
            true => format!("{what}: runs of only one side were stopped or throttled; repeat both"),
            false => format!("{what}; {IN_TURNS}"),
        });
    }
    let wanted = of(Verdict::Inconclusive).filter_map(|line| {
        let effect = line.comparison.effect?;
        Some((line, effect.runs_wanted))
    });
    // Treat an unknown number as the largest: the comparison that needs the most runs determines the advice.
    let most = wanted.max_by_key(|(_, runs)| runs.unwrap_or(u32::MAX));
    if let Some((line, runs)) = most {
        let (label, metric) = (&line.label, &line.metric);
        notes.push(match runs {
            Some(runs) => format!(
                "repetitions = {runs} would detect a change of 10% in each inconclusive figure with 80% power (most \
                 for {label} {metric})"
            ),
            None => {
                let what = format!(
                    "no number of runs would detect a change of 10% in {label} {metric}"
                );
                match paired {
                    true => what,
                    false => format!("{what}; {IN_TURNS}"),
                }
            }
        });
    }
    notes
}

/// A note on the figure with the fewest runs, if they are too few for a verdict. A run without the figure is
/// incomplete, or made no requests of that kind.
fn too_few_runs(lines: &[Line]) -> Option<String> {
    let least = lines
        .iter()
        .filter(|line| line.comparison.verdict == Verdict::TooFewRuns)
        .min_by_key(|line| runs(line).into_iter().min())?;
    let [first, second] = runs(least);
    Some(format!(
        "a verdict needs {RUNS_MIN} complete runs with the figure in each result, but {} {} has \
         {first} and {second}; run with repetitions = {RUNS_MIN} or more",
        least.label, least.metric
    ))
}

/// Number of complete runs of each result that have the figure.
fn runs(line: &Line) -> [usize; 2] {
    [&line.comparison.a, &line.comparison.b].map(|side| side.as_ref().map_or(0, |side| side.runs))
}

/// A row of the table; with the usual figures, 80 columns wide.
fn row([figure, a, b, change, sees, verdict]: [&str; 6]) -> String {
    format!("  {figure:<17}{a:>9} {b:>9}  {change:<20} {sees:>5} {verdict}")
}

/// A change with its interval: in percent; large ratios as factors; differences between shares in percentage points;
/// and other differences (in figures that can be zero) in the figure's unit.
fn change(effect: Effect, unit: &str) -> String {
    let all = [effect.value, effect.low, effect.high];
    let percent = |[value, low, high]: [f64; 3], unit: &str| {
        format!("{value:+.1}{unit} ({low:+.1},{high:+.1})")
    };
    match effect.scale {
        EffectScale::Ratio if effect.high <= PERCENT_RATIO_MAX => {
            percent(all.map(|ratio| (ratio - 1.0) * 100.0), "%")
        }
        EffectScale::Ratio if all[2] < 1000.0 => {
            let [value, low, high] = all;
            format!("x{value:.3} ({low:.3}-{high:.3})")
        }
        EffectScale::Ratio => format!("x{:.3e}", effect.value),
        EffectScale::Difference if unit == "share" => percent(all.map(|share| share * 100.0), "pp"),
        EffectScale::Difference => {
            let [value, low, high] = all;
            format!("{value:+.3} ({low:.3},{high:.3})")
        }
    }
}

fn describe(line: &Line, margin: f64) -> String {
    let comparison = &line.comparison;
    let change = comparison
        .effect
        .map_or("-".to_string(), |effect| change(effect, line.unit));
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
    // Factors are small and get three decimals; rates, latencies and percentages get fewer.
    let (scale, digits, unit) = match line.unit {
        "requests/s" => (1.0, 1, "1/s"),
        "us" => (1.0, 1, "us"),
        "share" => (100.0, 2, "%"),
        unit => (1.0, 3, unit),
    };
    let figure = |value: Option<f64>| {
        value.map_or("-".into(), |value| format!("{:.digits$}", value * scale))
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
