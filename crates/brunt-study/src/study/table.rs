//! The table at the end of an experiment.

mod cells;
mod cost;
mod matrix;
mod notes;
mod performability;
mod profile;
pub(super) mod recurring;

use std::collections::{BTreeMap, BTreeSet};

use brunt_core::units::{counted, format_size};
use brunt_result::by_kind::{KindEstimates, KindOverRuns};
use brunt_result::choice::RingMode;

use crate::hooks::hosts;
use brunt_result::degradation::PhaseOverRuns;
use brunt_result::drift::drift;
use brunt_result::experiment::ArrivalKind;
use brunt_result::failures;
use brunt_result::probe::{HostProbes, ProbeRecord};
use brunt_result::statistics::{Estimate, NOISY, RUNS_MIN};
use brunt_result::summary::{OpSummary, PointSummary, RunSummary, Summary};

use cells::{Cells, Columns};
use cost::costs;
use notes::Notes;

/// Width at which text is wrapped here.
pub(super) const WIDTH: usize = 80;
/// Maximum number of causes of failed requests shown per point, and of ranges of wrong data; the summary has more.
const CAUSES_SHOWN: usize = 4;
const EXTENTS_SHOWN: usize = 3;
/// Maximum number of notes from probes, for all hosts together; the summary has all.
const NOTES_MAX: usize = 5;

/// The table at the end of `brunt run`: a row for each point, with its phases, kinds of operations and faults below;
/// then matrices of two-axis sweeps; finally warnings, each of them once. Lines may have any length, because the
/// terminal's width is not known here.
///
/// Response times count from when a request was due, including retries. Rate, MB/s, mean and p99 are means over the
/// runs' own values; ± is the half-width of that mean's 95 % interval; other percentiles and max are over all runs
/// together.
pub fn table(summary: &Summary) -> Vec<String> {
    let columns = Columns(summary.experiment.shown_percentiles());
    let mut lines = columns.head();
    let kinds = KindEstimates::of(&summary.points);
    let mut notes = Notes::default();
    for point in &summary.points {
        lines.extend(of_point(point, &kinds, columns));
        lines.extend(costs(point));
        lines.extend(performability::lines(point.performability.as_ref()));
        lines.extend(profile::lines(point));
        for note in notes_of(point) {
            notes.add(&point.label, note);
        }
        for place in wrong_data(point) {
            notes.add_exact(&point.label, place);
        }
    }
    lines.extend(matrix::lines(summary));
    lines.extend(legend(summary));
    lines.extend(notes.lines(summary.points.len()));
    lines.extend(below(summary));
    lines
}

/// The rows of a point: its phases, the whole run and its kinds of operations.
fn of_point(point: &PointSummary, kinds: &KindEstimates, columns: Columns<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut label = point.label.clone();
    if label.chars().count() > cells::LABEL || !point.phases.is_empty() {
        lines.push(std::mem::take(&mut label));
    }
    if point.requests_per_second.is_none() {
        lines.extend(incomplete(&label, point, columns));
        return lines;
    }
    // An average over healthy and broken time represents neither, so phases come first.
    if !point.phases.is_empty() {
        lines.extend(
            point
                .phases
                .iter()
                .flat_map(|phase| of_phase(phase, columns)),
        );
        label = "  whole run".into();
    }
    let all = point.response;
    lines.push(columns.row(&Cells {
        label: &label,
        requests_per_second: point.requests_per_second,
        bytes_per_second: mean(point.bytes_per_second),
        mean_us: mean(point.response_mean_us),
        p99_us: point.response_p99_us,
        percentile_us: &|one| point.percentile_us(one),
        max_us: all.map(|all| all.max_us),
    }));
    lines.extend(of_kinds(point, kinds, columns));
    lines
}

