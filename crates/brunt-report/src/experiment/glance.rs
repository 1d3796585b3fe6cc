//! The summary box: the measured target and its host, headline figures, and warnings about their reliability.

use std::collections::BTreeMap;

use brunt_core::units::counted;
use brunt_result::experiment::{ArrivalKind, TargetKind};
use brunt_result::noise::NoiseShare;
use brunt_result::statistics::RUNS_MIN;
use brunt_result::summary::{PointSummary, Summary};

use super::details::Details;
use super::points::{Points, with_uncertainty};
use super::{links, losses, phases, require, when};
use crate::format::{Unit, count, plus_minus};
use crate::page::{Card, Cell, Glance, Notice, PageTable, Section, Tone};

/// Maximum number of cards; more headline figures go into a table.
const CARDS_MAX: usize = 6;
/// Label for the point that a card's figures are from, if rates are given.
const AT: &str = "at";
/// Label for the point that a card's figures are from, if it has the highest headline figure.
const HIGHEST_AT: &str = "highest, at";
/// Facts about a target's storage that belong next to the figures: key in the table `environment`, and label.
const STORAGE_FACTS: [(&str, &str); 3] = [
    ("device_model", "model"),
    ("file_system", "file system"),
    ("queue_scheduler", "scheduler"),
];
/// A confidence interval whose half-width exceeds this share of the mean gets a warning.
const WIDE: f64 = 0.10;
/// Maximum number of doubts; summary.json has the doubts about each run.
const DOUBTS_MAX: usize = 5;

pub(super) fn glance(summary: &Summary, points: &Points<'_>, details: &Details) -> Glance {
    let headlines = headlines(summary, points);
    let cards = match headlines.len() > CARDS_MAX {
        true => Vec::new(),
        false => headlines.iter().map(|one| card(one, points)).collect(),
    };
    Glance {
        facts: facts(summary, details),
        cards,
        notices: damaged(details).chain(notices(summary, points)).collect(),
    }
}

/// Lists the parts of tables that are missing from the charts.
fn damaged(details: &Details) -> impl Iterator<Item = Notice> {
    let which = details.damaged.join("; ");
    let text = format!(
        "Missing from the charts and tables below: {which}. The figures of runs are not affected."
    );
    (!details.damaged.is_empty())
        .then(|| Notice::new(Tone::Bad, text))
        .into_iter()
}

/// Number of complete runs.
fn complete_runs(summary: &Summary) -> usize {
    summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .filter(|run| run.is_complete())
        .count()
}

/// The result's label, and the results with which its runs took turns.
fn origin(summary: &Summary) -> Vec<(String, String)> {
    let label = summary.label.iter();
    let mut facts: Vec<(String, String)> = label
        .map(|label| ("Label".to_string(), label.clone()))
        .collect();
    if let Some(with) = &summary.interleaved {
        let others = with.results.iter().enumerate();
        let others = others.filter(|(place, _)| *place != with.place as usize);
        let others: Vec<&str> = others.map(|(_, name)| name.as_str()).collect();
        facts.push(("Took turns with".into(), others.join(", ")));
    }
    facts
}

