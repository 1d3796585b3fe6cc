//! The terminal output about an experiment: the plan before it, the table after it.

mod cells;
mod matrix;
mod notes;
mod performability;
mod recurring;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::role::Launch;
use brunt_core::units::{counted, format_size};
use brunt_result::by_kind::{KindEstimates, KindOverRuns};
use brunt_result::choice::RingMode;

use crate::experiment::{Experiment, Plan};
use crate::fault::{Overlap, Together, overlaps};
use crate::hooks::hosts;
use crate::host::HostName;
use brunt_result::degradation::{OverRuns, PhaseOverRuns, ResponseOverRuns, runs_without};
use brunt_result::drift::drift;
use brunt_result::failures;
use brunt_result::noise::NoiseShare;
use brunt_result::probe::{HostProbes, ProbeRecord};
use brunt_result::statistics::{Estimate, NOISY, RUNS_MIN};
use brunt_result::sticky::StickyCost;
use brunt_result::summary::{OpSummary, PointSummary, RunSummary, Summary};

use cells::{Cells, Columns};
use notes::Notes;

/// Width at which text is wrapped here.
pub(super) const WIDTH: usize = 80;
/// Maximum causes of failed requests, and ranges of wrong data, shown per point; more are in the summary.
const CAUSES_SHOWN: usize = 4;
const EXTENTS_SHOWN: usize = 3;
/// Maximum hosts whose probes are mentioned, and notes of each; all are in the summary.
const NOTES_MAX: usize = 5;

/// The table at the end of `brunt run`: a row for each point, below it its phases, kinds of operations and faults; then
/// matrices of two-axis sweeps; finally warnings, each once. Lines may have any length: the terminal's width is not
/// known here.
///
/// Response times count from the intended time, including retries. Rate, MB/s, mean and p99 are means of the runs' own
/// values; ± is the half-width of that mean's 95 % interval; other percentiles and max are of all runs together.
pub fn table(summary: &Summary) -> Vec<String> {
    let columns = Columns(summary.experiment.shown_percentiles());
    let mut lines = columns.head();
    let kinds = KindEstimates::of(&summary.points);
    let mut notes = Notes::default();
    for point in &summary.points {
        lines.extend(of_point(point, &kinds, columns));
        lines.extend(costs(point));
        lines.extend(performability::lines(point.performability.as_ref()));
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

/// The rows of a point: its phases, the whole run, its kinds of operations.
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
    // An average over healthy and broken time represents neither.
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

/// The row of a point without a complete run: what was measured until its end, marked as incomplete.
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
    if points.iter().any(|point| !point.phases.is_empty()) {
        lines.push(
            "before, during, after: whole intervals only; requests without an answer at the end count with their age; \
             'whole run' is the average over healthy and broken time"
                .into(),
        );
    }
    lines
}

/// Notes on a point's figures, a sentence each.
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
            .map(|depth| format!("queue depth {}", depth.said())),
    );
    notes.extend(losses(point));
    let mut doubts: Vec<&String> = point.runs.iter().flat_map(|run| &run.doubts).collect();
    doubts.sort_unstable();
    doubts.dedup();
    notes.extend(doubts.iter().map(|doubt| format!("doubtful: {doubt}")));
    notes.extend(super::trouble_note(&runs));
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
    // With a precision, there may be more runs than requested.
    let few = summary
        .points
        .iter()
        .all(|point| point.runs.len() < RUNS_MIN);
    lines.extend(few_runs(summary.experiment.repetitions as usize, few));
    lines.extend(drift(summary).map(|alike| {
        format!(
            "consecutive runs are correlated ({alike:.2}): the machine drifted; intervals are widened for it, and \
             more rounds or longer runs cover more of it"
        )
    }));
    lines.extend(super::indexes::lines(summary));
    lines.extend(super::transfer::lines(summary));
    lines.extend(probes(summary));
    lines
}

/// Requests that did not succeed, over all runs of a point, by kind; why they failed; and what verification found.
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