/// The row of a point without a complete run: what was measured until its run ended, marked as incomplete.
fn incomplete(label: &str, point: &PointSummary, columns: Columns<'_>) -> Vec<String> {
    let lost = point.runs.iter().find_map(super::hosts::lost);
    let lost = lost.map(|lost| format!("  {lost}"));
    let measured = |run: &&RunSummary| run.measured_s > 0.0 && run.response.is_some();
    let Some(run) = point.runs.iter().rev().find(measured) else {
        let none = format!("{label:<width$}  no complete run", width = cells::LABEL);
        return std::iter::once(none).chain(lost).collect();
    };
    let alone = |value: f64| {
        Some(Estimate {
            mean: value,
            low: None,
            high: None,
            runs: 1,
        })
    };
    let row = columns.row(&Cells {
        label: if label.is_empty() {
            "  incomplete"
        } else {
            label
        },
        requests_per_second: alone(run.requests_per_second),
        bytes_per_second: Some(run.bytes_per_second),
        mean_us: run.response.map(|all| all.mean_us),
        p99_us: run.response.and_then(|all| alone(all.p99_us)),
        percentile_us: &|one| run.percentile_us(one),
        max_us: run.response.map(|all| all.max_us),
    });
    let said = format!(
        "  INCOMPLETE: one run that ended after {:.1} s; no complete run",
        run.measured_s
    );
    [row, said].into_iter().chain(lost).collect()
}

/// Explains the columns.
fn legend(summary: &Summary) -> Vec<String> {
    let points = &summary.points;
    let mut lines = Vec::new();
    if points
        .iter()
        .any(|point| point.requests_per_second.is_some())
    {
        lines.push(
            "response times from when each request was due; means over runs, ± half of the 95% interval; other percentiles \
             and max of all runs"
                .into(),
        );
    }
    let mut workloads = summary.experiment.workloads.values();
    if workloads.any(|workload| workload.arrival == ArrivalKind::Search) {
        lines.push(
            "with a search, requests/s is the highest rate within the limit (0: even the lowest rate \
             tried exceeded it), and all other figures are from the trial at that rate"
                .into(),
        );
    }
    if points.iter().any(|point| !point.phases.is_empty()) {
        lines.push(
            "before, during, after: whole intervals only; requests without an answer at the end count with their age; \
             'whole run' is the average over healthy and broken time"
                .into(),
        );
    }
    lines
}

/// Notes on a point's figures, one sentence each.
fn notes_of(point: &PointSummary) -> Vec<String> {
    let runs: Vec<&RunSummary> = point.runs.iter().collect();
    let mut notes: Vec<String> = imprecise(point)
        .or_else(|| too_noisy(point))
        .into_iter()
        .collect();
    notes.extend(super::engine::note(point));
    if !point.ring.trials.is_empty() || point.ring.mode != RingMode::default() {
        notes.push(format!(
            "ring: {}, {}",
            point.ring.mode.name(),
            point.ring.why
        ));
    }
    notes.extend(
        point
            .depth
            .as_ref()
            .map(|depth| format!("queue depth {}", depth.describe())),
    );
    notes.extend(super::notes::steady(&runs));
    notes.extend(losses(point));
    let mut doubts: Vec<&String> = point.runs.iter().flat_map(|run| &run.doubts).collect();
    doubts.sort_unstable();
    doubts.dedup();
    notes.extend(doubts.iter().map(|doubt| format!("doubtful: {doubt}")));
    notes.extend(super::notes::trouble_note(&runs));
    notes.extend(super::hosts::failures(&runs));
    notes.extend(super::hosts::note(&runs));
    notes.extend(super::hosts::ends(&runs).into_iter().flatten());
    notes
}

fn mean(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.mean)
}

/// The lines below the table of points.
fn below(summary: &Summary) -> Vec<String> {
    let required = |outcome| format!("required: {outcome}");
    let mut lines: Vec<String> = summary.requirements.iter().map(required).collect();
    lines.extend(super::notes::waits(summary));
    lines.extend(super::notes::health_waits(summary));
    // With a precision, there may be more runs than requested.
    let few = summary
        .points
        .iter()
        .all(|point| point.runs.len() < RUNS_MIN);
    lines.extend(few_runs(summary.experiment.repetitions as usize, few));
    lines.extend(drift(summary).map(|alike| {
        format!(
            "consecutive runs are correlated ({alike:.2}): the machine drifted; intervals are widened \
             accordingly, and more rounds or longer runs cover more of the drift"
        )
    }));
    lines.extend(super::indexes::lines(summary));
    lines.extend(super::transfer::lines(summary));
    lines.extend(probes(summary));
    lines
}

