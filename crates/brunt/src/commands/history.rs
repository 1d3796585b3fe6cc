//! `brunt history`: figures from many results over time, and where they changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use brunt_core::units::counted;
use brunt_report::{history, html};
use brunt_result::compare::Margin;
use brunt_result::history::{HistoryChange, HistorySeries};
use brunt_result::history_results::{HistoryResult, name_results, sort_by_time};
use brunt_result::statistics::{RESULTS_MIN, Verdict};
use brunt_result::summary::{FILE_NAME, Summary};
use serde_json::json;

use super::Subcommand;
use crate::cli::{Done, Failure, Output};

/// Maximum number of results drawn on a line of the terminal.
const DRAWN_MAX: usize = 50;
/// Bars from the lowest value of a series to the highest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Show figures over many results, and mark changes that chance doesn't explain
///
/// Each figure of each point is a series over results, oldest first; points are matched by label. Changes are found
/// by E-divisive with permutation tests: at most one in 100 unchanged series shows a change. A change needs three
/// results on each side, and small changes need more; with fewer than ten results, no change is significant. The
/// terminal draws each series from its lowest value to its highest, with | before the first result of a new level.
/// Results are named after their labels (brunt run --label), such as commits; results without a label are named after
/// their folders.
#[derive(clap::Args)]
pub struct History {
    /// Results folders, or folders that contain results folders
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Order of results: by the time at which they were measured, by label (numbers in labels by value, results with
    /// the same label by time), or as given (results within a folder by name)
    #[arg(long, value_enum, default_value_t)]
    order: ResultOrder,
    /// Order results by this list of labels, one per line, oldest first; '-' reads standard input. Results with other
    /// labels are left out: 'git log --reverse --format=%h | brunt history nightly --labels -'
    #[arg(long, value_name = "FILE", conflicts_with = "order")]
    labels: Option<PathBuf>,
    /// Also write a page with charts to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Omit changes smaller than this
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    margin: Margin,
    /// Exit with status 1 if the last change in a figure is for the worse and began within the newest results
    #[arg(long)]
    fail_on_change: bool,
    /// How many results count as newest for --fail-on-change
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 10,
        requires = "fail_on_change"
    )]
    newest: usize,
}

/// How results are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ResultOrder {
    /// By when they were measured
    #[default]
    Time,
    /// By label
    Label,
    /// As given on the command line
    Given,
}

impl Subcommand for History {
    const NAME: &'static str = "history";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt history nightly",
            "show all results in the folder nightly, and what changed",
        ),
        (
            "brunt history nightly -o history.html --fail-on-change",
            "in CI: write a page, and fail if a figure became worse",
        ),
        (
            "brunt history nightly --order label",
            "order results by label: v1.9 before v1.10",
        ),
        (
            "brunt history v1.results v2.results v3.results --order given",
            "show results in the order given",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let mut skipped = BTreeMap::new();
        let mut results = self.read(&mut skipped)?;
        for problem in skipped.values() {
            output.note(format_args!("left out: {problem}"));
        }
        if results.is_empty() {
            return Err(
                Failure::usage("none of the results can be read").advise("see the notes above")
            );
        }
        self.sort(&mut results, output)?;
        name_results(&mut results);
        for result in results.iter().filter(|result| !result.summary.complete) {
            output.note(format_args!(
                "{} is incomplete; its finished runs are used",
                result.folder.display()
            ));
        }
        let summaries: Vec<&Summary> = results.iter().map(|result| &result.summary).collect();
        let series = brunt_result::history::history(&summaries, self.margin.0);
        let names: Vec<String> = results.iter().map(|result| result.name.clone()).collect();
        print(&names, &series, output);
        if let Some(file) = &self.output {
            let skipped: Vec<String> = skipped.values().cloned().collect();
            let page = html::render(&history::history(&names, &series, &skipped));
            super::report::put(&page, file)
                .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
            output.line(format_args!("page in {}", file.display()));
        }
        let newly_worse: Vec<String> = series
            .iter()
            .filter_map(|one| Some((one, one.newly_worse(self.newest)?)))
            .map(|(one, change)| {
                let since = &names[change.result];
                format!("{} {} since {since}", one.label, one.metric)
            })
            .collect();
        let skipped = skipped
            .iter()
            .map(|(folder, problem)| json!({ "folder": folder, "problem": problem }));
        output.object(&json!({
            "results": results.iter().map(object).collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
            "margin": self.margin.0,
            "series": series,
            "newly_worse": newly_worse,
        }));
        match newly_worse.as_slice() {
            [_, ..] if self.fail_on_change => Err(Failure::failed(format!(
                "changed for the worse: {}",
                newly_worse.join("; ")
            ))),
            _ => Ok(()),
        }
    }
}