fn facts(summary: &Summary, details: &Details) -> Vec<(String, String)> {
    let experiment = &summary.experiment;
    let mut facts = Vec::new();
    let mut measured = format!(
        "{} × {}",
        counted(experiment.targets.len(), "target"),
        counted(experiment.workloads.len(), "workload")
    );
    let axes: Vec<&String> = summary
        .points
        .first()
        .map_or(Vec::new(), |point| point.axes.keys().collect());
    for axis in axes {
        let mut values: Vec<&String> = summary
            .points
            .iter()
            .filter_map(|point| point.axes.get(axis))
            .collect();
        values.sort();
        values.dedup();
        measured += &format!(
            " × {} of {}",
            counted(values.len(), "value"),
            axis.replace('_', " ")
        );
    }
    let made = complete_runs(summary);
    let planned = planned_runs(summary);
    measured += &format!(
        " = {}, {} each; {made} of {planned} runs complete",
        counted(summary.points.len(), "point"),
        counted(experiment.repetitions as usize, "run"),
    );
    facts.push(("Measured".into(), measured));
    let when = details.span_unix_ns.map(when::span);
    facts.extend(when.map(|when| ("When".to_string(), when)));
    facts.push(("Program".into(), format!("Brunt {}", summary.brunt)));
    facts.extend(origin(summary));
    for (name, target) in &experiment.targets {
        let host = target
            .host
            .as_ref()
            .map_or(String::new(), |host| format!(" on {host}"));
        let place = match (target.served, target.kind) {
            (true, _) => format!("{} (served{host} for this experiment)", target.place),
            (false, TargetKind::Directory) => format!("{} (a directory)", target.place),
            (false, _) => target.place.clone(),
        };
        let storage = storage(name, details);
        facts.push((format!("Target {name}"), place + &storage));
    }
    for (name, workload) in &experiment.workloads {
        facts.push((format!("Workload {name}"), workload.description.clone()));
    }
    if let Some(congestion) = &experiment.congestion {
        facts.push(("TCP".into(), congestion.describe()));
    }
    if !details.environment.is_empty() {
        let told: Vec<String> = details
            .environment
            .iter()
            .take(4)
            .map(|(_, text)| text.clone())
            .collect();
        facts.push(("On".into(), told.join(" · ")));
    }
    facts
}

/// Device model, file system and scheduler of a target, as far as recorded.
fn storage(target: &str, details: &Details) -> String {
    let subject = format!("target {target}");
    let of = |(key, word): &(&str, &str)| {
        let mut facts = details.facts.iter();
        let fact = facts.find(|fact| fact.subject == subject && fact.key == *key)?;
        // The kernel lists all schedulers and marks the active one: "none [mq-deadline]".
        let active = fact
            .value
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        let value = active.map_or(fact.value.as_str(), |(active, _)| active);
        Some(format!("; {word} {value}"))
    };
    STORAGE_FACTS.iter().filter_map(of).collect()
}

/// The point that represents a target and a workload: the one with the highest headline figure or, if rates are
/// given, with the highest rate.
struct Headline<'a> {
    name: String,
    point: &'a PointSummary,
    /// The load has a given rate, so the latency is the result.
    open: bool,
    /// Requests have different sizes, so points are ranked by bytes per second.
    by_bytes: bool,
}

/// The headline of each target and workload.
fn headlines<'a>(summary: &'a Summary, points: &Points<'a>) -> Vec<Headline<'a>> {
    let mut groups: BTreeMap<(&str, &str), Vec<&PointSummary>> = BTreeMap::new();
    for point in points.all {
        groups
            .entry((&point.target, &point.workload))
            .or_default()
            .push(point);
    }
    let several = summary.experiment.workloads.len() > 1;
    let best = |((target, workload), group): ((&str, &str), Vec<&'a PointSummary>)| {
        let bytes = |point: &PointSummary| point.bytes_per_second.map_or(0.0, |rate| rate.mean);
        let requests =
            |point: &PointSummary| point.requests_per_second.map_or(0.0, |rate| rate.mean);
        let size = |point: &PointSummary| (bytes(point) / requests(point).max(1e-9)).round();
        let measured = group
            .into_iter()
            .filter(|point| point.requests_per_second.is_some());
        let measured: Vec<&PointSummary> = measured.collect();
        let by_bytes = measured
            .windows(2)
            .any(|pair| size(pair[0]) != size(pair[1]));
        let point = measured.into_iter().max_by(|a, b| match by_bytes {
            true => bytes(a).total_cmp(&bytes(b)),
            false => requests(a).total_cmp(&requests(b)),
        })?;
        let name = match several {
            true => format!("{target} · {workload}"),
            false => target.to_string(),
        };
        let workload = summary.experiment.workloads.get(workload);
        Some(Headline {
            name,
            point,
            open: workload.is_some_and(|of| of.arrival == ArrivalKind::Open),
            by_bytes,
        })
    };
    groups.into_iter().filter_map(best).collect()
}