/// Requests that did not succeed over all runs of a point, by kind; why they failed; and what verification found.
fn losses(point: &PointSummary) -> Vec<String> {
    let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in point.runs.iter().flat_map(|run| &run.losses) {
        *losses.entry(name).or_default() += count;
    }
    let told: Vec<String> = losses
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let mut lines = Vec::new();
    if !told.is_empty() {
        lines.push(format!("losses: {}", told.join(", ")));
    }
    let causes = failures::causes(point);
    let shown = causes.iter().take(CAUSES_SHOWN);
    lines.extend(shown.map(|cause| format!("failed: {cause}")));
    if causes.len() > CAUSES_SHOWN {
        lines.push(format!(
            "failed: {} more causes",
            causes.len() - CAUSES_SHOWN
        ));
    }
    if let Some(verified) = failures::verified(point) {
        let (wrong, checked) = (verified.wrong_bytes, verified.checked_bytes);
        lines.push(format!(
            "verified: {} checked, {} wrong",
            format_size(checked),
            format_size(wrong)
        ));
    }
    lines
}

/// Where wrong data was found, if any.
fn wrong_data(point: &PointSummary) -> Vec<String> {
    let Some(verified) = failures::verified(point) else {
        return Vec::new();
    };
    let places = verified.extents.iter().take(EXTENTS_SHOWN);
    let mut lines: Vec<String> = places
        .map(|extent| format!("wrong data: {extent}"))
        .collect();
    if verified.more || verified.extents.len() > EXTENTS_SHOWN {
        lines.push("wrong data: and more".to_string());
    }
    lines
}

/// A warning if fewer `runs` were requested than a comparison needs; `few` says that no point has more.
pub(crate) fn few_runs(runs: usize, few: bool) -> Option<String> {
    (runs < RUNS_MIN && few).then(|| {
        format!(
            "{}: no comparison will give a verdict; repetitions = {RUNS_MIN}, or --reps {RUNS_MIN}, would",
            each(runs)
        )
    })
}

fn each(runs: usize) -> String {
    if runs == 1 {
        "one run a point".to_string()
    } else {
        format!("{runs} runs per point")
    }
}

/// A warning if a point did not reach the requested precision, with the number of runs that would have sufficed.
fn imprecise(point: &PointSummary) -> Option<String> {
    let precision = point.precision.filter(|precision| !precision.reached)?;
    let half = precision
        .half_width
        .map_or(String::new(), |half| format!(": ± {:.1}%", half * 100.0));
    let runs = point.runs.len();
    let wanted = precision.runs_wanted.map_or(String::new(), |wanted| {
        format!("; about {wanted} would suffice")
    });
    Some(format!(
        "not within {}%{half} after {runs} runs{wanted}",
        precision.goal * 100.0
    ))
}

/// A warning if a point's interval is too wide to be useful, with advice.
fn too_noisy(point: &PointSummary) -> Option<String> {
    let noisy = |what, figure: Option<Estimate>| {
        let half = figure?.relative_half_width().filter(|half| *half > NOISY)?;
        Some((what, half * 100.0, figure?.runs_wanted(NOISY)?))
    };
    let rate = noisy("", point.requests_per_second);
    let (what, half, wanted) = rate.or_else(|| noisy("p99 ", point.response_p99_us))?;
    Some(format!(
        "{what}too noisy to compare: ± {half:.0}%; longer runs, or about {wanted} of them"
    ))
}

/// The row of one phase of a point with faults; a long name is on its own line above.
fn of_phase(phase: &PhaseOverRuns, columns: Columns<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut label = format!("  {}", phase.name());
    if label.chars().count() > cells::LABEL {
        lines.push(std::mem::take(&mut label));
    }
    lines.push(columns.row(&Cells {
        label: &label,
        requests_per_second: phase.requests_per_second,
        bytes_per_second: mean(phase.bytes_per_second),
        mean_us: mean(phase.response_mean_us),
        p99_us: phase.response_p99_us,
        percentile_us: &|_| None,
        max_us: phase.response_max_us,
    }));
    lines.extend(phase.stall().map(|(requests, oldest_us)| {
        format!(
            "    {} without an answer at its end, the oldest for {}",
            counted(usize::try_from(requests).unwrap_or(usize::MAX), "request"),
            cells::time(oldest_us)
        )
    }));
    lines
}