impl History {
    /// Sorts results as requested. Removes results whose labels are not in the given list.
    fn sort(&self, results: &mut Vec<HistoryResult>, output: &Output) -> Done {
        if self.labels.is_none() && self.order == ResultOrder::Given {
            return Ok(());
        }
        if let Some(note) = unknown_times(sort_by_time(results)) {
            output.note(note);
        }
        let list = self.labels.as_deref().map(read_labels).transpose()?;
        let count = results.len();
        match (&list, self.order) {
            (Some(places), _) => {
                let place = |result: &HistoryResult| places.get(result.summary.label.as_ref()?);
                results.retain(|result| place(result).is_some());
                results.sort_by_key(|result| place(result).copied());
            }
            (None, ResultOrder::Label) => {
                results.retain(|result| result.summary.label.is_some());
                results.sort_by_cached_key(|result| label_key(result.summary.label.as_deref()));
            }
            (None, ResultOrder::Time | ResultOrder::Given) => return Ok(()),
        }
        let left_out = counted(count - results.len(), "result");
        let why = match &list {
            Some(_) => "whose label is not in the list",
            None => "without a label (brunt run --label)",
        };
        if results.is_empty() {
            return Err(Failure::usage(format!("all results are {why}"))
                .advise("order them by time, or as given (--order given)"));
        }
        if results.len() < count {
            output.note(format_args!("left out: {left_out} {why}"));
        }
        Ok(())
    }

    /// Every readable result, each once; errors reading the others are added to `skipped`.
    fn read(&self, skipped: &mut BTreeMap<PathBuf, String>) -> Result<Vec<HistoryResult>, Failure> {
        let (mut results, mut seen) = (Vec::new(), BTreeSet::new());
        for folder in self.folders.iter().map(|given| results_in(given)) {
            for folder in folder? {
                if !seen.insert(folder.canonicalize().unwrap_or_else(|_| folder.clone())) {
                    continue;
                }
                match HistoryResult::read(folder.clone()) {
                    Ok(result) => results.push(result),
                    Err(error) => {
                        skipped.insert(folder, error.to_string());
                    }
                }
            }
        }
        Ok(results)
    }
}

/// A result as an object of the JSON output.
fn object(result: &HistoryResult) -> serde_json::Value {
    let began = result
        .began
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    json!({
        "name": result.name,
        "label": result.summary.label,
        "folder": result.folder,
        "began_unix_s": began.map(|began| began.as_secs_f64()),
        "complete": result.summary.complete,
    })
}

/// The folder itself if it contains a result, otherwise the results folders in it, by name.
fn results_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let is_result = |folder: &Path| folder.join(FILE_NAME).exists();
    if is_result(folder) {
        return Ok(vec![folder.to_path_buf()]);
    }
    let entries = std::fs::read_dir(folder).map_err(|error| {
        Failure::usage(format!("{}: {error}", folder.display()))
            .advise("name a results folder, or a folder that contains results folders")
    })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths.filter(|path| is_result(path)).collect();
    found.sort();
    if found.is_empty() {
        return Err(
            Failure::usage(format!("{} holds no results", folder.display())).advise(
                "name folders to which `brunt run` has written results, or a folder that contains such folders",
            ),
        );
    }
    Ok(found)
}

/// Returns a note if some results are sorted by a file time, which copying may have changed.
fn unknown_times(unknown: usize) -> Option<String> {
    (unknown > 0).then(|| {
        format!(
            "{} without a table of runs: ordered by when {FILE_NAME} was written; --order given keeps the order of \
             the command line",
            counted(unknown, "result")
        )
    })
}

/// The position of each label in a file of labels, one per line.
fn read_labels(file: &Path) -> Result<BTreeMap<String, usize>, Failure> {
    let read = match file == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()),
        false => brunt_core::input::read_to_string(file),
    };
    let text = read.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    let labels = text
        .lines()
        .map(str::trim)
        .filter(|label| !label.is_empty());
    let mut places = BTreeMap::new();
    for (place, label) in labels.enumerate() {
        places.entry(label.to_string()).or_insert(place);
    }
    Ok(places)
}