/// "1.5 k requests/s" and its uncertainty.
fn rate_of(point: &PointSummary) -> Option<(String, String)> {
    let (rate, pm) = with_uncertainty(&point.requests_per_second?, Unit::PerSecond);
    Some((rate.replace("/s", " requests/s"), pm))
}

/// A table of the headline figures, if there are too many for cards.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let headlines = headlines(summary, points);
    (headlines.len() > CARDS_MAX).then(|| {
        let mut section = Section::new("Headline figures");
        section.table(headline_table(&headlines, points));
        section
    })
}

/// All headlines, one per line.
fn headline_table(headlines: &[Headline<'_>], points: &Points<'_>) -> PageTable {
    let estimate = |known: Option<(String, String)>| {
        known.map_or(Cell::Empty, |(value, pm)| Cell::Estimate(value, pm))
    };
    let row = |one: &Headline<'_>| {
        let point = one.point;
        let bytes = point.bytes_per_second;
        let (mean, p99) = (point.response_mean_us, point.response_p99_us);
        vec![
            Cell::text(&one.name),
            points.place_of(point).map_or(Cell::Empty, Cell::text),
            estimate(rate_of(point)),
            estimate(bytes.map(|rate| with_uncertainty(&rate, Unit::BytesPerSecond))),
            estimate(mean.map(|mean| with_uncertainty(&mean, Unit::Micros))),
            estimate(p99.map(|p99| with_uncertainty(&p99, Unit::Micros))),
        ]
    };
    let by = match headlines.iter().any(|one| one.by_bytes) {
        true => "The point of each target and workload with the highest transfer rate",
        false => "The point of each target and workload with the highest rate",
    };
    let columns = ["", "at", "requests", "transfer", "mean response", "p99"];
    PageTable::new(by, &columns, headlines.iter().map(row))
}

fn card(headline: &Headline<'_>, points: &Points<'_>) -> Card {
    let Headline {
        name,
        point,
        open,
        by_bytes,
    } = headline;
    let line = |(value, pm): &(String, String)| format!("{value} {pm}");
    let rate = rate_of(point).unwrap_or_default();
    let transfer = point.bytes_per_second;
    let transfer = transfer.map(|rate| with_uncertainty(&rate, Unit::BytesPerSecond));
    let p99 = point
        .response_p99_us
        .map(|p99| with_uncertainty(&p99, Unit::Micros));
    // The quantity that the point was chosen for comes first; with given rates, the latency at the highest rate.
    let lead = match (&p99, &transfer) {
        (Some((p99, pm)), _) if *open => (format!("p99 {p99}"), pm.clone()),
        (_, Some(transfer)) if *by_bytes => transfer.clone(),
        _ => rate.clone(),
    };
    let mut details = Vec::new();
    if *open || *by_bytes {
        details.push(("throughput".to_string(), line(&rate)));
    }
    if let Some(transfer) = transfer.filter(|_| *open || !by_bytes) {
        details.push(("transfer".into(), line(&transfer)));
    }
    if let Some(mean) = point.response_mean_us {
        details.push((
            "mean response".into(),
            line(&with_uncertainty(&mean, Unit::Micros)),
        ));
    }
    if let Some(p99) = p99.filter(|_| !open) {
        details.push(("p99".into(), line(&p99)));
    }
    if let Some(response) = point.response {
        let shown = format!(
            "{} · {}",
            Unit::Micros.show(response.p99_9_us),
            Unit::Micros.show(response.max_us)
        );
        details.push(("p99.9 · maximum, of all requests".into(), shown));
    }
    if let Some(place) = points.place_of(point) {
        details.push((if *open { AT } else { HIGHEST_AT }.into(), place));
    }
    let card = Card {
        name: name.clone(),
        value: lead.0,
        uncertainty: lead.1,
        details,
        parts: Vec::new(),
    };
    match point.phases.is_empty() {
        true => card,
        false => phased(card, point, *open),
    }
}