/// The rows of a point's kinds of operations.
fn of_kinds(point: &PointSummary, kinds: &KindEstimates, columns: Columns<'_>) -> Vec<String> {
    let indent = if point.phases.is_empty() {
        "  "
    } else {
        "    "
    };
    let of_kind = |kind: &KindOverRuns| {
        let complete = point.runs.iter().filter(|run| run.is_complete());
        let ops: Vec<&OpSummary> = complete.filter_map(|run| run.op(kind.op)).collect();
        let mean_of = |percentile| {
            let values: Vec<f64> = ops
                .iter()
                .filter_map(|op| op.percentile_us(percentile))
                .collect();
            Some(Estimate::of(&values)?.mean)
        };
        let times = ops.iter().filter_map(|op| op.response);
        columns.row(&Cells {
            label: &format!("{indent}{}", kind.op),
            requests_per_second: kind.requests_per_second,
            bytes_per_second: mean(kind.bytes_per_second),
            mean_us: mean(kind.response_mean_us),
            p99_us: kind.response_p99_us,
            percentile_us: &mean_of,
            max_us: times.map(|times| times.max_us).reduce(f64::max),
        })
    };
    kinds.over_runs(point).iter().map(of_kind).collect()
}

/// Half-width of an interval as a percentage of the mean.
pub(super) fn width(estimate: Option<Estimate>) -> String {
    let share = estimate.and_then(|estimate| estimate.relative_half_width());
    share.map_or("-".into(), |share| format!("{:.0}%", share * 100.0))
}

/// Samples that were late or missing, counters that restarted, and texts that could not be read.
fn probe_trouble(samples: u64, counts: [u64; 4]) -> Option<String> {
    let words = [
        ("late", "late"),
        ("missed", "missed"),
        ("counter was reset", "counters were reset"),
        ("text unreadable", "texts unreadable"),
    ];
    let told = counts.iter().zip(words).filter(|(count, _)| **count > 0);
    let told: Vec<String> = told
        .map(|(count, (one, many))| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    let samples = counted(usize::try_from(samples).unwrap_or(usize::MAX), "sample");
    (!told.is_empty()).then(|| format!("probes: {samples}; {}", told.join(", ")))
}

/// Everything that the probes could not measure, without repetition.
fn probes(summary: &Summary) -> Vec<String> {
    let records = || {
        summary
            .points
            .iter()
            .flat_map(|point| &point.runs)
            .filter_map(|run| run.probes.as_ref())
    };
    let sum = |get: fn(&ProbeRecord) -> u64| records().map(get).sum::<u64>();
    let counts = [
        sum(|record| record.late),
        sum(|record| record.missed),
        sum(|record| record.resets),
        sum(|record| record.unreadable),
    ];
    let mut lines: Vec<String> = probe_trouble(sum(|record| record.samples), counts)
        .into_iter()
        .collect();
    let mut elsewhere: BTreeMap<String, HostProbes> = BTreeMap::new();
    for (host, probes) in records().flat_map(|record| &record.elsewhere) {
        elsewhere.entry(host.clone()).or_default().add(probes);
    }
    let troubles = hosts::trouble(&elsewhere).map(|line| format!("probes: {line}"));
    lines.extend(troubles.take(NOTES_MAX));
    lines.extend(probe_notes(records()));
    lines
}

/// The probes' notes on what is missing, in one line for all hosts.
fn probe_notes<'a>(records: impl Iterator<Item = &'a ProbeRecord>) -> Option<String> {
    let missing: BTreeSet<&str> = records
        .flat_map(|record| record.notes.iter().map(String::as_str))
        .collect();
    let more = missing.len().saturating_sub(NOTES_MAX);
    let shown: Vec<&str> = missing.into_iter().take(NOTES_MAX).collect();
    let rest = match more {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!shown.is_empty()).then(|| format!("probes: {}{rest}", shown.join("; ")))
}

#[cfg(test)]
mod tests;