/// Orders labels by their parts: numbers by value, everything else as text.
fn label_key(label: Option<&str>) -> Vec<LabelPart> {
    let mut parts = Vec::new();
    let mut rest = label.unwrap_or_default();
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest.find(|next: char| next.is_ascii_digit() != is_number);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(match is_number {
            // Of two numbers without leading zeros, the one with more digits is larger.
            true => {
                let digits = part.trim_start_matches('0');
                LabelPart::Number(digits.len(), digits.to_string())
            }
            false => LabelPart::Text(part.to_string()),
        });
        rest = after;
    }
    parts
}

/// A part of a label.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LabelPart {
    /// Number of digits, then the digits.
    Number(usize, String),
    Text(String),
}

fn print(names: &[String], series: &[HistorySeries], output: &Output) {
    let count = counted(names.len(), "result");
    match names {
        [first, .., last] => {
            output.line(format_args!("{count}, oldest first: {first} to {last}"));
        }
        _ => output.line(format_args!("{count}: {}", names.join(""))),
    }
    let mut label = "";
    for one in series {
        if one.label != label {
            output.line(&one.label);
            label = &one.label;
        }
        let newest = one.values.iter().rev().find_map(|value| *value);
        output.line(format_args!(
            "  {:<6} {:<12} {}",
            one.metric,
            newest.map_or("-".to_string(), |value| history::unit_of(one).show(value)),
            drawn(one),
        ));
        for change in &one.changes {
            output.line(format_args!("         {}", describe(one, change, names)));
        }
    }
    if series.is_empty() {
        output.note("no result has a complete run, so there are no figures");
    } else if names.len() < RESULTS_MIN {
        output.note(format_args!(
            "a change can't be significant with fewer than {RESULTS_MIN} results"
        ));
    }
}

/// The newest results of a series as a line of bars.
fn drawn(series: &HistorySeries) -> String {
    let start = series.values.len().saturating_sub(DRAWN_MAX);
    let shown = &series.values[start..];
    let known = || shown.iter().flatten().copied();
    let (low, high) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    let steps = BARS.len() as f64 - 1.0;
    let mut line = String::from(if start > 0 { "…" } else { "" });
    for (at, value) in shown.iter().enumerate() {
        if series.changes.iter().any(|one| one.result == start + at) {
            line.push('|');
        }
        line.push(match value {
            None => ' ',
            Some(_) if high <= low => BARS[3],
            Some(value) => BARS[((value - low) / (high - low) * steps).round() as usize],
        });
    }
    line
}

/// Formats a change, as in "x0.915 (0.902-0.928) since c0ffee: WORSE, 99.8 % sure".
fn describe(series: &HistorySeries, found: &HistoryChange, names: &[String]) -> String {
    let change = &found.change;
    let share = match (change.ratio, change.low, change.high) {
        (Some(ratio), Some(low), Some(high)) => format!("x{ratio:.3} ({low:.3}-{high:.3})"),
        _ => {
            let unit = history::unit_of(series);
            format!(
                "{} to {}",
                unit.show(change.before),
                unit.show(change.after)
            )
        }
    };
    let word = match found.verdict {
        Verdict::Worse => found.verdict.word().to_uppercase(),
        verdict => verdict.word().to_string(),
    };
    let (since, sure) = (&names[found.result], history::confidence(found));
    format!("{share} since {since}: {word}, {sure} sure")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_ordered_by_their_numbers() {
        let sorted = |labels: &[&str]| {
            let mut labels = labels.to_vec();
            labels.sort_by_key(|label| label_key(Some(label)));
            labels.join(" ")
        };
        assert_eq!(sorted(&["v1.10", "v1.9", "v1.9.1"]), "v1.9 v1.9.1 v1.10");
        assert_eq!(
            sorted(&["2026-11-02", "2026-10-30", "2026-11-01"]),
            "2026-10-30 2026-11-01 2026-11-02"
        );
        assert_eq!(sorted(&["b", "a2", "a10", "a"]), "a a2 a10 b");
        let long = "9".repeat(50);
        assert_eq!(sorted(&[&long, "007", "8"]), format!("007 8 {long}"));
    }
}