/// The card of a point with faults: the figures of each phase, followed by the overall average in words.
fn phased(card: Card, point: &PointSummary, open: bool) -> Card {
    let average = format!("{} {}", card.value, card.uncertainty)
        .trim_end()
        .to_string();
    let place = card
        .details
        .into_iter()
        .filter(|(word, _)| word == AT || word == HIGHEST_AT);
    let mut details: Vec<(String, String)> = phases::answers(point);
    details.push(("whole run, faults included".into(), average));
    details.extend(place);
    Card {
        name: card.name,
        details,
        parts: phases::parts(point, open),
        ..Card::default()
    }
}

/// Points that did not reach the requested precision, and the number of runs that it would have taken.
fn imprecise(summary: &Summary, points: &Points<'_>) -> Vec<String> {
    let short = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.precision?)));
    let short = short.filter(|(_, precision)| !precision.reached);
    let said = short.map(|(point, precision)| {
        let wanted = precision.runs_wanted.map_or(String::new(), |runs| {
            format!(
                " About {} would suffice, or longer runs.",
                counted(runs, "run")
            )
        });
        format!(
            "{} did not reach a precision of {}: {} after {}.{wanted}",
            points.full_name(point),
            plus_minus(precision.goal),
            precision
                .half_width
                .map_or("no interval".into(), plus_minus),
            counted(point.runs.len(), "run"),
        )
    });
    said.take(DOUBTS_MAX).collect()
}

/// Number of planned runs; runs added to reach the precision count as soon as they have been made.
fn planned_runs(summary: &Summary) -> usize {
    let least = summary.experiment.repetitions as usize;
    summary
        .points
        .iter()
        .map(|point| point.runs.len().max(least))
        .sum()
}

fn notices(summary: &Summary, points: &Points<'_>) -> Vec<Notice> {
    let told = |tone, texts: Vec<String>| {
        let texts = texts.into_iter();
        texts.map(move |text| Notice::new(tone, text))
    };
    let failures = brunt_result::failures::failures(summary).into_iter();
    let failures = failures.map(|what| format!("{what}; see Losses."));
    let lost = losses::total(summary);
    let mut notices = Vec::from_iter(completeness(summary, lost));
    notices.extend(told(Tone::Bad, failures.collect()));
    notices.extend(require::notices(summary));
    notices.extend(lost_requests(summary, lost));
    notices.extend(few_runs(summary));
    notices.extend(told(Tone::Warning, imprecise(summary, points)));
    notices.extend(drift(summary));
    notices.extend(wide_intervals(summary, points));
    notices.extend(machine_noise(summary, points));
    notices.extend(doubts(summary));
    notices.extend(told(Tone::Note, links::full_lines(summary, points)));
    notices.extend(told(Tone::Note, notes(summary)));
    notices
}

/// Reports whether all planned runs were completed; `None` if they were but requests were lost.
fn completeness(summary: &Summary, lost: u64) -> Option<Notice> {
    let (made, planned) = (complete_runs(summary), planned_runs(summary));
    if !summary.complete {
        let why = summary
            .trouble
            .as_deref()
            .map_or(String::new(), |why| format!(": {why}"));
        let text = format!(
            "Incomplete{why}. {made} of {planned} runs completed; only these are evaluated."
        );
        return Some(Notice::new(Tone::Bad, text));
    }
    (lost == 0).then(|| {
        let text = format!("Complete: {made} of {planned} runs, no requests lost.");
        Notice::new(Tone::Good, text)
    })
}