/// A warning if fewer `runs` were requested than a comparison needs, and `few` says that no point has more.
pub(crate) fn few_runs(runs: usize, few: bool) -> Option<String> {
    (runs < RUNS_MIN && few).then(|| {
        format!(
            "{}: no comparison will give a verdict; write repetitions = {RUNS_MIN}",
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

/// A warning if a point never reached the requested precision; says what it would have taken.
fn imprecise(point: &PointSummary) -> Option<String> {
    let precision = point.precision.filter(|precision| !precision.reached)?;
    let half = precision
        .half_width
        .map_or(String::new(), |half| format!(": ± {:.1}%", half * 100.0));
    let runs = point.runs.len();
    let wanted = precision
        .runs_wanted
        .map_or(String::new(), |wanted| format!("; about {wanted} would do"));
    Some(format!(
        "not within {}%{half} after {runs} runs{wanted}",
        precision.goal * 100.0
    ))
}

/// A warning if a point's interval is too wide to be useful; says what would help.
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

/// The row of one phase of a point with faults, preceded by its name if that is long.
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
    lines.extend(phase.stood_still().map(|(requests, oldest_us)| {
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

/// Half-width of an interval in percent of its mean.
pub(super) fn width(estimate: Option<Estimate>) -> String {
    let share = estimate.and_then(|estimate| estimate.relative_half_width());
    share.map_or("-".into(), |share| format!("{:.0}%", share * 100.0))
}

/// Late or missing samples, counters that restarted and texts that could not be read.
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

/// What the probes could not measure, each once.
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

/// What is missing, in one line for all hosts.
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

/// The machine's noise, if it matters, and the cost of each fault.
fn costs(point: &PointSummary) -> Vec<String> {
    let noise = NoiseShare::of(point);
    // A job's runs are parts of the group's runs, whose point reports the noise.
    let said = noise
        .filter(|_| point.part_of.is_none())
        .and_then(|noise| noise.said());
    let mut lines: Vec<String> = said
        .map(|said| format!("  machine: {said}"))
        .into_iter()
        .collect();
    lines.extend(
        point
            .recurring
            .iter()
            .flat_map(|total| recurring::lines(point, total)),
    );
    let sticky = point.sticky.as_ref();
    let is_compared =
        |fault: &&OverRuns| sticky.is_some_and(|cost| cost.faults.contains(&fault.fault));
    for fault in point.degradation.iter().filter(|one| !is_compared(one)) {
        if point.occurrence(&fault.fault).is_none() {
            lines.extend(cost(fault));
        }
    }
    lines.extend(sticky.into_iter().flat_map(sticky_cost));
    lines
}

/// Half the width of an interval; a single run has none, rather than one of zero width.
fn half_width(estimate: &Estimate) -> Option<f64> {
    estimate.high.map(|high| high - estimate.mean)
}

/// What sticky faults cost compared with the normal point.
fn sticky_cost(cost: &StickyCost) -> Vec<String> {
    let mut lines = vec![format!("  fault {}, {}:", cost.name(), cost.reference())];
    match &cost.drop {
        Some(drop) => {
            let width =
                half_width(drop).map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
            lines.push(format!(
                "    {:.1}%{width} of the rate lost",
                drop.mean * 100.0
            ));
        }
        None => lines.push("    no round in which both points have a complete run".into()),
    }
    let factor = |factor: &Estimate| Factor(factor.mean, half_width(factor)).to_string();
    if let (Some(mean), Some(p99)) = (&cost.response_mean_factor, &cost.response_p99_factor) {
        lines.push(format!(
            "    response: mean {}, p99 {}",
            factor(mean),
            factor(p99)
        ));
    }
    if let (Some(share), Some(before)) = (cost.failed_share, cost.failed_share_before)
        && share.mean > 0.0
    {
        let (share, before) = (share.mean * 100.0, before.mean * 100.0);
        lines.push(format!(
            "    {share:.2}% of requests failed, {before:.2}% without"
        ));
    }
    lines
}

/// A fault's cost: a line for the rate, one for response times, one for errors if there were any; long lines are split
/// in two.
fn cost(fault: &OverRuns) -> Vec<String> {
    let name: String = fault.fault.chars().take(70).collect();
    let Some(drop) = fault.drop else {
        return vec![
            format!("  fault {name}:"),
            "    no baseline before the fault".to_string(),
        ];
    };
    let mut lines = vec![format!("  fault {name}:")];
    let mut say = |what: String, when: String| {
        let line = format!("    {what}; {when}");
        if line.chars().count() <= WIDTH {
            return lines.push(line);
        }
        lines.extend([format!("    {what}"), format!("      {when}")]);
    };
    let width = half_width(&drop).map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
    let share = format!("{:.1}%{width} of the rate lost", drop.mean * 100.0);
    let when = times(
        (
            &fault.detected_s,
            fault.not_detected,
            fault.detection_inconclusive,
        ),
        (
            &fault.recovered_s,
            fault.not_recovered,
            fault.recovery_inconclusive,
        ),
    );
    // If recovery is undetermined in every run, so is the sum until then.
    let lost = fault
        .lost_requests
        .map_or(String::new(), |lost| format!(", {:.0} requests", lost.mean));
    say(format!("{share}{lost}"), when);
    let factor = |of: &ResponseOverRuns| {
        of.factor
            .map(|factor| format!("{}", Factor(factor.mean, half_width(&factor))))
    };
    let (mean, p99) = (&fault.response_mean, &fault.response_p99);
    if mean.baseline_us.is_some() {
        let when = times(
            (
                &mean.detected_s,
                mean.not_detected,
                mean.detection_inconclusive,
            ),
            (
                &mean.recovered_s,
                mean.not_recovered,
                mean.recovery_inconclusive,
            ),
        );
        let wait = fault.excess_wait_s.map_or(String::new(), |wait| {
            let digits = if wait.mean.abs() < 1000.0 { 3 } else { 0 };
            format!(", {:.digits$} s of excess wait", wait.mean)
        });
        let what = match (factor(mean), factor(p99)) {
            (Some(mean), Some(p99)) => format!("response: mean {mean}, p99 {p99}{wait}"),
            _ => "response: no request was due during the fault".to_string(),
        };
        say(what, when);
    }
    if let (Some(share), Some(before)) = (fault.failed_share, fault.failed_share_before)
        && share.mean > 0.0
    {
        let (share, before) = (share.mean * 100.0, before.mean * 100.0);
        lines.push(format!(
            "    {share:.2}% of requests failed, {before:.2}% before"
        ));
    }
    if let Some(short) = fault.too_short {
        let runs = counted(fault.recovery_too_short, "run");
        lines.push(format!(
            "    inconclusive: {runs} too short after the fault to judge recovery;"
        ));
        lines.push(format!("      {}", short.advice()));
    }
    if let Some(times) = fault.intervals_wanted() {
        let hidden = fault.noticeable_drop.map_or("any drop".into(), |drop| {
            format!("drops under {:.0}%", drop * 100.0)
        });
        lines.push(format!(
            "    inconclusive: noise hides {hidden}; it would take longer phases,"
        ));
        lines.push(format!(
            "      about {times:.0} times as many intervals before, during and after"
        ));
    }
    lines
}

/// A factor by which a time grew, and its interval's half-width.
struct Factor(f64, Option<f64>);

impl std::fmt::Display for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Factor(factor, half) = *self;
        let digits = if factor < 100.0 { 2 } else { 0 };
        write!(f, "x {factor:.digits$}")?;
        half.map_or(Ok(()), |half| write!(f, " ± {half:.digits$}"))
    }
}

/// The delay in seconds, the number of runs in which it never happened, and the number in which noise hid it.
type Seen<'a> = (&'a Option<Estimate>, usize, usize);

/// When a figure showed a fault, and when it recovered.
fn times(seen: Seen<'_>, back: Seen<'_>) -> String {
    let answer = |what: &str, (seconds, never, open): Seen<'_>| match (seconds, never, open) {
        (Some(seconds), 0, 0) => format!("{what} after {:.2} s", seconds.mean),
        (Some(seconds), never, open) => {
            format!(
                "{what} after {:.2} s ({})",
                seconds.mean,
                runs_without(never, open)
            )
        }
        (None, 0, 1..) => format!("{what}: inconclusive"),
        (None, _, 0) => format!("not {what}"),
        (None, _, open) => format!("not {what} (inconclusive in {open})"),
    };
    format!("{}, {}", answer("seen", seen), answer("back", back))
}

/// The minimum duration of the runs: how long services take to start, and runs to prepare, is unknown in advance.
fn duration(least: Duration, open_ended: bool) -> String {
    let seconds = least.as_secs();
    let more = if open_ended {
        ", plus the time for its requests and bytes"
    } else {
        ""
    };
    match seconds {
        0 if open_ended && least.is_zero() => {
            "takes as long as its requests and bytes take".to_string()
        }
        0 => format!("takes at least {:.1} s{more}", least.as_secs_f64().max(0.1)),
        _ => {
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            format!("takes at least {hours}:{minutes:02}:{seconds:02}{more}")
        }
    }
}

/// File systems, and the guests that some of them may be on.
fn file_systems(experiment: &Experiment) -> Vec<String> {
    let hosts = experiment.hosts().unwrap_or_default();
    let guest = |(host, service): (&HostName, &str)| {
        format!("host {host} is a guest: service {service} runs it")
    };
    let mut lines: Vec<String> = hosts.guests().map(guest).collect();
    for (name, load) in &experiment.filesystems {
        let hosts = if load.hosts.is_empty() {
            String::new()
        } else {
            format!(" on {}", load.hosts.join(" + "))
        };
        lines.push(format!(
            "file system {name}: files in {}{hosts}",
            load.directory.display()
        ));
    }
    lines
}

/// The output of `--check`: what would run, how long, and what would be written to.
pub fn describe(experiment: &Experiment, plan: &Plan) -> Vec<String> {
    let (points, runs) = (plan.heads().len(), plan.runs.len());
    let mut lines = vec![format!(
        "{}: {}, {}, {} (seed {})",
        experiment.name,
        counted(points, "point"),
        counted(experiment.repetitions as usize, "repetition"),
        counted(runs, "run"),
        experiment.seed
    )];
    lines.push(duration(plan.time_min, plan.open_ended));
    if let Some(goal) = experiment.precision_goal() {
        let most = goal.time_max.map_or(String::new(), |time| {
            format!(" and none started after {time}")
        });
        let (half, runs) = (goal.half_width * 100.0, goal.repetitions_max);
        lines.push(format!(
            "repeats each point until ± {half}%, at most {runs} runs{most}"
        ));
    }
    for planned in experiment.roles() {
        let (name, kind) = (&planned.name, planned.role.info());
        lines.extend(match planned.role.launch() {
            Launch::Process { .. } => {
                let of = planned
                    .role
                    .luns()
                    .map_or(String::new(), |luns| format!(": {}", luns.join(" ")));
                let is_here = planned.host == HostName::local();
                let on = if is_here {
                    String::new()
                } else {
                    format!(" on host {}", planned.host)
                };
                Some(format!(
                    "target {name} is served{on} by its own process (brunt {}){of}",
                    kind.name
                ))
            }
            Launch::Kept => Some(format!("service {name} is started on {}", planned.host)),
            Launch::Within => None,
        });
    }
    lines.extend(file_systems(experiment));
    for (name, url, allowed) in &plan.written {
        let what = match allowed {
            true => "will be overwritten, whatever it holds (allow_overwrite)",
            false => {
                "will be written; refused if it holds a file system, a partition table or other known data"
            }
        };
        lines.push(format!("target {name} ({url}) {what}"));
    }
    if experiment.probes.is_on() {
        let names: Vec<&str> = experiment
            .probes
            .chosen()
            .iter()
            .map(|probe| probe.name)
            .collect();
        let elsewhere = experiment.probed_hosts();
        let on = if elsewhere.is_empty() {
            String::new()
        } else {
            format!(" here, on {}", elsewhere.join(", "))
        };
        lines.push(format!(
            "probes every {}{on}: {}",
            experiment.probes.interval,
            names.join(", ")
        ));
    }
    for point in &plan.points {
        let indent = if point.part_of.is_some() {
            "    "
        } else {
            "  "
        };
        lines.push(format!(
            "{indent}{}: {}",
            point.label,
            point.load.describe()
        ));
    }
    lines.extend(phases(plan));
    lines.extend(super::engine::planned(plan));
    for (index, fault) in experiment.fault.iter().enumerate() {
        if !fault.is_written() {
            continue;
        }
        let time = |time: Option<brunt_core::Span>| time.map(|time| time.to_string());
        let when = match (time(fault.common.at), time(fault.common.lasts)) {
            (None, _) => " for the whole run".to_string(),
            _ if fault.common.occurrence.is_some() => {
                format!(", {}", recurring::planned(&experiment.fault[index..]))
            }
            (Some(at), None) => format!(" from {at}"),
            (Some(at), Some(lasts)) => format!(" at {at} for {lasts}"),
        };
        lines.push(format!(
            "fault on {}: {}{when}",
            fault.place(),
            fault.what()
        ));
    }
    let mut together_lines = BTreeSet::new();
    for Overlap {
        first,
        second,
        together,
    } in overlaps(&experiment.fault, experiment)
    {
        // Impossible combinations were refused when the file was read.
        if let Together::Both(how) = together {
            let (a, b) = (&experiment.fault[first], &experiment.fault[second]);
            let line = format!("faults '{}' and '{}' overlap: {how}", a.name(), b.name());
            // Occurrences of two faults may overlap several times.
            if together_lines.insert(line.clone()) {
                lines.push(line);
            }
        }
    }
    lines
}

/// The phases of each repetition, in order.
fn phases(plan: &Plan) -> impl Iterator<Item = String> {
    let numbered = (1..).zip(&plan.phases);
    numbered.map(|(number, phase)| {
        let workloads = phase.workloads.join(", ");
        let mut line = format!("phase {number}: {workloads}");
        if !phase.name.is_empty() {
            line = format!("phase {number}, {}: {workloads}", phase.name);
        }
        if phase.once {
            line += ", before the first repetition only";
        }
        if let Some(wait) = &phase.wait_for {
            line += &format!("; waits for: {}", wait.command.join(" "));
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What probes could not measure is counted, in singular or plural.
    #[test]
    fn trouble_of_probes() {
        assert_eq!(probe_trouble(39, [0; 4]), None);
        assert_eq!(
            probe_trouble(39, [1, 0, 1, 0]).unwrap(),
            "probes: 39 samples; 1 late, 1 counter was reset"
        );
        let many = probe_trouble(1, [2, 1, 3, 2]).unwrap();
        assert_eq!(
            many,
            "probes: 1 sample; 2 late, 1 missed, 3 counters were reset, 2 texts unreadable"
        );
    }

    /// Probes of one host are one line, over all runs and metrics.
    #[test]
    fn each_host_has_one_line_of_samples_and_all_have_one_of_what_is_missing() {
        use brunt_result::{Outcome, Stopped};
        let run = |late: u64, notes: &[&str]| {
            let near = HostProbes {
                samples: 10,
                late,
                ..HostProbes::default()
            };
            let record = ProbeRecord {
                notes: notes.iter().map(|note| note.to_string()).collect(),
                elsewhere: [("near".to_string(), near)].into(),
                hosts: [("far".to_string(), BTreeMap::new())].into(),
                ..ProbeRecord::default()
            };
            let outcome = Outcome {
                stopped: Stopped::Done,
                ..Outcome::interrupted()
            };
            RunSummary {
                probes: Some(record),
                ..RunSummary::of(&outcome, 0, 0, 1, None)
            }
        };
        let runs = vec![
            run(1, &["near: no disk", "far: no network"]),
            run(2, &["near: no disk", "near: no memory"]),
        ];
        let point = PointSummary {
            runs,
            ..PointSummary::default()
        };
        let summary = Summary {
            points: vec![point],
            ..empty()
        };
        let expected = [
            "probes: near: 20 samples; 3 late",
            "probes: far: no network; near: no disk; near: no memory",
        ];
        assert_eq!(probes(&summary), expected);
    }

    /// A sticky fault has the line of its comparison in place of a cost without a baseline.
    #[test]
    fn sticky_faults_are_held_against_the_normal_point() {
        let each = |values: &[f64]| Estimate::of(values);
        let fault = OverRuns {
            fault: "far".into(),
            ..OverRuns::default()
        };
        let mut point = PointSummary {
            degradation: vec![fault],
            ..PointSummary::default()
        };
        assert!(costs(&point)[1].contains("no baseline"));
        point.sticky = Some(StickyCost {
            faults: vec!["far".into()],
            normal: "normal reads".into(),
            rounds: 2,
            baseline: each(&[1000.0, 2000.0]),
            drop: each(&[0.5, 0.5]),
            lost_requests_per_second: each(&[500.0, 1000.0]),
            response_mean_factor: each(&[2.0, 2.0]),
            response_p99_factor: each(&[3.0, 3.0]),
            failed_share_before: each(&[0.0, 0.0]),
            failed_share: each(&[0.01, 0.01]),
        });
        let expected = [
            "  fault far, against normal reads, 2 rounds:",
            "    50.0% ± 0.0 of the rate lost",
            "    response: mean x 2.00 ± 0.00, p99 x 3.00 ± 0.00",
            "    1.00% of requests failed, 0.00% without",
        ];
        assert_eq!(costs(&point), expected);
    }

    /// The chosen percentiles are the columns, in the rows of points and kinds of operations.
    #[test]
    fn chosen_percentiles_are_columns() {
        use brunt_core::Nanos;
        use brunt_result::percentile::Percentile;
        use brunt_result::{Figures, OpKind, Outcome, Stopped};
        let mut figures = Figures::of_kinds(&[OpKind::Read, OpKind::Write]);
        for slot in 0..2 {
            let of = figures.at(slot);
            of.completed = 1000;
            (1..=1000).for_each(|us| of.response.record(Nanos(us * 1000)));
        }
        let outcome = Outcome {
            figures,
            stopped: Stopped::Done,
            ..Outcome::interrupted()
        };
        let chosen: Vec<Percentile> = ["p25", "p95", "p99.99"]
            .map(|name| Percentile::named(name).unwrap())
            .to_vec();
        let mut run = RunSummary::of(&outcome, 0, 0, 1, None);
        run.keep_percentiles(&chosen, &outcome.figures);
        let response = outcome.figures.response();
        let point = PointSummary {
            label: "disk".into(),
            requests_per_second: Estimate::of(&[1.0]),
            response_percentiles_us: Percentile::of_each(&chosen, &response),
            response: run.response,
            runs: vec![run],
            ..PointSummary::default()
        };
        let mut summary = Summary {
            points: vec![point],
            ..empty()
        };
        let words = |lines: &[String], at: usize| -> Vec<String> {
            lines[at].split_whitespace().map(String::from).collect()
        };
        let usual = table(&summary);
        assert!(
            words(&usual, 1)
                .join(" ")
                .ends_with("mean p50 p99 ± p99.9 max")
        );
        summary.experiment.percentiles = chosen;
        let lines = table(&summary);
        let head = "requests/s ± MB/s mean p25 p95 p99.99 max";
        assert_eq!(words(&lines, 1).join(" "), head);
        assert!(
            lines[2].ends_with("250us  950us      - 1.00ms"),
            "{lines:#?}"
        );
        assert!(
            lines[3].contains("read") && lines[3].ends_with("250us  950us      - 1.00ms"),
            "{lines:#?}"
        );
    }

    /// A complete result without points.
    fn empty() -> Summary {
        Summary {
            format: brunt_result::summary::FORMAT,
            brunt: String::new(),
            complete: true,
            trouble: None,
            experiment: brunt_result::experiment::ExperimentSummary::default(),
            points: Vec::new(),
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            label: None,
        }
    }

    /// Too few runs for a comparison are reported, with the setting and a sufficient value.
    #[test]
    fn too_few_runs_are_said_to_be() {
        let mut summary = Summary {
            format: brunt_result::summary::FORMAT,
            brunt: String::new(),
            complete: true,
            trouble: None,
            experiment: brunt_result::experiment::ExperimentSummary::default(),
            points: Vec::new(),
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            label: None,
        };
        summary.experiment.repetitions = 1;
        let said = table(&summary).join("\n");
        assert!(
            said.contains("one run a point") && said.contains("repetitions = 4"),
            "{said}"
        );
        summary.experiment.repetitions = 4;
        assert!(!table(&summary).join("\n").contains("repetitions"));
    }

    /// A point with faults starts with its phases, each in a separate row; the average over all of them comes last.
    #[test]
    fn phases_lead() {
        use brunt_result::degradation::PhaseKind;
        use brunt_result::{Figures, OpKind, Outcome, Stopped};
        let estimate = |mean: f64| {
            Some(Estimate {
                mean,
                low: Some(mean),
                high: Some(mean),
                runs: 4,
            })
        };
        let phase = |kind, fault: &str, rate| PhaseOverRuns {
            kind,
            faults: if fault.is_empty() {
                Vec::new()
            } else {
                vec![fault.into()]
            },
            requests_per_second: estimate(rate),
            ..PhaseOverRuns::default()
        };
        let long = "a delay of the wide-area network";
        let mut figures = Figures::of_kinds(&[OpKind::Read, OpKind::Write]);
        (0..2).for_each(|slot| figures.at(slot).completed = 10);
        let outcome = Outcome {
            figures,
            stopped: Stopped::Done,
            ..Outcome::interrupted()
        };
        let point = PointSummary {
            label: "disk".into(),
            requests_per_second: estimate(1555.0),
            phases: vec![
                phase(PhaseKind::Before, "", 2001.0),
                PhaseOverRuns {
                    response_max_us: Some(998_000.0),
                    waiting_requests: Some(8),
                    waiting_oldest_us: Some(998_000.0),
                    ..phase(PhaseKind::During, long, 111.0)
                },
                phase(PhaseKind::After, "", 2002.0),
            ],
            runs: vec![RunSummary::of(&outcome, 0, 0, 1, None)],
            ..PointSummary::default()
        };
        let summary = Summary {
            format: brunt_result::summary::FORMAT,
            brunt: String::new(),
            complete: true,
            trouble: None,
            experiment: brunt_result::experiment::ExperimentSummary::default(),
            points: vec![point],
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            label: None,
        };
        let lines = table(&summary);
        let place = |part: &str| {
            let found = lines.iter().position(|line| line.contains(part));
            found.unwrap_or_else(|| panic!("{part} in {lines:#?}"))
        };
        let order = [
            "disk",
            "before ",
            "during a delay",
            "111",
            "8 requests without an answer at its end, the oldest for 998ms",
            "after ",
            "whole run ",
        ]
        .map(place);
        assert!(
            order.is_sorted() && lines[place("whole run ")].contains("1555"),
            "{lines:#?}"
        );
        // The stall is the maximum of its phase only.
        assert!(lines[place("111")].ends_with("998ms"), "{lines:#?}");
        assert_eq!(
            lines.iter().filter(|line| line.contains("998ms")).count(),
            2
        );
        // Kinds of operations are indented below the whole run, as parts of it.
        assert!(
            lines[place("whole run ")].starts_with("  whole")
                && lines[place("read ")].starts_with("    read")
        );
        assert!(place("read ") > place("whole run "));
        assert!(
            lines[place("before ")].contains("2001") && lines[place("after ")].contains("2002")
        );
    }

    /// The machine's noise in runs of simultaneous jobs is reported once for the group, not again for each job.
    #[test]
    fn noise_is_said_once() {
        use brunt_result::noise::MachineNoise;
        use brunt_result::{Outcome, Stopped};
        let noisy = |others_cpus| {
            let outcome = Outcome {
                stopped: Stopped::Done,
                ..Outcome::interrupted()
            };
            let noise = MachineNoise {
                others_cpus: Some(others_cpus),
                samples: 40,
                ..MachineNoise::default()
            };
            RunSummary {
                noise: Some(noise),
                ..RunSummary::of(&outcome, 0, 0, 1, None)
            }
        };
        let all = PointSummary {
            runs: vec![noisy(0.5), noisy(1.5)],
            ..PointSummary::default()
        };
        let said =
            |point: &PointSummary| costs(point).iter().any(|line| line.contains("machine: "));
        assert!(said(&all));
        assert!(!said(&PointSummary {
            part_of: Some("all".into()),
            ..all
        }));
    }

    /// The cost of a fault fits a terminal in all cases, and says what is known and what is not.
    #[test]
    fn costs_fit() {
        // Long because it is one list of cases, best read in one place.
        let estimate = |mean: f64| {
            Some(Estimate {
                mean,
                low: Some(mean / 2.0),
                high: Some(mean * 1.5),
                runs: 4,
            })
        };
        let response = ResponseOverRuns {
            baseline_us: estimate(1e6),
            factor: estimate(12_345.6),
            detected_s: estimate(0.1),
            recovered_s: estimate(123.4),
            not_recovered: 3,
            ..ResponseOverRuns::default()
        };
        let all = OverRuns {
            fault: "x".repeat(100),
            runs: 4,
            drop: estimate(0.999),
            lost_requests: estimate(123_456_789.0),
            not_detected: 4,
            not_recovered: 4,
            response_mean: response.clone(),
            response_p99: response,
            excess_wait_s: estimate(123_456.7),
            failed_share_before: estimate(0.0),
            failed_share: estimate(0.5),
            ..OverRuns::default()
        };
        let lines = cost(&all);
        assert!(
            lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{lines:#?}"
        );
        let said = lines.join("\n");
        for part in [
            "99.9% ± 49.9 of the rate lost",
            "not seen, not back",
            "x 12346 ± 6173",
            "50.00% of requests failed",
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
        let of_one = |mean: f64| {
            Some(Estimate {
                mean,
                low: None,
                high: None,
                runs: 1,
            })
        };
        let alone = OverRuns {
            drop: of_one(0.999),
            response_mean: ResponseOverRuns {
                factor: of_one(12_345.6),
                ..all.response_mean.clone()
            },
            ..all.clone()
        };
        let said = cost(&alone).join("\n");
        assert!(
            said.contains("99.9% of the rate lost") && said.contains("mean x 12346, p99"),
            "{said}"
        );
        // Noise is reported as such, with a remedy, and not as zero.
        let noisy = cost(&OverRuns {
            detected_s: None,
            not_detected: 0,
            detection_inconclusive: 4,
            recovered_s: estimate(0.5),
            not_recovered: 1,
            recovery_inconclusive: 3,
            noticeable_drop: Some(0.9),
            drop: estimate(0.2),
            ..all.clone()
        });
        assert!(
            noisy.iter().all(|line| line.chars().count() <= WIDTH),
            "{noisy:#?}"
        );
        let said = noisy.join("\n");
        for part in [
            "seen: inconclusive, back after 0.50 s (not in 1 run, inconclusive in 3)",
            "noise hides drops under 90%",
            "about 22 times as many intervals",
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
        let quiet = cost(&OverRuns {
            failed_share: estimate(0.0),
            response_mean: ResponseOverRuns::default(),
            ..all
        });
        assert!(
            quiet
                .iter()
                .all(|line| !line.contains("failed") && !line.contains("response")),
            "{quiet:#?}"
        );
    }
}