/// Reports the share of requests that failed or were lost, if there were any.
fn lost_requests(summary: &Summary, lost: u64) -> Option<Notice> {
    (lost > 0).then(|| {
        let runs = summary.points.iter().flat_map(|point| &point.runs);
        let all: u64 = runs.map(losses::requests).sum();
        let share = Unit::Share.show(lost as f64 / all.max(1) as f64);
        let text = format!(
            "{} of {} requests ({share}) failed or were lost; see Losses.",
            count(lost as f64),
            count(all as f64)
        );
        Notice::new(Tone::Warning, text)
    })
}

/// Advises more repetitions if there are too few for a verdict.
fn few_runs(summary: &Summary) -> Option<Notice> {
    (summary.experiment.repetitions < RUNS_MIN as u32).then(|| {
        let text = format!(
            "Fewer than {RUNS_MIN} runs per point: intervals are wide or missing, and comparisons \
             give no verdict. Write repetitions = {RUNS_MIN} or more."
        );
        Notice::new(Tone::Warning, text)
    })
}

/// Reports that the machine drifted during the experiment.
fn drift(summary: &Summary) -> Option<Notice> {
    let alike = brunt_result::drift::drift(summary)?;
    let text = format!(
        "Consecutive runs are correlated ({alike:.2}), so the machine drifted; intervals are widened \
         accordingly. More rounds or longer runs cover more of the drift."
    );
    Some(Notice::new(Tone::Warning, text))
}

/// The distinct notes on all points, in alphabetical order.
fn notes(summary: &Summary) -> Vec<String> {
    let notes = summary.points.iter().flat_map(|point| &point.notes);
    let mut notes: Vec<String> = notes.cloned().collect();
    notes.sort();
    notes.dedup();
    notes
}

/// Reports the number of wide throughput intervals, and the widest one.
fn wide_intervals(summary: &Summary, points: &Points<'_>) -> Option<Notice> {
    let widths = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.requests_per_second?.relative_half_width()?)));
    let mut wide: Vec<(&PointSummary, f64)> = widths.filter(|(_, width)| *width > WIDE).collect();
    wide.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (point, width) = wide.first()?;
    let text = format!(
        "At {} of {} the confidence interval of the throughput is wider than {}; the widest is {}, at {}.",
        wide.len(),
        counted(summary.points.len(), "point"),
        plus_minus(WIDE),
        plus_minus(*width),
        points.full_name(point)
    );
    Some(Notice::new(Tone::Warning, text))
}

/// Reports the number of points at which the machine's own noise matters, and the worst of them.
fn machine_noise(summary: &Summary, points: &Points<'_>) -> Vec<Notice> {
    let noises = summary
        .points
        .iter()
        .filter_map(|point| Some((point, NoiseShare::of(point)?)));
    let noisy: Vec<(&PointSummary, NoiseShare)> =
        noises.filter(|(_, noise)| noise.is_shown()).collect();
    let most = noisy
        .iter()
        .max_by(|a, b| a.1.explains().total_cmp(&b.1.explains()));
    most.and_then(|(point, noise)| {
        let text = format!(
            "The machine's own noise matters at {} of {}; most at {}: {}.",
            noisy.len(),
            counted(summary.points.len(), "point"),
            points.full_name(point),
            noise.describe()?
        );
        Some(Notice::new(Tone::Warning, text))
    })
    .into_iter()
    .collect()
}

/// Doubts about runs, each with the number of runs affected.
fn doubts(summary: &Summary) -> Vec<Notice> {
    let mut doubts: BTreeMap<&String, usize> = BTreeMap::new();
    for doubt in summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .flat_map(|run| &run.doubts)
    {
        *doubts.entry(doubt).or_default() += 1;
    }
    let found = doubts.into_iter().take(DOUBTS_MAX).map(|(doubt, runs)| {
        Notice::new(
            Tone::Warning,
            format!("Doubtful in {}: {doubt}.", counted(runs, "run")),
        )
    });
    found.collect()
}
